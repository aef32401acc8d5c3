/*
 * A change of snapshots from its beginning to its end, and those who wait behind it. The control
 * thread begins and ends it; in between it is the owner's reactor's.
 *
 * Happy path: begin: what can be refused at once is; memory -> mail -> the steps
 * (qcow2_snapshot_steps.c) -> those behind it go on -> mail -> the list is the new one -> done.
 *
 * Failure modes: a step fails before the header was written: counts that had risen fall again, what
 * was taken is given back; after it: what could not be done is leaked, and told.
 */
#include "backends/qcow2/qcow2_snapshot_op.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/util.h"

#define PAUSE_NS 500000ull

static const char *const op_names[] = {
	[BACKEND_SNAPSHOT_CREATE] = "create",
	[BACKEND_SNAPSHOT_DELETE] = "delete",
	[BACKEND_SNAPSHOT_APPLY] = "apply",
};

static struct qcow2_snapshot_op *snapshot_op_of(struct qcow2_io *s)
{
	return container_of(s, struct qcow2_snapshot_op, s);
}

/* ---- those behind it ---- */

bool qcow2_snapshot_holds(struct qcow2_owner *o, struct qcow2_io *s)
{
	struct qcow2_snapshot_op *p = o->snapshot_op;
	bool changes = s->ask == QCOW2_ASK_ALLOC || s->ask == QCOW2_ASK_UNMAP;

	if (!p || !((p->holds >= QCOW2_HOLDS_CHANGES && changes) ||
		    (p->holds == QCOW2_HOLDS_ALL && s->ask == QCOW2_ASK_PASS)))
		return false;
	__atomic_store_n(&s->is_behind, true, __ATOMIC_RELAXED);
	list_push_back(&p->behind, &s->waiting);
	return true;
}

void qcow2_snapshot_hold(struct qcow2_snapshot_op *p, enum qcow2_snapshot_hold holds)
{
	p->holds = holds;
	if (holds == QCOW2_HOLDS_ALL)
		atomic_store_explicit(&p->d->is_stopped, true, memory_order_seq_cst);
}

static void let_go(struct qcow2_snapshot_op *p)
{
	struct list_node *node;

	p->holds = QCOW2_HOLDS_NONE;
	atomic_store_explicit(&p->d->is_stopped, atomic_load(&p->d->failure) != NULL,
			      memory_order_seq_cst);
	while ((node = list_pop_front(&p->behind))) {
		struct qcow2_io *s = list_entry(node, struct qcow2_io, waiting);

		__atomic_store_n(&s->is_behind, false, __ATOMIC_RELAXED);
		list_push_back(&p->o->asked, &s->waiting);
	}
	qcow2_owner_ask_again(p->o);
}

/* ---- its turns ---- */

int qcow2_snapshot_yield(struct qcow2_snapshot_op *p)
{
	list_push_back(&p->o->asked, &p->s.waiting);
	qcow2_owner_ask_again(p->o);
	return QCOW2_WAITS;
}

static void pause_over(struct timer *timer)
{
	qcow2_snapshot_yield(container_of(timer, struct qcow2_snapshot_op, timer));
}

int qcow2_snapshot_pause(struct qcow2_snapshot_op *p)
{
	timer_init(&p->timer, pause_over);
	reactor_timer_arm(p->o->reactor, &p->timer, ring_clock_ns() + PAUSE_NS);
	return QCOW2_WAITS;
}

void qcow2_snapshot_answered(struct qcow2_owner *o, struct qcow2_io *s, int answer)
{
	struct qcow2_snapshot_op *p = snapshot_op_of(s);

	(void)o;
	p->err = answer;
	qcow2_snapshot_yield(p);
}

