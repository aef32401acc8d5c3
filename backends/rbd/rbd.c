/*
 * rbd: a device on an image of a Ceph cluster, by librbd. This file is its table: queues and
 * requests as the core sees them. Reactor thread, but for ceph_wait and ceph_look, and for
 * ceph_answered, which threads of librbd call.
 *
 * Happy path: submit -> librbd has it -> ceph_answered, in a thread of librbd, posts it to its
 * reactor -> it is complete. Failure modes: the cluster does not serve the image any more: held,
 * and sent again when it is open again (rbd_revive.c); librbd did less than all: -EIO.
 */
#include "backends/rbd/rbd.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/counter.h"
#include "base/util.h"
#include "storage/sharing.h"
#include "storage/registry.h"

/* ---- answers ---- */

/*
 * librbd cuts a request at the end of the image, without a word: of what ends behind it, because
 * the image has been shrunk meanwhile, nothing may be said.
 */
static int ceph_judge(const struct ceph_io *n, int ret)
{
	const struct ceph_image *image = n->image;
	const struct backend_io *io = n->io;
	uint64_t size_bytes;

	if (ret < 0)
		return ret;
	if (io->op == BACKEND_READ)
		return (uint32_t)ret == io->length_bytes ? 0 : -EIO;
	if (io->op == BACKEND_FLUSH)
		return 0;
	ret = image->device->api->rbd_get_size(image->rbd, &size_bytes);
	return ret == 0 && io->offset_bytes + io->length_bytes <= size_bytes ? 0 : -EIO;
}

static void ceph_count(struct ceph_queue *q, const struct ceph_io *n, uint64_t now_ns)
{
	counter_add(&q->answered, 1);
	histogram_record(&q->wait, n->sent_ns - n->came_ns);
	histogram_record(&q->answer, now_ns - n->sent_ns);
}

static void ceph_note_success(struct ceph_device *d, struct ceph_io *n,
			      const struct ceph_image *image)
{
	const struct backend_io *io = n->io;

	if (io->op == BACKEND_FLUSH)
		net_flush_answered(&d->flush, &n->flush, 0);
	else if ((io->op == BACKEND_WRITE || io->op == BACKEND_WRITE_ZEROES) &&
		 !(io->flags & BACKEND_FUA)) {
		net_flush_wrote(&d->flush);
		/* Its cache may be gone already: then this write was not counted as lost yet. */
		if (atomic_load(&d->image) != image && net_flush_lost(&d->flush))
			backend_owe(d->device);
	}
}

/* The time of a request that librbd gave up is the one that on_disconnect allows. */
static int ceph_again(struct ceph_queue *q, struct ceph_io *n)
{
	struct ceph_device *d = q->device;
	bool may_resend = n->io->op != BACKEND_FLUSH || net_flush_may_resend(&d->flush, &n->flush);

	if (n->result == -ETIMEDOUT && d->config->outage.outage_timeout_ns != OPTION_FOREVER)
		return -ETIMEDOUT;
	if (!may_resend)
		return -EIO;
	if (n->is_cancelled)
		return -ECANCELED;
	counter_add(&q->resent, 1);
	return ceph_hold(q, n);
}

static void ceph_tell_refused(struct ceph_device *d, const struct ceph_io *n)
{
	if (n->result == -EROFS)
		log_limited_by(&d->lock_limit, LOG_LEVEL_WARN,
			       "another client holds the lock of the image", "device=%s image=%s",
			       d->name, d->address);
	else if (n->result == -EDQUOT || n->result == -ENOSPC)
		log_limited_by(&d->full_limit, LOG_LEVEL_WARN, "the pool is full",
			       "device=%s pool=%s", d->name, d->target.pool);
}

static void ceph_on_failure(struct ceph_queue *q, struct ceph_io *n, struct ceph_image *image)
{
	struct ceph_device *d = q->device;
	int ret = n->result;

	if (ceph_is_lost(ret)) {
		ceph_revive(d, image, ret);
		ret = ceph_again(q, n);
		if (ret == 0)
			return;
	} else if (n->io->op == BACKEND_FLUSH) {
		net_flush_answered(&d->flush, &n->flush, ret);
	}
	ceph_tell_refused(d, n);
	counter_add(&q->lost, 1);
	backend_io_complete(n->io, ret);
}

