/*
 * The simulated world: virtual time, one seeded source of chance, a queue of events, faults that
 * are counted, and a trace whose hash tells two runs apart. One thread owns all of it; there is one
 * world per process, because the seam (reactor/ring.h) has no place for a context.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"
#include "base/util.h"

/* What can go wrong, and rare things that must have been seen. Each has a row in world.c. */
enum fault {
	/* the ring */
	FAULT_SQ_FULL,
	FAULT_ENTER_EAGAIN,
	FAULT_ENTER_EBUSY,
	FAULT_ENTER_PARTIAL,
	FAULT_CQ_OVERFLOW,
	FAULT_CQE_STALE,
	FAULT_CQE_DUPLICATE,
	FAULT_CQE_REORDER,
	FAULT_WAKE_SPURIOUS,
	FAULT_CLOCK_STALL,
	FAULT_MAIL_EINTR,
	FAULT_FILE_SET,
	FAULT_TIMEOUT,
	FAULT_BUFFERS_INIT,
	FAULT_BUFFER_REGISTER,
	FAULT_GROUP_SET,
	/* the disk below the file and mem backends */
	FAULT_DISK_SHORT_READ,
	FAULT_DISK_SHORT_WRITE,
	FAULT_DISK_EINTR,
	FAULT_DISK_EAGAIN,
	FAULT_DISK_EIO_READ,
	FAULT_DISK_EIO_WRITE,
	FAULT_DISK_EIO_FSYNC,
	FAULT_DISK_EIO_FALLOCATE,
	FAULT_DISK_ENOSPC_WRITE,
	FAULT_DISK_ENOSPC_FALLOCATE,
	FAULT_DISK_ECANCELED,
	FAULT_DISK_EOPNOTSUPP,
	FAULT_DISK_SLOW,
	/* the network and the servers */
	FAULT_NET_SOCKET,
	FAULT_NET_SHORT_SEND,
	FAULT_NET_SHORT_RECEIVE,
	FAULT_NET_EINTR,
	FAULT_NET_CUT, /* a place is chosen; the next two: it was reached */
	FAULT_NET_CUT_CLIENT,
	FAULT_NET_CUT_SERVER,
	FAULT_NET_RESET,
	FAULT_NET_CANCELLED_RECEIVE,
	FAULT_NET_REFUSED,
	FAULT_NET_UNANSWERED, /* a connect that nothing comes of */
	FAULT_NET_ERROR,
	FAULT_NET_REFUSED_EARLY,
	FAULT_NET_SLOW,
	FAULT_NET_SILENT,
	FAULT_NET_MUTE, /* connections are accepted, requests not answered */
	FAULT_NET_DIES,
	FAULT_NET_DEATH, /* the same, with those that a cut became */
	FAULT_NET_CACHE_LOST,
	FAULT_NET_CHANGED,
	FAULT_NET_FLUSH_LOST, /* a FLUSH fails for what may be lost */
	FAULT_NET_OUTAGE,     /* a request fails because there was no server */
	/* a backend of the test's own */
	FAULT_BACKEND_BUSY,
	FAULT_BACKEND_ERROR,
	FAULT_BACKEND_HANG,
	FAULT_BACKEND_OPEN,
	FAULT_BACKEND_QUEUE_INIT,
	FAULT_BACKEND_IO_INIT,
	/* trees of it */
	FAULT_TREE_RUN, /* runs with one */
	FAULT_TREE,
	FAULT_TREE_DEEP,  /* stripes over stripes */
	FAULT_TREE_PIECE, /* a leaf has a part of a request */
	FAULT_TREE_FLUSH,
	FAULT_TREE_PIECE_ERROR,
	FAULT_TREE_PIECE_CANCELLED,
	FAULT_TREE_RESIZED,
	FAULT_TREE_NO_SIZE, /* that all of its leaves can have */
	FAULT_TREE_RECOVERED,
	/* the driver */
	FAULT_CTL_FEATURES,
	FAULT_CTL_ADD,
	FAULT_CTL_EEXIST,
	FAULT_CTL_SET_PARAMS,
	FAULT_CTL_AFFINITY,
	FAULT_CTL_START,
	FAULT_CTL_STOP,
	FAULT_CTL_DEL,
	FAULT_CTL_UPDATE_SIZE,
	FAULT_BACKEND_GROW,
	FAULT_RESIZE_GROWN,
	FAULT_RESIZE_SHRUNK,
	FAULT_RESIZE_REFUSED,
	FAULT_RESIZE_KEPT,
	FAULT_CTL_SLOW,
	FAULT_CTL_NO_TRY_STOP,
	FAULT_CTL_NO_DEL_ASYNC,
	FAULT_OLD_FILE_TABLE,
	FAULT_FEWER_QUEUES,
	FAULT_OPEN_LATE,
	FAULT_OPEN_EACCES,
	FAULT_OPEN_EBUSY,
	FAULT_OPEN_FAILS,
	FAULT_MAP_FAILS,
	FAULT_FETCH_FAILS,
	FAULT_COMMIT_FAILS,
	FAULT_COPY_SHORT,
	FAULT_BATCH_FETCH_FAILS,
	FAULT_BATCH_FETCH_FEW,
	FAULT_BATCH_NO_BUFFER,
	FAULT_BATCH_NO_CQE,
	FAULT_BATCH_COMMIT_PARTIAL,
	/* ways that the bytes of a served request took */
	FAULT_PATH_COPY,
	FAULT_PATH_USER_COPY,
	FAULT_PATH_FIXED,
	FAULT_PATH_FALLBACK,
	FAULT_PATH_METADATA,
	FAULT_PATH_BATCH,
	FAULT_UNKNOWN_OP,
	FAULT_OPENER,
	FAULT_PROBE,
	FAULT_FOREIGN_STOP,
	FAULT_FOREIGN_DEL,
	/* what the device's user does */
	FAULT_STOP_ON_WAY_UP,
	FAULT_STOP_REFUSED,
	FAULT_STOP_REFUSED_LATE,
	FAULT_STOP_SLOW,
	FAULT_STOP_LATE,
	FAULT_STOP_TWICE,
	FAULT_NO_OP_SLOTS,
	FAULT_NO_MEMORY,
	FAULT_NO_MAPPING,
	FAULT_FILE_TRUNCATED,
	/* kill -9: where the devices stood */
	FAULT_KILL_BETWEEN_DEVICES,
	FAULT_KILL_ADDING,
	FAULT_KILL_PARAMS,
	FAULT_KILL_OPENING,
	FAULT_KILL_PLACING,
	FAULT_KILL_ATTACHING,
	FAULT_KILL_STARTING,
	FAULT_KILL_LIVE,
	FAULT_KILL_STOPPING,
	FAULT_KILL_DRAINING,
	FAULT_KILL_DELETING,
	FAULT_KILL_RECOVERING,
	FAULT_KILL_READOPTING, /* in a recovery, behind START_USER_RECOVERY */
	FAULT_KILL_IN_ENTER,   /* with SQEs that the kernel has not taken */
	FAULT_KILL_COPY,       /* with requests of a device of this kind */
	FAULT_KILL_USER_COPY,
	FAULT_KILL_ZERO_COPY,
	FAULT_KILL_BATCH,
	FAULT_KILL_CONTROL, /* a command of the dead is executed all the same */
	FAULT_KILL_IO_LOST,
	FAULT_KILL_IO_LANDS,
	FAULT_KILL_IO_LATE, /* when the next server may be there already */
	/* what the driver does meanwhile */
	FAULT_NOSRV_REISSUED,
	FAULT_NOSRV_FAILED,
	FAULT_NOSRV_WAITS,
	FAULT_NOSRV_REFUSED,
	FAULT_NOSRV_DEAD,
	FAULT_RELEASE_SLOW,
	FAULT_FULL_QUEUE, /* Linux 6.12 notices the death by a timeout only */
	/* and the next server */
	FAULT_NOTE_FAILS,
	FAULT_RECOVERY_BUSY,
	FAULT_RECOVERY_LOCKED, /* the file is in use by the dead server's I/O */
	FAULT_RECOVERY_SHRUNK, /* the file is shorter than it was */
	FAULT_RECOVERY_GROWN,
	FAULT_RECOVERY_OTHER,	 /* another file stands in its place */
	FAULT_RECOVERY_VANISHED, /* somebody deletes the device */
	FAULT_RECOVERY_GET_PARAMS,
	FAULT_RECOVERY_START,
	FAULT_RECOVERY_END,
	FAULT_RECOVERY_SWEPT, /* what daemon/devices/old_driver.c does */
	FAULT_RECOVERY_KEPT,
	FAULT_RECOVERY_DISCARDED,
	FAULT_RECOVERED,
	/* targets of nvme-tcp: behind all others, see choose_rates */
	FAULT_NVME_REFUSED, /* a bring-up */
	FAULT_NVME_ABORTED,
	FAULT_NVME_EVENT,
	FAULT_NVME_AWAY, /* the namespace is not there */
	FAULT_NO_PARTITION_SCAN,
	FAULT_PATH_SHMEM,
	FAULT_SHMEM_RESTORED,
	FAULT_CTL_SHMEM,
	FAULT_UNPRIVILEGED,  /* a device of a server without CAP_SYS_ADMIN */
	FAULT_NODE_NOT_OURS, /* a command to it, while udev has yet to give it its node */
	/* zones */
	FAULT_ZONED, /* such a device became live */
	FAULT_ZONE_APPEND,
	FAULT_ZONE_RESET,
	FAULT_ZONE_REPORT,
	FAULT_ZONE_REFUSED,    /* a write that no zone has a place for */
	FAULT_ZONE_LIMIT,      /* as many are open or active as can be */
	FAULT_ZONE_MIXED,      /* requests whose order nobody knows */
	FAULT_ZONE_GIVEN_BACK, /* a write failed, and its place is the next one's */
	FAULT_ZONE_AGAIN,      /* a write of a server that died */
	FAULT_ZONE_RECOVERED,
	FAULT_ZONE_RESTARTED,
	FAULT_NR,
};

