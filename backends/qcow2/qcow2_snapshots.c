/*
 * The table of internal snapshots in memory: read, looked through, made anew. Control thread.
 *
 * Happy path: feed, until all entries are there -> find, with, without. A list never changes once
 * it is read, but for the place of its last L1 table: a change makes a new one.
 * Failure modes: a table that makes no sense, or is longer than QEMU takes: words.
 */
#include "backends/qcow2/qcow2_snapshots.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/printable.h"
#include "base/util.h"

void qcow2_snapshots_free(struct qcow2_snapshots *list)
{
	if (!list)
		return;
	free(list->entry);
	free(list->raw);
	free(list);
}

int qcow2_snapshots_find(const struct qcow2_snapshots *list, const char *id_or_name)
{
	for (unsigned i = 0; i < qcow2_snapshots_nr(list); i++)
		if (strcmp(list->entry[i].id, id_or_name) == 0)
			return (int)i;
	for (unsigned i = 0; i < qcow2_snapshots_nr(list); i++)
		if (strcmp(list->entry[i].name, id_or_name) == 0)
			return (int)i;
	return -1;
}

void qcow2_snapshots_names(const struct qcow2_snapshots *list, char *buf, size_t bytes)
{
	size_t at = 0;

	snprintf(buf, bytes, "none");
	for (unsigned i = 0; i < qcow2_snapshots_nr(list) && at + 4 < bytes; i++) {
		const struct qcow2_snapshot *s = &list->entry[i];
		int nr = snprintf(buf + at, bytes - at, "%s%s", i ? ", " : "",
				  s->name[0] ? s->name : s->id);

		at += nr > 0 ? (size_t)nr : 0;
	}
	if (at + 4 >= bytes)
		memcpy(buf + utf8_whole(buf, bytes - 4), "...", 4);
}

/* ---- memory ---- */

static int raw_reserve(struct qcow2_snapshots *list, size_t bytes)
{
	size_t room = MAX(bytes, list->raw_room * 2);
	uint8_t *raw;

	if (bytes <= list->raw_room)
		return 0;
	raw = realloc(list->raw, room);
	if (!raw)
		return -ENOMEM;
	memset(raw + list->raw_room, 0, room - list->raw_room);
	list->raw = raw;
	list->raw_room = room;
	return 0;
}

static int entry_add(struct qcow2_snapshots *list, const struct qcow2_snapshot *s)
{
	unsigned room = list->room ? list->room * 2 : 4;
	struct qcow2_snapshot *entry;

	if (list->nr == list->room) {
		entry = reallocarray(list->entry, room, sizeof(*entry));
		if (!entry)
			return -ENOMEM;
		list->entry = entry;
		list->room = room;
	}
	list->entry[list->nr++] = *s;
	return 0;
}

/* ---- read ---- */

/* Entries that are there as a whole. */
static int parse_entries(struct qcow2_snapshots *list, const struct qcow2_header *h,
			 char words[static QCOW2_WORDS_BYTES])
{
	while (list->nr < h->snapshot_nr) {
		struct qcow2_snapshot s;
		int ret = qcow2_snapshot_parse(&s, h, list->raw + list->raw_bytes,
					       list->fed_bytes - list->raw_bytes, words);

		/* Only the last one may end without its padding, which is zeroes here. */
		if (ret == 0 && list->nr + 1 < h->snapshot_nr &&
		    s.entry_bytes > list->fed_bytes - list->raw_bytes)
			ret = -EAGAIN;
		if (ret == 0)
			ret = raw_reserve(list, list->raw_bytes + s.entry_bytes);
		if (ret == 0)
			ret = entry_add(list, &s);
		if (ret < 0)
			return ret;
		list->raw_bytes += s.entry_bytes;
		list->fed_bytes = MAX(list->fed_bytes, list->raw_bytes);
	}
	return 0;
}

