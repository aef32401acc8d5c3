/* What an NVMe/TCP target answers, cut everywhere: each byte of data in its place, each command
 * once. */
#include "test/rig/nvme_receive_case.h"

static void test_ready(void **state)
{
	(void)state;
	start_cold(0, 0, 1);
	add_icresp(&b, 31, 0, 0x20000);
	run("ready 31 131072\nbetween\n");
	assert_false(rig.r.wire.header_digest || rig.r.wire.data_digest);
	start_cold(3, 0, 1);
	add_icresp(&b, 0, 3, 4096);
	run("ready 0 4096\nbetween\n");
	assert_true(rig.r.wire.header_digest && rig.r.wire.data_digest);
}

/* With each combination of digests. */
static void test_read(void **state)
{
	(void)state;
	for (unsigned d = 0; d <= 3; d++) {
		start(d);
		data(0x100, LAST, 0, READ_BYTES);
		response(0x100, 0);
		run("done 0 0x0 result 0x0\nbetween\n");
		check_data(0, 0, READ_BYTES);
		assert_int_equal(rig.r.cqe.cid, 0x100);

		start(d);
		data(0x101, 0, 0, 1);
		data(0x100, 0, 0, 4000);
		data(0x101, LAST, 1, READ_BYTES - 1);
		response(0x104, 0);
		data(0x100, LAST, 4000, 96);
		response(0x101, 0);
		response(0x100, 0);
		run("done 4 0x0 result 0x0\ndone 1 0x0 result 0x0\ndone 0 0x0 result "
		    "0x0\nbetween\n");
		check_data(0, 0, READ_BYTES);
		check_data(1, 0, READ_BYTES);
	}
}

/* SUCCESS: no CapsuleResp follows. */
static void test_success_flag(void **state)
{
	(void)state;
	for (unsigned d = 0; d <= 3; d++) {
		start(d);
		data(0x100, 0, 0, 100);
		data(0x100, LAST | SUCCESS, 100, READ_BYTES - 100);
		response(0x104, 0);
		run("done 0 0x0 result 0x0\ndone 4 0x0 result 0x0\nbetween\n");
		check_data(0, 0, READ_BYTES);
	}
}

static void test_padding(void **state)
{
	(void)state;
	for (unsigned d = 0; d <= 3; d++) {
		start_cold(d, 31, 1);
		add_icresp(&b, 0, (uint8_t)d, 4096);
		add_data(&b, d, LAST, 0x100, 0, READ_BYTES, 128);
		response(0x100, 0);
		run("ready 0 4096\ndone 0 0x0 result 0x0\nbetween\n");
		check_data(0, 0, READ_BYTES);
	}
}

static void test_write(void **state)
{
	(void)state;
	for (unsigned d = 0; d <= 3; d++) {
		start(d);
		r2t(0x102, 7, 0, 4096);
		r2t(0x102, 9, 4096, 4096);
		response(0x102, 0);
		response(0x103, 0);
		run("r2t 2 0+4096 tag 7\nr2t 2 4096+4096 tag 9\ndone 2 0x0 result 0x0\n"
		    "done 3 0x0 result 0x0\nbetween\n");
	}
	/* several at a time, when so agreed on */
	start_cold(0, 0, 3);
	fresh.keep_r2ts = true;
	add_icresp(&b, 0, 0, 4096);
	r2t(0x102, 1, 0, 1);
	r2t(0x102, 2, 1, 1);
	r2t(0x102, 3, 2, 1);
	run("ready 0 4096\nr2t 2 0+1 tag 1\nr2t 2 1+1 tag 2\nr2t 2 2+1 tag 3\nbetween\n");
}

/* Errors may come at any time, without any data. */
static void test_errors(void **state)
{
	(void)state;
	start(0);
	nvme_put64(response(0x104, 0) + 8, 0x1122334455667788);
	response(0x100, 0x4281);
	r2t(0x102, 1, 0, 512);
	response(0x102, 0x280);
	data(0x101, 0, 0, 512);
	response(0x101, 0x281);
	run("done 4 0x0 result 0x1122334455667788\ndone 0 0x4281 result 0x0\nr2t 2 0+512 tag 1\n"
	    "done 2 0x280 result 0x0\ndone 1 0x281 result 0x0\nbetween\n");
}

static void test_short(void **state)
{
	(void)state;
	start(0);
	data(0x105, LAST, 0, 100);
	response(0x105, 0);
	run("done 5 0x0 result 0x0\nbetween\n");
	assert_int_equal(rig.slot[5].came_bytes, 100);
	start(0);
	response(0x105, 0);
	run("done 5 0x0 result 0x0\nbetween\n");
	start(0);
	data(0x105, LAST | SUCCESS, 0, 100);
	run("done 5 0x0 result 0x0\nbetween\n");
}

