/* Requests of an image: what reaches the library, and what is made of its answers. */
#include "net/session_look.h"
#include "test/rig/heap.h"
#include "test/rig/rbd_rig.h"

static void check_seen(enum fake_op op, uint64_t offset_bytes, uint64_t length_bytes, int op_flags,
		       int zero_flags)
{
	struct fake_seen seen = fake_seen_last();

	assert_int_equal(seen.op, op);
	assert_int_equal(seen.offset_bytes, offset_bytes);
	assert_int_equal(seen.length_bytes, length_bytes);
	assert_int_equal(seen.op_flags, op_flags);
	assert_int_equal(seen.zero_flags, zero_flags);
}

/* ---- data ---- */

static void test_bytes(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	vol_reads(&rig, 0, 65536, 0);
	assert_int_equal(vol_write(&rig, 512, 1024, 0x11), 0);
	check_seen(FAKE_WRITE, 512, 1024, 0, 0);
	assert_int_equal(vol_write(&rig, (4u << 20) - 512, 512, 0x22), 0);
	vol_reads(&rig, 0, 512, 0);
	vol_reads(&rig, 512, 1024, 0x11);
	check_seen(FAKE_READ, 512, 1024, 0, 0);
	vol_reads(&rig, 1536, 512, 0);
	vol_reads(&rig, (4u << 20) - 512, 512, 0x22);
	assert_int_equal(fake_image()->data[511], 0);
	assert_int_equal(fake_image()->data[512], 0x11);
	vol_close_rig(&rig);
}

static void test_zeroes_and_discard(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	assert_int_equal(vol_write(&rig, 0, 65536, 0x11), 0);
	assert_int_equal(vol_do(&rig, BACKEND_WRITE_ZEROES, 512, 512), 0);
	check_seen(FAKE_ZEROES, 512, 512, 0, 0);
	assert_int_equal(vol_do_flags(&rig, BACKEND_WRITE_ZEROES, BACKEND_NOUNMAP, 2048, 1024), 0);
	check_seen(FAKE_ZEROES, 2048, 1024, 0, RBD_WRITE_ZEROES_FLAG_THICK_PROVISION);
	assert_int_equal(vol_do(&rig, BACKEND_DISCARD, 1u << 20, 2u << 20), 0);
	check_seen(FAKE_DISCARD, 1u << 20, 2u << 20, 0, 0);
	vol_reads(&rig, 0, 512, 0x11);
	vol_reads(&rig, 512, 512, 0);
	vol_reads(&rig, 1024, 1024, 0x11);
	vol_reads(&rig, 2048, 1024, 0);
	vol_reads(&rig, 3072, 1024, 0x11);
	vol_close_rig(&rig);
}

/* With a cache; without, every write is durable, and no FLUSH comes. */
static void test_flags(void **state)
{
	const int fua = LIBRADOS_OP_FLAG_FADVISE_FUA;
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL "cache: writeback");
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	check_seen(FAKE_WRITE, 0, 512, 0, 0);
	assert_int_equal(fake_image()->data[0], 0);
	assert_int_equal(vol_do_flags(&rig, BACKEND_WRITE, BACKEND_FUA, 1024, 512), 0);
	check_seen(FAKE_WRITE, 1024, 512, fua, 0);
	assert_int_equal(vol_write(&rig, 2048, 512, 3), 0);
	assert_int_equal(fake_image()->data[2048], 0);
	vol_reads(&rig, 2048, 512, 3);
	assert_int_equal(vol_do(&rig, BACKEND_FLUSH, 0, 0), 0);
	check_seen(FAKE_FLUSH, 0, 0, 0, 0);
	assert_int_equal(fake_image()->data[2048], 3);
	assert_int_equal(vol_do_flags(&rig, BACKEND_WRITE_ZEROES, BACKEND_FUA, 0, 512), 0);
	check_seen(FAKE_ZEROES, 0, 512, fua, 0);
	vol_close_rig(&rig);
}

static void test_no_flush_without_a_cache(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	assert_int_equal(vol_do(&rig, BACKEND_FLUSH, 0, 0), 0);
	check_seen(FAKE_WRITE, 0, 512, 0, 0);
	assert_int_equal(fake_image()->data[0], 1);
	vol_close_rig(&rig);
}

static void test_many_at_once(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	fake_hold(true);
	vol_submit_writes(&rig, RBD_DEPTH);
	assert_int_equal(fake_out_nr(), RBD_DEPTH);
	RBD_TURN_FOR_MS(&rig, 5);
	assert_int_equal(vol_out_nr(&rig), RBD_DEPTH);
	fake_let_go(3);
	RBD_TURN_UNTIL(&rig, vol_out_nr(&rig) == RBD_DEPTH - 3);
	fake_hold(false);
	RBD_TURN_UNTIL(&rig, vol_out_nr(&rig) == 0);
	assert_int_equal(rig.queue[0].done_nr, RBD_DEPTH);
	for (unsigned tag = 0; tag < RBD_DEPTH; tag++) {
		assert_int_equal(rig.queue[0].io[tag].result, 0);
		assert_int_equal(fake_image()->data[512u * tag], tag + 1);
	}
	vol_close_rig(&rig);
}

/* ---- errors that say nothing about the client ---- */

