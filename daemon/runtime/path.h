/*
 * Folders and files that the daemon relies on: made, opened, and looked at for who else could
 * change or replace them. Any thread; nothing is owned.
 */
#ifndef DAEMON_RUNTIME_PATH_H
#define DAEMON_RUNTIME_PATH_H

#include <limits.h>
#include <sys/stat.h>

#define PATH_WORDS_BYTES 512

/*
 * mkdir -p of the folder of a path, with this mode; and sees that nobody but root and ourselves can
 * replace what lies in it: all folders on the way, symlinks followed, belong to one of the two, and
 * what others may write is sticky, as /tmp is. Returns 0; or -EPERM where others could, with words
 * and the cure; or another -errno with words.
 */
int path_make_parent(const char *path, mode_t mode, char words[static PATH_WORDS_BYTES]);

/*
 * Opens a folder (O_PATH as well, when `flags` has it) that is our own: no symlink, not of another
 * user, and nobody else may write in it. Returns its descriptor; or -EPERM, with words and the
 * cure; or another -errno with words.
 */
int path_open_own_folder(const char *path, int flags, char words[static PATH_WORDS_BYTES]);

/*
 * Whether an open file is our own: a regular file with one name, not of another user, and nobody
 * else may write to it. NULL, or what is wrong.
 */
const char *path_file_not_own(const struct stat *st);

/* The folder of a path; "." when it has none. */
void path_folder(const char *path, char folder[static PATH_MAX]);

#endif
