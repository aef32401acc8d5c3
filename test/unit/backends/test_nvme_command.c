/* NVMe commands and the PDUs they travel in, byte by byte as the specifications have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include "backends/nvme/protocol/nvme_command.h"
#include "base/crc32c.h"
#include "backends/nvme/protocol/nvme_pdu.h"
#include "base/util.h"

static uint8_t sqe[NVME_SQE_BYTES];

/* Hexadecimal with spaces anywhere; "..": anything; the rest up to bytes is zeroes. */
static void check(const uint8_t *at, size_t bytes, const char *hex)
{
	size_t nr = 0;

	for (; *hex; hex++) {
		char pair[3] = { hex[0], hex[1], '\0' };

		if (*hex == ' ')
			continue;
		if (*hex != '.' && at[nr] != strtoul(pair, NULL, 16))
			fail_msg("byte %zu is 0x%02x, not 0x%s", nr, at[nr], pair);
		hex++;
		nr++;
	}
	assert_true(nr <= bytes);
	for (; nr < bytes; nr++)
		if (at[nr] != 0)
			fail_msg("byte %zu is 0x%02x, not 0", nr, at[nr]);
}

#define NO_DATA "0000000000000000 0000000000000000 0000000000000000 00000000 0000005a"

static void test_io(void **state)
{
	const struct nvme_rw write = { .opcode = NVME_CMD_WRITE,
				       .nsid = 0x01020304,
				       .lba = 0x1122334455667788,
				       .blocks_nr = 65536,
				       .control = NVME_CONTROL_FUA,
				       .data_bytes = 0x2000000 };
	const struct nvme_rw inside = { .opcode = NVME_CMD_WRITE,
					.nsid = 1,
					.blocks_nr = 8,
					.data_bytes = 4096,
					.in_capsule = true };
	const struct nvme_rw zeroes = { .opcode = NVME_CMD_WRITE_ZEROES,
					.nsid = 1,
					.lba = 1,
					.blocks_nr = 1,
					.control = NVME_CONTROL_DEALLOCATE };
	uint8_t range[16];

	(void)state;
	memset(sqe, 0xff, sizeof(sqe));
	nvme_command_rw(sqe, &write);
	check(sqe, 64,
	      "01400000 04030201 0000000000000000 0000000000000000 0000000000000000"
	      "00000002 0000005a 8877665544332211 ffff0040");
	nvme_command_set_cid(sqe, 0xabcd);
	check(sqe, 4, "0140cdab");
	nvme_command_rw(sqe, &inside);
	check(sqe, 64,
	      "01400000 01000000 0000000000000000 0000000000000000 0000000000000000"
	      "00100000 00000001 0000000000000000 07000000");
	nvme_command_rw(sqe, &zeroes);
	check(sqe, 64, "08400000 01000000" NO_DATA "0100000000000000 00000002");
	nvme_command_flush(sqe, 7);
	check(sqe, 64, "00400000 07000000" NO_DATA);
	nvme_command_deallocate(sqe, 7, 256, true);
	check(sqe, 64,
	      "09400000 07000000 0000000000000000 0000000000000000 0000000000000000"
	      "00100000 00000001 ff000000 04000000");
	nvme_dsm_range(range, 0x1122334455667788, 0x99aabbcc);
	check(range, 16, "00000000 ccbbaa99 8877665544332211");
}

static void test_fabrics(void **state)
{
	static uint8_t data[NVME_CONNECT_BYTES];
	const struct nvme_connect connect = { .qid = 0x1234,
					      .entries_nr = 65536,
					      .no_sq_flow = true,
					      .kato_ms = 0x01020304,
					      .cntlid = 0xffff,
					      .host_id = "0123456789abcde",
					      .subsystem_nqn = "nqn.s",
					      .host_nqn = "nqn.h" };

	(void)state;
	memset(data, 0xff, sizeof(data));
	nvme_command_connect(sqe, data, &connect);
	check(sqe, 64,
	      "7f400000 01000000 0000000000000000 0000000000000000 0000000000000000"
	      "00040000 00000001 0000 3412 ffff 04 00 04030201");
	check(data, 256, "30313233343536373839616263646500 ffff");
	check(data + 256, 256, "6e716e2e73");
	check(data + 512, 512, "6e716e2e68");
	nvme_command_disconnect(sqe);
	check(sqe, 64, "7f400000 08000000" NO_DATA);
	nvme_command_property_get(sqe, NVME_REG_CAP);
	check(sqe, 64, "7f400000 04000000" NO_DATA "01000000 00000000");
	nvme_command_property_get(sqe, NVME_REG_CSTS);
	check(sqe, 64, "7f400000 04000000" NO_DATA "00000000 1c000000");
	nvme_command_property_set(sqe, NVME_REG_CC, 0x460001);
	check(sqe, 64, "7f400000 00000000" NO_DATA "00000000 14000000 01004600");
}

