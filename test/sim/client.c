/*
 * Requests and their judgement. One client per device; event driven: each pump makes a few requests
 * and arms the next one.
 */
#include "test/sim/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/server/server.h"
#include "test/sim/zones/client_zones.h"

#define SECTOR_SHIFT 9
#define BURST_MAX 16
#define IDLE_NS_MAX (100 * NS_PER_MS)
#define RANGE_BYTES_MAX MIB(2)
/* Where a session that is cut reads and writes: what one has done another one sees. */
#define CUT_BLOCKS 4

static void pump(struct sim_event *event);

struct client *client_create(struct model_dev *dev, struct storage *st, uint64_t *budget)
{
	struct client *c = calloc(1, sizeof(*c));
	unsigned tags = dev->info.nr_hw_queues * dev->info.queue_depth;

	c->dev = dev;
	c->st = st;
	c->budget = budget;
	c->depth = (unsigned)sim_between(1, tags);
	c->think_ns = c->idle_ns = sim_skewed(NS_PER_US, NS_PER_MS);
	list_init(&c->inflight);
	sim_event_arm(&c->pump, sim.now_ns + sim_below(NS_PER_MS), pump);
	return c;
}

static void rq_free(struct client_rq *rq)
{
	if (!rq->in_shmem)
		free(rq->pages);
	free(rq->touched);
	free(rq->metadata);
	free(rq);
}

void client_destroy(struct client *c)
{
	struct list_node *node;

	if (!c)
		return;
	sim_event_cancel(&c->pump);
	client_abandon(c);
	/* A device that somebody still has open may outlive its successor's start. */
	if (c->st->user == c->dev)
		c->st->user = NULL;
	while ((node = list_pop_front(&c->inflight))) {
		struct client_rq *rq = list_entry(node, struct client_rq, node);

		sim_event_cancel(&rq->event);
		rq_free(rq);
	}
	free(c);
}

static uint64_t start_of(const struct client_rq *rq)
{
	return rq->start_sector << SECTOR_SHIFT;
}

static uint64_t bytes_of(const struct client_rq *rq)
{
	return (uint64_t)rq->nr_sectors << SECTOR_SHIFT;
}

static bool collides(const struct client *c, const struct client_rq *rq)
{
	list_for_each (node, &c->inflight) {
		const struct client_rq *other = list_entry(node, struct client_rq, node);

		if (client_rq_op(rq) == UBLK_IO_OP_READ && client_rq_op(other) == UBLK_IO_OP_READ)
			continue;
		if (start_of(rq) < start_of(other) + bytes_of(other) &&
		    start_of(other) < start_of(rq) + bytes_of(rq))
			return true;
	}
	return false;
}

uint32_t client_rq_metadata_bytes(const struct client_rq *rq)
{
	return (uint32_t)(bytes_of(rq) / rq->client->st->block_bytes) * CLIENT_METADATA_BYTES;
}

/* Who has switched checksums off sends, or wants, none. */
static void choose_metadata(const struct client *c, struct client_rq *rq)
{
	if (c->dev->params.types & UBLK_PARAM_TYPE_INTEGRITY &&
	    client_rq_op(rq) <= UBLK_IO_OP_WRITE && !sim_one_in(8))
		rq->op_flags |= UBLK_IO_F_INTEGRITY;
}

/* Those of a WRITE; of a READ what nobody has given. */
static void make_metadata(struct client_rq *rq)
{
	const struct storage *st = rq->client->st;
	uint32_t bytes = client_rq_metadata_bytes(rq);
	uint8_t *block;

	if (!rq->metadata)
		rq->metadata = malloc(bytes);
	memset(rq->metadata, 0xa5, bytes);
	if (client_rq_op(rq) == UBLK_IO_OP_READ)
		return;
	block = malloc(bytes_of(rq));
	storage_pattern(block, rq->seed, start_of(rq), (uint32_t)bytes_of(rq));
	for (uint32_t i = 0; i < bytes / CLIENT_METADATA_BYTES; i++)
		rq->metadata[i] = storage_metadata_of(st, block + i * st->block_bytes,
						      start_of(rq) + i * st->block_bytes);
	free(block);
}

