/* A store of a cache in a file of the test's own, written without a cache. One test program. */
#ifndef TEST_UNIT_FILTERS_CACHE_STORE_FILE_H
#define TEST_UNIT_FILTERS_CACHE_STORE_FILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "filters/cache/cache_format.h"

#define STORE_INSTANCE 77ull

static char store_path[] = "/tmp/test_cache_store.XXXXXX";
static int store_file = -1;

static void store_put(const void *from, size_t bytes, uint64_t at)
{
	assert_int_equal(pwrite(store_file, from, bytes, (off_t)at), bytes);
}

static void store_put_header(const struct cache_header *header, unsigned idx)
{
	uint8_t at[CACHE_PAGE_BYTES];

	cache_header_write(header, at);
	store_put(at, sizeof(at), idx * CACHE_PAGE_BYTES);
}

static void store_put_page(const struct cache_page *page, uint32_t idx)
{
	uint8_t at[CACHE_PAGE_BYTES];

	cache_page_write(page, at, STORE_INSTANCE, idx);
	store_put(at, sizeof(at), cache_page_at(idx, page->seq));
}

/* Setup and teardown of the group. */
static int store_make_file(void **state)
{
	(void)state;
	store_file = mkstemp(store_path);
	return store_file >= 0 ? 0 : -1;
}

static int store_remove_file(void **state)
{
	(void)state;
	close(store_file);
	return unlink(store_path);
}

#endif
