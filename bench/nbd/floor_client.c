/*
 * The lower bound of an NBD client: it sends DEPTH requests in one call, receives all their replies
 * in one call, and does not look at them. No block device on NBD can cost less than this client and
 * the server. Simple replies, one thread.
 */
#include <endian.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "load.h"

#define REQUEST_BYTES 28u
#define REPLY_BYTES 16u

static char out[LOAD_DEPTH_MAX * (REQUEST_BYTES + LOAD_IO_BYTES)];
static char in[LOAD_DEPTH_MAX * (REPLY_BYTES + LOAD_IO_BYTES)];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void send_all(int fd, const void *data, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = send(fd, (const char *)data + at, bytes - at, 0);

		if (n <= 0)
			die("send");
		at += (size_t)n;
	}
}

static void receive_all(int fd, void *data, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = recv(fd, (char *)data + at, bytes - at, MSG_WAITALL);

		if (n <= 0)
			die("receive");
		at += (size_t)n;
	}
}

/* The path of a unix socket, or PORT on 127.0.0.1. */
static int connect_to(const char *place)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct sockaddr_in inet = { .sin_family = AF_INET,
				    .sin_port = htons((uint16_t)atoi(place)),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	bool is_unix = place[0] == '/';
	int fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM, 0), one = 1;

	snprintf(un.sun_path, sizeof(un.sun_path), "%s", place);
	if (!is_unix)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, is_unix ? (struct sockaddr *)&un : (struct sockaddr *)&inet,
		    is_unix ? sizeof(un) : sizeof(inet)) < 0)
		die(place);
	return fd;
}

/* Fixed newstyle, EXPORT_NAME without a name, NO_ZEROES (proto.md); returns the export's size. */
static uint64_t shake_hands(int fd)
{
	struct __attribute__((packed)) {
		uint32_t flags;
		uint64_t magic;
		uint32_t option, length;
	} hello = { htobe32(3), htobe64(0x49484156454F5054ull), htobe32(1), 0 };
	uint64_t size;

	receive_all(fd, in, 18);
	send_all(fd, &hello, sizeof(hello));
	receive_all(fd, in, 10);
	memcpy(&size, in, sizeof(size));
	return be64toh(size);
}

static size_t add_request(struct load *load, size_t at, uint64_t size_bytes)
{
	struct __attribute__((packed)) {
		uint32_t magic;
		uint16_t flags, command;
		uint64_t cookie, offset;
		uint32_t length;
	} request = { htobe32(0x25609513),
		      0,
		      htobe16(load->write ? 1 : 0),
		      at,
		      htobe64(load_offset(load, size_bytes)),
		      htobe32(LOAD_IO_BYTES) };

	memcpy(out + at, &request, sizeof(request));
	return at + sizeof(request) + (load->write ? LOAD_IO_BYTES : 0);
}

int main(int argc, char **argv)
{
	struct load load;
	uint64_t size_bytes;
	bool over = false;
	int fd;

	load_parse(&load, argc, argv);
	fd = connect_to(load.uri);
	size_bytes = shake_hands(fd);
	load_start(&load);
	while (!over) {
		size_t bytes = 0;

		for (unsigned i = 0; i < load.depth; i++) {
			bytes = add_request(&load, bytes, size_bytes);
			over = load_is_over(&load) || over;
		}
		send_all(fd, out, bytes);
		receive_all(fd, in, load.depth * (REPLY_BYTES + (load.write ? 0 : LOAD_IO_BYTES)));
	}
	load_print(&load);
	close(fd);
	return 0;
}
