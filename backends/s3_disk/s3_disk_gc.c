/*
 * Finds the garbage of a disk and deletes it. Owns all that it knows of the disk. Reactor thread.
 *
 * Happy path: the manifest -> each map that it names -> all objects and maps that the store lists:
 * what is of an earlier generation and in no map is garbage -> the manifest again, which keeps the
 * same -> the garbage is deleted. Failure modes: the manifest keeps something else now: all over
 * again, GC_STARTS times; a map that cannot be read, a list that lacks what the maps name or what
 * the manifest says was stored: nothing is deleted; the store refuses to delete one: no further
 * ones are.
 *
 * Why it is safe, whoever writes the disk meanwhile. Let M be the manifest as it was read first, g
 * its generation, K the objects that its map and the maps of its snapshots name. Garbage has a
 * generation below g and is not in K. No later manifest comes to need it:
 *
 *   - Each manifest is made from the one before it (If-Match; its beat counts, so that no ETag
 *     comes back). One who has read an earlier one than M cannot put his in the place of M, or of
 *     what follows M.
 *   - What the next manifest's map names is in M's map, or in the map of a snapshot of M (apply),
 *     or in an object of generation g or later: a writer that opens the disk lists generation g,
 *     one that makes a snapshot has stored in g, and both begin g + 1. So it is with the manifest
 *     after that: K and the generations from g on have it all, for ever.
 *   - Maps and objects of a name are written once: what was read of a map stays true, and a DELETE
 *     that the store executes late finds nothing else under that name. The map of a writer that is
 *     about to be named is of generation g + 1 at least.
 *   - A writer that was replaced may still store objects of a generation below g. Nothing will
 *     refer to them: its next FLUSH fails.
 *
 * So the second look at the manifest is not what makes it safe against writers; it is against what
 * no writer does, such as another disk that was made under the same prefix, and it tells a snapshot
 * that was deleted (its map may be gone) from a disk that is damaged.
 *
 * Who reads the disk without writing it (read_only) has no part in the manifest: what it refers to
 * may be replaced by the writer, and then be deleted here.
 */
#include "backends/s3_disk/s3_disk_gc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/s3_disk/s3_disk.h"
#include "backends/s3_disk/s3_disk_keep.h"
#include "backends/s3_disk/s3_disk_list.h"
#include "base/printable.h"
#include "base/util.h"

#define GC_DELETES 4u
#define GC_STARTS 4u

enum s3_gc_state {
	GC_MANIFEST,
	GC_MAPS,
	GC_LIST_OBJECTS,
	GC_LIST_MAPS,
	GC_MANIFEST_AGAIN,
	GC_DELETE,
	GC_END,
};

struct s3_gc_delete {
	struct s3_disk_call call;
	struct s3_disk_gc *gc;
	bool is_busy;
	bool is_map;
	uint64_t bytes;
};

/* Maps that are garbage. */
struct s3_gc_map_name {
	char text[S3_DISK_MAP_BYTES];
};

struct s3_disk_gc {
	struct s3_disk_gc_params params;
	struct backend_device device; /* as s3_open wants one */
	struct web_device web;
	struct s3_disk_client client;
	struct s3_disk_lease lease; /* never ours: it reads the manifest */
	bool etag_is_bare;
	struct s3_disk_list list;
	struct s3_disk_call call; /* maps */
	enum s3_gc_state state;
	struct s3_disk_gc_report report;
	unsigned start_nr;
	struct s3_disk_manifest manifest; /* as it was read first */
	unsigned map_idx;		  /* of snapshots; behind them the current one */
	struct s3_disk_map map;
	uint8_t *buf;
	struct s3_disk_keep keep;
	struct s3_disk_tally shown; /* by the list, of the manifest's generation */
	bool is_list_short;
	/* Garbage; deleted from the front on. */
	struct s3_disk_listed *object;
	struct s3_gc_map_name *map_name;
	size_t object_nr, object_max, map_nr, map_max, delete_at;
	bool is_out_of_memory;
	struct s3_gc_delete deletes[GC_DELETES];
	unsigned busy_nr;
	/* The first failure. */
	int result;
	char words[S3_DISK_GC_WORDS_BYTES];
};

static void s3_gc_next(struct s3_disk_gc *gc, int result);

static void s3_gc_tell(struct s3_disk_gc *gc)
{
	if (gc->params.progress)
		gc->params.progress(gc->params.arg, &gc->report);
}

