/*
 * The map: what earlier generations have left, and what the last one has written, which the store
 * lists. Owns nothing. Control reactor.
 *
 * Happy path: the map's object -> pages of the list of this generation, until the last -> all of it
 * is stored as the map of the next generation, which the manifest then names. Failure modes: a map
 * or a list that makes no sense, another writer meanwhile: in words.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/s3_disk/s3_disk_visit.h"
#include "base/util.h"

#define QUERY_BYTES (2 * HTTP_URL_BYTES + S3_DISK_TOKEN_BYTES)

static void load_list(struct s3_disk_visit *v);

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

static void load_take(const struct s3_disk_listed *listed, void *arg)
{
	struct s3_disk_visit *v = arg;

	if (listed->name.generation == v->d->manifest.generation)
		s3_disk_map_take(&v->d->map, listed);
}

static void load_on_page(struct s3_disk_call *call, int result)
{
	struct s3_disk_visit *v = call_visit(call);
	char words[100];

	if (result < 0) {
		s3_disk_visit_fail(v, result, "the list of objects: %s", call->words);
		return;
	}
	v->buf[call->got] = '\0';
	if (strlen((const char *)v->buf) != call->got ||
	    s3_disk_page_read((const char *)v->buf, v->d->config->s3.key, &v->page, load_take, v,
			      words, sizeof(words)) < 0)
		s3_disk_visit_fail(v, -EINVAL, "the list of objects makes no sense");
	else if (!v->page.is_last)
		load_list(v);
	else
		v->loaded(v);
}

/* The parts of the query in ascending order, as signatures want them. */
static int load_query(struct s3_disk_visit *v)
{
	const struct s3_disk *d = v->d;
	char key[3 * S3_OBJECT_BYTES], prefix[S3_OBJECT_BYTES], escaped[3 * S3_OBJECT_BYTES];
	int bucket_bytes =
		(int)(strlen(d->web.start) - s3_key_escape(d->config->s3.key, key, sizeof(key)));
	int n = snprintf(prefix, sizeof(prefix), "%s/o/%08x/", d->config->s3.key,
			 d->manifest.generation);

	if (!s3_disk_escape(prefix, (size_t)n, escaped, sizeof(escaped)))
		return -ENAMETOOLONG;
	n = snprintf(v->query, QUERY_BYTES,
		     "%.*s?%s%s%sencoding-type=url&list-type=2&max-keys=%u&prefix=%s", bucket_bytes,
		     d->web.start, v->page.token[0] ? "continuation-token=" : "", v->page.token,
		     v->page.token[0] ? "&" : "", S3_DISK_PAGE_KEYS, escaped);
	return n < QUERY_BYTES ? 0 : -ENAMETOOLONG;
}

static void load_list(struct s3_disk_visit *v)
{
	struct s3_disk_call *call = &v->call;

	if (load_query(v) < 0) {
		s3_disk_visit_fail(v, -ENAMETOOLONG, "the URL is too long");
		return;
	}
	s3_disk_call_reset(call);
	call->query = v->query;
	call->to = v->buf;
	call->to_bytes = v->buf_bytes;
	s3_disk_call_begin(call, load_on_page);
}

static void load_begin_list(struct s3_disk_visit *v)
{
	v->page = (struct s3_disk_page){ 0 };
	v->query = malloc(QUERY_BYTES);
	if (!v->query)
		s3_disk_visit_fail(v, -ENOMEM, "out of memory");
	else if (load_buffer(v, S3_DISK_PAGE_BYTES))
		load_list(v);
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
	struct s3_disk_call *call = &v->call;
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
	if (!load_buffer(v, s3_disk_map_bytes_max(nr)))
		return;
	s3_disk_call_reset(call);
	snprintf(call->path, sizeof(call->path), "%s", d->manifest.map);
	call->to = v->buf;
	call->to_bytes = v->buf_bytes;
	s3_disk_call_begin(call, load_on_map);
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
	memcpy(d->etag, lease->etag, sizeof(d->etag));
	v->sealed(v);
}

void s3_disk_map_name(const struct s3_disk *d, uint32_t generation, char name[S3_DISK_MAP_BYTES])
{
	snprintf(name, S3_DISK_MAP_BYTES, "map/%08x.%s", generation, d->owner);
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
	s3_disk_map_name(v->d, next->generation, next->map);
	s3_disk_lease_write(&v->lease, false, seal_on_named);
}

void s3_disk_seal(struct s3_disk_visit *v, void (*done)(struct s3_disk_visit *v))
{
	struct s3_disk *d = v->d;
	struct s3_disk_call *call = &v->call;
	uint32_t generation = d->manifest.generation + 1;

	v->sealed = done;
	if (generation > S3_DISK_GENERATION_MAX) {
		s3_disk_visit_fail(v, -EOVERFLOW, "the disk has no generation left");
		return;
	}
	if (!load_buffer(v, s3_disk_map_bytes(&d->map)))
		return;
	s3_disk_map_write(&d->map, generation, v->buf);
	s3_disk_call_reset(call);
	call->method = HTTP_PUT;
	s3_disk_map_name(d, generation, call->path);
	call->body = v->buf;
	call->body_bytes = v->buf_bytes;
	s3_disk_call_begin(call, seal_on_stored);
}
