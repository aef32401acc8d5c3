/* NBD: names, errors, text of a peer; requests as bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "backends/nbd/nbd_proto.h"
#include "backends/nbd/nbd_request.h"
#include "base/util.h"

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(nbd_cmd_name(NBD_CMD_WRITE_ZEROES), "WRITE_ZEROES");
	assert_null(nbd_cmd_name(NBD_CMD_NR));
	assert_string_equal(nbd_opt_name(11), "EXTENDED_HEADERS");
	assert_null(nbd_opt_name(4));
	assert_null(nbd_opt_name(UINT32_MAX));
	assert_string_equal(nbd_rep_name(1), "ACK");
	assert_string_equal(nbd_rep_name(0x80000005), "ERR_TLS_REQD");
	assert_string_equal(nbd_rep_name(0x8000000a), "ERR_EXT_HEADER_REQD");
	assert_null(nbd_rep_name(0x8000000b));
	assert_null(nbd_rep_name(0));
	assert_string_equal(nbd_reply_type_name(6), "BLOCK_STATUS_EXT");
	assert_string_equal(nbd_reply_type_name(0x8002), "ERROR_OFFSET");
	assert_null(nbd_reply_type_name(3));
}

static void test_errors(void **state)
{
	static const struct {
		uint32_t wire;
		int err;
	} cases[] = {
		{ 1, -EPERM },	 { 5, -EIO },	     { 12, -ENOMEM },	     { 22, -EINVAL },
		{ 28, -ENOSPC }, { 75, -EOVERFLOW }, { 95, -EOPNOTSUPP },    { 108, -ESHUTDOWN },
		{ 2, -EINVAL },	 { 4242, -EINVAL },  { UINT32_MAX, -EINVAL }
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(nbd_errno(cases[i].wire), cases[i].err);
}

static void test_compact(void **state)
{
	static const uint8_t wanted[28] = { 0x25, 0x60, 0x95, 0x13, 0, 1,    0,	   1, 1, 2,
					    3,	  4,	5,    6,    7, 8,    0x11, 0, 0, 0,
					    0,	  0,	0x20, 0,    0, 0x01, 0,	   0 };
	const struct nbd_request r = { .cmd = NBD_CMD_WRITE,
				       .flags = NBD_CMD_FLAG_FUA,
				       .cookie = 0x0102030405060708,
				       .offset_bytes = 0x1100000000002000,
				       .length_bytes = 65536 };
	uint8_t buf[NBD_REQUEST_BYTES_MAX];

	(void)state;
	assert_int_equal(nbd_request_encode(buf, &r, false), 28);
	assert_memory_equal(buf, wanted, 28);
}

static void test_extended(void **state)
{
	static const uint8_t wanted[32] = { 0x21, 0xe4, 0x1c, 0x71, 0, 6, 0, 6, 0, 0, 0,
					    0,	  0,	0,    0,    9, 0, 0, 0, 0, 0, 0,
					    0x10, 0,	0,    0,    1, 0, 0, 0, 0, 0 };
	struct nbd_request r = { .cmd = NBD_CMD_WRITE_ZEROES,
				 .flags = NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_DF,
				 .cookie = 9,
				 .offset_bytes = 0x1000,
				 .length_bytes = 1ull << 40 };
	uint8_t buf[NBD_REQUEST_BYTES_MAX];

	(void)state;
	assert_int_equal(nbd_request_encode(buf, &r, true), 32);
	assert_memory_equal(buf, wanted, 32);
	/* Only a WRITE carries payload. */
	r.cmd = NBD_CMD_WRITE;
	r.flags = 0;
	nbd_request_encode(buf, &r, true);
	assert_int_equal(be_get16(buf + 4), NBD_CMD_FLAG_PAYLOAD_LEN);
	assert_int_equal(nbd_request_encode_disc(buf, true), 32);
	assert_int_equal(be_get16(buf + 6), NBD_CMD_DISC);
	for (int i = 8; i < 32; i++)
		assert_int_equal(buf[i], 0);
	assert_int_equal(nbd_request_encode_disc(buf, false), 28);
}

static void test_allowed(void **state)
{
	static const uint16_t all = 0xffff & ~NBD_FLAG_READ_ONLY;
	static const struct {
		uint16_t cmd, flags, transmission;
		bool meta, allowed;
	} cases[] = {
		{ NBD_CMD_READ, 0, NBD_FLAG_HAS_FLAGS, false, true },
		{ NBD_CMD_READ, 0, NBD_FLAG_READ_ONLY, false, true },
		{ NBD_CMD_READ, NBD_CMD_FLAG_DF, all, false, true },
		{ NBD_CMD_READ, NBD_CMD_FLAG_DF, all & ~NBD_FLAG_SEND_DF, false, false },
		{ NBD_CMD_READ, NBD_CMD_FLAG_REQ_ONE, all, false, false },
		{ NBD_CMD_WRITE, 0, NBD_FLAG_HAS_FLAGS, false, true },
		{ NBD_CMD_WRITE, 0, NBD_FLAG_READ_ONLY, false, false },
		{ NBD_CMD_WRITE, NBD_CMD_FLAG_FUA, all, false, true },
		{ NBD_CMD_WRITE, NBD_CMD_FLAG_FUA, all & ~NBD_FLAG_SEND_FUA, false, false },
		{ NBD_CMD_FLUSH, 0, NBD_FLAG_SEND_FLUSH, false, true },
		{ NBD_CMD_FLUSH, 0, all & ~NBD_FLAG_SEND_FLUSH, false, false },
		{ NBD_CMD_TRIM, 0, all, false, true },
		{ NBD_CMD_TRIM, 0, all & ~NBD_FLAG_SEND_TRIM, false, false },
		{ NBD_CMD_TRIM, NBD_CMD_FLAG_NO_HOLE, all, false, false },
		{ NBD_CMD_CACHE, 0, all, false, true },
		{ NBD_CMD_CACHE, 0, all & ~NBD_FLAG_SEND_CACHE, false, false },
		{ NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_FUA, all, false, true },
		{ NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_FAST_ZERO, all, false, true },
		{ NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_FAST_ZERO, all & ~NBD_FLAG_SEND_FAST_ZERO,
		  false, false },
		{ NBD_CMD_WRITE_ZEROES, 0, all & ~NBD_FLAG_SEND_WRITE_ZEROES, false, false },
		{ NBD_CMD_BLOCK_STATUS, NBD_CMD_FLAG_REQ_ONE, all, true, true },
		{ NBD_CMD_BLOCK_STATUS, 0, all, false, false },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct nbd_request r = { .cmd = cases[i].cmd, .flags = cases[i].flags };

		if (nbd_request_allowed(&r, cases[i].transmission, cases[i].meta) !=
		    cases[i].allowed)
			fail_msg("case %u", i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),	cmocka_unit_test(test_errors),
		cmocka_unit_test(test_compact), cmocka_unit_test(test_extended),
		cmocka_unit_test(test_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