/* The first one stays. Returns it. */
static int s3_gc_fail(struct s3_disk_gc *gc, int err, const char *what, const char *words)
{
	if (gc->result < 0)
		return gc->result;
	gc->result = err;
	snprintf(gc->words, sizeof(gc->words), "%.*s: %.*s%.*s", utf8_fit(gc->web.url.server, 200),
		 gc->web.url.server, utf8_fit(what, 150), what, utf8_fit(words, 200), words);
	return err;
}

/* ---- the manifest ---- */

static void s3_gc_on_manifest(struct s3_disk_lease *lease, int result)
{
	struct s3_disk_gc *gc = container_of(lease, struct s3_disk_gc, lease);

	if (result == -ENOENT)
		s3_gc_fail(gc, result, "there is no disk", "");
	else if (result < 0)
		s3_gc_fail(gc, result, "", lease->words);
	s3_gc_next(gc, result);
}

static void s3_gc_begin_anew(struct s3_disk_gc *gc)
{
	s3_disk_keep_fini(&gc->keep);
	gc->object_nr = gc->map_nr = gc->map_idx = 0;
	gc->result = 0;
	gc->is_list_short = false;
	gc->manifest = gc->lease.manifest;
	gc->report.generation = gc->manifest.generation;
	gc->report.snapshots = gc->manifest.snapshot_nr;
	gc->report.kept = gc->report.garbage = (struct s3_disk_gc_count){ 0 };
	gc->start_nr++;
}

/* ---- maps ---- */

/* The name, and the generation that its object has. */
static const char *s3_gc_map(const struct s3_disk_manifest *m, unsigned idx,
			     uint32_t *ret_generation)
{
	*ret_generation = idx < m->snapshot_nr ? m->snapshot[idx].generation : m->generation;
	return idx < m->snapshot_nr ? m->snapshot[idx].map : m->map;
}

/* Nothing, or the map of a snapshot that had its turn. */
static bool s3_gc_map_is_known(const struct s3_disk_gc *gc)
{
	uint32_t generation;
	const char *name = s3_gc_map(&gc->manifest, gc->map_idx, &generation);

	for (unsigned i = 0; i < gc->map_idx; i++)
		if (strcmp(gc->manifest.snapshot[i].map, name) == 0)
			return true;
	return !name[0];
}

/* Returns 0, or -errno with words. */
static int s3_gc_take_map(struct s3_disk_gc *gc, int result)
{
	const struct s3_disk_call *call = &gc->call;
	char what[S3_DISK_PATH_BYTES + 60], words[100];
	uint32_t generation;

	s3_gc_map(&gc->manifest, gc->map_idx, &generation);
	snprintf(what, sizeof(what), "nothing was deleted: %s: ", call->path);
	if (result < 0)
		return s3_gc_fail(gc, result == -ENOENT ? -EIO : result, what, call->words);
	if (s3_disk_map_read(&gc->map, generation, gc->buf, call->got, words, sizeof(words)) < 0)
		return s3_gc_fail(gc, -EINVAL, what, words);
	if (s3_disk_keep_map(&gc->keep, &gc->map) < 0)
		return s3_gc_fail(gc, -ENOMEM, "out of memory", "");
	return 0;
}

static void s3_gc_on_map(struct s3_disk_call *call, int result)
{
	struct s3_disk_gc *gc = container_of(call, struct s3_disk_gc, call);
	int ret = s3_gc_take_map(gc, result);

	gc->map_idx++;
	s3_gc_next(gc, ret);
}

/* A map of zeroes: what is left of the one before is not this one's. */
static int s3_gc_empty_map(struct s3_disk_gc *gc)
{
	s3_disk_map_fini(&gc->map);
	return s3_disk_map_init(&gc->map, s3_disk_object_nr(&gc->manifest));
}

static void s3_gc_read_map(struct s3_disk_gc *gc)
{
	uint32_t nr = s3_disk_object_nr(&gc->manifest), generation;
	const char *map = s3_gc_map(&gc->manifest, gc->map_idx, &generation);

	free(gc->buf);
	gc->buf = malloc(s3_disk_map_bytes_max(nr));
	if (!gc->buf || s3_gc_empty_map(gc) < 0) {
		s3_gc_next(gc, s3_gc_fail(gc, -ENOMEM, "out of memory", ""));
		return;
	}
	s3_disk_call_get(&gc->call, map, gc->buf, s3_disk_map_bytes_max(nr), s3_gc_on_map);
}

/* ---- lists ---- */

