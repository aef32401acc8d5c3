/*
 * Trees that are open, by name. The control thread. Owns the trees with their specs, which are
 * copies: a tree outlives the device that brought it.
 *
 * Happy path: the first user of a name makes the tree and opens it (life.h), then its queue
 * (shared_home.c); those who come meanwhile wait with it. The last to leave has the queue and the
 * tree closed, and waits for that.
 *
 * Failure modes: it cannot be opened: all who wait get its words; a user asks for another tree
 * under the name: it waits for a while, since in a reload the old one may be about to go, and is
 * refused then; a tree is about to be closed: who comes waits until that has ended, and opens it
 * anew; a user that is not wanted any more leaves, and an open for nobody is cancelled.
 */
#include "filters/shared/shared.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/sharing.h"
#include "storage/spec.h"

static struct list_node trees = LIST_INIT(trees);
static unsigned next_home; /* of the reactors: they take turns */

static void user_join(struct shared_device *d);
static void tree_stop(struct shared_tree *t);

/* ---- users that wait ---- */

static void user_answer(struct shared_device *d, int ret)
{
	struct backend_visit *visit = d->visit;

	d->visit = NULL;
	backend_visit_done(visit, ret);
}

/* waited: for somebody who did not answer as he should. */
static void user_fail(struct shared_device *d, int err, const char *words, bool waited)
{
	ASSERT(d->visit != NULL);
	backend_fail(d->device, err, "shared: %s", words);
	d->visit->has_answer = !waited;
	user_answer(d, err);
}

static struct shared_device *pop_user(struct list_node *list)
{
	struct list_node *node = list_pop_front(list);

	return node ? list_entry(node, struct shared_device, node) : NULL;
}

static void user_stop_timing(struct shared_device *d)
{
	if (d->is_timing)
		reactor_timer_cancel(d->visit->reactor, &d->others);
	d->is_timing = false;
}

/* What it is to the device: a leaf that is only read, in as many queues as one likes. */
static void user_set_limits(struct shared_device *d)
{
	struct backend_limits *limits = &d->device->limits;

	*limits = d->tree->device->limits;
	limits->caps = (limits->caps & BACKEND_CAP_ROTATIONAL) | BACKEND_CAP_READ_ONLY;
	limits->queue_nr_max = 0;
	limits->queue_nr_cure = NULL;
	limits->discard_granularity_bytes = 0;
	limits->max_discard_bytes = limits->max_write_zeroes_bytes = 0;
}

static void user_opened(struct shared_device *d)
{
	list_push_back(&d->tree->users, &d->node);
	user_set_limits(d);
	user_answer(d, 0);
}

/*
 * Between its opening and its being open, and from its stop to its end: perhaps nobody waits for
 * it, and home, or the file systems below it, still have what is its own.
 */
static void tree_leave(struct shared_tree *t, bool is_leaving)
{
	if (is_leaving && !t->is_leaving)
		reactor_leave_begin(t->where.reactor);
	else if (!is_leaving && t->is_leaving)
		reactor_leave_end(t->where.reactor);
	t->is_leaving = is_leaving;
}

/* ---- a tree ends ---- */

static void tree_free(struct shared_tree *t)
{
	struct shared_device *d;
	struct list_node later;

	ASSERT(list_empty(&t->users) && list_empty(&t->joining));
	list_init(&later);
	list_splice(&later, &t->later);
	list_remove(&t->node);
	backend_spec_free(t->spec);
	free(t);
	while ((d = pop_user(&later))) {
		user_stop_timing(d);
		d->tree = NULL;
		user_join(d);
	}
}

static void tree_fail(struct shared_tree *t, int err, const char *words, bool waited)
{
	struct shared_device *d;

	while ((d = pop_user(&t->joining))) {
		d->tree = NULL;
		user_fail(d, err, words, waited);
	}
}

static void tree_gone(struct shared_tree *t)
{
	struct shared_device *last = t->last;

	tree_leave(t, false);
	tree_free(t);
	if (!last)
		return;
	last->tree = NULL;
	user_answer(last, 0);
}

static void tree_closed(void *arg, const struct backend_life_end *end)
{
	(void)end;
	tree_gone(arg);
}

