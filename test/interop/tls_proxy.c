/*
 * The TLS end of an NVMe/TCP target that has none: takes TLS 1.3 with a pre-shared key, and hands
 * the plain bytes to a port of this machine. A process for each connection; ends with its parent.
 *
 * Usage: tls_proxy TO_PORT KEY HOST_NQN SUBSYSTEM_NQN VERSION; says "ready 127.0.0.1:PORT".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/nvme/keys/nvme_tls_key.h"

#define TRY(call)                                                                                  \
	do {                                                                                       \
		if ((call) < 0) {                                                                  \
			fprintf(stderr, "tls_proxy: %s failed\n", #call);                          \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static struct nvme_tls_psk psk;

static int on_identity(gnutls_session_t session, const char *identity, gnutls_datum_t *key)
{
	(void)session;
	if (strcmp(identity, psk.identity) != 0) {
		fprintf(stderr, "tls_proxy: identity \"%s\" instead of \"%s\"\n", identity,
			psk.identity);
		return -1;
	}
	key->data = gnutls_malloc(psk.bytes);
	key->size = psk.bytes;
	memcpy(key->data, psk.psk, psk.bytes);
	return 0;
}

static struct sockaddr_in loopback(int port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons((uint16_t)port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static void write_all(int fd, const char *buf, ssize_t bytes)
{
	while (bytes > 0) {
		ssize_t nr = write(fd, buf, (size_t)bytes);

		if (nr <= 0)
			exit(0);
		buf += nr;
		bytes -= nr;
	}
}

static void plain_to_target(gnutls_session_t session, int to, char *buf, size_t bytes)
{
	do {
		ssize_t nr = gnutls_record_recv(session, buf, bytes);

		if (nr == GNUTLS_E_AGAIN || nr == GNUTLS_E_INTERRUPTED)
			continue;
		if (nr <= 0)
			exit(0);
		write_all(to, buf, nr);
	} while (gnutls_record_check_pending(session) > 0);
}

static void target_to_plain(gnutls_session_t session, int to, char *buf, size_t bytes)
{
	ssize_t nr = read(to, buf, bytes);

	if (nr <= 0)
		exit(0);
	for (ssize_t at = 0, sent; at < nr; at += sent) {
		sent = gnutls_record_send(session, buf + at, (size_t)(nr - at));
		if (sent < 0)
			exit(0);
	}
}

static void forward(gnutls_session_t session, int from, int to)
{
	static char buf[64 << 10];
	struct pollfd fds[2] = { { .fd = from, .events = POLLIN }, { .fd = to, .events = POLLIN } };

	for (;;) {
		poll(fds, 2, -1);
		if (fds[0].revents)
			plain_to_target(session, to, buf, sizeof(buf));
		if (fds[1].revents)
			target_to_plain(session, to, buf, sizeof(buf));
	}
}

static void serve(int from, int to_port)
{
	struct sockaddr_in address = loopback(to_port);
	gnutls_psk_server_credentials_t credentials;
	gnutls_session_t session;
	int to = socket(AF_INET, SOCK_STREAM, 0), ret;

	TRY(connect(to, (struct sockaddr *)&address, sizeof(address)));
	TRY(gnutls_psk_allocate_server_credentials(&credentials));
	gnutls_psk_set_server_credentials_function(credentials, on_identity);
	TRY(gnutls_init(&session, GNUTLS_SERVER));
	TRY(gnutls_priority_set_direct(
		session, "NORMAL:-VERS-ALL:+VERS-TLS1.3:+ECDHE-PSK:+DHE-PSK:+PSK", NULL));
	TRY(gnutls_credentials_set(session, GNUTLS_CRD_PSK, credentials));
	gnutls_transport_set_int(session, from);
	do
		ret = gnutls_handshake(session);
	while (ret < 0 && !gnutls_error_is_fatal(ret));
	if (ret < 0) {
		gnutls_alert_send_appropriate(session, ret);
		exit(0);
	}
	forward(session, from, to);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = loopback(0);
	socklen_t bytes = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct nvme_tls_key key;
	char words[200];

	if (argc != 6 || nvme_tls_key_parse(&key, argv[2], words, sizeof(words)) < 0)
		return 2;
	const struct nvme_tls_derivation how = { .version = (enum nvme_tls_version)atoi(argv[5]),
						 .host_nqn = argv[3],
						 .subsystem_nqn = argv[4] };
	TRY(nvme_tls_psk_derive(&psk, &key, &how));
	TRY(bind(fd, (struct sockaddr *)&address, bytes));
	TRY(listen(fd, 64));
	TRY(getsockname(fd, (struct sockaddr *)&address, &bytes));
	printf("ready 127.0.0.1:%d\n", ntohs(address.sin_port));
	fflush(stdout);
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	for (;;) {
		int client = accept(fd, NULL, NULL);

		if (client >= 0 && fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(fd);
			serve(client, atoi(argv[1]));
		}
		if (client >= 0)
			close(client);
	}
}
