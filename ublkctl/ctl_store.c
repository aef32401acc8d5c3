/*
 * cache store: what the store of a cache has that its origin has not, without a daemon; and what is
 * to become of it when the origin was changed without the cache. Owns the store while it runs.
 *
 * Happy path: the store is locked -> its index is read -> told; with --discard or --force it is
 * changed, and then told what was done. Failure modes: no store, one that a daemon has, a disk that
 * cannot be read or written: told, EXIT_REFUSED, and the store is as it was.
 */
#include "ublkctl/ctl_commands.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/errname.h"
#include "base/format.h"
#include "base/util.h"
#include "daemon/wire/json_words.h"
#include "filters/cache/cache_store.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/print/say.h"
#include "ublkctl/print/table.h"

struct store_range {
	uint64_t offset, bytes; /* of the origin */
};

/* What it holds. */
struct store_look {
	const struct cache_header *header;
	struct store_range *dirty; /* by offset, none next to another */
	size_t dirty_nr, dirty_max;
	uint64_t dirty_bytes, clean_bytes;
	bool is_short_of_memory;
};

/* ---- reading ---- */

static void store_add_dirty(struct store_look *l, uint64_t offset, uint64_t bytes)
{
	if (l->dirty_nr == l->dirty_max) {
		size_t max = l->dirty_max ? 2 * l->dirty_max : 64;
		struct store_range *more = reallocarray(l->dirty, max, sizeof(*more));

		l->is_short_of_memory |= !more;
		if (!more)
			return;
		l->dirty = more;
		l->dirty_max = max;
	}
	l->dirty[l->dirty_nr++] = (struct store_range){ offset, bytes };
	l->dirty_bytes += bytes;
}

static void store_see(void *arg, const struct cache_entry *entry)
{
	struct store_look *l = arg;
	uint64_t at = entry->block * l->header->block_bytes;

	for (unsigned i = 0; i < 64 && entry->valid >> i; i++) {
		uint64_t offset = at + (uint64_t)i * CACHE_UNIT_BYTES;
		uint64_t end = MIN(offset + CACHE_UNIT_BYTES, l->header->origin_bytes);

		if (entry->dirty >> i & 1)
			store_add_dirty(l, offset, end - offset);
		else if (entry->valid >> i & 1)
			l->clean_bytes += end - offset;
	}
}

static int store_compare(const void *a, const void *b)
{
	const struct store_range *x = a, *y = b;

	return (x->offset > y->offset) - (x->offset < y->offset);
}

static void store_join_ranges(struct store_look *l)
{
	size_t nr = 0;

	if (l->dirty_nr > 0)
		qsort(l->dirty, l->dirty_nr, sizeof(*l->dirty), store_compare);
	for (size_t i = 0; i < l->dirty_nr; i++) {
		struct store_range *last = nr > 0 ? &l->dirty[nr - 1] : NULL;

		if (last && last->offset + last->bytes == l->dirty[i].offset)
			last->bytes += l->dirty[i].bytes;
		else
			l->dirty[nr++] = l->dirty[i];
	}
	l->dirty_nr = nr;
}

static int store_look_at(struct store_look *l, const struct cache_store *s)
{
	int ret;

	*l = (struct store_look){ .header = &s->header };
	ret = cache_store_walk(s, store_see, l);
	if (ret == 0 && l->is_short_of_memory)
		ret = -ENOMEM;
	store_join_ranges(l);
	return ret;
}

/* ---- telling ---- */

static json_t *store_json(const struct store_look *l, const char *path, const char *done)
{
	const struct cache_header *h = l->header;
	json_t *dirty = json_array();

	for (size_t i = 0; i < l->dirty_nr; i++)
		json_array_append_new(dirty, json_pack("{s:I, s:I}", "offset",
						       (json_int_t)l->dirty[i].offset, "length",
						       (json_int_t)l->dirty[i].bytes));
	return json_pack("{s:o, s:o, s:I, s:I, s:o, s:I, s:I, s:o, s:o}", "store", json_words(path),
			 "origin", json_words(h->origin), "origin_bytes",
			 (json_int_t)h->origin_bytes, "block_bytes", (json_int_t)h->block_bytes,
			 "origin_version", h->found[0] ? json_words(h->found) : json_null(),
			 "clean_bytes", (json_int_t)l->clean_bytes, "dirty_bytes",
			 (json_int_t)l->dirty_bytes, "dirty", dirty, "done",
			 done ? json_string(done) : json_null());
}

static void store_print_ranges(const struct store_look *l)
{
	struct table t;

	if (l->dirty_nr == 0)
		return;
	table_init(&t, "rr");
	table_cell(&t, TABLE_BOLD, "DIRTY FROM");
	table_cell(&t, TABLE_BOLD, "BYTES");
	for (size_t i = 0; i < l->dirty_nr; i++) {
		table_cell(&t, TABLE_PLAIN, "%llu", (unsigned long long)l->dirty[i].offset);
		table_cell(&t, TABLE_PLAIN, "%llu", (unsigned long long)l->dirty[i].bytes);
	}
	table_print(&t);
	table_fini(&t);
}

static void store_print(const struct store_look *l)
{
	const struct cache_header *h = l->header;
	char clean[FORMAT_BYTES], dirty[FORMAT_BYTES], size[FORMAT_BYTES];

	say_to(stdout, "origin: %s, %s\n", h->origin, format_bytes(h->origin_bytes, size));
	say_to(stdout, "its version: %s\n", h->found[0] ? h->found : "not known");
	say_to(stdout, "%s clean, %s dirty\n", format_bytes(l->clean_bytes, clean),
	       format_bytes(l->dirty_bytes, dirty));
	store_print_ranges(l);
}

static void store_print_done(const struct store_look *l, bool is_discard)
{
	char dirty[FORMAT_BYTES];

	format_bytes(l->dirty_bytes, dirty);
	if (is_discard)
		say_to(stdout, "%s discarded: the cache is empty\n", dirty);
	else
		say_to(stdout, "%s are written over the origin when the device is opened again\n",
		       dirty);
}

/* ---- the command ---- */

static enum exit_code store_run(const struct ublkctl_args *a, struct cache_store *s)
{
	const char *done = a->discard ? "discard" : a->force ? "force" : NULL;
	struct store_look l;
	int ret = store_look_at(&l, s);
	json_t *json;

	if (ret == 0 && a->discard)
		ret = cache_store_forget(s);
	else if (ret == 0 && a->force)
		ret = cache_store_accept(s);
	if (ret < 0) {
		say_to(stderr, "ublkctl: %s: %s\n", a->name, errname(ret));
	} else if (a->json) {
		json = store_json(&l, a->name, done);
		print_json(json);
		json_decref(json);
	} else if (done) {
		store_print_done(&l, a->discard);
	} else {
		store_print(&l);
	}
	free(l.dirty);
	return ret < 0 ? EXIT_REFUSED : EXIT_DONE;
}

enum exit_code ublkctl_cache_store(const struct ublkctl_args *a)
{
	char words[CACHE_STORE_WORDS_BYTES];
	enum exit_code code = EXIT_REFUSED;
	struct cache_store s;

	if (cache_store_open(&s, a->name, a->discard || a->force, words) < 0)
		say_to(stderr, "ublkctl: %s: %s\n", a->name, words);
	else
		code = store_run(a, &s);
	cache_store_close(&s);
	return code;
}
