/*
 * See mount_namespace.h.
 *
 * A process that dies takes its mount namespace along. When that held the last mount of a file
 * system on a device the process served, directly or below md, device-mapper or a loop device, the
 * kernel writes that file system back while it ends the process, to a server that is no more: exit
 * hangs, and with it the device. So we have a namespace of our own without any such mount. As a
 * slave: what the host mounts and unmounts elsewhere still arrives, nothing of ours goes back.
 *
 * Where the host's mounts are private (no systemd, an initramfs, containers) nothing arrives: what
 * was mounted when we started would stay busy for ever. There we look ourselves which of them
 * process 1 has no more. What is mounted there later we cannot see: ublkctl doctor says so.
 *
 * Failure modes: a mount that cannot be left: logged, with its path; process 1 cannot be looked at,
 * or no memory: nothing is followed.
 */
#include "daemon/runtime/mount_namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/thread.h"
#include "host/block_tree.h"
#include "host/mounts.h"

#define OWN_MOUNTS "/proc/self/mountinfo"
#define HOST_MOUNTS "/proc/1/mountinfo"
/* A mount can hide others at the same place: these are seen when it is gone. */
#define PASSES_MAX 16

/* ---- lists of mounts ---- */

struct listed_mount {
	int id, parent;
	dev_t dev;
	bool slave, gone;
	char *point;
};

struct mount_list {
	struct listed_mount *mounts;
	size_t nr, max;
	bool incomplete;		/* no memory */
	const struct block_tree *above; /* only of mounts on it; NULL: all */
};

static void list_fini(struct mount_list *list)
{
	for (size_t i = 0; i < list->nr; i++)
		free(list->mounts[i].point);
	free(list->mounts);
	*list = (struct mount_list){ .nr = 0 };
}

static bool list_add(const struct mount_info *m, void *arg)
{
	struct mount_list *list = arg;
	char *point;

	if (list->above && !block_tree_of_mount(list->above, m, ""))
		return true;
	if (list->nr == list->max) {
		size_t max = list->max ? 2 * list->max : 32;
		struct listed_mount *mounts = reallocarray(list->mounts, max, sizeof(*mounts));

		if (mounts) {
			list->mounts = mounts;
			list->max = max;
		}
	}
	point = list->nr < list->max ? strdup(m->point) : NULL;
	list->incomplete = !point;
	if (!point)
		return false;
	list->mounts[list->nr++] = (struct listed_mount){
		.id = m->id, .parent = m->parent, .dev = m->dev, .slave = m->slave, .point = point
	};
	return true;
}

static int list_read(struct mount_list *list, const char *path)
{
	int ret = mounts_read(path, list_add, list);

	return list->incomplete ? -ENOMEM : ret;
}

static bool list_has(const struct mount_list *list, const struct listed_mount *m)
{
	for (size_t i = 0; i < list->nr; i++)
		if (list->mounts[i].dev == m->dev && strcmp(list->mounts[i].point, m->point) == 0)
			return true;
	return false;
}

/* ---- what stands on ublk devices ---- */

static int find_ublk_devices(struct block_tree *tree)
{
	glob_t found;
	int ret = 0;

	block_tree_init(tree);
	if (glob("/sys/block/ublkb*", GLOB_NOSORT, NULL, &found) != 0)
		return 0;
	for (size_t i = 0; ret == 0 && i < found.gl_pathc; i++)
		ret = block_tree_add_root(tree, strrchr(found.gl_pathv[i], '/') + 1);
	globfree(&found);
	return ret < 0 ? ret : block_tree_grow(tree);
}

