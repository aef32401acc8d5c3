/*
 * What the bytes of one device must be, and which of them would survive a loss of power. It
 * outlives the device, as a file does. The client tells what was acknowledged, the disk what was
 * done.
 */
#ifndef SIM_STORAGE_H
#define SIM_STORAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "test/sim/tree/part.h"

struct model_dev;
struct client_rq;
struct server;
struct sim_zones;
struct backend_device;

/* What a block's last write has come to, where it was lost with a server's cache. */
enum storage_gone {
	STORAGE_KEPT,
	STORAGE_LOST,
	STORAGE_LOST_TOLD, /* a FLUSH has failed since, or nobody could know */
};

/* What a block's metadata must be, where the device keeps some. */
enum storage_metadata {
	STORAGE_UNCHECKED, /* never written, or forgotten */
	STORAGE_OF_BYTES,  /* those that its bytes came with */
	STORAGE_ANY,
};

/* In the place of UBLK_IO_OP_: those that have larger numbers. */
#define STORAGE_OP_APPEND 6
#define STORAGE_OP_MANAGE 7

struct storage {
	unsigned idx;
	uint64_t size_bytes; /* of the block device, as its users see it */
	uint32_t block_bytes;
	uint64_t block_nr;
	uint64_t max_bytes, max_block_nr; /* that it can grow to */
	uint8_t *image;			  /* the byte model */
	uint8_t *unknown;		  /* per block: nobody may say what it holds */
	uint8_t *metadata;		  /* per block: enum storage_metadata */
	uint64_t *acked_seq;		  /* per block: of the last acknowledged write */
	uint64_t *dirty_seq; /* per block of the medium: of the last write still in the volatile
			      * cache; 0: none */
	bool has_data;	     /* false: reads mean nothing (null) */
	bool keeps;	     /* the medium is what a server before has written */
	bool has_tree;	     /* several leaves may serve a request of it */
	bool has_cache;	     /* completed writes need a flush */
	bool has_inode;
	dev_t dev;
	ino_t ino;
	uint64_t serve_nr;	/* servers that have served it */
	uint8_t *medium;	/* of the scripted backend and of a server, or NULL */
	uint8_t *gone;		/* per block: enum storage_gone; NULL: none can be */
	struct server *server;	/* or NULL */
	struct model_dev *user; /* the block device it is behind, or NULL */
	/* Zones: what must be in them, or NULL; the table that stands in front of them on a medium
	 * that is larger than the device. */
	struct sim_zones *zones;
	uint64_t data_at, medium_bytes;
	struct backend_device *leaf; /* of a scripted backend: the one that was opened last */
	uint64_t visit_faults;	     /* of what opens and closes a device, since it was begun */
	uint64_t flush_failed_seq;   /* when a FLUSH has failed last, of whomever; 0: none has */
	uint64_t flush_good_seq;     /* when the last one began that has succeeded */
	uint64_t cancel_until_ns;    /* until then I/Os may fail with EIO: a stop was late */
	bool no_punch;		     /* the disk has said EOPNOTSUPP to a fallocate */
	uint64_t done_nr[8], failed_nr[8]; /* answered requests of the user, by UBLK_IO_OP_ */
	uint64_t fallback_nr;		   /* those that could not be registered */
	uint64_t shmem_nr;		   /* those in memory that a client shares */
};

struct storage *storage_create(unsigned idx, uint64_t size_bytes, uint32_t block_bytes);
void storage_destroy(struct storage *st);

/* As much as max_bytes; what is beyond stays as it is. */
void storage_resize(struct storage *st, uint64_t size_bytes);
/* Thrown away: it reads as zeroes, whoever grows to it, and owes nothing to a flush. */
void storage_forget(struct storage *st, uint64_t offset_bytes, uint64_t length_bytes);
/* Whether something of it was acknowledged, and nothing has undone that since. */
bool storage_is_acked(const struct storage *st, uint64_t offset_bytes, uint64_t length_bytes);
/* Whether an acknowledged write left other bytes than zeroes there. */
bool storage_has_data(const struct storage *st, uint64_t offset_bytes, uint64_t length_bytes);

/* All storages by the inode that backs them; NULL when unknown. */
void storage_set_inode(struct storage *st, dev_t dev, ino_t ino);
struct storage *storage_by_fd(int fd);

/* A number that grows: orders writes, acknowledgements and flushes. */
uint64_t storage_next_seq(void);

/* The disk: done to the volatile cache; made durable; flushed what was dirty before seq. */
void storage_dirty(struct storage *st, uint64_t offset_bytes, uint64_t length_bytes);
void storage_clean(struct storage *st, uint64_t offset_bytes, uint64_t length_bytes);
void storage_flush(struct storage *st, uint64_t before_seq);
/* The same of what lies there alone. */
void storage_flush_part(struct storage *st, const struct sim_part *part, uint64_t before_seq);

/* The client's words of a write: the same for the same seed and place. */
void storage_pattern(uint8_t *buf, uint64_t seed, uint64_t offset_bytes, uint32_t length_bytes);

/* Acknowledged changes of content. */
void storage_acked_write(struct storage *st, uint64_t seed, uint64_t offset_bytes,
			 uint32_t length_bytes);
/* Of an append: its bytes are those of a write to pattern_at, and lie elsewhere. */
void storage_acked_append(struct storage *st, uint64_t seed, uint64_t pattern_at,
			  uint64_t offset_bytes, uint32_t length_bytes);
void storage_acked_zeroes(struct storage *st, uint64_t offset_bytes, uint32_t length_bytes);
void storage_set_unknown(struct storage *st, uint64_t offset_bytes, uint32_t length_bytes);
/* Behind one of these, of a device that keeps metadata. */
void storage_set_metadata(struct storage *st, uint64_t offset_bytes, uint32_t length_bytes,
			  enum storage_metadata metadata);
/* All content is gone (a RAM disk was closed): zeroes. */
void storage_reset(struct storage *st);

/* Fails the run when the read is wrong. */
void storage_check_read(const struct storage *st, const uint8_t *buf, uint64_t offset_bytes,
			uint32_t length_bytes);
/* The metadata of a block whose bytes are at buf, as the client makes them. */
uint64_t storage_metadata_of(const struct storage *st, const uint8_t *buf, uint64_t offset_bytes);
/* Fails the run when metadata that were read with these bytes are wrong. */
void storage_check_metadata(const struct storage *st, const uint8_t *buf, const uint64_t *metadata,
			    uint64_t offset_bytes, uint32_t length_bytes);
/* Fails the run unless all that was acknowledged before seq is durable. */
void storage_check_flushed(const struct storage *st, uint64_t before_seq);
/* Fails the run unless the range is durable. */
void storage_check_durable(const struct storage *st, uint64_t offset_bytes, uint32_t length_bytes);

#endif
