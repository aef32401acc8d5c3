/*
 * The product's zones over a made-up disk, with one queue on a reactor that one thread turns: what
 * the files of zoned_cuts share. See also cuts.h.
 *
 *   zoned_cuts.c       scenarios, options, TAP
 *   zoned_run.c        one run: a guest, a disk, cuts and deaths
 *   zoned_judge.c      what a cut, or the death of the process, has left
 *   zoned_rig.c        the node over the disk
 *   zoned_read_only.c  a process dies, and the next one may not write
 */
#ifndef TEST_CUTS_ZONED_RIG_H
#define TEST_CUTS_ZONED_RIG_H

#include "filters/zoned/zoned.h"
#include "storage/spec.h"
#include "test/cuts/cuts_disk.h"

#define ZCUTS_DEPTH 8u
/* The entries of those with a pointer are behind the first sector of their page, which can be torn.
 */
#define ZCUTS_ZONES 65u
#define ZCUTS_CONVENTIONAL 60u
#define ZCUTS_ZONE_BYTES 65536u
#define ZCUTS_CAP_BYTES 49152u
#define ZCUTS_SECTORS (ZCUTS_ZONE_BYTES / SECTOR_BYTES)
#define ZCUTS_WORDS_BYTES 512u

struct zcuts_rig;

struct zcuts_io {
	struct backend_io io;
	struct zcuts_rig *rig;
	bool is_out;
	uint32_t value;	      /* of a write */
	uint64_t asked_bytes; /* the offset that it was submitted with */
	/* FLUSH: how far zones were complete when it began, and in which life of theirs. */
	uint64_t complete[ZCUTS_ZONES];
	uint32_t life[ZCUTS_ZONES];
	uint32_t lost_nr; /* READ: the world's, when it began */
	uint8_t *buf;	  /* CUTS_IO_BYTES */
};

struct zcuts_rig {
	struct backend_spec zoned, disk_spec;
	struct disk_config disk_config;
	struct disk *disk;
	struct zoned_zones_config zones;
	struct zoned_config config;
	struct backend_device *device;
	struct reactor *home, *reactor;
	struct backend_queue *queue;
	bool moves, is_read_only;
	int owed_fd; /* backend_open_params's; 0: none */
	unsigned out_nr;
	struct zcuts_io io[ZCUTS_DEPTH];
	void (*on_end)(struct zcuts_io *zio, void *arg);
	void *arg;
	int end_ret; /* of an open or close; 1: not yet */
	char words[BACKEND_ERROR_BYTES];
};

/* What the guest knows of a zone with a pointer. */
struct zcuts_zone {
	uint32_t value[ZCUTS_SECTORS]; /* 0: not written */
	uint64_t issued;	       /* bytes: the pointer */
	uint64_t durable;	       /* bytes: a FLUSH has said so */
	uint32_t life;		       /* resets that were acknowledged */
	bool is_full;		       /* by a command that was acknowledged */
	bool is_resetting, is_finishing;
};

/* One run. In memory that its process shares with who looks at the end. */
struct zcuts_world {
	struct prng prng;
	struct disk *disk, *left;
	bool moves, dies;
	bool owes; /* a FLUSH of the disk has failed, and no FLUSH has told the guest so */
	uint32_t lost_nr;
	int owed_fd;
	unsigned request_nr, cut_max, cut_one_in, turn_part, end_part, submit_part;
	uint32_t next_value;
	struct zcuts_zone zone[ZCUTS_ZONES];
	uint64_t cut_nr, death_nr, done_nr, write_nr, append_nr, flush_nr, reset_nr, finish_nr;
	uint64_t redone_nr;
	char words[ZCUTS_WORDS_BYTES]; /* what is wrong; "": nothing */
};

/* The first one is kept. Returns false. */
bool zcuts_fail(struct zcuts_world *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* set: 0 of the run, 1 of the judge; reactors live as long as the process. */
void zcuts_rig_init(struct zcuts_rig *rig, unsigned set, struct disk *disk, bool moves);
/* 0, or -errno with words. -ETIME: it never ends. */
int zcuts_rig_open(struct zcuts_rig *rig, int stored_fd);
/* No request is out. */
int zcuts_rig_close(struct zcuts_rig *rig);
/* action: of ZONE_MANAGE */
void zcuts_rig_submit(struct zcuts_rig *rig, struct zcuts_io *zio, enum backend_op op,
		      enum backend_zone_action action, uint64_t offset, uint32_t bytes);
/* Until it has ended: its result; -ETIME: it never does. */
int zcuts_rig_wait(struct zcuts_rig *rig, struct zcuts_io *zio);
static inline const struct zoned_device *zcuts_device(const struct zcuts_rig *rig)
{
	return rig->device->priv;
}

/* In memory that another write of the same value would make. */
void zcuts_fill(struct zcuts_io *zio, uint64_t offset, uint32_t bytes, uint32_t value);

/* zoned_run.c */
void zcuts_run(struct zcuts_world *w);
/* zoned_judge.c: now. rig: what lives. False: zcuts_fail. */
bool zcuts_judge(struct zcuts_world *w, const struct zcuts_rig *rig, bool is_death);
/* It was closed: all is as the guest knows it. */
bool zcuts_judge_closed(struct zcuts_world *w);
/* zoned_read_only.c: result: of a FLUSH there, when the process before has flushed what it wrote,
 * or has not. Both disks are blank. */
void zcuts_read_only(struct disk *disk, struct disk *left, bool flushes, int result);

#endif
