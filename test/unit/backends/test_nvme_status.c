/* Status codes: errno, words, and where a command may be tried again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "backends/nvme/protocol/nvme_status.h"
#include "base/util.h"

static void test_verdicts(void **state)
{
	static const struct {
		uint16_t status;
		int err;
		enum nvme_retry retry;
		const char *words;
	} cases[] = {
		{ 0x000, 0, NVME_RETRY_NEVER, "Successful Completion" },
		{ 0x001, -EOPNOTSUPP, NVME_RETRY_NEVER, "Invalid Command Opcode" },
		{ 0x006, -EIO, NVME_RETRY_HERE, "Internal Error" },
		{ 0x4006, -EIO, NVME_RETRY_NEVER, "Internal Error" },
		{ 0x2006, -EIO, NVME_RETRY_HERE, "Internal Error" },
		{ 0x1806, -EIO, NVME_RETRY_HERE, "Internal Error" },
		{ 0x00b, -EOPNOTSUPP, NVME_RETRY_NEVER, "Invalid Namespace or Format" },
		{ 0x020, -EROFS, NVME_RETRY_NEVER, "Namespace is Write Protected" },
		{ 0x022, -EIO, NVME_RETRY_HERE, "Transient Transport Error" },
		{ 0x080, -EREMOTEIO, NVME_RETRY_NEVER, "LBA Out of Range" },
		{ 0x081, -ENOSPC, NVME_RETRY_NEVER, "Capacity Exceeded" },
		{ 0x083, -EBADE, NVME_RETRY_NEVER, "Reservation Conflict" },
		{ 0x184, -EACCES, NVME_RETRY_NEVER, "Connect Invalid Host" },
		{ 0x281, -ENODATA, NVME_RETRY_HERE, "Unrecovered Read Error" },
		{ 0x287, -ENODATA, NVME_RETRY_NEVER, "Deallocated or Unwritten Logical Block" },
		{ 0x302, -ENOLINK, NVME_RETRY_ELSEWHERE, "Asymmetric Access Inaccessible" },
		{ 0x4302, -ENOLINK, NVME_RETRY_NEVER, "Asymmetric Access Inaccessible" },
		{ 0x371, -ENOLINK, NVME_RETRY_ELSEWHERE, "Command Aborted By Host" },
		/* not in the table */
		{ 0x3ff, -ENOLINK, NVME_RETRY_ELSEWHERE, "an unknown error of the path" },
		{ 0x0ff, -EIO, NVME_RETRY_HERE, "an unknown status" },
		{ 0x7ff, -EIO, NVME_RETRY_HERE, "an unknown status" },
		{ 0x7fff, -EIO, NVME_RETRY_NEVER, "an unknown status" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nvme_verdict v = nvme_status_verdict(cases[i].status);

		assert_string_equal(v.words, cases[i].words);
		assert_int_equal(v.err, cases[i].err);
		assert_int_equal(v.retry, cases[i].retry);
	}
}

/* The table is searched by halves: every row that is there must be found. */
static void test_all(void **state)
{
	unsigned known = 0;

	(void)state;
	for (uint16_t code = 0; code <= NVME_STATUS_CODE_MASK; code++) {
		struct nvme_verdict v = nvme_status_verdict(code);

		known += strncmp(v.words, "an unknown", 10) != 0;
		assert_true(v.err <= 0 && (v.err == 0) == (code == 0));
	}
	assert_int_equal(known, 74);
}

static void test_delay(void **state)
{
	static const uint16_t crdt[3] = { 1, 20, 65535 };

	(void)state;
	assert_int_equal(nvme_status_delay_ms(0x0006, crdt), 0);
	assert_int_equal(nvme_status_delay_ms(0x0806, crdt), 100);
	assert_int_equal(nvme_status_delay_ms(0x1006, crdt), 2000);
	assert_int_equal(nvme_status_delay_ms(0x5806, crdt), 6553500);
}

static void test_words(void **state)
{
	char buf[100];

	(void)state;
	assert_string_equal(nvme_status_format(0x4184, buf, sizeof(buf)),
			    "Connect Invalid Host (type 1, code 0x84, do not retry)");
	assert_string_equal(nvme_status_format(0x281, buf, sizeof(buf)),
			    "Unrecovered Read Error (type 2, code 0x81)");
	assert_string_equal(nvme_ana_name(NVME_ANA_NONOPTIMIZED), "non-optimized");
	assert_string_equal(nvme_ana_name(5), "unknown");
	assert_int_equal(nvme_ana_use(1), NVME_ANA_USE_BEST);
	assert_int_equal(nvme_ana_use(2), NVME_ANA_USE_ALSO);
	assert_int_equal(nvme_ana_use(3), NVME_ANA_USE_LATER);
	assert_int_equal(nvme_ana_use(4), NVME_ANA_USE_NEVER);
	assert_int_equal(nvme_ana_use(15), NVME_ANA_USE_LATER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_verdicts),
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_delay),
		cmocka_unit_test(test_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
