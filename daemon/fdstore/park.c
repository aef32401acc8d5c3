/*
 * Owns a descriptor per name, and tells holders about them. Main thread.
 *
 * Happy path: park_open takes what systemd, the program before an upgrade, or a keeper give ->
 * park_find for each device that is adopted -> park_put when one serves, park_drop when one is
 * removed.
 * Failure modes: a holder that does not answer or refuses is logged; what is held here stays and is
 * handed over by an upgrade all the same. A keeper that died is replaced by the next park_put, and
 * gets everything again.
 */
#include "daemon/fdstore/park.h"

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
#include "daemon/fdstore/keeper_link.h"
#include "daemon/runtime/notify.h"

#define LISTEN_FDS_START 3
#define LISTEN_FDS_MAX 65536u

#define MANAGER_CURE "see why the service manager (NOTIFY_SOCKET) does not answer"

struct park_entry {
	char *name;
	int fd;
};

static bool is_name(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < len; i++)
		if (name[i] < ' ' || name[i] > '~' || name[i] == ':')
			return false;
	return len > 0 && len <= PARK_NAME_MAX;
}

static struct park_entry *find(const struct park *park, const char *name)
{
	for (unsigned i = 0; i < park->nr; i++)
		if (strcmp(park->entries[i].name, name) == 0)
			return &park->entries[i];
	return NULL;
}

static bool same_file(int a, int b)
{
	struct stat stat_a, stat_b;

	return fstat(a, &stat_a) == 0 && fstat(b, &stat_b) == 0 && stat_a.st_dev == stat_b.st_dev &&
	       stat_a.st_ino == stat_b.st_ino;
}

/* Takes fd. Returns 0 or -ENOMEM. */
static int append(struct park *park, const char *name, int fd)
{
	struct park_entry *entries =
		reallocarray(park->entries, park->nr + 1, sizeof(park->entries[0]));
	char *copy = strdup(name);

	if (entries)
		park->entries = entries;
	if (!entries || !copy) {
		free(copy);
		close(fd);
		return -ENOMEM;
	}
	entries[park->nr++] = (struct park_entry){ .name = copy, .fd = fd };
	return 0;
}