bool client_choose_tag(const struct client *c, struct client_rq *rq)
{
	const struct model_dev *dev = c->dev;
	unsigned first_queue = (unsigned)sim_below(dev->info.nr_hw_queues);
	unsigned first_tag = (unsigned)sim_below(dev->info.queue_depth);

	for (unsigned q = 0; q < dev->info.nr_hw_queues; q++) {
		rq->queue = (first_queue + q) % dev->info.nr_hw_queues;
		for (unsigned t = 0; t < dev->info.queue_depth; t++) {
			rq->tag = (first_tag + t) % dev->info.queue_depth;
			if (model_tag_idle(dev, rq->queue, rq->tag))
				return true;
		}
	}
	return false;
}

/* Mostly small, inside the device, whole blocks. */
static void choose_range(const struct client *c, struct client_rq *rq, uint64_t max_bytes)
{
	uint64_t block = c->st->block_bytes;
	uint64_t max = MIN(max_bytes, c->st->size_bytes) / block;
	uint64_t nr = sim_skewed(1, sim.cut.on ? 1 : max);
	uint64_t at;

	nr = MIN(nr, max);
	at = sim_below((sim.cut.on ? CUT_BLOCKS : c->st->block_nr) - nr + 1);
	/* The very end is where things go wrong. */
	if (!sim.cut.on && sim_one_in(16))
		at = c->st->block_nr - nr;
	rq->start_sector = at * block >> SECTOR_SHIFT;
	rq->nr_sectors = (uint32_t)(nr * block >> SECTOR_SHIFT);
}

void client_choose_unknown(struct client_rq *rq)
{
	rq->op_flags = sim_one_in(2) ? 4 : (uint32_t)sim_between(6, 200);
}

static void choose_op(const struct client *c, struct client_rq *rq)
{
	const struct ublk_params *p = &c->dev->params;
	bool writable = !(p->basic.attrs & UBLK_ATTR_READ_ONLY);
	uint64_t max_bytes = (uint64_t)p->basic.max_sectors << SECTOR_SHIFT;
	/* Few as they are, one in four is a FLUSH. */
	uint64_t dice = sim.cut.on && sim_one_in(4) ? 57 : sim_below(100);

	if (sim_fault(FAULT_UNKNOWN_OP)) {
		client_choose_unknown(rq);
		choose_range(c, rq, max_bytes);
	} else if (writable && dice < 45) {
		rq->op_flags = UBLK_IO_OP_WRITE;
		if (p->basic.attrs & UBLK_ATTR_FUA && sim_one_in(8))
			rq->op_flags |= UBLK_IO_F_FUA;
		choose_range(c, rq, max_bytes);
	} else if (writable && dice < 49 && p->discard.max_discard_sectors) {
		rq->op_flags = UBLK_IO_OP_DISCARD;
		max_bytes = (uint64_t)p->discard.max_discard_sectors << SECTOR_SHIFT;
		choose_range(c, rq, MIN(max_bytes, RANGE_BYTES_MAX));
	} else if (writable && dice < 53 && p->discard.max_write_zeroes_sectors) {
		rq->op_flags = UBLK_IO_OP_WRITE_ZEROES;
		if (p->basic.attrs & UBLK_ATTR_FUA && sim_one_in(4))
			rq->op_flags |= UBLK_IO_F_FUA;
		if (sim_one_in(3))
			rq->op_flags |= UBLK_IO_F_NOUNMAP;
		max_bytes = (uint64_t)p->discard.max_write_zeroes_sectors << SECTOR_SHIFT;
		choose_range(c, rq, MIN(max_bytes, RANGE_BYTES_MAX));
	} else if (dice < 58 && p->basic.attrs & UBLK_ATTR_VOLATILE_CACHE) {
		rq->op_flags = UBLK_IO_OP_FLUSH;
	} else {
		rq->op_flags = UBLK_IO_OP_READ;
		choose_range(c, rq, max_bytes);
	}
}

