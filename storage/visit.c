/*
 * A part of a node's life that waits, on the control reactor: its requests to children, its
 * deadline, its end. Control thread. Owns the queues of the children while the part runs: each is
 * opened by the first request to that child and closed at the end.
 *
 * Happy path: visit_begin -> the node asks peers and children (backend_visit_io) ->
 * backend_visit_done -> what is under way is cancelled and ends -> the queues are closed -> done.
 * The end always comes by a task, since the node may be deep in a completion of one of these
 * queues.
 *
 * Failure modes: the deadline: the words say what was waited for, and everything is cancelled; a
 * request that cannot be cancelled (a file whose server is gone) keeps the visit until it ends.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "storage/io_internal.h"
#include "storage/life_internal.h"
#include "storage/node.h"
#include "base/assert.h"
#include "base/format.h"
#include "base/util.h"

/* Between two looks whether the children's queues rest. */
#define REST_LOOK_NS (100 * NS_PER_US)

/* One request to a child. */
struct visit_request {
	struct backend_io io;
	struct visit *visit;
	struct task end;
	backend_visit_fn *fn; /* NULL: free */
};

struct visit_child {
	struct backend_queue *queue; /* NULL: no request was for it */
	struct visit_request request[BACKEND_VISIT_IO_NR];
};

static struct visit *visit_of(struct backend_visit *visit)
{
	return container_of(visit, struct visit, visit);
}

/* ---- queues of children ---- */

static void visit_child_close(struct visit_child *c)
{
	for (unsigned i = 0; i < BACKEND_VISIT_IO_NR; i++)
		backend_io_fini(&c->request[i].io);
	backend_queue_close(c->queue);
	c->queue = NULL;
}

static void visit_request_ended(struct backend_io *io);

static int visit_child_open(struct visit *v, struct visit_child *c, struct backend_device *device)
{
	int ret = backend_queue_open(&c->queue, device, v->visit.reactor, 0, BACKEND_VISIT_IO_NR);

	for (unsigned i = 0; ret == 0 && i < BACKEND_VISIT_IO_NR; i++) {
		struct visit_request *r = &c->request[i];

		r->visit = v;
		list_init(&r->io.waiting);
		ret = backend_io_init(&r->io, c->queue, i, visit_request_ended);
		r->io.driver_fd = -1;
	}
	if (ret < 0)
		visit_child_close(c);
	return ret;
}

/* NULL: *ret_err says why. */
static struct visit_child *visit_child_for(struct visit *v, unsigned idx, int *ret_err)
{
	struct backend_device *device = v->visit.device->child;

	ASSERT(idx < v->visit.device->child_nr);
	if (!v->child)
		v->child = calloc(v->visit.device->child_nr, sizeof(*v->child));
	if (!v->child) {
		*ret_err = -ENOMEM;
		return NULL;
	}
	for (unsigned i = 0; i < idx; i++)
		device = device->sibling;
	if (!v->child[idx].queue)
		*ret_err = visit_child_open(v, &v->child[idx], device);
	return v->child[idx].queue ? &v->child[idx] : NULL;
}

/* ---- the end ---- */

static bool visit_queues_rest(struct visit *v)
{
	bool rests = true;

	for (unsigned i = 0; v->child && i < v->visit.device->child_nr; i++)
		rests &= backend_queue_rest(v->child[i].queue);
	return rests;
}

static void visit_end(struct task *task);

static void visit_end_again(struct timer *timer)
{
	struct visit *v = container_of(timer, struct visit, deadline);

	reactor_defer(v->visit.reactor, &v->end, visit_end);
}

static void visit_end(struct task *task)
{
	struct visit *v = container_of(task, struct visit, end);

	ASSERT(v->busy_nr == 0);
	if (!visit_queues_rest(v)) {
		/* Of no use any more as what it was. */
		reactor_timer_cancel(v->visit.reactor, &v->deadline);
		timer_init(&v->deadline, visit_end_again);
		reactor_timer_arm(v->visit.reactor, &v->deadline, ring_clock_ns() + REST_LOOK_NS);
		return;
	}
	v->active = false;
	reactor_timer_cancel(v->visit.reactor, &v->deadline);
	for (unsigned i = 0; v->child && i < v->visit.device->child_nr; i++)
		if (v->child[i].queue)
			visit_child_close(&v->child[i]);
	free(v->child);
	v->child = NULL;
	v->done(v, v->ret);
}

static void visit_end_later(struct visit *v)
{
	if (v->answered && v->busy_nr == 0 && !v->in_call)
		reactor_defer(v->visit.reactor, &v->end, visit_end);
}

static void visit_cancel_requests(struct visit *v)
{
	for (unsigned i = 0; v->child && i < v->visit.device->child_nr; i++)
		for (unsigned tag = 0; tag < BACKEND_VISIT_IO_NR; tag++)
			if (v->child[i].request[tag].fn)
				backend_child_cancel(&v->child[i].request[tag].io);
}

static int visit_fail_expired(struct visit *v)
{
	char ns[FORMAT_BYTES];

	return backend_fail(v->visit.device, -ETIMEDOUT, "%s: no answer for %s: %s",
			    v->visit.device->ops->name, format_ns(v->visit.timeout_ns, ns),
			    v->waited_for);
}

