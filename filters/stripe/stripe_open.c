/*
 * The labels of a stripe (stripe_label.h), when it is opened. The control reactor.
 *
 * Happy path: the label of each backend is read -> they are judged -> right: done; a new set: all
 * are written as NEW, flushed, written as READY, flushed. Failure modes: a backend fails, or they
 * are refused: words, and nothing is written.
 *
 * Without `verify` the first block of each backend is read alone, and nothing is ever written: a
 * stripe that has labels is refused. What cannot be read is no reason to refuse one without them.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "filters/stripe/stripe.h"
#include "storage/registry.h"

/*
 * So much of a backend without a label must be empty, whatever the chunk is: file systems and
 * tables of partitions begin within so much of the device (btrfs: 64 KiB), so within so much of a
 * backend.
 */
#define STRIPE_LOOK_BYTES 131072u

struct stripe_visit {
	struct stripe_device *d;
	unsigned idx;	       /* whose turn it is */
	uint64_t looked_bytes; /* of it: so many from its beginning have been read */
	int unread;	       /* without `verify`: why the first that failed could not be read */
	struct stripe_label made; /* what is written */
	struct stripe_label label[BACKEND_CHILDREN_MAX];
	void *buf;
};

void stripe_open_end(struct stripe_device *d)
{
	if (d->visit)
		free(d->visit->buf);
	free(d->visit);
	d->visit = NULL;
}

static struct stripe_visit *stripe_visit_of(const struct backend_visit *visit)
{
	const struct stripe_device *d = visit->device->priv;

	return d->visit;
}

/* Words of a failure but those that are there say which backend. */
static void stripe_opened(struct backend_visit *visit, int ret)
{
	struct stripe_device *d = visit->device->priv;

	if (ret < 0 && visit->device->error[0] == '\0')
		backend_fail(visit->device, ret, "backend %u: %s: %s", d->visit->idx + 1,
			     visit->doing, errname(ret));
	stripe_open_end(d);
	backend_visit_done(visit, ret);
}

static void stripe_ask(struct backend_visit *visit, enum backend_op op, const char *doing,
		       backend_visit_fn *fn)
{
	struct stripe_visit *v = stripe_visit_of(visit);
	uint32_t bytes = op == BACKEND_FLUSH ? 0 : STRIPE_LABEL_BYTES;
	int ret;

	visit->doing = doing;
	ret = backend_visit_io(visit, v->idx, op, 0, v->buf, bytes, fn);
	if (ret < 0)
		stripe_opened(visit, ret);
}

/* ---- a set that is made ---- */

static void stripe_write_next(struct backend_visit *visit);

static void stripe_round_flushed(struct backend_visit *visit, int result)
{
	struct stripe_visit *v = stripe_visit_of(visit);

	if (result < 0) {
		stripe_opened(visit, result);
		return;
	}
	if (++v->idx < v->d->child_nr) {
		stripe_ask(visit, BACKEND_FLUSH, "flushing the label", stripe_round_flushed);
		return;
	}
	if (v->made.kind == STRIPE_LABEL_READY) {
		log_info("a stripe has been labelled", "node=%s backends=%u", visit->device->name,
			 v->d->child_nr);
		stripe_opened(visit, 0);
		return;
	}
	v->made.kind = STRIPE_LABEL_READY;
	v->idx = 0;
	stripe_write_next(visit);
}

static void stripe_label_written(struct backend_visit *visit, int result)
{
	struct stripe_visit *v = stripe_visit_of(visit);

	if (result < 0) {
		stripe_opened(visit, result);
	} else if (++v->idx < v->d->child_nr) {
		stripe_write_next(visit);
	} else {
		v->idx = 0;
		stripe_ask(visit, BACKEND_FLUSH, "flushing the label", stripe_round_flushed);
	}
}

static void stripe_write_next(struct backend_visit *visit)
{
	struct stripe_visit *v = stripe_visit_of(visit);

	v->made.idx = v->idx;
	stripe_label_write(&v->made, v->buf);
	stripe_ask(visit, BACKEND_WRITE, "writing the label", stripe_label_written);
}

static void stripe_make(struct backend_visit *visit, enum stripe_verdict verdict)
{
	const struct stripe_config *config = visit->device->config;
	struct stripe_visit *v = stripe_visit_of(visit);

	v->made = v->label[0];
	v->idx = 0;
	if (visit->device->open_params.read_only) {
		backend_fail(visit->device, -EROFS,
			     "the backends have no labels yet, and a read-only device cannot have "
			     "them written: start it once without `read_only`, or leave `verify` "
			     "out");
		stripe_opened(visit, -EROFS);
		return;
	}
	if (verdict == STRIPE_FINISH) {
		v->made.kind = STRIPE_LABEL_READY;
	} else {
		v->made = (struct stripe_label){ .kind = STRIPE_LABEL_NEW,
						 .chunk_bytes = config->chunk_bytes,
						 .child_nr = v->d->child_nr };
		if (getrandom(v->made.set, sizeof(v->made.set), 0) < 0) {
			stripe_opened(visit, -errno);
			return;
		}
	}
	stripe_write_next(visit);
}

/* ---- those that are there ---- */

