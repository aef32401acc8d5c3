/*
 * A zoned device is opened: a helper looks at the options, the control reactor reads the table.
 *
 *   header -> (blank: a table is made, the header last) -> pages, both places of each
 *   -> (the memory of a process before: it knows more than the table) -> done
 *
 * Failure modes: the child holds something that is no table, or zones of another shape, or is
 * smaller than they need: refused, nothing is written. A page of which neither place is good: the
 * same. A table that is being made when the machine stops has no header: it is made again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "filters/zoned/zoned_visit.h"

#define ZONED_WORDS_BYTES 200

/* ---- the end ---- */

uint32_t zone_limit_of(uint64_t wanted, uint32_t zone_nr)
{
	return wanted < zone_nr ? (uint32_t)wanted : 0;
}

static void zoned_set_limits(struct zoned_device *d)
{
	struct backend_device *device = d->device;
	const struct backend_limits *child = &device->child->limits;
	uint32_t max_io_bytes =
		child->max_io_bytes ? child->max_io_bytes : device->open_params.max_io_bytes;

	device->limits.size_bytes = d->header.zone_nr * d->header.zone_bytes;
	/* The pointers in memory are a volatile cache, whatever the child has. */
	device->limits.caps = (child->caps & (BACKEND_CAP_ROTATIONAL | BACKEND_CAP_READ_ONLY)) |
			      BACKEND_CAP_FLUSH;
	device->limits.discard_granularity_bytes = 0;
	device->limits.max_discard_bytes = device->limits.max_write_zeroes_bytes = 0;
	device->limits.boundary_bytes = (uint32_t)d->header.zone_bytes;
	device->limits.queue_nr_max = 1;
	device->limits.queue_nr_cure = "a zoned device has one queue";
	device->limits.zones = (struct backend_zone_limits){
		.bytes = d->header.zone_bytes,
		.open_nr_max = d->shape.open_nr_max,
		.active_nr_max = d->shape.active_nr_max,
		.append_bytes = max_io_bytes ? max_io_bytes : UINT32_MAX,
	};
}

static int make_table(struct zoned_device *d, bool is_again)
{
	int ret;

	d->shape.depth = d->memory.depth;
	d->trim = calloc(d->shape.zone_nr, 1);
	if (!d->trim)
		return -ENOMEM;
	ret = zone_table_init(&d->table, &d->shape, d->memory.zone, d->memory.write, d->memory.old,
			      is_again, d->below.lane ? zoned_below_changed : zoned_zone_changed);
	if (ret == 0 && d->below.lane && zone_table_forget_unwritten(&d->table) > 0) {
		d->below.compare =
			aligned_alloc(ZONE_PAGE_BYTES, (size_t)d->shape.depth * ZONE_PAGE_BYTES);
		ret = d->below.compare ? 0 : -ENOMEM;
	}
	return ret;
}

/* on_child: what the table on the child says, when the memory of a process before is used; or NULL.
 */
static void open_end(struct zoned_visit *v, const struct zone_kept *on_child)
{
	struct zoned_device *d = v->d;
	bool is_again = on_child != NULL;
	int ret = make_table(d, is_again);

	if (ret < 0) {
		zoned_visit_end(v, ret, "no memory for the zones");
		return;
	}
	if (is_again && !d->below.lane)
		zoned_pages_adopt(d, on_child);
	else if (!is_again)
		zone_memory_set_filled(&d->memory, &d->header);
	zoned_set_limits(d);
	log_info("zones opened",
		 "node=%s zones=%u zone_bytes=%llu conventional=%u closed=%u full=%u below=%d "
		 "again=%d",
		 d->device->name, d->shape.zone_nr, (unsigned long long)d->shape.zone_bytes,
		 d->header.conventional_nr, d->table.nr[ZONE_CLOSED], d->table.nr[ZONE_FULL],
		 d->below.lane != NULL, is_again);
	zoned_visit_end(v, 0, NULL);
}

