/* Starts nbd_server.py and talks to its control socket. One thread. */
#include "nbd_peer.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVER UBLKD_SOURCE "/test/interop/nbd_server.py"
#define ARGS_MAX 32
#define ANSWER_BYTES 1024

__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}

static void make_dir(struct nbd_peer *peer)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(peer->dir, sizeof(peer->dir), "%.50s/nbd-peer.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(peer->dir))
		give_up("%s: %s", peer->dir, strerror(errno));
	snprintf(peer->uri, sizeof(peer->uri), "nbd+unix:///?socket=%s/nbd", peer->dir);
}

static void run_server(const struct nbd_peer *peer, const char *const *args)
{
	char control[100], path[100];
	const char *argv[ARGS_MAX] = {
		"python3", SERVER, "--unix", path, "--control", control, NULL
	};
	unsigned nr = 6;

	snprintf(path, sizeof(path), "%s/nbd", peer->dir);
	snprintf(control, sizeof(control), "%s/control", peer->dir);
	while (args && *args && nr + 1 < ARGS_MAX)
		argv[nr++] = *args++;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execvp(argv[0], (char *const *)argv);
	give_up("cannot run %s: %s", argv[0], strerror(errno));
}

static int try_connect(const struct nbd_peer *peer)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(name.sun_path, sizeof(name.sun_path), "%s/control", peer->dir);
	if (connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0)
		return fd;
	close(fd);
	return -1;
}

void nbd_peer_start(struct nbd_peer *peer, const char *const *args)
{
	*peer = (struct nbd_peer){ .control_fd = -1 };
	make_dir(peer);
	peer->pid = fork();
	if (peer->pid == 0)
		run_server(peer, args);
	for (int i = 0; i < 6000 && peer->control_fd < 0; i++) {
		peer->control_fd = try_connect(peer);
		if (peer->control_fd < 0)
			usleep(10000);
	}
	if (peer->control_fd < 0)
		give_up("%s does not come up", SERVER);
}

void nbd_peer_stop(struct nbd_peer *peer)
{
	char command[120];

	if (peer->pid <= 0)
		return;
	kill(peer->pid, SIGKILL);
	waitpid(peer->pid, NULL, 0);
	close(peer->control_fd);
	snprintf(command, sizeof(command), "rm -rf '%s'", peer->dir);
	if (system(command) != 0)
		fprintf(stderr, "cannot remove %s\n", peer->dir);
	*peer = (struct nbd_peer){ .control_fd = -1 };
}

/* One line out, one line back. */
static void ask(struct nbd_peer *peer, const char *line, char answer[static ANSWER_BYTES])
{
	size_t have = 0;
	ssize_t nr;

	if (dprintf(peer->control_fd, "%s\n", line) < 0)
		give_up("%s: %s", line, strerror(errno));
	while (have < ANSWER_BYTES - 1 && (have == 0 || answer[have - 1] != '\n')) {
		nr = read(peer->control_fd, answer + have, ANSWER_BYTES - 1 - have);
		if (nr <= 0)
			give_up("%s: the server has gone", line);
		have += (size_t)nr;
	}
	answer[have] = '\0';
	if (strncmp(answer, "ok", 2) != 0)
		give_up("%s: %s", line, answer);
}

void nbd_peer_tell(struct nbd_peer *peer, const char *fmt, ...)
{
	char line[256], answer[ANSWER_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	ask(peer, line, answer);
}

uint64_t nbd_peer_count(struct nbd_peer *peer, const char *name)
{
	char answer[ANSWER_BYTES], key[64];
	const char *at;

	ask(peer, "stats", answer);
	snprintf(key, sizeof(key), " %s=", name);
	at = strstr(answer, key);
	if (!at)
		give_up("no number is called %s: %s", name, answer);
	return strtoull(at + strlen(key), NULL, 10);
}
