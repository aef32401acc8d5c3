/*
 * Tables that a process has left in memory, and an image that another program has changed since, or
 * not: whether they are taken over.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/qcow2/format/qcow2_create.h"
#include "backends/qcow2/qcow2_owner.h"
#include "base/big_endian.h"
#include "base/util.h"

#define CLUSTER 65536ull
#define IMAGE_BYTES (8 * CLUSTER)
#define MARK (0x5eedull << 32)

/* What is at these offsets of what is kept, by version 4: the layout must not change without it. */
#define KEPT_AT_VERSION 8
#define KEPT_AT_IMAGE 80

static uint8_t header[CLUSTER];
static struct qcow2_header h;
static struct qcow2_tables *t;
static char words[QCOW2_WORDS_BYTES];

static struct qcow2_seen seen(void)
{
	struct qcow2_seen seen;

	qcow2_seen_fill(&seen, header, sizeof(header), IMAGE_BYTES);
	return seen;
}

static int setup(void **state)
{
	struct qcow2_create c = { .size_bytes = 64ull << 20, .cluster_bytes = CLUSTER };
	struct qcow2_seen now;
	uint64_t image_bytes;

	(void)state;
	if (qcow2_create_check(&c, &image_bytes, words) < 0)
		return -1;
	qcow2_create_fill(&c, 0, header, sizeof(header));
	if (qcow2_header_parse(&h, header, sizeof(header), IMAGE_BYTES, words) < 0)
		return -1;
	h.autoclear = MARK;
	qcow2_header_update(header, &h);
	t = qcow2_tables_new(&h, KIB(256), true);
	now = seen();
	qcow2_image_saw(t, &now);
	qcow2_tables_set_end(t, IMAGE_BYTES);
	qcow2_tables_filled(t);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	qcow2_tables_free(t);
	return 0;
}

/* The next process finds an image of this length. */
static bool is_taken_over(uint64_t image_bytes)
{
	struct qcow2_seen now = seen();
	struct qcow2_tables *next;

	assert_int_equal(qcow2_header_parse(&h, header, sizeof(header), IMAGE_BYTES, words), 0);
	now.image_bytes = image_bytes;
	words[0] = '\0';
	next = qcow2_tables_adopt(&h, &now, t->fd, words);
	qcow2_tables_free(next);
	return next != NULL;
}

static void expect_refused(uint64_t image_bytes)
{
	assert_false(is_taken_over(image_bytes));
	if (!strstr(words, "another program has changed the image") ||
	    !strstr(words, "ublkctl del --force"))
		fail_msg("words: %s", words);
}

static void test_unchanged(void **state)
{
	(void)state;
	assert_true(is_taken_over(IMAGE_BYTES));
	/* Requests of the dead process make it longer. */
	assert_true(is_taken_over(IMAGE_BYTES + CLUSTER));
	assert_true(is_taken_over(IMAGE_BYTES));
}

/* As any program that opens it to write, whatever it does then. */
static void test_mark_is_gone(void **state)
{
	(void)state;
	h.autoclear = 0;
	qcow2_header_update(header, &h);
	expect_refused(IMAGE_BYTES);
	/* Another process of ublkd. */
	h.autoclear = MARK << 1;
	qcow2_header_update(header, &h);
	expect_refused(IMAGE_BYTES);
	/* It is put back. */
	h.autoclear = MARK;
	qcow2_header_update(header, &h);
	assert_true(is_taken_over(IMAGE_BYTES));
}

static void test_header_is_changed(void **state)
{
	static const unsigned at[] = { QCOW2_AT_SNAPSHOT_NR + 3,
				       QCOW2_AT_L1_OFFSET + 5,
				       QCOW2_AT_SIZE + 4,
				       511,
				       512,
				       CLUSTER - 1 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		struct qcow2_seen now;

		header[at[i]] ^= 1;
		now = seen();
		assert_null(qcow2_tables_adopt(&h, &now, t->fd, words));
		assert_non_null(strstr(words, "another program has changed the image"));
		header[at[i]] ^= 1;
	}
	assert_true(is_taken_over(IMAGE_BYTES));
}

static void test_shorter(void **state)
{
	(void)state;
	expect_refused(IMAGE_BYTES - 512);
	qcow2_image_reaches(t, IMAGE_BYTES + CLUSTER);
	qcow2_image_reaches(t, CLUSTER);
	expect_refused(IMAGE_BYTES);
	assert_true(is_taken_over(IMAGE_BYTES + CLUSTER));
}

static void name_snapshots(void)
{
	h.snapshot_nr = 1;
	h.snapshots_offset = 7 * CLUSTER;
}

/* A header of its own is on its way; old: the one before. */
static void begin_own_header(uint8_t old[static sizeof(header)])
{
	memcpy(old, header, sizeof(header));
	name_snapshots();
	qcow2_header_update(header, &h);
	qcow2_image_header_changes(t, header);
}

