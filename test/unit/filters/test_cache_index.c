/* What a cache remembers of its slots: found, given up, named on the store, taken over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "filters/cache/cache_index.h"

#define SLOTS 300u

static const struct cache_header header = { .generation = 1,
					    .instance = 77,
					    .origin_bytes = MIB(100),
					    .block_bytes = 65536,
					    .slot_nr = SLOTS,
					    .origin = "auto file" };
static const struct cache_naming always = { .flush_matters = false };

static struct cache_index *ix;

static int make(void **state)
{
	(void)state;
	return cache_index_new(&ix, &header);
}

static int drop(void **state)
{
	(void)state;
	cache_index_free(ix);
	ix = NULL;
	return 0;
}

/* Its pages go to store, two places each; returns how many were written. */
static unsigned commit(uint8_t *store, bool is_failed, const struct cache_naming *naming)
{
	uint8_t page[CACHE_PAGE_BYTES];
	uint32_t next = 0;
	unsigned nr = 0;
	uint64_t at;
	bool names;

	cache_naming_begin(ix, naming, &names);
	for (; cache_naming_next(ix, &next, page, &at); nr++)
		memcpy(store + at, page, sizeof(page));
	cache_naming_end(ix, is_failed);
	return nr;
}

static void load_from(const uint8_t *store)
{
	drop(NULL);
	assert_int_equal(make(NULL), 0);
	for (uint32_t i = 0; i < cache_page_nr(SLOTS); i++)
		cache_index_load(ix, i, store + cache_page_at(i, 0));
}

static struct cache_slot *with(uint64_t block, uint64_t valid)
{
	struct cache_slot *slot = cache_slot_take(ix, block);

	assert_non_null(slot);
	slot->valid = valid;
	cache_page_touch(ix, slot);
	return slot;
}

static void test_find(void **state)
{
	struct cache_slot *slot;

	(void)state;
	assert_null(cache_slot_find(ix, 5));
	for (uint64_t i = 0; i < SLOTS; i++)
		with(i * 5, 1);
	assert_null(cache_slot_take(ix, 7));
	for (uint64_t i = 0; i < SLOTS; i++) {
		slot = cache_slot_find(ix, i * 5);
		assert_non_null(slot);
		assert_int_equal(slot->block, i * 5);
		assert_null(cache_slot_find(ix, i * 5 + 1));
	}
	cache_slot_drop(ix, cache_slot_find(ix, 50));
	assert_null(cache_slot_find(ix, 50));
	assert_non_null(cache_slot_take(ix, 7));
	assert_int_equal(ix->used_nr, SLOTS);
}

/* One that was read since the hand passed stays; those in use, dirty or leaving always do. */
static void test_victims(void **state)
{
	struct cache_slot *victim;

	(void)state;
	with(0, 1)->was_used = 1;
	with(1, 1)->pins = 1;
	cache_slot_set_dirty(ix, with(2, 1), 1);
	with(3, 1)->is_evicting = 1;
	with(4, 1)->owned = 2;
	assert_int_equal(cache_index_victim(ix)->block, 0); /* in the second round */
	with(5, 1);
	victim = cache_index_victim(ix);
	assert_int_equal(victim->block, 5);
	assert_int_equal(ix->dirty_nr, 1);
}

static void test_store(void **state)
{
	uint8_t *store = calloc(1, cache_slots_at(SLOTS, 65536));
	struct cache_slot *slot;

	(void)state;
	with(3, 0xff);
	cache_slot_set_dirty(ix, with(4, 0xf0), 0x30);
	assert_int_equal(commit(store, false, &always), 1);
	assert_int_equal(ix->page_seq[0], 1);
	/* Nothing has changed: nothing is written. */
	cache_page_touch(ix, cache_slot_find(ix, 3));
	assert_int_equal(commit(store, false, &always), 0);
	load_from(store);
	slot = cache_slot_find(ix, 3);
	assert_true(slot && slot->valid == 0xff && slot->named == 0xff && slot->dirty == 0);
	slot = cache_slot_find(ix, 4);
	assert_true(slot && slot->valid == 0xf0 && slot->dirty == 0x30 &&
		    slot->named_dirty == 0x30);
	assert_int_equal(ix->dirty_nr, 1);
	assert_int_equal(ix->used_nr + ix->unused_nr, SLOTS);
	free(store);
}

