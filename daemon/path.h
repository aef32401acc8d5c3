/* Folders for files to be made. Any thread. */
#ifndef DAEMON_PATH_H
#define DAEMON_PATH_H

#include <limits.h>
#include <sys/types.h>

/* Makes the folder that path lies in, and those above, where missing. Returns 0 or -errno. */
int path_make_parent(const char *path, mode_t mode);

/* The folder that path lies in: "." for a bare name, cut when too long. */
void path_folder(const char *path, char folder[static PATH_MAX]);

#endif
