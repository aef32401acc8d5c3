/*
 * An id can be a device's of this daemon (added by hand, or one that is not gone yet), of another
 * ublk server, or of nobody who lives. Owns nothing.
 */
#include "daemon/devices/device_set_id.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ublk/servers.h"

static const struct member *find_own(const struct device_set *f, const struct member *but,
				     int64_t id)
{
	struct device_info info;

	list_for_each (node, &f->members) {
		const struct member *m = list_entry(node, struct member, node);

		if (m == but || !m->device || m->ended)
			continue;
		device_info(m->device, &info);
		if (info.id == id)
			return m;
	}
	return NULL;
}

struct server {
	unsigned id;
	int pid; /* 0: none was seen */
};

static void note_server(int pid, unsigned id, void *arg)
{
	struct server *s = arg;

	if (id == s->id && pid != getpid())
		s->pid = pid;
}

static void read_name(int pid, char *name, size_t bytes)
{
	char path[64];
	FILE *file;

	snprintf(name, bytes, "process");
	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fgets(name, (int)bytes, file))
		name[strcspn(name, "\n")] = '\0';
	fclose(file);
}

void device_set_explain_id(const struct device_set *f, const struct member *m, const char *folder,
			   char *text, size_t bytes)
{
	const struct member *own = find_own(f, m, m->settings->id);
	struct server server = { .id = (unsigned)m->settings->id };
	const char *other;
	char name[32];

	if (own) {
		other = own->settings->options.name;
		snprintf(text, bytes,
			 "id %u is taken by device \"%s\" of this daemon: choose another id, or "
			 "remove "
			 "that device (ublkctl del %s) and reload",
			 server.id, other, other);
		return;
	}
	servers_find(folder, note_server, &server);
	if (server.pid) {
		read_name(server.pid, name, sizeof(name));
		snprintf(
			text, bytes,
			"id %u is taken by a device of another ublk server, %s[%d]: choose another "
			"id, or remove %s/ublkb%u there and reload",
			server.id, name, server.pid, folder, server.id);
		return;
	}
	snprintf(text, bytes,
		 "id %u is taken by a device that no process serves: choose another id, or remove "
		 "that device (ublkctl gc %u --remove) and reload",
		 server.id, server.id);
}