const char *fault_name(enum fault fault);
/* Can happen in a world of this kind (sim.only_net). */
bool fault_possible(enum fault fault);

/* Defects that the simulator puts in on purpose, to see that its oracles see them. */
enum defect {
	DEFECT_NONE,
	DEFECT_DOUBLE_COMPLETE, /* the backend completes an I/O twice */
	DEFECT_DOUBLE_COMMIT,	/* a COMMIT reaches the driver twice */
	DEFECT_SHORT_COMMIT,	/* a COMMIT says fewer bytes than were asked for */
	DEFECT_LOST_TAG,	/* the backend never completes an I/O */
	DEFECT_LOST_COMMIT,	/* a COMMIT never reaches the driver */
	DEFECT_FLUSH_EARLY,	/* a FLUSH is answered before its writes are durable */
	DEFECT_FUA_EARLY,	/* a FUA write is answered before it is durable */
	DEFECT_WRONG_DATA,	/* a read returns one wrong bit */
	DEFECT_LOST_WRITE,	/* a write is answered and not done */
	DEFECT_WRONG_ERRNO,	/* the backend answers another errno than it got */
	DEFECT_SWALLOWED_ERROR, /* the backend answers success for a failed I/O */
	DEFECT_STALE,		/* a completion of an I/O that is still in flight */
	DEFECT_LEAKED_OP,	/* the backend keeps an op slot */
	DEFECT_LEAKED_MEMORY,	/* the backend keeps memory */
	DEFECT_ALLOCATION,	/* the backend allocates for an I/O */
	DEFECT_NO_DSYNC,	/* a FUA write reaches the file without RWF_DSYNC */
	DEFECT_NO_FSYNC,	/* an fsync does not reach the file */
	DEFECT_SHORT_WRITE,	/* the rest of a short write is forgotten */
	DEFECT_LOST_CACHE,	/* a server loses its cache, and keeps its connections */
	DEFECT_LONG_RECEIVE,	/* a receive says more than it has brought */
	DEFECT_LONG_SEND,	/* a send says more than it has taken by then */
	DEFECT_IMPATIENT,	/* requests wait half as long as they are to */
	DEFECT_PATIENT,		/* they wait for ever */
	DEFECT_SHORT_COPY,	/* a short user copy counts as a whole one */
	DEFECT_NO_HAND_COPY,	/* a request that could not be registered is not copied by hand */
	DEFECT_BUFFER_KEPT,	/* a COMMIT leaves the request's pages registered */
	DEFECT_PARTIAL_COMMIT,	/* what a partial COMMIT left is forgotten */
	DEFECT_BUFFER_LOST,	/* provided buffers that no CQE names are forgotten */
	DEFECT_LOST_REISSUE,	/* a request that comes again is never served */
	DEFECT_EARLY_SERVE,	/* the next server does not wait for the dead one's I/O */
	DEFECT_OLD_COMMIT,	/* a tag of the former life is committed in the next */
	DEFECT_LOST_MEMORY,	/* the next server begins with empty memory */
	DEFECT_LOST_NOTE,	/* a device is in the driver and no note names it */
	DEFECT_NR,
};
static inline bool defect_of_net(enum defect defect)
{
	return defect >= DEFECT_LOST_CACHE && defect <= DEFECT_PATIENT;
}
/* Those from here on need a server that is killed. */
#define DEFECT_FIRST_OF_KILL DEFECT_LOST_REISSUE

