/*
 * Walks over a tree: opening, closing, growing. A walk is in the hands of one thread at a time, the
 * control thread or a helper, which goes on until the next part is the other one's. Control thread,
 * but for what runs on a helper (life_run, life_drop).
 *
 * Happy path: begin -> (a helper: the nodes find children: chain.c) -> life_go_on -> a helper:
 * parts that may block, of as many nodes as come one after the other -> the control thread: a part
 * that waits (visit.c) -> ... -> done.
 *
 * Failure modes: a node refuses to open: the walk turns round and closes what was touched, from the
 * top down, then done gets the words; cancelled: the same; no thread to be had: an open fails, a
 * close does what may block itself; the helpers are closed meanwhile: a helper ends the walk by
 * closing the tree, and drop is called.
 */
#include "storage/life.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/life_internal.h"
#include "storage/spec.h"
#include "storage/resize.h"
#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/util.h"

enum life_kind { LIFE_OPEN, LIFE_CLOSE, LIFE_GROW };

enum life_part { LIFE_MAY_BLOCK, LIFE_WAITS, LIFE_PART_NR };

/* What is to be opened, while that is not known as a whole. */
struct unresolved {
	const struct backend_spec *spec; /* NULL: it is */
	const char *name;
	struct backend_open_params params;
};

struct backend_life {
	struct backend_home home;
	struct backend_life_owner owner;
	struct unresolved unresolved;
	struct helper_job job;
	enum life_kind kind;
	struct backend_device *top;  /* NULL: unresolved */
	struct backend_device *at;   /* whose turn it is; NULL: all had theirs */
	unsigned part_idx;	     /* of its parts, in the order of the kind */
	uint64_t size_bytes;	     /* GROW */
	bool with_helper, cancelled; /* control thread's */
	bool leaving;		     /* reactor_leave_begin, for the visit under way */
	bool *ended;		     /* of the call that began it; NULL: it has returned */
	bool waited;		     /* a part that waits failed */
	uint64_t failed_ns;	     /* of an open: from here on it is closed; 0: it goes on */
	int ret;
	struct visit visit;
	char words[BACKEND_LIFE_WORDS_BYTES];
};

static void life_go_on(struct backend_life *l);

/* ---- the order ---- */

static struct backend_device *deepest_first(struct backend_device *device)
{
	while (device->child)
		device = device->child;
	return device;
}

static struct backend_device *next_upwards(const struct backend_device *device)
{
	return device->sibling ? deepest_first(device->sibling) : device->parent;
}

static struct backend_device *next_downwards(const struct backend_device *device)
{
	if (device->child)
		return device->child;
	while (device && !device->sibling)
		device = device->parent;
	return device ? device->sibling : NULL;
}

static enum life_part life_part(const struct backend_life *l)
{
	static const enum life_part order[][LIFE_PART_NR] = {
		[LIFE_OPEN] = { LIFE_MAY_BLOCK, LIFE_WAITS },
		[LIFE_CLOSE] = { LIFE_WAITS, LIFE_MAY_BLOCK },
		[LIFE_GROW] = { LIFE_MAY_BLOCK, LIFE_WAITS },
	};

	return order[l->kind][l->part_idx];
}

static void life_next_part(struct backend_life *l)
{
	if (++l->part_idx < LIFE_PART_NR)
		return;
	l->part_idx = 0;
	l->at = l->kind == LIFE_CLOSE ? next_downwards(l->at) : next_upwards(l->at);
}

/* The top has no sibling of its own: the tree ends there. */
static void life_begin_walk(struct backend_life *l, enum life_kind kind)
{
	l->kind = kind;
	l->part_idx = 0;
	l->at = kind == LIFE_CLOSE ? l->top : deepest_first(l->top);
}

/* ---- parts ---- */

/* What is below a node that sizes itself does not grow with the device. */
static bool life_leaves_alone(const struct backend_life *l)
{
	if (l->kind != LIFE_GROW)
		return false;
	for (const struct backend_device *d = l->at->parent; d; d = d->parent)
		if (d->ops->sizes_itself)
			return true;
	return false;
}

static visit_start_fn *life_waiting_fn(const struct backend_life *l)
{
	const struct backend *ops = l->at->ops;

	switch (l->kind) {
	case LIFE_OPEN:
		return ops->open_async;
	case LIFE_CLOSE:
		return l->at->open ? ops->close_async : NULL;
	case LIFE_GROW:
		return ops->resize && !life_leaves_alone(l) ? ops->resize->grow_async : NULL;
	}
	return NULL;
}

