/*
 * shared: requests whose bytes are not in memory, but with the driver, for which a file stands
 * here: pieces, buffers and those that wait for one. Home is the reactor of the users (TEST) or
 * another one (TEST_OTHER_HOME).
 */
#include <sys/mman.h>
#include <unistd.h>

#include "test/unit/filters/shared_rig.h"

#define PIECE_BYTES SHARED_BOUNCE_BYTES

static const uint64_t pattern_bytes = 1 << 20;
static int driver_fd;

static void driver_read(struct user *u, unsigned tag, uint64_t offset_bytes, uint32_t length_bytes)
{
	struct backend_io *io = &u->io[tag];

	io->op = BACKEND_READ;
	io->flags = 0;
	io->offset_bytes = offset_bytes;
	io->length_bytes = length_bytes;
	io->buf = NULL;
	io->buf_index = -1;
	io->driver_fd = driver_fd;
	io->driver_pos = (uint64_t)tag << 20;
	assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
}

static void check_driver_bytes(unsigned tag, uint64_t offset_bytes, uint32_t length_bytes)
{
	uint64_t word;

	for (uint32_t i = 0; i < length_bytes; i += sizeof(word)) {
		assert_int_equal(pread(driver_fd, &word, sizeof(word), ((off_t)tag << 20) + i),
				 sizeof(word));
		assert_int_equal(word, offset_bytes + i);
	}
}

static void start_driver(const struct backend *leaf, const void *config)
{
	driver_fd = memfd_create("driver", MFD_CLOEXEC);
	assert_true(driver_fd >= 0);
	users[0].below.ops = leaf;
	users[0].below.config = config;
	open_user(&users[0]);
	open_queue(&users[0], &rig.control);
}

static void end_driver(void)
{
	close_queue(&users[0]);
	close(driver_fd);
}

/* More of them than there are buffers, in whole pieces and others. */
static void test_driver_bytes(void **state)
{
	static const uint32_t length_bytes[] = { 4096, PIECE_BYTES, PIECE_BYTES + 512,
						 3 * PIECE_BYTES, 2 * PIECE_BYTES - 512 };
	unsigned nr = 3 * SHARED_BOUNCE_NR;

	(void)state;
	start_driver(&backend_pattern, &pattern_bytes);
	for (unsigned tag = 0; tag < nr; tag++)
		driver_read(&users[0], tag, tag * 4096ull,
			    length_bytes[tag % ARRAY_SIZE(length_bytes)]);
	TURN_UNTIL(users[0].done_nr == nr);
	for (unsigned tag = 0; tag < nr; tag++) {
		assert_int_equal(users[0].io[tag].result, 0);
		check_driver_bytes(tag, tag * 4096ull,
				   length_bytes[tag % ARRAY_SIZE(length_bytes)]);
	}
	end_driver();
}

static void test_driver_takes_no_bytes(void **state)
{
	(void)state;
	start_driver(&backend_pattern, &pattern_bytes);
	close(driver_fd);
	driver_read(&users[0], 0, 0, 2 * PIECE_BYTES);
	TURN_UNTIL(users[0].done_nr == 1);
	assert_int_equal(users[0].io[0].result, -EIO);
	driver_fd = memfd_create("driver", MFD_CLOEXEC);
	end_driver();
}

/* The first piece that fails is the last one. */
static void test_piece_fails(void **state)
{
	(void)state;
	start_driver(&backend_gate, &gates[0]);
	driver_read(&users[0], 0, 0, 3 * PIECE_BYTES);
	TURN_UNTIL(gates[0].out_nr == 1);
	assert_int_equal(gates[0].out[0]->length_bytes, PIECE_BYTES);
	gate_complete(&gates[0], 0);
	TURN_UNTIL(gates[0].out_nr == 1);
	assert_int_equal(gates[0].out[0]->offset_bytes, PIECE_BYTES);
	gate_complete(&gates[0], -EIO);
	TURN_UNTIL(users[0].done_nr == 1);
	assert_int_equal(users[0].io[0].result, -EIO);
	turns(3);
	assert_int_equal(gates[0].out_nr, 0);
	assert_int_equal(users[0].io[0].throttle_ns, 14);
	end_driver();
}

static void test_cancel_a_piece(void **state)
{
	(void)state;
	start_driver(&backend_gate, &gates[0]);
	driver_read(&users[0], 0, 0, 3 * PIECE_BYTES);
	TURN_UNTIL(gates[0].out_nr == 1);
	backend_io_cancel(&users[0].io[0]);
	TURN_UNTIL(users[0].done_nr == 1);
	assert_int_equal(users[0].io[0].result, backend_errno_map(-ECANCELED));
	assert_int_equal(gates[0].io_cancelled_nr, 1);
	turns(3);
	assert_int_equal(gates[0].out_nr, 0);
	end_driver();
}

/* A piece that ends by itself all the same is the last one. */
static void test_cancel_between_pieces(void **state)
{
	(void)state;
	start_driver(&backend_gate, &gates[0]);
	driver_read(&users[0], 0, 0, 3 * PIECE_BYTES);
	TURN_UNTIL(gates[0].out_nr == 1);
	backend_io_cancel(&users[0].io[0]);
	gate_complete(&gates[0], 0);
	TURN_UNTIL(users[0].done_nr == 1);
	assert_int_equal(users[0].io[0].result, backend_errno_map(-ECANCELED));
	assert_int_equal(gates[0].out_nr, 0);
	end_driver();
}

/* They get a buffer in order; one that is cancelled meanwhile is not asked for. */
static void test_waits_for_a_buffer(void **state)
{
	struct backend_wait wait;

	(void)state;
	start_driver(&backend_gate, &gates[0]);
	for (unsigned tag = 0; tag < SHARED_BOUNCE_NR + 3; tag++)
		driver_read(&users[0], tag, tag * 4096ull, 4096);
	TURN_UNTIL(gates[0].out_nr == SHARED_BOUNCE_NR);
	turns(3);
	assert_int_equal(gates[0].out_nr, SHARED_BOUNCE_NR);
	backend_io_where(&users[0].io[SHARED_BOUNCE_NR], &wait);
	assert_string_equal(wait.words, "waiting for a buffer");
	backend_io_cancel(&users[0].io[SHARED_BOUNCE_NR + 1]);
	TURN_UNTIL(users[0].done_nr == 1);
	assert_int_equal(users[0].done[0], SHARED_BOUNCE_NR + 1);
	assert_int_equal(users[0].io[SHARED_BOUNCE_NR + 1].result, backend_errno_map(-ECANCELED));
	for (unsigned i = 0; i < 2; i++) {
		gate_complete(&gates[0], 0);
		TURN_UNTIL(gates[0].out_nr == SHARED_BOUNCE_NR);
		assert_int_equal(gates[0].out[SHARED_BOUNCE_NR - 1]->offset_bytes,
				 (SHARED_BOUNCE_NR + 2 * i) * 4096ull);
	}
	while (gates[0].out_nr > 0)
		gate_complete(&gates[0], 0);
	TURN_UNTIL(users[0].done_nr == SHARED_BOUNCE_NR + 3);
	end_driver();
}

#define BOTH(fn) TEST(fn), TEST_OTHER_HOME(fn)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_driver_bytes),       BOTH(test_driver_takes_no_bytes),
		BOTH(test_piece_fails),	       BOTH(test_cancel_a_piece),
		BOTH(test_waits_for_a_buffer), TEST_OTHER_HOME(test_cancel_between_pieces),
	};

	return cmocka_run_group_tests(tests, log_errors_only, NULL);
}