static void test_admin(void **state)
{
	const struct nvme_log_request log = { .log = NVME_LOG_DISCOVERY,
					      .specific = 1,
					      .retain = true,
					      .at_bytes = 0x1122334455667788,
					      .bytes = 0x80000 };

	(void)state;
	nvme_command_identify(sqe, NVME_CNS_NAMESPACE_IDS, 9);
	check(sqe, 64,
	      "06400000 09000000 0000000000000000 0000000000000000 0000000000000000"
	      "00100000 0000005a 03000000");
	nvme_command_set_feature(sqe, NVME_FEAT_NUM_QUEUES, nvme_queues_value(3));
	check(sqe, 64, "09400000 00000000" NO_DATA "07000000 02000200");
	assert_int_equal(nvme_queues_granted(0x00030001), 2);
	assert_int_equal(nvme_queues_granted(0xdeadbeef00000005), 1);
	nvme_command_keep_alive(sqe);
	check(sqe, 64, "18400000 00000000" NO_DATA);
	nvme_command_async_event(sqe);
	check(sqe, 64, "0c400000 00000000" NO_DATA);
	nvme_command_abort(sqe, 2, 0x1234);
	check(sqe, 64, "08400000 00000000" NO_DATA "02003412");
	nvme_command_get_log(sqe, &log);
	check(sqe, 64,
	      "02400000 ffffffff 0000000000000000 0000000000000000 0000000000000000"
	      "00000800 0000005a 7081ffff 01000000 8877665544332211");
	assert_string_equal(nvme_command_name(NVME_CMD_DSM, false), "DSM");
	assert_string_equal(nvme_command_name(NVME_ADMIN_KEEP_ALIVE, true), "Keep Alive");
	assert_string_equal(nvme_command_name(NVME_FABRICS, true), "a fabrics command");
	assert_null(nvme_command_name(3, false));
	assert_null(nvme_command_name(0xff, true));
}

static void test_cqe(void **state)
{
	static const uint8_t bytes[16] = { 1, 2,    3,	  4,	5,    6,    7,	  8,
					   9, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16 };
	struct nvme_cqe cqe = nvme_cqe_decode(bytes);

	(void)state;
	assert_int_equal(cqe.result, 0x0807060504030201);
	assert_int_equal(cqe.sq_head, 0x1009);
	assert_int_equal(cqe.sq_id, 0x1211);
	assert_int_equal(cqe.cid, 0x1413);
	assert_int_equal(cqe.status, 0x1615 >> 1);
}

static void test_in_capsule(void **state)
{
	(void)state;
	assert_true(nvme_in_capsule(8192, 8192));
	assert_true(nvme_in_capsule(8192, 1));
	assert_false(nvme_in_capsule(8192, 8193));
	assert_false(nvme_in_capsule(8192, 0));
	assert_false(nvme_in_capsule(0, 1));
}

/* ---- PDUs ---- */

static void test_icreq(void **state)
{
	struct nvme_wire wire = { .header_digest = true, .hpda = 5, .r2t_nr = 16 };
	uint8_t buf[128];

	(void)state;
	memset(buf, 0xff, sizeof(buf));
	nvme_pdu_icreq(buf, &wire);
	check(buf, 128, "00 00 80 00 80000000 0000 05 01 0f000000");
	wire = (struct nvme_wire){ .data_digest = true, .r2t_nr = 1 };
	nvme_pdu_icreq(buf, &wire);
	check(buf, 128, "00 00 80 00 80000000 0000 00 02");
}

