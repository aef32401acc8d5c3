/* The store of a cache without a daemon: read, discarded, forced; and what is no store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "filters/cache/cache_store.h"
#include "test/unit/filters/cache_store_file.h"

#define UNITS 0xffffull

static const struct cache_header header = { .generation = 7,
					    .instance = STORE_INSTANCE,
					    .origin_bytes = MIB(16),
					    .block_bytes = 65536,
					    .slot_nr = 200,
					    .origin = "auto file",
					    .found = "v1",
					    .ours = "me." };

static char words[CACHE_STORE_WORDS_BYTES];

static void put_page(uint32_t idx, uint64_t seq, struct cache_entry first)
{
	struct cache_page page = { .seq = seq, .entry = { [3] = first } };

	page.entry[5] = (struct cache_entry){ .block = 200 + idx, .valid = 1 };
	store_put_page(&page, idx);
}

/* Two pages: block 1, half dirty; block 2, clean; an older page of the second says another. */
static void make(void)
{
	assert_int_equal(ftruncate(store_file, 0), 0);
	store_put_header(&header, 0);
	store_put_header(&header, 1);
	put_page(0, 2, (struct cache_entry){ 1, UNITS, 0xff });
	put_page(1, 1, (struct cache_entry){ 9, UNITS, UNITS });
	put_page(1, 2, (struct cache_entry){ 2, UNITS, 0 });
}

static unsigned nr;
static struct cache_entry seen[8];

static void see(void *arg, const struct cache_entry *entry)
{
	(void)arg;
	assert_true(nr < ARRAY_SIZE(seen));
	seen[nr++] = *entry;
}

static void open_and_walk(struct cache_store *s, bool writes)
{
	assert_int_equal(cache_store_open(s, store_path, writes, words), 0);
	nr = 0;
	assert_int_equal(cache_store_walk(s, see, NULL), 0);
}

static void test_walk(void **state)
{
	struct cache_store s;

	(void)state;
	make();
	open_and_walk(&s, false);
	assert_int_equal(nr, 4);
	assert_int_equal(seen[0].block, 1);
	assert_int_equal(seen[0].dirty, 0xff);
	assert_int_equal(seen[1].block, 200);
	assert_int_equal(seen[2].block, 2);
	assert_int_equal(seen[3].block, 201);
	assert_string_equal(s.header.found, "v1");
	cache_store_close(&s);
}

/* What is dirty stays, and nothing else; the version is not known. Again, it changes nothing. */
static void test_accept(void **state)
{
	struct cache_store s;

	(void)state;
	make();
	for (unsigned i = 0; i < 2; i++) {
		open_and_walk(&s, true);
		assert_int_equal(cache_store_accept(&s), 0);
		cache_store_close(&s);
		open_and_walk(&s, false);
		assert_int_equal(nr, 1);
		assert_int_equal(seen[0].block, 1);
		assert_int_equal(seen[0].valid, 0xff);
		assert_int_equal(seen[0].dirty, 0xff);
		assert_string_equal(s.header.found, "");
		assert_string_equal(s.header.ours, "");
		assert_int_equal(s.header.instance, STORE_INSTANCE);
		assert_int_equal(s.header.generation, 8 + i);
		cache_store_close(&s);
	}
}

static void test_forget(void **state)
{
	struct cache_store s;

	(void)state;
	make();
	open_and_walk(&s, true);
	assert_int_equal(cache_store_forget(&s), 0);
	cache_store_close(&s);
	open_and_walk(&s, false);
	assert_int_equal(nr, 0);
	assert_int_equal(s.header.instance, 0);
	cache_store_close(&s);
}

/* One header is torn: the other one says what is there. The newer one counts. */
static void test_headers(void **state)
{
	struct cache_header newer = header;
	struct cache_store s;

	(void)state;
	make();
	store_put("x", 1, 100);
	open_and_walk(&s, false);
	assert_string_equal(s.header.found, "v1");
	cache_store_close(&s);
	newer.generation++;
	snprintf(newer.found, sizeof(newer.found), "v2");
	store_put_header(&newer, 0);
	open_and_walk(&s, false);
	assert_string_equal(s.header.found, "v2");
	cache_store_close(&s);
}

static void refused(int err, const char *part)
{
	struct cache_store s;

	assert_int_equal(cache_store_open(&s, store_path, true, words), err);
	assert_non_null(strstr(words, part));
	cache_store_close(&s);
}

static void test_refused(void **state)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct cache_store s;

	(void)state;
	assert_int_equal(ftruncate(store_file, 0), 0);
	refused(-EINVAL, "no store of a cache");
	make();
	store_put("x", 1, 100);
	store_put("x", 1, CACHE_PAGE_BYTES + 100);
	refused(-EINVAL, "the sum of its header is wrong");
	/* As the daemon has it. */
	make();
	assert_int_equal(fcntl(store_file, F_OFD_SETLK, &lock), 0);
	refused(-EBUSY, "in use");
	lock.l_type = F_UNLCK;
	assert_int_equal(fcntl(store_file, F_OFD_SETLK, &lock), 0);
	assert_int_equal(cache_store_open(&s, "/nonexistent", false, words), -ENOENT);
	cache_store_close(&s);
	assert_int_equal(cache_store_open(&s, "/dev/null", false, words), -EINVAL);
	cache_store_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk),	cmocka_unit_test(test_accept),
		cmocka_unit_test(test_forget),	cmocka_unit_test(test_headers),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, store_make_file, store_remove_file);
}
