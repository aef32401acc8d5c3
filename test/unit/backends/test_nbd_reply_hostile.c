/* What no NBD server may answer: each is told in words, and no byte of it is believed. */
#include "test/rig/nbd_reply_case.h"

static void test_magics(void **state)
{
	static const struct {
		enum nbd_reply_mode mode;
		uint32_t magic;
	} bad[] = { { SIMPLE, NBD_STRUCTURED_REPLY_MAGIC },   { SIMPLE, NBD_EXTENDED_REPLY_MAGIC },
		    { STRUCTURED, NBD_EXTENDED_REPLY_MAGIC }, { EXTENDED, NBD_SIMPLE_REPLY_MAGIC },
		    { EXTENDED, NBD_STRUCTURED_REPLY_MAGIC }, { SIMPLE, 0x96744668 } };
	char words[64];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		start(bad[i].mode);
		add32(&b, bad[i].magic);
		add_fill(&b, 0, 28);
		snprintf(words, sizeof(words), "a reply with magic 0x%08x", bad[i].magic);
		run_broken(words);
	}
}

static void test_cookies(void **state)
{
	(void)state;
	start(SIMPLE);
	add_simple(&b, 4242, 0);
	run_broken("a reply to nothing that waits, cookie 0x1092");
	start(SIMPLE);
	add_simple(&b, 107, 0);
	run_broken("a reply to nothing that waits, cookie 0x6b");
	/* answered twice */
	start(STRUCTURED);
	chunk(103, DONE, NBD_REPLY_TYPE_NONE, 0);
	error(103, DONE, 5, "");
	run("done 3 0\nbroken: a reply to nothing that waits, cookie 0x67\ninside\n");
}

/* For good: nothing revives it. */
static void test_broken_for_good(void **state)
{
	(void)state;
	start(SIMPLE);
	add_simple(&b, 4242, 0);
	again();
	rig_feed(&rig, b.at, b.nr);
	b.nr = 0;
	add_simple(&b, 103, 0);
	rig_feed(&rig, b.at, b.nr);
	assert_int_equal(rig.last, NBD_REPLY_BROKEN);
	assert_int_equal(rig.answers[3], 0);
}

static void broken_read(enum nbd_reply_mode mode, uint64_t offset, uint32_t bytes,
			const char *words)
{
	start(mode);
	chunk(100, 0, NBD_REPLY_TYPE_OFFSET_DATA, 8 + (uint64_t)bytes);
	add64(&b, offset);
	run_broken(words);
}

static void test_outside(void **state)
{
	(void)state;
	for (enum nbd_reply_mode mode = STRUCTURED; mode <= EXTENDED; mode++) {
		broken_read(mode, 4095, 1,
			    "OFFSET_DATA of 1 bytes at 4095 is outside its READ of 1024 at 4096");
		broken_read(mode, 4096 + 1024, 1,
			    "OFFSET_DATA of 1 bytes at 5120 is outside its READ of 1024 at 4096");
		broken_read(
			mode, 4097, 1024,
			"OFFSET_DATA of 1024 bytes at 4097 is outside its READ of 1024 at 4096");
		broken_read(mode, UINT64_MAX, 1,
			    "OFFSET_DATA of 1 bytes at 18446744073709551615 is outside its READ of "
			    "1024 at 4096");
		broken_read(
			mode, 4096, UINT32_MAX - 8,
			"OFFSET_DATA of 4294967287 bytes at 4096 is outside its READ of 1024 at "
			"4096");
		start(mode);
		hole(100, 0, 4096, UINT32_MAX);
		run_broken("OFFSET_HOLE of 4294967295 bytes at 4096 is outside its READ of 1024 at "
			   "4096");
	}
	start(EXTENDED);
	chunk(100, 0, NBD_REPLY_TYPE_OFFSET_DATA, UINT64_MAX);
	add64(&b, 4096);
	run_broken("OFFSET_DATA of 18446744073709551607 bytes at 4096 is outside its READ of 1024 "
		   "at 4096");
}

static void test_twice_or_never(void **state)
{
	(void)state;
	start(STRUCTURED);
	data(100, 0, 4096, 512);
	data(100, DONE, 4096 + 511, 513);
	run_broken("data of a READ came twice, at 4607");
	start(STRUCTURED);
	data(100, 0, 4096, 512);
	hole(100, DONE, 4096, 512);
	run_broken("data of a READ came twice, at 4096");
	start(STRUCTURED);
	data(100, DONE, 4096, 1023);
	run_broken("a READ was answered without all of its data");
	start(STRUCTURED);
	data(100, 0, 4097, 1023);
	chunk(100, DONE, NBD_REPLY_TYPE_NONE, 0);
	run_broken("a READ was answered without all of its data");
	start(STRUCTURED);
	error_offset(100, 0, 5, "", 4096 + 10);
	data(100, 0, 4096, 11);
	run("error 0 -5 READ failed at 4106: the server gives no reason\n"
	    "broken: data of a READ behind its error at the same place\ninside\n");
}

