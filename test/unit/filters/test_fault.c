/* error: which requests fail, with what, and which hang. */
#include <math.h>
#include <unistd.h>

#include "base/log.h"
#include "test/rig/filter_rig.h"

/* Submits nr reads one after the other; the part that failed. */
static double failed_part(unsigned nr)
{
	unsigned failed_nr = 0;

	for (unsigned i = 0; i < nr; i++) {
		assert_int_equal(rig_submit(0, BACKEND_READ), BACKEND_DONE);
		failed_nr += rig.io[0].result < 0;
	}
	/* What fails never gets there. */
	assert_int_equal(low_nr, nr - failed_nr);
	return (double)failed_nr / nr;
}

static bool fails(enum backend_op op, uint64_t first_sector, uint32_t sector_nr)
{
	assert_int_equal(rig_submit_at(0, op, first_sector * 512, sector_nr * 512), BACKEND_DONE);
	return rig.io[0].result < 0;
}

static void test_all_by_default(void **state)
{
	(void)state;
	rig_open(&backend_fault, "{}");
	for (int op = 0; op < BACKEND_PLAIN_OP_NR; op++) {
		assert_true(fails(op, 0, 8));
		assert_int_equal(rig.io[0].result, -EIO);
	}
	assert_int_equal(low_nr, 0);
	rig_close();
}

static void test_errno(void **state)
{
	static const struct {
		const char *yaml;
		int err;
	} cases[] = { { "errno: ENOSPC", -ENOSPC },
		      { "errno: 28", -ENOSPC },
		      { "errno: EOPNOTSUPP", -EOPNOTSUPP },
		      { "errno: ETIMEDOUT", -ETIMEDOUT },
		      { "errno: ENOLINK", -ENOLINK },
		      { "errno: EREMOTEIO", -EREMOTEIO },
		      { "errno: ENODATA", -ENODATA },
		      { "errno: EILSEQ", -EILSEQ },
		      { "errno: 12", -ENOMEM } };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		rig_open(&backend_fault, cases[i].yaml);
		assert_true(fails(BACKEND_WRITE, 0, 1));
		assert_int_equal(rig.io[0].result, cases[i].err);
		rig_close();
	}
}

static void test_ops(void **state)
{
	(void)state;
	rig_open(&backend_fault, "op: [write, flush]\n");
	assert_false(fails(BACKEND_READ, 0, 1));
	assert_true(fails(BACKEND_WRITE, 0, 1));
	assert_true(fails(BACKEND_FLUSH, 0, 0));
	assert_false(fails(BACKEND_DISCARD, 0, 1));
	assert_false(fails(BACKEND_WRITE_ZEROES, 0, 1));
	rig_close();
}

static void test_range(void **state)
{
	(void)state;
	rig_open(&backend_fault, "from_sector: 100\nto_sector: 200\n");
	assert_false(fails(BACKEND_READ, 0, 100));
	assert_true(fails(BACKEND_READ, 0, 101));
	assert_true(fails(BACKEND_READ, 100, 1));
	assert_true(fails(BACKEND_READ, 199, 1));
	assert_false(fails(BACKEND_READ, 200, 1));
	assert_true(fails(BACKEND_DISCARD, 0, 1000));
	assert_false(fails(BACKEND_FLUSH, 0, 0));
	rig_close();
	rig_open(&backend_fault, "from_sector: 100\n");
	assert_false(fails(BACKEND_READ, 99, 1));
	assert_true(fails(BACKEND_READ, (1 << 21) - 1, 1));
	rig_close();
	rig_open(&backend_fault, "to_sector: 100\n");
	assert_true(fails(BACKEND_READ, 0, 1));
	assert_false(fails(BACKEND_READ, 100, 1));
	rig_close();
}

static void test_every(void **state)
{
	(void)state;
	rig_open(&backend_fault, "every: 7\nop: read\n");
	for (unsigned i = 1; i <= 70; i++) {
		assert_int_equal(fails(BACKEND_READ, 0, 1), i % 7 == 0);
		/* what cannot fail is not counted */
		assert_false(fails(BACKEND_WRITE, 0, 1));
	}
	rig_close();
	rig_open(&backend_fault, "every: 1\n");
	assert_true(failed_part(10) == 1);
	rig_close();
}

/* Four standard deviations of 50000 throws. */
static void check_rate(const char *yaml, double rate)
{
	double allowed = 4 * sqrt(rate * (1 - rate) / 50000), part;

	rig_open(&backend_fault, yaml);
	part = failed_part(50000);
	rig_close();
	if (fabs(part - rate) > allowed)
		fail_msg("%s: %f", yaml, part);
}