/* Room for one more; false: out of memory. */
static bool s3_gc_room(struct s3_disk_gc *gc, void **array, size_t nr, size_t *max, size_t bytes)
{
	void *more;

	if (nr < *max)
		return true;
	more = reallocarray(*array, *max + *max / 2 + 1000, bytes);
	gc->is_out_of_memory |= !more;
	if (!more)
		return false;
	*max += *max / 2 + 1000;
	*array = more;
	return true;
}

static uint64_t s3_gc_object_bytes(const struct s3_disk_gc *gc, const struct s3_disk_listed *object)
{
	return object->name.seq & S3_DISK_HOLE ? 0 : gc->manifest.object_bytes;
}

/* Of the manifest's generation: counted; of one before: whether a map names it. */
static void s3_gc_show(struct s3_disk_gc *gc, const struct s3_disk_listed *object)
{
	uint32_t generation = gc->manifest.generation;

	s3_disk_keep_show(&gc->keep, object);
	if (object->name.generation != generation)
		return;
	s3_disk_tally_add(&gc->shown, generation, gc->map.name[object->index], object->name);
	s3_disk_map_take(&gc->map, object);
}

static bool s3_gc_on_object(const struct s3_disk_listed *object, uint64_t size_bytes, void *arg)
{
	struct s3_disk_gc *gc = arg;
	bool is_garbage = s3_disk_object_is_garbage(&gc->manifest, &gc->keep, object);
	struct s3_disk_gc_count *count = is_garbage ? &gc->report.garbage : &gc->report.kept;

	if (!s3_disk_object_is_possible(&gc->manifest, object, size_bytes))
		return false;
	s3_gc_show(gc, object);
	count->objects++;
	count->bytes += s3_gc_object_bytes(gc, object);
	if (is_garbage && s3_gc_room(gc, (void **)&gc->object, gc->object_nr, &gc->object_max,
				     sizeof(*gc->object)))
		gc->object[gc->object_nr++] = *object;
	return true;
}

static bool s3_gc_on_map_name(const char *name, uint64_t size_bytes, void *arg)
{
	struct s3_disk_gc *gc = arg;
	bool is_garbage = s3_disk_map_is_garbage(&gc->manifest, name);

	(void)size_bytes;
	if (!s3_disk_map_name_is_good(name))
		return false;
	(is_garbage ? &gc->report.garbage : &gc->report.kept)->maps++;
	if (is_garbage &&
	    s3_gc_room(gc, (void **)&gc->map_name, gc->map_nr, &gc->map_max, sizeof(*gc->map_name)))
		snprintf(gc->map_name[gc->map_nr++].text, S3_DISK_MAP_BYTES, "%s", name);
	return true;
}

/* Returns 0, or -errno with words. */
static int s3_gc_check_list(struct s3_disk_gc *gc)
{
	const struct s3_disk_tally *known = &gc->manifest.stored;
	char words[200];

	gc->is_list_short =
		gc->keep.shown_nr < gc->keep.nr || !s3_disk_tally_has(&gc->shown, known);
	if (!gc->is_list_short)
		return 0;
	snprintf(words, sizeof(words),
		 "it has %zu of %zu objects that the maps name, and of generation %x %u, the last "
		 "%x; stored were %u, the last %x",
		 gc->keep.shown_nr, gc->keep.nr, gc->manifest.generation, gc->shown.objects,
		 gc->shown.seq, known->objects, known->seq);
	return s3_gc_fail(gc, -EIO,
			  "nothing was deleted: the list of objects is not whole: ", words);
}

static void s3_gc_on_listed(struct s3_disk_list *list, int result)
{
	struct s3_disk_gc *gc = container_of(list, struct s3_disk_gc, list);

	if (result < 0)
		s3_gc_fail(gc, result, "nothing was deleted: ", list->words);
	else if (gc->is_out_of_memory)
		result = s3_gc_fail(gc, -ENOMEM, "out of memory", "");
	else if (gc->state == GC_LIST_OBJECTS)
		result = s3_gc_check_list(gc);
	s3_gc_next(gc, result);
}

static void s3_gc_list(struct s3_disk_gc *gc)
{
	struct s3_disk_list *list = &gc->list;
	bool is_maps = gc->state == GC_LIST_MAPS;

	snprintf(list->ask.under, sizeof(list->ask.under), "%s", is_maps ? "map/" : "o/");
	list->ask.on_object = is_maps ? NULL : s3_gc_on_object;
	list->ask.on_key = is_maps ? s3_gc_on_map_name : NULL;
	gc->shown = (struct s3_disk_tally){ 0 };
	if (s3_gc_empty_map(gc) < 0)
		s3_gc_next(gc, s3_gc_fail(gc, -ENOMEM, "out of memory", ""));
	else
		s3_disk_list_begin(list, s3_gc_on_listed);
}