void client_send(struct client *c, const struct client_rq *like)
{
	struct client_rq *rq = malloc(sizeof(*rq));

	*rq = *like;
	rq->client = c;
	rq->seed = prng_next(&sim.prng);
	rq->start_seq = storage_next_seq();
	rq->start_ns = sim.now_ns;
	rq->told_ns = c->st->server ? c->st->server->told_ns : 0;
	if (rq->op_flags & UBLK_IO_F_INTEGRITY)
		make_metadata(rq);
	if (c->st->zones)
		client_zones_begin(rq);
	list_push_back(&c->inflight, &rq->node);
	c->inflight_nr++;
	model_dispatch(c->dev, rq);
}

bool client_scan(struct client *c)
{
	struct client_rq rq = { .op_flags = UBLK_IO_OP_READ };

	rq.nr_sectors = c->st->block_bytes >> SECTOR_SHIFT;
	if (!client_choose_tag(c, &rq) || collides(c, &rq))
		return false;
	client_send(c, &rq);
	return true;
}

/* False when no further one can be made now. */
static bool make_one(struct client *c)
{
	struct client_rq rq = { 0 };

	if (c->inflight_nr >= c->depth || *c->budget == 0 || !client_choose_tag(c, &rq))
		return false;
	if (c->st->zones) {
		if (!client_zones_choose(c, &rq))
			return false;
	} else {
		choose_op(c, &rq);
		choose_metadata(c, &rq);
		if (collides(c, &rq))
			return false;
	}
	*c->budget -= 1;
	client_send(c, &rq);
	return true;
}

static void pump(struct sim_event *event)
{
	struct client *c = container_of(event, struct client, pump);
	uint64_t burst = sim_skewed(1, BURST_MAX);
	bool made = false;

	if (c->closed || *c->budget == 0)
		return;
	while (burst-- > 0)
		made |= make_one(c);
	/* A device that does not move is not asked a million times. */
	c->idle_ns = made ? c->think_ns : MIN(c->idle_ns * 2, IDLE_NS_MAX);
	sim_event_arm(&c->pump, sim.now_ns + sim_skewed(0, c->idle_ns), pump);
}

/* A bit per errno that can come up here. */
static uint32_t errno_bit(int err)
{
	switch (-err) {
	case EOPNOTSUPP:
		return 1u << 31;
	case ECANCELED:
		return 1u << 30;
	case ETIMEDOUT:
		return 1u << 29;
	case EREMOTEIO: /* not the bit of EIO */
		return 1u << 26;
	default:
		return 1u << (-err % 29);
	}
}

bool client_rq_flushes(const struct client_rq *rq)
{
	unsigned op = client_rq_op(rq);

	return (op != UBLK_IO_OP_READ && op != UBLK_IO_OP_WRITE) || rq->op_flags & UBLK_IO_F_FUA;
}

void client_rq_note(struct client_rq *rq, int err, bool must_fail)
{
	if (client_rq_op(rq) == UBLK_IO_OP_FLUSH && must_fail)
		rq->client->st->flush_failed_seq = storage_next_seq();
	rq->noted |= errno_bit(err);
	if (must_fail)
		rq->must_fail |= errno_bit(err);
}

void client_taint(struct client *c, uint64_t from_bytes)
{
	list_for_each (node, &c->inflight) {
		struct client_rq *rq = list_entry(node, struct client_rq, node);

		if (start_of(rq) + bytes_of(rq) > from_bytes)
			rq->tainted = true;
	}
}

void client_cut(struct client *c, uint64_t end_bytes)
{
	list_for_each (node, &c->inflight) {
		struct client_rq *rq = list_entry(node, struct client_rq, node);

		if (start_of(rq) + bytes_of(rq) > end_bytes)
			rq->tainted = rq->cut = true;
	}
}

/* Some pieces have failed by themselves, but its end is that of those that were cancelled. */
static bool is_cancelled_in_pieces(const struct client_rq *rq, int result)
{
	const struct storage *st = rq->client->st;

	return (st->has_tree || rq->client->dev->info.flags & UBLK_F_INTEGRITY) && result == -EIO &&
	       sim.now_ns < st->cancel_until_ns;
}

