/*
 * The version of an overlay's base in its header: written in steps, of which any sectors may be
 * lost; kept by qemu-img; and what is no such note.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "backends/qcow2/format/qcow2_create.h"
#include "base/big_endian.h"
#include "base/crc32c.h"
#include "test/rig/qcow2/qcow2_images.h"

#define SECTOR_BYTES 512u

static uint8_t image[QCOW2_HEADER_READ_BYTES];
static size_t image_nr;

/* ---- an image ---- */

static void take(const char *name)
{
	uint64_t bytes;

	memset(image, 0, sizeof(image));
	image_nr = images_read(name, image, sizeof(image), &bytes);
}

static void put(const char *name)
{
	int fd = open(name, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, image, image_nr, 0), image_nr);
	close(fd);
}

static int parse(const uint8_t *at, struct qcow2_header *h)
{
	char words[QCOW2_WORDS_BYTES];

	return qcow2_header_parse(h, at, image_nr, UINT64_MAX, words);
}

static struct qcow2_base_note note_of(const char *backing_name, const char *version)
{
	struct qcow2_base_note note;

	qcow2_base_note_init(&note, backing_name, version);
	return note;
}

static int note_all(const char *backing_name, const char *version)
{
	const struct qcow2_base_note note = note_of(backing_name, version);
	struct qcow2_base_edit edit;
	int ret = qcow2_base_edit_begin(&edit, &note, image, image_nr);

	while (ret == 0 && qcow2_base_edit_next(&edit, image))
		;
	return ret;
}

/* ---- images of qemu-img ---- */

static const char *const made[] = {
	"-b back.raw -F raw -o compat=0.10",
	"-b back.raw -F raw",
	"-b back.raw -F raw -o cluster_size=4k",
	"-b back.raw -F raw -o data_file=data.raw",
	"-b ./././././././././././././././././././././././././././././././././back.raw -F raw",
	/* Longer than the note. */
	"-b $(printf './%.0s' $(seq 70))back.raw -F raw",
	"",
};

static void expect_whole(const char *name, const char *version)
{
	struct qcow2_header before, after;

	take(name);
	assert_int_equal(parse(image, &before), 0);
	assert_string_equal(before.base_note.version, "");
	assert_int_equal(note_all(before.backing_name, version), 0);
	assert_int_equal(parse(image, &after), 0);
	assert_false(after.base_note_is_other);
	assert_string_equal(after.base_note.version, version);
	assert_string_equal(after.backing_name, before.backing_name);
	assert_string_equal(after.backing_format, before.backing_format);
	assert_string_equal(after.data_file_name, before.data_file_name);
	put(name);
}

static void make(const char *options)
{
	images_run("rm -f back.raw data.raw image; truncate -s 10M back.raw; "
		   "qemu-img create -f qcow2 %s image 10M",
		   options);
}

static void test_made(void **state)
{
	struct qcow2_header h;

	(void)state;
	IMAGES_NEED("qemu-img");
	for (unsigned i = 0; i < ARRAY_SIZE(made); i++) {
		make(made[i]);
		expect_whole("image", "ETag \"v1\" 1048576");
		images_parse("image", &h);
		images_same_as_info("image", &h);
		images_run("qemu-img check image && qemu-io -c 'write -P 7 0 64k' image && "
			   "qemu-img check image");
		/* Another one in its place. */
		take("image");
		assert_int_equal(note_all(h.backing_name, "ETag \"v2\" 7"), 0);
		assert_int_equal(parse(image, &h), 0);
		assert_string_equal(h.base_note.version, "ETag \"v2\" 7");
	}
}

/* It writes the header anew. */
static void test_kept_by_qemu(void **state)
{
	struct qcow2_header h;

	(void)state;
	IMAGES_NEED("qemu-img");
	make("-b back.raw -F raw");
	expect_whole("image", "ETag \"v1\" 1048576");
	images_run(
		"cp back.raw other.raw && qemu-img rebase -u -f qcow2 -b other.raw -F raw image");
	images_parse("image", &h);
	assert_string_equal(h.backing_name, "other.raw");
	assert_string_equal(h.base_note.version, "ETag \"v1\" 1048576");
	/* ... and is about the name of before. */
	assert_true(h.base_note.name_hash != note_of("other.raw", "x").name_hash);
	assert_true(h.base_note.name_hash == note_of("back.raw", "x").name_hash);
	assert_true(qcow2_base_note_is_of(&h.base_note, "back.raw"));
	assert_false(qcow2_base_note_is_of(&h.base_note, "other.raw"));
}

/* ---- power is cut ---- */

/* What a cut has left is no obstacle: the next edit, of another version, gets to its end. */
static void expect_resumed(uint8_t *torn, const struct qcow2_header *as)
{
	const struct qcow2_base_note note = note_of(as->backing_name, "ETag \"v3\" 3");
	struct qcow2_base_edit edit;
	struct qcow2_header h;

	assert_int_equal(qcow2_base_edit_begin(&edit, &note, torn, image_nr), 0);
	while (qcow2_base_edit_next(&edit, torn))
		;
	assert_int_equal(parse(torn, &h), 0);
	assert_string_equal(h.backing_name, as->backing_name);
	assert_string_equal(h.backing_format, as->backing_format);
	assert_string_equal(h.data_file_name, as->data_file_name);
	assert_string_equal(h.base_note.version, note.version);
}

