/*
 * Sectors that differ from what is durable are marked; a FLUSH makes them durable, or forgets the
 * mark. I/Os complete by timers in random order, as testdev's do, and take effect then.
 */
#include "test/lost_flushes/volatile.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/prng.h"
#include "base/util.h"

#define STORES_MAX 8
#define SECTOR_BYTES 512u

struct volatile_config {
	char *name;
	uint64_t size_bytes;
	bool fua;
};

static const struct option volatile_options[] = {
	{ .name = "name",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct volatile_config, name),
	  .def = "a",
	  .help = "Which storage." },
	{ .name = "size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct volatile_config, size_bytes),
	  .def = "4MiB",
	  .help = "Size." },
	{ .name = "fua",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct volatile_config, fua),
	  .def = "true",
	  .help = "It has FUA." },
	OPTION_END,
};

struct store {
	char name[16];
	uint64_t size_bytes;
	uint8_t *bytes, *durable;
	bool *is_dirty;	  /* by sector */
	bool *is_phantom; /* it is read, though it is lost */
};

static struct store stores[STORES_MAX];
static uint64_t begin_seed;
/* Above 0: so many FLUSHes to the one that fails. */
static atomic_int countdown;
static atomic_uint lost_nr;

struct volatile_io {
	struct backend_io *io;
	struct timer timer;
};

struct volatile_device {
	struct store *store;
	struct prng prng; /* the reactor's of its one queue */
};

/* ---- the storages ---- */

void volatile_begin(uint64_t seed)
{
	for (struct store *s = stores; s < stores + STORES_MAX; s++) {
		free(s->bytes);
		free(s->durable);
		free(s->is_dirty);
		free(s->is_phantom);
		*s = (struct store){ 0 };
	}
	begin_seed = seed;
	countdown = 0;
	lost_nr = 0;
}

void volatile_lose(unsigned after_nr)
{
	countdown = (int)after_nr + 1;
}

unsigned volatile_lost_nr(void)
{
	return lost_nr;
}

void volatile_power_cut(void)
{
	for (struct store *s = stores; s < stores + STORES_MAX && s->bytes; s++) {
		memcpy(s->bytes, s->durable, s->size_bytes);
		memset(s->is_dirty, 0, s->size_bytes / SECTOR_BYTES);
		memset(s->is_phantom, 0, s->size_bytes / SECTOR_BYTES);
	}
}

static struct store *find(const struct volatile_config *config)
{
	struct store *s = stores;

	while (s->bytes && strcmp(s->name, config->name) != 0)
		ASSERT(++s < stores + STORES_MAX);
	if (s->bytes)
		return s;
	ASSERT(strlen(config->name) < sizeof(s->name));
	strcpy(s->name, config->name);
	s->size_bytes = config->size_bytes;
	s->bytes = calloc(1, s->size_bytes);
	s->durable = calloc(1, s->size_bytes);
	s->is_dirty = calloc(s->size_bytes / SECTOR_BYTES, sizeof(*s->is_dirty));
	s->is_phantom = calloc(s->size_bytes / SECTOR_BYTES, sizeof(*s->is_phantom));
	ASSERT(s->bytes && s->durable && s->is_dirty && s->is_phantom);
	return s;
}

/* As file does with its page cache. */
static void drop_cached(struct store *s)
{
	for (uint64_t i = 0; i < s->size_bytes / SECTOR_BYTES; i++) {
		if (s->is_phantom[i])
			memcpy(s->bytes + i * SECTOR_BYTES, s->durable + i * SECTOR_BYTES,
			       SECTOR_BYTES);
		s->is_phantom[i] = false;
	}
}

void volatile_as_files(void (*fn)(const char *path))
{
	char path[64];

	for (struct store *s = stores; s < stores + STORES_MAX && s->bytes; s++) {
		int fd = memfd_create("volatile", MFD_CLOEXEC);

		drop_cached(s);
		ASSERT(fd >= 0 && pwrite(fd, s->bytes, s->size_bytes, 0) == (ssize_t)s->size_bytes);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		fn(path);
		ASSERT(pread(fd, s->bytes, s->size_bytes, 0) == (ssize_t)s->size_bytes);
		memcpy(s->durable, s->bytes, s->size_bytes);
		memset(s->is_dirty, 0, s->size_bytes / SECTOR_BYTES);
		close(fd);
	}
}

