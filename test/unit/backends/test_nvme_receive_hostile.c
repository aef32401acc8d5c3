/* What no NVMe/TCP target may send: each is told in words, with what H2CTermReq says of it. */
#include "test/rig/nvme_receive_case.h"

#define FIELD NVME_FES_HEADER_FIELD
#define SEQUENCE NVME_FES_SEQUENCE
#define RANGE NVME_FES_OUT_OF_RANGE

static void header(uint8_t type, uint8_t flags, uint8_t hlen, uint32_t plen)
{
	uint8_t *at = add_header(&b, (struct pdu){ type, flags, 128, 0, plen });

	at[2] = hlen;
}

static void test_types(void **state)
{
	static const uint8_t host[] = { 0, 2, 4, 6 };
	char words[64];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(host); i++) {
		start(0);
		header(host[i], 0, 24, 24);
		snprintf(words, sizeof(words), "%s, which only a host sends",
			 nvme_pdu_name(host[i]));
		run_broken(SEQUENCE, 0, words);
	}
	start(0);
	header(8, 0, 24, 24);
	run_broken(FIELD, 0, "a PDU of unknown type 0x08");
	start(0);
	header(10, 0, 24, 24);
	run_broken(FIELD, 0, "a PDU of unknown type 0x0a");
	start_cold(0, 0, 1);
	memcpy(bytes_room(&b, 12), "SSH-2.0-abcd", 12);
	run_broken(FIELD, 0, "what answers is no NVMe/TCP target: a PDU of unknown type 0x53");
	start(0);
	add_icresp(&b, 0, 0, 4096);
	run_broken(SEQUENCE, 0, "ICResp for the second time");
	start_cold(0, 0, 1);
	response(0x104, 0);
	run_broken(SEQUENCE, 0, "CapsuleResp before ICResp");
}

static void broken_icresp(unsigned asked, unsigned at, uint32_t value, unsigned bytes,
			  enum nvme_fes fes, const char *words)
{
	uint8_t *pdu;

	start_cold(asked, 0, 1);
	pdu = add_icresp(&b, 0, (uint8_t)asked, 4096);
	if (bytes == 1)
		pdu[at] = (uint8_t)value;
	else
		nvme_put32(pdu + at, value);
	run_broken(fes, at, words);
}

static void test_icresp(void **state)
{
	(void)state;
	broken_icresp(0, 2, 24, 1, FIELD, "ICResp with HLEN 24 instead of 128");
	broken_icresp(0, 4, 127, 4, FIELD, "ICResp of 127 bytes instead of 128");
	broken_icresp(0, 4, 129, 4, FIELD, "ICResp of 129 bytes instead of 128");
	broken_icresp(0, 8, 1, 1, NVME_FES_UNSUPPORTED,
		      "ICResp with PDU format version 1: only 0 is known");
	broken_icresp(0, 10, 32, 1, FIELD, "ICResp with CPDA 32, above 31");
	broken_icresp(0, 11, 1, 1, FIELD, "ICResp with digests 0x1, asked for were 0x0");
	broken_icresp(1, 11, 3, 1, FIELD, "ICResp with digests 0x3, asked for were 0x1");
	broken_icresp(3, 11, 0x83, 1, FIELD, "ICResp with digests 0x83, asked for were 0x3");
	broken_icresp(0, 12, 4095, 4, FIELD,
		      "ICResp with MAXH2CDATA 4095: a multiple of 4 from 4096 on is allowed");
	broken_icresp(0, 12, 4092, 4, FIELD,
		      "ICResp with MAXH2CDATA 4092: a multiple of 4 from 4096 on is allowed");
	broken_icresp(0, 12, 4098, 4, FIELD,
		      "ICResp with MAXH2CDATA 4098: a multiple of 4 from 4096 on is allowed");
}

static void refused(unsigned asked, unsigned got, const char *which)
{
	char log[200];

	start_cold(asked, 0, 1);
	add_icresp(&b, 0, (uint8_t)got, 4096);
	snprintf(log, sizeof(log),
		 "broken 6 11: the target does not do %s digests: leave out %s_digest, or enable "
		 "them there\n",
		 which, strcmp(which, "header") == 0 ? "hdr" : which);
	run(log);
	assert_int_equal(rig.r.err, -EOPNOTSUPP);
}

static void test_refused_digests(void **state)
{
	(void)state;
	refused(1, 0, "header");
	refused(2, 0, "data");
	refused(3, 1, "data");
	refused(3, 2, "header");
}

