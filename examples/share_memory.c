/*
 * A client that shares its memory with a device of ublkd, so that its direct I/O is not copied
 * (docs/shared-memory.md). Makes memory, hands it to ublkd, writes a block of it to the device,
 * reads it back to another place of it, compares, and takes the memory back.
 *
 *   cc -O2 -o share_memory share_memory.c
 *   ./share_memory [--huge] SOCKET NAME NODE     as /run/ublkd/control.sock disk /dev/ublkb0
 *
 * Overwrites the first 64 KiB of the device. Exit code 0: what was read is what was written.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MEMORY_BYTES (4u << 20) /* whole pages, also huge ones */
#define IO_BYTES (64u << 10)

static void fail(const char *what)
{
	fprintf(stderr, "share_memory: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ublkd wants the seal: without it the memory could be truncated while ublkd uses it. */
static int make_memory(int huge)
{
	int fd = memfd_create("share_memory",
			      MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0));

	if (fd < 0 || ftruncate(fd, MEMORY_BYTES) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		fail("memfd");
	return fd;
}

static int connect_to(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (sock < 0 || connect(sock, (void *)&addr, sizeof(addr)) < 0)
		fail(path);
	return sock;
}

/* A line of JSON there, with a descriptor along with it (-1: none), and one back. */
static void ask(int sock, const char *line, int fd, char *answer, size_t bytes)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} room = { .header = { .cmsg_level = SOL_SOCKET,
			       .cmsg_type = SCM_RIGHTS,
			       .cmsg_len = CMSG_LEN(sizeof(int)) } };
	struct iovec iov = { .iov_base = (void *)line, .iov_len = strlen(line) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	size_t have = 0;

	if (fd >= 0) {
		memcpy(CMSG_DATA(&room.header), &fd, sizeof(fd));
		msg.msg_control = &room;
		msg.msg_controllen = sizeof(room.bytes);
	}
	if (sendmsg(sock, &msg, 0) != (ssize_t)iov.iov_len)
		fail("sendmsg");
	while (have + 1 < bytes && (have == 0 || answer[have - 1] != '\n')) {
		ssize_t got = recv(sock, answer + have, bytes - 1 - have, 0);

		if (got <= 0)
			fail("recv");
		have += (size_t)got;
	}
	answer[have] = '\0';
}

/* Returns the number of the buffer. */
static int share(int sock, const char *name, int fd)
{
	char line[256], answer[4096];
	const char *buffer;

	snprintf(line, sizeof(line), "{\"command\":\"share\",\"name\":\"%s\"}\n", name);
	ask(sock, line, fd, answer, sizeof(answer));
	buffer = strstr(answer, "\"buffer\":");
	if (!buffer) {
		fprintf(stderr, "share_memory: %s", answer);
		exit(1);
	}
	return atoi(buffer + strlen("\"buffer\":"));
}

static void unshare_memory(int sock, const char *name, int buffer)
{
	char line[256], answer[4096];

	snprintf(line, sizeof(line),
		 "{\"command\":\"unshare\",\"name\":\"%s\",\"buffer\":\"%d\"}\n", name, buffer);
	ask(sock, line, -1, answer, sizeof(answer));
	if (!strstr(answer, "\"ok\":true")) {
		fprintf(stderr, "share_memory: %s", answer);
		exit(1);
	}
}

/* Only direct I/O reaches the device with the client's own pages. */
static void write_and_read(const char *node, char *memory)
{
	int fd = open(node, O_RDWR | O_DIRECT | O_CLOEXEC);

	if (fd < 0)
		fail(node);
	for (unsigned i = 0; i < IO_BYTES; i++)
		memory[i] = (char)(i * 7 + i / 256);
	if (pwrite(fd, memory, IO_BYTES, 0) != IO_BYTES)
		fail("write");
	if (pread(fd, memory + MEMORY_BYTES / 2, IO_BYTES, 0) != IO_BYTES)
		fail("read");
	close(fd);
}

int main(int argc, char **argv)
{
	int huge = argc > 1 && strcmp(argv[1], "--huge") == 0, sock, fd, buffer, same;
	char *memory;

	argv += huge;
	if (argc - huge != 4) {
		fprintf(stderr, "usage: share_memory [--huge] SOCKET NAME NODE\n");
		return 2;
	}
	fd = make_memory(huge);
	memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		fail("mmap");
	sock = connect_to(argv[1]);
	buffer = share(sock, argv[2], fd);
	write_and_read(argv[3], memory);
	same = memcmp(memory, memory + MEMORY_BYTES / 2, IO_BYTES) == 0;
	unshare_memory(sock, argv[2], buffer);
	printf("buffer %d: what was read is %swhat was written\n", buffer, same ? "" : "NOT ");
	return !same;
}