void backend_visit_done(struct backend_visit *visit, int ret)
{
	struct visit *v = visit_of(visit);

	ASSERT(v->active && !v->answered && ret <= 0);
	v->answered = true;
	v->ret = ret;
	if (v->cancelled)
		v->ret = -ECANCELED;
	if (ret < 0 && v->expired)
		v->ret = visit_fail_expired(v);
	visit_cancel_requests(v);
	visit_end_later(v);
}

/* ---- requests ---- */

/* An end by the deadline or the cancel is told apart from one of the child's own. */
static int visit_result(const struct visit_request *r)
{
	bool is_over = r->visit->cancelled || r->visit->expired;

	return r->io.result < 0 && is_over ? -ECANCELED : r->io.result;
}

/* By a task: the caller of the completion may still look at the queue. */
static void visit_request_tell(struct task *task)
{
	struct visit_request *r = container_of(task, struct visit_request, end);
	backend_visit_fn *fn = r->fn;
	struct visit *v = r->visit;

	r->fn = NULL;
	v->busy_nr--;
	if (v->answered)
		visit_end_later(v);
	else
		fn(&v->visit, visit_result(r));
}

static void visit_request_ended(struct backend_io *io)
{
	struct visit_request *r = container_of(io, struct visit_request, io);

	backend_retry_waiting(io->queue);
	reactor_defer(r->visit->visit.reactor, &r->end, visit_request_tell);
}

static struct visit_request *visit_request_take(struct visit_child *c)
{
	for (unsigned i = 0; i < BACKEND_VISIT_IO_NR; i++)
		if (!c->request[i].fn)
			return &c->request[i];
	return NULL;
}

int backend_visit_io(struct backend_visit *visit, unsigned child_idx, enum backend_op op,
		     uint64_t offset_bytes, void *buf, uint32_t length_bytes, backend_visit_fn *fn)
{
	struct visit *v = visit_of(visit);
	struct visit_request *r;
	struct visit_child *c;
	int ret = 0;

	ASSERT(v->active && !v->answered);
	if (v->cancelled || v->expired)
		return -ECANCELED;
	c = visit_child_for(v, child_idx, &ret);
	if (!c)
		return ret;
	r = visit_request_take(c);
	if (!r || v->busy_nr == BACKEND_VISIT_IO_NR)
		return -EAGAIN;
	r->fn = fn;
	v->busy_nr++;
	r->io.op = (uint8_t)op;
	r->io.flags = 0;
	r->io.offset_bytes = offset_bytes;
	r->io.length_bytes = length_bytes;
	r->io.buf = buf;
	if (backend_submit_or_wait(&r->io) == BACKEND_DONE)
		reactor_defer(visit->reactor, &r->end, visit_request_tell);
	return 0;
}

/* ---- deadline and cancel ---- */

/* What the node says that it does, and where its oldest request waits. */
static void visit_note_wait(struct visit *v)
{
	const char *doing = v->visit.doing ? v->visit.doing : "it did not say for what";
	const struct backend_device *node = NULL;
	struct backend_wait wait;

	for (unsigned i = 0; v->child && !node && i < v->visit.device->child_nr; i++)
		for (unsigned tag = 0; !node && tag < BACKEND_VISIT_IO_NR; tag++)
			if (v->child[i].request[tag].fn)
				node = backend_io_where(&v->child[i].request[tag].io, &wait);
	if (node)
		snprintf(v->waited_for, sizeof(v->waited_for), "%s (%s: %s)", doing,
			 node->ops->name, wait.words);
	else
		snprintf(v->waited_for, sizeof(v->waited_for), "%s", doing);
}

static void visit_stop(struct visit *v)
{
	visit_cancel_requests(v);
	if (v->cancel)
		v->cancel(&v->visit);
}

static void visit_on_deadline(struct timer *timer)
{
	struct visit *v = container_of(timer, struct visit, deadline);

	if (v->answered || v->cancelled)
		return;
	v->expired = true;
	visit_note_wait(v);
	visit_stop(v);
}

void visit_cancel(struct visit *v)
{
	if (!v->active || v->answered || v->cancelled)
		return;
	v->cancelled = true;
	visit_stop(v);
}

/* ---- the beginning ---- */

bool visit_begin(struct visit *v, visit_start_fn *start, int *ret_ret)
{
	uint64_t now_ns = ring_clock_ns();

	v->active = v->in_call = true;
	v->since_ns = now_ns;
	timer_init(&v->deadline, visit_on_deadline);
	start(&v->visit);
	v->in_call = false;
	if (v->answered && v->busy_nr == 0 && !v->child) {
		v->active = false;
		*ret_ret = v->ret;
		return true;
	}
	ASSERT(v->visit.reactor);
	if (v->visit.timeout_ns == 0)
		v->visit.timeout_ns = BACKEND_VISIT_NS;
	if (v->visit.timeout_ns != BACKEND_VISIT_OWN_DEADLINE)
		reactor_timer_arm(v->visit.reactor, &v->deadline, now_ns + v->visit.timeout_ns);
	visit_end_later(v);
	return false;
}