/* Without `verify`. */
static void stripe_judge_plain(struct backend_visit *visit)
{
	struct stripe_visit *v = stripe_visit_of(visit);
	char words[BACKEND_ERROR_BYTES];
	int ret = 0;

	if (stripe_labels_unwanted(v->label, v->d->child_nr, words, sizeof(words)))
		ret = backend_fail(visit->device, v->unread ? v->unread : -EINVAL, "%s", words);
	stripe_opened(visit, ret);
}

static void stripe_judge(struct backend_visit *visit)
{
	const struct stripe_config *config = visit->device->config;
	struct stripe_visit *v = stripe_visit_of(visit);
	char words[BACKEND_ERROR_BYTES];
	enum stripe_verdict verdict;

	if (!stripe_is_labelled(config)) {
		stripe_judge_plain(visit);
		return;
	}
	verdict = stripe_labels_judge(v->label, v->d->child_nr, config->chunk_bytes, words,
				      sizeof(words));
	if (verdict == STRIPE_IS_RIGHT) {
		stripe_opened(visit, 0);
	} else if (verdict == STRIPE_REFUSED) {
		backend_fail(visit->device, -EINVAL, "%s", words);
		stripe_opened(visit, -EINVAL);
	} else {
		stripe_make(visit, verdict);
	}
}

static uint64_t stripe_child_bytes(const struct backend_device *device, unsigned idx)
{
	const struct backend_device *child = device->child;

	while (idx-- > 0)
		child = child->sibling;
	return backend_size(child);
}

/*
 * Of what has been read. True: there is no label, and more is to be read: file systems leave their
 * first block empty, and what has data is no new stripe.
 */
static bool stripe_look_on(struct backend_visit *visit)
{
	const struct stripe_config *config = visit->device->config;
	struct stripe_visit *v = stripe_visit_of(visit);
	uint64_t most_bytes =
		MIN(stripe_child_bytes(visit->device, v->idx), (uint64_t)STRIPE_LOOK_BYTES);
	struct stripe_label *label = &v->label[v->idx];
	struct stripe_label found;

	stripe_label_parse(&found, v->buf);
	if (v->looked_bytes == 0)
		*label = found;
	else if (found.kind != STRIPE_LABEL_NONE)
		label->kind = STRIPE_LABEL_FOREIGN;
	v->looked_bytes += STRIPE_LABEL_BYTES;
	return stripe_is_labelled(config) && label->kind == STRIPE_LABEL_NONE &&
	       v->looked_bytes + STRIPE_LABEL_BYTES <= most_bytes;
}

static void stripe_label_read(struct backend_visit *visit, int result);

/*
 * The backend whose turn it is cannot be read. False: the part has ended. Without `verify` the next
 * one has its turn; not so when it was cancelled: the time is up, or the device is not wanted.
 */
static bool stripe_goes_without(struct backend_visit *visit, int err)
{
	const struct stripe_config *config = visit->device->config;
	struct stripe_visit *v = stripe_visit_of(visit);

	if (stripe_is_labelled(config) || err == -ECANCELED) {
		stripe_opened(visit, err);
		return false;
	}
	v->label[v->idx++].kind = STRIPE_LABEL_UNREAD;
	v->unread = v->unread ? v->unread : err;
	return true;
}

static void stripe_read_on(struct backend_visit *visit)
{
	struct stripe_visit *v = stripe_visit_of(visit);

	visit->doing = "reading the label";
	while (v->idx < v->d->child_nr) {
		int ret = backend_visit_io(visit, v->idx, BACKEND_READ, v->looked_bytes, v->buf,
					   STRIPE_LABEL_BYTES, stripe_label_read);

		if (ret == 0 || !stripe_goes_without(visit, ret))
			return;
	}
	stripe_judge(visit);
}

static void stripe_label_read(struct backend_visit *visit, int result)
{
	struct stripe_visit *v = stripe_visit_of(visit);

	if (result < 0) {
		if (!stripe_goes_without(visit, result))
			return;
	} else if (!stripe_look_on(visit)) {
		v->looked_bytes = 0;
		v->idx++;
	}
	stripe_read_on(visit);
}

/* A label here is data of a stripe above, which finds out by itself when it is not. */
static bool stripe_is_below_labels(const struct backend_device *device)
{
	const struct backend_device *above = device->parent;

	while (above && (above->ops != &backend_stripe || !stripe_is_labelled(above->config)))
		above = above->parent;
	return above;
}

static bool stripe_looks(const struct backend_visit *visit)
{
	const struct stripe_config *config = visit->device->config;

	if (config->verify != STRIPE_VERIFY_OFF)
		return stripe_is_labelled(config);
	/* backend_open (storage/backend.h) waits for nobody, so it cannot look. */
	return visit->reactor && !stripe_is_below_labels(visit->device);
}

void stripe_open_async(struct backend_visit *visit)
{
	struct stripe_device *d = visit->device->priv;

	if (!stripe_looks(visit)) {
		backend_visit_done(visit, 0);
		return;
	}
	d->visit = calloc(1, sizeof(*d->visit));
	if (d->visit) {
		d->visit->d = d;
		d->visit->buf = aligned_alloc(STRIPE_LABEL_BYTES, STRIPE_LABEL_BYTES);
	}
	if (!d->visit || !d->visit->buf) {
		stripe_open_end(d);
		backend_visit_done(visit, -ENOMEM);
		return;
	}
	stripe_read_on(visit);
}
