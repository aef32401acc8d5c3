/*
 * What a backend is: a place where the bytes of a block device live. A backend never sees ublk;
 * the core never sees the inside of a backend. Everything between them is in this file, in child.h
 * (trees) and in limits.h (sizes and what a storage can).
 *
 * A backend is one const table (struct backend). The core allocates its private areas (zeroed),
 * parses its options, and calls:
 *
 *   a helper          open -> ............................................... -> close
 *   control thread         open_async -> ................... -> close_async ->
 *   reactor thread               queue_init -> submit, submit, ... -> queue_fini
 *
 * Threads: open and close run on a helper (reactor/helper.h), where they may block; open_async and
 * close_async on the control reactor, where they wait for peers and children without blocking
 * (visit.h). None of them runs while a queue is initialised. queue_init, submit, cancel and
 * queue_fini of one queue run on the reactor that owns it; several queues of one device may run on
 * several reactors at once, so whatever is in the device's private area is read-only after open, or
 * atomic. Resizing (struct backend_resize) is like opening, while the queues serve.
 *
 * Backends over others make a tree of nodes, described by struct backend_spec: filters over one
 * child, stripe over many. It is opened from the bottom up and closed from the top down, its queues
 * likewise. Behind each I/O of a node stands one I/O of each of its children, tied to the same tag;
 * a node may have more of its own (own_nr), which are tied to the tags behind those. What it can do
 * with them: pass a request on whole (backend_forward), cut it into pieces (backend_piece), issue
 * requests of its own (backend_own_take), and see how each ends (child_done). io.c keeps what a
 * child is too busy for, so a node never sees BUSY of a child.
 *
 * io.c checks this contract around every call, in production too. What it answers by itself a
 * backend never sees: ranges outside the device or across blocks, modifying I/Os of a read-only
 * device, operations without their capability, and FLUSH of a device that has no volatile cache.
 */
#ifndef STORAGE_BACKEND_H
#define STORAGE_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"
#include "config/option.h"
#include "reactor/reactor.h"
#include "storage/child.h"
#include "storage/limits.h"
#include "storage/look.h"
#include "storage/operation.h"
#include "storage/owed.h"

struct backend_above; /* snapshot.h */
struct backend_io;
struct backend_integrity_look; /* metadata.h */
struct backend_shared_ops;     /* sharing.h */
struct backend_version_ops;    /* version.h */
struct backend_visit;	       /* visit.h */
struct backend_zones_look;     /* zones.h */

/* Said once, by the device's configuration, before open. */
struct backend_open_params {
	uint32_t logical_block_bytes; /* of the block device */
	uint32_t max_io_bytes;	      /* of a READ or WRITE; 0: no limit */
	uint32_t queue_nr, depth;
	bool read_only;
	/*
	 * For the node, by tree.c: above 0, the content that it had before, as its operation
	 * stored_fd gave it, to go on with. Borrowed until open returns; a backend that keeps it
	 * takes a duplicate. 0 and -errno: there is none.
	 */
	int stored_fd;
	/*
	 * Above 0: of a device that is taken over, the size that it has: instead of the configured
	 * one, which it may have grown out of. A backend that has less says so by its limits, and
	 * does not grow.
	 */
	uint64_t size_bytes;
	bool is_taken_over; /* tree.c: the device is, though size_bytes may be 0 for this node */
	/*
	 * For who opens a tree, borrowed until that has ended: BACKEND_STORED_MAX of them, by the
	 * index of backend_stored_fd. NULL: there are none.
	 */
	const int *stored_fds;
	int owed_fd; /* the same: above 0, a file of BACKEND_OWED_BYTES, for owed.h's counts */
};

/* "disk/backends/1": a node by the way from its device; a key "backend" is left out of it. */
#define BACKEND_PATH_BYTES 640

#define BACKEND_ERROR_BYTES 256
#define BACKEND_IDENTITY_BYTES 96
#define BACKEND_PLACES_MAX 10u

