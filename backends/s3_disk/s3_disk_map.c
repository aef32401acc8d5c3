/*
 * The map, its object and the server's lists; owns the array of names. Pure.
 *
 * The object, little endian: "ublkdmap", version, objects of the disk, entries, generation, CRC-32
 * of the entries (zlib's), 0; then the entries in ascending order: index, generation, seq.
 */
#include "backends/s3_disk/s3_disk_map.h"

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/util.h"

#define MAP_MAGIC "ublkdmap"
#define MAP_VERSION 1u
#define KEY_BYTES (3 * 1200u)

struct map_header {
	char magic[8];
	uint32_t version, nr, entry_nr, generation, crc, reserved;
};

struct map_entry {
	uint32_t index, generation, seq;
};

int s3_disk_map_init(struct s3_disk_map *map, uint32_t nr)
{
	map->nr = nr;
	map->name = calloc(nr, sizeof(*map->name));
	return map->name ? 0 : -ENOMEM;
}

void s3_disk_map_fini(struct s3_disk_map *map)
{
	free(map->name);
	*map = (struct s3_disk_map){ 0 };
}

/* ---- names ---- */

void s3_disk_name_text(struct s3_disk_name name, uint32_t index, char text[S3_DISK_NAME_BYTES])
{
	snprintf(text, S3_DISK_NAME_BYTES, "o/%08x/%08x.%08x", name.generation, index,
		 name.seq & ~S3_DISK_HOLE);
}

bool s3_disk_name_parse(const char *text, struct s3_disk_name *ret_name, uint32_t *ret_index)
{
	char again[S3_DISK_NAME_BYTES];
	struct s3_disk_name name;
	uint32_t index;

	if (sscanf(text, "o/%8x/%8x.%8x", &name.generation, &index, &name.seq) != 3)
		return false;
	if (name.generation == 0 || name.generation > S3_DISK_GENERATION_MAX || name.seq == 0 ||
	    name.seq > S3_DISK_SEQ_MAX || index >= S3_DISK_OBJECTS_MAX)
		return false;
	s3_disk_name_text(name, index, again);
	if (strcmp(text, again) != 0)
		return false;
	*ret_name = name;
	*ret_index = index;
	return true;
}

static bool name_is_newer(struct s3_disk_name name, struct s3_disk_name than)
{
	if (name.generation != than.generation)
		return name.generation > than.generation;
	return (name.seq & ~S3_DISK_HOLE) > (than.seq & ~S3_DISK_HOLE);
}

void s3_disk_map_take(struct s3_disk_map *map, const struct s3_disk_listed *listed)
{
	if (listed->index < map->nr && name_is_newer(listed->name, map->name[listed->index]))
		map->name[listed->index] = listed->name;
}

/* ---- the object ---- */

static uint32_t map_count(const struct s3_disk_map *map)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < map->nr; i++)
		nr += !s3_disk_name_is_hole(map->name[i]);
	return nr;
}

size_t s3_disk_map_bytes(const struct s3_disk_map *map)
{
	return sizeof(struct map_header) + map_count(map) * sizeof(struct map_entry);
}

size_t s3_disk_map_bytes_max(uint32_t nr)
{
	return sizeof(struct map_header) + nr * sizeof(struct map_entry);
}

void s3_disk_map_write(const struct s3_disk_map *map, uint32_t generation, uint8_t *to)
{
	struct map_header h = {
		.magic = MAP_MAGIC,
		.version = htole32(MAP_VERSION),
		.nr = htole32(map->nr),
		.entry_nr = htole32(map_count(map)),
		.generation = htole32(generation),
	};
	uint8_t *at = to + sizeof(h);

	for (uint32_t i = 0; i < map->nr; i++) {
		const struct map_entry e = { .index = htole32(i),
					     .generation = htole32(map->name[i].generation),
					     .seq = htole32(map->name[i].seq) };

		if (s3_disk_name_is_hole(map->name[i]))
			continue;
		memcpy(at, &e, sizeof(e));
		at += sizeof(e);
	}
	h.crc = htole32((uint32_t)crc32_z(0, to + sizeof(h), (size_t)(at - to) - sizeof(h)));
	memcpy(to, &h, sizeof(h));
}

