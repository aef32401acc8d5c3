/*
 * A ublkd as target: attaches to its probe points. Owns nothing: the caller destroys the BPF links.
 * Main thread.
 *
 * Happy path: the program of the target has the notes of the probe points (usdt.h); each is
 * attached. Failure modes: a program without probe points, or no ublkd at all: nothing to do; an
 * older ublkd without some of them: the others are attached.
 */
#include "ublktrace/record/capture_daemon.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "events.skel.h"
#include "ublktrace/elf/usdt.h"

/* The file that the shell would run. False: none. */
static bool command_path(const char *command, char *path, size_t bytes)
{
	const char *folders = getenv("PATH");

	if (strchr(command, '/'))
		return snprintf(path, bytes, "%s", command) < (int)bytes;
	while (folders && *folders) {
		int len = (int)strcspn(folders, ":");

		if (snprintf(path, bytes, "%.*s/%s", len, folders, command) < (int)bytes &&
		    !access(path, X_OK))
			return true;
		folders += len;
		folders += *folders == ':';
	}
	return false;
}

/* The program that may have the probe points. After an upgrade its path may name another file. */
static bool program_path(const struct target *t, char *path, size_t bytes)
{
	struct usdt_place place;

	if (t->command)
		return command_path(t->command[0], path, bytes);
	if (t->pid > 0)
		return snprintf(path, bytes, "/proc/%d/exe", (int)t->pid) < (int)bytes;
	return !usdt_find("ublkd", "io__commit", &place) &&
	       snprintf(path, bytes, "%s", place.path) < (int)bytes;
}

int capture_daemon_attach(struct events_bpf *s, const struct target *t,
			  struct bpf_link *links[CAPTURE_PROBE_NR])
{
	const struct {
		const char *name;
		struct bpf_program *program;
	} probes[CAPTURE_PROBE_NR] = {
		{ "io__fetch", s->progs.io_fetch },   { "io__submit", s->progs.io_submit },
		{ "io__busy", s->progs.io_busy },     { "io__done", s->progs.io_done },
		{ "io__commit", s->progs.io_commit }, { "cqe__reap", s->progs.cqe_reap },
	};
	char path[512];
	uint64_t offset;
	int nr = 0, ret = 0;

	if (!program_path(t, path, sizeof(path)) ||
	    usdt_find_in(path, "ublkd", "io__commit", &offset) < 0)
		return 0;
	for (unsigned i = 0; i < CAPTURE_PROBE_NR; i++) {
		links[i] = bpf_program__attach_usdt(probes[i].program, t->pid > 0 ? t->pid : -1,
						    path, "ublkd", probes[i].name, NULL);
		if (links[i])
			nr++;
		else if (errno != ENOENT)
			ret = -errno;
	}
	return nr ? nr : ret;
}

void capture_daemon_devices(struct events_bpf *s, const struct target *t)
{
	char path[300], file[64];
	struct dirent *entry;
	uint8_t one = 1;
	uint32_t id;
	ssize_t len;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)t->pid);
	dir = t->pid > 0 ? opendir(path) : NULL;
	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)t->pid, entry->d_name);
		len = readlink(path, file, sizeof(file) - 1);
		file[len > 0 ? len : 0] = '\0';
		if (sscanf(file, "/dev/ublkc%u", &id) == 1)
			bpf_map__update_elem(s->maps.devices, &id, sizeof(id), &one, sizeof(one),
					     BPF_ANY);
	}
	if (dir)
		closedir(dir);
}