static void put(struct store *s, const struct backend_io *io)
{
	uint8_t *at = s->bytes + io->offset_bytes;
	uint64_t first = io->offset_bytes / SECTOR_BYTES;
	uint64_t end = (io->offset_bytes + io->length_bytes + SECTOR_BYTES - 1) / SECTOR_BYTES;

	if (io->op == BACKEND_WRITE)
		memcpy(at, io->buf, io->length_bytes);
	else
		memset(at, 0, io->length_bytes);
	memset(s->is_phantom + first, false, end - first);
	if (io->flags & BACKEND_FUA)
		memcpy(s->durable + io->offset_bytes, at, io->length_bytes);
	else
		memset(s->is_dirty + first, true, end - first);
}

static void flush_sector(struct store *s, uint64_t sector, bool is_lost, struct prng *prng)
{
	uint8_t *bytes = s->bytes + sector * SECTOR_BYTES;
	uint8_t *durable = s->durable + sector * SECTOR_BYTES;

	s->is_dirty[sector] = false;
	if (!is_lost)
		memcpy(durable, bytes, SECTOR_BYTES);
	else if (prng_one_in(prng, 2))
		memcpy(bytes, durable, SECTOR_BYTES);
	else
		s->is_phantom[sector] = true;
}

static int flush(struct volatile_device *d)
{
	bool is_lost = countdown > 0 && atomic_fetch_sub(&countdown, 1) == 1;

	for (uint64_t i = 0; i < d->store->size_bytes / SECTOR_BYTES; i++)
		if (d->store->is_dirty[i])
			flush_sector(d->store, i, is_lost, &d->prng);
	if (!is_lost)
		return 0;
	lost_nr++;
	return -EIO;
}

/* ---- the node ---- */

static int perform(struct backend_io *io)
{
	struct volatile_device *d = io->queue->device->priv;

	if (io->op == BACKEND_FLUSH)
		return flush(d);
	if (io->op == BACKEND_READ)
		memcpy(io->buf, d->store->bytes + io->offset_bytes, io->length_bytes);
	else
		put(d->store, io);
	return 0;
}

static void on_timer(struct timer *timer)
{
	struct backend_io *io = container_of(timer, struct volatile_io, timer)->io;

	backend_io_complete(io, perform(io));
}

static enum backend_submit volatile_submit(struct backend_io *io)
{
	struct volatile_device *d = io->queue->device->priv;
	struct volatile_io *v = io->priv;
	struct reactor *r = io->queue->reactor;

	reactor_timer_arm(r, &v->timer, r->now_ns + prng_below(&d->prng, 20000));
	return BACKEND_QUEUED;
}

static int volatile_open(struct backend_device *device)
{
	const struct volatile_config *config = device->config;
	struct volatile_device *d = device->priv;

	d->store = find(config);
	drop_cached(d->store);
	prng_init(&d->prng, begin_seed + lost_nr);
	device->limits = (struct backend_limits){
		.size_bytes = config->size_bytes,
		.caps = BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES | BACKEND_CAP_FLUSH |
			(config->fua ? BACKEND_CAP_FUA : 0),
	};
	return 0;
}

static int volatile_io_init(struct backend_io *io)
{
	struct volatile_io *v = io->priv;

	v->io = io;
	timer_init(&v->timer, on_timer);
	return 0;
}

const struct backend backend_volatile = {
	.name = "volatile",
	.summary = "for tests: a volatile cache, and FLUSHes that fail",
	.options = volatile_options,
	.size_option = &volatile_options[1],
	.is_bytewise = true,
	.config_bytes = sizeof(struct volatile_config),
	.device_bytes = sizeof(struct volatile_device),
	.io_bytes = sizeof(struct volatile_io),
	.open = volatile_open,
	.io_init = volatile_io_init,
	.submit = volatile_submit,
};
