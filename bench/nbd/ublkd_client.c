/*
 * The NBD backend without a block device: one queue on a reactor of its own, driven by the rig of
 * the conformance suite. One thread. It prints any error and exits.
 */
#include "load.h"
#include "test/conformance/rig.h"

static struct load load;
static struct rig rig;
static bool over;

static void submit(struct rig_io *rio)
{
	rio->io.op = load.write ? BACKEND_WRITE : BACKEND_READ;
	rio->io.offset_bytes = load_offset(&load, rig.device->limits.size_bytes);
	rio->io.length_bytes = LOAD_IO_BYTES;
	rig_submit(&rig, rio);
}

static void on_done(struct rig_io *rio, void *arg)
{
	(void)arg;
	if (rio->io.result < 0) {
		fprintf(stderr, "I/O failed: %s\n", strerror(-rio->io.result));
		exit(1);
	}
	over = over || load_is_over(&load);
	if (!over)
		submit(rio);
}

static bool open_device(void)
{
	char yaml[512];
	const struct rig_params params = {
		.ops = backend_find("nbd"),
		.name = "bench",
		.yaml = yaml,
		.block_bytes = 512,
		.queue_nr = 1,
		.depth = load.depth,
	};

	if (load.depth > RIG_DEPTH_MAX) {
		fprintf(stderr, "depth: at most %d\n", RIG_DEPTH_MAX);
		return false;
	}
	snprintf(yaml, sizeof(yaml), "uri: \"%.400s\"\n", load.uri);
	if (rig_open(&rig, &params) == 0)
		return true;
	fprintf(stderr, "%s\n", rig.error);
	return false;
}

int main(int argc, char **argv)
{
	load_parse(&load, argc, argv);
	if (!open_device())
		return 1;
	/* connected, and the code is there */
	rig_do(&rig, BACKEND_READ, 0, 0, LOAD_IO_BYTES, rig.queue[0].io[0].io.buf);
	load_start(&load);
	for (unsigned tag = 0; tag < load.depth; tag++) {
		rig.queue[0].io[tag].done = on_done;
		submit(&rig.queue[0].io[tag]);
	}
	rig_drain(&rig);
	load_print(&load);
	rig_close(&rig);
	return 0;
}
