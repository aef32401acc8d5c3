/*
 * See block_users.h. Each process is looked at once: its mount namespace, if that is the first one
 * of it, and its descriptors.
 */
#include "host/block_users.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/printable.h"
#include "base/util.h"
#include "host/block_tree.h"
#include "host/caps.h"
#include "host/mounts.h"
#include "host/proc_fds.h"
#include "host/sysfs.h"

/* The first pid namespace, whose processes are all there are: PROC_PID_INIT_INO of the kernel. */
#define PID_NAMESPACE_INO 0xeffffffcu
/* One cannot be looked at twice by then; more of them are looked at again and again. */
#define VIEWS_MAX 1024

/* What a process sees of the mounts: its namespace, and its root in it. */
struct view {
	uint64_t namespace_ino, root_mount;
};

struct look {
	struct block_tree tree;
	char *text;
	size_t text_bytes, used;
	enum block_users found;
	char unknown[128]; /* the first thing that could not be looked at */
	bool mounted;	   /* a mount was found: files on it are no news */
	const char *view;  /* of the mountinfo that is being read: "/proc/7/root" */
	struct view views[VIEWS_MAX];
	size_t view_nr;
	uint64_t pinned[VIEWS_MAX]; /* namespaces that are mounted as a file */
	size_t pinned_nr;
};

/* ---- words ---- */

static void add_words(struct look *l, const char *words)
{
	size_t len = strlen(words);
	const char *separator = l->used ? ", " : "";

	/* Each is told once: one mount is in many namespaces. */
	if (len > 0 && !strstr(l->text, words) && l->used + 1 < l->text_bytes)
		l->used += (size_t)snprintf(l->text + l->used, l->text_bytes - l->used, "%s%s",
					    separator, words);
	if (l->used >= l->text_bytes) {
		utf8_end_whole(l->text);
		l->used = l->text_bytes - 1;
	}
}

