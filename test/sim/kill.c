/*
 * When to kill. A plan names a step in the life of a device and a number of points; with each
 * sim_kill_point() while some device stands there the number falls, at zero it happens. So every
 * step is met as often as any other, whatever time it takes. A plan that does not come about is
 * given up for another one.
 */
#include "test/sim/kill.h"

#include "test/sim/slot.h"
#include "ublk/device/device_internal.h"

#define KILLS_MAX 10
#define WAIT_POINTS 20000

static const struct step {
	enum fault fault;
	bool adopting;
	enum device_state from, to;
	unsigned points_max;
} steps[] = {
	{ FAULT_KILL_ADDING, false, DEVICE_ADDING, DEVICE_ADDING, 20 },
	{ FAULT_KILL_PARAMS, false, DEVICE_PARAMS, DEVICE_PARAMS, 20 },
	{ FAULT_KILL_OPENING, false, DEVICE_OPENING, DEVICE_OPENING, 20 },
	{ FAULT_KILL_PLACING, false, DEVICE_PLACING, DEVICE_PLACING, 20 },
	{ FAULT_KILL_ATTACHING, false, DEVICE_ATTACHING, DEVICE_ATTACHING, 100 },
	{ FAULT_KILL_STARTING, false, DEVICE_STARTING, DEVICE_STARTING, 20 },
	{ FAULT_KILL_LIVE, false, DEVICE_LIVE, DEVICE_LIVE, 3000 },
	{ FAULT_KILL_STOPPING, false, DEVICE_STOPPING, DEVICE_STOPPING, 50 },
	{ FAULT_KILL_DRAINING, false, DEVICE_DRAINING, DEVICE_DRAINING, 20 },
	{ FAULT_KILL_DELETING, false, DEVICE_DELETING, DEVICE_DELETING, 20 },
	{ FAULT_KILL_RECOVERING, true, DEVICE_RECOVERING, DEVICE_RECOVERING, 20 },
	{ FAULT_KILL_READOPTING, true, DEVICE_OPENING, DEVICE_ATTACHING, 100 },
	{ FAULT_KILL_READOPTING, true, DEVICE_STARTING, DEVICE_STARTING, 20 },
};
#define STEP_LIVE 6
#define STEP_RECOVERING 10

jmp_buf kill_frame;

static struct plan {
	const struct slot *slots;
	const unsigned *slot_nr;
	bool frame_set;
	uint64_t left; /* kills */
	const struct step *step;
	uint64_t points, outage_timeout;
} plan;

static void choose(bool just_killed)
{
	size_t i = sim_below(ARRAY_SIZE(steps));

	if (just_killed && sim_one_in(2))
		i = sim_between(STEP_RECOVERING, ARRAY_SIZE(steps) - 1);
	else if (sim_one_in(2)) /* what can be recovered */
		i = STEP_LIVE;
	/* What is to be caught needs requests in flight. */
	if (sim.defect != DEFECT_NONE && sim.defect != DEFECT_LOST_NOTE)
		i = STEP_LIVE;
	plan.step = &steps[i];
	plan.points = sim_skewed(0, plan.step->points_max);
	plan.outage_timeout = WAIT_POINTS;
}

void kill_init(const struct slot *slots, const unsigned *slot_nr)
{
	plan = (struct plan){ .slots = slots, .slot_nr = slot_nr };
	if (sim.defect >= DEFECT_FIRST_OF_KILL)
		plan.left = KILLS_MAX;
	else if (sim.defect == DEFECT_NONE && !sim.cut.on && !sim_one_in(3))
		plan.left = sim_between(1, KILLS_MAX);
	choose(false);
}

void kill_end(void)
{
	plan.left = 0;
}

void kill_set_frame(bool set)
{
	plan.frame_set = set;
}

static bool stands_at(const struct slot *slot, const struct step *step)
{
	const struct device *d = slot->dev;

	return d && d->adopting == step->adopting && d->state >= step->from && d->state <= step->to;
}

bool kill_is_due(void)
{
	if (plan.left == 0)
		return false;
	if (plan.outage_timeout-- == 0)
		choose(false);
	for (unsigned i = 0; i < *plan.slot_nr; i++)
		if (stands_at(&plan.slots[i], plan.step))
			return plan.points-- == 0;
	return false;
}

void sim_kill_point(void)
{
	if (plan.frame_set && kill_is_due())
		longjmp(kill_frame, 1);
}

static void count(const struct slot *slot)
{
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (stands_at(slot, &steps[i]))
			sim_saw(steps[i].fault);
	if (!slot->dev)
		sim_saw(FAULT_KILL_BETWEEN_DEVICES);
}

void kill_count(void)
{
	for (unsigned i = 0; i < *plan.slot_nr; i++)
		count(&plan.slots[i]);
	plan.left--;
	choose(true);
}
