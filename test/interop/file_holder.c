/*
 * Opens a file as a device of ublkd does, and holds it until its input ends. Prints "open", or why
 * not, with exit code 1. Without queues: it does no I/O. For qemu_locks.sh.
 *
 *	file_holder PATH raw|image [write|read [auto|on|off]]
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backends/file/file.h"
#include "base/log.h"
#include "storage/node.h"
#include "storage/registry.h"

static const struct backend image = {
	.name = "image",
	.is_image_format = true,
	.children = backend_one_child,
	.submit = backend_forward,
};

static int lock_mode(const char *word)
{
	if (strcmp(word, "off") == 0)
		return FILE_LOCK_OFF;
	return strcmp(word, "on") == 0 ? FILE_LOCK_ON : FILE_LOCK_AUTO;
}

static void wait_for_end(void)
{
	char c;

	puts("open");
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
}

int main(int argc, char **argv)
{
	const struct backend_open_params params = {
		.logical_block_bytes = 512,
		.max_io_bytes = 1 << 20,
		.queue_nr = 1,
		.depth = 1,
		.read_only = argc > 3 && strcmp(argv[3], "read") == 0,
	};
	struct file_config config = { .lock = lock_mode(argc > 4 ? argv[4] : "auto") };
	const struct backend_spec file = { .ops = &backend_file, .config = &config };
	const struct backend_spec top = { .ops = &image, .child = &file };
	struct backend_device *device = NULL;
	char error[BACKEND_ERROR_BYTES];

	if (argc < 3) {
		fprintf(stderr, "usage: %s PATH raw|image [write|read [auto|on|off]]\n", argv[0]);
		return 2;
	}
	log_init(LOG_LEVEL_ERROR);
	config.path = argv[1];
	if (backend_open(&device, strcmp(argv[2], "image") == 0 ? &top : &file, "disk", &params,
			 error, sizeof(error)) < 0) {
		printf("%s\n", error);
		return 1;
	}
	wait_for_end();
	backend_close(device);
	return 0;
}