/* The older page stays where it is, and counts when the newer one is torn. */
static void test_two_places(void **state)
{
	uint8_t *store = calloc(1, cache_slots_at(SLOTS, 65536));
	struct cache_slot *slot = with(3, 1);

	(void)state;
	commit(store, false, &always);
	slot->valid = 3;
	cache_page_touch(ix, slot);
	commit(store, false, &always);
	load_from(store);
	assert_int_equal(cache_slot_find(ix, 3)->valid, 3);
	assert_int_equal(ix->page_seq[0], 2);
	store[cache_page_at(0, 2) + 100] ^= 1;
	load_from(store);
	assert_int_equal(cache_slot_find(ix, 3)->valid, 1);
	/* The next one goes where the torn one is. */
	slot = cache_slot_find(ix, 3);
	slot->valid = 7;
	cache_page_touch(ix, slot);
	commit(store, true, &always);
	assert_int_equal(ix->page_seq[0], 1);
	commit(store, false, &always);
	load_from(store);
	assert_int_equal(cache_slot_find(ix, 3)->valid, 7);
	free(store);
}

static void test_naming(void **state)
{
	const struct cache_naming naming = { .flush_matters = true, .flushed_nr = 5 };
	uint8_t *store = calloc(1, cache_slots_at(SLOTS, 65536));
	struct cache_slot *slot = with(3, 3), *late = with(4, 3), *fresh = with(5, 3);
	bool names;

	(void)state;
	late->flushes = 5;
	fresh->is_fresh = 1;
	commit(store, false, &naming);
	assert_int_equal(slot->named, 3);
	assert_int_equal(late->named, 0);
	assert_int_equal(fresh->named, 0);
	/* Fresh for one commit only; what a change asked to forget is moving until the end. */
	slot->ban = 1;
	cache_page_touch(ix, slot);
	cache_naming_begin(ix, &naming, &names);
	assert_int_equal(fresh->named, 3);
	assert_true(names);
	assert_int_equal(slot->named, 2);
	assert_int_equal(slot->moving, 1);
	cache_naming_end(ix, true);
	assert_int_equal(slot->moving, 1);
	commit(store, false, &naming);
	assert_int_equal(slot->moving, 0);
	free(store);
}

/* Written again while the store calls it clean: it must say "dirty" first. */
static void test_naming_dirty(void **state)
{
	uint8_t *store = calloc(1, cache_slots_at(SLOTS, 65536));
	struct cache_slot *slot = with(3, 3);
	bool names;

	(void)state;
	commit(store, false, &always);
	cache_slot_set_dirty(ix, slot, 2);
	slot->is_fresh = 1;
	cache_page_touch(ix, slot);
	cache_naming_begin(ix, &always, &names);
	assert_true(names);
	assert_int_equal(slot->named_dirty, 2);
	assert_int_equal(slot->moving, 2);
	cache_naming_end(ix, false);
	assert_int_equal(slot->moving, 0);
	/* Clean again: its bytes must be durable first. */
	cache_slot_set_dirty(ix, slot, 0);
	cache_page_touch(ix, slot);
	cache_naming_begin(ix, &always, &names);
	assert_true(names);
	cache_naming_end(ix, false);
	free(store);
}

static void put(struct cache_page *page, unsigned i, uint64_t block, uint64_t valid, uint64_t dirty)
{
	page->entry[i] = (struct cache_entry){ .block = block, .valid = valid, .dirty = dirty };
}