struct backend_device {
	const struct backend *ops;
	const char *name;		 /* for messages: BACKEND_PATH_BYTES describes it */
	const void *config;		 /* filled by ops->options; lives as long as the device */
	const struct backend_spec *spec; /* what it was made from; lives as long as the device */
	const struct backend_child_option *as; /* the spec's */
	struct backend_open_params open_params;
	/* Out: by open. A node with children finds theirs here, joined: node.h. */
	struct backend_limits limits;
	void *priv; /* ops->device_bytes */
	/* The first child, open before this one; the next child of the same parent. */
	struct backend_device *parent, *child, *sibling;
	unsigned child_nr;
	bool touched, open;	   /* life.c: ops->open was called; it is open, as a whole */
	bool has_copies, was_owed; /* owed.h's; the first is set by the node above at open */
	struct backend_owed *owed, owed_here, *owed_kept; /* owed.h's; kept: of the top */
	unsigned node_idx; /* tree.c: in its tree, below backend_node_nr(); 0: the top */
	/* backend_on_news: of the top. */
	void (*hears)(void *arg, enum backend_news news);
	void *hears_arg;
	struct backend_spec *resolved;	 /* life.c: of the top, the spec when it is its own */
	struct backend_claim *claim;	 /* sharing.c: of a leaf that has places */
	struct backend_tail tail;	 /* resize.h: where its storage ends within a block */
	const char *note;		 /* out: what its user is told; static. NULL: none */
	char path[BACKEND_PATH_BYTES];	 /* tree.c: name, when it is not the opener's */
	char error[BACKEND_ERROR_BYTES]; /* out: of a failed open, the reason and the cure */
};

struct backend_queue {
	struct backend_device *device;
	struct reactor *reactor;
	uint16_t idx;
	uint16_t depth;
	void *priv; /* ops->queue_bytes */
	struct backend_queue *parent, *child, *sibling;
	uint32_t inflight; /* io.c: QUEUED and not complete */
	/* io.c: the thread that opened it; NULL while ops->submit runs */
	const void *free_for;
	uint8_t *io_priv; /* io.c: depth private areas of I/Os */

	/* io.c: I/Os of the node above for which this was BUSY, and what submits them again. */
	struct list_node waiting;
	struct task retry;

	/* io.c: of a node that issues requests of its own. */
	struct backend_own *own;
	struct list_node own_free;
	void *own_buffers; /* io_queue.c: mapped, ops->own_nr of them; NULL: none declared */
};

enum backend_io_state {
	BACKEND_IO_IDLE,
	BACKEND_IO_SUBMITTING,
	BACKEND_IO_QUEUED,
	BACKEND_IO_QUEUED_FLUSH, /* the same, of a FLUSH: its end is judged */
	BACKEND_IO_QUEUED_LAST,	 /* the same, of a READ of the last block: zeroes follow */
};

typedef void backend_done_fn(struct backend_io *io);

/*
 * One request. The submitter fills op to done and keeps buf valid until completion; it never
 * changes an I/O that is QUEUED. Ranges lie inside the device and are multiples of its logical
 * block: io.c has checked them.
 */
