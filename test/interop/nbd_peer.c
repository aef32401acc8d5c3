/* nbd_server.py: where it listens, and the words of its control socket. One thread. */
#include "nbd_peer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 32

void nbd_peer_start(struct fault_peer *peer, const char *const *args)
{
	char path[100];
	const char *argv[ARGS_MAX] = { "--unix", path };
	unsigned nr = 2;

	fault_peer_init(peer);
	peer->count = nbd_peer_count;
	snprintf(path, sizeof(path), "%s/nbd", peer->dir);
	snprintf(peer->uri, sizeof(peer->uri), "nbd+unix:///?socket=%s", path);
	while (args && *args && nr + 1 < ARGS_MAX)
		argv[nr++] = *args++;
	fault_peer_start(peer, "nbd_server.py", argv);
}

void nbd_peer_tell(struct fault_peer *peer, const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fault_peer_ask(peer, line, "ok");
}

uint64_t nbd_peer_count(struct fault_peer *peer, const char *name)
{
	const char *answer = fault_peer_ask(peer, "stats", "ok"), *at;
	char key[64];

	snprintf(key, sizeof(key), " %s=", name);
	at = strstr(answer, key);
	if (!at)
		fault_peer_give_up("no number is called %s: %s", name, answer);
	return strtoull(at + strlen(key), NULL, 10);
}