/* A wrong data digest is that command's alone: it is to be tried again. */
static void test_data_digest(void **state)
{
	(void)state;
	for (unsigned success = 0; success < 2; success++) {
		start(2);
		data(0x100, 0, 0, 1024);
		b.at[b.nr - 1] ^= 1;
		data(0x100, success ? LAST | SUCCESS : LAST, 1024, READ_BYTES - 1024);
		if (!success)
			response(0x100, 0);
		data(0x101, LAST | SUCCESS, 0, READ_BYTES);
		run("done 0 0x22 result 0x0\ndone 1 0x0 result 0x0\nbetween\n");
		check_data(1, 0, READ_BYTES);
		/* of the data, not the digest */
		start(2);
		data(0x100, success ? LAST | SUCCESS : LAST, 0, READ_BYTES);
		b.at[100] ^= 1;
		if (!success)
			response(0x100, 0x4006);
		run(success ? "done 0 0x22 result 0x0\nbetween\n"
			    : "done 0 0x4006 result 0x0\nbetween\n");
	}
}

/* Straight to their place: PAYLOAD, then parts of it, without any input. */
static void test_direct(void **state)
{
	struct nvme_input in;
	uint8_t *payload;

	(void)state;
	start(3);
	data(0x100, LAST | SUCCESS, 0, READ_BYTES);
	payload = b.at + 28;
	again();
	in = (struct nvme_input){ b.at, payload };
	assert_int_equal(nvme_receive_next(&rig.r, &in), NVME_RECEIVE_PAYLOAD);
	assert_ptr_equal(rig.r.slot, &rig.slot[0]);
	assert_int_equal(rig.r.bytes, READ_BYTES);
	nvme_receive_took(&rig.r, payload, 1000);
	assert_true(nvme_receive_is_inside(&rig.r));
	in = (struct nvme_input){ NULL, NULL };
	assert_int_equal(nvme_receive_next(&rig.r, &in), NVME_RECEIVE_PAYLOAD);
	assert_int_equal(rig.r.at_bytes, 1000);
	assert_int_equal(rig.r.bytes, READ_BYTES - 1000);
	nvme_receive_took(&rig.r, payload + 1000, READ_BYTES - 1000);
	assert_int_equal(nvme_receive_next(&rig.r, &in), NVME_RECEIVE_MORE);
	in = (struct nvme_input){ payload + READ_BYTES, payload + READ_BYTES + 4 };
	assert_int_equal(nvme_receive_next(&rig.r, &in), NVME_RECEIVE_DONE);
	assert_int_equal(rig.r.cqe.status, 0);
	assert_int_equal(nvme_receive_next(&rig.r, &in), NVME_RECEIVE_MORE);
	assert_false(nvme_receive_is_inside(&rig.r));
}

static void term(uint16_t fes, uint32_t fei, uint8_t bad_bytes, uint8_t bad_type)
{
	uint8_t *at = add_header(&b, (struct pdu){ NVME_PDU_C2H_TERM, 0, 24, 0, 24u + bad_bytes });

	nvme_put16(at + 8, fes);
	nvme_put32(at + 10, fei);
	if (bad_bytes)
		bytes_room(&b, bad_bytes)[0] = bad_type;
}

static void test_terminated(void **state)
{
	static const struct {
		uint16_t fes;
		const char *words;
	} cases[] = {
		{ 1, "an invalid field in a PDU header at byte 70000 of CapsuleCmd" },
		{ 2, "a PDU out of sequence of CapsuleCmd" },
		{ 3, "a wrong header digest of CapsuleCmd" },
		{ 4, "data out of range of CapsuleCmd" },
		{ 5, "more data than its limit of CapsuleCmd" },
		{ 6, "an unsupported parameter at byte 70000 of CapsuleCmd" },
		{ 7, "an unknown error of CapsuleCmd" },
		{ 65535, "an unknown error of CapsuleCmd" },
	};
	char log[200];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		start(3);
		term(cases[i].fes, 70000, 128, NVME_PDU_CAPSULE_CMD);
		snprintf(log, sizeof(log),
			 "terminated: the target ended the connection for %s (C2HTermReq %u)\n",
			 cases[i].words, cases[i].fes);
		run(log);
		assert_int_equal(rig.r.err, -ECONNRESET);
	}
	/* instead of ICResp, and without a header */
	start_cold(0, 0, 1);
	term(6, 8, 0, 0);
	run("terminated: the target ended the connection for an unsupported parameter at byte 8 "
	    "(C2HTermReq 6)\n");
	start(0);
	term(1, 2, 8, 0xaa);
	run("terminated: the target ended the connection for an invalid field in a PDU header at "
	    "byte 2 (C2HTermReq 1)\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ready),	     cmocka_unit_test(test_read),
		cmocka_unit_test(test_success_flag), cmocka_unit_test(test_padding),
		cmocka_unit_test(test_write),	     cmocka_unit_test(test_errors),
		cmocka_unit_test(test_short),	     cmocka_unit_test(test_data_digest),
		cmocka_unit_test(test_direct),	     cmocka_unit_test(test_terminated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
