/*
 * mem: a RAM disk in a sparse memfd, used by any number of queues on any reactors without a lock.
 * This is its I/O, mem_open.c makes the memory or takes over what a daemon before had.
 *
 * Happy path: READ and WRITE are a memcpy inside submit, DONE at once. DISCARD and WRITE_ZEROES
 * give whole pages back (mem_zero.c). There is no volatile cache: nothing to flush.
 *
 * `present` tells which pages may hold data. Reading a hole through the mapping would allocate its
 * page, so that `dd if=/dev/ublkbN` filled the memory of the machine: holes are read by memset.
 * And a page fault that finds no memory is a SIGBUS, so writes first ask for the page with
 * fallocate(2), whose failure is an errno; that costs one call per first touch, about what the
 * page faults that follow cost.
 *
 * Before that they take the bytes from what the machine and the control groups have left
 * (mem_available.h): where nothing is left the kernel would kill this process, and the next one,
 * for ever, as the write is given to each of them again.
 *
 * Failure modes: ENOSPC of a write when no memory is left, or the huge pages are used up.
 */
#include "backends/mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>

#include "backends/mem/mem_available.h"
#include "storage/registry.h"
#include "base/util.h"

static bool is_present(const struct mem_device *mem, uint64_t page)
{
	return atomic_load(&mem->present[page / 64]) >> (page % 64) & 1;
}

uint64_t mem_run(const struct mem_device *mem, uint64_t offset_bytes, uint64_t length_bytes,
		 bool *ret_present)
{
	uint64_t end = offset_bytes + length_bytes;
	uint64_t page = mem_page(mem, offset_bytes);
	bool present = is_present(mem, page);

	do {
		page++;
	} while (page << mem->page_shift < end && is_present(mem, page) == present);
	*ret_present = present;
	return MIN(page << mem->page_shift, end) - offset_bytes;
}

/* Huge pages were taken from the machine's memory when their pool was made. */
static int charge(struct mem_device *mem, uint64_t offset_bytes, uint64_t length_bytes)
{
	uint64_t last = mem_page(mem, offset_bytes + length_bytes - 1), absent = 0;

	if (mem->is_huge)
		return 0;
	for (uint64_t page = mem_page(mem, offset_bytes); page <= last; page++)
		absent += !is_present(mem, page);
	return memory_take(absent << mem->page_shift);
}

static int mem_allocate(struct mem_device *mem, uint64_t offset_bytes, uint64_t length_bytes)
{
	uint64_t start = round_down(offset_bytes, mem->page_bytes);
	uint64_t end = round_up(offset_bytes + length_bytes, mem->page_bytes);

	while (fallocate(mem->fd, FALLOC_FL_KEEP_SIZE, (off_t)start, (off_t)(end - start)) < 0)
		if (errno != EINTR)
			return -ENOSPC;
	return 0;
}

/* Memory for what will be written, given now. Apart: pages that are there shall not pay for it. */
static __attribute__((noinline)) int reserve(struct backend_io *io)
{
	struct mem_device *mem = io->queue->device->priv;
	int ret = charge(mem, io->offset_bytes, io->length_bytes);

	if (ret == 0)
		ret = mem_allocate(mem, io->offset_bytes, io->length_bytes);
	if (ret < 0)
		log_limited_by(&mem->full_limit, LOG_LEVEL_WARN,
			       "no memory is left for a write, which is answered ENOSPC",
			       "device=%s huge_pages=%s", io->queue->device->name,
			       mem->is_huge ? "true" : "false");
	return ret;
}

static bool all_present(const struct mem_device *mem, const struct backend_io *io)
{
	bool present;

	return mem_run(mem, io->offset_bytes, io->length_bytes, &present) == io->length_bytes &&
	       present;
}

/*
 * After the bytes, not before: a discard in flight on another queue may have cleared the bit since
 * reserve, and a page with data whose bit is clear would read as zeroes now and show its data
 * again when a neighbour is written.
 */
void mem_mark_present(struct mem_device *mem, uint64_t offset_bytes, uint64_t length_bytes)
{
	uint64_t last = mem_page(mem, offset_bytes + length_bytes - 1);

	for (uint64_t page = mem_page(mem, offset_bytes); page <= last; page++)
		if (!is_present(mem, page))
			atomic_fetch_or(&mem->present[page / 64], 1ull << (page % 64));
}

