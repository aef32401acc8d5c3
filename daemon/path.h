/* Folders for files to be made. Any thread. */
#ifndef DAEMON_PATH_H
#define DAEMON_PATH_H

#include <sys/types.h>

/* Makes the folder that path lies in, and those above, where missing. Returns 0 or -errno. */
int path_make_parent(const char *path, mode_t mode);

#endif