void zoned_open_loaded(struct zoned_visit *v)
{
	struct zoned_device *d = v->d;
	struct zone_memory loaded = d->memory;
	int ret;

	if (d->stored_fd <= 0) {
		open_end(v, NULL);
		return;
	}
	ret = zone_memory_adopt(&d->memory, &d->header, d->device->open_params.depth, d->stored_fd);
	if (ret == 0) {
		/* Zones below are as they say, whatever the process before has thought. */
		if (d->below.lane)
			memcpy(d->memory.zone, loaded.zone,
			       d->shape.zone_nr * sizeof(*loaded.zone));
		open_end(v, loaded.zone);
		zone_memory_free(&loaded);
	} else if (ret == -ENODATA) {
		d->memory = loaded;
		open_end(v, NULL);
	} else {
		zone_memory_free(&loaded);
		zoned_visit_end(v, ret,
				"the memory that the daemon before has left is not of these zones");
	}
}

/* ---- a new table ---- */

static void header_flushed(struct zoned_visit *v, int result)
{
	if (result < 0)
		zoned_visit_end(v, result, "the table of zones cannot be written");
	else
		zoned_open_loaded(v);
}

static void header_written(struct zoned_visit *v, int result)
{
	if (result < 0)
		header_flushed(v, result);
	else
		zoned_visit_io(v, BACKEND_FLUSH, 0, 0, "flushing the table of zones",
			       header_flushed);
}

static void pages_flushed(struct zoned_visit *v, int result)
{
	if (result < 0) {
		header_flushed(v, result);
		return;
	}
	zone_header_write(&v->d->header, v->buf);
	zoned_visit_io(v, BACKEND_WRITE, 0, ZONE_PAGE_BYTES, "writing the header of the zones",
		       header_written);
}

static void new_page(struct zoned_visit *v, int result)
{
	struct zoned_device *d = v->d;
	uint32_t page = v->next;

	if (result < 0) {
		header_flushed(v, result);
		return;
	}
	if (page == d->pages.nr) {
		zoned_visit_io(v, BACKEND_FLUSH, 0, 0, "flushing the table of zones",
			       pages_flushed);
		return;
	}
	v->next++;
	d->pages.seq[page] = 2;
	zone_page_write(v->buf, d->header.instance, page, 2, v->entry);
	zoned_visit_io(v, BACKEND_WRITE, zone_page_at(page, 0), ZONE_PAGE_BYTES,
		       "writing the table of zones", new_page);
}

static int draw_instance(uint64_t *ret_instance)
{
	*ret_instance = 0;
	while (*ret_instance == 0)
		if (getrandom(ret_instance, sizeof(*ret_instance), 0) < 0)
			return -errno;
	return 0;
}

/* ---- one that is there ---- */

static void load_page(struct zoned_visit *v, int result)
{
	struct zoned_device *d = v->d;
	uint32_t first = v->next * ZONE_PAGE_ENTRIES;

	if (result == 0)
		result = zone_page_parse(v->buf, d->header.instance, v->next,
					 &d->pages.seq[v->next], v->entry);
	if (result < 0) {
		zoned_visit_end(v, result == -ENODATA ? -EIO : result,
				"a page of the table of zones cannot be read: what they hold is "
				"not known; clear the first 4 KiB of the backend to lose it");
		return;
	}
	for (uint32_t i = 0; i < ZONE_PAGE_ENTRIES && first + i < d->shape.zone_nr; i++)
		d->memory.zone[first + i] = (struct zone_kept){
			.written_bytes = v->entry[i] & ~ZONE_ENTRY_FULL,
			.condition = v->entry[i] & ZONE_ENTRY_FULL ? ZONE_FULL : ZONE_EMPTY,
		};
	if (++v->next == d->pages.nr)
		zoned_open_loaded(v);
	else
		zoned_visit_io(v, BACKEND_READ, zone_page_at(v->next, 0), 2 * ZONE_PAGE_BYTES,
			       "reading the table of zones", load_page);
}

static const struct zoned_zones_config *zones_config(const struct zoned_device *d)
{
	return ((const struct zoned_config *)d->device->config)->zones;
}

