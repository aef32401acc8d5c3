/*
 * Pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986): O(1) arm, O(log n) amortised removal.
 * A timer that its own callback arms for now or earlier waits for the next run.
 */
#include "reactor/timer.h"

#include "base/util.h"
#include "reactor/ring.h"

/* The later of two roots becomes the first child of the earlier one. */
static struct timer *meld(struct timer *a, struct timer *b)
{
	if (!a || !b)
		return a ? a : b;
	if (b->deadline_ns < a->deadline_ns) {
		struct timer *t = a;

		a = b;
		b = t;
	}
	b->prev = a;
	b->sibling = a->child;
	if (a->child)
		a->child->prev = b;
	a->child = b;
	a->sibling = a->prev = NULL;
	return a;
}

/* Melds siblings two by two, then the pairs from the last to the first. */
static struct timer *meld_children(struct timer *first)
{
	struct timer *pairs = NULL, *root = NULL;

	while (first) {
		struct timer *a = first, *b = a->sibling;

		first = b ? b->sibling : NULL;
		a->sibling = a->prev = NULL;
		if (b)
			b->sibling = b->prev = NULL;
		a = meld(a, b);
		a->sibling = pairs;
		pairs = a;
	}
	while (pairs) {
		struct timer *next = pairs->sibling;

		pairs->sibling = NULL;
		root = meld(root, pairs);
		pairs = next;
	}
	return root;
}

static void unlink_from_parent(struct timer *timer)
{
	if (timer->prev->child == timer)
		timer->prev->child = timer->sibling;
	else
		timer->prev->sibling = timer->sibling;
	if (timer->sibling)
		timer->sibling->prev = timer->prev;
}

static void set_root(struct timer_heap *heap, struct timer *root)
{
	heap->root = root;
	heap->next_ns = root ? root->deadline_ns : RING_NO_TIMEOUT;
}

void timer_heap_cancel(struct timer_heap *heap, struct timer *timer)
{
	struct timer *rest;

	if (!timer->armed)
		return;
	rest = meld_children(timer->child);
	if (timer == heap->root) {
		set_root(heap, rest);
	} else {
		unlink_from_parent(timer);
		set_root(heap, meld(heap->root, rest));
	}
	timer->child = timer->sibling = timer->prev = NULL;
	timer->armed = false;
}

void timer_heap_arm(struct timer_heap *heap, struct timer *timer, uint64_t deadline_ns)
{
	timer_heap_cancel(heap, timer);
	/* Never due within the run that arms it: a run must end. */
	timer->deadline_ns = MAX(deadline_ns, heap->floor_ns);
	timer->armed = true;
	set_root(heap, meld(heap->root, timer));
}

unsigned timer_heap_run(struct timer_heap *heap, uint64_t now_ns)
{
	unsigned nr = 0;

	heap->floor_ns = now_ns + 1;
	while (heap->next_ns <= now_ns) {
		struct timer *timer = heap->root;

		timer_heap_cancel(heap, timer);
		timer->fn(timer);
		nr++;
	}
	return nr;
}
