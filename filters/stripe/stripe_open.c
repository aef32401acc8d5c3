/*
 * The labels of a stripe with `verify: true` (stripe_label.h), when it is opened. The control
 * reactor.
 *
 * Happy path: the label of each backend is read -> they are judged -> right: done; a new set: all
 * are written as NEW, flushed, written as READY, flushed. Failure modes: a backend fails, or they
 * are refused: words, and nothing is written.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "filters/stripe/stripe.h"

/* So much of a backend without a label must be empty, if its chunk has as much. */
#define STRIPE_LOOK_BYTES 131072u

struct stripe_visit {
	struct stripe_device *d;
	unsigned idx;		  /* whose turn it is */
	uint64_t looked_bytes;	  /* of it: so many from its beginning have been read */
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
	uint64_t at_bytes = op == BACKEND_READ ? v->looked_bytes : 0;
	int ret;

	visit->doing = doing;
	ret = backend_visit_io(visit, v->idx, op, at_bytes, v->buf, bytes, fn);
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

static void stripe_judge(struct backend_visit *visit)
{
	const struct stripe_config *config = visit->device->config;
	struct stripe_visit *v = stripe_visit_of(visit);
	char words[BACKEND_ERROR_BYTES];
	enum stripe_verdict verdict = stripe_labels_judge(
		v->label, v->d->child_nr, config->chunk_bytes, words, sizeof(words));

	if (verdict == STRIPE_IS_RIGHT) {
		stripe_opened(visit, 0);
	} else if (verdict == STRIPE_REFUSED) {
		backend_fail(visit->device, -EINVAL, "%s", words);
		stripe_opened(visit, -EINVAL);
	} else {
		stripe_make(visit, verdict);
	}
}

/*
 * Of what has been read. True: there is no label, and more is to be read: file systems leave their
 * first block empty, and what has data is no new stripe.
 */
static bool stripe_look_on(struct stripe_visit *v)
{
	uint64_t most_bytes = MIN(1ull << v->d->shift, (uint64_t)STRIPE_LOOK_BYTES);
	struct stripe_label *label = &v->label[v->idx];
	struct stripe_label found;

	stripe_label_parse(&found, v->buf);
	if (v->looked_bytes == 0)
		*label = found;
	else if (found.kind != STRIPE_LABEL_NONE)
		label->kind = STRIPE_LABEL_FOREIGN;
	v->looked_bytes += STRIPE_LABEL_BYTES;
	return label->kind == STRIPE_LABEL_NONE && v->looked_bytes < most_bytes;
}

static void stripe_label_read(struct backend_visit *visit, int result)
{
	struct stripe_visit *v = stripe_visit_of(visit);

	if (result < 0) {
		stripe_opened(visit, result);
		return;
	}
	if (!stripe_look_on(v)) {
		v->looked_bytes = 0;
		v->idx++;
	}
	if (v->idx < v->d->child_nr)
		stripe_ask(visit, BACKEND_READ, "reading the label", stripe_label_read);
	else
		stripe_judge(visit);
}

void stripe_open_async(struct backend_visit *visit)
{
	const struct stripe_config *config = visit->device->config;
	struct stripe_device *d = visit->device->priv;

	if (!config->verify) {
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
	stripe_ask(visit, BACKEND_READ, "reading the label", stripe_label_read);
}