static void note_words(struct qcow2_snapshot_op *p, int err)
{
	const char *words = p->walk.words[0] ? p->walk.words : p->words;
	const char *end = p->is_adopted ? ": the snapshots are changed, but space is not given back"
			  : qcow2_image_header_is_known(p->o->t)
				  ? ""
				  : ": whether the snapshots are changed is not known before the "
				    "image is opened again";

	words = words[0] ? words : errname(err);
	snprintf(p->change->words, sizeof(p->change->words), "%.*s%s", utf8_fit(words, 170), words,
		 end);
}

static void take_steps(struct qcow2_snapshot_op *p, qcow2_snapshot_step *const *steps)
{
	p->steps = steps;
	p->idx = p->sub = 0;
	p->at = 0;
	p->io_ended = false;
}

/* Its first failure: it is taken back where that can be; else it ends as it is. */
static void fail_op(struct qcow2_snapshot_op *p, int err)
{
	qcow2_snapshot_drop_own(p);
	if (p->result == 0) {
		p->result = err;
		note_words(p, err);
		if (!p->is_published) {
			take_steps(p, qcow2_undo_steps);
			return;
		}
	}
	p->steps = NULL;
}

static void op_ended(struct mail *mail);

static void leave(struct qcow2_snapshot_op *p)
{
	let_go(p);
	p->o->snapshot_op = NULL;
	reactor_post(p->change->reactor, &p->mail, op_ended);
}

int qcow2_handle_snapshot(struct qcow2_owner *o, struct qcow2_io *s)
{
	struct qcow2_snapshot_op *p = snapshot_op_of(s);

	(void)o;
	while (p->steps && p->steps[p->idx]) {
		int ret = p->err < 0 ? p->err : p->steps[p->idx](p);

		p->err = 0;
		if (ret == QCOW2_WAITS)
			return ret;
		if (ret < 0) {
			fail_op(p, ret);
			continue;
		}
		p->idx++;
		p->sub = 0;
		p->at = 0;
	}
	leave(p);
	return QCOW2_WAITS;
}

static void op_begin(struct mail *mail)
{
	struct qcow2_snapshot_op *p = container_of(mail, struct qcow2_snapshot_op, mail);

	p->io.queue = p->o->q->queue;
	p->o->snapshot_op = p;
	qcow2_snapshot_yield(p);
}

/* ---- the control thread: its end ---- */

static void op_free(struct qcow2_snapshot_op *p)
{
	qcow2_snapshots_free(p->next);
	free(p->l1);
	free(p->old_l1);
	free(p);
}

static void op_ended(struct mail *mail)
{
	struct qcow2_snapshot_op *p = container_of(mail, struct qcow2_snapshot_op, mail);
	struct backend_snapshot_change *change = p->change;
	struct qcow2_device *d = p->d;
	int result = p->result;

	if (p->is_adopted && p->next) {
		qcow2_snapshots_free(d->snapshots);
		d->snapshots = p->next;
		p->next = NULL;
	}
	if (result < 0)
		log_error("the snapshots of the image were not changed as asked",
			  "node=%s op=%s name=\"%s\" error=\"%s\"", d->device->name,
			  op_names[change->op], change->name, change->words);
	else
		log_info("the snapshots of the image have changed", "node=%s op=%s name=\"%s\"",
			 d->device->name, op_names[change->op], change->name);
	d->snapshot_op = NULL;
	op_free(p);
	change->done(change, result);
}

/* ---- the control thread: its beginning ---- */

__attribute__((format(printf, 3, 4))) static int
refuse_change(struct backend_snapshot_change *change, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(change->words, sizeof(change->words), format, args);
	va_end(args);
	return err;
}