/* The next run of a READ, from its byte done_bytes on, as a piece. */
static struct iovec mem_piece(const struct mem_device *mem, const struct backend_io *io,
			      uint32_t done_bytes)
{
	uint64_t offset_bytes = io->offset_bytes + done_bytes, bytes;
	bool present;

	bytes = mem_run(mem, offset_bytes, io->length_bytes - done_bytes, &present);
	if (present)
		return (struct iovec){ .iov_base = mem->base + offset_bytes, .iov_len = bytes };
	return (struct iovec){ .iov_base = backend_data_zeroes(),
			       .iov_len = MIN(bytes, BACKEND_ZEROES_BYTES) };
}

/* To the driver, with as few system calls as can be. */
static int mem_read_pieces(const struct mem_device *mem, struct backend_io *io)
{
	struct iovec piece[BACKEND_PIECES_MAX];
	uint32_t done_bytes = 0;
	int ret = 0;

	while (done_bytes < io->length_bytes && ret == 0) {
		uint32_t at_bytes = done_bytes;
		unsigned nr = 0;

		while (done_bytes < io->length_bytes && nr < BACKEND_PIECES_MAX) {
			piece[nr] = mem_piece(mem, io, done_bytes);
			done_bytes += (uint32_t)piece[nr++].iov_len;
		}
		ret = backend_data_put_pieces(io, at_bytes, piece, nr);
	}
	return ret;
}

static int mem_read(const struct mem_device *mem, struct backend_io *io)
{
	uint32_t done_bytes = 0;
	int ret = 0;

	if (!backend_io_in_memory(io))
		return mem_read_pieces(mem, io);
	while (done_bytes < io->length_bytes && ret == 0) {
		uint64_t offset_bytes = io->offset_bytes + done_bytes, bytes;
		bool present;

		bytes = mem_run(mem, offset_bytes, io->length_bytes - done_bytes, &present);
		ret = present ? backend_data_put(io, done_bytes, mem->base + offset_bytes, bytes)
			      : backend_data_put_zeroes(io, done_bytes, bytes);
		done_bytes += (uint32_t)bytes;
	}
	return ret;
}

static int mem_write(struct mem_device *mem, struct backend_io *io)
{
	int ret = all_present(mem, io) ? 0 : reserve(io);

	if (ret < 0)
		return ret;
	ret = backend_data_get(io, 0, mem->base + io->offset_bytes, io->length_bytes);
	/* Also after an error: some of it may be there. */
	mem_mark_present(mem, io->offset_bytes, io->length_bytes);
	return ret;
}

static enum backend_submit mem_submit(struct backend_io *io)
{
	struct mem_device *mem = io->queue->device->priv;

	io->result = 0;
	switch (io->op) {
	case BACKEND_READ:
		io->result = mem_read(mem, io);
		break;
	case BACKEND_WRITE:
		io->result = mem_write(mem, io);
		break;
	case BACKEND_DISCARD:
	case BACKEND_WRITE_ZEROES:
		return mem_zero_submit(io);
	}
	return BACKEND_DONE;
}

static int mem_queue_init(struct backend_queue *queue)
{
	const struct mem_device *mem = queue->device->priv;
	struct mem_queue *q = queue->priv;

	q->file_slot = reactor_file_add(queue->reactor, mem->fd);
	return MIN(q->file_slot, 0);
}

static void mem_queue_fini(struct backend_queue *queue)
{
	struct mem_queue *q = queue->priv;

	reactor_file_remove(queue->reactor, q->file_slot);
}

static int mem_io_init(struct backend_io *io)
{
	struct op_owner owner = { .kind = OP_KIND_BACKEND,
				  .queue = io->queue->idx,
				  .tag = io->tag };
	struct mem_io *m = io->priv;

	m->io = io;
	return op_init(&m->op, io->queue->reactor, owner, mem_zero_punched);
}

static void mem_io_fini(struct backend_io *io)
{
	struct mem_io *m = io->priv;

	op_fini(&m->op);
}

const struct backend backend_mem = {
	.name = "mem",
	.summary = "A sparse RAM disk. Its content is lost when the device is removed.",
	.options = mem_options,
	.size_option = &mem_options[MEM_OPTION_SIZE],
	.config_bytes = sizeof(struct mem_config),
	.device_bytes = sizeof(struct mem_device),
	.queue_bytes = sizeof(struct mem_queue),
	.io_bytes = sizeof(struct mem_io),
	.data = BACKEND_DATA_MOVES | BACKEND_DATA_SHMEM,
	.test_options = "size: 4MiB",
	.is_bytewise = true,
	.open = mem_open,
	.close = mem_close,
	.queue_init = mem_queue_init,
	.queue_fini = mem_queue_fini,
	.io_init = mem_io_init,
	.io_fini = mem_io_fini,
	.submit = mem_submit,
	.identity = mem_identity,
	.stored_fd = mem_stored_fd,
	.memory_bytes = mem_memory_bytes,
	.resize = &mem_resize,
};