static void broken_chunk(enum nbd_reply_mode mode, uint64_t cookie, uint16_t flags, uint16_t type,
			 uint64_t bytes, const char *words)
{
	start(mode);
	chunk(cookie, flags, type, bytes);
	add_fill(&b, 0, MIN(bytes, 64u));
	run_broken(words);
}

static void test_wrong_chunks(void **state)
{
	(void)state;
	for (enum nbd_reply_mode m = STRUCTURED; m <= EXTENDED; m++) {
		broken_chunk(m, 100, DONE, 1, 8, "OFFSET_DATA of 8 bytes");
		broken_chunk(m, 100, DONE, 2, 11, "OFFSET_HOLE of 11 bytes");
		broken_chunk(m, 100, DONE, 2, 13, "OFFSET_HOLE of 13 bytes");
		broken_chunk(m, 100, DONE, 0, 1, "a chunk NONE with 1 bytes, flags 0x1");
		broken_chunk(m, 103, 0, 0, 0, "a chunk NONE with 0 bytes, flags 0x0");
		broken_chunk(m, 103, DONE, 1, 20, "OFFSET_DATA in answer to WRITE");
		broken_chunk(m, 105, DONE, 2, 12, "OFFSET_HOLE in answer to TRIM");
		broken_chunk(m, 105, DONE, 5, 12, "a chunk of unknown type 5 in answer to TRIM");
		broken_chunk(m, 105, DONE, 6, 24, "a chunk of unknown type 6 in answer to TRIM");
		broken_chunk(m, 100, DONE, 3, 0, "a chunk of unknown type 3 in answer to READ");
		broken_chunk(m, 104, DONE, 0x7fff, 9,
			     "a chunk of unknown type 32767 in answer to FLUSH");
		broken_chunk(m, 103, DONE, 0x8001, 5, "an error chunk (0x8001) of 5 bytes");
		broken_chunk(m, 103, DONE, 0x8002, 13, "an error chunk (0x8002) of 13 bytes");
		broken_chunk(m, 103, DONE, 0x8001, 4161, "an error chunk (0x8001) of 4161 bytes");
		broken_chunk(m, 103, DONE, 0x8001, 6, "an error chunk with error 0");
	}
	start(STRUCTURED);
	hole(100, DONE, 4096, 0);
	run_broken("a hole of 0 bytes");
	start(STRUCTURED);
	hole(102, DONE, 4096, 1024);
	run_broken("a READ that must not be fragmented came in fragments");
	start(STRUCTURED);
	data(102, 0, 4096, 512);
	data(102, DONE, 4096 + 512, 512);
	run_broken("a READ that must not be fragmented came in fragments");
	start(EXTENDED);
	add_chunk(&b, true, 103, DONE, NBD_REPLY_TYPE_NONE, 0, 4097);
	run_broken("a reply to WRITE at 4096 says it is for 4097");
}

static void test_wrong_errors(void **state)
{
	(void)state;
	start(STRUCTURED);
	chunk(103, DONE, NBD_REPLY_TYPE_ERROR, 10);
	add32(&b, 5);
	add16(&b, 5);
	run_broken("an error text of 5 bytes in a chunk of 10");
	start(STRUCTURED);
	chunk(103, DONE, NBD_REPLY_TYPE_ERROR_OFFSET, 18);
	add32(&b, 5);
	add16(&b, 5);
	run_broken("an error text of 5 bytes in a chunk of 18");
	start(STRUCTURED);
	chunk(103, DONE, NBD_REPLY_TYPE_ERROR, 4160);
	add32(&b, 5);
	add16(&b, 4097);
	run_broken("an error text of 4097 bytes in a chunk of 4160");
	start(STRUCTURED);
	error_offset(103, DONE, 5, "", 4096 + 1024);
	run_broken("an error at 5120, outside its WRITE");
	start(STRUCTURED);
	error_offset(103, DONE, 5, "", 4095);
	run_broken("an error at 4095, outside its WRITE");
	/* without end */
	start(STRUCTURED);
	for (unsigned i = 0; i <= NBD_REPLY_ERRORS_MAX; i++)
		error(103, 0, 5, "");
	again();
	rig_feed(&rig, b.at, b.nr);
	assert_int_equal(rig.last, NBD_REPLY_BROKEN);
	assert_string_equal(rig.r.error, "more than 16 error chunks in one reply");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_magics),		cmocka_unit_test(test_cookies),
		cmocka_unit_test(test_broken_for_good), cmocka_unit_test(test_outside),
		cmocka_unit_test(test_twice_or_never),	cmocka_unit_test(test_wrong_chunks),
		cmocka_unit_test(test_wrong_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
