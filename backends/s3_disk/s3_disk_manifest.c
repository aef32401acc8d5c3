/* Reads and writes manifests, by jansson; owns nothing. Pure. */
#include "backends/s3_disk/s3_disk_manifest.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#define FORMAT "ublkd-s3-disk"
#define VERSION 1

bool s3_disk_snapshot_name_is_good(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-";
	size_t bytes = strlen(name);

	return bytes > 0 && bytes < S3_DISK_SNAPSHOT_BYTES && strspn(name, letters) == bytes;
}

/* ---- which bytes ---- */

static uint64_t hash_number(uint64_t hash, uint32_t number)
{
	for (unsigned i = 0; i < sizeof(number); i++)
		hash = hash_byte(hash, (uint8_t)(number >> (8 * i)));
	return hash;
}

void s3_disk_content(const char *opening, const struct s3_disk_map *map,
		     char content[S3_DISK_CONTENT_BYTES])
{
	uint64_t hash = HASH_START;

	/* Objects never change, and the map on the store has no holes: it is the same without. */
	for (uint32_t i = 0; i < map->nr; i++)
		if (!s3_disk_name_is_hole(map->name[i]))
			hash = hash_number(
				hash_number(hash_number(hash, i), map->name[i].generation),
				map->name[i].seq);
	snprintf(content, S3_DISK_CONTENT_BYTES, "%.32s.%016llx", opening,
		 (unsigned long long)hash);
}

/* Whether the generation has stored anything. */
static bool generation_has_stored(const struct s3_disk_manifest *m, const struct s3_disk_map *map)
{
	for (uint32_t i = 0; i < map->nr; i++)
		if (map->name[i].generation == m->generation)
			return true;
	return false;
}

void s3_disk_manifest_content(const struct s3_disk_manifest *m, const struct s3_disk_map *map,
			      char content[S3_DISK_CONTENT_BYTES])
{
	char opening[S3_DISK_ID_BYTES];

	if (m->content[0] && m->opening[0] && !generation_has_stored(m, map)) {
		memcpy(content, m->content, S3_DISK_CONTENT_BYTES);
		return;
	}
	/* By a version that says nothing: its map has a name that nobody else uses. */
	snprintf(opening, sizeof(opening), "%016llx",
		 (unsigned long long)hash_text(HASH_START, m->map));
	s3_disk_content(m->opening[0] ? m->opening : opening, map, content);
}

/* ---- writing ---- */

/* NULL: out of memory. */
static json_t *snapshots_pack(const struct s3_disk_manifest *m)
{
	json_t *all = json_array();
	int ret = 0;

	for (unsigned i = 0; i < m->snapshot_nr; i++) {
		const struct s3_disk_snapshot *s = &m->snapshot[i];

		ret |= json_array_append_new(all, json_pack("{s:s, s:s, s:I, s:I}", "name", s->name,
							    "map", s->map, "generation",
							    (json_int_t)s->generation, "time",
							    (json_int_t)s->sec));
	}
	if (ret == 0)
		return all;
	json_decref(all);
	return NULL;
}

int s3_disk_manifest_write(const struct s3_disk_manifest *m, char text[S3_DISK_MANIFEST_BYTES])
{
	json_t *all = json_pack(
		"{s:s, s:i, s:s, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:b}, s:s, s:s, s:s, s:s, s:s, "
		"s:I, "
		"s:o}",
		"format", FORMAT, "version", VERSION, "id", m->id, "size",
		(json_int_t)m->size_bytes, "object_size", (json_int_t)m->object_bytes, "generation",
		(json_int_t)m->generation, "stored", "generation", (json_int_t)m->generation,
		"objects", (json_int_t)m->stored.objects, "seq", (json_int_t)m->stored.seq,
		"even_holes", m->has_even_holes, "map", m->map, "content", m->content, "opening",
		m->opening, "owner", m->owner, "host", m->host, "beat", (json_int_t)m->beat,
		"snapshots", snapshots_pack(m));
	size_t bytes = all ? json_dumpb(all, text, S3_DISK_MANIFEST_BYTES, JSON_INDENT(1)) : 0;

	json_decref(all);
	return bytes > 0 && bytes <= S3_DISK_MANIFEST_BYTES ? (int)bytes : -ENOMEM;
}

/* ---- reading ---- */

static bool take_text(const json_t *all, const char *key, const char *letters, char *to,
		      size_t to_bytes)
{
	const char *text = json_string_value(json_object_get(all, key));

	if (!text || strlen(text) >= to_bytes || (letters && text[strspn(text, letters)]))
		return false;
	snprintf(to, to_bytes, "%s", text);
	return true;
}

static bool take_number(const json_t *all, const char *key, uint64_t min, uint64_t max,
			uint64_t *ret_value)
{
	const json_t *value = json_object_get(all, key);
	json_int_t number = json_integer_value(value);

	if (!json_is_integer(value) || number < 0 || (uint64_t)number < min ||
	    (uint64_t)number > max)
		return false;
	*ret_value = (uint64_t)number;
	return true;
}

