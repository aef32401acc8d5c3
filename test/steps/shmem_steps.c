/*
 * A queue of a device that clients share memory with, command by command, against a driver that the
 * test plays: where the backend finds the bytes of a request, and what is copied by hand. Prints
 * TAP.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "storage/backend.h"
#include "test/conformance/ring_script.h"
#include "test/conformance/tap.h"
#include "ublk/queue/io_error.h"
#include "ublk/queue/queue_internal.h"
#include "ublk/shmem.h"

#define MSTEPS_DEPTH 2u
#define MSTEPS_IO_BYTES 8192u
#define MSTEPS_SHARED_BYTES 16384u
#define MSTEPS_BUFFER 3u /* its number */

static int memory = -1; /* what the client shares */
static struct shmem_map *memory_map;
static struct shmem_buffers buffers;

/* ---- a backend that notes where the bytes are ---- */

static struct backend_io got;
static uint8_t got_first;
static bool tears; /* the client truncates its memory meanwhile */

static int msteps_open(struct backend_device *device)
{
	device->limits = (struct backend_limits){ .size_bytes = MIB(8),
						  .caps = BACKEND_CAP_FLUSH,
						  .dma_alignment_bytes = 512 };
	return 0;
}

static enum backend_submit msteps_submit(struct backend_io *io)
{
	got = *io;
	io->result = 0;
	if (tears && ftruncate(memory, 0) < 0)
		abort();
	if (io->op == BACKEND_WRITE)
		io->result = backend_data_get(io, 0, &got_first, 1);
	else if (io->op == BACKEND_READ)
		io->result = backend_data_put_zeroes(io, 0, io->length_bytes);
	if (io->op == BACKEND_READ && io->buf)
		memset(io->buf, 0x5a, io->length_bytes);
	return BACKEND_DONE;
}

static const struct backend msteps_backend = { .name = "msteps",
					       .data = BACKEND_DATA_MOVES | BACKEND_DATA_SHMEM,
					       .open = msteps_open,
					       .submit = msteps_submit };

/* ---- the driver ---- */

static struct ublksrv_io_desc msteps_descs[MSTEPS_DEPTH];
static uint64_t msteps_armed[MSTEPS_DEPTH];
static struct ublksrv_io_cmd msteps_committed;
static unsigned msteps_commit_nr;
static int msteps_pages = -1; /* the requests' own: what is /dev/ublkcN */

static int msteps_on_sqe(const struct io_uring_sqe *sqe)
{
	const struct ublksrv_io_cmd *cmd = (const void *)((const char *)sqe + 48);

	ring_script.log_nr = 0;
	if (sqe->cmd_op == UBLK_U_IO_COMMIT_AND_FETCH_REQ) {
		msteps_committed = *cmd;
		msteps_commit_nr++;
	}
	msteps_armed[cmd->tag] = sqe->user_data;
	return SCRIPT_LATER;
}

/* ---- the rig ---- */

static struct reactor msteps_reactor;
static struct queue msteps_queue;
static struct backend_device *msteps_device;
static struct io_errors *msteps_errors;

static void msteps_attached(struct queue *q, int err)
{
	(void)q;
	EXPECT(err == 0, "%d", err);
}

static void msteps_ended(struct queue *q)
{
	(void)q;
}

static void msteps_turns(unsigned nr)
{
	while (nr-- > 0) {
		ring_script.mail = true;
		reactor_turn(&msteps_reactor, false);
	}
}

static off_t msteps_pages_at(void)
{
	return (off_t)ublk_user_copy_pos(0, 1);
}

static uint8_t page_byte(void)
{
	uint8_t byte = 0;

	EXPECT(pread(msteps_pages, &byte, 1, msteps_pages_at()) == 1, "pread");
	return byte;
}