static void test_errors_pass(void **state)
{
	static const int errors[] = { -EIO, -ENOSPC, -EDQUOT, -EROFS, -EINVAL, -ENOENT };
	static const struct {
		enum fake_op fake;
		enum backend_op op;
	} ops[] = {
		{ FAKE_READ, BACKEND_READ },	   { FAKE_WRITE, BACKEND_WRITE },
		{ FAKE_DISCARD, BACKEND_DISCARD }, { FAKE_ZEROES, BACKEND_WRITE_ZEROES },
		{ FAKE_FLUSH, BACKEND_FLUSH },
	};
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL "cache: writeback");
	for (size_t op = 0; op < ARRAY_SIZE(ops); op++)
		for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
			uint32_t bytes = ops[op].op == BACKEND_FLUSH ? 0 : 512;

			fake_fail_answer(ops[op].fake, errors[i], 1);
			assert_int_equal(vol_do(&rig, ops[op].op, 0, bytes),
					 backend_errno_map(errors[i]));
			assert_int_equal(vol_do(&rig, ops[op].op, 0, bytes), 0);
		}
	assert_int_equal(fake_call_nr("rbd_open"), 1);
	vol_close_rig(&rig);
}

static void test_told(void **state)
{
	const char *log;
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	log_catch();
	fake_fail_answer(FAKE_WRITE, -EROFS, 1);
	vol_write(&rig, 0, 512, 1);
	fake_fail_answer(FAKE_WRITE, -ENOSPC, 1);
	vol_write(&rig, 0, 512, 1);
	log = log_end();
	assert_non_null(strstr(log,
			       "msg=\"another client holds the lock of the image\" device=disk "
			       "image=rbd/vol"));
	assert_non_null(strstr(log, "msg=\"the pool is full\" device=disk pool=rbd"));
	vol_close_rig(&rig);
}

static void test_short_read(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	fake_fail_answer(FAKE_READ, 512, 1);
	assert_int_equal(vol_do(&rig, BACKEND_READ, 0, 1024), -EIO);
	assert_int_equal(vol_do(&rig, BACKEND_READ, 0, 1024), 0);
	vol_close_rig(&rig);
}

/* The library does not even take it. */
static void test_not_taken(void **state)
{
	static const struct {
		const char *call;
		enum backend_op op;
	} cases[] = {
		{ "rbd_aio_create_completion", BACKEND_READ },
		{ "rbd_aio_read", BACKEND_READ },
		{ "rbd_aio_write2", BACKEND_WRITE },
		{ "rbd_aio_discard", BACKEND_DISCARD },
		{ "rbd_aio_write_zeroes", BACKEND_WRITE_ZEROES },
		{ "rbd_aio_flush", BACKEND_FLUSH },
	};
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL "cache: writeback");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint32_t bytes = cases[i].op == BACKEND_FLUSH ? 0 : 512;

		fake_fail_call(cases[i].call, -ENOMEM, 1);
		assert_int_equal(vol_do(&rig, cases[i].op, 0, bytes), -ENOMEM);
		/* Not held: librbd is there. */
		fake_fail_call(cases[i].call, -EAGAIN, 1);
		assert_int_equal(vol_do(&rig, cases[i].op, 0, bytes), -EIO);
		assert_int_equal(vol_do(&rig, cases[i].op, 0, bytes), 0);
	}
	assert_int_equal(atomic_load(&atomic_load(&vol_device(&rig)->image)->out_nr), 0);
	vol_close_rig(&rig);
}

/* ---- for people ---- */

static void test_looks(void **state)
{
	struct net_connection_look look;
	struct backend_wait wait;
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	vol_write(&rig, 0, 512, 1);
	vol_reads(&rig, 0, 512, 1);
	assert_true(backend_connection(rig.queue[0].queue, 0, &look));
	assert_string_equal(look.server, "rbd/vol");
	assert_string_equal(look.state, "connected");
	assert_int_equal(look.connects, 1);
	assert_int_equal(look.lost, 0);
	assert_int_equal(look.last_end, -1);
	assert_int_equal(look.answered, 2);
	assert_false(backend_connection(rig.queue[0].queue, 1, &look));
	fake_hold(true);
	assert_ptr_equal(backend_io_where(vol_submit(&rig, 0, BACKEND_READ, 0, 512), &wait),
			 rig.device);
	assert_string_equal(wait.words, "librbd and the OSDs");
	assert_null(backend_failure(rig.device, NULL));
	fake_hold(false);
	vol_wait(&rig, 0);
	vol_close_rig(&rig);
}

static void write_and_read(struct vol_rig *rig, unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++) {
		vol_submit_writes(rig, RBD_DEPTH);
		for (unsigned tag = 0; tag < RBD_DEPTH; tag++)
			assert_int_equal(vol_wait(rig, tag), 0);
		vol_reads(rig, 0, 512, 1);
	}
}

/* The threads of the library may free what they had a moment after the answer. */
static void test_no_allocation(void **state)
{
	struct vol_rig rig;
	uint64_t heap_bytes;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	write_and_read(&rig, 2);
	heap_bytes = heap_used_bytes();
	write_and_read(&rig, 50);
	for (unsigned i = 0; i < 1000 && heap_grew_bytes(heap_bytes) != 0; i++)
		vol_pause_ms(1);
	assert_int_equal(heap_grew_bytes(heap_bytes), 0);
	vol_close_rig(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RBD_TEST(test_bytes),	      RBD_TEST(test_zeroes_and_discard),
		RBD_TEST(test_flags),	      RBD_TEST(test_no_flush_without_a_cache),
		RBD_TEST(test_many_at_once),  RBD_TEST(test_errors_pass),
		RBD_TEST(test_told),	      RBD_TEST(test_short_read),
		RBD_TEST(test_not_taken),     RBD_TEST(test_looks),
		RBD_TEST(test_no_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