struct backend_io {
	struct backend_queue *queue;
	backend_done_fn *done;
	uint8_t op;    /* enum backend_op */
	uint8_t flags; /* enum backend_io_flags */
	uint8_t state; /* enum backend_io_state: io.c's */
	union {
		uint8_t zone;	      /* ZONE_MANAGE: enum backend_zone_action */
		bool loss_is_counted; /* owed.h's, of a FLUSH: by a node below */
	};
	uint16_t tag;
	uint16_t flush_told; /* owed.h's, of a FLUSH under way */
	int32_t result; /* 0: all of it was done; -errno: nothing may be assumed. Never short. */
	uint32_t length_bytes; /* DISCARD and WRITE_ZEROES can be nearly 4 GiB; 0 for FLUSH */
	uint64_t offset_bytes; /* 0 for FLUSH of the driver; of others it says nothing */
	/*
	 * READ, WRITE: where the bytes are.
	 *   buf_index -1, buf set    in memory, aligned to the device's dma_alignment_bytes (a page
	 *                            is enough)
	 *   buf_index from 0 on      in that registered buffer, from the address buf on, which
	 *                            counts from 0 (BACKEND_DATA_FIXED)
	 *   buf_index -1, buf NULL   with the driver alone (BACKEND_DATA_MOVES)
	 */
	void *buf;
	int32_t buf_index;
	int32_t driver_fd;   /* of the last two: where ring_pread finds them too, */
	uint64_t driver_pos; /* and from which position on; its metadata: metadata.h */
	void *priv;	     /* ops->io_bytes, zeroed once at start, kept between uses */
	/* How long it waited in throttles, of the whole way down. Zeroed by submit. */
	uint64_t throttle_ns;
	/*
	 * child: an array, the same tag at each child; NULL: none. parent: the I/O of the node
	 * above; NULL: none, also of what is a node's own.
	 */
	struct backend_io *child, *parent;
	struct list_node waiting; /* io.c: in its queue's list */
};

/* Whether the bytes of a READ or WRITE are in memory, at buf. */
static inline bool backend_io_in_memory(const struct backend_io *io)
{
	return io->buf_index < 0 && io->buf;
}

static inline bool backend_io_is_queued(const struct backend_io *io)
{
	return __atomic_load_n(&io->state, __ATOMIC_RELAXED) >= BACKEND_IO_QUEUED;
}

enum backend_submit {
	BACKEND_DONE,	/* io->result is set; done is not called */
	BACKEND_QUEUED, /* backend_io_complete exactly once later, never from inside submit */
	/*
	 * Not taken, nothing kept: submit it again when another one of this queue is complete.
	 * Legal only while one is in flight, or nobody would ever submit it again.
	 */
	BACKEND_BUSY,
};

/* Whether bytes are in use, as far as a backend can tell. */
enum backend_usage { BACKEND_UNUSED, BACKEND_USED, BACKEND_USAGE_UNKNOWN };

/*
 * How a backend changes its size while its queues serve; of a whole tree: resize.h. All on a
 * helper, one at a time, of devices that can be written. The core changes limits.size_bytes, and:
 *
 *   growing    grow -> the core raises the limits -> the block device grows
 *   shrinking  usage -> the block device shrinks -> the core lowers the limits, so that requests
 *              beyond the new end fail -> those that the backend has had before end -> shrink
 */
struct backend_resize {
	/*
	 * How much there is without being asked to grow: of what has grown by itself below. May be
	 * less than the device's size. Returns 0 or -errno with device->error set. NULL: it has no
	 * size of its own.
	 */
	int (*size_now)(struct backend_device *device, uint64_t *ret_bytes);
	/*
	 * Makes room up to size_bytes, which is more than limits.size_bytes. Returns 0, or -errno
	 * with device->error set: then all is as before. NULL: there always is room.
	 */
	int (*grow)(struct backend_device *device, uint64_t size_bytes);
	/* After that, what must ask a peer or write to a child: visit->size_bytes. May be NULL. */
	void (*grow_async)(struct backend_visit *visit);
	/* Of the bytes from start_bytes on, before end_bytes. NULL: they never are. */
	enum backend_usage (*usage)(struct backend_device *device, uint64_t start_bytes,
				    uint64_t end_bytes);
	/*
	 * Gives back what was from start_bytes on, before end_bytes, the device's end until now; no
	 * I/O touches it any more. It reads as zeroes when the device grows again, where that is in
	 * the backend's hands. Failures are logged: nothing depends on it. NULL: nothing to give.
	 */
	void (*shrink)(struct backend_device *device, uint64_t start_bytes, uint64_t end_bytes);
};