static int check_image_device(const struct qcow2_device *d, struct backend_snapshot_change *change)
{
	if (d->t->has_data_file)
		return refuse_change(
			change, -EOPNOTSUPP,
			"an image with an external data file has no internal snapshots");
	if (!d->owner)
		return refuse_change(change, -EROFS, "the image is only read");
	if (atomic_load(&d->failure))
		return refuse_change(change, -EIO, "%s", atomic_load(&d->failure));
	if (d->snapshot_op)
		return refuse_change(
			change, -EBUSY, "a snapshot is being changed already: %s \"%.*s\"",
			op_names[d->snapshot_op->change->op],
			utf8_fit(d->snapshot_op->change->name, 60), d->snapshot_op->change->name);
	if (!d->owner->reactor)
		return refuse_change(change, -EBUSY, "the device does not serve");
	if (d->t->g.refcount_order == 0 && change->op != BACKEND_SNAPSHOT_DELETE)
		return refuse_change(
			change, -EOVERFLOW,
			"reference counts of 1 bit cannot count a snapshot beside the disk: "
			"convert the image with qemu-img convert -o refcount_bits=16");
	return 0;
}

static int check_new_name(const struct qcow2_device *d, struct backend_snapshot_change *change)
{
	const char *name = change->name;
	bool has_letter = false;

	if (name[0] == '\0' || strlen(name) > QCOW2_SNAPSHOT_NAME_MAX)
		return refuse_change(change, -EINVAL, "a name has 1 to %u bytes",
				     QCOW2_SNAPSHOT_NAME_MAX);
	for (const char *at = name; *at; at++) {
		if (iscntrl((unsigned char)*at))
			return refuse_change(change, -EINVAL, "a name has no control characters");
		has_letter |= !isdigit((unsigned char)*at);
	}
	if (!has_letter)
		return refuse_change(change, -EINVAL,
				     "a name of digits alone could be the ID of another snapshot");
	if (qcow2_snapshots_find(d->snapshots, name) >= 0)
		return refuse_change(change, -EEXIST, "there is a snapshot \"%.*s\" already",
				     utf8_fit(name, 100), name);
	if (qcow2_snapshots_nr(d->snapshots) == QCOW2_SNAPSHOTS_MAX)
		return refuse_change(change, -ENOSPC, "an image has at most %u snapshots",
				     QCOW2_SNAPSHOTS_MAX);
	return 0;
}

static int prepare_create(struct qcow2_snapshot_op *p)
{
	const struct qcow2_device *d = p->d;
	struct timespec now;
	int ret = check_new_name(d, p->change);

	if (ret < 0)
		return ret;
	clock_gettime(CLOCK_REALTIME, &now);
	p->snapshot = (struct qcow2_snapshot){
		.l1_entries = d->t->l1_entries,
		.size_bytes = d->header.size_bytes,
		.sec = (uint32_t)now.tv_sec,
		.nsec = (uint32_t)now.tv_nsec,
		.icount = QCOW2_SNAPSHOT_NO_ICOUNT,
	};
	snprintf(p->snapshot.name, sizeof(p->snapshot.name), "%s", p->change->name);
	p->next = qcow2_snapshots_with(d->snapshots, &p->snapshot);
	p->steps = qcow2_create_steps;
	p->walk_nr = 2;
	return p->next ? 0 : refuse_change(p->change, -ENOMEM, "out of memory");
}

/* Of one that is deleted or applied: it is there, and its L1 table can be. */
static int prepare_old(struct qcow2_snapshot_op *p)
{
	const struct qcow2_device *d = p->d;
	int idx = qcow2_snapshots_find(d->snapshots, p->change->name);
	char names[BACKEND_ERROR_BYTES / 2];

	if (idx < 0) {
		qcow2_snapshots_names(d->snapshots, names, sizeof(names));
		return refuse_change(p->change, -ENOENT,
				     "there is no snapshot \"%.*s\": there is %s",
				     utf8_fit(p->change->name, 60), p->change->name, names);
	}
	p->snapshot = d->snapshots->entry[idx];
	if (p->change->op == BACKEND_SNAPSHOT_DELETE)
		p->next = qcow2_snapshots_without(d->snapshots, (unsigned)idx);
	p->l1 = calloc(MAX(p->snapshot.l1_entries, d->t->l1_entries) + QCOW2_OWN_BYTES / 8,
		       sizeof(*p->l1));
	if (!p->l1 || (p->change->op == BACKEND_SNAPSHOT_DELETE && !p->next))
		return refuse_change(p->change, -ENOMEM, "out of memory");
	return qcow2_snapshot_check_place(d->t, &p->snapshot, p->change->words,
					  sizeof(p->change->words));
}

