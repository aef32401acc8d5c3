/*
 * Looks a word up in the registry. Pure; any thread.
 *
 * Happy path: the scheme of a URI is one that a backend names; or the word is a path, with an image
 * format before it or at its end, and there is a backend of files. Failure modes: an unknown
 * scheme, told with the nearest one or with all.
 */
#include "storage/word.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SCHEMES_MAX 64
#define SCHEME_BYTES 32

/* The length of the scheme that text begins with (RFC 3986 section 3.1); 0: it is no URI. */
static size_t word_scheme(const char *text)
{
	size_t len = 0;

	if (!isalpha((unsigned char)text[0]))
		return 0;
	while (isalnum((unsigned char)text[len]) || (text[len] && strchr("+-.", text[len])))
		len++;
	return strncmp(text + len, "://", 3) == 0 ? len : 0;
}

/* "nbd" wants "://" behind it, "rbd:" nothing. */
static bool word_is_of(const struct backend_uri *uri, const char *text)
{
	for (const char *const *s = uri->schemes; *s; s++) {
		size_t len = strlen(*s);

		if (strncasecmp(*s, text, len) == 0 &&
		    ((*s)[len - 1] == ':' || strncmp(text + len, "://", 3) == 0))
			return true;
	}
	return false;
}

/* "qcow2:/srv/disk" */
static bool word_begins_with(const char *text, const char *name)
{
	size_t len = strlen(name);

	return strncasecmp(text, name, len) == 0 && text[len] == ':' && text[len + 1] != '\0';
}

/* "/srv/disk.qcow2" */
static bool word_ends_in(const char *text, const char *name)
{
	const char *dot = strrchr(text, '.');

	return dot && dot != text && dot[-1] != '/' && strcasecmp(dot + 1, name) == 0;
}

static void word_find_format(const char *text, struct word *word)
{
	for (const struct backend *const *b = backend_registry; *b; b++) {
		if (!(*b)->is_image_format)
			continue;
		word->has_format = word_begins_with(text, (*b)->name);
		if (!word->has_format && !word_ends_in(text, (*b)->name))
			continue;
		word->format = *b;
		word->value_at = word->has_format ? strlen((*b)->name) + 1 : 0;
		return;
	}
}

static int find_path(const char *text, struct word *ret_word, char error[static WORD_ERROR_BYTES])
{
	for (const struct backend *const *b = backend_registry; *b; b++)
		if ((*b)->path_option) {
			*ret_word = (struct word){ .backend = *b, .option = (*b)->path_option };
			word_find_format(text, ret_word);
			return 0;
		}
	snprintf(error, WORD_ERROR_BYTES, "no backend of this ublkd has files");
	return -EINVAL;
}

/* Those of all backends. Returns how many. */
static size_t word_schemes(const char *ret_schemes[static SCHEMES_MAX])
{
	size_t nr = 0;

	for (const struct backend *const *b = backend_registry; *b; b++)
		for (size_t i = 0; (*b)->uri && (*b)->uri->schemes[i] && nr < SCHEMES_MAX; i++)
			ret_schemes[nr++] = (*b)->uri->schemes[i];
	return nr;
}

static int refuse_scheme(const char *text, size_t len, char error[static WORD_ERROR_BYTES])
{
	const char *schemes[SCHEMES_MAX], *nearest;
	size_t nr = word_schemes(schemes);
	char scheme[SCHEME_BYTES];
	int at;

	snprintf(scheme, sizeof(scheme), "%.*s", (int)len, text);
	nearest = option_nearest(scheme, schemes, sizeof(schemes[0]), nr);
	at = snprintf(error, WORD_ERROR_BYTES, "unknown scheme \"%s\"", scheme);
	if (nearest) {
		snprintf(error + at, WORD_ERROR_BYTES - (size_t)at, " (did you mean \"%s\"?)",
			 nearest);
		return -EINVAL;
	}
	at += snprintf(error + at, WORD_ERROR_BYTES - (size_t)at,
		       ": give the path of a file or a block device, or a URI of");
	for (size_t i = 0; i < nr && at < WORD_ERROR_BYTES; i++)
		at += snprintf(error + at, WORD_ERROR_BYTES - (size_t)at, "%s %s", i ? "," : "",
			       schemes[i]);
	return -EINVAL;
}

int word_find(const char *text, struct word *ret_word, char error[static WORD_ERROR_BYTES])
{
	size_t len = word_scheme(text);

	for (const struct backend *const *b = backend_registry; *b; b++)
		if ((*b)->uri && word_is_of((*b)->uri, text)) {
			*ret_word = (struct word){ .backend = *b,
						   .option = (*b)->uri->option,
						   .is_uri = true };
			return 0;
		}
	return len == 0 ? find_path(text, ret_word, error) : refuse_scheme(text, len, error);
}
