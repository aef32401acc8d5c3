/*
 * null: takes everything, keeps nothing, answers at once. For measuring what is not the storage.
 *
 * Writes are thrown away. A read leaves the buffer as it is, exactly like the kernel's null_blk
 * without memory backing: its content is undefined. The buffers belong to this device alone and
 * are zeroed when they are allocated, so what a reader can see is zeroes or what was once written
 * to this same device, never memory of the daemon or of another device. Filling the buffer would
 * make every measurement one of memset.
 * With data_path: user_copy there is no such buffer, and a read gives zeroes. Any thread; no state.
 */
#include "storage/registry.h"

#include "base/util.h"

struct null_config {
	uint64_t size_bytes;
};

static const struct option null_options[] = {
	{ .name = "size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct null_config, size_bytes),
	  .min = 512,
	  .def = "250GiB",
	  .help = "Size of the device. It uses no memory." },
	OPTION_END,
};

static int null_open(struct backend_device *device)
{
	const struct null_config *config = device->config;

	device->limits = (struct backend_limits){
		.size_bytes = device->open_params.size_bytes ? device->open_params.size_bytes
							     : config->size_bytes,
		.caps = BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES,
	};
	if (device->open_params.read_only)
		device->limits.caps |= BACKEND_CAP_READ_ONLY;
	return 0;
}

static enum backend_submit null_submit(struct backend_io *io)
{
	io->result = 0;
	/* Without a buffer of ours the request's pages hold what the kernel had in them. */
	if (io->op == BACKEND_READ && !backend_io_in_memory(io))
		io->result = backend_data_put_zeroes(io, 0, io->length_bytes);
	return BACKEND_DONE;
}

/* Any size is as good as another. */
static const struct backend_resize null_resize = { .grow = NULL };

const struct backend backend_null = {
	.name = "null",
	.summary = "For measurements: stores nothing, answers at once; reads are undefined.",
	.options = null_options,
	.size_option = &null_options[0],
	.config_bytes = sizeof(struct null_config),
	.data = BACKEND_DATA_MOVES | BACKEND_DATA_SHMEM,
	.open = null_open,
	.submit = null_submit,
	.resize = &null_resize,
};
