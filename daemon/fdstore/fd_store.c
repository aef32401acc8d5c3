/*
 * Owns a descriptor per name, and tells holders about them. Main thread.
 *
 * Happy path: fd_store_open takes what systemd, the program before an upgrade, or a keeper gives ->
 * fd_store_find for each device that is adopted -> fd_store_put when one serves, fd_store_drop when
 * one is removed. Failure modes: a holder that does not answer, or refuses, is logged; what is held
 * here stays, and an upgrade hands it over all the same. A keeper that died is replaced by the next
 * fd_store_put, and gets all descriptors again.
 */
#include "daemon/fdstore/fd_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/fdstore/keeper.h"
#include "daemon/fdstore/keeper_client.h"
#include "daemon/runtime/notify.h"

#define LISTEN_FDS_START 3
#define LISTEN_FDS_MAX 65536u

_Static_assert(FD_STORE_NAME_MAX == KEEPER_NAME_BYTES - 1, "names of systemd and the keeper");

#define MANAGER_CURE "see why the service manager (NOTIFY_SOCKET) does not answer"

struct fd_store_entry {
	char *name;
	int fd;
};

static struct fd_store_entry *find_entry(const struct fd_store *fd_store, const char *name)
{
	for (unsigned i = 0; i < fd_store->nr; i++)
		if (strcmp(fd_store->entries[i].name, name) == 0)
			return &fd_store->entries[i];
	return NULL;
}

static bool same_file(int a, int b)
{
	struct stat stat_a, stat_b;

	return fstat(a, &stat_a) == 0 && fstat(b, &stat_b) == 0 && stat_a.st_dev == stat_b.st_dev &&
	       stat_a.st_ino == stat_b.st_ino;
}

/* Takes fd. Returns 0 or -ENOMEM. */
static int append_entry(struct fd_store *fd_store, const char *name, int fd)
{
	struct fd_store_entry *entries =
		reallocarray(fd_store->entries, fd_store->nr + 1, sizeof(fd_store->entries[0]));
	char *copy = strdup(name);

	if (entries)
		fd_store->entries = entries;
	if (!entries || !copy) {
		free(copy);
		close(fd);
		return -ENOMEM;
	}
	entries[fd_store->nr++] = (struct fd_store_entry){ .name = copy, .fd = fd };
	return 0;
}

/* Takes fd, which came from a holder. */
static int take_fd(struct fd_store *fd_store, const char *name, int fd)
{
	const struct fd_store_entry *entry = find_entry(fd_store, name);

	if (keeper_is_name(name) && !entry)
		return append_entry(fd_store, name, fd);
	if (!entry || !same_file(entry->fd, fd))
		log_warn("a descriptor of the fd store is not taken", "name=\"%s\" reason=\"%s\"",
			 name, entry ? "another one has this name" : "this is no name");
	close(fd);
	return 0;
}

static unsigned number_in(const char *variable)
{
	const char *text = getenv(variable);
	unsigned long value;
	char *end;

	if (!text || *text < '0' || *text > '9')
		return 0;
	errno = 0;
	value = strtoul(text, &end, 10);
	return errno || *end != '\0' || value > INT32_MAX ? 0 : (unsigned)value;
}

/* sd_listen_fds(3). A descriptor without a name is not ours, but must not leak to children. */
static int take_listen_fds(struct fd_store *fd_store)
{
	bool for_us = number_in("LISTEN_PID") == (unsigned)getpid();
	unsigned nr = for_us ? MIN(number_in("LISTEN_FDS"), LISTEN_FDS_MAX) : 0;
	const char *env = getenv("LISTEN_FDNAMES");
	char *names = strdup(env ? env : ""), *rest = names;
	int ret = names ? 0 : -ENOMEM;

	for (int fd = LISTEN_FDS_START; names && fd < (int)(LISTEN_FDS_START + nr); fd++) {
		const char *name = strsep(&rest, ":");

		if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && name && *name != '\0' && ret == 0)
			ret = take_fd(fd_store, name, fd);
	}
	free(names);
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_PIDFDID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return ret;
}

