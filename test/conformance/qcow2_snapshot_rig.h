/*
 * A device on a qcow2 image that is written all the time, its snapshots, and what is on the disk of
 * them. One device at a time.
 *
 * Every sector that is written says which write that was. So a snapshot is right when no write that
 * it lacks had ended before one that it has began.
 */
#ifndef TEST_CONFORMANCE_QCOW2_SNAPSHOT_RIG_H
#define TEST_CONFORMANCE_QCOW2_SNAPSHOT_RIG_H

#include "qcow2_cuts.h"
#include "storage/snapshot.h"
#include "tap.h"

#define BLOCK 4096u
#define SECTOR 512u
#define SECTORS_MAX (DISK_BYTES_MAX / SECTOR)
#define WRITES_MAX 60000u
#define DEPTH 8u

struct write_note {
	uint64_t offset;
	uint64_t begin, end; /* moments; end 0: not yet */
	bool is_gone;	     /* a snapshot was applied since */
};

struct shape {
	const char *name, *options, *data; /* data: %s is a file */
	uint64_t size_bytes;
	bool is_slow; /* ends of its requests are not seen by qcow2_cuts.h */
};

extern struct rig rig;
extern struct reactor home;
extern const struct shape *shape;
extern char path[600], folder[512];
extern struct write_note written[WRITES_MAX];
extern uint64_t write_nr, moment;
extern uint64_t is[SECTORS_MAX];
extern uint64_t seed;
extern bool has_qemu_img;
extern bool change_ended;
extern int change_ret;
extern struct backend_snapshot_change change, other_change;

uint64_t roll(uint64_t below);
uint64_t sector_nr(void);
void begin_write(struct rig_io *rio);
void some_writes(void);
void turn(void);
void write_about(unsigned nr);
void drain(void);
void flush_all(void);
void on_changed(struct backend_snapshot_change *c, int ret);
int begin_change(enum backend_snapshot_op op, const char *name);
int make_change(enum backend_snapshot_op op, const char *name, bool with_writes);
void expect_change(enum backend_snapshot_op op, const char *name, bool with_writes);
void expect_refusal(enum backend_snapshot_op op, const char *name, int err, const char *words);
/* What the file has, which need not be flushed; read_stamps: it is, and clean. */
void peek_stamps(int snapshot, uint64_t *ret_stamp);
void read_stamps(int snapshot, uint64_t *ret_stamp);
void expect_stamps(int snapshot, const uint64_t *stamp);
void expect_order(const uint64_t *stamp, uint64_t begun, uint64_t ended);
int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
void expect_qemu_reads(const char *name, const uint64_t *stamp);
int open_image(const char *more, bool is_new);
bool begin_case(const char *what);
void end_case(void);
void cases_of_other_images(void); /* qcow2_snapshot_images.c */

#endif