/* It dies while it writes a header of its own: either may be there. */
static void test_own_header(void **state)
{
	uint8_t old[sizeof(header)];

	(void)state;
	begin_own_header(old);
	assert_true(is_taken_over(IMAGE_BYTES));
	assert_false(qcow2_image_header_is_known(t));
	memcpy(header, old, sizeof(old));
	assert_true(is_taken_over(IMAGE_BYTES));
	name_snapshots();
	qcow2_image_header_settled(t, true);
	assert_true(qcow2_image_header_is_known(t));
	expect_refused(IMAGE_BYTES);
	name_snapshots();
	qcow2_header_update(header, &h);
	assert_true(is_taken_over(IMAGE_BYTES));
}

/* It goes on with the one before, and dies later. */
static void test_restored_header(void **state)
{
	uint8_t old[sizeof(header)];

	(void)state;
	begin_own_header(old);
	qcow2_image_header_settled(t, false);
	assert_true(qcow2_image_header_is_known(t));
	expect_refused(IMAGE_BYTES);
	memcpy(header, old, sizeof(old));
	assert_true(is_taken_over(IMAGE_BYTES));
}

/* Refused tables are as they were: nothing of them has been mended yet. */
static void test_refused_is_untouched(void **state)
{
	uint32_t version = 3;

	(void)state;
	qcow2_taken_add(t, QCOW2_TAKEN_DATA, 3 * CLUSTER, 200 * CLUSTER, 1);
	t->slot[3].is_writing = 1;
	header[600] = 1;
	expect_refused(IMAGE_BYTES);
	assert_int_equal(t->freed_nr, 0);
	assert_int_equal(t->slot[3].is_writing, 1);
	assert_int_equal(pwrite(t->fd, &version, 4, KEPT_AT_VERSION), 4);
	expect_refused(IMAGE_BYTES);
	assert_int_equal(pread(t->fd, &version, 4, KEPT_AT_VERSION), 4);
	assert_int_equal(version, 3);
}

/* What a program before has left says nothing of the image: it is taken over as it always was. */
static void test_older_version(void **state)
{
	static const uint8_t zeroes[sizeof(struct qcow2_image_note)];
	uint32_t version = 3;

	(void)state;
	assert_ptr_equal((uint8_t *)t->image - (uint8_t *)t->kept, KEPT_AT_IMAGE);
	assert_int_equal(pread(t->fd, &version, 4, KEPT_AT_VERSION), 4);
	assert_int_equal(version, 4);
	version = 3;
	assert_int_equal(pwrite(t->fd, &version, 4, KEPT_AT_VERSION), 4);
	assert_int_equal(pwrite(t->fd, zeroes, sizeof(zeroes), KEPT_AT_IMAGE), sizeof(zeroes));
	header[600] = 1;
	assert_true(is_taken_over(IMAGE_BYTES));
	version = 5;
	assert_int_equal(pwrite(t->fd, &version, 4, KEPT_AT_VERSION), 4);
	assert_false(is_taken_over(IMAGE_BYTES));
	assert_non_null(strstr(words, "are not of this image"));
}

/* It died when the disk had all, or its L1 table moved: the disk is read, whatever was changed. */
static void test_of_no_use(void **state)
{
	(void)state;
	qcow2_tables_unfill(t);
	header[600] = 1;
	assert_false(is_taken_over(IMAGE_BYTES));
	assert_string_equal(words, "");
}

/* What the disk has of a slice is known when it was read, and again when a commit has ended. */
static void test_slice_sums(void **state)
{
	uint64_t slice[512] = { 0 }, at = 6 * CLUSTER;
	uint32_t read, sum;
	struct qcow2_slot *slot;

	(void)state;
	slice[3] = htobe64(5); /* makes no sense, and is marked in memory */
	read = qcow2_slice_sum(t, slice);
	slot = qcow2_tables_install(t, at, slice, true);
	assert_true(slot->is_bad);
	assert_int_equal(slot->disk, read);
	qcow2_mark_dirty(t, slot);
	qcow2_entry_store(qcow2_slot_data(t, slot), 9, 1);
	assert_int_equal(slot->disk, read);
	/* Changed on its way; not flushed; flushed. */
	qcow2_slot_settled(t, slot, true);
	assert_int_equal(slot->disk, 0);
	atomic_store(&slot->is_dirty, 0);
	qcow2_slot_settled(t, slot, false);
	assert_int_equal(slot->disk, 0);
	qcow2_slot_settled(t, slot, true);
	sum = slot->disk;
	assert_true(sum != 0 && sum != read);
	/* The process dies while it is on its way: nobody knows. */
	slot->is_writing = 1;
	assert_true(is_taken_over(IMAGE_BYTES));
	assert_int_equal(slot->disk, 0);
}

int main(void)
{
#define FRESH(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		FRESH(test_unchanged),	       FRESH(test_mark_is_gone),
		FRESH(test_header_is_changed), FRESH(test_shorter),
		FRESH(test_own_header),	       FRESH(test_refused_is_untouched),
		FRESH(test_restored_header),   FRESH(test_older_version),
		FRESH(test_slice_sums),	       FRESH(test_of_no_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
