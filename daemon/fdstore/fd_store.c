/*
 * Owns a descriptor per name, and tells holders about them. Main thread.
 *
 * Happy path: fd_store_open takes what systemd, the program before an upgrade, or a keeper give ->
 * fd_store_find for each device that is adopted -> fd_store_put when one serves, fd_store_drop when
 * one is removed. Failure modes: a holder that does not answer or refuses is logged; what is held
 * here stays and is handed over by an upgrade all the same. A keeper that died is replaced by the
 * next fd_store_put, and gets everything again.
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
#include "daemon/fdstore/keeper_client.h"
#include "daemon/runtime/notify.h"

#define LISTEN_FDS_START 3
#define LISTEN_FDS_MAX 65536u

#define MANAGER_CURE "see why the service manager (NOTIFY_SOCKET) does not answer"

struct fd_store_entry {
	char *name;
	int fd;
};

static bool is_name(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < len; i++)
		if (name[i] < ' ' || name[i] > '~' || name[i] == ':')
			return false;
	return len > 0 && len <= FD_STORE_NAME_MAX;
}

static struct fd_store_entry *find(const struct fd_store *fd_store, const char *name)
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
static int append(struct fd_store *fd_store, const char *name, int fd)
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
static int take(struct fd_store *fd_store, const char *name, int fd)
{
	const struct fd_store_entry *entry = find(fd_store, name);

	if (is_name(name) && !entry)
		return append(fd_store, name, fd);
	if (!entry || !same_file(entry->fd, fd))
		log_warn("a parked descriptor is not taken", "name=\"%s\" reason=\"%s\"", name,
			 entry ? "another one has this name" : "this is no name");
	close(fd);
	return 0;
}

/* Puts a 0 behind the first of names and returns what follows: "a:b" -> "a", "b". */
static char *cut_name(char *names)
{
	char *end = strchr(names, ':');

	if (!end)
		return names + strlen(names);
	*end = '\0';
	return end + 1;
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

/* sd_listen_fds(3). What has no name is no business of ours, but must not leak to children. */
static int take_listen_fds(struct fd_store *fd_store)
{
	bool for_us = number_in("LISTEN_PID") == (unsigned)getpid();
	unsigned nr = for_us ? MIN(number_in("LISTEN_FDS"), LISTEN_FDS_MAX) : 0;
	const char *env = getenv("LISTEN_FDNAMES");
	char *names = strdup(env ? env : ""), *name = names;
	int ret = names ? 0 : -ENOMEM;

	for (int fd = LISTEN_FDS_START; names && fd < (int)(LISTEN_FDS_START + nr); fd++) {
		char *next = cut_name(name);

		if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && *name != '\0' && ret == 0)
			ret = take(fd_store, name, fd);
		name = next;
	}
	free(names);
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_PIDFDID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return ret;
}

/* What a holder says when it fails, as a sentence that helps. */
static const char *cure(int err)
{
	switch (err) {
	case -ENOEXEC:
		return "ublkd-keeper is missing or does not run: install it beside ublkd or in "
		       "libexec/ublkd";
	case -ETIMEDOUT:
	case -ECONNRESET:
		return "ublkd-keeper does not answer: end that process, then reload";
	case -EPROTO:
		return "ublkd-keeper is of another version: remove the mem devices, or reboot";
	case -EPERM:
		return "state_dir, or the keeper's socket in it, is not ublkd's own: see who made "
		       "it, and remove it";
	case -EMFILE:
	case -ENOSPC:
		return "raise the limit of open files (LimitNOFILE)";
	default:
		return "see that state_dir can be written to, then reload";
	}
}

struct takeover {
	struct fd_store *fd_store;
	int ret;
};

static void take_kept(const char *name, int fd, void *arg)
{
	struct takeover *takeover = arg;
	int ret = take(takeover->fd_store, name, fd);

	if (ret < 0)
		takeover->ret = ret;
}

/* Also where systemd is the holder: the daemon before may have been started by hand. */
static int take_from_keeper(struct fd_store *fd_store)
{
	struct takeover takeover = { .fd_store = fd_store };
	int ret = keeper_each(fd_store->state_dir, take_kept, &takeover);

	if (ret < 0 && ret != -ENOENT)
		log_warn("cannot get the memory that was kept for devices",
			 "state_dir=\"%s\" error=%s cure=\"%s\"", fd_store->state_dir, errname(ret),
			 cure(ret));
	return takeover.ret;
}

static bool is_set(const char *variable)
{
	const char *text = getenv(variable);

	return text && *text != '\0' && strcmp(text, "0") != 0;
}