/* Whether a helper is wanted for it. */
static bool life_may_block(const struct backend_life *l)
{
	const struct backend *ops = l->at->ops;

	switch (l->kind) {
	case LIFE_OPEN:
		return ops->open;
	case LIFE_CLOSE:
		return ops->close && l->at->touched;
	case LIFE_GROW:
		return ops->resize && ops->resize->grow && !life_leaves_alone(l);
	}
	return false;
}

static uint64_t life_size_at(const struct backend_life *l, const struct backend_device *device)
{
	if (device == l->top)
		return l->size_bytes;
	return backend_size_below(device->parent, life_size_at(l, device->parent));
}

static void life_fail(struct backend_life *l, int err, const char *words)
{
	l->ret = err;
	snprintf(l->words, sizeof(l->words), "%s", words);
	l->at = NULL;
	l->unresolved.spec = NULL;
	if (l->kind == LIFE_OPEN && l->top)
		life_begin_walk(l, LIFE_CLOSE);
}

static void life_fail_at(struct backend_life *l, int err)
{
	char words[BACKEND_LIFE_WORDS_BYTES];

	if (l->at->error[0] == '\0')
		backend_fail(l->at, err, "%s: %s", l->at->ops->name, errname(err));
	backend_device_words(l->at, words, sizeof(words));
	life_fail(l, err, words);
}

/* Before an open: the nodes find children, then there is a tree. It may block. */
static void life_resolve(struct backend_life *l)
{
	struct unresolved *u = &l->unresolved;
	struct backend_spec *resolved = NULL;
	char words[BACKEND_ERROR_BYTES];
	int ret = backend_resolve(u->spec, &u->params, &resolved, words, sizeof(words));

	if (ret == 0)
		l->top = backend_tree_new(resolved, u->name, &u->params);
	if (!l->top) {
		backend_spec_free(resolved);
		life_fail(l, ret < 0 ? ret : -ENOMEM, ret < 0 ? words : "out of memory");
		return;
	}
	u->spec = NULL;
	l->top->resolved = resolved;
	life_begin_walk(l, LIFE_OPEN);
}

/* All else is closed all the same. */
static void life_note_last_word(struct backend_life *l, int ret)
{
	const char *why = l->at->error[0] ? l->at->error : errname(ret);

	log_warn("a backend was closed without its last word", "node=%s error=\"%s\"", l->at->name,
		 why);
	if (l->ret < 0)
		return;
	l->ret = ret;
	snprintf(l->words, sizeof(l->words), "%s: %s", l->at->name, why);
}

/* What a part came to. */
static void life_part_ended(struct backend_life *l, int ret)
{
	if (l->kind == LIFE_CLOSE && ret < 0)
		life_note_last_word(l, ret);
	else if (ret == 0 && l->kind == LIFE_OPEN && l->part_idx == LIFE_PART_NR - 1)
		ret = backend_device_opened(l->at);
	if (l->kind == LIFE_CLOSE || ret == 0)
		life_next_part(l);
	else
		life_fail_at(l, ret);
}

static int life_do_blocking(struct backend_life *l)
{
	switch (l->kind) {
	case LIFE_OPEN:
		return backend_device_open(l->at);
	case LIFE_CLOSE:
		backend_device_close(l->at);
		return 0;
	case LIFE_GROW:
		return life_leaves_alone(l) ? 0
					    : backend_device_grow(l->at, life_size_at(l, l->at));
	}
	return 0;
}

/* The control reactor stays until the part has ended, although the owner is gone. */
static void life_leave(struct backend_life *l)
{
	l->leaving = true;
	reactor_leave_begin(l->home.reactor);
}

static void life_note_wait(struct backend_life *l, int ret)
{
	l->waited = ret < 0 && l->kind != LIFE_CLOSE && !l->visit.visit.has_answer;
}

/*
 * On the control thread, before a helper has it again: what is left of an open that has failed is
 * to close the tree, and its words stay as they are.
 */
static void life_note_failed(struct backend_life *l, enum life_kind before)
{
	if (before == LIFE_OPEN && l->kind == LIFE_CLOSE)
		l->failed_ns = ring_clock_ns();
}

static void life_waited(struct visit *v, int ret)
{
	struct backend_life *l = container_of(v, struct backend_life, visit);
	struct reactor *r = l->home.reactor;
	enum life_kind before = l->kind;
	bool leaving = l->leaving;

	l->leaving = false;
	life_note_wait(l, ret);
	life_part_ended(l, ret);
	life_note_failed(l, before);
	life_go_on(l);
	if (leaving)
		reactor_leave_end(r);
}

