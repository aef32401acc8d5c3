/*
 * Sharing of buckets. Joining and leaving: the thread that opens and closes devices; the rest:
 * reactors. throttle_group.h says which thread owns what.
 *
 * Happy path: enter finds nobody waiting and room in the buckets: the request goes. Else it waits,
 * and if its moment comes before that of the owner's timer, its queue becomes the owner. The
 * owner's timer fires: run grants by turns until the buckets are full, and arms again.
 *
 * A queue that loses the ownership leaves its timer armed: it fires, finds another owner, and does
 * nothing.
 * The ownership must move without waiting when the owner's queue ends, and when the limits change
 * (the timer may be set for next year). Then one waiting request goes early: its mail brings the
 * duty to its queue, which cannot end before the request does. Being accounted like any other, it
 * only changes the order of going and waiting, not the rate; QEMU lets one go too.
 */
#include "filters/throttle/throttle_group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/util.h"

/* So that the lock is held for microseconds even when the limits have just been lifted. */
#define GRANT_MAX 64

/*
 * Of the list, and of what joining and leaving change in a group. Taken before the lock of a group,
 * never by a reactor.
 */
static pthread_mutex_t groups_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list_node groups = LIST_INIT(groups);

/* ---- joining and leaving: any thread but a reactor's, under groups_lock ---- */

static struct throttle_group *group_find(const char *name)
{
	list_for_each (node, &groups) {
		struct throttle_group *g = list_entry(node, struct throttle_group, node);

		if (name && strcmp(g->name, name) == 0)
			return g;
	}
	return NULL;
}