static bool is_unknown(const struct client_rq *rq)
{
	unsigned op = client_rq_op(rq);

	return (op > UBLK_IO_OP_WRITE_ZEROES && !client_zones_is(rq)) || op == 4;
}

/* What the block layer must be told, from what happened below. */
bool client_rq_is_honest(const struct client_rq *rq, int result)
{
	static const int passed[] = { -EIO,	  -ENOSPC,  -EOPNOTSUPP, -ETIMEDOUT, -ENOLINK,
				      -EREMOTEIO, -ENODATA, -EILSEQ,	 -ENOMEM };
	/* Not EINTR and EAGAIN, which are to be tried again. */
	static const int others[] = { -ECANCELED, -EBADF, -EINVAL };

	if (is_unknown(rq))
		return result == -EOPNOTSUPP;
	if (client_rq_op(rq) == UBLK_IO_OP_DISCARD && rq->client->st->no_punch &&
	    result == -EOPNOTSUPP)
		return true;
	if (rq->cut && result == -EIO)
		return true;
	/* It is owed: storage/owed.h. */
	if (result == -EIO && client_rq_op(rq) == UBLK_IO_OP_FLUSH &&
	    MIN(rq->start_seq, rq->client->st->flush_good_seq) < rq->client->st->flush_failed_seq)
		return true;
	if (rq->must_fail)
		return (rq->must_fail & errno_bit(result)) || is_cancelled_in_pieces(rq, result);
	for (size_t i = 0; i < ARRAY_SIZE(passed); i++)
		if (result == passed[i] && rq->noted & errno_bit(result))
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (result == -EIO && rq->noted & errno_bit(others[i]))
			return true;
	if (result == -EIO && sim.now_ns < rq->client->st->cancel_until_ns)
		return true;
	return result == -EIO && rq->client->st->server &&
	       judge_excuses(rq->client->st->server, rq);
}

static bool modifies(const struct client_rq *rq)
{
	unsigned op = client_rq_op(rq);

	return op == UBLK_IO_OP_WRITE || op == UBLK_IO_OP_DISCARD || op == UBLK_IO_OP_WRITE_ZEROES;
}

static void judge_failure(struct client_rq *rq, int result)
{
	struct storage *st = rq->client->st;
	unsigned op = client_rq_op(rq);

	if (!client_rq_is_honest(rq, result))
		sim_fail("dev %u queue %u tag %u op %u: answer %d, but what happened is %x "
			 "(must be of %x)",
			 rq->client->dev->id, rq->queue, rq->tag, op, result, rq->noted,
			 rq->must_fail);
	if (st->server)
		judge_failed(st->server, rq);
	if (op == UBLK_IO_OP_FLUSH && st->server)
		judge_flush_failed(st->server);
	if (op == UBLK_IO_OP_FLUSH)
		st->flush_failed_seq = storage_next_seq();
	if (modifies(rq))
		storage_set_unknown(st, start_of(rq), (uint32_t)bytes_of(rq));
}

/* What a server does not write shows the client memory of the kernel. */
static void check_touched(const struct client_rq *rq)
{
	const uint8_t *hole = rq->touched ? memchr(rq->touched, 0, bytes_of(rq)) : NULL;

	if (hole)
		sim_fail("dev %u queue %u tag %u: the server has not written byte %u of a READ",
			 rq->client->dev->id, rq->queue, rq->tag, (unsigned)(hole - rq->touched));
}