/* True: the part has ended, or there was none. */
static bool life_begin_waiting(struct backend_life *l)
{
	visit_start_fn *start = life_waiting_fn(l);
	enum life_kind before = l->kind;
	int ret = 0;

	if (start) {
		l->visit = (struct visit){
			.visit = { .device = l->at,
				   .reactor = l->home.reactor,
				   .helpers = l->home.helpers,
				   .home = &l->home,
				   .size_bytes =
					   l->kind == LIFE_GROW ? life_size_at(l, l->at) : 0 },
			.done = life_waited,
			.cancel = l->at->ops->cancel_async,
		};
		if (!visit_begin(&l->visit, start, &ret)) {
			if (l->cancelled)
				life_leave(l);
			return false;
		}
		life_note_wait(l, ret);
	}
	life_part_ended(l, ret);
	if (start)
		life_note_failed(l, before);
	return true;
}

/*
 * Goes on until the next part is another thread's; on the control thread also until somebody must
 * be waited for. Returns false then.
 */
static bool life_run(struct backend_life *l, bool at_helper)
{
	while (l->at || l->unresolved.spec) {
		if (l->unresolved.spec) {
			if (!at_helper && l->home.helpers)
				return false;
			life_resolve(l);
		} else if (life_part(l) == LIFE_MAY_BLOCK) {
			if (!at_helper && l->home.helpers && life_may_block(l))
				return false;
			life_part_ended(l, life_do_blocking(l));
		} else if (at_helper && life_waiting_fn(l)) {
			return false;
		} else if (!life_begin_waiting(l)) {
			return false;
		}
	}
	return true;
}

/* ---- the end ---- */

static void life_free(struct backend_life *l)
{
	helpers_let_go(l->home.helpers);
	free(l);
}

static void life_end(struct backend_life *l)
{
	struct backend_life_owner owner = l->owner;
	struct backend_life_end end = { .ret = l->ret, .words = l->words, .waited = l->waited };
	bool dropped = l->home.helpers && helpers_are_closed(l->home.helpers);

	if (l->ended)
		*l->ended = true;
	if (l->kind == LIFE_CLOSE)
		backend_tree_free(l->top); /* of an open that failed, too */
	else if (l->kind == LIFE_OPEN)
		end.device = l->top;
	if (dropped)
		owner.drop(owner.arg);
	else
		owner.done(owner.arg, &end);
	life_free(l);
}

/* Any thread, when the helpers were closed: nobody waits for the rest of the walk. */
static void life_drop(struct helper_job *job)
{
	struct backend_life *l = container_of(job, struct backend_life, job);

	if (l->kind != LIFE_GROW)
		backend_close(l->top);
	l->owner.drop(l->owner.arg);
	life_free(l);
}

/* ---- from thread to thread ---- */

static void life_on_helper(struct helper_job *job)
{
	life_run(container_of(job, struct backend_life, job), true);
}

static void life_back_from_helper(struct helper_job *job)
{
	struct backend_life *l = container_of(job, struct backend_life, job);

	l->with_helper = false;
	life_go_on(l);
}

/* Without a thread: what may block has to, or fails. */
static void life_no_helper(struct backend_life *l, int err)
{
	if (l->kind == LIFE_CLOSE)
		life_part_ended(l, life_do_blocking(l));
	else
		life_fail(l, err, "no thread for what may block: too many are in use");
}

static bool life_give_to_helper(struct backend_life *l)
{
	int ret;

	l->job = (struct helper_job){ .work = life_on_helper,
				      .done = life_back_from_helper,
				      .drop = life_drop };
	l->with_helper = true;
	ret = helper_start(l->home.helpers, &l->job);
	if (ret == 0)
		return true;
	l->with_helper = false;
	life_no_helper(l, ret);
	return false;
}

static void life_go_on(struct backend_life *l)
{
	for (;;) {
		if (l->cancelled && l->kind == LIFE_OPEN)
			life_fail(l, -ECANCELED, "it is not wanted any more");
		if (life_run(l, false)) {
			life_end(l);
			return;
		}
		if (l->visit.active || life_give_to_helper(l))
			return;
	}
}

/* ---- what owners ask ---- */

static struct backend_life *life_new(const struct backend_home *home, struct backend_device *top,
				     const struct backend_life_owner *owner)
{
	struct backend_life *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->home = *home;
	l->owner = *owner;
	l->top = top;
	helpers_hold(home->helpers);
	return l;
}

static int life_begin(struct backend_life **ret_life, struct backend_life *l, enum life_kind kind)
{
	bool ended = false;

	l->ended = &ended;
	l->kind = kind;
	if (!l->unresolved.spec)
		life_begin_walk(l, kind);
	life_go_on(l);
	if (!ended)
		l->ended = NULL;
	*ret_life = ended ? NULL : l;
	return 0;
}