static bool map_take_entry(struct s3_disk_map *map, uint32_t generation, const uint8_t *from,
			   uint32_t *next_index)
{
	struct map_entry e;
	uint32_t index;

	memcpy(&e, from, sizeof(e));
	index = le32toh(e.index);
	if (index < *next_index || index >= map->nr || le32toh(e.generation) == 0 ||
	    le32toh(e.generation) >= generation || le32toh(e.seq) == 0 ||
	    le32toh(e.seq) > S3_DISK_SEQ_MAX)
		return false;
	*next_index = index + 1;
	map->name[index] =
		(struct s3_disk_name){ .generation = le32toh(e.generation), .seq = le32toh(e.seq) };
	return true;
}

int s3_disk_map_read(struct s3_disk_map *map, uint32_t generation, const uint8_t *from,
		     size_t bytes, char *words, size_t words_bytes)
{
	uint32_t next_index = 0, entry_nr;
	struct map_header h;

	snprintf(words, words_bytes, "the map makes no sense");
	if (bytes < sizeof(h))
		return -EINVAL;
	memcpy(&h, from, sizeof(h));
	entry_nr = le32toh(h.entry_nr);
	if (memcmp(h.magic, MAP_MAGIC, sizeof(h.magic)) != 0 || le32toh(h.version) != MAP_VERSION ||
	    le32toh(h.nr) != map->nr || le32toh(h.generation) != generation || entry_nr > map->nr ||
	    bytes != sizeof(h) + entry_nr * sizeof(struct map_entry))
		return -EINVAL;
	if (crc32_z(0, from + sizeof(h), bytes - sizeof(h)) != le32toh(h.crc)) {
		snprintf(words, words_bytes, "the map has a wrong checksum");
		return -EINVAL;
	}
	for (uint32_t i = 0; i < entry_nr; i++)
		if (!map_take_entry(map, generation,
				    from + sizeof(h) + i * sizeof(struct map_entry), &next_index))
			return -EINVAL;
	return 0;
}

/* ---- lists ---- */

/* The text of the first element of this name before end; false: there is none. */
static bool element(const char *from, const char *end, const char *name, const char **ret_text,
		    size_t *ret_bytes)
{
	char tag[40];
	const char *at, *close;

	snprintf(tag, sizeof(tag), "<%s>", name);
	at = memmem(from, (size_t)(end - from), tag, strlen(tag));
	if (!at)
		return false;
	at += strlen(tag);
	close = memchr(at, '<', (size_t)(end - at));
	if (!close)
		return false;
	*ret_text = at;
	*ret_bytes = (size_t)(close - at);
	return true;
}

/* Two digits; -1: they are none. */
static int unescape_byte(const char *from)
{
	const char digits[3] = { from[0], from[1], '\0' };

	return isxdigit((unsigned char)from[0]) && isxdigit((unsigned char)from[1])
		       ? (int)strtoul(digits, NULL, 16)
		       : -1;
}

static bool unescape(const char *from, size_t bytes, char *to, size_t to_bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < bytes; i++) {
		int byte = from[i] == '+' ? ' ' : (unsigned char)from[i];

		if (from[i] == '%' && i + 2 < bytes) {
			byte = unescape_byte(from + i + 1);
			i += 2;
		} else if (from[i] == '%') {
			byte = -1;
		}
		/* No key has a zero. */
		if (byte <= 0 || n + 1 >= to_bytes)
			return false;
		to[n++] = (char)byte;
	}
	to[n] = '\0';
	return true;
}

/* One <Contents>; false: it makes no sense. key: KEY_BYTES. */
static bool contents_read(const char *from, const char *end, char *key, bool *ret_is_empty)
{
	const char *text;
	size_t bytes;

	if (!element(from, end, "Key", &text, &bytes) || !unescape(text, bytes, key, KEY_BYTES))
		return false;
	if (!element(from, end, "Size", &text, &bytes) || bytes == 0)
		return false;
	*ret_is_empty = bytes == 1 && text[0] == '0';
	return true;
}

