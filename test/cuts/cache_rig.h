/*
 * The product's cache over two made-up disks, with one queue on a reactor that one thread turns:
 * what the files of cache_cuts share. See also cuts.h.
 *
 *   cache_cuts.c    scenarios, options, TAP
 *   cache_run.c     one run: a guest, two disks, cuts
 *   cache_judge.c   what a cut, or the death of the process, has left
 *   cache_rig.c     the node over the disks
 */
#ifndef TEST_CUTS_CACHE_RIG_H
#define TEST_CUTS_CACHE_RIG_H

#include "filters/cache/cache.h"
#include "storage/spec.h"
#include "test/cuts/cuts_disk.h"
#include "test/cuts/cuts_model.h"

#define CACHE_RIG_DEPTH_MAX 24u
#define CACHE_WORLD_WORDS_BYTES 512u

struct cache_rig;

struct cache_rig_io {
	struct backend_io io;
	struct cache_rig *rig;
	bool is_out;
	uint64_t begin; /* model.h's */
	uint8_t *buf;	/* CUTS_IO_BYTES */
};

struct cache_rig {
	struct backend_spec cache, origin_spec, store_spec;
	struct disk_config origin_config, store_config;
	struct disk *origin, *store;
	const struct cache_config *config;
	struct backend_device *device;
	struct reactor *home, *reactor;
	struct backend_queue *queue;
	unsigned depth, out_nr;
	bool moves;  /* the bytes of requests are with the driver alone, which the store can do */
	int owed_fd; /* backend_open_params's; 0: none */
	struct cache_rig_io io[CACHE_RIG_DEPTH_MAX];
	void (*on_end)(struct cache_rig_io *rio);
	/* A command. */
	struct backend_cache_job job;
	bool is_job_out;
	int job_ret;
	void (*on_step)(void *arg); /* while it opens or closes; may be NULL */
	void *arg;
	int end_ret; /* of an open or close; 1: not yet */
	char words[BACKEND_ERROR_BYTES];
};

/* One run. In memory that its process shares with who looks at the end. */
struct cache_world {
	struct prng prng;
	struct cache_config config;
	uint64_t origin_bytes, store_bytes;
	unsigned depth, request_nr, cut_max, cut_one_in, cancel_one_in;
	unsigned submit_part, turn_part, end_part;
	unsigned job_one_in; /* a command to the cache in so many steps */
	bool may_fail;	     /* the origin fails, or requests are cancelled: so may the guest's */
	bool store_fails;    /* nobody's failure but of dirty blocks */
	bool loses;	     /* FLUSHes fail, and what they cover is lost */
	bool owes;	     /* one has, and no FLUSH has told the guest so */
	uint64_t told;	     /* model's clock when a FLUSH of the guest failed last */
	bool dies;	     /* the process may be dead at a cut instead of the power */
	bool is_warm;	     /* the guest mostly reads */
	bool moves;	     /* struct cache_rig's */
	struct disk *origin, *store, *left_origin, *left_store;
	int owed_fd;
	struct model model;
	uint64_t cut_nr, death_nr, request_done_nr, failed_nr, hits, cleaned_bytes;
	uint64_t evictions;
	uint64_t warm_nr, warmed_bytes, drop_nr, dropped_bytes; /* of commands that went well */
	bool is_aside;			     /* the cache: a YIELD or an EMPTY has gone well */
	uint64_t aside_nr, aside_write_nr;   /* the same; WRITEs that ended meanwhile */
	char words[CACHE_WORLD_WORDS_BYTES]; /* what is wrong; "": nothing */
};

/* The first one is kept. Returns false. */
bool cache_world_fail(struct cache_world *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static inline bool cache_world_failed(const struct cache_world *w)
{
	return w->words[0] != '\0';
}

/* What a discard may leave beside zeroes. */
#define VALUE_GARBAGE 3u

static inline uint32_t cache_content_value(const uint8_t *from, uint64_t sector)
{
	static const uint8_t garbage[4] = { 0xa5, 0xa5, 0xa5, 0xa5 };

	if (memcmp(from, garbage, 4) == 0 && memcmp(from, from + 4, SECTOR_BYTES - 4) == 0)
		return VALUE_GARBAGE;
	return content_value(from, sector);
}

/* As the model has it: of a discard it knows zeroes alone. */
static inline uint32_t cache_model_value(uint32_t value)
{
	return value == VALUE_GARBAGE ? VALUE_ZERO : value;
}

/* set: 0 of the run, 1 of the judge; reactors live as long as the process. */
void cache_rig_init(struct cache_rig *rig, unsigned set);
/* 0, or -errno with words; then nothing is open. -ETIME: it never ends. */
int cache_rig_open(struct cache_rig *rig, int stored_fd);
/* No request is out. */
int cache_rig_close(struct cache_rig *rig);
void cache_rig_submit(struct cache_rig *rig, struct cache_rig_io *rio, enum backend_op op,
		      unsigned flags, uint64_t offset, uint32_t bytes);
/* Until it has ended: its result; -ETIME: it never does. */
int cache_rig_do(struct cache_rig *rig, enum backend_op op, uint64_t offset, uint32_t bytes);
/* Of a range; none is under way. 0, or as struct backend_cache_ops. */
int cache_rig_job(struct cache_rig *rig, enum backend_cache_op op, uint64_t offset, uint64_t bytes);
/* Until it has ended: its result; -ETIME: it never does. */
int cache_rig_wait_job(struct cache_rig *rig);
/* Something goes on at one of the disks. */
void cache_rig_end_one(struct cache_rig *rig, struct prng *prng);

/* cache_run.c */
void cache_run(struct cache_world *w);
/* cache_judge.c: now. rig: what lives. False: cache_world_fail. */
bool cache_judge(struct cache_world *w, const struct cache_rig *rig, bool is_death);
/* While it stands aside: the origin has what a read finds, and what was flushed, durably. */
bool cache_judge_aside(struct cache_world *w);
/* What was closed in order. */
bool cache_judge_closed(struct cache_world *w, bool is_whole);

#endif