int backend_open_begin(struct backend_life **ret_life, const struct backend_home *home,
		       const struct backend_spec *spec, const char *name,
		       const struct backend_open_params *open_params,
		       const struct backend_life_owner *owner)
{
	bool resolves = backend_spec_resolves(spec);
	struct backend_device *top = resolves ? NULL : backend_tree_new(spec, name, open_params);
	struct backend_life *l = top || resolves ? life_new(home, top, owner) : NULL;

	if (l) {
		if (resolves)
			l->unresolved = (struct unresolved){ spec, name, *open_params };
		return life_begin(ret_life, l, LIFE_OPEN);
	}
	if (top)
		backend_tree_free(top);
	return -ENOMEM;
}

int backend_close_begin(struct backend_life **ret_life, const struct backend_home *home,
			struct backend_device *device, const struct backend_life_owner *owner)
{
	struct backend_life *l = life_new(home, device, owner);

	return l ? life_begin(ret_life, l, LIFE_CLOSE) : -ENOMEM;
}

int backend_grow_begin(struct backend_life **ret_life, const struct backend_home *home,
		       struct backend_device *device, uint64_t size_bytes,
		       const struct backend_life_owner *owner)
{
	struct backend_life *l = life_new(home, device, owner);

	if (!l)
		return -ENOMEM;
	l->size_bytes = size_bytes;
	return life_begin(ret_life, l, LIFE_GROW);
}

void backend_life_cancel(struct backend_life *l)
{
	if (l->cancelled)
		return;
	l->cancelled = true;
	if (!l->visit.active)
		return;
	life_leave(l);
	if (l->kind == LIFE_OPEN)
		visit_cancel(&l->visit);
}

void backend_life_look(const struct backend_life *l, struct backend_life_look *ret_look)
{
	const struct backend_visit *visit = &l->visit.visit;
	char buf[BACKEND_LIFE_WAIT_BYTES];

	*ret_look = (struct backend_life_look){ .since_ns = l->visit.since_ns };
	if (l->visit.active) {
		ret_look->doing = visit->doing;
		ret_look->ends_ns = visit->ends_ns;
	}
	if (l->visit.active && visit->waits_for)
		snprintf(ret_look->waits_for, sizeof(ret_look->waits_for), "%s",
			 visit->waits_for(visit, buf, sizeof(buf)));
	if (l->failed_ns) {
		ret_look->ends_ns = l->failed_ns;
		snprintf(ret_look->waits_for, sizeof(ret_look->waits_for), "%.*s",
			 utf8_fit(l->words, sizeof(ret_look->waits_for) - 1), l->words);
	}
	if (!l->with_helper)
		return;
	ret_look->since_ns = l->job.since_ns;
	ret_look->tid = atomic_load(&l->job.tid);
}

/* ---- for those that may block, and whose trees wait for nobody ---- */

struct life_result {
	bool ended;
	int ret;
	struct backend_device *device;
	char *error;
	size_t error_bytes;
};

static void life_result_done(void *arg, const struct backend_life_end *end)
{
	struct life_result *result = arg;

	result->ended = true;
	result->ret = end->ret;
	result->device = end->device;
	if (end->ret < 0)
		snprintf(result->error, result->error_bytes, "%s", end->words);
}

static int life_here(struct life_result *result, int ret)
{
	if (ret < 0) {
		snprintf(result->error, result->error_bytes, "out of memory");
		return ret;
	}
	ASSERT(result->ended);
	return result->ret;
}

int backend_open(struct backend_device **ret_device, const struct backend_spec *spec,
		 const char *name, const struct backend_open_params *open_params, char *error,
		 size_t error_bytes)
{
	struct life_result result = { .error = error, .error_bytes = error_bytes };
	const struct backend_life_owner owner = { .done = life_result_done, .arg = &result };
	const struct backend_home here = { 0 };
	struct backend_life *life;
	int ret;

	ret = life_here(&result, backend_open_begin(&life, &here, spec, name, open_params, &owner));
	if (ret == 0)
		*ret_device = result.device;
	return ret;
}

int backend_grow(struct backend_device *device, uint64_t size_bytes, char *error,
		 size_t error_bytes)
{
	struct life_result result = { .error = error, .error_bytes = error_bytes };
	const struct backend_life_owner owner = { .done = life_result_done, .arg = &result };
	const struct backend_home here = { 0 };
	struct backend_life *life;

	return life_here(&result, backend_grow_begin(&life, &here, device, size_bytes, &owner));
}