/* By the zones that are there: the backend may have grown since they were made. */
static void set_shape(struct zoned_device *d)
{
	const struct zoned_zones_config *config = zones_config(d);
	const struct zone_header *h = &d->header;
	uint32_t written_nr = h->zone_nr - h->conventional_nr;

	d->shape = (struct zone_shape){
		.zone_bytes = h->zone_bytes,
		.capacity_bytes = h->capacity_bytes,
		.zone_nr = h->zone_nr,
		.conventional_nr = h->conventional_nr,
		.active_nr_max = zone_limit_of(config->active_nr_max, written_nr),
		.open_nr_max = zone_limit_of(config->open_nr_max, written_nr),
	};
	/* What is open is active. */
	if (d->shape.open_nr_max == 0)
		d->shape.open_nr_max = d->shape.active_nr_max;
}

/* The header that counts is known. */
static int zoned_prepare(struct zoned_device *d)
{
	set_shape(d);
	d->data_at = zone_data_at(d->header.zone_nr);
	if (zoned_pages_alloc(&d->pages, d->header.zone_nr) < 0)
		return -ENOMEM;
	return zone_memory_new(&d->memory, &d->header, d->device->open_params.depth);
}

/* As the configuration wants them, on this child. */
static void wanted_header(const struct zoned_device *d, struct zone_header *ret_header)
{
	const struct zoned_zones_config *config = zones_config(d);
	uint32_t nr = zone_format_fit(backend_size(d->device->child), config->zone_bytes);

	*ret_header = (struct zone_header){
		.zone_bytes = config->zone_bytes,
		.capacity_bytes =
			config->capacity_bytes ? config->capacity_bytes : config->zone_bytes,
		.zone_nr = nr,
		.conventional_nr = (uint32_t)MIN(config->conventional_nr, (uint64_t)nr),
	};
}

/* Linux takes no zoned device without a zone that is written in order (blk_revalidate_disk_zones).
 */
static bool has_zones_in_order(struct zoned_visit *v)
{
	const struct zone_header *h = &v->d->header;
	char words[ZONED_WORDS_BYTES];

	if (h->conventional_nr < h->zone_nr)
		return true;
	snprintf(words, sizeof(words),
		 "the backend has room for %u zones, of which one at least must not be "
		 "conventional: set conventional to at most %u, or make the backend larger",
		 h->zone_nr, h->zone_nr - 1);
	zoned_visit_end(v, -EINVAL, words);
	return false;
}

static void make_new(struct zoned_visit *v)
{
	struct zoned_device *d = v->d;
	int ret;

	wanted_header(d, &d->header);
	if (d->is_read_only) {
		zoned_visit_end(v, -EROFS, "the backend has no zones yet and is read-only");
		return;
	}
	if (d->header.zone_nr == 0) {
		zoned_visit_end(v, -ENOSPC,
				"the backend is too small for one zone and the table of zones");
		return;
	}
	if (!has_zones_in_order(v))
		return;
	ret = draw_instance(&d->header.instance);
	if (ret == 0)
		ret = zoned_prepare(d);
	if (ret < 0)
		zoned_visit_end(v, ret, "no memory for the zones");
	else
		new_page(v, 0);
}

/* NULL: the child's zones are those that are configured. */
static const char *shape_differs(const struct zoned_device *d, const struct zone_header *found,
				 char words[ZONED_WORDS_BYTES])
{
	struct zone_header wanted;

	/* No configuration is the cure. */
	if (found->conventional_nr == found->zone_nr)
		return "the backend holds conventional zones alone, which Linux does not take: "
		       "clear its first 4 KiB to lose what they hold";
	wanted_header(d, &wanted);
	wanted.conventional_nr =
		(uint32_t)MIN(zones_config(d)->conventional_nr, (uint64_t)found->zone_nr);
	if (found->zone_bytes == wanted.zone_bytes &&
	    found->capacity_bytes == wanted.capacity_bytes &&
	    found->conventional_nr == wanted.conventional_nr)
		return NULL;
	snprintf(words, ZONED_WORDS_BYTES,
		 "the backend holds zones of %llu bytes (capacity: %llu, conventional: %u): "
		 "configure these, or clear its first 4 KiB to lose what they hold",
		 (unsigned long long)found->zone_bytes, (unsigned long long)found->capacity_bytes,
		 found->conventional_nr);
	return words;
}