/* Takes fd, which came from a holder. */
static int take(struct park *park, const char *name, int fd)
{
	const struct park_entry *entry = find(park, name);

	if (is_name(name) && !entry)
		return append(park, name, fd);
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
static int take_listen_fds(struct park *park)
{
	bool for_us = number_in("LISTEN_PID") == (unsigned)getpid();
	unsigned nr = for_us ? MIN(number_in("LISTEN_FDS"), LISTEN_FDS_MAX) : 0;
	const char *env = getenv("LISTEN_FDNAMES");
	char *names = strdup(env ? env : ""), *name = names;
	int ret = names ? 0 : -ENOMEM;

	for (int fd = LISTEN_FDS_START; names && fd < (int)(LISTEN_FDS_START + nr); fd++) {
		char *next = cut_name(name);

		if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && *name != '\0' && ret == 0)
			ret = take(park, name, fd);
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
	struct park *park;
	int ret;
};

static void take_kept(const char *name, int fd, void *arg)
{
	struct takeover *takeover = arg;
	int ret = take(takeover->park, name, fd);

	if (ret < 0)
		takeover->ret = ret;
}

/* Also where systemd is the holder: the daemon before may have been started by hand. */
static int take_from_keeper(struct park *park)
{
	struct takeover takeover = { .park = park };
	int ret = keeper_each(park->state_dir, take_kept, &takeover);

	if (ret < 0 && ret != -ENOENT)
		log_warn("cannot get the memory that was kept for devices",
			 "state_dir=\"%s\" error=%s cure=\"%s\"", park->state_dir, errname(ret),
			 cure(ret));
	return takeover.ret;
}

static bool is_set(const char *variable)
{
	const char *text = getenv(variable);

	return text && *text != '\0' && strcmp(text, "0") != 0;
}

int park_open(struct park *park, const char *state_dir)
{
	int ret;

	*park = (struct park){
		.state_dir = strdup(state_dir),
		.systemd =
			is_set("NOTIFY_SOCKET") && (is_set("FDSTORE") || is_set("UBLKD_FDSTORE")),
	};
	if (!park->state_dir)
		return -ENOMEM;
	ret = take_listen_fds(park);
	return ret < 0 ? ret : take_from_keeper(park);
}

void park_close(struct park *park)
{
	for (unsigned i = 0; i < park->nr; i++) {
		close(park->entries[i].fd);
		free(park->entries[i].name);
	}
	free(park->entries);
	free(park->state_dir);
	*park = (struct park){ 0 };
}

int park_find(const struct park *park, const char *name)
{
	const struct park_entry *entry = find(park, name);

	return entry ? entry->fd : -ENOENT;
}

static int systemd_drop(const char *name)
{
	char message[PARK_NAME_MAX + 64];

	snprintf(message, sizeof(message), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	return notify_send(message);
}

/* FDPOLL=0: memory has no state that it could be polled for. */
static int systemd_put(const char *name, int fd)
{
	char message[PARK_NAME_MAX + 64];

	snprintf(message, sizeof(message), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	return notify_send_fd(message, fd);
}

static void warn_not_parked(const char *name, int err, const char *what_cures)
{
	log_warn("not parked: what it holds would be lost with the daemon",
		 "name=\"%s\" error=%s cure=\"%s\"", name, errname(err), what_cures);
}

/* What another keeper held, before it died, is held by us alone. */
static int put_others(struct park *park, const struct park_entry *parked)
{
	int ret = 0;

	for (unsigned i = 0; ret >= 0 && i < park->nr; i++) {
		const struct park_entry *entry = &park->entries[i];

		if (entry != parked)
			ret = keeper_put(park->state_dir, park->keeper_exe, entry->name, entry->fd);
	}
	return ret;
}

static void tell_holder(struct park *park, const struct park_entry *entry)
{
	int ret;

	if (park->systemd) {
		ret = systemd_put(entry->name, entry->fd);
		if (ret < 0)
			warn_not_parked(entry->name, ret, MANAGER_CURE);
		return;
	}
	ret = keeper_put(park->state_dir, park->keeper_exe, entry->name, entry->fd);
	if (ret == 1)
		ret = put_others(park, entry);
	if (ret < 0)
		warn_not_parked(entry->name, ret, cure(ret));
}

/* Takes copy. Returns NULL without memory. */
static struct park_entry *set(struct park *park, const char *name, int copy)
{
	struct park_entry *entry = find(park, name);

	if (!entry)
		return append(park, name, copy) == 0 ? find(park, name) : NULL;
	/* systemd would keep both. */
	if (park->systemd && !same_file(entry->fd, copy))
		systemd_drop(name);
	close(entry->fd);
	entry->fd = copy;
	return entry;
}

void park_put(struct park *park, const char *name, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, LISTEN_FDS_START);
	const struct park_entry *entry;

	ASSERT(is_name(name));
	if (copy < 0) {
		warn_not_parked(name, -errno, cure(-errno));
		return;
	}
	entry = set(park, name, copy);
	if (entry)
		tell_holder(park, entry);
	else
		warn_not_parked(name, -ENOMEM, "more memory");
}

static void remove_at(struct park *park, struct park_entry *entry)
{
	close(entry->fd);
	free(entry->name);
	*entry = park->entries[--park->nr];
}

static void warn_still_parked(const char *name, int err, const char *what_cures)
{
	log_warn("still parked: its memory is not free", "name=\"%s\" error=%s cure=\"%s\"", name,
		 errname(err), what_cures);
}

/* At both holders: an older daemon may have had the other one. */
void park_drop(struct park *park, const char *name)
{
	struct park_entry *entry = find(park, name);
	int ret = 0;

	if (!entry)
		return;
	if (park->systemd)
		ret = systemd_drop(name);
	if (ret < 0)
		warn_still_parked(name, ret, MANAGER_CURE);
	ret = keeper_drop(park->state_dir, name);
	if (ret < 0 && ret != -ENOENT)
		warn_still_parked(name, ret, cure(ret));
	remove_at(park, entry);
}

void park_prune(struct park *park, bool (*wanted)(const char *name, void *arg), void *arg)
{
	for (unsigned i = park->nr; i-- > 0;) {
		const char *name = park->entries[i].name;

		if (wanted(name, arg))
			continue;
		log_info("nobody wants what is parked", "name=\"%s\"", name);
		park_drop(park, name);
	}
}

unsigned park_nr(const struct park *park)
{
	return park->nr;
}

const char *park_at(const struct park *park, unsigned idx, int *ret_fd)
{
	ASSERT(idx < park->nr);
	*ret_fd = park->entries[idx].fd;
	return park->entries[idx].name;
}