/* The process ends, and so do the walks of its devices. */
static void tree_dropped(void *arg)
{
	(void)arg;
}

static void tree_close(struct shared_tree *t)
{
	const struct backend_life_owner owner = { .done = tree_closed,
						  .drop = tree_dropped,
						  .arg = t };
	struct backend_life *life = NULL;

	t->state = SHARED_CLOSING;
	tree_leave(t, true);
	/* Without memory for a walk it ends without its last words. */
	if (backend_close_begin(&life, &t->where, t->device, &owner) == 0)
		return;
	backend_close(t->device);
	tree_gone(t);
}

static void tree_stopped(struct shared_home *home)
{
	tree_close(container_of(home, struct shared_tree, home));
}

static void tree_stop(struct shared_tree *t)
{
	t->state = SHARED_STOPPING;
	tree_leave(t, true);
	shared_home_stop(&t->home, tree_stopped);
}

/* ---- a tree is opened ---- */

static void tree_started(struct shared_home *home)
{
	struct shared_tree *t = container_of(home, struct shared_tree, home);
	struct shared_device *d;

	if (home->ret < 0) {
		tree_fail(t, home->ret, "its queue cannot be opened", false);
		tree_close(t);
		return;
	}
	t->state = SHARED_OPEN;
	tree_leave(t, false);
	log_info("shared backend opened", "name=%s reactor=%u size_bytes=%llu", t->name,
		 t->where.data ? home->reactor->idx : 0,
		 (unsigned long long)backend_size(t->device));
	while ((d = pop_user(&t->joining)))
		user_opened(d);
	if (list_empty(&t->users))
		tree_stop(t);
}

/* Nothing would keep it over a restart, and nobody can fill it. */
static bool is_memory(const struct backend_device *device)
{
	for (const struct backend_device *c = device->child; c; c = c->sibling)
		if (is_memory(c))
			return true;
	return device->ops->memory_bytes;
}

static void tree_choose_home(struct shared_tree *t)
{
	const struct backend_home *where = &t->where;

	t->home.control = where->reactor;
	t->home.device = t->device;
	t->home.reactor =
		where->data_nr ? where->data[next_home++ % where->data_nr] : where->reactor;
}

static void tree_opened(void *arg, const struct backend_life_end *end)
{
	struct shared_tree *t = arg;

	t->life = NULL;
	t->device = end->device;
	if (end->ret < 0) {
		tree_fail(t, end->ret, end->words, end->waited);
		tree_free(t);
	} else if (is_memory(t->device)) {
		tree_fail(t, -EINVAL,
			  "memory of this process cannot be shared: use a file, for a "
			  "cache in memory one on tmpfs",
			  false);
		tree_close(t);
	} else {
		t->state = SHARED_STARTING;
		tree_leave(t, true);
		tree_choose_home(t);
		shared_home_start(&t->home, tree_started);
	}
}

static struct shared_tree *tree_new(struct shared_device *d)
{
	const struct backend_open_params *params = &d->device->open_params;
	const struct shared_config *config = d->device->config;
	struct shared_tree *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->spec = backend_spec_copy(d->device->spec->child);
	if (!t->spec) {
		free(t);
		return NULL;
	}
	snprintf(t->name, sizeof(t->name), "%s%s", SHARED_PREFIX, config->name);
	t->params = (struct backend_open_params){
		.logical_block_bytes = params->logical_block_bytes,
		.queue_nr = 1,
		.depth = SHARED_DEPTH,
		.read_only = true,
	};
	t->where = *d->visit->home;
	list_init(&t->users);
	list_init(&t->joining);
	list_init(&t->later);
	list_push_back(&trees, &t->node);
	return t;
}

/* The user waits in it: whatever ends inside of the call ends that too. */
static void tree_open(struct shared_tree *t)
{
	const struct backend_life_owner owner = { .done = tree_opened,
						  .drop = tree_dropped,
						  .arg = t };
	struct backend_life *life = NULL;
	int ret;

	ret = backend_open_begin(&life, &t->where, t->spec, t->name, &t->params, &owner);
	if (ret < 0) {
		tree_fail(t, ret, "out of memory", false);
		tree_free(t);
	} else if (life) {
		t->life = life;
	}
}