static void lock_init(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

static void group_free(struct throttle_group *g)
{
	list_remove(&g->node);
	pthread_mutex_destroy(&g->lock);
	free(g->name);
	free(g);
}

static struct throttle_group *group_new(const char *name)
{
	struct throttle_group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	lock_init(&g->lock);
	list_init(&g->node);
	for (int dir = 0; dir < THROTTLE_DIR_NR; dir++)
		list_init(&g->turn[dir]);
	/* No limits yet, as the options say it. */
	for (int i = 0; i < THROTTLE_BUCKET_NR; i++)
		g->state.limits.rate[i].max_length_s = 1;
	if (!name)
		return g;
	g->name = strdup(name);
	if (!g->name) {
		group_free(g);
		return NULL;
	}
	list_push_back(&groups, &g->node);
	return g;
}

/* Lengths and sizes alone limit nothing. */
static bool any_limit(const struct throttle_limits *limits)
{
	for (int i = 0; i < THROTTLE_BUCKET_NR; i++)
		if (limits->rate[i].avg)
			return true;
	return false;
}

/* Each member says the same, or leaves it to the others. */
static int agree(struct throttle_group *g, struct backend_device *device)
{
	const struct throttle_config *config = device->config;

	if (!any_limit(&config->limits))
		return 0;
	if (!any_limit(&g->configured)) {
		g->configured = config->limits;
		throttle_group_set(g, &config->limits, ring_clock_ns());
		return 0;
	}
	if (memcmp(&g->configured, &config->limits, sizeof(g->configured)) == 0)
		return 0;
	return backend_fail(device, -EINVAL,
			    "throttle group \"%s\" has other limits already: say the same ones, "
			    "or none",
			    g->name);
}

static int group_join(struct backend_device *device)
{
	const struct throttle_config *config = device->config;
	struct throttle_device *d = device->priv;

	d->group = group_find(config->group);
	if (!d->group)
		d->group = group_new(config->group);
	if (!d->group)
		return backend_fail(device, -ENOMEM, "out of memory");
	d->group->device_nr++;
	return agree(d->group, device);
}

int throttle_group_join(struct backend_device *device)
{
	struct throttle_device *d = device->priv;
	int ret;

	for (int dir = 0; dir < THROTTLE_DIR_NR; dir++) {
		list_init(&d->turn[dir]);
		list_init(&d->queues[dir]);
	}
	pthread_mutex_lock(&groups_lock);
	ret = group_join(device);
	pthread_mutex_unlock(&groups_lock);
	return ret;
}

void throttle_group_leave(struct throttle_device *device)
{
	struct throttle_group *g = device->group;

	pthread_mutex_lock(&groups_lock);
	if (g && --g->device_nr == 0)
		group_free(g);
	pthread_mutex_unlock(&groups_lock);
	device->group = NULL;
}

/* ---- turns: under the lock ---- */

static struct throttle_queue *queue_of(const struct throttle_io *t)
{
	return t->io->queue->priv;
}

static enum throttle_dir dir_of(const struct throttle_io *t)
{
	return t->io->op == BACKEND_READ ? THROTTLE_READ : THROTTLE_WRITE;
}

static void wait_in_turn(struct throttle_io *t)
{
	struct throttle_queue *q = queue_of(t);
	struct throttle_device *d = q->device;
	enum throttle_dir dir = dir_of(t);

	t->state = THROTTLE_IO_WAITING;
	list_push_back(&q->waiting[dir], &t->node);
	if (list_empty(&q->turn[dir]))
		list_push_back(&d->queues[dir], &q->turn[dir]);
	if (list_empty(&d->turn[dir]))
		list_push_back(&d->group->turn[dir], &d->turn[dir]);
	d->group->waiting_nr[dir]++;
}

/* Its queue and its device go to the end of the turns, or leave when nobody else waits there. */
static void wait_no_more(struct throttle_io *t)
{
	struct throttle_queue *q = queue_of(t);
	struct throttle_device *d = q->device;
	enum throttle_dir dir = dir_of(t);

	list_remove(&t->node);
	list_remove(&q->turn[dir]);
	list_remove(&d->turn[dir]);
	if (!list_empty(&q->waiting[dir]))
		list_push_back(&d->queues[dir], &q->turn[dir]);
	if (!list_empty(&d->queues[dir]))
		list_push_back(&d->group->turn[dir], &d->turn[dir]);
	d->group->waiting_nr[dir]--;
}

static struct throttle_io *next_waiting(const struct throttle_group *g, enum throttle_dir dir)
{
	struct throttle_device *d;
	struct throttle_queue *q;

	if (list_empty(&g->turn[dir]))
		return NULL;
	d = list_entry(g->turn[dir].next, struct throttle_device, turn[dir]);
	q = list_entry(d->queues[dir].next, struct throttle_queue, turn[dir]);
	return list_entry(q->waiting[dir].next, struct throttle_io, node);
}

/* The directions take turns too: with limits on both together, one would starve the other. */
static struct throttle_io *next_that_may_go(const struct throttle_group *g)
{
	for (int i = 0; i < THROTTLE_DIR_NR; i++) {
		enum throttle_dir dir = (g->next_dir + i) % THROTTLE_DIR_NR;
		struct throttle_io *t = next_waiting(g, dir);

		if (t && throttle_wait_ns(&g->state, dir) == 0)
			return t;
	}
	return NULL;
}

static void grant(struct throttle_group *g, struct throttle_io *t)
{
	enum throttle_dir dir = dir_of(t);

	wait_no_more(t);
	t->state = THROTTLE_IO_GRANTED;
	throttle_account(&g->state, dir, t->io->length_bytes);
	g->next_dir = (dir + 1) % THROTTLE_DIR_NR;
}

/* For another thread's queue: its mail will take it from there. */
static void throttle_hand_over(struct throttle_io *t, struct list_node *wake)
{
	struct throttle_queue *q = queue_of(t);

	list_push_back(&q->granted, &t->node);
	if (q->mail_posted)
		return;
	q->mail_posted = true;
	list_push_back(wake, &q->wake);
}

/* When somebody of those who wait may go, if nothing happens before; UINT64_MAX: nobody waits. */
static uint64_t next_deadline_ns(const struct throttle_group *g, uint64_t now_ns)
{
	uint64_t deadline_ns = UINT64_MAX;

	for (int dir = 0; dir < THROTTLE_DIR_NR; dir++)
		if (g->waiting_nr[dir])
			deadline_ns = MIN(deadline_ns, now_ns + throttle_wait_ns(&g->state, dir));
	return deadline_ns;
}

static void become_owner(struct throttle_queue *q, uint64_t deadline_ns)
{
	struct throttle_group *g = q->device->group;

	g->owner = q;
	g->deadline_ns = deadline_ns;
	reactor_timer_arm(q->queue->reactor, &q->timer, deadline_ns);
}

/* One goes early and makes its queue the owner. Nobody waits: nobody is. */
static void move_ownership(struct throttle_group *g, struct list_node *wake)
{
	struct throttle_io *t = next_waiting(g, g->next_dir);

	if (!t)
		t = next_waiting(g, (g->next_dir + 1) % THROTTLE_DIR_NR);
	g->owner = t ? queue_of(t) : NULL;
	if (!t)
		return;
	grant(g, t);
	throttle_hand_over(t, wake);
}

/* Without the lock: the first mail to a sleeping reactor is a system call. */
static void post_mails(struct list_node *wake)
{
	struct list_node *node;

	while ((node = list_pop_front(wake))) {
		struct throttle_queue *q = list_entry(node, struct throttle_queue, wake);

		reactor_post(q->queue->reactor, &q->mail, throttle_queue_mail);
	}
}

/* ---- reactors ---- */

bool throttle_group_enter(struct throttle_queue *q, struct throttle_io *t, uint64_t now_ns)
{
	struct throttle_group *g = q->device->group;
	enum throttle_dir dir = dir_of(t);
	uint64_t wait_ns;
	bool goes;

	pthread_mutex_lock(&g->lock);
	throttle_leak(&g->state, now_ns);
	wait_ns = throttle_wait_ns(&g->state, dir);
	goes = wait_ns == 0 && g->waiting_nr[dir] == 0;
	if (goes) {
		throttle_account(&g->state, dir, t->io->length_bytes);
	} else {
		wait_in_turn(t);
		if (!g->owner || now_ns + wait_ns < g->deadline_ns)
			become_owner(q, now_ns + wait_ns);
	}
	pthread_mutex_unlock(&g->lock);
	return goes;
}

static void grant_by_turns(struct throttle_queue *q, struct list_node *ready,
			   struct list_node *wake)
{
	struct throttle_group *g = q->device->group;

	for (int i = 0; i < GRANT_MAX; i++) {
		struct throttle_io *t = next_that_may_go(g);

		if (!t)
			return;
		grant(g, t);
		if (queue_of(t) == q)
			list_push_back(ready, &t->node);
		else
			throttle_hand_over(t, wake);
	}
}

void throttle_group_run(struct throttle_queue *q, uint64_t now_ns, struct list_node *ready)
{
	struct throttle_group *g = q->device->group;
	struct list_node wake = LIST_INIT(wake);

	pthread_mutex_lock(&g->lock);
	if (g->owner == q) {
		uint64_t deadline_ns;

		throttle_leak(&g->state, now_ns);
		grant_by_turns(q, ready, &wake);
		deadline_ns = next_deadline_ns(g, now_ns);
		if (deadline_ns == UINT64_MAX)
			g->owner = NULL;
		else
			become_owner(q, deadline_ns);
	}
	pthread_mutex_unlock(&g->lock);
	post_mails(&wake);
}

void throttle_group_take(struct throttle_queue *q, struct list_node *ready)
{
	struct throttle_group *g = q->device->group;

	pthread_mutex_lock(&g->lock);
	list_splice(ready, &q->granted);
	q->mail_posted = false;
	pthread_mutex_unlock(&g->lock);
}

bool throttle_group_cancel(struct throttle_io *t)
{
	struct throttle_group *g = queue_of(t)->device->group;
	bool waited;

	pthread_mutex_lock(&g->lock);
	waited = t->state == THROTTLE_IO_WAITING;
	if (waited) {
		wait_no_more(t);
		t->state = THROTTLE_IO_PASSED;
	}
	pthread_mutex_unlock(&g->lock);
	return waited;
}

void throttle_group_quit(struct throttle_queue *q, uint64_t now_ns)
{
	struct throttle_group *g = q->device->group;
	struct list_node wake = LIST_INIT(wake);

	pthread_mutex_lock(&g->lock);
	ASSERT(!q->mail_posted && list_empty(&q->granted));
	ASSERT(list_empty(&q->turn[THROTTLE_READ]) && list_empty(&q->turn[THROTTLE_WRITE]));
	if (g->owner == q) {
		throttle_leak(&g->state, now_ns);
		move_ownership(g, &wake);
	}
	pthread_mutex_unlock(&g->lock);
	reactor_timer_cancel(q->queue->reactor, &q->timer);
	post_mails(&wake);
}

/* ---- live change: main thread ---- */

void throttle_group_set(struct throttle_group *g, const struct throttle_limits *limits,
			uint64_t now_ns)
{
	struct list_node wake = LIST_INIT(wake);

	pthread_mutex_lock(&g->lock);
	throttle_state_set(&g->state, limits, now_ns);
	move_ownership(g, &wake);
	pthread_mutex_unlock(&g->lock);
	post_mails(&wake);
}

void throttle_group_get(struct throttle_group *g, struct throttle_limits *ret_limits)
{
	pthread_mutex_lock(&g->lock);
	*ret_limits = g->state.limits;
	pthread_mutex_unlock(&g->lock);
}
