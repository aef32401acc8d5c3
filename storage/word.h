/*
 * From one word, as a person writes it on a command line, to the backend and the option that it is
 * the value of: nbd://host/export, /srv/disk.img. Pure; any thread.
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
};

#define WORD_ERROR_BYTES 256

/*
 * A word that begins with "SCHEME://", or with a scheme that has a colon, is a URI; any other, also
 * "./x://y", is a path, for the backend that has a path_option. Returns 0, or -EINVAL with the
 * reason and the cure in words.
 */
int word_find(const char *text, struct word *ret_word, char error[static WORD_ERROR_BYTES]);

#endif
