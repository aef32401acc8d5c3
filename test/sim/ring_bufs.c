/*
 * The tables of a ring that hold buffers: registered ones, which the driver fills with the pages of
 * requests, and groups of provided ones, from which it takes where to write what it brings. Memory
 * of the world; what a server that is right never does fails the run.
 *
 * Faults: no memory for a table, a group, or one registration.
 */
#include <errno.h>
#include <stdlib.h>

#include "test/sim/client.h"
#include "test/sim/ring_sim.h"

static uint64_t last_generation;

int ring_buffers_init(struct ring *ring, unsigned nr)
{
	struct sim_ring *s = ring->sim;
	enum sim_side side;

	if (s->buffers)
		sim_fail("ring %u: a second table of buffers", s->idx);
	if (sim_fault(FAULT_BUFFERS_INIT))
		return -ENOMEM;
	side = sim_cross(SIM_WORLD);
	s->buffers = calloc(nr, sizeof(*s->buffers));
	s->buffers_nr = nr;
	sim_cross(side);
	return 0;
}

void sim_buffers_fini(struct sim_ring *s)
{
	for (unsigned i = 0; i < s->buffers_nr; i++)
		if (s->buffers[i].rq)
			sim_fail("ring %u: buffer %u is still registered", s->idx, i);
	for (unsigned i = 0; i < SIM_GROUP_NR; i++)
		if (s->groups[i].mem)
			sim_fail("ring %u: group %u is still there", s->idx, i);
	free(s->buffers);
	s->buffers = NULL;
	s->buffers_nr = 0;
}

int sim_buffer_register(struct sim_ring *s, unsigned idx, struct client_rq *rq)
{
	if (idx >= s->buffers_nr)
		return -EINVAL;
	if (s->buffers[idx].rq)
		return -EBUSY;
	if (sim_fault(FAULT_BUFFER_REGISTER))
		return -ENOMEM;
	s->buffers[idx] = (struct sim_buffer){ .rq = rq, .generation = ++last_generation };
	return 0;
}

void sim_buffer_unregister(struct sim_ring *s, unsigned idx, const struct client_rq *rq)
{
	if (idx >= s->buffers_nr || s->buffers[idx].rq != rq)
		sim_fail("ring %u: buffer %u is not that of its request", s->idx, idx);
	s->buffers[idx].rq = NULL;
}

const struct sim_buffer *sim_buffer_find(const struct sim_ring *s, unsigned idx)
{
	return idx < s->buffers_nr && s->buffers[idx].rq ? &s->buffers[idx] : NULL;
}

int ring_group_set(struct ring *ring, unsigned group, void *mem, unsigned nr)
{
	struct sim_ring *s = ring->sim;

	if (group >= SIM_GROUP_NR || !mem == !s->groups[group].mem)
		sim_fail("ring %u: group %u is made or forgotten twice", s->idx, group);
	if (mem && ((uintptr_t)mem % 4096 != 0 || nr == 0 || (nr & (nr - 1)) != 0 || nr > 32768))
		sim_fail("ring %u: group %u of %u buffers: the kernel refuses it", s->idx, group,
			 nr);
	if (mem && sim_fault(FAULT_GROUP_SET))
		return -ENOMEM;
	s->groups[group] = (struct sim_group){ .mem = mem, .nr = (uint16_t)nr };
	return 0;
}

int ring_group_used(struct ring *ring, unsigned group, uint16_t *ret_nr)
{
	const struct sim_ring *s = ring->sim;

	if (group >= SIM_GROUP_NR || !s->groups[group].mem)
		sim_fail("ring %u: there is no group %u", s->idx, group);
	if (sim_defect_always(DEFECT_BUFFER_LOST))
		return -EINVAL;
	*ret_nr = s->groups[group].head;
	return 0;
}

const struct io_uring_buf *sim_group_next(const struct sim_ring *s, unsigned group)
{
	const struct sim_group *g = &s->groups[group];

	if (group >= SIM_GROUP_NR || !g->mem)
		sim_fail("ring %u: there is no group %u", s->idx, group);
	if (g->mem->tail == g->head)
		return NULL;
	if ((uint16_t)(g->mem->tail - g->head) > g->nr)
		sim_fail("ring %u: group %u has more buffers than places", s->idx, group);
	return &g->mem->bufs[g->head & (g->nr - 1)];
}

void sim_group_take(struct sim_ring *s, unsigned group)
{
	s->groups[group].head++;
}