static void test_lies(void **state)
{
	uint8_t *store = calloc(1, cache_slots_at(SLOTS, 65536));
	struct cache_page page = { .seq = 2 };

	(void)state;
	put(&page, 0, 5, 1, 0);
	put(&page, 1, 5, 1, 1);		 /* again */
	put(&page, 2, 1600, 1, 0);	 /* beyond the end */
	put(&page, 3, 6, 1ull << 16, 0); /* no such unit */
	put(&page, 4, 7, 1, 2);		 /* dirty, and not there */
	put(&page, 50, 8, 1, 0);	 /* of the last page: slot 304 of 300 */
	cache_page_write(&page, store + cache_page_at(2, 2), header.instance, 2);
	/* In the other page's place, with a number of the wrong parity. */
	page.seq = 8;
	cache_page_write(&page, store + cache_page_at(1, 1), header.instance, 1);
	load_from(store);
	assert_int_equal(ix->used_nr, 1);
	assert_int_equal(ix->lie_nr, 5);
	assert_int_equal(ix->dirty_nr, 0);
	assert_non_null(cache_slot_find(ix, 5));
	free(store);
}

static void test_adopt(void **state)
{
	struct cache_header other = header;
	struct cache_index *next;
	struct cache_slot *slot = with(3, 7);
	bool names;
	int fd;

	(void)state;
	assert_int_equal(cache_index_adopt(&next, &header, ix->fd), -ENODATA);
	cache_index_set_filled(ix);
	cache_slot_set_dirty(ix, slot, 4);
	slot->named = 3;
	slot->ban = 1;
	slot->owned = 8;
	slot->will = 8;
	slot->pins = 1;
	slot->is_evicting = 1;
	cache_page_touch(ix, slot);
	cache_naming_begin(ix, &always, &names);
	/* It dies here: the store may have heard of it, or not. */
	fd = dup(ix->fd);
	drop(NULL);
	/* The store has been made anew, or changed, since; what has died between may be ahead. */
	other.instance++;
	assert_int_equal(cache_index_adopt(&next, &other, fd), -ENODATA);
	other = header;
	other.generation++;
	assert_int_equal(cache_index_adopt(&next, &other, fd), -ENODATA);
	other = header;
	other.origin[0]++;
	assert_int_equal(cache_index_adopt(&next, &other, fd), -EBUSY);
	assert_int_equal(cache_index_adopt(&ix, &header, fd), 0);
	other = header;
	other.generation += 2;
	cache_index_set_header(ix, &other);
	other.generation--;
	assert_int_equal(cache_index_adopt(&next, &other, fd), 0);
	cache_index_free(next);
	cache_index_set_off(ix);
	assert_int_equal(cache_index_adopt(&next, &header, fd), -ESTALE);
	close(fd);
	slot = cache_slot_find(ix, 3);
	assert_non_null(slot);
	assert_int_equal(slot->valid, 7);
	assert_int_equal(slot->dirty, 4);
	assert_int_equal(slot->named & 3, 3);
	assert_true(!slot->owned && !slot->will && !slot->pins && !slot->is_evicting);
	assert_int_equal(ix->dirty_nr, 1);
	assert_int_equal(ix->used_nr + ix->unused_nr, SLOTS);
	assert_true(ix->page_dirty[0] & 1);
}

/* What was valid once the store may say still: a write must wait until it has forgotten it. */
static void test_adopt_dropped(void **state)
{
	uint8_t *store = calloc(1, cache_slots_at(SLOTS, 65536));
	struct cache_slot *slot = with(3, 7);
	int fd;

	(void)state;
	cache_index_set_filled(ix);
	commit(store, false, &always);
	slot->valid = 1;
	/* It dies here. */
	fd = dup(ix->fd);
	drop(NULL);
	assert_int_equal(cache_index_adopt(&ix, &header, fd), 0);
	close(fd);
	slot = cache_slot_find(ix, 3);
	assert_non_null(slot);
	assert_int_equal(slot->named, 1);
	assert_int_equal(slot->moving, 6);
	assert_int_equal(commit(store, false, &always), 1);
	assert_int_equal(slot->moving, 0);
	load_from(store);
	assert_int_equal(cache_slot_find(ix, 3)->valid, 1);
	free(store);
}

#define WITH_INDEX(test) cmocka_unit_test_setup_teardown(test, make, drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_INDEX(test_find),		WITH_INDEX(test_victims),
		WITH_INDEX(test_store),		WITH_INDEX(test_two_places),
		WITH_INDEX(test_naming),	WITH_INDEX(test_naming_dirty),
		WITH_INDEX(test_lies),		WITH_INDEX(test_adopt),
		WITH_INDEX(test_adopt_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
