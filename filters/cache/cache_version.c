/*
 * Whether the origin is as the cache knows it (storage/version.h). The control reactor, but for the
 * helper that asks the origin at the end.
 *
 *   open   the origin's version against the header's: another one, and what is clean is dropped,
 *          what is dirty refused -> the header says which one it is from now on
 *   close  the header says which one it is after the last write, if the origin does; with dirty
 *          blocks over an origin without a version, that it is not known, which no version is
 *   drain  of dirty blocks, in an open, or one that a close gives up: the same, if it changes with
 *          each write
 *
 * An open writes the header before the origin is written: a version that our own writes change is
 * in it only while nobody of us writes. It is taken out of it last, when nothing else can fail:
 * nobody would put it back.
 *
 * Failure modes: the header cannot be written: the open fails, the close is told so. A version that
 * cannot be asked for is not noted; with dirty blocks it is noted as not known.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "filters/cache/cache_visit.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "reactor/helper.h"

_Static_assert(CACHE_NOTE_BYTES == BACKEND_VERSION_BYTES, "a version has room in the header");

/* ---- the header ---- */

static void cache_header_flushed(struct cache_visit *v, int result);

static void cache_header_written(struct cache_visit *v, int result)
{
	if (result < 0)
		v->headed(v, result);
	else
		cache_visit_io(v, CACHE_STORE, BACKEND_FLUSH, 0, 0, "flushing the store",
			       cache_header_flushed);
}

/* One after the other: one of them is good at each moment. */
static void cache_header_next(struct cache_visit *v)
{
	cache_header_write(&v->wanted, v->buf);
	cache_visit_io(v, CACHE_STORE, BACKEND_WRITE, (uint64_t)v->next * CACHE_PAGE_BYTES,
		       CACHE_PAGE_BYTES, "writing the header of the cache", cache_header_written);
}

static void cache_header_flushed(struct cache_visit *v, int result)
{
	if (result == 0 && ++v->next < CACHE_HEADER_NR)
		cache_header_next(v);
	else
		v->headed(v, result);
}

void cache_headers_write(struct cache_visit *v, void (*then)(struct cache_visit *v, int result))
{
	v->headed = then;
	v->next = 0;
	cache_header_next(v);
}

/* ---- not known ---- */

/* No version of an origin is this word. */
#define CACHE_VERSION_UNKNOWN "unknown"

bool cache_version_is_unknown(const struct cache_header *h)
{
	return strcmp(h->found, CACHE_VERSION_UNKNOWN) == 0;
}

void cache_version_set_unknown(struct cache_header *h)
{
	memset(h->found, 0, sizeof(h->found));
	memcpy(h->found, CACHE_VERSION_UNKNOWN, sizeof(CACHE_VERSION_UNKNOWN));
	h->ours[0] = '\0';
}

/* ---- open ---- */

void cache_version_ask(struct cache_visit *v)
{
	const struct cache_device *d = v->d;
	bool is_written;

	backend_version(d->device->child, &v->version);
	is_written = v->version.kind == BACKEND_VERSION_NOW && !d->is_read_only;
	if (is_written || v->version.kind == BACKEND_VERSION_NONE)
		return;
	memcpy(v->wanted.found, v->version.found, sizeof(v->wanted.found));
	memcpy(v->wanted.ours, v->version.ours, sizeof(v->wanted.ours));
}

bool cache_version_has_moved(const struct cache_visit *v)
{
	struct backend_version_note note;

	/* The process has died in a drain: as one that dies while it serves. */
	if (cache_version_is_unknown(&v->found))
		return !v->is_adopted;
	memcpy(note.found, v->found.found, sizeof(note.found));
	memcpy(note.ours, v->found.ours, sizeof(note.ours));
	return backend_version_has_moved(&note, &v->version);
}

static void cache_version_noted(struct cache_visit *v, int result)
{
	if (result == 0)
		v->found = v->wanted;
	v->noted(v, result);
}

/* It does not say its version today, and we cannot have changed it: the next time it may again. */
static bool cache_version_is_silent(const struct cache_visit *v)
{
	if (v->version.kind != BACKEND_VERSION_NONE || !v->d->is_read_only || !v->found.found[0])
		return false;
	log_warn("the origin of a cache does not say its version, as it did before: what others "
		 "have written to it is not noticed now",
		 "node=%s was=\"%s\"", v->d->device->name, v->found.found);
	return true;
}