int qcow2_snapshots_feed(struct qcow2_snapshots *list, const struct qcow2_header *h,
			 const void *bytes, size_t nr_bytes, char words[static QCOW2_WORDS_BYTES])
{
	int ret;

	if (list->fed_bytes + nr_bytes > QCOW2_SNAPSHOTS_BYTES_MAX) {
		snprintf(words, QCOW2_WORDS_BYTES,
			 "the table of internal snapshots is longer than %u bytes",
			 QCOW2_SNAPSHOTS_BYTES_MAX);
		return -EINVAL;
	}
	ret = raw_reserve(list, list->fed_bytes + nr_bytes);
	if (ret < 0)
		return ret;
	memcpy(list->raw + list->fed_bytes, bytes, nr_bytes);
	list->fed_bytes += nr_bytes;
	return parse_entries(list, h, words);
}

/* ---- made anew ---- */

static int list_append(struct qcow2_snapshots *list, const struct qcow2_snapshot *s,
		       const void *raw)
{
	int ret = raw_reserve(list, list->raw_bytes + s->entry_bytes);

	if (ret == 0)
		ret = entry_add(list, s);
	if (ret < 0)
		return ret;
	ASSERT(list->raw != NULL);
	if (raw)
		memcpy(list->raw + list->raw_bytes, raw, s->entry_bytes);
	else
		qcow2_snapshot_encode(s, list->raw + list->raw_bytes);
	list->raw_bytes += s->entry_bytes;
	list->fed_bytes = list->raw_bytes;
	return 0;
}

/* All but the one at this index. */
static struct qcow2_snapshots *list_copy(const struct qcow2_snapshots *list, unsigned but)
{
	struct qcow2_snapshots *copy = calloc(1, sizeof(*copy));
	size_t at = 0;

	for (unsigned i = 0; copy && i < qcow2_snapshots_nr(list); i++) {
		const struct qcow2_snapshot *s = &list->entry[i];

		if (i != but && list_append(copy, s, list->raw + at) < 0) {
			qcow2_snapshots_free(copy);
			return NULL;
		}
		at += s->entry_bytes;
	}
	return copy;
}

static void fill_id(const struct qcow2_snapshots *list, struct qcow2_snapshot *s)
{
	unsigned long max = 0;

	for (unsigned i = 0; i < qcow2_snapshots_nr(list); i++)
		max = MAX(max, MIN(strtoul(list->entry[i].id, NULL, 10), ULONG_MAX - 1));
	snprintf(s->id, sizeof(s->id), "%lu", max + 1);
}

struct qcow2_snapshots *qcow2_snapshots_with(const struct qcow2_snapshots *list,
					     struct qcow2_snapshot *s)
{
	struct qcow2_snapshots *copy = list_copy(list, UINT32_MAX);

	fill_id(list, s);
	s->entry_bytes = (uint32_t)qcow2_snapshot_bytes(s);
	if (copy && list_append(copy, s, NULL) == 0)
		return copy;
	qcow2_snapshots_free(copy);
	return NULL;
}

struct qcow2_snapshots *qcow2_snapshots_without(const struct qcow2_snapshots *list, unsigned idx)
{
	return list_copy(list, idx);
}

void qcow2_snapshots_place_last(struct qcow2_snapshots *list, uint64_t l1_offset)
{
	struct qcow2_snapshot *s = &list->entry[list->nr - 1];

	s->l1_offset = l1_offset;
	qcow2_snapshot_encode(s, list->raw + list->raw_bytes - s->entry_bytes);
}

/* ---- judged ---- */

int qcow2_snapshot_check_place(const struct qcow2_tables *t, const struct qcow2_snapshot *s,
			       char *words, size_t words_bytes)
{
	uint64_t bytes = (uint64_t)s->l1_entries * 8;
	const char *name = s->name[0] ? s->name : s->id;

	if (bytes == 0 || (s->l1_offset + bytes <= atomic_load(&t->end_bytes) &&
			   !qcow2_range_is_table(t, s->l1_offset, bytes)))
		return 0;
	snprintf(words, words_bytes,
		 "qcow2: the image is corrupt: the L1 table of snapshot \"%.*s\" lies outside of "
		 "it, or on another table",
		 utf8_fit(name, 60), name);
	return -EINVAL;
}