/* Versions before do not say them. */
static bool take_content(const json_t *all, struct s3_disk_manifest *m)
{
	static const char letters[] = "0123456789abcdef.";

	return (!json_object_get(all, "content") ||
		take_text(all, "content", letters, m->content, sizeof(m->content))) &&
	       (!json_object_get(all, "opening") ||
		take_text(all, "opening", letters, m->opening, sizeof(m->opening)));
}

static bool take_map(const json_t *all, char map[S3_DISK_MAP_BYTES])
{
	return take_text(all, "map", "0123456789abcdef/.map", map, S3_DISK_MAP_BYTES) &&
	       (map[0] == '\0' || strncmp(map, "map/", 4) == 0);
}

static bool take_generation(const json_t *all, uint32_t *ret_generation)
{
	uint64_t generation;

	if (!take_number(all, "generation", 1, S3_DISK_GENERATION_MAX, &generation))
		return false;
	*ret_generation = (uint32_t)generation;
	return true;
}

/* Versions before do not say it, or not all of it. Of another generation than the disk's it is of
 * no use. */
static bool take_stored(const json_t *all, struct s3_disk_manifest *m)
{
	const json_t *stored = json_object_get(all, "stored");
	const json_t *even_holes = json_object_get(stored, "even_holes");
	uint64_t objects, seq;
	uint32_t generation;

	if (!stored)
		return true;
	if (!take_generation(stored, &generation) ||
	    !take_number(stored, "objects", 0, S3_DISK_OBJECTS_MAX, &objects) ||
	    !take_number(stored, "seq", 0, S3_DISK_SEQ_MAX, &seq) ||
	    (even_holes && !json_is_boolean(even_holes)))
		return false;
	if (generation != m->generation)
		return true;
	m->stored = (struct s3_disk_tally){ (uint32_t)objects, (uint32_t)seq };
	m->has_even_holes = json_is_true(even_holes);
	return true;
}

static bool snapshot_is_known(const struct s3_disk_manifest *m, unsigned nr, const char *name)
{
	for (unsigned i = 0; i < nr; i++)
		if (strcmp(m->snapshot[i].name, name) == 0)
			return true;
	return false;
}

static bool take_snapshots(const json_t *all, struct s3_disk_manifest *m)
{
	const json_t *list = json_object_get(all, "snapshots"), *one;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > S3_DISK_SNAPSHOTS_MAX)
		return false;
	json_array_foreach(list, i, one)
	{
		struct s3_disk_snapshot *s = &m->snapshot[i];

		if (!take_text(one, "name", NULL, s->name, sizeof(s->name)) ||
		    !s3_disk_snapshot_name_is_good(s->name) ||
		    snapshot_is_known(m, (unsigned)i, s->name) || !take_map(one, s->map) ||
		    !take_generation(one, &s->generation) || s->generation > m->generation ||
		    !take_number(one, "time", 0, UINT32_MAX, &s->sec))
			return false;
	}
	m->snapshot_nr = (unsigned)i;
	return true;
}

static bool manifest_take(struct s3_disk_manifest *m, const json_t *all)
{
	static const char hex[] = "0123456789abcdef";

	return take_text(all, "id", hex, m->id, sizeof(m->id)) && m->id[0] &&
	       take_text(all, "owner", hex, m->owner, sizeof(m->owner)) && take_map(all, m->map) &&
	       take_text(all, "host", NULL, m->host, sizeof(m->host)) && take_content(all, m) &&
	       take_number(all, "object_size", S3_DISK_OBJECT_BYTES_MIN, S3_DISK_OBJECT_BYTES_MAX,
			   &m->object_bytes) &&
	       take_number(all, "size", 4096, INT64_MAX, &m->size_bytes) &&
	       take_number(all, "beat", 0, INT64_MAX, &m->beat) &&
	       take_generation(all, &m->generation) && take_snapshots(all, m) &&
	       take_stored(all, m) && (m->object_bytes & (m->object_bytes - 1)) == 0 &&
	       m->size_bytes % 4096 == 0 &&
	       (m->size_bytes - 1) / m->object_bytes < S3_DISK_OBJECTS_MAX;
}

int s3_disk_manifest_read(struct s3_disk_manifest *ret_manifest, const char *text, size_t bytes,
			  char *words, size_t words_bytes)
{
	json_t *all = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
	const char *format = json_string_value(json_object_get(all, "format"));
	int ret = -EINVAL;

	*ret_manifest = (struct s3_disk_manifest){ 0 };
	if (!format || strcmp(format, FORMAT) != 0)
		snprintf(words, words_bytes, "its manifest is none of ublkd's");
	else if (json_integer_value(json_object_get(all, "version")) != VERSION)
		snprintf(words, words_bytes,
			 "its manifest has another version than %d: a newer ublkd is needed",
			 VERSION);
	else if (!manifest_take(ret_manifest, all))
		snprintf(words, words_bytes, "its manifest makes no sense");
	else
		ret = 0;
	json_decref(all);
	return ret;
}
