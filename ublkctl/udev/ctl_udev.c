/*
 * From the number of a block device to the name that its owner gave it: the state file that has
 * this id. Asks no daemon: one that waits for udev would wait for us.
 *
 * Happy path: one folder is listed, each file in it is read once. Failure modes: what is no state
 * file (another name, another type, too long, no JSON, another version, another user's) is passed
 * over: udev must get an answer. A name is printed only when it has no other characters than the
 * configuration allows: it becomes a path in /dev.
 */
#include "ublkctl/ctl_commands.h"
#include "ublkctl/print/say.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "daemon/runtime/path.h"
#include "daemon/settings/settings.h"

#define FILE_BYTES_MAX MIB(1)
#define SUFFIX ".json"

/* "ublkb3" -> 3; -1: it is not called like that. */
static long long node_id(const char *node)
{
	long long id;
	char *end;

	if (strncmp(node, "/dev/", 5) == 0)
		node += 5;
	if (strncmp(node, "ublkb", 5) != 0 || !isdigit((unsigned char)node[5]))
		return -1;
	errno = 0;
	id = strtoll(node + 5, &end, 10);
	return errno || *end ? -1 : id;
}

/* The file must be called after its device. */
static bool is_name_of(const char *name, const char *file)
{
	size_t len = strlen(name);

	return len <= SETTINGS_NAME_MAX && !settings_name_wrong(name) &&
	       strncmp(file, name, len) == 0 && strcmp(file + len, SUFFIX) == 0;
}

/* Of a device that has its number: one that is only being added does not know it yet. */
static bool has_id(const json_t *state, long long id)
{
	const char *phase = json_string_value(json_object_get(state, "phase"));
	const json_t *number = json_object_get(state, "id");

	return phase && strcmp(phase, "adding") != 0 && json_is_integer(number) &&
	       json_integer_value(number) == id;
}

/* NULL: not a regular file of our own of a reasonable size, or no JSON. */
static json_t *load_state(int dir_fd, const char *file)
{
	int fd = openat(dir_fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	json_t *state = NULL;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && !path_file_not_own(&st) && st.st_size <= (off_t)FILE_BYTES_MAX)
		state = json_loadfd(fd, 0, NULL);
	close(fd);
	return state;
}

/* Prints the name when this is the file. */
static bool print_name_in(int dir_fd, const char *file, long long id)
{
	json_t *state = load_state(dir_fd, file);
	const char *name = json_string_value(json_object_get(state, "name"));
	bool found = name && json_integer_value(json_object_get(state, "version")) == 1 &&
		     has_id(state, id) && is_name_of(name, file);

	if (found)
		say_to(stdout, "%s\n", name);
	json_decref(state);
	return found;
}

static bool has_suffix(const char *file)
{
	size_t len = strlen(file), suffix_len = strlen(SUFFIX);

	return len > suffix_len && strcmp(file + len - suffix_len, SUFFIX) == 0;
}

/* NULL: there is none, or it is not our own. */
static DIR *open_udev_folder(const char *state_dir)
{
	char words[PATH_WORDS_BYTES];
	int fd = path_open_own_folder(state_dir, O_RDONLY, words);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !dir)
		close(fd);
	return dir;
}

enum exit_code ublkctl_udev_name(const struct ublkctl_args *a)
{
	long long id = node_id(a->name);
	DIR *dir = id < 0 ? NULL : open_udev_folder(a->state_dir);
	struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir)))
		found = has_suffix(entry->d_name) && print_name_in(dirfd(dir), entry->d_name, id);
	if (dir)
		closedir(dir);
	return found ? EXIT_DONE : EXIT_REFUSED;
}