static void note(struct look *l, enum block_users kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void note(struct look *l, enum block_users kind, const char *fmt, ...)
{
	char words[512];
	va_list ap;

	if (kind > l->found)
		l->found = kind;
	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	utf8_end_whole(words);
	add_words(l, words);
}

static void unknown(struct look *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void unknown(struct look *l, const char *fmt, ...)
{
	va_list ap;

	if (l->unknown[0])
		return;
	va_start(ap, fmt);
	vsnprintf(l->unknown, sizeof(l->unknown), fmt, ap);
	va_end(ap);
	utf8_end_whole(l->unknown);
}

/* " (data)" for a device-mapper device of that name. */
static const char *title_of(const struct block_node *node, char *buf, size_t bytes)
{
	snprintf(buf, bytes, "%s%s%s", node->title[0] ? " (" : "", node->title,
		 node->title[0] ? ")" : "");
	return buf;
}

/* ---- the kernel's own ---- */

static void look_at_tree(struct look *l)
{
	char title[sizeof(l->tree.nodes[0].title) + 4];

	for (size_t i = 0; i < l->tree.nr; i++) {
		const struct block_node *node = &l->tree.nodes[i];

		if (node->kind == BLOCK_NODE_HOLDER || node->kind == BLOCK_NODE_LOOP)
			note(l, BLOCK_USERS_REAL, "held by %s%s", node->name,
			     title_of(node, title, sizeof(title)));
	}
	if (l->tree.unknown_loop[0])
		unknown(l, "/dev/%s does not tell what it stands on", l->tree.unknown_loop);
}

/*
 * Who has a file below /sys or /proc in the device's name: then a file system is alive, even where
 * no mount of it is to be seen.
 */
static void look_at_file_systems(struct look *l)
{
	static const struct {
		const char *pattern, *words;
	} place[] = {
		{ "/sys/fs/*/%s", "has a file system in use" },
		{ "/sys/fs/btrfs/*/devices/%s", "has a file system in use" },
		{ "/proc/fs/jbd2/%s", "is a file system's journal" },
	};
	char path[256];
	glob_t found;

	for (size_t i = 0; i < l->tree.nr * ARRAY_SIZE(place); i++) {
		const struct block_node *node = &l->tree.nodes[i / ARRAY_SIZE(place)];
		size_t idx = i % ARRAY_SIZE(place);

		snprintf(path, sizeof(path), place[idx].pattern, node->name);
		if (glob(path, GLOB_NOSORT, NULL, &found) != 0)
			continue;
		globfree(&found);
		if (!l->mounted)
			note(l, BLOCK_USERS_REAL, "%s %s", node->name, place[idx].words);
		l->found = BLOCK_USERS_REAL;
	}
}

/* Files that have the path of a device that the kernel has open. */
static void look_at_paths(struct look *l)
{
	static const struct {
		const char *pattern, *words;
	} place[] = {
		{ "/sys/kernel/config/nvmet/subsystems/*/namespaces/*/device_path",
		  "exported by nvmet" },
		{ "/sys/kernel/config/target/core/*/*/udev_path", "exported by LIO" },
		{ "/sys/block/zram*/backing_dev", "behind zram" },
	};
	char path[PATH_MAX];
	struct sysfs_node node;
	glob_t found;

	for (size_t i = 0; i < ARRAY_SIZE(place); i++) {
		if (glob(place[i].pattern, GLOB_NOSORT, NULL, &found) != 0)
			continue;
		for (size_t j = 0; j < found.gl_pathc; j++)
			if (sysfs_line(path, sizeof(path), "%s", found.gl_pathv[j]) &&
			    path[0] == '/' && sysfs_stat(path, &node) == 0 &&
			    block_tree_find(&l->tree, node.block))
				note(l, BLOCK_USERS_REAL, "%s", place[i].words);
		globfree(&found);
	}
}

/* "/dev/dm-1   partition   1048572   0   -2" */
static void look_at_swaps(struct look *l)
{
	FILE *file = fopen("/proc/swaps", "re");
	char line[1024], path[PATH_MAX], type[32];
	struct sysfs_node node;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%1023s %31s", path, type) != 2 || path[0] != '/')
			continue;
		if (sysfs_stat(path, &node) < 0) {
			if (strcmp(type, "partition") == 0)
				unknown(l, "swap %.*s cannot be looked at", utf8_fit(path, 64),
					path);
		} else if (block_tree_find(&l->tree, node.block)) {
			note(l, BLOCK_USERS_REAL, "used as swap");
		} else if (node.block == 0 && block_tree_find(&l->tree, node.file_system)) {
			note(l, BLOCK_USERS_REAL, "used as swap: %.*s", utf8_fit(path, 64), path);
		}
	}
	if (file)
		fclose(file);
}

/* ---- mounts ---- */

/* XFS takes its log and its realtime section from devices that are mounted nowhere. */
static void look_at_option(struct look *l, const struct mount_info *m, const char *option)
{
	const char *value = strstr(m->options, option);
	char path[PATH_MAX];
	struct sysfs_node node;

	if (!value)
		return;
	value += strlen(option) - 1; /* from its slash on */
	snprintf(path, sizeof(path), "%s%.*s", l->view, (int)strcspn(value, ","), value);
	if (sysfs_stat(path, &node) == 0 && block_tree_find(&l->tree, node.block))
		note(l, BLOCK_USERS_REAL, "part of the file system on %s", m->point);
}

static bool look_at_mount(const struct mount_info *m, void *arg)
{
	struct look *l = arg;
	uint64_t ino;

	if (block_tree_of_mount(&l->tree, m, l->view)) {
		note(l, BLOCK_USERS_REAL, "mounted on %s", m->point);
		l->mounted = true;
	}
	look_at_option(l, m, "logdev=/");
	look_at_option(l, m, "rtdev=/");
	/* A namespace that no process need be in. */
	if (strcmp(m->type, "nsfs") == 0 && sscanf(m->root, "mnt:[%lu]", &ino) == 1 &&
	    l->pinned_nr < VIEWS_MAX)
		l->pinned[l->pinned_nr++] = ino;
	return true;
}

static int read_view(const char *pid, struct view *ret_view)
{
	struct statx stx;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%.11s/ns/mnt", pid);
	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO, &stx) < 0)
		return -errno;
	ret_view->namespace_ino = stx.stx_ino;
	snprintf(path, sizeof(path), "/proc/%.11s/root", pid);
	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_MNT_ID, &stx) < 0)
		return -errno;
	ret_view->root_mount = stx.stx_mnt_id;
	return 0;
}

static bool is_new_view(struct look *l, const struct view *view)
{
	for (size_t i = 0; i < l->view_nr; i++)
		if (memcmp(&l->views[i], view, sizeof(*view)) == 0)
			return false;
	if (l->view_nr < VIEWS_MAX)
		l->views[l->view_nr++] = *view;
	return true;
}

static int look_at_namespace(struct look *l, const char *pid)
{
	char info[64], root[64];
	struct view view;
	int ret = read_view(pid, &view);

	if (ret < 0 || !is_new_view(l, &view))
		return ret;
	snprintf(info, sizeof(info), "/proc/%.11s/mountinfo", pid);
	snprintf(root, sizeof(root), "/proc/%.11s/root", pid);
	l->view = root;
	ret = mounts_read(info, look_at_mount, l);
	l->view = "";
	/* It has ended meanwhile: others may be in the namespace. */
	if (ret < 0 && l->view_nr > 0)
		l->view_nr--;
	return ret;
}

