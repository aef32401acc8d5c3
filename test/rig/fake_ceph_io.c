/* Requests of the fake: they wait in a list until one of its threads does them and calls back. */
#include <errno.h>
#include <string.h>

#include "test/rig/fake_ceph_internal.h"

/* ---- the bytes ---- */

static struct fake_write *write_new(const struct fake_request *r, uint64_t length_bytes)
{
	struct fake_write *w = malloc(sizeof(*w) + length_bytes);

	FAKE_CHECK(w);
	w->client = r->handle->client->nr;
	w->offset_bytes = r->seen.offset_bytes + r->handle->header_bytes;
	w->length_bytes = length_bytes;
	memcpy(w->data, r->buf, length_bytes);
	return w;
}

static void write_land(const struct fake_write *w)
{
	if (w->offset_bytes + w->length_bytes <= fake.image->size_bytes)
		memcpy(fake.image->data + w->offset_bytes, w->data, w->length_bytes);
}

void fake_drop_writes(struct list_node *writes, unsigned client)
{
	list_for_each_safe (node, next, writes) {
		struct fake_write *w = list_entry(node, struct fake_write, node);

		if (client && w->client != client)
			continue;
		list_remove(&w->node);
		free(w);
	}
}

void fake_cache_empty(struct fake_handle *h)
{
	list_for_each (node, &h->dirty)
		write_land(list_entry(node, struct fake_write, node));
	fake_drop_writes(&h->dirty, 0);
}

void fake_late_land(void)
{
	fake_lock();
	list_for_each (node, &fake.late)
		write_land(list_entry(node, struct fake_write, node));
	fake_drop_writes(&fake.late, 0);
	fake_unlock();
}

static void do_read(const struct fake_request *r, uint64_t length_bytes)
{
	uint64_t at = r->seen.offset_bytes + r->handle->header_bytes;

	memcpy(r->buf, fake.image->data + at, length_bytes);
	list_for_each (node, &r->handle->dirty) {
		const struct fake_write *w = list_entry(node, struct fake_write, node);
		uint64_t from = MAX(w->offset_bytes, at);
		uint64_t to = MIN(w->offset_bytes + w->length_bytes, at + length_bytes);

		if (from < to)
			memcpy(r->buf + (from - at), w->data + (from - w->offset_bytes), to - from);
	}
}

static void do_write(const struct fake_request *r, uint64_t length_bytes)
{
	struct fake_write *w = write_new(r, length_bytes);

	if (r->handle->caches && !(r->seen.op_flags & LIBRADOS_OP_FLAG_FADVISE_FUA)) {
		list_push_back(&r->handle->dirty, &w->node);
		return;
	}
	fake_cache_empty(r->handle);
	write_land(w);
	free(w);
}

static void do_zeroes(const struct fake_request *r, uint64_t length_bytes)
{
	fake_cache_empty(r->handle);
	memset(fake.image->data + r->seen.offset_bytes + r->handle->header_bytes, 0, length_bytes);
}

/* What is behind the end is cut off, without a word. */
static ssize_t do_request(const struct fake_request *r)
{
	const struct fake_handle *h = r->handle;
	uint64_t end_bytes = h->size_bytes - h->header_bytes;
	uint64_t length_bytes = r->seen.length_bytes;

	if (r->seen.op != FAKE_FLUSH && r->seen.offset_bytes >= end_bytes)
		return -EINVAL;
	length_bytes = MIN(length_bytes, end_bytes - r->seen.offset_bytes);
	switch (r->seen.op) {
	case FAKE_READ:
		do_read(r, length_bytes);
		return (ssize_t)length_bytes;
	case FAKE_WRITE:
		do_write(r, length_bytes);
		return 0;
	case FAKE_FLUSH:
		fake_cache_empty(r->handle);
		return 0;
	default:
		do_zeroes(r, length_bytes);
		return 0;
	}
}

/* ---- answers ---- */

/* 0: it is done as usual. */
static int told_answer(const struct fake_request *r)
{
	enum fake_op op = r->seen.op;

	if (r->handle->client->is_listed)
		return -ESHUTDOWN;
	if (r->handle->read_only && op != FAKE_READ && op != FAKE_FLUSH)
		return -EROFS;
	if (fake.answer_err_nr[op] == 0)
		return 0;
	fake.answer_err_nr[op]--;
	return fake.answer_err[op];
}

static ssize_t find_answer(const struct fake_request *r)
{
	int told = told_answer(r);

	if (told == 0)
		return do_request(r);
	if (told > 0)
		do_read(r, (uint64_t)told);
	if (told == -ETIMEDOUT && r->seen.op == FAKE_WRITE)
		list_push_back(&fake.late, &write_new(r, r->seen.length_bytes)->node);
	return told;
}

/* Called with the lock, which it lets go of meanwhile. */
static void answer(struct fake_thread *thread, struct fake_request *r)
{
	struct fake_completion *c = r->completion;

	list_remove(&r->node);
	c->ret = find_answer(r);
	c->is_done = true;
	r->handle->out_nr--;
	thread->call_nr++;
	pthread_mutex_unlock(&fake.lock);
	free(r);
	c->cb(c, c->arg);
	pthread_mutex_lock(&fake.lock);
	thread->call_nr++;
	fake.out_nr--;
}

static struct fake_request *next_request(void)
{
	list_for_each (node, &fake.requests) {
		struct fake_request *r = list_entry(node, struct fake_request, node);

		if (!fake.holds || r->handle->client->is_listed)
			return r;
		if (fake.let_go_nr > 0) {
			fake.let_go_nr--;
			return r;
		}
	}
	return NULL;
}

