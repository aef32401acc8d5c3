/* The cluster of the fake, and what tests do to it. Owns struct fake. */
#include "test/rig/fake_ceph_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

struct fake fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

void fake_lock(void)
{
	pthread_mutex_lock(&fake.lock);
}

void fake_unlock(void)
{
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

/* ---- life ---- */

void fake_start(void)
{
	struct fake_image *image = calloc(1, sizeof(*image));

	FAKE_CHECK(image && !fake.image);
	image->size_bytes = 4u << 20;
	image->stripe_unit_bytes = image->object_bytes = 1u << 20;
	image->features = RBD_FEATURE_LAYERING | RBD_FEATURE_EXCLUSIVE_LOCK;
	snprintf(image->id, sizeof(image->id), "1a2b3c");
	snprintf(image->name, sizeof(image->name), "vol");
	snprintf(image->pool, sizeof(image->pool), "rbd");
	fake.image = image;
	list_init(&fake.clients);
	list_init(&fake.handles);
	list_init(&fake.requests);
	list_init(&fake.late);
	fake.client_nr = fake.call_nr = fake.seen_nr = fake.let_go_nr = 0;
	fake.holds = fake.stops = false;
	fake.events[0] = '\0';
	memset(fake.listed, 0, sizeof(fake.listed));
	memset(fake.answer_err_nr, 0, sizeof(fake.answer_err_nr));
	fake_io_start();
	ceph_api_use(&fake_api);
}

void fake_stop(void)
{
	fake_lock();
	fake.stops = true;
	fake_unlock();
	fake_io_stop();
	FAKE_CHECK(list_empty(&fake.handles) && list_empty(&fake.clients));
	FAKE_CHECK(list_empty(&fake.requests));
	fake_drop_writes(&fake.late, 0);
	free(fake.image);
	fake.image = NULL;
}

struct fake_image *fake_image(void)
{
	return fake.image;
}

void fake_set_id(const char *id)
{
	fake_lock();
	snprintf(fake.image->id, sizeof(fake.image->id), "%s", id);
	fake_unlock();
}

/* ---- calls ---- */

static struct fake_call *call_of(const char *name)
{
	for (unsigned i = 0; i < fake.call_nr; i++)
		if (strcmp(fake.call[i].name, name) == 0)
			return &fake.call[i];
	FAKE_CHECK(fake.call_nr < FAKE_CALLS_MAX);
	fake.call[fake.call_nr] = (struct fake_call){ 0 };
	snprintf(fake.call[fake.call_nr].name, sizeof(fake.call[0].name), "%s", name);
	return &fake.call[fake.call_nr++];
}

int fake_enter(const char *name)
{
	struct fake_call *call;
	int err = 0;

	fake_lock();
	call = call_of(name);
	call->call_nr++;
	call->blocked_nr++;
	while (call->blocks) {
		pthread_cond_broadcast(&fake.changed);
		pthread_cond_wait(&fake.changed, &fake.lock);
	}
	call->blocked_nr--;
	if (call->err_nr > 0) {
		call->err_nr--;
		err = call->err;
	}
	fake_unlock();
	return err;
}

void fake_fail_call(const char *name, int err, unsigned nr)
{
	struct fake_call *call;

	fake_lock();
	call = call_of(name);
	call->err = err;
	call->err_nr = nr;
	fake_unlock();
}

static void call_block(const char *name, bool blocks)
{
	fake_lock();
	call_of(name)->blocks = blocks;
	fake_unlock();
}

void fake_block_call(const char *call)
{
	call_block(call, true);
}

void fake_unblock_call(const char *call)
{
	call_block(call, false);
}

unsigned fake_call_nr(const char *call)
{
	unsigned nr;

	fake_lock();
	nr = call_of(call)->call_nr;
	fake_unlock();
	return nr;
}

unsigned fake_blocked_nr(const char *name)
{
	struct fake_call *call;
	unsigned nr;

	fake_lock();
	call = call_of(name);
	nr = call->blocks ? call->blocked_nr : 0;
	fake_unlock();
	return nr;
}

/* ---- requests ---- */

void fake_fail_answer(enum fake_op op, int err, unsigned nr)
{
	fake_lock();
	fake.answer_err[op] = err;
	fake.answer_err_nr[op] = nr;
	fake_unlock();
}

void fake_hold(bool on)
{
	fake_lock();
	fake.holds = on;
	fake.let_go_nr = 0;
	fake_unlock();
}

void fake_let_go(unsigned nr)
{
	fake_lock();
	fake.let_go_nr += nr;
	fake_unlock();
}

unsigned fake_out_nr(void)
{
	unsigned nr;

	fake_lock();
	nr = fake.out_nr;
	fake_unlock();
	return nr;
}

/* ---- the blocklist ---- */

void fake_addrs(unsigned client, char text[FAKE_ADDRS_BYTES])
{
	snprintf(text, FAKE_ADDRS_BYTES, "10.0.0.1:0/%u", client);
}

/* Clients that have never been can be listed, too: of a process that is gone. */
void fake_list_addrs(const char *addrs, unsigned by)
{
	unsigned nr = 0;

	FAKE_CHECK(sscanf(addrs, "10.0.0.1:0/%u", &nr) == 1 && nr > 0 && nr < 65536);
	fake.listed[nr / 8] |= (unsigned char)(1u << nr % 8);
	list_for_each (node, &fake.clients) {
		struct fake_client *c = list_entry(node, struct fake_client, node);

		c->is_listed |= c->nr == nr;
	}
	fake_drop_writes(&fake.late, nr);
	list_for_each (node, &fake.handles) {
		struct fake_handle *h = list_entry(node, struct fake_handle, node);

		if (h->client->nr == nr)
			fake_drop_writes(&h->dirty, 0);
	}
	fake_event("list %u by %u;", nr, by);
}

void fake_list_client(unsigned client)
{
	char addrs[FAKE_ADDRS_BYTES];

	fake_addrs(client, addrs);
	fake_lock();
	fake_list_addrs(addrs, 0);
	fake_unlock();
}

void fake_list_all(void)
{
	char addrs[FAKE_ADDRS_BYTES];

	fake_lock();
	list_for_each (node, &fake.clients) {
		struct fake_client *c = list_entry(node, struct fake_client, node);

		fake_addrs(c->nr, addrs);
		if (c->nr && !c->is_listed)
			fake_list_addrs(addrs, 0);
	}
	fake_unlock();
}

bool fake_is_listed(unsigned client)
{
	bool is;

	fake_lock();
	is = fake.listed[client / 8] >> client % 8 & 1;
	fake_unlock();
	return is;
}

/* ---- the size ---- */

/* A client on the blocklist hears of nothing. */
void fake_tell_all(void)
{
	list_for_each (node, &fake.handles) {
		struct fake_handle *h = list_entry(node, struct fake_handle, node);

		h->has_news |= h->on_update && !h->client->is_listed;
	}
}

void fake_resize(uint64_t size_bytes)
{
	fake_lock();
	FAKE_CHECK(size_bytes <= FAKE_IMAGE_BYTES_MAX);
	if (size_bytes < fake.image->size_bytes)
		memset(fake.image->data + size_bytes, 0, FAKE_IMAGE_BYTES_MAX - size_bytes);
	fake.image->size_bytes = size_bytes;
	fake_tell_all();
	fake_unlock();
}

static bool someone_waits_for_news(void)
{
	list_for_each (node, &fake.handles) {
		const struct fake_handle *h = list_entry(node, struct fake_handle, node);

		if (h->has_news || h->is_telling)
			return true;
	}
	return false;
}

void fake_wait_told(void)
{
	fake_lock();
	while (someone_waits_for_news())
		pthread_cond_wait(&fake.changed, &fake.lock);
	fake_unlock();
}

/* ---- what has been done ---- */

void fake_event(const char *fmt, ...)
{
	size_t at = strlen(fake.events);
	va_list args;

	va_start(args, fmt);
	vsnprintf(fake.events + at, sizeof(fake.events) - at, fmt, args);
	va_end(args);
}

const char *fake_events(void)
{
	static char text[FAKE_EVENTS_BYTES];

	fake_lock();
	memcpy(text, fake.events, sizeof(text));
	fake_unlock();
	return text;
}

void fake_events_clear(void)
{
	fake_lock();
	fake.events[0] = '\0';
	fake_unlock();
}

unsigned fake_seen_nr(void)
{
	unsigned nr;

	fake_lock();
	nr = fake.seen_nr;
	fake_unlock();
	return nr;
}

struct fake_seen fake_seen_at(unsigned idx)
{
	struct fake_seen seen;

	fake_lock();
	FAKE_CHECK(idx < fake.seen_nr && fake.seen_nr - idx <= FAKE_SEEN_MAX);
	seen = fake.seen[idx % FAKE_SEEN_MAX];
	fake_unlock();
	return seen;
}

struct fake_seen fake_seen_last(void)
{
	return fake_seen_at(fake_seen_nr() - 1);
}

const char *fake_conf(unsigned client, const char *name)
{
	const char *value = "";

	fake_lock();
	list_for_each (node, &fake.clients) {
		const struct fake_client *c = list_entry(node, struct fake_client, node);

		for (unsigned i = 0; c->nr == client && i < c->conf_nr; i++)
			if (strcmp(c->conf[i].name, name) == 0)
				value = c->conf[i].value;
	}
	fake_unlock();
	return value;
}

unsigned fake_client_nr(void)
{
	unsigned nr = 0;

	fake_lock();
	list_for_each (node, &fake.clients)
		nr++;
	fake_unlock();
	return nr;
}