static void share_memory(void)
{
	memory = memfd_create("shared", MFD_CLOEXEC);
	if (memory < 0 || ftruncate(memory, MSTEPS_SHARED_BYTES) < 0 ||
	    shmem_map_open(&memory_map, memory, MSTEPS_SHARED_BYTES, 4096, false) < 0)
		abort();
	memset(memory_map->base, 0x11, MSTEPS_SHARED_BYTES);
	buffers = (struct shmem_buffers){ .align_mask = 511 };
	buffers.buffer[MSTEPS_BUFFER] =
		(struct shmem_buffer){ .base = memory_map->base, .map = memory_map };
	atomic_store(&buffers.buffer[MSTEPS_BUFFER].usable_bytes, MSTEPS_SHARED_BYTES);
}

static void make_pages(void)
{
	uint8_t bytes[MSTEPS_IO_BYTES];

	msteps_pages = memfd_create("pages", MFD_CLOEXEC);
	memset(bytes, 0x22, sizeof(bytes));
	if (msteps_pages < 0 ||
	    pwrite(msteps_pages, bytes, sizeof(bytes), msteps_pages_at()) != sizeof(bytes))
		abort();
}

static void msteps_begin(bool moves)
{
	static const struct backend_spec spec = { .ops = &msteps_backend };
	static const struct backend_open_params open_params = { .logical_block_bytes = 512,
								.max_io_bytes = MSTEPS_IO_BYTES };
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	char error[BACKEND_ERROR_BYTES];
	struct queue_setup setup = {
		.reactor = &msteps_reactor,
		.home = &msteps_reactor,
		.device_name = "t",
		.descs = msteps_descs,
		.depth = MSTEPS_DEPTH,
		.max_io_bytes = MSTEPS_IO_BYTES,
		.data = { .path = DATA_PATH_USER_COPY, .shmem = true },
		.shmem = &buffers,
		.backend_moves = moves,
		.attached = msteps_attached,
		.drained = msteps_ended,
		.released = msteps_ended,
	};

	ring_script = (struct ring_script){ .answer = msteps_on_sqe, .now_ns = NS_PER_SEC };
	tears = false;
	make_pages();
	share_memory();
	setup.cdev_fd = msteps_pages;
	if (reactor_init(&msteps_reactor, &params) < 0 ||
	    backend_open(&msteps_device, &spec, "t", &open_params, error, sizeof(error)) < 0)
		abort();
	msteps_errors = io_errors_create(backend_node_nr(msteps_device));
	setup.backend = msteps_device;
	setup.errors = msteps_errors;
	queue_attach(&msteps_queue, &setup);
	msteps_turns(4);
}

static void msteps_end(void)
{
	for (unsigned tag = 0; tag < MSTEPS_DEPTH; tag++)
		ring_script_post(msteps_armed[tag], UBLK_IO_RES_ABORT, 0);
	msteps_turns(4);
	queue_release(&msteps_queue);
	msteps_turns(4);
	backend_close(msteps_device);
	free(msteps_errors);
	reactor_fini(&msteps_reactor);
	shmem_map_close(memory_map);
	close(memory);
	close(msteps_pages);
}

/* A request comes on tag 1 and is handed back. at: where in the buffer; -1: not in shared memory.
 */
static void ask_for(uint32_t op, unsigned buffer, int64_t at, uint32_t bytes)
{
	unsigned before = msteps_commit_nr;

	msteps_descs[1] = (struct ublksrv_io_desc){
		.op_flags = op | (at >= 0 ? UBLK_IO_F_SHMEM_ZC : 0),
		.nr_sectors = bytes / 512,
		.addr = at >= 0 ? (uint64_t)buffer << 32 | (uint64_t)at : 0,
	};
	got_first = 0;
	ring_script_post(msteps_armed[1], UBLK_IO_RES_OK, 0);
	msteps_turns(3);
	EXPECT(msteps_commit_nr == before + 1, "op %u is not handed back", op);
}