static void ceph_on_answer(struct mail *mail)
{
	struct ceph_io *n = container_of(mail, struct ceph_io, mail);
	struct ceph_queue *q = n->io->queue->priv;
	struct ceph_image *image = n->image;

	n->image = NULL;
	if (n->result < 0) {
		ceph_on_failure(q, n, image);
	} else {
		ceph_count(q, n, q->queue->reactor->now_ns);
		ceph_note_success(q->device, n, image);
		backend_io_complete(n->io, 0);
	}
	ceph_give_back_image(image);
}

/* A thread of librbd. */
static void ceph_answered(rbd_completion_t completion, void *arg)
{
	struct ceph_io *n = arg;
	const struct ceph_api *api = n->image->device->api;
	int ret = (int)api->rbd_aio_get_return_value(completion);

	api->rbd_aio_release(completion);
	n->result = ceph_judge(n, ret);
	reactor_post(n->io->queue->reactor, &n->mail, ceph_on_answer);
}

/* ---- requests ---- */

/*
 * Forced unit access of an image without a cache is every write's. With one, librbd knows the flag
 * for writes; a zeroing goes past the cache.
 */
static int ceph_write_flags(const struct backend_io *io)
{
	return io->flags & BACKEND_FUA ? LIBRADOS_OP_FLAG_FADVISE_FUA : 0;
}

static int ceph_zero_flags(const struct backend_io *io)
{
	return io->flags & BACKEND_NOUNMAP ? RBD_WRITE_ZEROES_FLAG_THICK_PROVISION : 0;
}

static int ceph_start(const struct ceph_api *api, rbd_image_t rbd, const struct backend_io *io,
		      rbd_completion_t c)
{
	switch (io->op) {
	case BACKEND_READ:
		return api->rbd_aio_read(rbd, io->offset_bytes, io->length_bytes, io->buf, c);
	case BACKEND_WRITE:
		return api->rbd_aio_write2(rbd, io->offset_bytes, io->length_bytes, io->buf, c,
					   ceph_write_flags(io));
	case BACKEND_FLUSH:
		return api->rbd_aio_flush(rbd, c);
	case BACKEND_DISCARD:
		return api->rbd_aio_discard(rbd, io->offset_bytes, io->length_bytes, c);
	default: /* never a discard: of a part of an object that would leave the data */
		return api->rbd_aio_write_zeroes(rbd, io->offset_bytes, io->length_bytes, c,
						 ceph_zero_flags(io), ceph_write_flags(io));
	}
}

/* Whoever takes it away from the device waits for those that are counted. */
struct ceph_image *ceph_take_image(struct ceph_device *d)
{
	struct ceph_image *image = atomic_load(&d->image);

	if (!image)
		return NULL;
	atomic_fetch_add(&image->out_nr, 1);
	if (atomic_load(&d->image) == image)
		return image;
	ceph_give_back_image(image);
	return NULL;
}

/* The last word on this image: it may be closed from now on. */
void ceph_give_back_image(struct ceph_image *image)
{
	atomic_fetch_sub(&image->out_nr, 1);
}

static int ceph_give(struct ceph_queue *q, struct ceph_io *n, struct ceph_image *image)
{
	const struct ceph_api *api = q->device->api;
	rbd_completion_t completion;
	int ret = api->rbd_aio_create_completion(n, ceph_answered, &completion);

	if (ret < 0)
		return ret;
	n->image = image;
	n->sent_ns = q->queue->reactor->now_ns;
	ret = ceph_start(api, image->rbd, n->io, completion);
	if (ret < 0)
		api->rbd_aio_release(completion);
	return ret;
}

int ceph_send(struct ceph_queue *q, struct ceph_io *n)
{
	struct ceph_device *d = q->device;
	struct ceph_image *image = ceph_take_image(d);
	int ret;

	if (!image)
		return -EAGAIN;
	if (n->io->op == BACKEND_FLUSH)
		net_flush_begin(&d->flush, &n->flush);
	ret = ceph_give(q, n, image);
	if (ret < 0) {
		ceph_give_back_image(image);
		net_flush_answered(&d->flush, &n->flush, ret);
	}
	return ret == -EAGAIN ? -EIO : ret;
}

