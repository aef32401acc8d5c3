/* What NBD servers answer, in all forms that are right. */
#include <errno.h>

#include "test/rig/nbd_reply_case.h"

static void test_simple(void **state)
{
	(void)state;
	start(SIMPLE);
	add_simple(&b, 103, 0);
	add_simple(&b, 101, 0);
	for (unsigned i = 0; i < 1024; i++)
		*bytes_room(&b, 1) = (uint8_t)((4096 + i) * 7);
	add_simple(&b, 100, 5);
	add_simple(&b, 104, 28);
	run("done 3 0\ndone 1 0\ndone 0 -5\ndone 4 -28\nbetween\n");
	check_data(1, 0, 1024);
}

static void test_one_chunk(void **state)
{
	(void)state;
	for (enum nbd_reply_mode mode = STRUCTURED; mode <= EXTENDED; mode++) {
		start(mode);
		data(100, DONE, 4096, 1024);
		chunk(103, DONE, NBD_REPLY_TYPE_NONE, 0);
		/* Unknown flags are ignored. */
		data(102, DONE | 0x80, 4096, 1024);
		run("done 0 0\ndone 3 0\ndone 2 0\nbetween\n");
		check_data(0, 0, 1024);
		check_data(2, 0, 1024);
	}
}

static void test_many_chunks(void **state)
{
	(void)state;
	for (enum nbd_reply_mode mode = STRUCTURED; mode <= EXTENDED; mode++) {
		start(mode);
		/* two READs in each other's way, one backwards */
		data(100, 0, 4096 + 1000, 24);
		data(101, 0, 4096, 1);
		hole(100, 0, 4096 + 500, 500);
		data(101, 0, 4096 + 1, 1023);
		chunk(104, DONE, NBD_REPLY_TYPE_NONE, 0);
		data(100, DONE, 4096, 500);
		chunk(101, DONE, NBD_REPLY_TYPE_NONE, 0);
		run("zeroes 0 500+500\ndone 4 0\ndone 0 0\ndone 1 0\nbetween\n");
		check_data(0, 0, 500);
		check_data(0, 1000, 1024);
		assert_int_equal(rig.buffer[0][999], 0);
		check_data(1, 0, 1024);
	}
}

/* Every second byte, then the others: as many gaps as fit, then one more. */
static void test_gaps(void **state)
{
	(void)state;
	start(STRUCTURED);
	for (unsigned i = 0; i < NBD_RANGES_MAX; i++)
		data(100, 0, 4096 + 2 * i, 1);
	for (unsigned i = 0; i < NBD_RANGES_MAX; i++)
		data(100, 0, 4096 + 2 * i + 1, 1);
	data(100, DONE, 4096 + 32, 1024 - 32);
	run("done 0 0\nbetween\n");
	check_data(0, 0, 1024);
	start(STRUCTURED);
	for (unsigned i = 0; i <= NBD_RANGES_MAX; i++)
		data(100, 0, 4096 + 2 * i, 1);
	run_broken("a READ's data comes in too many places at once, above the limit of 16");
}

static void test_ranges(void **state)
{
	/* Against a byte per byte: all outcomes, in any order. */
	static const uint32_t bytes = 64;
	unsigned added = 0, full = 0;
	struct nbd_ranges r;
	struct prng p;

	(void)state;
	prng_init(&p, 3);
	for (unsigned round = 0; round < 2000; round++) {
		uint8_t has[64] = { 0 };

		nbd_ranges_init(&r);
		for (unsigned i = 0; i < 400; i++) {
			uint32_t from = (uint32_t)prng_below(&p, bytes);
			uint32_t to = from + 1 + (uint32_t)prng_below(&p, MIN(bytes - from, 6u));
			bool there = memchr(has + from, 1, to - from);
			int err = nbd_ranges_add(&r, from, to);

			assert_true(there ? err == -EEXIST : err == 0 || r.nr == NBD_RANGES_MAX);
			if (err == 0)
				memset(has + from, 1, to - from);
			added += err == 0;
			assert_int_equal(nbd_ranges_full(&r, bytes), !memchr(has, 0, bytes));
		}
		full += nbd_ranges_full(&r, bytes);
	}
	assert_true(added > 10000 && full > 0);
}