static void open_found(struct zoned_visit *v, const struct zone_header *found)
{
	struct zoned_device *d = v->d;
	uint64_t need_bytes = zone_data_at(found->zone_nr) + found->zone_nr * found->zone_bytes;
	char buf[ZONED_WORDS_BYTES];
	const char *words = shape_differs(d, found, buf);
	int ret;

	if (words) {
		zoned_visit_end(v, -EINVAL, words);
		return;
	}
	if (backend_size(d->device->child) < need_bytes) {
		zoned_visit_end(v, -EINVAL, "the backend is smaller than when its zones were made");
		return;
	}
	d->header = *found;
	ret = zoned_prepare(d);
	if (ret < 0)
		zoned_visit_end(v, ret, "no memory for the zones");
	else
		zoned_visit_io(v, BACKEND_READ, zone_page_at(0, 0), 2 * ZONE_PAGE_BYTES,
			       "reading the table of zones", load_page);
}

static bool zoned_is_blank(const uint8_t *at, size_t bytes)
{
	return at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0;
}

static void zoned_header_read(struct zoned_visit *v, int result)
{
	struct zone_header found;
	int ret;

	if (result < 0) {
		zoned_visit_end(v, result, NULL);
		return;
	}
	ret = zone_header_parse(&found, v->buf);
	if (ret == 0)
		open_found(v, &found);
	else if (ret == -ENODATA && zoned_is_blank(v->buf, ZONE_PAGE_BYTES))
		make_new(v);
	else
		zoned_visit_end(v, -EEXIST,
				"the backend holds something that is no table of zones, or one "
				"that is damaged: clear its first 4 KiB if nobody needs it");
}

void zoned_open_async(struct backend_visit *visit)
{
	struct zoned_device *d = visit->device->priv;
	struct zoned_visit *v = zoned_visit_new(d, visit);

	if (!v)
		backend_visit_done(visit, -ENOMEM);
	else if (d->below.lane)
		zoned_below_open_async(v);
	else
		zoned_visit_io(v, BACKEND_READ, 0, ZONE_PAGE_BYTES,
			       "reading the header of the zones", zoned_header_read);
}

/* ---- the part that may block ---- */

int zoned_open(struct backend_device *device)
{
	struct zoned_device *d = device->priv;

	d->device = device;
	d->memory.fd = -1;
	list_init(&d->held);
	list_init(&d->sync.waiting);
	list_init(&d->sync.running);
	d->is_read_only = device->open_params.read_only ||
			  (device->child->limits.caps & BACKEND_CAP_READ_ONLY);
	d->child_discards = device->child->limits.caps & BACKEND_CAP_DISCARD;
	if (device->open_params.logical_block_bytes > ZONE_PAGE_BYTES)
		return backend_fail(device, -EINVAL, "zoned: block_size: at most %u",
				    ZONE_PAGE_BYTES);
	if (device->open_params.max_io_bytes &&
	    device->open_params.max_io_bytes < 2 * ZONE_PAGE_BYTES)
		return backend_fail(device, -EINVAL, "zoned: requests of 8 KiB must be allowed");
	if (zones_config(d) && device->child->limits.zones.bytes)
		return backend_fail(
			device, -EINVAL,
			"zoned: the backend has zones of its own, which are served as they "
			"are: leave out zones");
	d->losses = backend_losses(device->child);
	/* What the process before knew of our own zones is perhaps lost below: the table counts. */
	if (device->open_params.stored_fd > 0 &&
	    !(zones_config(d) && backend_was_owed(device->child)))
		d->stored_fd = fcntl(device->open_params.stored_fd, F_DUPFD_CLOEXEC, 3);
	if (!zones_config(d))
		return zoned_below_open(d);
	return 0;
}
