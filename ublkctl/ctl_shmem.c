/*
 * ublkctl share, unshare: memory of a client for a device.
 *
 * Happy path: the file is opened as whoever runs this may open it, and its descriptor goes to ublkd
 * with the request. Failure modes: it cannot be opened, or is no memory: nothing is sent; ublkd
 * refuses: printed as for all commands.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/format.h"
#include "base/util.h"
#include "ublkctl/client.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/table.h"

static void print_shared(const json_t *data)
{
	printf("%llu\n", client_number(data, "buffer"));
}

/* Opening a device or a pipe could do something, or wait: O_NONBLOCK. */
static int open_memory(const char *path, bool read_only)
{
	int flags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK, fd;

	fd = open(path, flags | (read_only ? O_RDONLY : O_RDWR));
	if (fd < 0) {
		fprintf(stderr, "ublkctl: %s: %s\n", path, strerror(errno));
		return -1;
	}
	if (fcntl(fd, F_GET_SEALS) >= 0)
		return fd;
	fprintf(stderr,
		"ublkctl: %s is no memory: expected a file in tmpfs (as below /dev/shm) or in "
		"hugetlbfs\n",
		path);
	close(fd);
	return -1;
}

enum exit_code ublkctl_share(const struct ublkctl_args *a)
{
	json_t *request = client_request("share", a->name);
	enum exit_code code;
	int fd;

	if (!a->words[0])
		ublkctl_usage_error("the file to share is missing after ", "share NAME");
	if (a->words[1])
		ublkctl_usage_error("share takes one file, unexpected: ", a->words[1]);
	fd = open_memory(a->words[0], a->read_only);
	if (fd < 0) {
		json_decref(request);
		return EXIT_REFUSED;
	}
	if (a->read_only)
		json_object_set_new(request, "read_only", json_true());
	code = client_send_fd_and_print(a, request, fd, print_shared);
	close(fd);
	return code;
}

enum exit_code ublkctl_unshare(const struct ublkctl_args *a)
{
	json_t *request = client_request("unshare", a->name);

	if (!a->words[0])
		ublkctl_usage_error("the number of the buffer is missing after ", "unshare NAME");
	if (a->words[1])
		ublkctl_usage_error("unshare takes one buffer, unexpected: ", a->words[1]);
	client_set_text(&request, "buffer", a->words[0]);
	return client_ask_and_print(a, request, 0, NULL);
}

static const char *shared_state(const json_t *buffer)
{
	if (json_is_true(json_object_get(buffer, "leaving")))
		return "is being taken back";
	if (json_is_true(json_object_get(buffer, "torn")))
		return "pages are missing: copied";
	return json_is_true(json_object_get(buffer, "read_only")) ? "writes only" : "in use";
}

void print_shmem(const json_t *buffers)
{
	static const char *const head[] = { "SHARED", "SIZE", "STATE", "FILE" };
	char size[FORMAT_BYTES];
	struct table t;
	json_t *one;
	size_t i;

	if (json_array_size(buffers) == 0)
		return;
	table_init(&t, "rrll");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(buffers, i, one)
	{
		table_cell(&t, TABLE_PLAIN, "%llu", client_number(one, "buffer"));
		table_cell(&t, TABLE_PLAIN, "%s", format_bytes(client_number(one, "bytes"), size));
		table_cell(&t, TABLE_PLAIN, "%s", shared_state(one));
		table_cell(&t, TABLE_PLAIN, "%s", client_text(one, "file"));
	}
	table_print(&t);
	table_fini(&t);
}
