/* wrap: what reaches a backend, and what is answered before, for each set of capabilities. */
#include <errno.h>

#include "storage/backend.h"
#include "storage/node.h"
#include "storage/resize.h"
#include "base/log.h"
#include "base/util.h"
#include "test/rig/config_check.h"

#define SIZE_BYTES MIB(8ull)
#define MAX_IO_BYTES 65536u

static uint32_t low_caps, low_block_bytes;
static uint64_t low_bytes = SIZE_BYTES;
static enum backend_submit low_answer = BACKEND_DONE;
static int low_result;
static struct backend_io *low_io; /* the last that came */
static uint32_t low_length_bytes; /* as it came */
static unsigned low_nr;

static int low_open(struct backend_device *device)
{
	device->limits.caps = low_caps;
	device->limits.logical_block_bytes = low_block_bytes;
	backend_set_found_size(device, low_bytes);
	return 0;
}

static enum backend_submit low_submit(struct backend_io *io)
{
	if (low_answer == BACKEND_BUSY)
		return low_answer;
	low_io = io;
	low_length_bytes = io->length_bytes;
	low_nr++;
	if (low_answer == BACKEND_DONE)
		io->result = low_result;
	return low_answer;
}

static int low_size_now(struct backend_device *device, uint64_t *ret_bytes)
{
	(void)device;
	*ret_bytes = low_bytes;
	return 0;
}

static const struct backend_resize low_resize = { .size_now = low_size_now };

static const struct backend low = {
	.name = "low", .open = low_open, .submit = low_submit, .resize = &low_resize
};

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

/* ---- storage that ends within a block: resize.h ---- */

static uint8_t tail_buf[3 * 4096] __attribute__((aligned(4096)));
static unsigned tail_done_nr;

static void tail_done(struct backend_io *io)
{
	(void)io;
	tail_done_nr++;
}

/* With one more I/O, which waits below. */
static void open_tail(const struct backend_spec *spec, uint32_t caps, bool read_only,
		      uint64_t taken_over_bytes, struct backend_io *other)
{
	struct backend_open_params open_params = { .logical_block_bytes = 4096,
						   .read_only = read_only,
						   .size_bytes = taken_over_bytes };
	char error[BACKEND_ERROR_BYTES];

	low_caps = caps;
	assert_int_equal(backend_open(&rig.device, spec, "t", &open_params, error, sizeof(error)),
			 0);
	assert_int_equal(backend_queue_open(&rig.queue, rig.device, &rig.reactor, 0, 2), 0);
	rig.io = *other = (struct backend_io){ .buf_index = -1 };
	assert_int_equal(backend_io_init(&rig.io, rig.queue, 0, tail_done), 0);
	assert_int_equal(backend_io_init(other, rig.queue, 1, tail_done), 0);
}

static void close_tail(struct backend_io *other)
{
	backend_io_fini(other);
	close_it();
}

/* Reads so many bytes, of which the storage has content_bytes; low is asked for below_bytes. */
static void read_last(uint64_t offset_bytes, uint32_t length_bytes, uint32_t content_bytes,
		      uint32_t below_bytes, int result)
{
	unsigned before = tail_done_nr;

	memset(tail_buf, 0x5a, sizeof(tail_buf));
	rig.io.op = BACKEND_READ;
	rig.io.flags = 0;
	rig.io.offset_bytes = offset_bytes;
	rig.io.length_bytes = length_bytes;
	rig.io.buf = tail_buf;
	low_result = result;
	assert_int_equal(backend_io_submit(&rig.io), low_answer);
	assert_int_equal(low_length_bytes, below_bytes);
	if (low_answer == BACKEND_QUEUED) {
		backend_io_complete(low_io, result);
		assert_int_equal(tail_done_nr, before + 1);
	}
	assert_int_equal(rig.io.result, result);
	assert_int_equal(rig.io.length_bytes, length_bytes);
	for (uint32_t i = 0; i < sizeof(tail_buf); i++)
		assert_int_equal(tail_buf[i],
				 result == 0 && i >= content_bytes && i < length_bytes ? 0 : 0x5a);
}

static void test_padded(void **state)
{
	static const struct backend_spec spec = { .ops = &low };
	const uint64_t last = SIZE_BYTES + 4096;
	struct backend_io other;

	(void)state;
	low_bytes = last + 100;
	for (int is_option = 0; is_option < 2; is_option++) {
		open_tail(&spec, is_option ? 0 : BACKEND_CAP_READ_ONLY, is_option, 0, &other);
		assert_int_equal(backend_size(rig.device), last + 4096);
		assert_int_equal(backend_size_needed(rig.device), last + 100);
		assert_int_equal(backend_left_out(rig.device), 0);
		assert_true(rig.device->limits.caps & BACKEND_CAP_READ_ONLY);
		for (low_answer = BACKEND_DONE; low_answer < BACKEND_BUSY; low_answer++) {
			read_last(last, 4096, 100, 100, 0);
			read_last(last - 4096, 8192, 4196, 4196, 0);
			read_last(last - 4096, 4096, 4096, 4096, 0);
			read_last(last, 4096, 100, 100, -EIO);
		}
		/* What is not taken is as it was. */
		low_answer = BACKEND_QUEUED;
		other.op = BACKEND_READ;
		other.offset_bytes = 0;
		other.length_bytes = 4096;
		other.buf = tail_buf;
		assert_int_equal(backend_io_submit(&other), BACKEND_QUEUED);
		low_answer = BACKEND_BUSY;
		rig.io.offset_bytes = last;
		rig.io.length_bytes = 4096;
		assert_int_equal(backend_io_submit(&rig.io), BACKEND_BUSY);
		assert_int_equal(rig.io.length_bytes, 4096);
		backend_io_complete(&other, 0);
		low_answer = BACKEND_DONE;
		close_tail(&other);
	}
	low_bytes = SIZE_BYTES;
}

