/*
 * Where ublkd and ublkctl of a user who is not root have their files, by the XDG base directory
 * specification. Reads the environment; any thread as long as nobody changes that.
 */
#ifndef HOST_USER_PATHS_H
#define HOST_USER_PATHS_H

#include <limits.h>
#include <stdbool.h>

/* Whether this process is such a user's: neither root nor privileged (host_is_privileged). */
bool user_paths_apply(void);

enum user_path {
	USER_PATH_CONTROL, /* $XDG_RUNTIME_DIR/ublkd/control.sock */
	USER_PATH_CONFIG,  /* $XDG_CONFIG_HOME/ublkd/ublkd.yaml, in ~/.config by default */
	USER_PATH_DEVICES, /* beside it: devices.d */
	USER_PATH_STATE,   /* $XDG_STATE_HOME/ublkd, in ~/.local/state by default */
	USER_PATH_NR,
};

/*
 * Returns 0, -ENOENT when neither the variable nor its default is there as an absolute path, or
 * -ENAMETOOLONG. user_path_cure has words for -ENOENT.
 */
int user_path(enum user_path which, char path[static PATH_MAX]);
const char *user_path_cure(enum user_path which);

#endif