static void test_in_shared_memory(bool moves)
{
	if (!tap_begin("bytes in shared memory stay where they are%s", moves ? ", moved" : ""))
		return;
	msteps_begin(moves);
	ask_for(UBLK_IO_OP_WRITE, MSTEPS_BUFFER, 4608, 4096);
	EXPECT(got.buf == memory_map->base + 4608 && got.buf_index == -1, "at %p", got.buf);
	EXPECT(got_first == 0x11 && msteps_committed.result == 4096, "%x", got_first);
	ask_for(UBLK_IO_OP_READ, MSTEPS_BUFFER, 8192, 8192);
	EXPECT(got.buf == memory_map->base + 8192 && memory_map->base[8192] == 0x5a, "at %p",
	       got.buf);
	EXPECT(page_byte() == 0x22 && msteps_committed.result == 8192, "it was copied, too");
	EXPECT(msteps_queue.stats.shmem == 2, "%llu are counted",
	       (unsigned long long)msteps_queue.stats.shmem);
	/* The next one is its client's alone. */
	ask_for(UBLK_IO_OP_WRITE, 0, -1, 4096);
	EXPECT(got_first == 0x22 && (moves ? !got.buf : got.buf == queue_buffer(&msteps_queue, 1)),
	       "%x at %p", got_first, got.buf);
	ask_for(UBLK_IO_OP_READ, 0, -1, 4096);
	EXPECT(page_byte() == (moves ? 0 : 0x5a), "%x", page_byte());
	EXPECT(msteps_queue.stats.shmem == 2, "%llu are counted",
	       (unsigned long long)msteps_queue.stats.shmem);
	msteps_end();
	tap_end();
}

/* What may not be used is served by what the driver has: the request's own pages. */
static void test_not_usable(void)
{
	static const struct {
		unsigned buffer;
		int64_t at;
	} cases[] = { { 0, 0 },
		      { SHMEM_BUFFERS_MAX, 0 },
		      { MSTEPS_BUFFER, 256 },
		      { MSTEPS_BUFFER, MSTEPS_SHARED_BYTES - 2048 } };

	if (!tap_begin("what may not be used of shared memory is copied"))
		return;
	msteps_begin(false);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		ask_for(UBLK_IO_OP_WRITE, MSTEPS_BUFFER, 0, 4096);
		EXPECT(got_first == 0x11, "case %u: %x", i, got_first);
		ask_for(UBLK_IO_OP_WRITE, cases[i].buffer, cases[i].at, 4096);
		EXPECT(got_first == 0x22 && got.buf == queue_buffer(&msteps_queue, 1) &&
			       msteps_committed.result == 4096,
		       "case %u: %x", i, got_first);
	}
	buffers.buffer[MSTEPS_BUFFER].read_only = true;
	ask_for(UBLK_IO_OP_WRITE, MSTEPS_BUFFER, 0, 4096);
	EXPECT(got_first == 0x11, "a WRITE from memory that is only read: %x", got_first);
	ask_for(UBLK_IO_OP_READ, MSTEPS_BUFFER, 0, 4096);
	EXPECT(memory_map->base[0] == 0x11 && page_byte() == 0x5a, "a READ was written there");
	atomic_store(&buffers.buffer[MSTEPS_BUFFER].usable_bytes, 0);
	ask_for(UBLK_IO_OP_WRITE, MSTEPS_BUFFER, 0, 4096);
	EXPECT(got_first == 0x5a, "while it is taken back: %x", got_first);
	msteps_end();
	tap_end();
}

static void test_torn(void)
{
	if (!tap_begin("a request whose memory is taken away fails, and no other"))
		return;
	msteps_begin(false);
	tears = true;
	ask_for(UBLK_IO_OP_READ, MSTEPS_BUFFER, 0, 4096);
	EXPECT(msteps_committed.result == -EIO, "%d", msteps_committed.result);
	tears = false;
	ask_for(UBLK_IO_OP_FLUSH, 0, -1, 0);
	EXPECT(msteps_committed.result == 0, "a FLUSH: %d", msteps_committed.result);
	ask_for(UBLK_IO_OP_WRITE, MSTEPS_BUFFER, 0, 4096);
	EXPECT(msteps_committed.result == 4096 && got_first == 0x22, "%d, %x",
	       msteps_committed.result, got_first);
	msteps_end();
	tap_end();
}

int main(int argc, char **argv)
{
	log_init(LOG_LEVEL_ERROR);
	tap_init(argv[0], argc > 2 ? argv[argc - 1] : NULL, 0);
	test_in_shared_memory(false);
	test_in_shared_memory(true);
	test_not_usable();
	test_torn();
	return tap_finish();
}
