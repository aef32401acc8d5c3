/* Starts a misbehaving peer and talks to its control socket. One thread. */
#include "fault_peer.h"

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

#define FOLDER UBLKD_SOURCE "/test/interop/"
#define ARGS_MAX 64

void fault_peer_give_up(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}

void fault_peer_init(struct fault_peer *peer)
{
	const char *tmp = getenv("TMPDIR");

	*peer = (struct fault_peer){ .control_fd = -1 };
	snprintf(peer->dir, sizeof(peer->dir), "%.50s/peer.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(peer->dir))
		fault_peer_give_up("%s: %s", peer->dir, strerror(errno));
}

static void run_peer(const struct fault_peer *peer, const char *program, const char *const *args)
{
	char control[100];
	const char *argv[ARGS_MAX] = { "python3", program, "--control", control, NULL };
	unsigned nr = 4;

	snprintf(control, sizeof(control), "%s/control", peer->dir);
	while (args && *args && nr + 1 < ARGS_MAX)
		argv[nr++] = *args++;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execvp(argv[0], (char *const *)argv);
	fault_peer_give_up("cannot run %s: %s", argv[0], strerror(errno));
}

static int try_connect(const struct fault_peer *peer)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(name.sun_path, sizeof(name.sun_path), "%s/control", peer->dir);
	if (connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0)
		return fd;
	close(fd);
	return -1;
}

void fault_peer_start(struct fault_peer *peer, const char *program, const char *const *args)
{
	char path[200];

	snprintf(path, sizeof(path), FOLDER "%s", program);
	peer->pid = fork();
	if (peer->pid == 0)
		run_peer(peer, path, args);
	for (int i = 0; i < 6000 && peer->control_fd < 0; i++) {
		peer->control_fd = try_connect(peer);
		if (peer->control_fd < 0)
			usleep(10000);
	}
	if (peer->control_fd < 0)
		fault_peer_give_up("%s does not come up", program);
}

void fault_peer_kill(struct fault_peer *peer)
{
	char path[100];

	if (peer->pid <= 0)
		return;
	kill(peer->pid, SIGKILL);
	waitpid(peer->pid, NULL, 0);
	close(peer->control_fd);
	peer->pid = 0;
	peer->control_fd = -1;
	/* Else the next one could not listen there. */
	snprintf(path, sizeof(path), "%s/control", peer->dir);
	unlink(path);
}

void fault_peer_stop(struct fault_peer *peer)
{
	char command[120];

	fault_peer_kill(peer);
	if (peer->dir[0] == '\0')
		return;
	snprintf(command, sizeof(command), "rm -rf '%s'", peer->dir);
	if (system(command) != 0)
		fprintf(stderr, "cannot remove %s\n", peer->dir);
	*peer = (struct fault_peer){ .control_fd = -1 };
}

const char *fault_peer_ask(struct fault_peer *peer, const char *line, const char *ok)
{
	static char answer[FAULT_PEER_ANSWER_BYTES];
	size_t have = 0;
	ssize_t nr;

	if (dprintf(peer->control_fd, "%s\n", line) < 0)
		fault_peer_give_up("%s: %s", line, strerror(errno));
	while (have < sizeof(answer) - 1 && (have == 0 || answer[have - 1] != '\n')) {
		nr = read(peer->control_fd, answer + have, sizeof(answer) - 1 - have);
		if (nr <= 0)
			fault_peer_give_up("%s: the peer has gone", line);
		have += (size_t)nr;
	}
	answer[have] = '\0';
	if (strncmp(answer, ok, strlen(ok)) != 0)
		fault_peer_give_up("%s: %s", line, answer);
	return answer;
}