/* Where data begin: TCP 3.6.1, PDO a multiple of CPDA + 1 dwords. */
static void test_capsule(void **state)
{
	static const struct {
		bool header, data;
		uint8_t cpda;
		uint32_t bytes, head, plen;
		uint8_t flags, pdo;
	} cases[] = {
		{ false, false, 0, 0, 72, 72, 0, 0 },
		{ true, true, 0, 0, 76, 76, 1, 0 },
		{ true, false, 31, 0, 76, 76, 1, 0 },
		{ false, false, 0, 512, 72, 584, 0, 72 },
		{ true, false, 0, 512, 76, 588, 1, 76 },
		{ false, true, 0, 512, 72, 588, 2, 72 },
		{ true, true, 0, 512, 76, 592, 3, 76 },
		{ false, false, 3, 512, 80, 592, 0, 80 },
		{ true, true, 31, 512, 128, 644, 3, 128 },
		{ false, false, 16, 512, 136, 648, 0, 136 },
		{ true, true, 17, 512, 144, 660, 3, 144 },
	};
	uint8_t buf[NVME_PDU_HEAD_BYTES_MAX];

	(void)state;
	nvme_command_flush(sqe, 7);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct nvme_wire wire = { .header_digest = cases[i].header,
						.data_digest = cases[i].data,
						.cpda = cases[i].cpda };

		memset(buf, 0xff, sizeof(buf));
		assert_int_equal(nvme_pdu_capsule(buf, &wire, sqe, cases[i].bytes), cases[i].head);
		assert_int_equal(buf[0], NVME_PDU_CAPSULE_CMD);
		assert_int_equal(buf[1], cases[i].flags);
		assert_int_equal(buf[2], 72);
		assert_int_equal(buf[3], cases[i].pdo);
		assert_int_equal(nvme_get32(buf + 4), cases[i].plen);
		assert_memory_equal(buf + 8, sqe, 64);
		if (cases[i].header)
			assert_int_equal(nvme_get32(buf + 72), crc32c(0, buf, 72));
		for (uint32_t at = cases[i].header ? 76 : 72; at < cases[i].head; at++)
			assert_int_equal(buf[at], 0);
	}
}

static void test_h2c_data(void **state)
{
	const struct nvme_wire wire = { .data_digest = true, .maxh2cdata_bytes = 4096 };
	struct nvme_h2c h = {
		.cid = 0x1234, .ttag = 0x5678, .at_bytes = 0x11223344, .bytes = 4096, .last = true
	};
	uint8_t buf[NVME_PDU_HEAD_BYTES_MAX], digest[4];

	(void)state;
	assert_int_equal(nvme_pdu_h2c_data(buf, &wire, &h), 24);
	check(buf, 24, "06 06 18 18 1c100000 3412 7856 44332211 00100000");
	h.last = false;
	nvme_pdu_h2c_data(buf, &wire, &h);
	assert_int_equal(buf[1], NVME_PDU_FLAG_DDGST);
	nvme_pdu_data_digest(digest, 0x11223344);
	check(digest, 4, "44332211");
	assert_int_equal(nvme_pdu_h2c_bytes(&wire, 5000), 4096);
	assert_int_equal(nvme_pdu_h2c_bytes(&wire, 4000), 4000);
}

static void test_term(void **state)
{
	static const uint8_t header[128] = { 7, [127] = 9 };
	uint8_t buf[152];

	(void)state;
	memset(buf, 0xff, sizeof(buf));
	assert_int_equal(nvme_pdu_term(buf, NVME_FES_HEADER_FIELD, 0x11223344, header, 8), 32);
	check(buf, 32, "02 00 18 00 20000000 0100 44332211 00000000 000000000000 07");
	assert_int_equal(nvme_pdu_term(buf, NVME_FES_SEQUENCE, 0, header, 128), 152);
	assert_memory_equal(buf + 24, header, 128);
	assert_int_equal(nvme_pdu_term(buf, NVME_FES_SEQUENCE, 0, NULL, 0), 24);
	assert_null(nvme_pdu_name(8));
	assert_null(nvme_pdu_name(10));
	assert_string_equal(nvme_pdu_name(9), "R2T");
	assert_string_equal(nvme_fes_words(0), "an unknown error");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_io),	   cmocka_unit_test(test_fabrics),
		cmocka_unit_test(test_admin),	   cmocka_unit_test(test_cqe),
		cmocka_unit_test(test_in_capsule), cmocka_unit_test(test_icreq),
		cmocka_unit_test(test_capsule),	   cmocka_unit_test(test_h2c_data),
		cmocka_unit_test(test_term),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
