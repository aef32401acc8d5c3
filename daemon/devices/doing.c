/*
 * Describes in words what a reactor does, from one look at it. Main thread; the reactor takes no
 * part.
 *
 * Happy path: the user_data of the op whose callback runs identifies a device. Failure mode: it
 * fits several devices (an I/O of a backend has a queue and a tag only) or none: the text has no
 * name.
 */
#include "daemon/devices/doing.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "base/thread.h"
#include "ublk/device/inflight.h"

static const char *what_of(uint64_t what)
{
	static const char *const name[REACTOR_DOING_NR] = {
		[REACTOR_DOING_NOTHING] = "nothing", [REACTOR_DOING_RETRY] = "retry",
		[REACTOR_DOING_TASK] = "task",	     [REACTOR_DOING_MAIL] = "mail",
		[REACTOR_DOING_TIMER] = "timer",     [REACTOR_DOING_TURN_END] = "turn-end",
	};

	return what < REACTOR_DOING_NR ? name[what] : op_kind_name(user_data_kind(what));
}

/* NULL: none, or more than one could be. */
static const struct device *owner_of(const struct device_set *f, const struct reactor *r,
				     uint64_t what)
{
	const struct device *owner = NULL;

	list_for_each (node, &f->members) {
		const struct member *m = list_entry(node, struct member, node);

		if (!m->device || m->ended || !device_owns_op(m->device, r, what))
			continue;
		if (owner)
			return NULL;
		owner = m->device;
	}
	return owner;
}

static void find_owner(const struct device_set *f, const struct reactor *r, uint64_t what,
		       char *whom, size_t bytes)
{
	enum op_kind kind = user_data_kind(what);
	const struct device *d = owner_of(f, r, what);

	if (what < REACTOR_DOING_NR || (kind != OP_KIND_TAG && kind != OP_KIND_BACKEND))
		return;
	snprintf(whom, bytes, "%s%squeue %u tag %u", d ? device_name(d) : "", d ? " " : "",
		 user_data_queue(what), user_data_tag(what));
}

static void find_work(const struct reactor_look *look, char state, char *whom, size_t bytes)
{
	snprintf(whom, bytes, "%s%s%s", look->mail ? "unread mail" : "",
		 look->mail && look->cqes ? ", " : "", look->cqes ? "completions not reaped" : "");
	if (!whom[0] && state == 'D')
		snprintf(whom, bytes, "uninterruptible sleep");
}

void doing_find(const struct device_set *f, const struct reactors *rs, unsigned idx,
		const struct reactor_look *look, struct doing *d)
{
	pid_t tid = reactors_tid(rs, idx);

	*d = (struct doing){
		.in_code = look->code_since_ns != 0,
		.what = look->code_since_ns ? what_of(look->doing) : "io_uring_enter",
		.thread_state = thread_state(tid),
	};
	thread_function(tid, d->function, sizeof(d->function));
	if (d->in_code)
		find_owner(f, rs->reactor[idx], look->doing, d->whom, sizeof(d->whom));
	else
		find_work(look, d->thread_state, d->whom, sizeof(d->whom));
}

void doing_text(const struct doing *d, char *text, size_t bytes)
{
	if (d->in_code)
		snprintf(text, bytes, "runs a callback (%s)%s%s%s%s", d->what,
			 d->whom[0] ? " of " : "", d->whom,
			 d->function[0] ? ", in the kernel function " : "", d->function);
	else
		snprintf(text, bytes, "is in %s%s%s%s%s%s", d->what,
			 d->function[0] ? ", function " : "", d->function, d->whom[0] ? " (" : "",
			 d->whom, d->whom[0] ? ")" : "");
}