static void test_common(void **state)
{
	(void)state;
	start(0);
	response(0x104, 0)[2] = 25;
	run_broken(FIELD, 2, "CapsuleResp with HLEN 25 instead of 24");
	start(0);
	response(0x104, 0)[4] = 23;
	run_broken(FIELD, 4, "CapsuleResp of 23 bytes instead of 24");
	start(0);
	response(0x104, 0)[7] = 0x80;
	run_broken(FIELD, 4, "CapsuleResp of 2147483672 bytes instead of 24");
	start(0);
	r2t(0x102, 1, 0, 512);
	b.at[4] = 28;
	run_broken(FIELD, 4, "R2T of 28 bytes instead of 24");
	start(1);
	r2t(0x102, 1, 0, 512);
	b.at[4] = 24;
	run_broken(FIELD, 4, "R2T of 24 bytes instead of 28");
	start(0);
	header(NVME_PDU_C2H_TERM, 0, 24, 23);
	run_broken(FIELD, 4, "C2HTermReq of 23 bytes");
	start(0);
	header(NVME_PDU_C2H_TERM, 0, 24, 153);
	run_broken(FIELD, 4, "C2HTermReq of 153 bytes");
	start(0);
	header(NVME_PDU_C2H_TERM, 0, 24, 0);
	run_broken(FIELD, 4, "C2HTermReq of 0 bytes");
	start(0);
	header(NVME_PDU_C2H_TERM, 0, 20, 24);
	run_broken(FIELD, 2, "C2HTermReq with HLEN 20 instead of 24");
}

static void test_digests(void **state)
{
	char words[100];
	uint32_t is;

	(void)state;
	start(0);
	digests = 1;
	response(0x104, 0);
	run_broken(FIELD, 1, "CapsuleResp with a header digest, which was not agreed on");
	start(1);
	digests = 0;
	response(0x104, 0);
	run_broken(FIELD, 1, "CapsuleResp without a header digest, which was agreed on");
	start(0);
	digests = 2;
	data(0x100, 0, 0, 8);
	run_broken(FIELD, 1, "C2HData with a data digest, which was not agreed on");
	start(2);
	digests = 0;
	data(0x100, 0, 0, 8);
	run_broken(FIELD, 1, "C2HData without a data digest, which was agreed on");
	/* any bit of a header, or of its digest */
	for (unsigned bit = 8 * 8; bit < 28 * 8; bit++) {
		start(1);
		response(0x104, 0);
		b.at[bit / 8] ^= (uint8_t)(1u << bit % 8);
		is = crc32c(0, b.at, 24);
		snprintf(words, sizeof(words),
			 "CapsuleResp with header digest 0x%08x, it is 0x%08x",
			 nvme_get32(b.at + 24), is);
		run_broken(NVME_FES_HEADER_DIGEST, nvme_get32(b.at + 24), words);
	}
}

static void test_commands(void **state)
{
	(void)state;
	start(0);
	response(0xff, 0);
	run_broken(FIELD, 20, "CapsuleResp for command 0x00ff, which is not under way");
	start(0);
	response(0x106, 0);
	run_broken(FIELD, 20, "CapsuleResp for command 0x0106, which is not under way");
	start(0);
	data(0xffff, 0, 0, 8);
	run_broken(FIELD, 8, "C2HData for command 0xffff, which is not under way");
	start(0);
	r2t(0x107, 0, 0, 8);
	run_broken(FIELD, 8, "R2T for command 0x0107, which is not under way");
	/* answered twice */
	start(0);
	response(0x104, 0);
	response(0x104, 0);
	run("done 4 0x0 result 0x0\n"
	    "broken 1 20: CapsuleResp for command 0x0104, which is not under way\n");
	start(0);
	data(0x100, LAST | SUCCESS, 0, READ_BYTES);
	response(0x100, 0);
	run("done 0 0x0 result 0x0\n"
	    "broken 1 20: CapsuleResp for command 0x0100, which is not under way\n");
}