/* The last mount first: it can hide the others. True: there may be more. */
static bool unmount_listed(const struct block_tree *tree, bool last_pass)
{
	struct mount_list list = { .above = tree };
	bool any = false;

	list_read(&list, OWN_MOUNTS);
	for (size_t i = list.nr; i-- > 0;) {
		const char *point = list.mounts[i].point;

		if (umount2(point, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
			any = true;
		else if (last_pass)
			log_warn("cannot leave a mount that stands on a ublk device",
				 "path=\"%s\" error=%s", point, errname(errno));
	}
	list_fini(&list);
	return any;
}

static void leave_ublk_mounts(void)
{
	struct block_tree tree;
	int ret = find_ublk_devices(&tree);

	if (ret < 0)
		log_warn("cannot find all that stands on ublk devices", "error=%s", errname(ret));
	if (tree.unknown_loop[0])
		log_warn("what a loop device stands on is not known: its file systems stay mounted "
			 "for this daemon",
			 "path=/dev/%s", tree.unknown_loop);
	for (int pass = 1; pass < PASSES_MAX && unmount_listed(&tree, false);)
		pass++;
	unmount_listed(&tree, true);
	block_tree_fini(&tree);
}

/* ---- what the host unmounts ---- */

static struct {
	struct mount_list mounts; /* those that nothing but us follows */
	int host_fd, epoll_fd;
	struct ev_io changed;
} followed = { .host_fd = -1, .epoll_fd = -1 };

/* True: umounts at this place reach us by themselves, or it is the root of all. */
static bool is_told(const struct mount_list *own, const struct listed_mount *m)
{
	for (size_t i = 0; i < own->nr; i++)
		if (own->mounts[i].id == m->parent)
			return own->mounts[i].slave;
	return true;
}

static void find_followed(void)
{
	struct mount_list own = { .nr = 0 }, host = { .nr = 0 };

	/* As process 1 we have nobody to follow. */
	if (getpid() != 1 && list_read(&own, OWN_MOUNTS) == 0 && list_read(&host, HOST_MOUNTS) == 0)
		for (size_t i = 0; i < own.nr; i++)
			if (!is_told(&own, &own.mounts[i]) && list_has(&host, &own.mounts[i])) {
				struct mount_info m = { .dev = own.mounts[i].dev,
							.point = own.mounts[i].point };

				list_add(&m, &followed.mounts);
			}
	list_fini(&own);
	list_fini(&host);
}

static void *leave_thread(void *arg)
{
	struct mount_list *gone = arg;

	for (size_t i = gone->nr; i-- > 0;) {
		const char *point = gone->mounts[i].point;

		if (umount2(point, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
			log_info("left a mount that the host has left", "path=\"%s\"", point);
		else if (errno != EINVAL && errno != ENOENT) /* it went with the one it was in */
			log_warn("cannot leave a mount that the host has left",
				 "path=\"%s\" error=%s", point, errname(errno));
	}
	list_fini(gone);
	free(gone);
	return NULL;
}

/* The last umount of a file system writes it back, and may wait for its disk or its server. */
static void leave_in_thread(struct mount_list *gone)
{
	struct mount_list *list = malloc(sizeof(*list));
	struct thread_params params = {
		.name = "umount",
		.stack_bytes = THREAD_STACK_BYTES,
		.run = leave_thread,
		.arg = list,
	};
	int ret = -ENOMEM;

	if (list) {
		*list = *gone;
		ret = thread_start(NULL, &params);
	}
	if (ret == 0)
		return;
	log_warn("cannot leave what the host has unmounted", "error=%s", errname(ret));
	list_fini(gone);
	free(list);
}

static void on_host_mounts(struct ev_loop *ev, struct ev_io *watcher, int events)
{
	struct mount_list host = { .nr = 0 }, gone = { .nr = 0 };
	struct mount_list *mounts = &followed.mounts;
	struct epoll_event event;
	size_t nr = 0;

	(void)ev, (void)watcher, (void)events;
	epoll_wait(followed.epoll_fd, &event, 1, 0);
	if (list_read(&host, HOST_MOUNTS) < 0 || host.nr == 0) {
		list_fini(&host);
		return;
	}
	for (size_t i = 0; i < mounts->nr; i++) {
		struct listed_mount *m = &mounts->mounts[i];
		struct mount_info info = { .dev = m->dev, .point = m->point };

		if (list_has(&host, m) || !list_add(&info, &gone))
			mounts->mounts[nr++] = *m;
		else
			free(m->point);
	}
	mounts->nr = nr;
	list_fini(&host);
	if (gone.nr > 0)
		leave_in_thread(&gone);
}

/* Of the file itself libev would hear all the time: it can always be read, too. */
static int watch_host(void)
{
	struct epoll_event event = { .events = EPOLLPRI };

	followed.host_fd = open(HOST_MOUNTS, O_RDONLY | O_CLOEXEC);
	followed.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (followed.host_fd < 0 || followed.epoll_fd < 0 ||
	    epoll_ctl(followed.epoll_fd, EPOLL_CTL_ADD, followed.host_fd, &event) < 0)
		return -errno;
	return 0;
}

void mount_namespace_follow(struct ev_loop *ev)
{
	int ret;

	if (followed.mounts.nr == 0)
		return;
	ret = watch_host();
	log_info("the host's mounts are private: what is mounted from now on is not seen here",
		 "cure=\"mount --make-rshared / before ublkd starts\" followed=%zu",
		 followed.mounts.nr);
	if (ret < 0) {
		log_warn("cannot follow the host's umounts", "error=%s", errname(ret));
		return;
	}
	ev_io_init(&followed.changed, on_host_mounts, followed.epoll_fd, EV_READ);
	ev_io_start(ev, &followed.changed);
	/* Something may have gone since we looked. */
	ev_feed_event(ev, &followed.changed, EV_READ);
}

void mount_namespace_unfollow(struct ev_loop *ev)
{
	if (ev_is_active(&followed.changed))
		ev_io_stop(ev, &followed.changed);
	if (followed.epoll_fd >= 0)
		close(followed.epoll_fd);
	if (followed.host_fd >= 0)
		close(followed.host_fd);
	followed.epoll_fd = followed.host_fd = -1;
	list_fini(&followed.mounts);
}

/* ---- the namespace ---- */

int mount_namespace_make(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_SLAVE | MS_REC, NULL) < 0) {
		int err = -errno;

		/* mount(2): / is no mount point, as after chroot(2). */
		log_error("cannot have a mount namespace of its own", "error=%s cure=\"%s\"",
			  errname(err),
			  err == -EINVAL ? "start it outside of a chroot, or bind / on itself"
					 : "run as root (CAP_SYS_ADMIN)");
		return err;
	}
	leave_ublk_mounts();
	find_followed();
	return 0;
}
