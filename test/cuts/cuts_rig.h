/*
 * The product's node over the made-up children, with queues on reactors that one thread turns.
 * What ends is told by the on_end of the rig. One thread.
 */
#ifndef TEST_CUTS_CUTS_RIG_H
#define TEST_CUTS_CUTS_RIG_H

#include "backends/qcow2/qcow2.h"
#include "storage/snapshot.h"
#include "storage/spec.h"
#include "test/cuts/cuts_disk.h"
#include "test/cuts/cuts_image.h"

#define RIG_QUEUES_MAX 3u
#define RIG_DEPTH_MAX 32u

struct rig;

struct rig_io {
	struct backend_io io;
	struct rig *rig;
	bool is_out;
	uint64_t begin; /* model.h's */
	uint32_t value;
	uint8_t *buf; /* CUTS_IO_BYTES */
};

struct rig {
	struct backend_spec qcow2, data, data_file, backing;
	struct qcow2_config config;
	struct disk_config data_config, data_file_config;
	struct disk *disk;
	uint64_t backing_bytes;
	struct backend_device *device;
	struct reactor *home, *reactor[RIG_QUEUES_MAX]; /* by queue; several may have one */
	struct backend_queue *queue[RIG_QUEUES_MAX];
	unsigned queue_nr, depth, out_nr;
	struct rig_io io[RIG_QUEUES_MAX][RIG_DEPTH_MAX];
	void (*on_end)(struct rig_io *rio);
	/* While it opens or closes; may be NULL. */
	void (*on_step)(void *arg);
	void *arg;
	/* Of snapshots: words is of the last one. May be NULL. */
	struct backend_snapshot_change change;
	bool is_changing;
	void (*on_changed)(struct rig *rig, int ret);
	int owed_fd; /* backend_open_params's; 0: none */
	int end_ret; /* of an open or close; 1: not yet */
	char words[BACKEND_ERROR_BYTES];
};

/* Reactors, for all rigs of this process; idx below RIG_QUEUES_MAX + 1. set: 0 or 1. */
struct reactor *rig_reactor(unsigned set, unsigned idx);
void rig_reactors_drop(void);

/*
 * queue_nr, depth, reactors, config, on_end are set. stored_fd below 1: none. Returns 0, or -errno
 * with words; then nothing is open. -ETIME: it never ends.
 */
int rig_open(struct rig *rig, const struct image_shape *shape, struct disk *d, int stored_fd);
/* No request is out. Orderly: the last words reach the disk. 0, or -errno as the node said. */
int rig_close(struct rig *rig);
/* Without last words, as when the process dies. */
void rig_drop(struct rig *rig);

void rig_submit(struct rig *rig, struct rig_io *rio, enum backend_op op, unsigned flags,
		uint64_t offset, uint32_t bytes);
/* Turns until it has ended, and returns its result; -ETIME: it never does. */
int rig_do(struct rig *rig, enum backend_op op, uint64_t offset, uint32_t bytes);
/* Begins a change of the snapshots; on_changed tells its end. 0, or -errno with change.words. */
int rig_change(struct rig *rig, enum backend_snapshot_op op, const char *name);
/* The same, and turns until it has ended: its result; -ETIME: it never does. */
int rig_change_do(struct rig *rig, enum backend_snapshot_op op, const char *name);
void rig_turn_all(struct rig *rig);

#endif