struct backend {
	const char *name;
	const char *summary; /* one line for the manual */
	const struct option *options;
	size_t config_bytes; /* of the struct that options fill */
	size_t device_bytes, queue_bytes, io_bytes;
	/*
	 * Rows of options itself, not of a group in it: the device's size, the file that holds the
	 * bytes; NULL: none has it.
	 */
	const struct option *size_option, *path_option;
	/* word.h: the URIs that name its storage; NULL: none do. */
	const struct backend_uri *uri;
	uint8_t data; /* enum backend_data */
	/*
	 * Options in YAML with which it does every request as it should, over any children, and
	 * wants nothing of the machine: conformance and the simulator take a node from here. NULL:
	 * it wants a path or a server, or its bytes follow a rule of their own.
	 */
	const char *test_options;
	/*
	 * Its requests end later than in the turn that submits them, by a CQE or an answer of a
	 * peer: where more than one is in flight, commands of ublk for many tags at once pay. Where
	 * requests end at once they gain nothing (docs/performance.md).
	 */
	bool batches;
	/*
	 * Its children hold an image, which other programs (QEMU) understand too and look after:
	 * file locks it as they do.
	 */
	bool is_image_format;
	/*
	 * It is zoned (zones.h), it keeps metadata (metadata.h): it stands at the top of its
	 * device, for other nodes do not pass on what the driver alone knows of its requests.
	 */
	bool is_zoned, has_integrity;
	/* It keeps some of its children's bytes, or what it knows of them: sharing.h. */
	bool alone_below;
	bool is_bytewise; /* a leaf whose requests may begin and end at any byte */
	/* Of has_integrity: the metadata of so many bytes, in blocks of so many. */
	uint32_t (*metadata_bytes)(const void *config, uint32_t bytes, uint32_t block_bytes);
	const struct backend_child_option *children; /* ends without a name; NULL: a leaf */
	/*
	 * Requests of its own that a queue may have under way at a time, and the bytes of the
	 * buffer of each.
	 */
	uint16_t own_nr;
	uint32_t own_bytes;
	/*
	 * What the option table cannot say: looks at several options together and adds errors at
	 * their positions in map (NULL: there is none). The options by themselves are valid. May be
	 * NULL.
	 */
	void (*check)(const void *config, const struct yaml_node *map, struct config_errors *e);

	/*
	 * A helper, before there is a device: finds a child that the configuration leaves to the
	 * node, such as the image that this one says it stands over, by reading what spec says; it
	 * may block. *ret_child is the caller's (backend_spec_from_text), with `as` set and no
	 * sibling, and is asked in turn; NULL: none is wanted. Returns 0, or -errno with words. May
	 * be NULL.
	 */
	int (*resolve)(const struct backend_spec *spec, struct backend_spec **ret_child,
		       char *error, size_t error_bytes);
	/* Returns 0 or -errno with device->error set. May be NULL: nothing to open. */
	int (*open)(struct backend_device *device);
	/*
	 * After open, what must ask a peer or read a child: visit.h. The limits may be set here.
	 * May be NULL.
	 */
	void (*open_async)(struct backend_visit *visit);
	/*
	 * Before the children and itself are closed, the last word to a peer or a child. Only of
	 * one that was open; failures are logged: nothing depends on it. May be NULL.
	 */
	void (*close_async)(struct backend_visit *visit);
	/*
	 * Asks such a part, or grow_async, to end soon: backend_visit_done follows, perhaps from
	 * inside. NULL: it waits for nobody but its children, whose requests the core cancels.
	 */
	void (*cancel_async)(struct backend_visit *visit);
	/* Also after a failed open, whatever state it left. May be NULL. */
	void (*close)(struct backend_device *device);
	/* Return 0 or -errno; queue_fini also runs after a failed queue_init. May be NULL. */
	int (*queue_init)(struct backend_queue *queue);
	void (*queue_fini)(struct backend_queue *queue);
	/*
	 * Of a node with requests of its own that no request waits for. None is in flight: it
	 * begins no more until one comes. Returns whether none of its own is under way; asked until
	 * then, before queue_fini and before another process serves the bytes. NULL: it has none.
	 */
	bool (*rest)(struct backend_queue *queue);
	/* Once per I/O after queue_init, to set up its private area; may be NULL. 0 or -errno. */
	int (*io_init)(struct backend_io *io);
	void (*io_fini)(struct backend_io *io);

