/*
 * The end of rings: orderly, when nothing may be left in them, or because the server was killed.
 * Then commands to the driver are executed or not, disk I/O lands at some time or never, and the
 * driver is told (ublk_recover.c) until when the rings hold its files.
 */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "test/sim/disk.h"
#include "test/sim/net.h"
#include "test/sim/ring_sim.h"
#include "test/sim/ublk_model.h"

static void drop_ops(struct list_node *ops)
{
	struct list_node *node;

	while ((node = list_pop_front(ops))) {
		struct sim_op *op = list_entry(node, struct sim_op, node);

		sim_event_cancel(&op->event);
		free(op);
	}
}

/* Not the product's memory, which goes as a whole. */
static void ring_free(struct sim_ring *s)
{
	struct ring *ring = s->ring;

	drop_ops(&s->held);
	drop_ops(&s->ready);
	list_remove(&s->node);
	free(ring->uring.sq.sqes);
	free(ring->uring.cq.cqes);
	free(ring->uring.sq.ring_ptr);
	free(s->buffers);
	free(s);
	memset(ring, 0, sizeof(*ring));
}

void ring_fini(struct ring *ring)
{
	struct sim_ring *s = ring->sim;

	if (!s)
		return;
	list_for_each (node, &s->held) {
		const struct sim_op *op = list_entry(node, struct sim_op, node);
		bool own = op == s->mail;

		for (unsigned i = 0; i < ARRAY_SIZE(s->alarm); i++)
			own |= op == s->alarm[i];
		if (!own)
			sim_fail("ring %u is closed with an SQE of kind %s in flight", s->idx,
				 op_kind_name(user_data_kind(op->sqe.user_data)));
	}
	sim_buffers_fini(s);
	ring_free(s);
}

unsigned sim_ring_nr(void)
{
	unsigned nr = 0;

	list_for_each (node, &sim_rings)
		nr++;
	return nr;
}

unsigned sim_ring_files_nr(void)
{
	unsigned nr = 0;

	list_for_each (node, &sim_rings) {
		const struct sim_ring *s = list_entry(node, struct sim_ring, node);

		for (unsigned i = 0; i < SIM_FILE_NR; i++)
			nr += s->files[i] >= 0;
	}
	return nr;
}

/* ---- killed ---- */

/* Returns until when the kernel needs the ring. */
static uint64_t orphan_io(struct sim_ring *s)
{
	uint64_t until_ns = 0;

	list_for_each (node, &s->held)
		until_ns = MAX(until_ns, disk_orphan(list_entry(node, struct sim_op, node)));
	return until_ns;
}

static void die(struct sim_ring *s)
{
	if (s->entering)
		sim_saw(FAULT_KILL_IN_ENTER);
	/* Those of the driver it knows about. */
	for (unsigned i = 0; i < SIM_FILE_NR; i++)
		if (s->files[i] >= 0 && s->files[i] < SIM_FD_BASE)
			sim_fd_close(s->files[i]);
	ring_free(s);
}

void sim_rings_die(void)
{
	uint64_t until_ns = sim.now_ns;

	net_die();
	list_for_each (node, &sim_rings)
		model_ctl_dies(&list_entry(node, struct sim_ring, node)->held);
	list_for_each (node, &sim_rings)
		until_ns = MAX(until_ns, orphan_io(list_entry(node, struct sim_ring, node)));
	model_server_dies(until_ns);
	list_for_each_safe (node, next, &sim_rings)
		die(list_entry(node, struct sim_ring, node));
}