/* For an error of the keeper. */
static const char *fd_store_cure(int err)
{
	switch (err) {
	case -ENOEXEC:
		return "ublkd-keeper is missing or does not run: install it beside ublkd or in "
		       "libexec/ublkd";
	case -ETIMEDOUT:
	case -ECONNRESET:
		return "ublkd-keeper does not answer: end that process, then reload";
	case -EPROTO:
		return "ublkd-keeper is of another version: remove the mem and rbd devices, or "
		       "reboot";
	case -EPERM:
		return "state_dir, or the keeper's socket in it, is not ublkd's own: see who made "
		       "it, and remove it";
	case -ENOSPC:
		return "ublkd-keeper is full: raise the limit of open files (LimitNOFILE) if it is "
		       "below 2100, or have fewer devices";
	case -EMFILE:
		return "raise the limit of open files (LimitNOFILE)";
	case -EINVAL:
		return "ublkd-keeper is of an older version, which holds no files or connections: "
		       "nothing to do until all devices have been removed once";
	default:
		return "see that state_dir can be written to, then reload";
	}
}

struct takeover {
	struct fd_store *fd_store;
	int ret;
};

static void take_from_keeper(const char *name, int fd, void *arg)
{
	struct takeover *takeover = arg;
	int ret = take_fd(takeover->fd_store, name, fd);

	takeover->ret = ret < 0 ? ret : takeover->ret;
}

static bool is_set(const char *variable)
{
	const char *text = getenv(variable);

	return text && *text != '\0' && strcmp(text, "0") != 0;
}

int fd_store_open(struct fd_store *fd_store, const char *state_dir)
{
	struct takeover takeover = { .fd_store = fd_store };
	int ret;

	*fd_store = (struct fd_store){
		.state_dir = strdup(state_dir),
		.systemd =
			is_set("NOTIFY_SOCKET") && (is_set("FDSTORE") || is_set("UBLKD_FDSTORE")),
	};
	if (!fd_store->state_dir)
		return -ENOMEM;
	ret = take_listen_fds(fd_store);
	if (ret < 0)
		return ret;
	/* Also where systemd is the holder: the daemon before may have been started by hand. */
	ret = keeper_each(fd_store->state_dir, take_from_keeper, &takeover);
	if (ret < 0 && ret != -ENOENT)
		log_warn("cannot get the memory of devices from the keeper",
			 "state_dir=\"%s\" error=%s cure=\"%s\"", fd_store->state_dir, errname(ret),
			 fd_store_cure(ret));
	return takeover.ret;
}

void fd_store_close(struct fd_store *fd_store)
{
	for (unsigned i = 0; i < fd_store->nr; i++) {
		close(fd_store->entries[i].fd);
		free(fd_store->entries[i].name);
	}
	free(fd_store->entries);
	free(fd_store->state_dir);
	*fd_store = (struct fd_store){ 0 };
}

int fd_store_find(const struct fd_store *fd_store, const char *name)
{
	const struct fd_store_entry *entry = find_entry(fd_store, name);

	return entry ? entry->fd : -ENOENT;
}

/* fd: goes along, or -1. FDPOLL=0: memory has no state that it could be polled for. */
static int tell_systemd(const char *what, const char *name, int fd)
{
	char message[FD_STORE_NAME_MAX + 64];

	snprintf(message, sizeof(message), "%s=1\nFDNAME=%s%s", what, name,
		 fd >= 0 ? "\nFDPOLL=0" : "");
	return notify_send_fd(message, fd);
}

/* Whose it is, only the name says: a mem device's content, an rbd device's record of its client. */
static void warn_not_stored(const char *name, int err, const char *what_cures)
{
	log_warn(
		"a device's memory is not in the fd store: if the daemon dies, the content of a "
		"mem device is lost, nobody fences the client of an rbd device, and the image of a "
		"qcow2 device is not locked",
		"name=\"%s\" error=%s cure=\"%s\"", name, errname(err), what_cures);
}

