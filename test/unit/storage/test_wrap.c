/* wrap: what reaches a backend, and what is answered before, for each set of capabilities. */
#include <errno.h>

#include "storage/backend.h"
#include "base/log.h"
#include "base/util.h"
#include "test/rig/config_check.h"

#define SIZE_BYTES MIB(8ull)
#define MAX_IO_BYTES 65536u

static uint32_t low_caps;
static struct backend_io *low_io; /* the last that came */
static unsigned low_nr;

static int low_open(struct backend_device *device)
{
	device->limits.size_bytes = SIZE_BYTES;
	device->limits.caps = low_caps;
	return 0;
}

static enum backend_submit low_submit(struct backend_io *io)
{
	low_io = io;
	low_nr++;
	io->result = 0;
	return BACKEND_DONE;
}

static const struct backend low = { .name = "low", .open = low_open, .submit = low_submit };

static struct rig {
	struct reactor reactor;
	struct backend_device *device;
	struct backend_queue *queue;
	struct backend_io io;
} rig;

static void never(struct backend_io *io)
{
	(void)io;
	fail_msg("done, after an answer at once");
}

static void open_with(uint32_t caps, uint32_t block_bytes)
{
	static const struct backend_spec spec = { .ops = &low };
	struct backend_open_params open_params = { .logical_block_bytes = block_bytes,
						   .max_io_bytes = MAX_IO_BYTES };
	char error[BACKEND_ERROR_BYTES];

	low_caps = caps;
	assert_int_equal(backend_open(&rig.device, &spec, "t", &open_params, error, sizeof(error)),
			 0);
	assert_int_equal(backend_queue_open(&rig.queue, rig.device, &rig.reactor, 0, 1), 0);
	assert_int_equal(backend_io_init(&rig.io, rig.queue, 0, never), 0);
}

static void close_it(void)
{
	backend_io_fini(&rig.io);
	backend_queue_close(rig.queue);
	backend_close(rig.device);
}

static int setup(void **state)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };

	(void)state;
	return reactor_init(&rig.reactor, &params);
}

static int teardown(void **state)
{
	(void)state;
	reactor_fini(&rig.reactor);
	return 0;
}

/* The answer; reaches: whether the backend has seen it. */
static void expect(enum backend_op op, unsigned flags, uint64_t offset_bytes, uint32_t length_bytes,
		   int result, bool reaches)
{
	static char buf[2 * MAX_IO_BYTES] __attribute__((aligned(4096)));
	unsigned before = low_nr;

	rig.io.op = (uint8_t)op;
	rig.io.flags = (uint8_t)flags;
	rig.io.offset_bytes = offset_bytes;
	rig.io.length_bytes = length_bytes;
	rig.io.buf = buf;
	assert_int_equal(backend_io_submit(&rig.io), BACKEND_DONE);
	assert_int_equal(rig.io.result, result);
	assert_int_equal(low_nr - before, reaches);
	if (reaches)
		assert_int_equal(low_io->flags, flags);
}

/*
 * FUA is a promise: a backend with a volatile cache that knows no FUA could only forget it, so it
 * never gets one. The kernel sends none to such a device, but a FLUSH of its own behind the WRITE.
 */
static void test_fua(void **state)
{
	static const struct {
		uint32_t caps;
		int result;
	} cases[] = {
		{ BACKEND_CAP_FLUSH | BACKEND_CAP_FUA, 0 },
		{ BACKEND_CAP_FLUSH, -EOPNOTSUPP },
		{ BACKEND_CAP_FUA, 0 },
		{ 0, 0 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		bool reaches = cases[i].result == 0;

		open_with(cases[i].caps | BACKEND_CAP_WRITE_ZEROES, 512);
		expect(BACKEND_WRITE, BACKEND_FUA, 0, 512, cases[i].result, reaches);
		expect(BACKEND_WRITE_ZEROES, BACKEND_FUA, 0, 512, cases[i].result, reaches);
		expect(BACKEND_WRITE_ZEROES, BACKEND_FUA | BACKEND_NOUNMAP, 0, 512, cases[i].result,
		       reaches);
		expect(BACKEND_WRITE, 0, 0, 512, 0, true);
		/* Nothing is volatile: nothing to do, and the backend is not asked. */
		expect(BACKEND_FLUSH, 0, 0, 0, 0, cases[i].caps & BACKEND_CAP_FLUSH);
		close_it();
	}
}

static void test_capabilities(void **state)
{
	(void)state;
	open_with(0, 512);
	expect(BACKEND_DISCARD, 0, 0, 512, -EOPNOTSUPP, false);
	expect(BACKEND_WRITE_ZEROES, 0, 0, 512, -EOPNOTSUPP, false);
	expect(BACKEND_OP_NR, 0, 0, 512, -EOPNOTSUPP, false);
	close_it();
	open_with(BACKEND_CAP_DISCARD, 512);
	expect(BACKEND_DISCARD, 0, 0, 512, 0, true);
	expect(BACKEND_WRITE_ZEROES, 0, 0, 512, -EOPNOTSUPP, false);
	close_it();
}

static void test_read_only(void **state)
{
	uint32_t all = BACKEND_CAP_READ_ONLY | BACKEND_CAP_FLUSH | BACKEND_CAP_FUA |
		       BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES;

	(void)state;
	open_with(all, 512);
	expect(BACKEND_READ, 0, 0, 512, 0, true);
	expect(BACKEND_FLUSH, 0, 0, 0, 0, true);
	expect(BACKEND_WRITE, 0, 0, 512, -EIO, false);
	expect(BACKEND_WRITE, BACKEND_FUA, 0, 512, -EIO, false);
	expect(BACKEND_DISCARD, 0, 0, 512, -EIO, false);
	expect(BACKEND_WRITE_ZEROES, 0, 0, 512, -EIO, false);
	close_it();
}

static void test_ranges(void **state)
{
	uint32_t caps = BACKEND_CAP_DISCARD | BACKEND_CAP_FUA;

	(void)state;
	open_with(caps, 4096);
	for (unsigned flags = 0; flags <= BACKEND_FUA; flags += BACKEND_FUA) {
		expect(BACKEND_WRITE, flags, SIZE_BYTES - 4096, 4096, 0, true);
		expect(BACKEND_WRITE, flags, SIZE_BYTES, 4096, -EIO, false);
		expect(BACKEND_WRITE, flags, SIZE_BYTES - 4096, 8192, -EIO, false);
		expect(BACKEND_WRITE, flags, UINT64_MAX - 4095, 4096, -EIO, false);
		expect(BACKEND_WRITE, flags, 512, 4096, -EIO, false);
		expect(BACKEND_WRITE, flags, 4096, 512, -EIO, false);
		expect(BACKEND_WRITE, flags, 4096, 0, -EIO, false);
		expect(BACKEND_WRITE, flags, 0, MAX_IO_BYTES, 0, true);
		expect(BACKEND_WRITE, flags, 0, MAX_IO_BYTES + 4096, -EIO, false);
	}
	/* Without data there is no largest. */
	expect(BACKEND_DISCARD, 0, 0, SIZE_BYTES, 0, true);
	expect(BACKEND_DISCARD, 0, 4096, SIZE_BYTES, -EIO, false);
	close_it();
}

int main(void)
{
#define RIG(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = { RIG(test_fua), RIG(test_capabilities),
					    RIG(test_read_only), RIG(test_ranges) };

	log_init(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("wrap", tests, NULL, NULL);
}