static void judge_success(struct client_rq *rq, const void *buf)
{
	struct storage *st = rq->client->st;

	if (rq->must_fail)
		sim_fail("dev %u queue %u tag %u op %u: success, but it failed with %x",
			 rq->client->dev->id, rq->queue, rq->tag, client_rq_op(rq), rq->must_fail);
	switch (client_rq_op(rq)) {
	case UBLK_IO_OP_READ:
		check_touched(rq);
		if (rq->cut)
			break;
		storage_check_read(st, buf, start_of(rq), (uint32_t)bytes_of(rq));
		if (rq->metadata)
			storage_check_metadata(st, buf, rq->metadata, start_of(rq),
					       (uint32_t)bytes_of(rq));
		break;
	case UBLK_IO_OP_WRITE:
		storage_acked_write(st, rq->seed, start_of(rq), (uint32_t)bytes_of(rq));
		break;
	case UBLK_IO_OP_FLUSH:
		storage_check_flushed(st, rq->start_seq);
		st->flush_good_seq = MAX(st->flush_good_seq, rq->start_seq);
		break;
	case UBLK_IO_OP_DISCARD:
		storage_set_unknown(st, start_of(rq), (uint32_t)bytes_of(rq));
		break;
	case UBLK_IO_OP_WRITE_ZEROES:
		storage_acked_zeroes(st, start_of(rq), (uint32_t)bytes_of(rq));
		break;
	default:
		sim_fail("op %u is answered as done", client_rq_op(rq));
	}
	if (modifies(rq))
		storage_set_metadata(st, start_of(rq), (uint32_t)bytes_of(rq),
				     rq->metadata ? STORAGE_OF_BYTES : STORAGE_UNCHECKED);
	if (rq->tainted && modifies(rq))
		storage_set_unknown(st, start_of(rq), (uint32_t)bytes_of(rq));
	if (rq->op_flags & UBLK_IO_F_FUA && !rq->cut)
		storage_check_durable(st, start_of(rq), (uint32_t)bytes_of(rq));
}

static void rq_done(struct client_rq *rq)
{
	struct client *c = rq->client;

	list_remove(&rq->node);
	c->inflight_nr--;
	rq_free(rq);
	if (!c->closed && sim_one_in(2))
		sim_event_arm(&c->pump, sim.now_ns + sim_skewed(0, c->think_ns), pump);
}

void client_rq_fail(struct client_rq *rq)
{
	if (rq->zone.life)
		client_zones_fail(rq);
	else if (modifies(rq))
		storage_set_unknown(rq->client->st, start_of(rq), (uint32_t)bytes_of(rq));
	/* Where all fail at once nobody tries on and on. */
	rq->client->think_ns = MIN(rq->client->think_ns * 2, IDLE_NS_MAX);
	rq_done(rq);
}

void client_abandon(struct client *c)
{
	list_for_each (node, &c->inflight) {
		struct client_rq *rq = list_entry(node, struct client_rq, node);

		if (rq->zone.life)
			client_zones_abandon(rq);
		else if (modifies(rq))
			storage_set_unknown(c->st, start_of(rq), (uint32_t)bytes_of(rq));
	}
}

void client_rq_renew(struct client_rq *rq)
{
	rq->noted = 0;
	rq->must_fail = 0;
	rq->heard_ns = 0;
	rq->again_nr = 0;
	rq->needs_reg = false;
	if (rq->zone.life)
		client_zones_renew(rq);
	if (rq->touched)
		memset(rq->touched, 0, client_rq_data_bytes(rq));
	if (rq->metadata)
		make_metadata(rq);
}

void client_rq_answer(struct client_rq *rq, int32_t result, const void *buf)
{
	struct client *c = rq->client;
	unsigned op = client_rq_op(rq);

	if (c->st->server)
		judge_ended(c->st->server, rq);
	if (rq->zone.life && client_zones_judge(rq, result, buf))
		;
	else if (result < 0)
		judge_failure(rq, result);
	else
		judge_success(rq, buf);
	/* What no server knows counts as a flush there. */
	if (is_unknown(rq))
		op = UBLK_IO_OP_FLUSH;
	else if (client_zones_is(rq))
		op = op == UBLK_IO_OP_ZONE_APPEND ? STORAGE_OP_APPEND : STORAGE_OP_MANAGE;
	c->st->done_nr[op]++;
	c->st->failed_nr[op] += result < 0;
	c->st->fallback_nr += rq->needs_reg;
	c->st->shmem_nr += rq->in_shmem;
	rq_done(rq);
}