/* Which protocol the servers of a run speak: every third seed has NVMe/TCP, the others NBD. */
#define SIM_NVME_EVERY 3
static inline bool sim_seed_is_nvme(uint64_t seed)
{
	return seed % SIM_NVME_EVERY == SIM_NVME_EVERY - 1;
}

const char *defect_name(enum defect defect);
/* As fault_possible. */
bool defect_possible(enum defect defect);
/* What the run must say when it catches the defect. */
const char *defect_words(enum defect defect);

/*
 * Whose code runs: memory is the product's, and goes with it, when it was taken on its side;
 * allocations are counted, and fail, in SIM_PRODUCT only.
 */
enum sim_side { SIM_WORLD, SIM_PRODUCT, SIM_BOOT };

struct sim_event;
typedef void sim_event_fn(struct sim_event *event);
struct sim_event {
	sim_event_fn *fn;
	uint64_t at_ns, seq;
	size_t pos; /* in the heap, from 1; 0: not armed */
};

/*
 * A short session over the network, the same but for one thing: one of its first connections is cut
 * when one side has sent so many bytes. All else goes well.
 */
enum net_side { NET_CLIENT, NET_SERVER };
struct sim_cut {
	bool on;
	enum net_side by;
	uint64_t at;
	unsigned nth; /* from 0: which connection; of NVMe that of the I/O queue, then the other */
	/* out: of that connection */
	unsigned connect_nr;
	int fd;
	bool done;
	uint64_t sent[2];
};