int fd_store_open(struct fd_store *fd_store, const char *state_dir)
{
	int ret;

	*fd_store = (struct fd_store){
		.state_dir = strdup(state_dir),
		.systemd =
			is_set("NOTIFY_SOCKET") && (is_set("FDSTORE") || is_set("UBLKD_FDSTORE")),
	};
	if (!fd_store->state_dir)
		return -ENOMEM;
	ret = take_listen_fds(fd_store);
	return ret < 0 ? ret : take_from_keeper(fd_store);
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
	const struct fd_store_entry *entry = find(fd_store, name);

	return entry ? entry->fd : -ENOENT;
}

static int systemd_drop(const char *name)
{
	char message[FD_STORE_NAME_MAX + 64];

	snprintf(message, sizeof(message), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	return notify_send(message);
}

/* FDPOLL=0: memory has no state that it could be polled for. */
static int systemd_put(const char *name, int fd)
{
	char message[FD_STORE_NAME_MAX + 64];

	snprintf(message, sizeof(message), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	return notify_send_fd(message, fd);
}

static void warn_not_parked(const char *name, int err, const char *what_cures)
{
	log_warn("not parked: what it holds would be lost with the daemon",
		 "name=\"%s\" error=%s cure=\"%s\"", name, errname(err), what_cures);
}

/* What another keeper held, before it died, is held by us alone. */
static int put_others(struct fd_store *fd_store, const struct fd_store_entry *parked)
{
	int ret = 0;

	for (unsigned i = 0; ret >= 0 && i < fd_store->nr; i++) {
		const struct fd_store_entry *entry = &fd_store->entries[i];

		if (entry != parked)
			ret = keeper_put(fd_store->state_dir, fd_store->keeper_exe, entry->name,
					 entry->fd);
	}
	return ret;
}

static void tell_holder(struct fd_store *fd_store, const struct fd_store_entry *entry)
{
	int ret;

	if (fd_store->systemd) {
		ret = systemd_put(entry->name, entry->fd);
		if (ret < 0)
			warn_not_parked(entry->name, ret, MANAGER_CURE);
		return;
	}
	ret = keeper_put(fd_store->state_dir, fd_store->keeper_exe, entry->name, entry->fd);
	if (ret == 1)
		ret = put_others(fd_store, entry);
	if (ret < 0)
		warn_not_parked(entry->name, ret, cure(ret));
}

/* Takes copy. Returns NULL without memory. */
static struct fd_store_entry *set(struct fd_store *fd_store, const char *name, int copy)
{
	struct fd_store_entry *entry = find(fd_store, name);

	if (!entry)
		return append(fd_store, name, copy) == 0 ? find(fd_store, name) : NULL;
	/* systemd would keep both. */
	if (fd_store->systemd && !same_file(entry->fd, copy))
		systemd_drop(name);
	close(entry->fd);
	entry->fd = copy;
	return entry;
}

void fd_store_put(struct fd_store *fd_store, const char *name, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, LISTEN_FDS_START);
	const struct fd_store_entry *entry;

	ASSERT(is_name(name));
	if (copy < 0) {
		warn_not_parked(name, -errno, cure(-errno));
		return;
	}
	entry = set(fd_store, name, copy);
	if (entry)
		tell_holder(fd_store, entry);
	else
		warn_not_parked(name, -ENOMEM, "more memory");
}

static void remove_at(struct fd_store *fd_store, struct fd_store_entry *entry)
{
	close(entry->fd);
	free(entry->name);
	*entry = fd_store->entries[--fd_store->nr];
}

static void warn_still_parked(const char *name, int err, const char *what_cures)
{
	log_warn("still parked: its memory is not free", "name=\"%s\" error=%s cure=\"%s\"", name,
		 errname(err), what_cures);
}

/* At both holders: an older daemon may have had the other one. */
void fd_store_drop(struct fd_store *fd_store, const char *name)
{
	struct fd_store_entry *entry = find(fd_store, name);
	int ret = 0;

	if (!entry)
		return;
	if (fd_store->systemd)
		ret = systemd_drop(name);
	if (ret < 0)
		warn_still_parked(name, ret, MANAGER_CURE);
	ret = keeper_drop(fd_store->state_dir, name);
	if (ret < 0 && ret != -ENOENT)
		warn_still_parked(name, ret, cure(ret));
	remove_at(fd_store, entry);
}

void fd_store_prune(struct fd_store *fd_store, bool (*wanted)(const char *name, void *arg),
		    void *arg)
{
	for (unsigned i = fd_store->nr; i-- > 0;) {
		const char *name = fd_store->entries[i].name;

		if (wanted(name, arg))
			continue;
		log_info("nobody wants what is parked", "name=\"%s\"", name);
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