/* A command of which not all data came or went has not succeeded. */
static void test_incomplete(void **state)
{
	(void)state;
	start(0);
	response(0x100, 0);
	run_broken(SEQUENCE, 0,
		   "CapsuleResp says that command 0x0100 succeeded, with 0 bytes of 4096");
	start(0);
	data(0x100, LAST, 0, READ_BYTES - 1);
	response(0x100, 0);
	run_broken(SEQUENCE, 0,
		   "CapsuleResp says that command 0x0100 succeeded, with 4095 bytes of 4096");
	start(0);
	data(0x100, LAST | SUCCESS, 0, 4);
	run_broken(SEQUENCE, 0, "C2HData says that command 0x0100 succeeded, with 4 bytes of 4096");
	start(0);
	response(0x102, 0);
	run_broken(SEQUENCE, 0,
		   "CapsuleResp says that command 0x0102 succeeded, before all of its 8192 bytes "
		   "were sent");
	start(0);
	r2t(0x102, 1, 0, WRITE_BYTES - 1);
	response(0x102, 0);
	run("r2t 2 0+8191 tag 1\n"
	    "broken 2 0: CapsuleResp says that command 0x0102 succeeded, before all of its 8192 "
	    "bytes were sent\n");
	start(0);
	fresh.keep_r2ts = true;
	r2t(0x102, 1, 0, WRITE_BYTES);
	response(0x102, 0);
	run("r2t 2 0+8192 tag 1\n"
	    "broken 2 0: CapsuleResp says that command 0x0102 succeeded, before all of its 8192 "
	    "bytes were sent\n");
}

static void broken_data(uint16_t cid, uint8_t flags, uint32_t offset, uint32_t bytes,
			enum nvme_fes fes, uint32_t fei, const char *words)
{
	start(0);
	data(cid, flags, 0, 16);
	nvme_put32(b.at + 4, 24 + bytes);
	nvme_put32(b.at + 12, offset);
	nvme_put32(b.at + 16, bytes);
	run_broken(fes, fei, words);
}

static void test_data(void **state)
{
	(void)state;
	broken_data(0x102, 0, 0, 16, FIELD, 8, "C2HData for command 0x0102, which reads no data");
	broken_data(0x104, 0, 0, 16, FIELD, 8, "C2HData for command 0x0104, which reads no data");
	broken_data(0x100, 0, 0, 0, FIELD, 16, "C2HData of 0 bytes");
	broken_data(0x100, 0, 0, 4097, RANGE, 0, "C2HData of 4097 bytes at 0 of a buffer of 4096");
	broken_data(0x100, 0, 1, 4096, RANGE, 0, "C2HData of 4096 bytes at 1 of a buffer of 4096");
	broken_data(0x100, 0, 4096, 1, RANGE, 0, "C2HData of 1 bytes at 4096 of a buffer of 4096");
	broken_data(0x100, 0, UINT32_MAX, 2, RANGE, 0,
		    "C2HData of 2 bytes at 4294967295 of a buffer of 4096");
	broken_data(0x100, 0, 512, 16, FIELD, 12, "C2HData at 512, the next ones are at 0");
	broken_data(0x100, SUCCESS, 0, 16, FIELD, 1, "C2HData with SUCCESS, but without LAST_PDU");
	/* the length must be the one that PLEN says, also where they overflow */
	start(0);
	data(0x100, 0, 0, 16);
	nvme_put32(b.at + 16, 15);
	run_broken(FIELD, 4, "C2HData of 40 bytes with PDO 24 and 15 bytes of data");
	start(0);
	data(0x100, 0, 0, 16);
	nvme_put32(b.at + 16, UINT32_MAX - 23);
	nvme_put32(b.at + 4, 0);
	run_broken(FIELD, 4, "C2HData of 0 bytes with PDO 24 and 4294967272 bytes of data");
	/* twice, overlapping, behind the last */
	start(0);
	data(0x100, 0, 0, 16);
	data(0x100, 0, 8, 16);
	run_broken(FIELD, 12, "C2HData at 8, the next ones are at 16");
	start(0);
	data(0x100, LAST, 0, 16);
	data(0x100, LAST, 16, 16);
	run_broken(SEQUENCE, 0, "C2HData for command 0x0100 behind its LAST_PDU");
}

static void broken_pdo(unsigned with, uint8_t hpda, uint8_t pdo, const char *words)
{
	start_cold(with, hpda, 1);
	add_icresp(&b, 0, (uint8_t)with, 4096);
	rig_feed(&fresh, b.at, b.nr);
	fresh.log_bytes = b.nr = 0;
	data(0x100, 0, 0, 64);
	if (with & 1) {
		b.at[3] = pdo;
		nvme_put32(b.at + 24, crc32c(0, b.at, 24));
	}
	b.at[3] = pdo;
	run_broken(FIELD, 3, words);
}