struct sim {
	uint64_t seed;
	struct prng prng;
	uint64_t now_ns;
	bool verbose, only_net; /* stays, as the cut's input does */
	struct sim_cut cut;
	enum defect defect;
	bool defect_done;

	struct sim_event **heap; /* 1-based */
	size_t heap_nr, heap_cap;
	uint64_t event_seq;

	uint32_t fault_ppm[FAULT_NR]; /* in this run */
	uint64_t *fault_nr;	      /* counters, shared with the parent process */
	uint64_t trace_hash, trace_nr;
	bool few_op_slots; /* a reactor may run out of them */
	enum sim_side side;
	uint64_t alloc_nr; /* the product's allocations */
	uint64_t progress; /* moves whenever something useful came to an end */
	void (*dump)(void);
};
extern struct sim sim;

void sim_init(uint64_t seed, enum defect defect, uint64_t *fault_nr);
void sim_fini(void);

/* Crosses to a side; returns the one to go back to. */
static inline enum sim_side sim_cross(enum sim_side to)
{
	enum sim_side from = sim.side;

	sim.side = to;
	/* The compiler believes that malloc does not look at it. */
	__asm__ volatile("" ::: "memory");
	return from;
}

/* alloc.c: what is taken on the product's side and not given back. */
unsigned sim_owned_nr(void);
/* Gives all of it back, as the end of a process does. */
void sim_owned_drop(void);

/* Chance. */
static inline uint64_t sim_below(uint64_t n)
{
	return prng_below(&sim.prng, n);
}

static inline uint64_t sim_between(uint64_t min, uint64_t max)
{
	return min + sim_below(max - min + 1);
}

static inline bool sim_one_in(uint64_t n)
{
	return prng_one_in(&sim.prng, n);
}

/* Between min and max, each order of magnitude as likely as any other. */
uint64_t sim_skewed(uint64_t min, uint64_t max);

/* True when the fault is to happen here; then it is counted. */
bool sim_fault(enum fault fault);
/* Counts a thing that came about by itself. */
void sim_saw(enum fault fault);
/* True once in the run, where the run's defect is this one. */
bool sim_defect(enum defect defect);
/* The same, any number of times. */
bool sim_defect_always(enum defect defect);

/*
 * The product has just asked something of the kernel, or is about to: it may be killed here, and
 * then this does not return (kill.c). The world must be in order.
 */
void sim_kill_point(void);

/* Descriptors of the world: all others are the product's, and go with it. Fails the run instead of
 * returning an error. */
int sim_fd_dup(int fd);
void sim_fd_own(int fd);
void sim_fd_close(int fd);
/* Begins a run: what is open now is the world's. */
void sim_fds_init(void);
/* Closes those of the product, and returns how many. */
unsigned sim_fds_drop(void);

/* Events. Arming an armed one moves it. */
void sim_event_arm(struct sim_event *event, uint64_t at_ns, sim_event_fn *fn);
void sim_event_cancel(struct sim_event *event);
/* Runs what is due; returns how many. */
unsigned sim_events_run(void);
uint64_t sim_next_event_ns(void);

/* One line of the trace: goes into the hash, and to stderr when verbose. No pointers. */
void sim_trace(const char *what, uint64_t a, uint64_t b, uint64_t c, int64_t d);

/* The product, or the simulator, is wrong: says so with a dump and ends the process. */
_Noreturn void sim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
