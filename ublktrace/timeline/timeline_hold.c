/*
 * A heap by time. Owns copies of the records. Main thread.
 *
 * Happy path: a record goes in, those that became a second old come out. Failure mode: a record
 * that is later than that: its place is gone, and the timeline draws it where it is by then.
 */
#include "ublktrace/timeline/timeline_hold.h"

#include <stdlib.h>

#include "tracefile/map.h"

static bool held_before(const struct held *a, const struct held *b)
{
	return a->time_ns < b->time_ns || (a->time_ns == b->time_ns && a->number < b->number);
}

static void held_swap(struct held *a, struct held *b)
{
	struct held c = *a;

	*a = *b;
	*b = c;
}

static struct event *event_get(struct hold *h)
{
	if (h->spare_nr > 0)
		return h->spare[--h->spare_nr];
	return memory_zalloc(sizeof(struct event));
}

static void event_put(struct hold *h, struct event *e)
{
	if (h->spare_nr == h->spare_room) {
		h->spare_room = h->spare_room ? h->spare_room * 2 : 256;
		h->spare = memory_resize(h->spare, h->spare_room, sizeof(struct event *));
	}
	h->spare[h->spare_nr++] = e;
}

void hold_put(struct hold *h, const struct event *e)
{
	size_t i = h->nr++;

	if (i == h->room) {
		h->room = h->room ? h->room * 2 : 256;
		h->heap = memory_resize(h->heap, h->room, sizeof(*h->heap));
	}
	h->heap[i] = (struct held){
		.time_ns = e->time_ns,
		.number = h->number++,
		.event = event_get(h),
	};
	*h->heap[i].event = *e;
	if (e->time_ns > h->newest_ns)
		h->newest_ns = e->time_ns;
	for (; i > 0 && held_before(&h->heap[i], &h->heap[(i - 1) / 2]); i = (i - 1) / 2)
		held_swap(&h->heap[i], &h->heap[(i - 1) / 2]);
}

static void sink_down(struct hold *h)
{
	size_t i = 0;

	for (;;) {
		size_t least = i, left = 2 * i + 1;

		if (left < h->nr && held_before(&h->heap[left], &h->heap[least]))
			least = left;
		if (left + 1 < h->nr && held_before(&h->heap[left + 1], &h->heap[least]))
			least = left + 1;
		if (least == i)
			return;
		held_swap(&h->heap[i], &h->heap[least]);
		i = least;
	}
}

bool hold_take(struct hold *h, bool all, struct event *ret_event)
{
	if (h->nr == 0)
		return false;
	if (!all && h->nr <= HOLD_NR_MAX && h->newest_ns - h->heap[0].time_ns < HOLD_NS)
		return false;
	*ret_event = *h->heap[0].event;
	event_put(h, h->heap[0].event);
	h->heap[0] = h->heap[--h->nr];
	sink_down(h);
	return true;
}

void hold_free(struct hold *h)
{
	for (size_t i = 0; i < h->nr; i++)
		free(h->heap[i].event);
	for (size_t i = 0; i < h->spare_nr; i++)
		free(h->spare[i]);
	free(h->heap);
	free(h->spare);
	*h = (struct hold){ 0 };
}
