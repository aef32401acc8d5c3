/*
 * The child `data`, and its medium. A write that has ended is read by all, but only a FLUSH that
 * began after its end makes it durable; until then a cut may lose it, or tear it at 512 bytes.
 * Requests end when disk_end_one says so. One thread.
 */
#ifndef TEST_CUTS_CUTS_DISK_H
#define TEST_CUTS_CUTS_DISK_H

#include "storage/backend.h"
#include "storage/version.h"
#include "test/cuts/cuts.h"

#define DISK_FLIGHT_NR 512u
#define DISK_DONE_NR 8192u
#define DISK_LOG_BYTES (16u << 20)

/* Under way. */
struct disk_flight {
	bool is_used, is_slow;
	uint8_t op;
	uint64_t at, since;
	uint32_t bytes;
	struct backend_io *io;
	uint8_t data[CUTS_IO_BYTES]; /* WRITE: as it was when it came */
};

/* Has ended, and is not durable. */
struct disk_done {
	uint64_t at, end_seq;
	uint32_t bytes, log_at;
};

/* In memory that is shared with processes that die. */
struct disk {
	struct prng *prng;
	uint64_t capacity;
	bool grows, can_discard;
	bool is_plain; /* requests end at once and are durable, nothing fails */
	bool is_read_only;
	/* One request in so many; 0: none. */
	unsigned error_one_in, sync_one_in, busy_one_in;
	bool has_failed; /* some request has */
	/* FLUSHes that fail, of so many one; what was not durable then is lost, in part or all. */
	unsigned flush_error_one_in;
	bool lost_is_gone; /* it reads as before at once, never as if it were there */
	/* Of any FLUSH, whether something was lost or not. */
	void (*on_flush_failed)(void *arg);
	void *on_flush_failed_arg;

	uint64_t size, durable_size; /* bytes that were written at most, when it grows */
	uint8_t *now, *durable, *log;
	struct disk_done done[DISK_DONE_NR];
	unsigned done_nr;
	uint32_t log_bytes;
	struct disk_flight flight[DISK_FLIGHT_NR];
	unsigned flight_nr, flush_flight_nr;
	uint64_t seq;	     /* of begins and ends */
	uint64_t write_nr;   /* WRITEs and DISCARDs that came */
	uint64_t flush_nr;   /* FLUSHes that ended */
	uint64_t header_nr;  /* WRITEs to its begin that ended */
	uint64_t read_bytes; /* of READs that came */

	/*
	 * What it says of its version (storage/version.h): NOW, a sum of its bytes; LASTING, the
	 * opening that changed them last. Who changes them from outside sets ours too, to be
	 * another writer.
	 */
	enum backend_version_kind version_kind;
	bool is_known_now; /* of LASTING */
	char found[BACKEND_VERSION_BYTES], ours[BACKEND_VERSION_BYTES];
	uint32_t content; /* sum at the last opening */
	unsigned opening_nr;

	/* The external data file, which loses what was not flushed apart; NULL: none. */
	struct disk *beside;
};

struct disk_config {
	struct disk *disk;
};

/* The second one wants no bytes in memory: BACKEND_DATA_MOVES. */
extern const struct backend cuts_disk_backend, cuts_mover_backend;
/* Of requests whose bytes are with the driver alone: driver_pos is their address. */
#define CUTS_DRIVER_FD 1000

/* The content is garbage where it does not grow. */
struct disk *disk_new(struct prng *prng, uint64_t capacity, bool grows, bool is_plain);
void disk_free(struct disk *d); /* and what is beside it; so do the rest of these */
/* Of so many FLUSHes one fails; 0: none does. */
void disk_fail_flushes(struct disk *d, unsigned one_in);
/* Some request has failed since it was forgotten last. */
bool disk_has_failed(const struct disk *d);
void disk_forget_failures(struct disk *d);
/* It is opened: whoever did so last has changed it, if it has changed. */
void disk_begin_version(struct disk *d);
/* From outside, at once and durable. */
void disk_put(struct disk *d, uint64_t at, const void *from, size_t bytes);
void disk_get(const struct disk *d, uint64_t at, void *to, size_t bytes);

/* Ends one of those under way, or none when it is slow; false: there is none. */
bool disk_end_one(struct disk *d);
/* Changes with each begin and end. */
uint64_t disk_moment(const struct disk *d);
/* A FLUSH is under way, and there is something that is not durable. */
bool disk_is_flushing(const struct disk *d);
/* Power is cut: to, a plain disk, becomes what is left. d goes on as if nothing had happened. */
void disk_cut(const struct disk *d, struct disk *to);
/* What is read of d now. */
void disk_copy(const struct disk *d, struct disk *to);
/* The same when a process dies: what is under way lands, or not, or in part. */
void disk_copy_of_dead(struct prng *p, const struct disk *d, struct disk *to);
/* Who issued requests is dead: those under way land, or not, or in part. */
void disk_orphan(struct disk *d);

#endif
