/*
 * The same load by the asynchronous calls of libnbd, the usual client library. One thread: nbd_poll
 * runs the state machine. Callbacks hold the handle's lock and must not submit, so they only note
 * which requests have completed.
 */
#include <libnbd.h>

#include "load.h"

static struct load load;
static struct nbd_handle *nbd;
static uint64_t size_bytes;
static unsigned ended[LOAD_DEPTH_MAX], ended_nr, out_nr;
static char buf[LOAD_DEPTH_MAX][LOAD_IO_BYTES] __attribute__((aligned(4096)));

static int die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, nbd_get_error());
	exit(1);
}

static int on_done(void *arg, int *error)
{
	if (*error) {
		fprintf(stderr, "I/O failed: %s\n", strerror(*error));
		exit(1);
	}
	ended[ended_nr++] = (unsigned)(uintptr_t)arg;
	return 1; /* retired */
}

static void submit(unsigned tag)
{
	const nbd_completion_callback done = { .callback = on_done,
					       .user_data = (void *)(uintptr_t)tag };
	uint64_t offset_bytes = load_offset(&load, size_bytes);
	int64_t cookie =
		load.write ? nbd_aio_pwrite(nbd, buf[tag], LOAD_IO_BYTES, offset_bytes, done, 0)
			   : nbd_aio_pread(nbd, buf[tag], LOAD_IO_BYTES, offset_bytes, done, 0);

	if (cookie < 0)
		die("submit");
	out_nr++;
}

/* Submits again what completed during nbd_poll, until the time is over. */
static bool go_on(bool over)
{
	while (ended_nr > 0) {
		unsigned tag = ended[--ended_nr];

		out_nr--;
		over = load_is_over(&load) || over;
		if (!over)
			submit(tag);
	}
	return over;
}

int main(int argc, char **argv)
{
	bool over = false;

	load_parse(&load, argc, argv);
	nbd = nbd_create();
	if (!nbd || nbd_connect_uri(nbd, load.uri) < 0)
		die(load.uri);
	size_bytes = (uint64_t)nbd_get_size(nbd);
	if (nbd_pread(nbd, buf[0], LOAD_IO_BYTES, 0, 0) < 0)
		die("the first read");
	load_start(&load);
	for (unsigned tag = 0; tag < load.depth; tag++)
		submit(tag);
	while (out_nr > 0) {
		if (nbd_poll(nbd, -1) < 0)
			die("poll");
		over = go_on(over);
	}
	load_print(&load);
	nbd_shutdown(nbd, 0);
	nbd_close(nbd);
	return 0;
}
