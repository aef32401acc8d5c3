/*
 * What others do with a device that is there: open it, probe it, stop or delete it behind the
 * server's back. They do not care whether it has a server.
 */
#include "test/sim/visits.h"

#include <stdlib.h>

#include "test/sim/slot.h"

static struct list_node visits = LIST_INIT(visits);

/* An opener of the block device goes; the last one lets a deleted device go. */
struct visit {
	struct sim_event event;
	struct list_node node;
	uint32_t id;
	struct model_dev *dev;
	bool examine;
};

static void visit_free(struct visit *v)
{
	sim_event_cancel(&v->event);
	list_remove(&v->node);
	free(v);
}

static void visit_ends(struct sim_event *event)
{
	struct visit *v = container_of(event, struct visit, event);

	if (v->examine)
		v->dev->probe_nr--;
	else
		v->dev->opener_nr--;
	model_put(v->dev);
	visit_free(v);
}

static void visit_begins(struct sim_event *event)
{
	struct visit *v = container_of(event, struct visit, event);

	if (model_find(v->id) != v->dev || !v->dev->has_disk || v->dev->stopping) {
		visit_free(v);
		return;
	}
	if (v->examine)
		v->dev->probe_nr++;
	else
		v->dev->opener_nr++;
	sim_event_arm(&v->event,
		      sim.now_ns + sim_skewed(NS_PER_MS, v->examine ? NS_PER_SEC : 30 * NS_PER_SEC),
		      visit_ends);
}

static void visit(struct model_dev *dev, bool examine, uint64_t within_ns)
{
	struct visit *v = calloc(1, sizeof(*v));

	*v = (struct visit){ .id = dev->id, .dev = dev, .examine = examine };
	list_push_back(&visits, &v->node);
	sim_event_arm(&v->event, sim.now_ns + sim_skewed(0, within_ns), visit_begins);
}

void visits_stay(struct model_dev *dev, uint64_t for_ns)
{
	struct visit *v = calloc(1, sizeof(*v));

	*v = (struct visit){ .id = dev->id, .dev = dev };
	list_push_back(&visits, &v->node);
	dev->opener_nr++;
	sim_event_arm(&v->event, sim.now_ns + for_ns, visit_ends);
}

static void foreign_stops(struct sim_event *event)
{
	struct model_dev *dev = container_of(event, struct model_dev, foreign_event);

	/* The driver's mutex keeps it waiting until START_DEV is through. */
	if (dev->start_op) {
		sim_event_arm(event, sim.now_ns + NS_PER_MS, foreign_stops);
		return;
	}
	if (!dev->has_disk || dev->stopping)
		return;
	/*
	 * Only of an id that nobody else gets: a server cannot tell its own device, deleted by
	 * somebody else, from a new one of the same number, and would delete that.
	 */
	if (dev->id >= SLOT_ID_FIRST && !sim_one_in(4)) {
		model_mark_deleted(dev);
		sim_saw(FAULT_FOREIGN_DEL);
	} else {
		sim_saw(FAULT_FOREIGN_STOP);
	}
	model_stop(dev, NULL);
}

void visits_begin(struct model_dev *dev)
{
	if (sim_fault(FAULT_OPENER))
		visit(dev, false, NS_PER_SEC);
	if (sim_fault(FAULT_PROBE))
		visit(dev, true, NS_PER_MS);
	if (sim.fault_ppm[FAULT_FOREIGN_STOP] && sim_one_in(6))
		sim_event_arm(&dev->foreign_event, sim.now_ns + sim_skewed(0, NS_PER_SEC),
			      foreign_stops);
}

void visits_fini(void)
{
	while (!list_empty(&visits))
		visit_free(list_entry(visits.next, struct visit, node));
}
