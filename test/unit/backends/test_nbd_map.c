/* nbd_map: a server's answers to BLOCK_STATUS, in any pieces, as one list of extents. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backends/nbd/nbd_map.h"
#include "test/rig/nbd_bytes.h"

#define GIB (1ull << 30)
#define CONTEXT 7

static struct nbd_map map;
static char told[1024];

static void on_extent(void *arg, uint64_t offset_bytes, uint64_t length_bytes, uint64_t flags)
{
	size_t at = strlen(told);

	assert_ptr_equal(arg, told);
	snprintf(told + at, sizeof(told) - at, "%llu+%llu %llu\n", (unsigned long long)offset_bytes,
		 (unsigned long long)length_bytes, (unsigned long long)flags);
}

static void start(bool extended, uint64_t size_bytes)
{
	const struct nbd_export export = { .size_bytes = size_bytes,
					   .structured = true,
					   .extended = extended,
					   .has_meta = true,
					   .meta_context = CONTEXT };

	told[0] = '\0';
	nbd_map_init(&map, &export, on_extent, told);
}

/* The next request asks for this. Its cookie is left in *ret_cookie. */
static void expect_request(bool extended, uint64_t offset, uint64_t length, uint64_t *ret_cookie)
{
	uint8_t buf[NBD_REQUEST_BYTES_MAX];

	assert_int_equal(nbd_map_request(&map, buf), extended ? 32 : 28);
	assert_int_equal(nbd_get16(buf + 6), NBD_CMD_BLOCK_STATUS);
	*ret_cookie = nbd_get64(buf + 8);
	assert_int_equal(nbd_get64(buf + 16), offset);
	assert_int_equal(extended ? nbd_get64(buf + 24) : nbd_get32(buf + 24), length);
}

static void expect_end(void)
{
	uint8_t buf[NBD_REQUEST_BYTES_MAX];

	assert_int_equal(nbd_map_request(&map, buf), 0);
}

struct extent {
	uint64_t bytes, flags;
};

static void add_answer(struct bytes *b, bool extended, uint64_t cookie, uint64_t offset,
		       const struct extent *extents, uint32_t nr)
{
	add_chunk(b, extended, cookie, NBD_REPLY_FLAG_DONE,
		  extended ? NBD_REPLY_TYPE_BLOCK_STATUS_EXT : NBD_REPLY_TYPE_BLOCK_STATUS,
		  extended ? 8 + 16 * nr : 4 + 8 * nr, offset);
	add32(b, CONTEXT);
	if (extended)
		add32(b, nr);
	for (uint32_t i = 0; i < nr; i++) {
		if (extended) {
			add64(b, extents[i].bytes);
			add64(b, extents[i].flags);
		} else {
			add32(b, (uint32_t)extents[i].bytes);
			add32(b, (uint32_t)extents[i].flags);
		}
	}
}

/* Byte by byte: only the last one answers. */
static void feed(const struct bytes *b, int expected)
{
	for (size_t i = 0; i + 1 < b->nr; i++)
		assert_int_equal(nbd_map_feed(&map, b->at + i, 1), -EAGAIN);
	assert_int_equal(nbd_map_feed(&map, b->at + b->nr - 1, 1), expected);
}

/* An answer may end before the request does, or go on behind it; neighbours alike are one extent.
 */
static void test_whole(void **state)
{
	static struct bytes b;
	uint64_t cookie;

	(void)state;
	for (int extended = 0; extended < 2; extended++) {
		start(extended, 3 * GIB);
		expect_request(extended, 0, GIB, &cookie);
		b.nr = 0;
		add_answer(&b, extended, cookie, 0,
			   (struct extent[]){ { 4096, 0 }, { 8192, 3 }, { 4096, 3 } }, 3);
		feed(&b, 0);
		expect_request(extended, 16384, GIB, &cookie);
		b.nr = 0;
		add_answer(&b, extended, cookie, 16384, (struct extent[]){ { 2 * GIB, 3 } }, 1);
		feed(&b, 0);
		/* what lies behind a request is asked for again */
		expect_request(extended, 16384 + GIB, GIB, &cookie);
		b.nr = 0;
		add_answer(&b, extended, cookie, 16384 + GIB,
			   (struct extent[]){ { GIB - 16384, 3 }, { 512, 1 } }, 2);
		feed(&b, 0);
		expect_request(extended, 2 * GIB + 512, GIB - 512, &cookie);
		b.nr = 0;
		add_answer(&b, extended, cookie, 2 * GIB + 512,
			   (struct extent[]){ { GIB - 512, 0 } }, 1);
		feed(&b, 0);
		expect_end();
		assert_string_equal(told, "0+4096 0\n4096+2147479552 3\n2147483648+512 1\n"
					  "2147484160+1073741312 0\n");
	}
}

static void test_empty(void **state)
{
	(void)state;
	start(false, 0);
	expect_end();
	assert_string_equal(told, "");
}

static void test_refused(void **state)
{
	static const char words[] = "no such thing";
	static struct bytes b;
	uint64_t cookie;

	(void)state;
	start(false, GIB);
	expect_request(false, 0, GIB, &cookie);
	add_chunk(&b, false, cookie, NBD_REPLY_FLAG_DONE, NBD_REPLY_TYPE_ERROR, 6 + strlen(words),
		  0);
	add32(&b, 22); /* NBD_EINVAL */
	add16(&b, (uint16_t)strlen(words));
	add_text(&b, words);
	feed(&b, -EINVAL);
	assert_non_null(strstr(map.error, words));
}

static void test_broken(void **state)
{
	static struct bytes b;
	uint64_t cookie;

	(void)state;
	start(false, GIB);
	expect_request(false, 0, GIB, &cookie);
	add_chunk(&b, false, cookie, NBD_REPLY_FLAG_DONE, NBD_REPLY_TYPE_NONE, 0, 0);
	feed(&b, -EPROTO);
	assert_non_null(strstr(map.error, "without a status"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_broken),
	};

	return cmocka_run_group_tests_name("nbd_map", tests, NULL, NULL);
}