static void test_errors(void **state)
{
	(void)state;
	for (enum nbd_reply_mode mode = STRUCTURED; mode <= EXTENDED; mode++) {
		start(mode);
		error(103, DONE, 28, "");
		/* The first error counts; data behind a generic one is no offence. */
		error(100, 0, 5, "bad\n sector");
		data(100, 0, 4096, 512);
		error(100, 0, 12, "x");
		chunk(100, DONE, NBD_REPLY_TYPE_NONE, 0);
		data(101, 0, 4096, 1024);
		error_offset(101, 0, 1, "there", 4096 + 1023);
		chunk(101, DONE, NBD_REPLY_TYPE_NONE, 0);
		/* of a later protocol: an error all the same */
		chunk(105, DONE, 0x8077, 6 + 2 + 5);
		add32(&b, 4242);
		add16(&b, 2);
		add_text(&b, "hi12345");
		run("error 3 -28 WRITE failed: the server gives no reason\ndone 3 -28\n"
		    "error 0 -5 READ failed: the server says \"bad\\x0a sector\"\n"
		    "error 0 -12 READ failed: the server says \"x\"\ndone 0 -5\n"
		    "error 1 -1 READ failed at 5119: the server says \"there\"\ndone 1 -1\n"
		    "error 5 -22 TRIM failed: the server says \"hi\"\ndone 5 -22\n"
		    "between\n");
		/* data before an error elsewhere, data behind it elsewhere */
		start(mode);
		error_offset(100, 0, 5, "", 4096 + 10);
		data(100, 0, 4096, 10);
		data(100, DONE, 4096 + 11, 1024 - 11);
		run("error 0 -5 READ failed at 4106: the server gives no reason\ndone 0 "
		    "-5\nbetween\n");
	}
}

static void test_long_text(void **state)
{
	char text[4097], log[400];

	(void)state;
	memset(text, 'e', sizeof(text));
	text[4096] = '\0';
	start(STRUCTURED);
	error_offset(103, DONE, 5, text, 4096);
	snprintf(log, sizeof(log),
		 "error 3 -5 WRITE failed: the server says \"%.96s...\"\ndone 3 -5\nbetween\n",
		 text);
	run(log);
}

static void test_simple_among_structured(void **state)
{
	(void)state;
	start(STRUCTURED);
	add_simple(&b, 103, 0);
	add_simple(&b, 104, 1);
	add_simple(&b, 105, 22);
	run("done 3 0\ndone 4 -1\ndone 5 -22\nbetween\n");
	start(STRUCTURED);
	add_simple(&b, 100, 0);
	run_broken("a simple reply to READ, structured ones were negotiated");
}

/* Cut at every byte: inside, but at the borders of replies. */
static void test_cut(void **state)
{
	size_t first;

	(void)state;
	start(STRUCTURED);
	data(100, DONE, 4096, 1024);
	first = b.nr;
	error(103, DONE, 5, "text");
	for (size_t nr = 0; nr <= b.nr; nr++) {
		again();
		rig_feed(&rig, b.at, nr);
		assert_int_equal(nbd_reply_is_inside(&rig.r), nr != 0 && nr != first && nr != b.nr);
		assert_int_equal(rig.answers[0], nr >= first);
		assert_int_equal(rig.answers[3], nr == b.nr);
	}
}

/* Payload that the owner receives by itself, in steps of its own. */
static void test_direct(void **state)
{
	struct nbd_input in;

	(void)state;
	start(STRUCTURED);
	data(100, DONE, 4096, 1024);
	again();
	in = (struct nbd_input){ b.at, b.at + 28 + 100 };
	assert_int_equal(nbd_reply_next(&rig.r, &in), NBD_REPLY_PAYLOAD);
	assert_ptr_equal(in.at, b.at + 28);
	assert_ptr_equal(rig.r.slot, &rig.slot[0]);
	assert_true(rig.r.at_bytes == 0 && rig.r.bytes == 1024);
	in.at += 100;
	nbd_reply_took(&rig.r, 100);
	assert_int_equal(nbd_reply_next(&rig.r, &in), NBD_REPLY_PAYLOAD);
	assert_true(rig.r.at_bytes == 100 && rig.r.bytes == 924);
	nbd_reply_took(&rig.r, 924);
	assert_int_equal(nbd_reply_next(&rig.r, &in), NBD_REPLY_DONE);
	assert_int_equal(nbd_reply_next(&rig.r, &in), NBD_REPLY_MORE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_simple),	    cmocka_unit_test(test_one_chunk),
		cmocka_unit_test(test_many_chunks), cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_ranges),	    cmocka_unit_test(test_errors),
		cmocka_unit_test(test_long_text),   cmocka_unit_test(test_simple_among_structured),
		cmocka_unit_test(test_cut),	    cmocka_unit_test(test_direct),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