/* ---- deleting ---- */

static void s3_gc_delete(struct s3_disk_gc *gc);

static void s3_gc_on_deleted(struct s3_disk_call *call, int result)
{
	struct s3_gc_delete *delete = container_of(call, struct s3_gc_delete, call);
	struct s3_disk_gc *gc = delete->gc;
	struct s3_disk_gc_count *deleted = &gc->report.deleted;

	delete->is_busy = false;
	gc->busy_nr--;
	if (result < 0 && result != -ENOENT) {
		s3_gc_fail(gc, result, "not all of it was deleted: ", call->words);
	} else {
		deleted->objects += !delete->is_map;
		deleted->maps += delete->is_map;
		deleted->bytes += delete->bytes;
	}
	s3_gc_delete(gc);
}

static void s3_gc_delete_one(struct s3_disk_gc *gc, struct s3_gc_delete *delete, size_t at)
{
	const struct s3_disk_listed *object = &gc->object[at];
	char path[S3_DISK_NAME_BYTES];

	delete->is_busy = true;
	delete->is_map = at >= gc->object_nr;
	delete->bytes = delete->is_map ? 0 : s3_gc_object_bytes(gc, object);
	if (!delete->is_map)
		s3_disk_name_text(object->name, object->index, path);
	gc->busy_nr++;
	s3_disk_call_delete(&delete->call,
			    delete->is_map ? gc->map_name[at - gc->object_nr].text : path,
			    s3_gc_on_deleted);
}

/* As many as may be under way; when there is none any more, that was all. */
static void s3_gc_delete(struct s3_disk_gc *gc)
{
	size_t nr = gc->object_nr + gc->map_nr;

	for (unsigned i = 0; i < GC_DELETES && gc->delete_at < nr && gc->result == 0; i++)
		if (!gc->deletes[i].is_busy)
			s3_gc_delete_one(gc, &gc->deletes[i], gc->delete_at++);
	s3_gc_tell(gc);
	if (gc->busy_nr == 0)
		s3_gc_next(gc, gc->result);
}

/* ---- what comes next ---- */

static void s3_gc_end(struct s3_disk_gc *gc)
{
	gc->params.done(gc->params.arg, gc->result, gc->words);
}

static void s3_gc_enter(struct s3_disk_gc *gc, enum s3_gc_state state)
{
	static const char *const doing[] = {
		[GC_MANIFEST] = "reading the manifest",
		[GC_MAPS] = "reading the maps",
		[GC_LIST_OBJECTS] = "listing the objects",
		[GC_LIST_MAPS] = "listing the maps",
		[GC_MANIFEST_AGAIN] = "reading the manifest again",
		[GC_DELETE] = "deleting",
		[GC_END] = "done",
	};

	gc->state = state;
	gc->report.doing = doing[state];
	s3_gc_tell(gc);
	switch (state) {
	case GC_MANIFEST:
	case GC_MANIFEST_AGAIN:
		s3_disk_lease_read(&gc->lease, s3_gc_on_manifest);
		break;
	case GC_MAPS:
		s3_gc_read_map(gc);
		break;
	case GC_LIST_OBJECTS:
	case GC_LIST_MAPS:
		s3_gc_list(gc);
		break;
	case GC_DELETE:
		s3_gc_delete(gc);
		break;
	case GC_END:
		s3_gc_end(gc);
		break;
	}
}

static void s3_gc_next_map(struct s3_disk_gc *gc)
{
	while (gc->map_idx <= gc->manifest.snapshot_nr && s3_gc_map_is_known(gc))
		gc->map_idx++;
	s3_gc_enter(gc, gc->map_idx <= gc->manifest.snapshot_nr ? GC_MAPS : GC_LIST_OBJECTS);
}

/* The manifest was read again, and it is known what is garbage, or why that is not known. */
static void s3_gc_judge(struct s3_disk_gc *gc)
{
	bool is_same = s3_disk_manifest_keeps_same(&gc->manifest, &gc->lease.manifest);

	if (is_same) {
		s3_gc_enter(gc, gc->result < 0 || gc->params.is_dry ? GC_END : GC_DELETE);
	} else if (gc->start_nr < GC_STARTS) {
		s3_gc_begin_anew(gc);
		s3_gc_next_map(gc);
	} else {
		gc->result = 0;
		s3_gc_fail(
			gc, -EBUSY,
			"nothing was deleted: the disk's generation or snapshots change again and "
			"again: try it later",
			"");
		s3_gc_enter(gc, GC_END);
	}
}