static void test_pdo(void **state)
{
	(void)state;
	broken_pdo(0, 0, 0, "C2HData with PDO 0: a multiple of 4 from 24 on is allowed");
	broken_pdo(0, 0, 20, "C2HData with PDO 20: a multiple of 4 from 24 on is allowed");
	broken_pdo(0, 0, 25, "C2HData with PDO 25: a multiple of 4 from 24 on is allowed");
	broken_pdo(1, 0, 24, "C2HData with PDO 24: a multiple of 4 from 28 on is allowed");
	broken_pdo(0, 3, 24, "C2HData with PDO 24: a multiple of 16 from 24 on is allowed");
	broken_pdo(0, 31, 64, "C2HData with PDO 64: a multiple of 128 from 24 on is allowed");
}

static void broken_r2t(uint16_t cid, uint32_t offset, uint32_t bytes, enum nvme_fes fes,
		       uint32_t fei, const char *words)
{
	start(0);
	r2t(cid, 1, offset, bytes);
	run_broken(fes, fei, words);
}

static void test_r2t(void **state)
{
	(void)state;
	broken_r2t(0x100, 0, 16, FIELD, 8, "R2T for command 0x0100, which sends no data");
	broken_r2t(0x104, 0, 16, FIELD, 8, "R2T for command 0x0104, which sends no data");
	broken_r2t(0x102, 0, 0, FIELD, 16, "R2T for 0 bytes");
	broken_r2t(0x102, 0, 8193, RANGE, 0, "R2T for 8193 bytes at 0 of a buffer of 8192");
	broken_r2t(0x102, 1, 8192, RANGE, 0, "R2T for 8192 bytes at 1 of a buffer of 8192");
	broken_r2t(0x102, UINT32_MAX, 2, RANGE, 0,
		   "R2T for 2 bytes at 4294967295 of a buffer of 8192");
	broken_r2t(0x102, 512, 512, FIELD, 12, "R2T for bytes at 512, the next ones are at 0");
	/* what was in the capsule */
	broken_r2t(0x103, 0, 512, FIELD, 12, "R2T for bytes at 0, the next ones are at 512");
	broken_r2t(0x103, 512, 1, RANGE, 0, "R2T for 1 bytes at 512 of a buffer of 512");
	/* twice the same */
	start(0);
	r2t(0x102, 1, 0, 512);
	r2t(0x102, 1, 0, 512);
	run("r2t 2 0+512 tag 1\nbroken 1 12: R2T for bytes at 0, the next ones are at 512\n");
	start(0);
	fresh.keep_r2ts = true;
	r2t(0x102, 1, 0, 512);
	r2t(0x102, 2, 512, 512);
	run("r2t 2 0+512 tag 1\n"
	    "broken 5 0: R2T number 2 under way for command 0x0102, above the limit of 1\n");
}

/* For good: nothing revives it. And the header in error goes back. */
static void test_for_good(void **state)
{
	uint8_t term[NVME_PDU_TERM_BYTES_MAX];
	struct nvme_input in;

	(void)state;
	start(0);
	response(0x106, 3);
	again();
	rig_feed(&rig, b.at, b.nr);
	assert_int_equal(nvme_receive_term(&rig.r, term), 48);
	assert_int_equal(nvme_get16(term + 8), 1);
	assert_int_equal(nvme_get32(term + 10), 20);
	assert_memory_equal(term + 24, b.at, 24);
	b.nr = 0;
	response(0x104, 0);
	in = (struct nvme_input){ b.at, b.at + b.nr };
	assert_int_equal(nvme_receive_next(&rig.r, &in), NVME_RECEIVE_BROKEN);
	assert_ptr_equal(in.at, b.at);
	start(0);
	header(NVME_PDU_C2H_TERM, 0, 24, 24);
	again();
	rig_feed(&rig, b.at, 24);
	assert_int_equal(nvme_receive_next(&rig.r, &in), NVME_RECEIVE_TERMINATED);
	assert_int_equal(nvme_receive_term(&rig.r, term), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_icresp),
		cmocka_unit_test(test_refused_digests),
		cmocka_unit_test(test_common),
		cmocka_unit_test(test_digests),
		cmocka_unit_test(test_commands),
		cmocka_unit_test(test_incomplete),
		cmocka_unit_test(test_data),
		cmocka_unit_test(test_pdo),
		cmocka_unit_test(test_r2t),
		cmocka_unit_test(test_for_good),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