bool s3_disk_escape(const char *from, size_t bytes, char *to, size_t to_bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)from[i];

		if (n + 4 >= to_bytes)
			return false;
		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		    c == '-' || c == '.' || c == '_' || c == '~')
			to[n++] = (char)c;
		else
			n += (size_t)snprintf(to + n, 4, "%%%02X", c);
	}
	to[n] = '\0';
	return true;
}

/* XML's own names of characters, in place; what is none stays. Returns the bytes that are left. */
static size_t entities_replace(char *text, size_t bytes)
{
	static const struct {
		const char *name;
		char c;
	} known[] = { { "&amp;", '&' },	  { "&lt;", '<' },  { "&gt;", '>' },   { "&quot;", '"' },
		      { "&apos;", '\'' }, { "&#34;", '"' }, { "&#39;", '\'' }, { "&#43;", '+' } };
	size_t n = 0;

	for (size_t i = 0; i < bytes; n++) {
		size_t k = 0;

		while (k < ARRAY_SIZE(known) &&
		       (strlen(known[k].name) > bytes - i ||
			memcmp(text + i, known[k].name, strlen(known[k].name)) != 0))
			k++;
		text[n] = k < ARRAY_SIZE(known) ? known[k].c : text[i];
		i += k < ARRAY_SIZE(known) ? strlen(known[k].name) : 1;
	}
	return n;
}

static bool token_take(const char *value, size_t bytes, struct s3_disk_page *page)
{
	char token[S3_DISK_TOKEN_BYTES];

	if (bytes == 0 || bytes > sizeof(token))
		return false;
	memcpy(token, value, bytes);
	return s3_disk_escape(token, entities_replace(token, bytes), page->token,
			      sizeof(page->token));
}

static int page_end(const char *text, const char *end, struct s3_disk_page *page, char *words,
		    size_t words_bytes)
{
	const char *value;
	size_t bytes;

	snprintf(words, words_bytes, "the server's list makes no sense");
	if (!element(text, end, "IsTruncated", &value, &bytes))
		return -EINVAL;
	page->is_last = !(bytes == 4 && memcmp(value, "true", 4) == 0);
	if (page->is_last)
		return 0;
	if (!element(text, end, "NextContinuationToken", &value, &bytes) ||
	    !token_take(value, bytes, page))
		return -EINVAL;
	return 0;
}

int s3_disk_page_keys(const char *text, const char *prefix, struct s3_disk_page *ret_page,
		      void (*fn)(const char *name, bool is_empty, void *arg), void *arg,
		      char *words, size_t words_bytes)
{
	const char *end = text + strlen(text), *at = text, *close;
	size_t prefix_bytes = strlen(prefix);
	char key[KEY_BYTES];
	bool is_empty;

	*ret_page = (struct s3_disk_page){ 0 };
	if (page_end(text, end, ret_page, words, words_bytes) < 0)
		return -EINVAL;
	while ((at = strstr(at, "<Contents>"))) {
		close = strstr(at, "</Contents>");
		if (!close || !contents_read(at, close, key, &is_empty))
			return -EINVAL;
		if (strncmp(key, prefix, prefix_bytes) == 0 && key[prefix_bytes] == '/')
			fn(key + prefix_bytes + 1, is_empty, arg);
		at = close;
	}
	return 0;
}

struct page_objects {
	void (*fn)(const struct s3_disk_listed *listed, void *arg);
	void *arg;
	unsigned nr;
};

static void page_take_object(const char *name, bool is_empty, void *arg)
{
	struct page_objects *o = arg;
	struct s3_disk_listed listed;

	if (!s3_disk_name_parse(name, &listed.name, &listed.index))
		return;
	if (is_empty)
		listed.name.seq |= S3_DISK_HOLE;
	o->fn(&listed, o->arg);
	o->nr++;
}

int s3_disk_page_read(const char *text, const char *prefix, struct s3_disk_page *ret_page,
		      void (*fn)(const struct s3_disk_listed *listed, void *arg), void *arg,
		      char *words, size_t words_bytes)
{
	struct page_objects o = { .fn = fn, .arg = arg };
	int ret =
		s3_disk_page_keys(text, prefix, ret_page, page_take_object, &o, words, words_bytes);

	ret_page->nr = o.nr;
	return ret;
}