/* What the state was for has ended. */
static void s3_gc_next(struct s3_disk_gc *gc, int result)
{
	if (result < 0 &&
	    (gc->state == GC_MAPS || (gc->state == GC_LIST_OBJECTS && gc->is_list_short))) {
		/* What is missing may be of a snapshot that was deleted meanwhile. */
		s3_gc_enter(gc, GC_MANIFEST_AGAIN);
		return;
	}
	if (result < 0) {
		s3_gc_enter(gc, GC_END);
		return;
	}
	switch (gc->state) {
	case GC_MANIFEST:
		s3_gc_begin_anew(gc);
		s3_gc_next_map(gc);
		break;
	case GC_MAPS:
		s3_gc_next_map(gc);
		break;
	case GC_LIST_OBJECTS:
		s3_gc_enter(gc, GC_LIST_MAPS);
		break;
	case GC_LIST_MAPS:
		s3_gc_enter(gc, GC_MANIFEST_AGAIN);
		break;
	case GC_MANIFEST_AGAIN:
		s3_gc_judge(gc);
		break;
	case GC_DELETE:
	case GC_END:
		s3_gc_enter(gc, GC_END);
		break;
	}
}

/* ---- life ---- */

static int s3_gc_init(struct s3_disk_gc *gc, struct reactor *reactor)
{
	const struct s3_disk_config *c = gc->params.config;
	struct backend_device *device = &gc->device;
	int ret;

	device->name = gc->params.name;
	device->config = c;
	device->priv = &gc->web;
	gc->list.ask.prefix = c->s3.key;
	gc->list.ask.arg = gc;
	ret = s3_open(device);
	if (ret == 0)
		ret = s3_disk_client_init(&gc->client, &gc->web, reactor, device->error,
					  sizeof(device->error));
	if (ret < 0)
		return ret;
	snprintf(device->error, sizeof(device->error), "out of memory");
	ret = s3_disk_lease_init(&gc->lease, &gc->client, &gc->etag_is_bare, c->lease_ns);
	if (ret == 0)
		ret = s3_disk_list_init(&gc->list, &gc->client);
	if (ret == 0)
		ret = s3_disk_call_init(&gc->call, &gc->client);
	for (unsigned i = 0; i < GC_DELETES && ret == 0; i++) {
		ret = s3_disk_call_init(&gc->deletes[i].call, &gc->client);
		gc->deletes[i].gc = gc;
	}
	return ret;
}

int s3_disk_gc_begin(struct s3_disk_gc **ret_gc, struct reactor *reactor,
		     const struct s3_disk_gc_params *params, char words[S3_DISK_GC_WORDS_BYTES])
{
	struct s3_disk_gc *gc = *ret_gc = calloc(1, sizeof(*gc));
	int ret;

	if (!gc) {
		snprintf(words, S3_DISK_GC_WORDS_BYTES, "out of memory");
		return -ENOMEM;
	}
	gc->params = *params;
	ret = s3_gc_init(gc, reactor);
	if (ret < 0)
		snprintf(words, S3_DISK_GC_WORDS_BYTES, "%s", gc->device.error);
	else
		s3_gc_enter(gc, GC_MANIFEST);
	return ret;
}

const struct s3_disk_gc_report *s3_disk_gc_look(const struct s3_disk_gc *gc)
{
	return &gc->report;
}

void s3_disk_gc_free(struct s3_disk_gc *gc)
{
	if (!gc)
		return;
	for (unsigned i = 0; i < GC_DELETES; i++)
		s3_disk_call_fini(&gc->deletes[i].call);
	s3_disk_call_fini(&gc->call);
	s3_disk_list_fini(&gc->list);
	s3_disk_lease_fini(&gc->lease);
	s3_disk_client_fini(&gc->client);
	web_close(&gc->device);
	s3_disk_map_fini(&gc->map);
	s3_disk_keep_fini(&gc->keep);
	free(gc->buf);
	free(gc->object);
	free(gc->map_name);
	free(gc);
}

const char *s3_disk_gc_where(const void *config, char where[S3_DISK_GC_WHERE_BYTES])
{
	const struct s3_disk_config *c = config;

	snprintf(where, S3_DISK_GC_WHERE_BYTES, "s3://%s/%s", c->s3.bucket, c->s3.key);
	return where;
}
