/*
 * From one word, as a person writes it on a command line, to the backend and the option that it is
 * the value of: nbd://host/export, /srv/disk.img, qcow2:/srv/disk. Pure; any thread.
 */
#ifndef STORAGE_WORD_H
#define STORAGE_WORD_H

#include <stdbool.h>
#include <stddef.h>

#include "storage/backend.h"

/* Of a backend that URIs name: struct backend's uri. */
struct backend_uri {
	const struct option *option; /* an OPTION_STRING that takes the whole URI; not of a group */
	/*
	 * In lower case, NULL at the end. One that ends with a colon, as "rbd:", needs no slashes
	 * behind it.
	 */
	const char *const *schemes;
};

struct word {
	const struct backend *backend;
	const struct option *option; /* an OPTION_STRING: the word is its value */
	bool is_uri;		     /* else a path */
	/*
	 * Of a path: the image format that is served of this file, a backend that has it as its
	 * child `data`; NULL: the file's bytes. has_format: the word begins with "NAME:", which
	 * value_at passes over; else the file's name ends in ".NAME".
	 */
	const struct backend *format;
	bool has_format;
	size_t value_at;
};

#define WORD_ERROR_BYTES 256

/*
 * A word that begins with "SCHEME://", or with a scheme that has a colon, is a URI; any other, also
 * "./x://y", is a path, for the backend that has a path_option. Returns 0, or -EINVAL with the
 * reason and the cure in words. What the file holds has no say: whoever can write into a disk could
 * make it an image (docs/security.md).
 */
int word_find(const char *text, struct word *ret_word, char error[static WORD_ERROR_BYTES]);

#endif
