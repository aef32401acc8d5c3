/*
 * See block_tree.h. Any thread, each with a tree of its own; reads /sys, asks loop devices
 * (block_loops.c).
 *
 * Happy path: each node's partitions and holders are added behind it, until the last has been
 * looked at; then the loop devices over any of them, and their own once more. Failure modes: no
 * memory; a loop device that cannot be asked: told in unknown_loop.
 */
#include "host/block_tree.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "host/block_loops.h"
#include "host/sysfs.h"

void block_tree_init(struct block_tree *tree)
{
	*tree = (struct block_tree){ .nr = 0 };
}

void block_tree_fini(struct block_tree *tree)
{
	free(tree->nodes);
	block_tree_init(tree);
}

const struct block_node *block_tree_find(const struct block_tree *tree, dev_t dev)
{
	for (size_t i = 0; dev != 0 && i < tree->nr; i++)
		if (tree->nodes[i].dev == dev)
			return &tree->nodes[i];
	return NULL;
}

static int add_node(struct block_tree *tree, const char *name, dev_t dev, enum block_node_kind kind)
{
	struct block_node *node;

	if (block_tree_find(tree, dev))
		return 0;
	if (tree->nr == tree->max) {
		size_t max = tree->max ? 2 * tree->max : 16;
		struct block_node *nodes = reallocarray(tree->nodes, max, sizeof(*nodes));

		if (!nodes)
			return -ENOMEM;
		tree->nodes = nodes;
		tree->max = max;
	}
	node = &tree->nodes[tree->nr++];
	*node = (struct block_node){ .dev = dev, .kind = kind };
	snprintf(node->name, sizeof(node->name), "%s", name);
	sysfs_line(node->title, sizeof(node->title), "/sys/class/block/%s/dm/name", name);
	return 0;
}

int block_tree_add_root(struct block_tree *tree, const char *name)
{
	dev_t dev;

	return sysfs_dev_of(name, &dev) ? add_node(tree, name, dev, BLOCK_NODE_ROOT) : 0;
}

/* Each entry of a folder below the node's that is a block device, and has the file `proof`. */
static int add_entries(struct block_tree *tree, const char *folder, const char *proof,
		       enum block_node_kind kind)
{
	const struct dirent *entry;
	char path[PATH_MAX];
	DIR *dir = opendir(folder);
	int ret = 0;
	dev_t dev;

	while (dir && ret == 0 && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s/%s", folder, entry->d_name, proof);
		if (access(path, F_OK) == 0 && sysfs_dev_of(entry->d_name, &dev))
			ret = add_node(tree, entry->d_name, dev, kind);
	}
	if (dir)
		closedir(dir);
	return ret;
}

/* Holders of holders are behind the end by then: the list is its own list of work. */
static int add_above(struct block_tree *tree, size_t *done)
{
	char folder[128];
	int ret = 0;

	for (; ret == 0 && *done < tree->nr; ++*done) {
		const struct block_node *node = &tree->nodes[*done];
		char name[sizeof(node->name)];

		memcpy(name, node->name, sizeof(name));
		snprintf(folder, sizeof(folder), "/sys/class/block/%s", name);
		ret = add_entries(tree, folder, "partition", BLOCK_NODE_PARTITION);
		if (ret < 0)
			break;
		snprintf(folder, sizeof(folder), "/sys/class/block/%s/holders", name);
		ret = add_entries(tree, folder, "dev", BLOCK_NODE_HOLDER);
	}
	return ret;
}

static int add_loops(struct block_tree *tree, const struct block_loop *loops, size_t nr)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < nr; i++)
		if (loops[i].known && (block_tree_find(tree, loops[i].below_block) ||
				       block_tree_find(tree, loops[i].below_file_system)))
			ret = add_node(tree, loops[i].name, loops[i].dev, BLOCK_NODE_LOOP);
	return ret;
}

int block_tree_grow(struct block_tree *tree)
{
	struct block_loop *loops;
	size_t done = 0, nr, before;
	int ret;

	if (tree->nr == 0)
		return 0;
	ret = block_loops_find(&loops, &nr);
	if (ret < 0)
		return ret;
	for (size_t i = 0; i < nr; i++)
		if (!loops[i].known)
			memcpy(tree->unknown_loop, loops[i].name, sizeof(tree->unknown_loop));
	do {
		ret = add_above(tree, &done);
		before = tree->nr;
		if (ret == 0)
			ret = add_loops(tree, loops, nr);
	} while (ret == 0 && tree->nr > before);
	free(loops);
	return ret;
}

/* ---- mounts ---- */

static const struct block_node *first_of(const struct block_tree *tree, const char *folder)
{
	const struct block_node *node = NULL;
	const struct dirent *entry;
	DIR *dir = opendir(folder);
	dev_t dev;

	while (dir && !node && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && sysfs_dev_of(entry->d_name, &dev))
			node = block_tree_find(tree, dev);
	if (dir)
		closedir(dir);
	return node;
}

/* btrfs has several devices, of which it calls any one the source. */
static const struct block_node *node_of_btrfs(const struct block_tree *tree, const char *name)
{
	const struct block_node *node = NULL;
	char pattern[PATH_MAX + 32];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "/sys/fs/btrfs/*/devices/%s", name);
	if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
		return NULL;
	for (size_t i = 0; !node && i < found.gl_pathc; i++) {
		*strrchr(found.gl_pathv[i], '/') = '\0';
		node = first_of(tree, found.gl_pathv[i]);
	}
	globfree(&found);
	return node;
}

/* Of /proc/filesystems: what has no "nodev" before it. Only there a source is a block device. */
static bool wants_block_device(const char *type)
{
	FILE *file = fopen("/proc/filesystems", "re");
	char line[64];
	bool wants = strcmp(type, "fuseblk") == 0;

	while (file && !wants && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		wants = line[0] == '\t' && strcmp(line + 1, type) == 0;
	}
	if (file)
		fclose(file);
	return wants;
}

static const char *name_of(dev_t dev, char *path, size_t bytes)
{
	char link[64];
	ssize_t len;

	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(dev), minor(dev));
	len = readlink(link, path, bytes - 1);
	if (len <= 0)
		return NULL;
	path[len] = '\0';
	return strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}

const struct block_node *block_tree_of_mount(const struct block_tree *tree,
					     const struct mount_info *mount, const char *view)
{
	const struct block_node *node = block_tree_find(tree, mount->dev);
	char path[PATH_MAX];
	struct sysfs_node source;
	const char *name;

	if (node || major(mount->dev) != 0 || mount->source[0] != '/' ||
	    !wants_block_device(mount->type))
		return node;
	snprintf(path, sizeof(path), "%s%s", view, mount->source);
	if (sysfs_stat(path, &source) < 0 || source.block == 0)
		return NULL;
	node = block_tree_find(tree, source.block);
	if (node || strcmp(mount->type, "btrfs") != 0)
		return node;
	name = name_of(source.block, path, sizeof(path));
	return name ? node_of_btrfs(tree, name) : NULL;
}