/* Any sectors of a step: what is there says all that it did, and the note is whole or not there. */
static void expect_torn(const uint8_t *old, const struct qcow2_header *as, unsigned mix,
			const char *was, const char *is)
{
	static uint8_t torn[QCOW2_HEADER_READ_BYTES];
	struct qcow2_header h;

	memcpy(torn, old, image_nr);
	for (unsigned i = 0; i < 8; i++)
		if (mix >> i & 1)
			memcpy(torn + i * SECTOR_BYTES, image + i * SECTOR_BYTES, SECTOR_BYTES);
	assert_int_equal(parse(torn, &h), 0);
	assert_string_equal(h.backing_name, as->backing_name);
	assert_string_equal(h.backing_format, as->backing_format);
	if (h.base_note.version[0] && strcmp(h.base_note.version, was) != 0)
		assert_string_equal(h.base_note.version, is);
	expect_resumed(torn, as);
}

static void cut_edit(const char *was, const char *is)
{
	static uint8_t old[QCOW2_HEADER_READ_BYTES];
	struct qcow2_base_edit edit;
	struct qcow2_base_note note;
	struct qcow2_header as;
	unsigned steps = 0;

	assert_int_equal(parse(image, &as), 0);
	note = note_of(as.backing_name, is);
	assert_int_equal(qcow2_base_edit_begin(&edit, &note, image, image_nr), 0);
	do {
		memcpy(old, image, image_nr);
		steps++;
		if (!qcow2_base_edit_next(&edit, image))
			break;
		for (unsigned mix = 0; mix < 256; mix++)
			expect_torn(old, &as, mix, was, is);
	} while (steps < 10);
	assert_true(steps > 1 && steps < 7);
}

static void test_cut(void **state)
{
	(void)state;
	IMAGES_NEED("qemu-img");
	for (unsigned i = 0; i < ARRAY_SIZE(made); i++) {
		make(made[i]);
		take("image");
		cut_edit("", "ETag \"v1\" 1048576");
		cut_edit("ETag \"v1\" 1048576", "ETag \"v2\" 1");
	}
}

/* ---- no room ---- */

static void test_no_room(void **state)
{
	static uint8_t before[QCOW2_HEADER_READ_BYTES];
	struct qcow2_base_edit edit;
	struct qcow2_base_note note;
	struct qcow2_header h;

	(void)state;
	IMAGES_NEED("qemu-img");
	make("-b $(printf './%.0s' $(seq 150))back.raw -F raw -o cluster_size=512");
	take("image");
	memcpy(before, image, sizeof(image));
	assert_int_equal(note_all("back.raw", "v1"), -ENOSPC);
	assert_memory_equal(before, image, sizeof(image));
	/* Somebody has something behind the name. */
	make("-b back.raw -F raw");
	take("image");
	assert_int_equal(parse(image, &h), 0);
	image[be_get64(image + QCOW2_AT_BACKING_OFFSET) + 100] = 1;
	assert_int_equal(note_all("back.raw", "v1"), -ENOSPC);
	/* Where a note was interrupted, too. */
	take("image");
	note = note_of("back.raw", "v1");
	assert_int_equal(qcow2_base_edit_begin(&edit, &note, image, image_nr), 0);
	assert_true(qcow2_base_edit_next(&edit, image) && qcow2_base_edit_next(&edit, image));
	image[edit.ext_at + 100] = 1;
	assert_int_equal(note_all("back.raw", "v1"), -ENOSPC);
}

/* ---- what is no note ---- */

static void test_lies(void **state)
{
	const struct qcow2_base_note note = note_of("back.raw", "v1");
	struct qcow2_base_edit edit;
	struct qcow2_base_note read;
	struct qcow2_header h;
	uint8_t *data;

	(void)state;
	IMAGES_NEED("qemu-img");
	make("-b back.raw -F raw");
	take("image");
	assert_int_equal(qcow2_base_edit_begin(&edit, &note, image, image_nr), 0);
	data = image + edit.ext_at + 8;
	while (qcow2_base_edit_next(&edit, image))
		;
	assert_true(qcow2_base_note_read(&read, data, 112));
	assert_string_equal(read.version, "v1");
	/* Torn, it is nothing, and written anew. */
	for (unsigned i = 0; i < 112; i++) {
		data[i] ^= 1;
		assert_true(qcow2_base_note_read(&read, data, 112));
		assert_string_equal(read.version, "");
		assert_false(qcow2_base_note_is_of(&read, "back.raw"));
		data[i] ^= 1;
	}
	/* Of a later version. */
	assert_false(qcow2_base_note_read(&read, data, 104));
	assert_string_equal(read.version, "");
	data[7] = 1;
	be_put32(data, crc32c(0, data + 4, 108));
	assert_int_equal(parse(image, &h), 0);
	assert_true(h.base_note_is_other);
	assert_string_equal(h.base_note.version, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made), cmocka_unit_test(test_kept_by_qemu),
		cmocka_unit_test(test_cut),  cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_lies),
	};

	return cmocka_run_group_tests(tests, images_make, images_remove);
}