static void look_at_pinned(struct look *l)
{
	for (size_t i = 0; i < l->pinned_nr; i++) {
		bool seen = false;

		for (size_t j = 0; j < l->view_nr; j++)
			seen |= l->views[j].namespace_ino == l->pinned[i];
		if (!seen)
			unknown(l, "the mount namespace %lu has no process that shows its mounts",
				(unsigned long)l->pinned[i]);
	}
}

/* ---- processes ---- */

static bool is_probe(const char *comm)
{
	return strstr(comm, "udev") || strcmp(comm, "blkid") == 0;
}

static bool look_at_fd(const char *pid, const char *path, void *arg)
{
	struct look *l = arg;
	struct sysfs_node node;
	char comm[64];
	int ret = sysfs_stat(path, &node);

	if (ret == -EACCES || ret == -EPERM)
		unknown(l, "process %s may not be looked into (CAP_SYS_PTRACE)", pid);
	if (ret < 0)
		return false;
	if (block_tree_find(&l->tree, node.block)) {
		if (!sysfs_line(comm, sizeof(comm), "/proc/%.11s/comm", pid))
			snprintf(comm, sizeof(comm), "?");
		note(l, is_probe(comm) ? BLOCK_USERS_TRANSIENT : BLOCK_USERS_REAL, "open by %s[%s]",
		     comm, pid);
		return true;
	}
	if (l->mounted || !block_tree_find(&l->tree, node.file_system))
		return false;
	note(l, BLOCK_USERS_REAL, "a file on it open by [%s]", pid);
	return true;
}

static void look_at_process(const char *pid, void *arg)
{
	struct look *l = arg;
	int ret = look_at_namespace(l, pid), fds = proc_fds_of(pid, look_at_fd, l);

	if (ret == -EACCES || ret == -EPERM || fds < 0)
		unknown(l, "process %s may not be looked into (CAP_SYS_PTRACE)", pid);
}

static bool look_for_hidepid(const struct mount_info *m, void *arg)
{
	bool *hides = arg;

	*hides |= strcmp(m->point, "/proc") == 0 && strstr(m->options, "hidepid=");
	return true;
}

/* Whether /proc shows all processes there are. */
static void look_at_proc(struct look *l)
{
	bool hides = false;
	struct stat st;

	if (stat("/proc/1/ns/pid", &st) < 0 && stat("/proc/self/ns/pid", &st) < 0)
		unknown(l, "/proc is not mounted");
	else if (st.st_ino != PID_NAMESPACE_INO)
		unknown(l, "processes outside of this daemon's pid namespace are out of sight");
	mounts_read("/proc/self/mountinfo", look_for_hidepid, &hides);
	if (hides && !host_has_cap(CAP_SYS_PTRACE))
		unknown(l, "/proc hides processes (hidepid) from a daemon without CAP_SYS_PTRACE");
}

static enum block_users verdict(struct look *l)
{
	if (l->found < BLOCK_USERS_UNKNOWN && l->unknown[0]) {
		l->found = BLOCK_USERS_UNKNOWN;
		l->used = 0;
		l->text[0] = '\0';
		add_words(l, l->unknown);
	}
	return l->found;
}

enum block_users block_users_find(const char *disk, char *text, size_t text_bytes)
{
	/* Too large for the stack of a helper, and of this call alone: two threads may look at
	 * once. */
	struct look *l = calloc(1, sizeof(*l));
	enum block_users found;

	text[0] = '\0';
	if (!l) {
		snprintf(text, text_bytes, "out of memory");
		return BLOCK_USERS_UNKNOWN;
	}
	l->text = text;
	l->text_bytes = text_bytes;
	l->view = "";
	block_tree_init(&l->tree);
	if (block_tree_add_root(&l->tree, disk) < 0 || block_tree_grow(&l->tree) < 0)
		unknown(l, "out of memory");
	if (l->tree.nr > 0) {
		look_at_tree(l);
		look_at_swaps(l);
		look_at_paths(l);
		look_at_proc(l);
		if (proc_each(look_at_process, l) < 0)
			unknown(l, "/proc cannot be read");
		look_at_pinned(l);
		look_at_file_systems(l);
	}
	found = verdict(l);
	block_tree_fini(&l->tree);
	free(l);
	return found;
}