	enum backend_submit (*submit)(struct backend_io *io);
	/*
	 * Asks a QUEUED I/O to come to an end soon, with any result (a completion that was on its
	 * way wins). It still completes exactly once, perhaps before cancel returns. It is asked
	 * once: whatever waits, or takes several steps, must not go below after that. NULL: I/Os
	 * always end by themselves.
	 */
	void (*cancel)(struct backend_io *io);
	/*
	 * A child's I/O that backend_child_submit answered with QUEUED is complete: a piece of
	 * child->parent, or a request of the node's own. child->result says how. May submit it
	 * again, and complete the parent. Never from inside submit. NULL: the node only forwards
	 * whole requests to its first child.
	 */
	void (*child_done)(struct backend_io *child);

	/*
	 * How the sizes of a node and of its children go together. Pure; any thread. The size of
	 * the node whose smallest child has child_bytes, and the size that each child must have for
	 * a node of size_bytes. Both or none; NULL: they are the same.
	 */
	uint64_t (*size_over)(const void *config, unsigned child_nr, uint64_t child_bytes);
	uint64_t (*size_below)(const void *config, unsigned child_nr, uint64_t size_bytes);
	/*
	 * Instead: its size has nothing to do with those of its children, as that of an image that
	 * says it. For sizes, a leaf: its own size_option and resize count, nothing below is asked
	 * or changed. What its children must have it sees to by itself (backend_set_size).
	 */
	bool sizes_itself;

	/*
	 * What a QUEUED I/O waits for, for those who ask why it takes so long. Main thread, while
	 * the reactor goes on, so: relaxed loads of plain values, no lists, no pointers that
	 * change. May be NULL.
	 */
	struct backend_wait (*wait)(const struct backend_io *io);

	/*
	 * Main thread, from open to close: identity, stored_fd, abandon and failure.
	 *
	 * Words, found at open, that say which bytes these are: equal for two devices, now or in
	 * different processes of one boot, exactly when what one writes the other reads. A device
	 * is taken over after a crash only when they are what they were. NULL: the backend's name
	 * says it; of a node with one child: that child's do. A node with more says how it lays the
	 * bytes out over them; whose they are is the core's to add.
	 */
	void (*identity)(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES]);
	/*
	 * Any thread, when it has just been opened: hashes of the places where its bytes are, at
	 * least 1. Two leaves have the same bytes when one of them is equal. NULL: nobody else of
	 * this process can have them, or a lock says so (sharing.h).
	 */
	unsigned (*places)(const struct backend_device *device,
			   uint64_t ret_places[static BACKEND_PLACES_MAX]);
	/*
	 * A descriptor that must outlive the process, or content is lost, or a lock: the fd store
	 * (fd_store_put says which it takes) holds it, and it comes back in open_params.stored_fd.
	 * Stays the backend's. NULL: nothing is lost with the process.
	 */
	int (*stored_fd)(const struct backend_device *device);
	/* So much of the machine's memory may the content come to use. NULL: none. */
	uint64_t (*memory_bytes)(const void *config);
	/*
	 * Main thread, before abandon, no I/O is in flight: again and again until true, which says
	 * that no acknowledged write ends with this process. Does not wait. NULL: none does.
	 */
	bool (*settle)(struct backend_device *device);
	/*
	 * Another process is to serve the same bytes, this one to end: gives up what would keep it
	 * out, at once, whatever is open. No I/O is in flight; nothing follows, not even a close.
	 */
	void (*abandon)(struct backend_device *device);
	/*
	 * Why it can serve no request any more, in words, with the cure; NULL: it can, or tries to.
	 * Main thread, while reactors go on; the words stay as they are until close. May be NULL.
	 */
	const char *(*failure)(const struct backend_device *device);

	/*
	 * For a leaf that talks to a peer: the connection of a queue by its index from 0 on; false:
	 * there are fewer. Main thread, while the reactor goes on, from
	 * queue_init to queue_fini: as for wait. NULL: it has none.
	 */
	bool (*connection)(const struct backend_queue *queue, unsigned idx,
			   struct net_connection_look *ret_connection);

	/*
	 * Of an image format, and of a file that may be below it: as for connection, struct
	 * backend_image_look but for what stands in the tree (node, file, depth). Sets what is the
	 * device's, adds what this queue has counted; waits for no storage. NULL: nothing to see.
	 */
	void (*look)(const struct backend_queue *queue, struct backend_image_look *look);

	/* Of a cache, as for look: struct backend_cache_look but for the node. NULL: it is none. */
	void (*look_cache)(const struct backend_queue *queue, struct backend_cache_look *look);
	/* Of what is zoned, and of what keeps metadata, as for look. NULL: not of this. */
	void (*look_zones)(const struct backend_queue *queue, struct backend_zones_look *look);
	void (*look_integrity)(const struct backend_queue *queue,
			       struct backend_integrity_look *look);
	/* Main thread: its library's threads, in the whole process. NULL: its library has none. */
	void (*library)(struct backend_library_look *ret_look);

	/*
	 * For leaves, and a node that sizes_itself. NULL: its size is for life. Another node with
	 * children can what all of them can.
	 */
	const struct backend_resize *resize;
	/* snapshot.h. NULL: it has none. Above: what those below are to it; NULL: a leaf. */
	const struct backend_snapshots *snapshots;
	const struct backend_above *above;
	const struct backend_version_ops *version; /* NULL: none, or version.h finds it below */
	const struct backend_cache_ops *cache_ops; /* cache_control.h; NULL: it is no cache */
	/* Whether a node of this configuration writes nothing below it. NULL: it may write. */
	bool (*only_reads)(const void *config);
	/* sharing.h: its one child is shared by several devices. NULL: children are its own. */
	const struct backend_shared_ops *shared;
};