/* ---- users come and go ---- */

static struct shared_tree *tree_find(const char *name)
{
	list_for_each (node, &trees) {
		struct shared_tree *t = list_entry(node, struct shared_tree, node);

		if (strcmp(t->name + strlen(SHARED_PREFIX), name) == 0)
			return t;
	}
	return NULL;
}

static bool tree_fits(const struct shared_tree *t, const struct shared_device *d)
{
	const struct backend_open_params *params = &d->device->open_params;

	return t->params.logical_block_bytes == params->logical_block_bytes &&
	       backend_spec_equal(t->spec, d->device->spec->child);
}

static void others_stay(struct timer *timer)
{
	struct shared_device *d = container_of(timer, struct shared_device, others);
	const struct shared_config *config = d->device->config;
	char words[BACKEND_ERROR_BYTES];

	d->is_timing = false;
	list_remove(&d->node);
	d->tree = NULL;
	snprintf(words, sizeof(words),
		 "other devices use \"%s\" with another backend or block_size: say the same one in "
		 "each of them, or give this one a name of its own",
		 config->name);
	user_fail(d, -EBUSY, words, false);
}

static void user_wait_for_others(struct shared_device *d)
{
	d->visit->doing = "waiting for devices that share another backend of this name to stop";
	d->is_timing = true;
	timer_init(&d->others, others_stay);
	reactor_timer_arm(d->visit->reactor, &d->others, ring_clock_ns() + SHARED_OTHERS_NS);
}

static void user_join_tree(struct shared_device *d, struct shared_tree *t)
{
	bool fits = tree_fits(t, d);

	d->tree = t;
	if (fits && t->state == SHARED_OPEN) {
		user_opened(d);
	} else if (fits && t->state < SHARED_OPEN) {
		list_push_back(&t->joining, &d->node);
	} else {
		list_push_back(&t->later, &d->node);
		if (!fits)
			user_wait_for_others(d);
		else
			d->visit->doing = "waiting for the shared backend to be closed";
	}
}

static void user_join(struct shared_device *d)
{
	const struct shared_config *config = d->device->config;
	struct shared_tree *t = tree_find(config->name);

	d->visit->doing = "opening what devices share";
	if (t) {
		user_join_tree(d, t);
		return;
	}
	t = tree_new(d);
	if (!t) {
		user_fail(d, -ENOMEM, "out of memory", false);
		return;
	}
	user_join_tree(d, t);
	tree_open(t);
}

void shared_open_async(struct backend_visit *visit)
{
	struct shared_device *d = visit->device->priv;

	d->device = visit->device;
	d->visit = visit;
	/* The nodes of the tree have their own. */
	visit->timeout_ns = BACKEND_VISIT_OWN_DEADLINE;
	user_join(d);
}

void shared_close_async(struct backend_visit *visit)
{
	struct shared_device *d = visit->device->priv;
	struct shared_tree *t = d->tree;

	d->visit = visit;
	visit->doing = "closing what devices have shared";
	visit->timeout_ns = BACKEND_VISIT_OWN_DEADLINE;
	list_remove(&d->node);
	if (!list_empty(&t->users)) {
		d->tree = NULL;
		user_answer(d, 0);
		return;
	}
	t->last = d;
	tree_stop(t);
}

/* Nobody waits for it. Who comes before it has ended opens it anew. */
static void tree_cancel(struct shared_tree *t)
{
	t->state = SHARED_CLOSING;
	backend_life_cancel(t->life);
}

/* Only who waits to have it open: an end is waited for. */
void shared_cancel_async(struct backend_visit *visit)
{
	struct shared_device *d = visit->device->priv;
	struct shared_tree *t = d->tree;

	if (!t || t->last == d || !d->visit)
		return;
	user_stop_timing(d);
	list_remove(&d->node);
	d->tree = NULL;
	user_answer(d, -ECANCELED);
	if (t->life && t->state == SHARED_OPENING && list_empty(&t->joining))
		tree_cancel(t);
}

void shared_close(struct backend_device *device)
{
	struct shared_device *d = device->priv;

	if (d->tree)
		list_remove(&d->node);
	d->tree = NULL;
}