static void test_rate(void **state)
{
	(void)state;
	check_rate("rate: 0", 0);
	check_rate("rate: 1%", 0.01);
	check_rate("rate: 0.5", 0.5);
	check_rate("rate: 0.5\nseed: 77", 0.5);
	check_rate("rate: 100%", 1);
}

static void test_seed(void **state)
{
	bool failed[3][64];

	(void)state;
	for (int round = 0; round < 3; round++) {
		rig_open(&backend_fault, round < 2 ? "rate: 0.5\nseed: 3" : "rate: 0.5\nseed: 4");
		for (int i = 0; i < 64; i++)
			failed[round][i] = fails(BACKEND_READ, 0, 1);
		rig_close();
	}
	assert_memory_equal(failed[0], failed[1], sizeof(failed[0]));
	assert_memory_not_equal(failed[0], failed[2], sizeof(failed[0]));
}

static void test_trigger(void **state)
{
	char path[] = "/tmp/test_error.XXXXXX", yaml[100];
	uint64_t start_ns;

	(void)state;
	close(mkstemp(path));
	unlink(path);
	snprintf(yaml, sizeof(yaml), "trigger: %s\n", path);
	rig_open(&backend_fault, yaml);
	start_ns = rig.reactor.now_ns;
	assert_false(fails(BACKEND_READ, 0, 1));
	close(creat(path, 0600));
	rig.reactor.now_ns = start_ns + 99 * NS_PER_MS;
	assert_false(fails(BACKEND_READ, 0, 1)); /* not looked yet */
	rig.reactor.now_ns = start_ns + 100 * NS_PER_MS;
	assert_true(fails(BACKEND_READ, 0, 1));
	unlink(path);
	assert_true(fails(BACKEND_READ, 0, 1));
	rig.reactor.now_ns = start_ns + 200 * NS_PER_MS;
	assert_false(fails(BACKEND_READ, 0, 1));
	rig_close();
}

static void test_hang(void **state)
{
	(void)state;
	rig_open(&backend_fault, "hang: true\nevery: 2\n");
	for (unsigned tag = 0; tag < 6; tag++)
		assert_int_equal(rig_submit(tag, BACKEND_READ),
				 tag % 2 ? BACKEND_QUEUED : BACKEND_DONE);
	rig_run_until(rig.reactor.now_ns + 1000000 * NS_PER_SEC);
	for (unsigned tag = 1; tag < 6; tag += 2) {
		assert_true(rig.out[tag]);
		backend_io_cancel(&rig.io[tag]);
		assert_false(rig.out[tag]);
		assert_int_equal(rig.io[tag].result, -EIO);
	}
	assert_int_equal(low_nr, 3);
	/* The same I/O, cancelled in the child the next time. */
	low_keeps_all = true;
	rig_submit(1, BACKEND_READ);
	backend_io_cancel(&rig.io[1]);
	assert_int_equal(low_cancelled_nr, 1);
	rig_close();
}

static void test_options(void **state)
{
	(void)state;
	rig_check_config("error", "rate: 1%\nop: read, write\ntrigger: /run/x\n", "");
	rig_check_config("error", "errno: EPERM\n",
			 "f:3:8: errno: \"EPERM\" is none that the block layer knows\n");
	rig_check_config("error", "errno: ENOSPCE\n",
			 "f:3:8: errno: \"ENOSPCE\" is none that the block layer knows (did you "
			 "mean \"ENOSPC\"?)\n");
	rig_check_config("error", "errno: 0\n",
			 "f:3:8: errno: \"0\" is none that the block layer knows\n");
	rig_check_config("error", "every: 3\nrate: 0.5\n",
			 "f:3:8: every: cannot be used together with rate\n");
	rig_check_config("error", "from_sector: 8\nto_sector: 8\n",
			 "f:4:12: to_sector: must be above from_sector: 8\n");
	rig_check_config("error", "op: [reed]\nrate: 2\n",
			 "f:3:6: op: \"reed\" is not one of read, write, flush, discard, "
			 "write_zeroes (did you mean \"read\"?)\n"
			 "f:4:7: rate: 2 is above the maximum 1 (100%)\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_by_default),
		cmocka_unit_test(test_errno),
		cmocka_unit_test(test_ops),
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_every),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_seed),
		cmocka_unit_test(test_trigger),
		cmocka_unit_test(test_hang),
		cmocka_unit_test(test_options),
	};

	log_init(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
