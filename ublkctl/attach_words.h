/* What `ublkctl attach` makes of its words: the name of the device, and its configuration. Pure. */
#ifndef UBLKCTL_ATTACH_WORDS_H
#define UBLKCTL_ATTACH_WORDS_H

#include <stdbool.h>

#include "daemon/settings/settings.h"
#include "storage/word.h"

struct attach_device {
	const char *name;
	struct word word;
	const char *value; /* of word.option: an absolute path, or a URI */
	/*
	 * word.format NULL: that is all; else an image over it, which finds what it stands over: in
	 * this folder, or in its own (NULL).
	 */
	const char *backing_folder;
	unsigned long queues;
	unsigned block_bytes; /* 0: those of a device that says nothing */
	bool read_only;
};

/*
 * A name from the last part of a path, or of the export of a URI; taken: whether a name cannot be
 * had, then "-2", "-3" ... is behind it.
 */
void attach_name(const struct word *word, const char *value,
		 bool (*taken)(const char *name, const void *arg), const void *arg,
		 char ret_name[static SETTINGS_NAME_MAX + 1]);

/*
 * The URI with the path of an NBD server's socket counted from folder, which is absolute; any other
 * one as it is. Returns 0, or -ENAMETOOLONG.
 */
int attach_absolute_socket(const char *uri, const char *folder, char *to, size_t bytes);

/* The device as YAML. NULL: not UTF-8, or out of memory. The caller frees it. */
char *attach_yaml(const struct attach_device *d);

#endif