/*
 * Any thread that may block; of trees whose nodes have nothing to wait for (open_async): else see
 * life.h. spec, what it points at and name stay the caller's and must outlive the device. Returns 0
 * with the root of the tree, or -errno with words for the user in error.
 */
int backend_open(struct backend_device **ret_device, const struct backend_spec *spec,
		 const char *name, const struct backend_open_params *open_params, char *error,
		 size_t error_bytes);

/* Private areas start on cache lines of their own: queues of one device run on different cores. */
#define BACKEND_AREA_ALIGN 64u

/* Zeroed memory so aligned, for free(3); NULL: there is none. For tree.c and io_queue.c. */
void *backend_area_alloc(size_t bytes);

/* For a backend's open: puts the words into device->error and returns err. */
int backend_fail(struct backend_device *device, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Any thread that may block: the whole tree, without what its nodes have to say at the end
 * (close_async); no queue may be open. Accepts NULL.
 */
void backend_close(struct backend_device *device);

/*
 * Main thread, from open to close. What all leaves and the nodes over them say: the bytes of two
 * devices are the same when their words are. Words that are too long are told apart by a hash.
 */
void backend_identity(const struct backend_device *top, char text[BACKEND_IDENTITY_BYTES]);

/*
 * Main thread, from open to close: struct backend's failure of the first leaf that has one, and
 * which node that is (may be NULL); NULL: none.
 */
const char *backend_failure(const struct backend_device *top,
			    const struct backend_device **ret_node);

/* How many nodes the tree has: at most BACKEND_NODES_MAX. */
unsigned backend_node_nr(const struct backend_device *top);

/* Main thread, in an upgrade: settle of all nodes, and their end, instead of backend_close. */
bool backend_settle(const struct backend_device *top);
void backend_abandon(const struct backend_device *top);

/*
 * Reactor thread. Allocates the queue's private areas; returns 0 or -errno. Must come before the
 * device serves: nothing is allocated afterwards.
 */
int backend_queue_open(struct backend_queue **ret_queue, struct backend_device *device,
		       struct reactor *reactor, unsigned idx, unsigned depth);
/* Reactor thread, no I/O is in flight: rest of the whole tree, until true. Accepts NULL. */
bool backend_queue_rest(struct backend_queue *queue);
/* Reactor thread; no I/O may be in flight, and it rests. Accepts NULL. */
void backend_queue_close(struct backend_queue *queue);

/* The size as it is now. Any thread, also while it changes. */
static inline uint64_t backend_size(const struct backend_device *device)
{
	return __atomic_load_n(&device->limits.size_bytes, __ATOMIC_RELAXED);
}

/* Bytes of memory behind the I/Os of a queue of this depth, of a whole tree: the worst case. */
size_t backend_spec_queue_bytes(const struct backend_spec *spec, unsigned depth);

/*
 * Ties an I/O (memory of the caller, zeroed) to a queue. Each tag below the queue's depth has one
 * private area: tie each once. Returns 0 or -errno, then it needs no fini.
 */
int backend_io_init(struct backend_io *io, struct backend_queue *queue, unsigned tag,
		    backend_done_fn *done);
void backend_io_fini(struct backend_io *io);

/* The only way to call submit. Reactor thread. */
enum backend_submit backend_io_submit(struct backend_io *io);
void backend_io_cancel(struct backend_io *io);

/* How a backend answers a QUEUED I/O. Calls io->done before it returns. */
void backend_io_complete(struct backend_io *io, int result);

/*
 * For backends that keep the bytes in memory: moves bytes of a READ into the request (put)
 * or of a WRITE out of it (get), from the request's byte at_bytes on, wherever its bytes are. With
 * BACKEND_DATA_MOVES alone may io->buf be NULL. Reactor thread, from submit until completion. A
 * READ puts all of its bytes: what is not put would show memory of the kernel. Return 0 or -EIO.
 */
int backend_data_put(struct backend_io *io, uint32_t at_bytes, const void *from, size_t bytes);
int backend_data_put_zeroes(struct backend_io *io, uint32_t at_bytes, size_t bytes);
int backend_data_get(struct backend_io *io, uint32_t at_bytes, void *to, size_t bytes);

/*
 * Puts bytes that lie in pieces, at most BACKEND_PIECES_MAX, into a READ that is not in memory, by
 * one system call: the driver walks through the pages of a request from its start for each.
 */
#define BACKEND_PIECES_MAX 256u
int backend_data_put_pieces(struct backend_io *io, uint32_t at_bytes, const struct iovec *iov,
			    unsigned nr);
/* So many zeroes, for such a piece. */
#define BACKEND_ZEROES_BYTES (1u << 20)
void *backend_data_zeroes(void);

/*
 * For the core: the same, whether or not there is a buffer of ours, between memory and the
 * request's own pages.
 */
int backend_data_to_driver(const struct backend_io *io, uint32_t at_bytes, const void *from,
			   size_t bytes);
int backend_data_from_driver(const struct backend_io *io, uint32_t at_bytes, void *to,
			     size_t bytes);

/* The kinds of data that all nodes of a tree can do: enum backend_data. */
uint8_t backend_spec_data(const struct backend_spec *spec);

/* Whether a leaf says so (struct backend); of what keeps something there of its own, any. */
bool backend_spec_batches(const struct backend_spec *spec);

/*
 * Any thread, while the I/O exists: the node of its tree where it waits, which is the deepest that
 * has it (of several the first), and what for. NULL when none has it.
 */
const struct backend_device *backend_io_where(const struct backend_io *io,
					      struct backend_wait *ret_wait);

/* registry.c: NULL when there is none; the table ends with NULL. */
const struct backend *backend_find(const char *name);
extern const struct backend *const backend_registry[];

/*
 * The one place where an errno of whatever origin becomes one that the block layer understands
 * (blk_status_t, block/blk-core.c): ENOSPC, EIO, EOPNOTSUPP, ETIMEDOUT, ENOLINK, EREMOTEIO,
 * ENODATA, EILSEQ, ENOMEM, and of zones ETOOMANYREFS and EOVERFLOW pass; EDQUOT becomes ENOSPC, all
 * else EIO. err and result are negative.
 */
int backend_errno_map(int err);

#endif