static uint64_t high_bytes;

static int high_open(struct backend_device *device)
{
	backend_set_found_size(device, high_bytes);
	return 0;
}

/* An image whose disk ends within a block: below it are whole blocks. */
static void test_padded_over_a_child(void **state)
{
	static const struct backend high = { .name = "high",
					     .children = backend_one_child,
					     .open = high_open,
					     .submit = backend_forward };
	static const struct backend_spec below = { .ops = &low, .as = backend_one_child };
	struct backend_spec spec = { .ops = &high, .child = &below };
	struct backend_io other;

	(void)state;
	high_bytes = MIB(1) + 1;
	open_tail(&spec, BACKEND_CAP_READ_ONLY, false, 0, &other);
	assert_int_equal(backend_size(rig.device), MIB(1) + 4096);
	read_last(MIB(1), 4096, 1, 4096, 0);
	read_last(MIB(1) - 4096, 8192, 4097, 8192, 0);
	close_tail(&other);
}

static void test_left_out(void **state)
{
	static const struct backend_spec spec = { .ops = &low };
	const uint64_t last = SIZE_BYTES + 4096;
	char words[BACKEND_NOTE_BYTES];
	struct backend_io other;
	uint64_t bytes;

	(void)state;
	low_bytes = last + 100;
	open_tail(&spec, 0, false, 0, &other);
	assert_int_equal(backend_size(rig.device), last);
	assert_int_equal(backend_size_needed(rig.device), last);
	assert_int_equal(backend_left_out(rig.device), 100);
	assert_true(backend_note(rig.device, 0, words));
	assert_string_equal(words, "the storage ends within a block of 4096 bytes: its last 100 "
				   "bytes are left out");
	assert_false(backend_note(rig.device, 1, words));
	rig.device->note = "is strange";
	assert_true(backend_note(rig.device, 1, words));
	assert_string_equal(words, "is strange");
	assert_false(backend_note(rig.device, 2, words));
	/* It was made longer, and shorter: all of it is the device's. */
	backend_set_size(rig.device, last + 4096);
	assert_int_equal(backend_left_out(rig.device), 0);
	backend_set_size(rig.device, last);
	assert_int_equal(backend_left_out(rig.device), 0);
	backend_set_size(rig.device, MIB(1));
	assert_int_equal(backend_left_out(rig.device), 0);
	low_bytes = MIB(1) + 7;
	assert_int_equal(backend_size_now(rig.device, &bytes, words, sizeof(words)), 0);
	assert_int_equal(bytes, MIB(1));
	assert_int_equal(backend_left_out(rig.device), 7);
	low_bytes = last + 100;
	close_tail(&other);
	/* One that is taken over keeps its size. */
	open_tail(&spec, 0, true, last, &other);
	assert_int_equal(backend_size(rig.device), last);
	assert_int_equal(backend_left_out(rig.device), 100);
	read_last(last - 4096, 4096, 4096, 4096, 0);
	close_tail(&other);
	open_tail(&spec, 0, true, last + 4096, &other);
	assert_int_equal(backend_size(rig.device), last + 4096);
	close_tail(&other);
	low_bytes = SIZE_BYTES;
}

static void not_opened(const char *words)
{
	static const struct backend_spec spec = { .ops = &low };
	struct backend_open_params open_params = { .logical_block_bytes = 512 };
	char error[BACKEND_ERROR_BYTES];

	low_caps = 0;
	assert_int_equal(backend_open(&rig.device, &spec, "t", &open_params, error, sizeof(error)),
			 -EINVAL);
	assert_string_equal(error, words);
}

/* A cure is one that can be followed. */
static void test_refused(void **state)
{
	(void)state;
	low_bytes = 511;
	not_opened("has 511 bytes, less than one block of 512");
	low_bytes = SIZE_BYTES;
	low_block_bytes = 4096;
	not_opened("cannot serve blocks of 512 bytes: set block_size: 4096");
	low_block_bytes = 8192;
	not_opened("cannot serve blocks of 512 bytes: its own have 8192, and those of a device "
		   "4096 at most");
	low_block_bytes = 0;
}

int main(void)
{
#define RIG(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = { RIG(test_fua),	 RIG(test_capabilities),
					    RIG(test_read_only), RIG(test_ranges),
					    RIG(test_padded),	 RIG(test_padded_over_a_child),
					    RIG(test_left_out),	 RIG(test_refused) };

	log_init(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("wrap", tests, NULL, NULL);
}
