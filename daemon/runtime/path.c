/*
 * Who could put another file in the place of one of ours? All who may write the folder, unless it
 * is sticky and the file is not theirs; and all who may do that with one of the folders above. So
 * all of them are looked at. If they are in order they stay so: only root and ublkd could change
 * it.
 *
 * Any thread; nothing is owned. Failure modes: a folder that others could change (-EPERM, in words
 * and with the cure), and what the kernel says.
 */
#include "daemon/runtime/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/printable.h"

#define OTHERS_WRITE (S_IWGRP | S_IWOTH)

static bool is_trusted(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

/* Our own group, or root's, is no other. */
static bool others_may_write(const struct stat *st)
{
	bool group_is_ours = st->st_gid == 0 || st->st_gid == getegid();

	return (st->st_mode & S_IWOTH) || ((st->st_mode & S_IWGRP) && !group_is_ours);
}

/* For "%.*s": as much of a path as leaves room for what is said of it. */
#define PATH_SHOWN(path) utf8_fit(path, 300), path

static int path_say(const char *path, int err, char words[static PATH_WORDS_BYTES])
{
	snprintf(words, PATH_WORDS_BYTES, "%.*s: %s", PATH_SHOWN(path), errname(err));
	return err;
}

static int path_say_owner(const char *path, uid_t uid, char words[static PATH_WORDS_BYTES])
{
	snprintf(words, PATH_WORDS_BYTES,
		 "%.*s belongs to user %u, who could put other files in the place of ublkd's: "
		 "use a folder of root's, such as /run/ublkd",
		 PATH_SHOWN(path), (unsigned)uid);
	return -EPERM;
}

/* One on the way to a file. */
static int check_folder(const char *path, const struct stat *st,
			char words[static PATH_WORDS_BYTES])
{
	if (!S_ISDIR(st->st_mode))
		return path_say(path, -ENOTDIR, words);
	if (!is_trusted(st->st_uid))
		return path_say_owner(path, st->st_uid, words);
	if (!others_may_write(st) || (st->st_mode & S_ISVTX))
		return 0;
	snprintf(words, PATH_WORDS_BYTES,
		 "others may replace what is in %.*s (its mode is %04o): chmod go-w or +t it, "
		 "or use another folder",
		 PATH_SHOWN(path), (unsigned)st->st_mode & 07777);
	return -EPERM;
}

/* As it is written: a symlink must not be another user's, nor lead to a folder of his. */
static int check_step(const char *path, char words[static PATH_WORDS_BYTES])
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return path_say(path, -errno, words);
	if (S_ISLNK(st.st_mode)) {
		if (!is_trusted(st.st_uid))
			return path_say_owner(path, st.st_uid, words);
		if (stat(path, &st) < 0)
			return path_say(path, -errno, words);
	}
	return check_folder(path, &st, words);
}

/* Where it really is: from the root on, without any symlink. */
static int check_real(const char *folder, char words[static PATH_WORDS_BYTES])
{
	char real[PATH_MAX];
	struct stat st;
	int ret;

	if (!realpath(folder, real))
		return path_say(folder, -errno, words);
	if (lstat("/", &st) < 0)
		return path_say("/", -errno, words);
	ret = check_folder("/", &st, words);
	for (char *slash = real; ret == 0 && slash && slash[1];) {
		slash = strchr(slash + 1, '/');
		if (slash)
			*slash = '\0';
		ret = check_step(real, words);
		if (slash)
			*slash = '/';
	}
	return ret;
}

int path_make_parent(const char *path, mode_t mode, char words[static PATH_WORDS_BYTES])
{
	char folder[PATH_MAX];
	int ret;

	if (strlen(path) >= sizeof(folder))
		return path_say(path, -ENAMETOOLONG, words);
	strcpy(folder, path);
	for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(folder, mode) < 0 && errno != EEXIST)
			return path_say(folder, -errno, words);
		/* Before anything is made below it. */
		ret = check_step(folder, words);
		if (ret < 0)
			return ret;
		*slash = '/';
	}
	path_folder(path, folder);
	return check_real(folder, words);
}

int path_open_own_folder(const char *path, int flags, char words[static PATH_WORDS_BYTES])
{
	int fd = open(path, flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int ret = fd < 0 ? -errno : 0;
	struct stat st;

	if (fd < 0 && lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
		snprintf(words, PATH_WORDS_BYTES,
			 "%.*s is a symlink: remove it, or name the folder it leads to",
			 PATH_SHOWN(path));
		return -EPERM;
	}
	if (fd < 0)
		return path_say(path, ret, words);
	if (fstat(fd, &st) < 0) {
		ret = path_say(path, -errno, words);
	} else if (st.st_uid != geteuid()) {
		snprintf(words, PATH_WORDS_BYTES,
			 "%.*s belongs to user %u: what is in it is not trusted; see who made it, "
			 "and remove it",
			 PATH_SHOWN(path), (unsigned)st.st_uid);
		ret = -EPERM;
	} else if (st.st_mode & OTHERS_WRITE) {
		snprintf(words, PATH_WORDS_BYTES,
			 "others may write in %.*s (its mode is %04o): what is in it is not "
			 "trusted; see what is in it, and chmod it to 0700",
			 PATH_SHOWN(path), (unsigned)st.st_mode & 07777);
		ret = -EPERM;
	}
	if (ret == 0)
		return fd;
	close(fd);
	return ret;
}

const char *path_file_not_own(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "it is no regular file";
	if (st->st_uid != geteuid())
		return "it belongs to another user";
	if (st->st_mode & OTHERS_WRITE)
		return "others may write to it";
	/* The other name may be one that we would never write to. */
	if (st->st_nlink > 1)
		return "it has more than one name (hard links)";
	return NULL;
}

void path_folder(const char *path, char folder[static PATH_MAX])
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		snprintf(folder, PATH_MAX, ".");
	else
		snprintf(folder, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}
