/*
 * Reads pages of a list; owns nothing. Pure.
 *
 * Happy path: each <Contents> that ends has a key and a size -> the owner takes it; at the end of
 * the page their number is KeyCount. Failure modes, each in words: no list, or not all of one;
 * values that XML Schema does not have; keys that were not asked for, that nothing explains, or
 * that stand elsewhere than in a list.
 */
#include "backends/s3_disk/s3_disk_page.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/http/s3_xml.h"
#include "base/printable.h"
#include "base/util.h"
#include "net/uri.h"

#define KEY_BYTES (3 * 1200u)
#define SHOWN_BYTES 100u
#define ROOT "ListBucketResult"

struct page_reader {
	const struct s3_disk_ask *ask;
	struct s3_disk_page *page;
	char *words;
	size_t words_bytes;
	bool has_end, has_count, has_token;
	uint64_t count;
	/* Of the <Contents> that has begun. */
	bool has_key, has_size;
	uint64_t size_bytes;
	char key[KEY_BYTES];
};

/* ---- escapes ---- */

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

bool s3_disk_escape(const char *from, size_t bytes, char *to, size_t to_bytes)
{
	return uri_escape(from, bytes, "-._~", to, to_bytes) >= 0;
}

/* ---- elements ---- */

__attribute__((format(printf, 2, 3))) static bool page_refuse(struct page_reader *r,
							      const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(r->words, r->words_bytes, fmt, args);
	va_end(args);
	return false;
}

static bool page_refuse_value(struct page_reader *r, const char *name, const char *text)
{
	char shown[SHOWN_BYTES];

	return page_refuse(r, "%s is \"%s\"", name,
			   printable(shown, sizeof(shown), text, strlen(text)));
}

static bool page_refuse_key(struct page_reader *r, const char *why)
{
	char shown[SHOWN_BYTES];

	return page_refuse(r, "%s: %s (%llu bytes)", why,
			   printable(shown, sizeof(shown), r->key, strlen(r->key)),
			   (unsigned long long)r->size_bytes);
}

static bool take_truncated(struct page_reader *r, const char *text)
{
	bool goes_on;

	if (r->has_end || !s3_xml_bool(text, &goes_on))
		return page_refuse_value(r, "IsTruncated", text);
	r->has_end = true;
	r->page->is_last = !goes_on;
	return true;
}

static bool take_token(struct page_reader *r, const char *text)
{
	if (r->has_token ||
	    !s3_disk_escape(text, strlen(text), r->page->token, sizeof(r->page->token)))
		return page_refuse_value(r, "NextContinuationToken", text);
	r->has_token = true;
	return true;
}

static bool take_count(struct page_reader *r, const char *text)
{
	if (r->has_count || !s3_xml_number(text, &r->count))
		return page_refuse_value(r, "KeyCount", text);
	r->has_count = true;
	return true;
}

static bool take_key(struct page_reader *r, const char *text)
{
	if (r->has_key || !unescape(text, strlen(text), r->key, sizeof(r->key)))
		return page_refuse_value(r, "Key", text);
	r->has_key = true;
	return true;
}

static bool take_size(struct page_reader *r, const char *text)
{
	if (r->has_size || !s3_xml_number(text, &r->size_bytes))
		return page_refuse_value(r, "Size", text);
	r->has_size = true;
	return true;
}

/* Keys that were left out: no delimiter was asked for. */
static bool take_common(struct page_reader *r, const char *text)
{
	return page_refuse_value(r, "CommonPrefixes", text);
}

/* NULL: it does not begin as asked for. */
static const char *key_name(const struct page_reader *r)
{
	const char *prefix = r->ask->prefix, *under = r->ask->under;
	size_t bytes = strlen(prefix);

	if (strncmp(r->key, prefix, bytes) != 0 || r->key[bytes] != '/' ||
	    strncmp(r->key + bytes + 1, under, strlen(under)) != 0)
		return NULL;
	return r->key + bytes + 1;
}

static bool name_take(const struct page_reader *r, const char *name)
{
	const struct s3_disk_ask *ask = r->ask;
	struct s3_disk_listed listed;

	if (ask->on_key)
		return ask->on_key(name, r->size_bytes, ask->arg);
	if (!s3_disk_name_parse(name, &listed.name, &listed.index))
		return false;
	if (r->size_bytes == 0)
		listed.name.seq |= S3_DISK_HOLE;
	return ask->on_object(&listed, r->size_bytes, ask->arg);
}

static bool take_contents(struct page_reader *r, const char *text)
{
	const char *name;

	(void)text;
	if (!r->has_key || !r->has_size)
		return page_refuse(r, "Contents without Key or Size");
	name = key_name(r);
	if (!name)
		return page_refuse_key(r, "it has a key that was not asked for");
	if (!name_take(r, name))
		return page_refuse_key(r, "it has a key that is none of this disk's");
	r->page->nr++;
	r->has_key = r->has_size = false;
	return true;
}

/* What a key is said with, where no list has it: what it stands for would be left out. */
static bool page_take_other(struct page_reader *r, const char *path)
{
	const char *name = strrchr(path, '/');
	char shown[SHOWN_BYTES];

	if (!name || (strcasecmp(name + 1, "Contents") != 0 && strcasecmp(name + 1, "Key") != 0))
		return true;
	return page_refuse(r, "it has %s, which no list has",
			   printable(shown, sizeof(shown), path, strlen(path)));
}

static bool page_on_element(const char *path, const char *text, void *arg)
{
	static const struct {
		const char *path;
		bool (*take)(struct page_reader *r, const char *text);
	} known[] = {
		{ ROOT "/Contents/Key", take_key },
		{ ROOT "/Contents/Size", take_size },
		{ ROOT "/Contents", take_contents },
		{ ROOT "/IsTruncated", take_truncated },
		{ ROOT "/NextContinuationToken", take_token },
		{ ROOT "/KeyCount", take_count },
		{ ROOT "/CommonPrefixes/Prefix", take_common },
	};
	struct page_reader *r = arg;
	size_t root_bytes = strcspn(path, "/");

	if (root_bytes != strlen(ROOT) || memcmp(path, ROOT, root_bytes) != 0)
		return page_refuse_value(r, "the document", path);
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(path, known[i].path) == 0)
			return known[i].take(r, text);
	return page_take_other(r, path);
}

/* ---- the page ---- */

static bool page_adds_up(struct page_reader *r)
{
	const struct s3_disk_page *page = r->page;

	if (!r->has_end)
		return page_refuse(r, "it does not say IsTruncated");
	if (page->is_last != !page->token[0])
		return page_refuse(r, "IsTruncated is %s, and there is %s NextContinuationToken",
				   page->is_last ? "false" : "true", page->is_last ? "a" : "no");
	if (r->has_count && r->count != page->nr)
		return page_refuse(r, "KeyCount is %llu, and there are %llu keys",
				   (unsigned long long)r->count, (unsigned long long)page->nr);
	return true;
}

int s3_disk_page_read(const struct s3_disk_ask *ask, const char *text, size_t bytes,
		      struct s3_disk_page *ret_page, char *words, size_t words_bytes)
{
	struct page_reader r = {
		.ask = ask, .page = ret_page, .words = words, .words_bytes = words_bytes
	};
	int ret;

	*ret_page = (struct s3_disk_page){ 0 };
	ret = s3_xml_read(text, bytes, page_on_element, &r, words, words_bytes);
	if (ret == 0 && !page_adds_up(&r))
		ret = -EINVAL;
	return ret;
}