void cache_version_note(struct cache_visit *v, void (*then)(struct cache_visit *v, int result))
{
	struct cache_header *wanted = &v->wanted;

	if (cache_version_is_silent(v)) {
		then(v, 0);
		return;
	}
	if (strcmp(wanted->found, v->found.found) == 0 &&
	    strcmp(wanted->ours, v->found.ours) == 0) {
		then(v, 0);
		return;
	}
	wanted->generation = v->found.generation + 1;
	wanted->instance = v->found.instance;
	cache_index_set_header(v->ix, wanted);
	v->noted = then;
	cache_headers_write(v, cache_version_noted);
}

/* ---- close ---- */

/* The origin may take its time to say it. */
struct cache_version_job {
	struct helper_job job;
	struct cache_visit *v;
	const struct backend_device *origin;
	char words[BACKEND_VERSION_BYTES];
	int ret;
};

static void cache_version_work(struct helper_job *job)
{
	struct cache_version_job *j = container_of(job, struct cache_version_job, job);

	j->ret = backend_version_now(j->origin, j->words);
}

/* The helpers were closed meanwhile: nobody waits for the visit. */
static void cache_version_drop(struct helper_job *job)
{
	free(container_of(job, struct cache_version_job, job));
}

static void cache_version_closed(struct cache_visit *v, int result)
{
	v->noted(v, result < 0 ? result : v->result_before);
}

static void cache_version_came(struct helper_job *job)
{
	struct cache_version_job *j = container_of(job, struct cache_version_job, job);
	struct cache_visit *v = j->v;
	struct cache_index *ix = v->ix ? v->ix : v->d->ix;
	bool is_lasting = v->version.kind == BACKEND_VERSION_LASTING;

	v->wanted = ix->header;
	v->wanted.generation++;
	memcpy(v->wanted.found, j->words, sizeof(v->wanted.found));
	if (!is_lasting)
		v->wanted.ours[0] = '\0';
	if (j->ret < 0) {
		log_warn("the version of a cache's origin cannot be asked for: what others write "
			 "to it is not noticed",
			 "node=%s error=%s", v->d->device->name, errname(j->ret));
		cache_version_set_unknown(&v->wanted);
	}
	if ((j->ret < 0 && (is_lasting || ix->dirty_nr == 0)) ||
	    strcmp(v->wanted.found, ix->header.found) == 0) {
		cache_version_closed(v, 0);
	} else {
		cache_index_set_header(ix, &v->wanted);
		cache_headers_write(v, cache_version_closed);
	}
	free(j);
}

void cache_version_void(struct cache_visit *v, void (*then)(struct cache_visit *v, int result))
{
	struct cache_index *ix = v->d->ix;

	backend_version(v->d->device->child, &v->version);
	if (v->version.kind == BACKEND_VERSION_LASTING) {
		then(v, 0);
		return;
	}
	v->wanted = ix->header;
	v->wanted.generation++;
	cache_version_set_unknown(&v->wanted);
	cache_index_set_header(ix, &v->wanted);
	cache_headers_write(v, then);
}

static bool cache_version_is_known_now(const struct backend_version *version)
{
	return version->kind == BACKEND_VERSION_NOW || version->is_known_now;
}

void cache_version_close(struct cache_visit *v, int result_before,
			 void (*then)(struct cache_visit *v, int result))
{
	struct cache_device *d = v->d;
	struct cache_version_job *j;

	v->noted = then;
	v->result_before = result_before;
	backend_version(d->device->child, &v->version);
	/* An open leaves it as it was: the next try may have an origin that takes them. */
	if (v->version.kind == BACKEND_VERSION_NONE && d->ix && d->ix->dirty_nr > 0) {
		cache_version_void(v, cache_version_closed);
		return;
	}
	if (d->is_read_only || !cache_version_is_known_now(&v->version)) {
		then(v, result_before);
		return;
	}
	j = calloc(1, sizeof(*j));
	if (!j) {
		then(v, -ENOMEM);
		return;
	}
	j->v = v;
	j->origin = d->device->child;
	j->job = (struct helper_job){ .work = cache_version_work,
				      .done = cache_version_came,
				      .drop = cache_version_drop };
	v->visit->doing = "asking the origin for its version";
	if (v->visit->helpers && helper_start(v->visit->helpers, &j->job) == 0)
		return;
	cache_version_work(&j->job);
	cache_version_came(&j->job);
}