static int prepare_delete(struct qcow2_snapshot_op *p)
{
	p->steps = qcow2_delete_steps;
	p->walk_nr = 3;
	return prepare_old(p);
}

static int prepare_apply(struct qcow2_snapshot_op *p)
{
	const struct qcow2_device *d = p->d;
	int ret = prepare_old(p);

	if (ret < 0)
		return ret;
	if (p->snapshot.size_bytes != d->header.size_bytes)
		return refuse_change(
			p->change, -EINVAL,
			"the disk of the snapshot has %llu bytes, and the device has %llu: "
			"use qemu-img snapshot -a while it does not serve",
			(unsigned long long)p->snapshot.size_bytes,
			(unsigned long long)d->header.size_bytes);
	p->old_l1 = calloc(d->t->l1_entries, sizeof(*p->old_l1));
	p->steps = qcow2_apply_steps;
	p->walk_nr = 4;
	return p->old_l1 ? 0 : refuse_change(p->change, -ENOMEM, "out of memory");
}

static int prepare(struct qcow2_snapshot_op *p)
{
	switch (p->change->op) {
	case BACKEND_SNAPSHOT_CREATE:
		return prepare_create(p);
	case BACKEND_SNAPSHOT_DELETE:
		return prepare_delete(p);
	case BACKEND_SNAPSHOT_APPLY:
		return prepare_apply(p);
	}
	return -EINVAL;
}

static int snapshots_begin(struct backend_device *device, struct backend_snapshot_change *change)
{
	struct qcow2_device *d = device->priv;
	struct qcow2_snapshot_op *p;
	int ret = check_image_device(d, change);

	if (ret < 0)
		return ret;
	p = calloc(1, sizeof(*p));
	if (!p)
		return refuse_change(change, -ENOMEM, "out of memory");
	p->change = change;
	p->d = d;
	p->o = d->owner;
	p->s.io = &p->io;
	p->s.ask = QCOW2_ASK_SNAPSHOT;
	list_init(&p->s.waiting);
	list_init(&p->behind);
	p->header = d->header;
	ret = prepare(p);
	if (ret < 0) {
		op_free(p);
		return ret;
	}
	__atomic_store_n(&change->done_permille, 0, __ATOMIC_RELAXED);
	d->snapshot_op = p;
	qcow2_set_changed(d);
	reactor_post(d->owner->reactor, &p->mail, op_begin);
	return 0;
}

/* ---- the control thread: the list ---- */

static unsigned snapshots_nr(const struct backend_device *device)
{
	const struct qcow2_device *d = device->priv;

	return qcow2_snapshots_nr(d->snapshots);
}

static void snapshots_get(const struct backend_device *device, unsigned idx,
			  struct backend_snapshot *ret_snapshot)
{
	const struct qcow2_device *d = device->priv;
	const struct qcow2_snapshot *s = &d->snapshots->entry[idx];

	*ret_snapshot = (struct backend_snapshot){ .size_bytes = s->size_bytes,
						   .vm_state_bytes = s->vm_state_bytes,
						   .sec = s->sec,
						   .nsec = s->nsec };
	snprintf(ret_snapshot->id, sizeof(ret_snapshot->id), "%s", s->id);
	snprintf(ret_snapshot->name, sizeof(ret_snapshot->name), "%s", s->name);
}

const struct backend_snapshots qcow2_backend_snapshots = {
	.nr = snapshots_nr,
	.get = snapshots_get,
	.begin = snapshots_begin,
};