/* ---- news ---- */

static struct fake_handle *next_news(void)
{
	list_for_each (node, &fake.handles) {
		struct fake_handle *h = list_entry(node, struct fake_handle, node);

		if (h->has_news && !h->is_telling)
			return h;
	}
	return NULL;
}

static void tell(struct fake_handle *h)
{
	h->has_news = false;
	if (h->client->is_listed)
		return;
	h->is_telling = true;
	h->size_bytes = fake.image->size_bytes;
	pthread_mutex_unlock(&fake.lock);
	h->on_update(h->on_update_arg);
	pthread_mutex_lock(&fake.lock);
	h->is_telling = false;
}

/* ---- threads ---- */

static void *fake_run(void *arg)
{
	struct fake_thread *thread = arg;

	fake_lock();
	while (!fake.stops) {
		struct fake_handle *h = next_news();
		struct fake_request *r = h ? NULL : next_request();

		if (h)
			tell(h);
		else if (r)
			answer(thread, r);
		else
			pthread_cond_wait(&fake.changed, &fake.lock);
		pthread_cond_broadcast(&fake.changed);
	}
	fake_unlock();
	return NULL;
}

void fake_io_start(void)
{
	for (unsigned i = 0; i < FAKE_THREADS; i++)
		FAKE_CHECK(pthread_create(&fake.thread[i].thread, NULL, fake_run,
					  &fake.thread[i]) == 0);
}

void fake_io_stop(void)
{
	for (unsigned i = 0; i < FAKE_THREADS; i++)
		pthread_join(fake.thread[i].thread, NULL);
}

void fake_wait_called(void)
{
	fake_lock();
	for (unsigned i = 0; i < FAKE_THREADS; i++) {
		unsigned call_nr = fake.thread[i].call_nr;

		while (call_nr % 2 && fake.thread[i].call_nr == call_nr)
			pthread_cond_wait(&fake.changed, &fake.lock);
	}
	fake_unlock();
}

/* ---- calls ---- */

int fake_rbd_aio_create_completion(void *arg, rbd_callback_t cb, rbd_completion_t *ret_completion)
{
	struct fake_completion *c;
	int err = fake_enter("rbd_aio_create_completion");

	if (err < 0)
		return err;
	c = calloc(1, sizeof(*c));
	FAKE_CHECK(c);
	c->cb = cb;
	c->arg = arg;
	*ret_completion = c;
	return 0;
}

ssize_t fake_rbd_aio_get_return_value(rbd_completion_t completion)
{
	const struct fake_completion *c = completion;

	FAKE_CHECK(c->is_done);
	return c->ret;
}

void fake_rbd_aio_release(rbd_completion_t completion)
{
	struct fake_completion *c = completion;

	FAKE_CHECK(c->is_done || !c->is_used);
	free(c);
}

static int take(const char *call, rbd_image_t image, const struct fake_seen *seen, void *buf,
		rbd_completion_t completion)
{
	struct fake_request *r;
	int err = fake_enter(call);

	if (err < 0)
		return err;
	r = calloc(1, sizeof(*r));
	FAKE_CHECK(r);
	r->handle = image;
	r->seen = *seen;
	r->buf = buf;
	r->completion = completion;
	fake_lock();
	FAKE_CHECK(!r->completion->is_used);
	r->completion->is_used = true;
	r->seen.client = r->handle->client->nr;
	r->handle->out_nr++;
	fake.out_nr++;
	fake.seen[fake.seen_nr++ % FAKE_SEEN_MAX] = r->seen;
	list_push_back(&fake.requests, &r->node);
	fake_unlock();
	return 0;
}

int fake_rbd_aio_read(rbd_image_t image, uint64_t off, size_t len, char *buf, rbd_completion_t c)
{
	const struct fake_seen seen = { .op = FAKE_READ, .offset_bytes = off, .length_bytes = len };

	return take("rbd_aio_read", image, &seen, buf, c);
}

int fake_rbd_aio_write2(rbd_image_t image, uint64_t off, size_t len, const char *buf,
			rbd_completion_t c, int op_flags)
{
	const struct fake_seen seen = {
		.op = FAKE_WRITE, .offset_bytes = off, .length_bytes = len, .op_flags = op_flags
	};

	return take("rbd_aio_write2", image, &seen, (void *)(uintptr_t)buf, c);
}

int fake_rbd_aio_flush(rbd_image_t image, rbd_completion_t c)
{
	const struct fake_seen seen = { .op = FAKE_FLUSH };

	return take("rbd_aio_flush", image, &seen, NULL, c);
}

int fake_rbd_aio_discard(rbd_image_t image, uint64_t off, uint64_t len, rbd_completion_t c)
{
	const struct fake_seen seen = { .op = FAKE_DISCARD,
					.offset_bytes = off,
					.length_bytes = len };

	return take("rbd_aio_discard", image, &seen, NULL, c);
}

int fake_rbd_aio_write_zeroes(rbd_image_t image, uint64_t off, size_t len, rbd_completion_t c,
			      int zero_flags, int op_flags)
{
	const struct fake_seen seen = { .op = FAKE_ZEROES,
					.offset_bytes = off,
					.length_bytes = len,
					.op_flags = op_flags,
					.zero_flags = zero_flags };

	return take("rbd_aio_write_zeroes", image, &seen, NULL, c);
}
