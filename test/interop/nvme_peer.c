/* nvme_target.py: its ports, and the words of its control socket. One thread. */
#include "nvme_peer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGS_MAX 60

unsigned nvme_peer_port[NVME_PEER_PORTS];

/* "ready 127.0.0.1:1024 127.0.0.1:1025" */
static void learn_ports(int fd, unsigned port_nr)
{
	char line[200];
	ssize_t nr = read(fd, line, sizeof(line) - 1);
	const char *at = line;

	line[nr > 0 ? nr : 0] = '\0';
	for (unsigned i = 0; i < port_nr; i++) {
		at = strchr(at, ':');
		if (!at)
			fault_peer_give_up("the target's ports: %s", line);
		nvme_peer_port[i] = (unsigned)strtoul(++at, NULL, 10);
	}
}

void nvme_peer_start(struct fault_peer *peer, unsigned port_nr, const char *const *args)
{
	char listen[NVME_PEER_PORTS][32], ready_fd[16];
	const char *argv[ARGS_MAX] = { "--subsystem", NVME_PEER_SUBSYSTEM, "--ready-fd", ready_fd };
	unsigned nr = 4;
	int ready[2];

	if (peer->dir[0] == '\0')
		fault_peer_init(peer);
	if (pipe(ready) < 0)
		abort();
	snprintf(ready_fd, sizeof(ready_fd), "%d", ready[1]);
	for (unsigned i = 0; i < port_nr; i++) {
		snprintf(listen[i], sizeof(listen[i]), "127.0.0.1:%u", nvme_peer_port[i]);
		argv[nr++] = "--listen";
		argv[nr++] = listen[i];
	}
	while (args && *args && nr + 1 < ARGS_MAX)
		argv[nr++] = *args++;
	peer->count = nvme_peer_count;
	fault_peer_start(peer, "nvme_target.py", argv);
	close(ready[1]);
	learn_ports(ready[0], port_nr);
	close(ready[0]);
	snprintf(peer->uri, sizeof(peer->uri), "nvme+tcp://127.0.0.1:%u/" NVME_PEER_SUBSYSTEM,
		 nvme_peer_port[0]);
}

void nvme_peer_tell(struct fault_peer *peer, const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fault_peer_ask(peer, line, "{\"ok\": true");
}

uint64_t nvme_peer_count(struct fault_peer *peer, const char *name)
{
	const char *at = fault_peer_ask(peer, "stats", "{\"ok\": true"), *end = NULL;
	const char *dot = strchr(name, '.');
	char key[64];

	if (dot) {
		snprintf(key, sizeof(key), "\"%.*s\": {", (int)(dot - name), name);
		at = strstr(at, key);
		end = at ? strchr(at, '}') : NULL;
		name = dot + 1;
	}
	snprintf(key, sizeof(key), "\"%s\": ", name);
	at = at ? strstr(at, key) : NULL;
	if (!at && !dot)
		fault_peer_give_up("no number is called %s", name);
	return at && (!end || at < end) ? strtoull(at + strlen(key), NULL, 10) : 0;
}
