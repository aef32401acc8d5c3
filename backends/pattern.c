/*
 * pattern, and the backend to copy when writing a new one: small, but with every part that a
 * backend has. It is a read-only device of any size in which each 8-byte word holds its own byte
 * offset (little endian), so that misplaced reads are seen at once.
 *
 * Owns nothing but its private areas, which the core allocates. open runs on the main thread, all
 * else on the reactor of the queue.
 * Happy path: submit notes the I/O and answers QUEUED; a task later in the same turn fills the
 * buffer and completes it. A real backend would start an op (reactor/op.h) and complete in its
 * callback: see file.c. Failure modes: none.
 *
 * To make a backend: copy this file, add a row in registry.h and registry.c and the file in
 * CMakeLists.txt, a page of docs; test/conformance runs it from then on.
 */
#include "storage/registry.h"

#include <endian.h>
#include <string.h>

#include "base/util.h"
#include "reactor/reactor.h"

#define WORD_BYTES sizeof(uint64_t)

/* 1. What the user can say. The core fills this struct by the table below. */
struct pattern_config {
	uint64_t size_bytes;
};

static const struct option pattern_options[] = {
	{ .name = "size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct pattern_config, size_bytes),
	  .min = 512,
	  .def = "1GiB",
	  .help = "Size of the device. It uses no memory." },
	OPTION_END,
};

/* 2. Private areas: zeroed by the core. Of the device and the queue this backend needs none. */
struct pattern_io {
	struct backend_io *io; /* the way back from the task */
	struct task task;
};

/*
 * 3. Main thread: open what is below and say what was found. On failure return
 * backend_fail(device, -errno, "words and the cure").
 */
static int pattern_open(struct backend_device *device)
{
	const struct pattern_config *config = device->config;

	device->limits = (struct backend_limits){
		.size_bytes = config->size_bytes,
		.caps = BACKEND_CAP_READ_ONLY,
	};
	return 0;
}

/* 4. Reactor thread, once per I/O: take op slots here, not in submit. */
static int pattern_io_init(struct backend_io *io)
{
	struct pattern_io *p = io->priv;

	p->io = io;
	return 0;
}

static void pattern_fill(uint8_t *buf, uint64_t offset_bytes, uint32_t length_bytes)
{
	for (uint32_t i = 0; i < length_bytes; i += WORD_BYTES) {
		uint64_t word = htole64(offset_bytes + i);

		memcpy(buf + i, &word, WORD_BYTES);
	}
}

/* 6. Later, on the same reactor: exactly one completion. */
static void pattern_run(struct task *task)
{
	struct backend_io *io = container_of(task, struct pattern_io, task)->io;

	pattern_fill(io->buf, io->offset_bytes, io->length_bytes);
	backend_io_complete(io, 0);
}

/*
 * 5. Never blocks and never completes from inside. Range, alignment and capabilities have been
 * checked: of this device only READ can come.
 */
static enum backend_submit pattern_submit(struct backend_io *io)
{
	struct pattern_io *p = io->priv;

	reactor_defer(io->queue->reactor, &p->task, pattern_run);
	return BACKEND_QUEUED;
}

/*
 * 7. Which bytes these are: where they come from, not how they are looked at. Two devices of this
 * backend hold the same words at the same offsets, so the name would do, and this function could be
 * left out; a backend with storage says here which one it is, see file.c.
 */
static void pattern_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	(void)device;
	strcpy(text, "pattern");
}

/* 8. No close, queue_init, queue_fini, io_fini: nothing was taken. No cancel: I/Os end by
 * themselves. No stored_fd: nothing is lost with the process. */
const struct backend backend_pattern = {
	.name = "pattern",
	.summary = "Read-only; each word holds its own offset. For tests.",
	.options = pattern_options,
	.size_option = &pattern_options[0],
	.config_bytes = sizeof(struct pattern_config),
	.io_bytes = sizeof(struct pattern_io),
	.data = BACKEND_DATA_SHMEM,
	.open = pattern_open,
	.io_init = pattern_io_init,
	.submit = pattern_submit,
	.identity = pattern_identity,
};
