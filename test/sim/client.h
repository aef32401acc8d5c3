/*
 * The users of a block device: they make requests, one per free tag at most, and judge the answers.
 * No two requests in flight overlap unless both read, so that what a read must return is exact.
 */
#ifndef SIM_CLIENT_H
#define SIM_CLIENT_H

#include "base/list.h"
#include "test/sim/storage.h"
#include "test/sim/ublk_model.h"

/* Of each block, where a device keeps metadata. */
#define CLIENT_METADATA_BYTES 8u
/* Of each zone of a report: struct blk_zone. */
#define CLIENT_REPORT_BYTES 64u

struct client_rq {
	struct sim_event event;
	struct client *client;
	unsigned queue, tag;
	uint32_t op_flags;
	uint64_t start_sector;
	uint32_t nr_sectors;
	uint64_t seed;	    /* of the pattern of a write */
	uint64_t start_seq; /* what was acknowledged before must be covered by a flush */
	uint64_t start_ns;
	uint64_t handed_ns; /* the server got it */
	uint64_t heard_ns;  /* its own server did, first; 0: not yet */
	uint64_t told_ns;   /* the same: start of the last FLUSH that had failed by then */
	uint8_t again_nr;   /* nvme: errors of the target that want another try */
	uint32_t noted;	    /* bit per errno (below 32 or EOPNOTSUPP, ECANCELED) that happened */
	bool tainted;	    /* what it writes may be lost: the file is made shorter */
	bool cut;	    /* the device has become smaller under it */
	uint32_t must_fail; /* as noted: one of these errnos must be the answer, if there are any */
	uint8_t *pages;	    /* data, but for the driver's own copy: the request's memory, */
	uint8_t *touched;   /* and of a READ, a byte for each that the server has written */
	uint64_t *metadata; /* of each block, with UBLK_IO_F_INTEGRITY */
	bool in_shmem;	    /* pages are in memory that the client shares, and stay there */
	bool needs_reg;	    /* UBLK_IO_F_NEED_REG_BUF, once it was said */
	struct client_zone_rq {	 /* of a device with zones: client_zones.h */
		unsigned life;	 /* of the zones that it is for; 0: none */
		uint64_t sector; /* where an append has landed, as the driver was told */
		bool must_fail;	 /* it is for no place that a write may begin at */
		bool again;	 /* it was perhaps done by a server that died */
	} zone;
	struct list_node node;
};

struct client {
	struct model_dev *dev;
	struct storage *st;
	struct sim_event pump;
	struct list_node inflight;
	unsigned inflight_nr, depth;
	uint64_t think_ns, idle_ns; /* pause between bursts; the present one */
	uint64_t *budget;	    /* requests left, shared by all clients of the run */
	bool closed;		    /* makes no new ones */
};

struct client *client_create(struct model_dev *dev, struct storage *st, uint64_t *budget);
void client_destroy(struct client *client);

/* A request that the kernel makes by itself (partition scan): a read of the first block. */
bool client_scan(struct client *client);

/* Something went wrong below; must_fail: the request may not succeed after that. */
void client_rq_note(struct client_rq *rq, int err, bool must_fail);
/*
 * Whether a FLUSH below can be for this request: else it is the queue's own (queue_flush.c), with
 * the tag of a request that is kept meanwhile.
 */
bool client_rq_flushes(const struct client_rq *rq);

/* Whatever is in flight from there on may be lost. */
void client_taint(struct client *client, uint64_t from_bytes);

/* The device ends there from now on: who is in flight beyond may fail, and what it did is lost. */
void client_cut(struct client *client, uint64_t end_bytes);

/* What moves bytes: how many; 0 for the others. */
static inline uint32_t client_rq_data_bytes(const struct client_rq *rq)
{
	unsigned op = rq->op_flags & 0xff;

	if (op == UBLK_IO_OP_REPORT_ZONES && rq->zone.life)
		return rq->nr_sectors * CLIENT_REPORT_BYTES;
	return op == UBLK_IO_OP_READ || op == UBLK_IO_OP_WRITE ||
			       (op == UBLK_IO_OP_ZONE_APPEND && rq->zone.life)
		       ? rq->nr_sectors << 9
		       : 0;
}

/* Its bytes go to the server. */
static inline bool client_rq_gives(const struct client_rq *rq)
{
	unsigned op = rq->op_flags & 0xff;

	return op == UBLK_IO_OP_WRITE || (op == UBLK_IO_OP_ZONE_APPEND && rq->zone.life);
}

/* Of a request with UBLK_IO_F_INTEGRITY. */
uint32_t client_rq_metadata_bytes(const struct client_rq *rq);

/* The driver: the server answered. buf: where its bytes are. */
void client_rq_answer(struct client_rq *rq, int32_t result, const void *buf);

/* Whether such an end is one that what happened to the request is a reason for. */
bool client_rq_is_honest(const struct client_rq *rq, int result);
/* What is a client's own, in client.c: a tag for a request that then is sent. */
bool client_choose_tag(const struct client *c, struct client_rq *rq);
void client_send(struct client *c, const struct client_rq *rq);
void client_choose_unknown(struct client_rq *rq);

/* The driver: there was nobody to answer it, and it fails. */
void client_rq_fail(struct client_rq *rq);

/* Nobody will say in time what became of what is in flight. */
void client_abandon(struct client *client);

/* The driver: it will be served from the beginning, by another server. */
void client_rq_renew(struct client_rq *rq);

static inline unsigned client_rq_op(const struct client_rq *rq)
{
	return rq->op_flags & 0xff;
}

#endif