static enum backend_submit ceph_submit(struct backend_io *io)
{
	struct ceph_queue *q = io->queue->priv;
	struct ceph_io *n = io->priv;

	io->result = -EIO;
	if (net_has_changed(&q->device->changed))
		return BACKEND_DONE;
	n->came_ns = q->queue->reactor->now_ns;
	n->is_cancelled = false;
	net_flush_came(&n->flush);
	io->result = ceph_send(q, n);
	if (io->result == -EAGAIN)
		io->result = ceph_hold(q, n);
	return io->result < 0 ? BACKEND_DONE : BACKEND_QUEUED;
}

/* What librbd has ends by itself, at the latest when the limit of a request is over. */
static void ceph_cancel(struct backend_io *io)
{
	struct ceph_io *n = io->priv;

	if (!ceph_hold_cancel(n))
		n->is_cancelled = true;
}

/* ---- queues ---- */

static int ceph_queue_init(struct backend_queue *queue)
{
	struct ceph_queue *q = queue->priv;

	q->device = queue->device->priv;
	q->queue = queue;
	ceph_hold_init(q);
	ceph_news_begin(q->device);
	return 0;
}

static void ceph_queue_fini(struct backend_queue *queue)
{
	struct ceph_queue *q = queue->priv;

	ceph_news_end(q->device);
	ceph_hold_fini(q);
}

static int ceph_io_init(struct backend_io *io)
{
	struct ceph_io *n = io->priv;

	n->io = io;
	list_init(&n->held);
	return 0;
}

/* ---- for people ---- */

static struct backend_wait ceph_wait(const struct backend_io *io)
{
	const struct ceph_io *n = io->priv;

	if (__atomic_load_n(&n->is_held, __ATOMIC_RELAXED))
		return (struct backend_wait){ .words = "waiting for the image to be open again" };
	return (struct backend_wait){ .words = "librbd and the OSDs" };
}

static bool ceph_look(const struct backend_queue *queue, unsigned idx,
		      struct net_connection_look *ret_look)
{
	const struct ceph_queue *q = queue->priv;
	const struct ceph_device *d = q->device;
	unsigned lost_nr = atomic_load(&d->lost_nr);
	bool is_open = atomic_load(&d->image) != NULL;

	if (idx > 0)
		return false;
	*ret_look = (struct net_connection_look){
		.server = d->address,
		.state = is_open ? "connected" : "connecting",
		.connects = lost_nr + is_open,
		.lost = lost_nr,
		.ends = { [NET_END_CLOSED] = lost_nr },
		.last_end = lost_nr ? NET_END_CLOSED : -1,
		.resent = __atomic_load_n(&q->resent, __ATOMIC_RELAXED),
		.answered = __atomic_load_n(&q->answered, __ATOMIC_RELAXED),
		.wait = &q->wait,
		.answer = &q->answer,
	};
	return true;
}

static const char *ceph_failure(const struct backend_device *device)
{
	const struct ceph_device *d = device->priv;

	return net_changed_words(&d->changed);
}

const struct backend backend_rbd = {
	.name = "rbd",
	.summary = "an image of a Ceph cluster (RADOS block device)",
	.options = ceph_options,
	.config_bytes = sizeof(struct ceph_config),
	.device_bytes = sizeof(struct ceph_device),
	.queue_bytes = sizeof(struct ceph_queue),
	.io_bytes = sizeof(struct ceph_io),
	.uri = &ceph_backend_uri,
	.batches = true,
	.check = ceph_check,
	.open = ceph_open,
	.close = ceph_close,
	.queue_init = ceph_queue_init,
	.queue_fini = ceph_queue_fini,
	.io_init = ceph_io_init,
	.submit = ceph_submit,
	.cancel = ceph_cancel,
	.wait = ceph_wait,
	.identity = ceph_identity,
	.places = backend_places_by_identity,
	.stored_fd = ceph_stored_fd,
	.settle = ceph_settle,
	.abandon = ceph_abandon,
	.failure = ceph_failure,
	.connection = ceph_look,
	.library = ceph_client_look,
	.resize = &ceph_resize,
};