static void store_at_holder(struct fd_store *fd_store, const struct fd_store_entry *entry)
{
	int ret;

	if (fd_store->systemd) {
		ret = tell_systemd("FDSTORE", entry->name, entry->fd);
		if (ret < 0)
			warn_not_stored(entry->name, ret, MANAGER_CURE);
		return;
	}
	ret = keeper_put(fd_store->state_dir, fd_store->keeper_exe, entry->name, entry->fd);
	/* What another keeper held, before it died, is held by us alone. */
	for (unsigned i = 0; ret == 1 && i < fd_store->nr; i++) {
		const struct fd_store_entry *other = &fd_store->entries[i];
		int other_ret = 0;

		if (other != entry)
			other_ret = keeper_put(fd_store->state_dir, fd_store->keeper_exe,
					       other->name, other->fd);
		if (other_ret < 0)
			ret = other_ret;
	}
	if (ret < 0)
		warn_not_stored(entry->name, ret, fd_store_cure(ret));
}

/* Takes copy. Returns NULL without memory. */
static struct fd_store_entry *set_entry(struct fd_store *fd_store, const char *name, int copy)
{
	struct fd_store_entry *entry = find_entry(fd_store, name);

	if (!entry)
		return append_entry(fd_store, name, copy) == 0 ? find_entry(fd_store, name) : NULL;
	/* systemd would keep both. */
	if (fd_store->systemd && !same_file(entry->fd, copy))
		tell_systemd("FDSTOREREMOVE", name, -1);
	close(entry->fd);
	entry->fd = copy;
	return entry;
}

void fd_store_put(struct fd_store *fd_store, const char *name, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, LISTEN_FDS_START);
	const struct fd_store_entry *entry;

	ASSERT(keeper_is_name(name));
	if (copy < 0) {
		warn_not_stored(name, -errno, fd_store_cure(-errno));
		return;
	}
	entry = set_entry(fd_store, name, copy);
	if (entry)
		store_at_holder(fd_store, entry);
	else
		warn_not_stored(name, -ENOMEM, "more memory");
}

static void warn_still_stored(const char *name, int err, const char *what_cures)
{
	log_warn("still in the fd store: its memory is not free",
		 "name=\"%s\" error=%s cure=\"%s\"", name, errname(err), what_cures);
}

/* At both holders: an older daemon may have had the other one. */
void fd_store_drop(struct fd_store *fd_store, const char *name)
{
	struct fd_store_entry *entry = find_entry(fd_store, name);
	struct flock unlock = { .l_type = F_UNLCK, .l_whence = SEEK_SET };
	int ret = 0;

	if (!entry)
		return;
	/* The service manager closes its descriptor when it likes; the locks end now. */
	fcntl(entry->fd, F_OFD_SETLK, &unlock);
	if (fd_store->systemd)
		ret = tell_systemd("FDSTOREREMOVE", name, -1);
	if (ret < 0)
		warn_still_stored(name, ret, MANAGER_CURE);
	ret = keeper_drop(fd_store->state_dir, name);
	if (ret < 0 && ret != -ENOENT)
		warn_still_stored(name, ret, fd_store_cure(ret));
	close(entry->fd);
	free(entry->name);
	*entry = fd_store->entries[--fd_store->nr];
}

void fd_store_prune(struct fd_store *fd_store, bool (*wanted)(const char *name, void *arg),
		    void *arg)
{
	for (unsigned i = fd_store->nr; i-- > 0;) {
		const char *name = fd_store->entries[i].name;

		if (wanted(name, arg))
			continue;
		log_info("memory in the fd store belongs to no device and is dropped",
			 "name=\"%s\"", name);
		fd_store_drop(fd_store, name);
	}
}

unsigned fd_store_nr(const struct fd_store *fd_store)
{
	return fd_store->nr;
}

const char *fd_store_at(const struct fd_store *fd_store, unsigned idx, int *ret_fd)
{
	ASSERT(idx < fd_store->nr);
	*ret_fd = fd_store->entries[idx].fd;
	return fd_store->entries[idx].name;
}
