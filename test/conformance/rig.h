/*
 * A backend device under test: opened from YAML text as the daemon would, with queues on reactors
 * of the real ring, all turned by the one thread of the test.
 */
#ifndef TEST_RIG_H
#define TEST_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/backend.h"
#include "config/yaml.h"
#include "reactor/reactor.h"

#define RIG_QUEUES_MAX 2
#define RIG_DEPTH_MAX 64
#define RIG_STORED_MAX 8
#define RIG_IO_BYTES (1u << 20)

struct rig_io {
	struct backend_io io;
	bool out;	       /* submitted, or to be submitted again after BUSY */
	bool busy;	       /* waits for another one to complete */
	uint64_t completed_nr; /* calls of done */
	void (*done)(struct rig_io *rio, void *arg);
	void *arg;
};

struct rig_queue {
	struct reactor reactor;
	struct backend_queue *queue;
	struct rig_io io[RIG_DEPTH_MAX];
	bool busy_retry; /* something completed since the last BUSY */
};

struct rig {
	struct backend_device *device;
	const struct backend *ops; /* the lowest one, or the root of a tree */
	struct rig_level {
		struct backend_spec spec;
		void *config;
		struct yaml_doc doc;
		struct backend_spec *tree; /* what spec is a copy of, or NULL */
	} level[BACKEND_DEPTH_MAX];	   /* from the bottom up */
	unsigned level_nr;
	unsigned queue_nr, depth;
	struct rig_queue queue[RIG_QUEUES_MAX];
	struct reactor home;  /* while it opens */
	struct reactor *data; /* as in struct rig_params */
	int open_ret;	      /* 1: it opens still */
	char error[BACKEND_ERROR_BYTES];
};

struct rig_params {
	const struct backend *ops;
	const char *name; /* of the device */
	const char *yaml;
	/* From the bottom up, NULL at the end: "throttle: {total_iops_sec: 5}". May be NULL. */
	const char *const *filters;
	uint32_t block_bytes;
	bool read_only;
	unsigned queue_nr, depth;	/* 0: the device is opened without queues */
	int stored_fds[RIG_STORED_MAX]; /* as in struct backend_open_params */
	uint64_t size_bytes;		/* the same */
	int owed_fd;			/* the same */
	struct reactor *data; /* a reactor for what devices share, that turns by itself; or NULL */
};

/* Returns 0, or -errno with rig->error; then there is nothing to close. */
int rig_open(struct rig *rig, const struct rig_params *params);
/* The same of a device "disk" with blocks of 512 and one queue of four. stored_fds: NULL: none. */
int rig_open_disk(struct rig *rig, const char *type, const char *yaml,
		  const int stored_fds[RIG_STORED_MAX]);
/* The two halves, for those that open queues by themselves. */
int rig_open_device(struct rig *rig, const struct rig_params *params);
int rig_open_queues(struct rig *rig);
void rig_close_queues(struct rig *rig);
void rig_close(struct rig *rig);
/* The same without any last words, as when the process dies. */
void rig_crash(struct rig *rig);
/* What the nodes have kept for the next one to open: duplicates, to be closed. */
void rig_stored_dup(const struct rig *rig, int ret_fds[static RIG_STORED_MAX]);
void rig_stored_close(const int fds[static RIG_STORED_MAX]);
/* The end of rig_open_device alone. */
void rig_close_device(struct rig *rig);

/* Submits; on BUSY the I/O goes again by itself after the next completion of its queue. */
void rig_submit(struct rig *rig, struct rig_io *rio);
/* One turn of each reactor, sleeping only when there is one. */
void rig_turn(struct rig *rig);
unsigned rig_out_nr(const struct rig *rig);
void rig_drain(struct rig *rig);

/*
 * Of each leaf that has FLUSHes, and more than copies of what is elsewhere (storage/owed.h): those
 * that come fail from now on, or go to the leaf again. No I/O is out. Returns how many have failed.
 * What is shared by devices is left out.
 */
unsigned rig_fail_flushes(struct rig *rig, bool do_fail);
/* Each of them has lost something, found otherwise. Returns how many. */
unsigned rig_lose(struct rig *rig);

/* One I/O of queue 0, waited for: its result. */
int rig_do(struct rig *rig, enum backend_op op, unsigned flags, uint64_t offset_bytes,
	   uint32_t length_bytes, void *buf);

unsigned rig_count_fds(void);

#endif
