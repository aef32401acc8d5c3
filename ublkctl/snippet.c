/*
 * Writes and removes snippets so that the daemon, which may read the folder at any time, and a
 * power cut find all of one or nothing.
 *
 * Happy path: a hidden temporary file is written and synced -> the device is added by somebody
 * else -> the file gets its name, and the folder is synced. Failure modes: the name is taken, by
 * a file of the administrator too: it is never replaced; a file that holds more than this device
 * is not removed.
 */
#include "ublkctl/snippet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/yaml.h"
#include "ublkctl/print/say.h"

#define SNIPPET_MODE 0644
#define FOLDER_MODE 0755

static int snippet_fail(const char *path, int err, const char *what)
{
	say_to(stderr, "ublkctl: %s: %s%s\n", path, what, strerror(-err));
	return err;
}

static void snippet_path(const char *folder, const char *name, char path[static PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/%s.yaml", folder, name);
}

bool snippet_exists(const char *folder, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	snippet_path(folder, name, path);
	return lstat(path, &st) == 0;
}

static int refuse_existing(const char *path, const char *name)
{
	say_to(stderr,
	       "ublkctl: %s exists already: choose another --name, or remove it by "
	       "ublkctl detach %s\n",
	       path, name);
	return -EEXIST;
}

static int snippet_write(int fd, const char *text)
{
	size_t bytes = strlen(text);
	ssize_t ret;

	while (bytes > 0) {
		ret = write(fd, text, bytes);
		if (ret < 0 && errno != EINTR)
			return -errno;
		text += ret > 0 ? ret : 0;
		bytes -= ret > 0 ? (size_t)ret : 0;
	}
	/* fchmod: whatever the umask is. */
	return fchmod(fd, SNIPPET_MODE) < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int write_temporary(struct snippet *s, const char *text)
{
	int fd, ret;

	snprintf(s->temporary, sizeof(s->temporary), ".%.40s.%ld", s->name, (long)getpid());
	/* Of a process with our id that died. */
	unlinkat(s->folder_fd, s->temporary, 0);
	fd = openat(s->folder_fd, s->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
		    SNIPPET_MODE);
	if (fd < 0)
		return -errno;
	ret = snippet_write(fd, text);
	close(fd);
	if (ret < 0)
		unlinkat(s->folder_fd, s->temporary, 0);
	return ret;
}

int snippet_begin(struct snippet *s, const char *folder, const char *name, const char *text)
{
	int ret;

	snippet_path(folder, name, s->path);
	snprintf(s->name, sizeof(s->name), "%s.yaml", name);
	if (snippet_exists(folder, name))
		return refuse_existing(s->path, name);
	if (mkdir(folder, FOLDER_MODE) < 0 && errno != EEXIST)
		return snippet_fail(folder, -errno, "cannot make the folder: ");
	s->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->folder_fd < 0)
		return snippet_fail(folder, -errno, "");
	ret = write_temporary(s, text);
	if (ret == 0)
		return 0;
	close(s->folder_fd);
	return snippet_fail(s->path, ret, "");
}

static int rename_temporary(const struct snippet *s)
{
	if (renameat2(s->folder_fd, s->temporary, s->folder_fd, s->name, RENAME_NOREPLACE) == 0)
		return 0;
	/* A file system without this flag; only a race could replace a file now. */
	if (errno == EINVAL && faccessat(s->folder_fd, s->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
	    renameat(s->folder_fd, s->temporary, s->folder_fd, s->name) == 0)
		return 0;
	return -errno;
}

int snippet_keep(struct snippet *s)
{
	int ret = rename_temporary(s);

	if (ret < 0) {
		snippet_drop(s);
		return snippet_fail(s->path, ret, "");
	}
	if (fsync(s->folder_fd) < 0)
		ret = snippet_fail(s->path, -errno, "fsync of its folder: ");
	close(s->folder_fd);
	return ret;
}

void snippet_drop(struct snippet *s)
{
	unlinkat(s->folder_fd, s->temporary, 0);
	close(s->folder_fd);
}

/* A list of one is as good as that one. */
static bool is_only_device(const struct yaml_node *node, const char *name)
{
	const struct yaml_node *found;

	if (node && node->kind == YAML_MAP && yaml_get(node, "devices"))
		node = yaml_get(node, "devices");
	if (node && node->kind == YAML_LIST)
		node = node->list.nr == 1 ? node->list.items[0] : NULL;
	found = yaml_get(node, "name");
	return found && found->kind == YAML_SCALAR && strcmp(found->text, name) == 0;
}

static bool snippet_is_of(const char *path, const char *name)
{
	struct config_errors e;
	struct yaml_doc doc;
	bool is;

	config_errors_init(&e, path);
	is = yaml_parse_value_file(&doc, path, &e) == 0 && is_only_device(doc.root, name);
	yaml_free(&doc);
	config_errors_fini(&e);
	return is;
}

static int sync_folder(const char *folder)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret = 0;

	if (fd < 0 || fsync(fd) < 0)
		ret = snippet_fail(folder, -errno, "fsync: ");
	if (fd >= 0)
		close(fd);
	return ret;
}

int snippet_remove(const char *folder, const char *name)
{
	char path[PATH_MAX];

	if (!snippet_exists(folder, name))
		return -ENOENT;
	snippet_path(folder, name, path);
	if (!snippet_is_of(path, name)) {
		say_to(stderr,
		       "ublkctl: %s holds more than the device \"%s\": it stays, remove the "
		       "device from it\n",
		       path, name);
		return -EBUSY;
	}
	if (unlink(path) < 0)
		return snippet_fail(path, -errno, "");
	return sync_folder(folder);
}
