/*
 * The map: what earlier generations have left, and what the last one has written, which the store
 * lists. Owns nothing. Control reactor.
 *
 * Happy path: the map's object -> pages of the list of this generation, until the last -> all of it
 * is stored as the map of the next generation, which the manifest then names. Failure modes: a map
 * or a list that makes no sense, a list that has less than was stored, another writer meanwhile: in
 * words.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/s3_disk/s3_disk_keep.h"
#include "backends/s3_disk/s3_disk_visit.h"
#include "base/util.h"

static struct s3_disk_visit *call_visit(struct s3_disk_call *call)
{
	return container_of(call, struct s3_disk_visit, call);
}

/* A buffer of so many bytes and a terminator; false: the visit has failed. */
static bool load_buffer(struct s3_disk_visit *v, size_t bytes)
{
	free(v->buf);
	v->buf = malloc(bytes + 1);
	v->buf_bytes = bytes;
	if (!v->buf)
		s3_disk_visit_fail(v, -ENOMEM, "out of memory");
	return v->buf;
}

/* ---- the list ---- */

static bool load_take(const struct s3_disk_listed *listed, uint64_t size_bytes, void *arg)
{
	struct s3_disk_visit *v = arg;
	struct s3_disk *d = v->d;
	uint32_t generation = d->manifest.generation;

	if (listed->name.generation != generation ||
	    !s3_disk_object_is_possible(&d->manifest, listed, size_bytes))
		return false;
	s3_disk_tally_add(&v->shown, generation, d->map.name[listed->index], listed->name);
	s3_disk_map_take(&d->map, listed);
	return true;
}

/* By the manifest, and by the process before, if nobody has begun a generation since. */
static struct s3_disk_tally load_known(const struct s3_disk *d)
{
	struct s3_disk_tally known = d->manifest.stored;

	if (d->kept.generation == d->manifest.generation) {
		known.objects = MAX(known.objects, d->kept.stored.objects);
		known.seq = MAX(known.seq, d->kept.stored.seq);
	}
	return known;
}

static void load_on_listed(struct s3_disk_list *list, int result)
{
	struct s3_disk_visit *v = container_of(list, struct s3_disk_visit, list);
	const struct s3_disk_tally known = load_known(v->d);

	if (result < 0)
		s3_disk_visit_fail(v, result, "%s", list->words);
	else if (!s3_disk_tally_has(&v->shown, &known))
		s3_disk_visit_fail(v, -EIO,
				   "the list of objects is not whole: of generation %x it has %u, "
				   "the last %x; stored were %u, the last %x",
				   v->d->manifest.generation, v->shown.objects, v->shown.seq,
				   known.objects, known.seq);
	else
		v->loaded(v);
}

static void load_begin_list(struct s3_disk_visit *v)
{
	struct s3_disk_list *list = &v->list;

	v->shown = (struct s3_disk_tally){ 0 };
	list->ask = (struct s3_disk_ask){
		.prefix = v->d->config->s3.key,
		.on_object = load_take,
		.arg = v,
	};
	snprintf(list->ask.under, sizeof(list->ask.under), "o/%08x/", v->d->manifest.generation);
	s3_disk_list_begin(list, load_on_listed);
}

/* ---- the map ---- */

static void load_on_map(struct s3_disk_call *call, int result)
{
	struct s3_disk_visit *v = call_visit(call);
	struct s3_disk *d = v->d;
	char words[100];

	if (result < 0)
		s3_disk_visit_fail(v, result == -ENOENT ? -EIO : result, "the map: %s",
				   call->words);
	else if (s3_disk_map_read(&d->map, d->manifest.generation, v->buf, call->got, words,
				  sizeof(words)) < 0)
		s3_disk_visit_fail(v, -EINVAL, "%s", words);
	else if (d->config->snapshot)
		v->loaded(v);
	else
		load_begin_list(v);
}

void s3_disk_load(struct s3_disk_visit *v, void (*done)(struct s3_disk_visit *v))
{
	struct s3_disk *d = v->d;
	uint32_t nr = s3_disk_object_nr(&d->manifest);

	v->loaded = done;
	if (s3_disk_map_init(&d->map, nr) < 0) {
		s3_disk_visit_fail(v, -ENOMEM, "out of memory");
		return;
	}
	if (!d->manifest.map[0]) {
		load_begin_list(v);
		return;
	}
	if (load_buffer(v, s3_disk_map_bytes_max(nr)))
		s3_disk_call_get(&v->call, d->manifest.map, v->buf, v->buf_bytes, load_on_map);
}

/* ---- the next generation ---- */

static void seal_on_named(struct s3_disk_lease *lease, int result)
{
	struct s3_disk_visit *v = container_of(lease, struct s3_disk_visit, lease);
	struct s3_disk *d = v->d;

	if (result < 0) {
		s3_disk_visit_fail(v, result == -ESTALE ? -EBUSY : result, "%s",
				   result == -ESTALE ? "another host has taken the disk"
						     : lease->words);
		return;
	}
	d->manifest = lease->manifest;
	d->counted = d->manifest.stored;
	memcpy(d->etag, lease->etag, sizeof(d->etag));
	v->sealed(v);
}

void s3_disk_map_name(const struct s3_disk *d, uint32_t generation, char name[S3_DISK_MAP_BYTES])
{
	snprintf(name, S3_DISK_MAP_BYTES, "map/%08x.%.24s%08x", generation, d->token, d->map_nr);
}

static void seal_on_stored(struct s3_disk_call *call, int result)
{
	struct s3_disk_visit *v = call_visit(call);
	struct s3_disk_manifest *next = &v->lease.next;

	if (result < 0) {
		s3_disk_visit_fail(v, result, "the map: %s", call->words);
		return;
	}
	*next = v->lease.manifest;
	next->generation++;
	next->stored = (struct s3_disk_tally){ 0 };
	next->has_even_holes = true;
	memcpy(next->content, v->d->found, sizeof(next->content));
	memcpy(next->opening, v->d->token, sizeof(next->opening));
	s3_disk_map_name(v->d, next->generation, next->map);
	s3_disk_lease_write(&v->lease, false, seal_on_named);
}

void s3_disk_seal(struct s3_disk_visit *v, void (*done)(struct s3_disk_visit *v))
{
	struct s3_disk *d = v->d;
	char name[S3_DISK_MAP_BYTES];
	uint32_t generation = d->manifest.generation + 1;

	v->sealed = done;
	d->map_nr++;
	if (generation > S3_DISK_GENERATION_MAX) {
		s3_disk_visit_fail(v, -EOVERFLOW, "the disk has no generation left");
		return;
	}
	if (!load_buffer(v, s3_disk_map_bytes(&d->map)))
		return;
	s3_disk_map_write(&d->map, generation, v->buf);
	s3_disk_map_name(d, generation, name);
	s3_disk_call_put(&v->call, name, NULL, v->buf, v->buf_bytes, seal_on_stored);
}
