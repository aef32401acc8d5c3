/*
 * The last commit of an image, and its end. The control reactor, when no queue is open: requests go
 * to `data` by a visit, one at a time, until the disk has all and nothing that was given up waits.
 * When nothing was changed, the header gets back the mark that it had (qcow2_mark.c).
 *
 * Failure modes: a commit fails: another one, as it may have told what was lost before
 * (storage/owed.h); what cannot be written then is told, and the image is left as after a power
 * cut, without corruption. The mark that was found is not put back: logged; a cache above finds
 * that the image has changed.
 */
#include <errno.h>
#include <stdlib.h>

#include "backends/qcow2/qcow2_owner.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

struct closing {
	struct backend_visit *visit;
	struct qcow2_commit commit;
	struct qcow2_commit_io io; /* the one under way */
	bool is_busy, has_failed;
	void *buf;
};

static struct closing *closing_of(struct backend_visit *visit)
{
	struct qcow2_device *d = visit->device->priv;

	return d->closing;
}

static void closing_end(struct closing *p, int result)
{
	struct backend_visit *visit = p->visit;
	struct qcow2_device *d = visit->device->priv;

	d->closing = NULL;
	qcow2_commit_fini(&p->commit);
	free(p->buf);
	free(p);
	backend_visit_done(visit, result);
}

static void closing_io_ended(struct backend_visit *visit, int result)
{
	struct closing *p = closing_of(visit);

	p->is_busy = false;
	if (p->io.op == BACKEND_READ && result == 0)
		qcow2_tables_install(p->commit.d->t, p->io.at, p->buf, false);
	qcow2_commit_ended(&p->commit, &p->io, result);
}

static bool closing_issue(struct qcow2_commit *c, const struct qcow2_commit_io *io)
{
	struct closing *p = container_of(c, struct closing, commit);
	void *buf = io->buf ? io->buf : p->buf;

	if (p->is_busy)
		return false;
	p->io = *io;
	if (io->fill)
		io->fill(c, buf, io->at, io->bytes);
	c->result = backend_visit_io(p->visit, io->child_idx, io->op, io->at, buf,
				     (uint32_t)io->bytes, closing_io_ended);
	p->is_busy = c->result == 0;
	return p->is_busy;
}

static bool closing_is_quiet(struct qcow2_commit *c, unsigned epoch_idx)
{
	(void)c;
	(void)epoch_idx;
	return true;
}

/* ---- the mark ---- */

static void mark_restored(struct backend_visit *visit, int result)
{
	if (result < 0)
		log_warn("the image says that it was changed, though it was not",
			 "node=%s error=%s", visit->device->name, errname(result));
	closing_end(closing_of(visit), 0);
}

static void closing_header_io(struct closing *p, enum backend_op op, backend_visit_fn *fn)
{
	const struct qcow2_device *d = p->commit.d;
	int ret = backend_visit_io(p->visit, d->data_idx, op, 0, p->buf,
				   d->device->open_params.logical_block_bytes, fn);

	if (ret < 0)
		mark_restored(p->visit, ret);
}

static void marked_header_read(struct backend_visit *visit, int result)
{
	struct closing *p = closing_of(visit);
	struct qcow2_device *d = p->commit.d;

	if (result < 0) {
		mark_restored(visit, result);
		return;
	}
	d->header.autoclear &= ~QCOW2_AUTOCLEAR_MARK;
	d->header.autoclear |= (uint64_t)d->mark_found << 32;
	qcow2_header_update(p->buf, &d->header);
	closing_header_io(p, BACKEND_WRITE, mark_restored);
}

/* The disk has all: a process that comes after this reads it. */
static void closing_leave_mark(struct closing *p)
{
	const struct qcow2_device *d = p->commit.d;

	qcow2_tables_unfill(d->t);
	if (qcow2_mark_left(d) != d->header.autoclear >> 32)
		closing_header_io(p, BACKEND_READ, marked_header_read);
	else
		closing_end(p, 0);
}

/* ---- the commit ---- */

static bool closing_is_due(const struct qcow2_tables *t)
{
	return qcow2_tables_are_dirty(t) || t->freed_nr > 0;
}

static void closing_committed(struct qcow2_commit *c, int result)
{
	struct closing *p = container_of(c, struct closing, commit);

	bool again = result < 0 && !p->has_failed;

	p->has_failed |= result < 0;
	if (again || (result == 0 && closing_is_due(c->d->t)))
		qcow2_commit_begin(c);
	else if (result == 0)
		closing_leave_mark(p);
	else
		closing_end(p, result);
}

void qcow2_close_async(struct backend_visit *visit)
{
	struct qcow2_device *d = visit->device->priv;
	struct closing *p;

	if (!d->owner) {
		backend_visit_done(visit, 0);
		return;
	}
	p = calloc(1, sizeof(*p));
	if (p)
		p->buf = aligned_alloc(4096, QCOW2_CHUNK_BYTES);
	if (!p || !p->buf || qcow2_commit_init(&p->commit, d) < 0) {
		free(p ? p->buf : NULL);
		free(p);
		backend_visit_done(visit, -ENOMEM);
		return;
	}
	p->visit = visit;
	visit->doing = "writing the tables of the image";
	p->commit.issue = closing_issue;
	p->commit.done = closing_committed;
	p->commit.is_quiet = closing_is_quiet;
	d->closing = p;
	if (closing_is_due(d->t))
		qcow2_commit_begin(&p->commit);
	else
		closing_leave_mark(p);
}

void qcow2_close(struct backend_device *device)
{
	struct qcow2_device *d = device->priv;

	qcow2_opening_free(d);
	qcow2_owner_free(d->owner);
	qcow2_tables_free(d->t);
	qcow2_luks_free(d->luks);
	qcow2_snapshots_free(d->snapshots);
	free(d->snapshots_reader);
	d->snapshots = NULL;
	d->snapshots_reader = NULL;
	d->owner = NULL;
	d->t = NULL;
	d->luks = NULL;
}
