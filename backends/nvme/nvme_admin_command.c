/*
 * The commands of an admin queue that can be under way at a time, one of each kind: what is asked,
 * the event that is waited for, Keep Alive, Abort, shutdown. Owns their slots. Reactor thread.
 */
#include "backends/nvme/nvme_admin_internal.h"

#include "backends/nvme/nvme_send.h"
#include "backends/nvme/protocol/nvme_command.h"
#include "base/assert.h"
#include "base/util.h"

static void admin_limit(struct nvme_admin *a, uint64_t deadline_ns)
{
	if (!a->limit.armed || a->limit.deadline_ns > deadline_ns)
		reactor_timer_arm(a->stream.reactor, &a->limit, deadline_ns);
}

void nvme_admin_send(struct nvme_admin *a, enum command idx, uint8_t *sqe, const void *out,
		     uint32_t out_bytes, void *in, uint32_t in_bytes, uint64_t limit_ns)
{
	struct admin_command *c = &a->command[idx];
	enum nvme_direction direction = out_bytes  ? NVME_DATA_OUT
					: in_bytes ? NVME_DATA_IN
						   : NVME_NO_DATA;

	ASSERT(!c->slot.waiting && out_bytes <= NVME_ADMIN_IN_CAPSULE_BYTES);
	c->cid = (uint16_t)(++a->cid_nr << COMMAND_BITS | idx);
	c->buf = in;
	c->deadline_ns = limit_ns ? a->stream.reactor->now_ns + limit_ns : UINT64_MAX;
	nvme_slot_start(&c->slot, direction, out_bytes ? out_bytes : in_bytes, out_bytes > 0);
	c->slot.short_ok = in_bytes > 0;
	nvme_command_set_cid(sqe, c->cid);
	stream_send(&a->stream, c->head,
		    nvme_pdu_capsule(c->head, &a->receive.wire, sqe, out_bytes));
	if (out_bytes > 0)
		nvme_send_data(&a->stream, &a->receive.wire, out, out_bytes, c->digest);
	if (limit_ns)
		admin_limit(a, c->deadline_ns);
}

struct nvme_slot *nvme_admin_lookup(void *ctx, uint16_t cid)
{
	struct nvme_admin *a = ctx;
	unsigned idx = cid & ((1u << COMMAND_BITS) - 1);

	return idx < COMMAND_NR && a->command[idx].cid == cid ? &a->command[idx].slot : NULL;
}

void nvme_admin_wait_for_event(struct nvme_admin *a)
{
	uint8_t sqe[NVME_SQE_BYTES];

	nvme_command_async_event(sqe);
	nvme_admin_send(a, EVENT, sqe, NULL, 0, NULL, 0, 0);
}

static uint64_t admin_kato_ns(const struct nvme_admin *a)
{
	return a->params.fabrics.kato_ms * NS_PER_MS;
}

/* Twice in the timeout, as Linux' nvme_keep_alive_work_period has it. */
void nvme_admin_keep_alive_later(struct nvme_admin *a)
{
	struct reactor *r = a->stream.reactor;

	if (admin_kato_ns(a) > 0)
		reactor_timer_arm(r, &a->keepalive, r->now_ns + admin_kato_ns(a) / 2);
}

void nvme_admin_on_keepalive(struct timer *timer)
{
	struct nvme_admin *a = container_of(timer, struct nvme_admin, keepalive);
	uint8_t sqe[NVME_SQE_BYTES];

	nvme_admin_keep_alive_later(a);
	if (a->command[KEEP_ALIVE].slot.waiting || a->stream.state != STREAM_OPEN)
		return;
	nvme_command_keep_alive(sqe);
	nvme_admin_send(a, KEEP_ALIVE, sqe, NULL, 0, NULL, 0, admin_kato_ns(a));
}

uint64_t nvme_admin_next_deadline_ns(const struct nvme_admin *a)
{
	uint64_t next_ns = UINT64_MAX;

	for (unsigned i = 0; i < COMMAND_NR; i++)
		if (a->command[i].slot.waiting)
			next_ns = MIN(next_ns, a->command[i].deadline_ns);
	return next_ns;
}
