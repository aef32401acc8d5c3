/* New images: qemu-img finds nothing wrong with them and describes what was asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "base/big_endian.h"
#include "backends/qcow2/format/qcow2_create.h"
#include "base/prng.h"
#include "test/rig/qcow2/qcow2_images.h"

static uint64_t image_bytes_of(const struct qcow2_create *c)
{
	char words[QCOW2_WORDS_BYTES] = "";
	uint64_t image_bytes = 0;
	int err = qcow2_create_check(c, &image_bytes, words);

	if (err)
		print_message("# %s\n", words);
	assert_int_equal(err, 0);
	assert_int_not_equal(image_bytes, 0);
	return image_bytes;
}

/* In pieces of piece_bytes. */
static void make(const struct qcow2_create *c, const char *name, size_t piece_bytes)
{
	uint64_t left = image_bytes_of(c), offset = 0;
	uint8_t *piece = malloc(piece_bytes);
	FILE *file = fopen(name, "wb");

	assert_non_null(piece);
	assert_non_null(file);
	while (left > 0) {
		size_t bytes = MIN(left, (uint64_t)piece_bytes);

		memset(piece, 0xee, piece_bytes);
		qcow2_create_fill(c, offset, piece, bytes);
		assert_int_equal(fwrite(piece, 1, bytes, file), bytes);
		offset += bytes;
		left -= bytes;
	}
	assert_int_equal(fclose(file), 0);
	free(piece);
}

/* What was asked for is what is read. */
static void same_as_asked(const struct qcow2_create *c, const struct qcow2_header *h)
{
	assert_int_equal(h->size_bytes, c->size_bytes);
	assert_int_equal(qcow2_cluster_bytes(&h->g), c->cluster_bytes ? c->cluster_bytes : 65536);
	assert_int_equal(1u << h->g.refcount_order, c->refcount_bits ? c->refcount_bits : 16);
	assert_int_equal(h->g.version, c->version ? c->version : 3);
	assert_int_equal(h->g.l2_entry_bytes, c->extended_l2 ? 16 : 8);
	assert_int_equal(h->compatible, c->lazy_refcounts ? QCOW2_COMPAT_LAZY_REFCOUNTS : 0);
	assert_int_equal(h->compression, c->zstd ? QCOW2_COMPRESSION_ZSTD : QCOW2_COMPRESSION_ZLIB);
	assert_string_equal(h->backing_name, c->backing_name ? c->backing_name : "");
	assert_string_equal(h->backing_format, c->backing_format ? c->backing_format : "");
	assert_string_equal(h->data_file_name, c->data_file_name ? c->data_file_name : "");
	assert_int_equal(h->autoclear, c->data_file_raw ? QCOW2_AUTOCLEAR_RAW_DATA_FILE : 0);
	assert_int_equal(h->snapshot_nr | h->bitmap_nr | h->crypt, 0);
	assert_int_equal(h->incompatible & (QCOW2_INCOMPAT_DIRTY | QCOW2_INCOMPAT_CORRUPT), 0);
}

static void check_with_qemu(const char *name)
{
	json_t *check;
	char line[200];

	snprintf(line, sizeof(line), "qemu-img check --output=json %s", name);
	check = images_json(line); /* leaks, too, make it end with another status than 0 */
	assert_int_equal(images_number(check, "check-errors"), 0);
	json_decref(check);
}

#define NAME_100                                                                                   \
	"./././././././././././././././././././././././././././././././././././././././././././"   \
	"back.raw"

static const struct qcow2_create options[] = {
	{ .size_bytes = 0 },
	{ .size_bytes = 512 },
	{ .size_bytes = MIB(512) },
	{ .size_bytes = MIB(512) + 512 },
	{ .size_bytes = TIB(1) },
	{ .size_bytes = TIB(1), .cluster_bytes = 4096 },
	{ .size_bytes = TIB(1024), .cluster_bytes = MIB(2) },
	{ .size_bytes = MIB(10), .version = 2 },
	{ .size_bytes = 0, .version = 2, .cluster_bytes = 512 },
	{ .size_bytes = MIB(10), .version = 3, .cluster_bytes = 512 },
	{ .size_bytes = MIB(100), .cluster_bytes = 512, .refcount_bits = 64 },
	{ .size_bytes = GIB(100), .cluster_bytes = 512, .refcount_bits = 1 },
	{ .size_bytes = MIB(10), .cluster_bytes = 1024, .refcount_bits = 2 },
	{ .size_bytes = GIB(10), .cluster_bytes = 1024, .refcount_bits = 32 },
	{ .size_bytes = MIB(10), .refcount_bits = 1 },
	{ .size_bytes = MIB(10), .refcount_bits = 2 },
	{ .size_bytes = MIB(10), .refcount_bits = 4 },
	{ .size_bytes = MIB(10), .refcount_bits = 8 },
	{ .size_bytes = MIB(10), .refcount_bits = 32 },
	{ .size_bytes = MIB(10), .refcount_bits = 64 },
	{ .size_bytes = MIB(10), .cluster_bytes = MIB(2), .refcount_bits = 1 },
	{ .size_bytes = GIB(10), .extended_l2 = true },
	{ .size_bytes = GIB(10), .extended_l2 = true, .cluster_bytes = 16384 },
	{ .size_bytes = MIB(10), .lazy_refcounts = true, .zstd = true },
	{ .size_bytes = MIB(10), .backing_name = "back.raw", .backing_format = "raw" },
	{ .size_bytes = MIB(10),
	  .backing_name = "back.raw",
	  .backing_format = "raw",
	  .version = 2 },
	{ .size_bytes = MIB(10),
	  .backing_name = NAME_100,
	  .backing_format = "raw",
	  .cluster_bytes = 512 },
	{ .size_bytes = MIB(10), .data_file_name = "data.raw" },
	{ .size_bytes = MIB(10), .data_file_name = "data.raw", .data_file_raw = true },
	{ .size_bytes = MIB(10),
	  .data_file_name = "data.raw",
	  .backing_name = "back.raw",
	  .backing_format = "raw",
	  .extended_l2 = true,
	  .lazy_refcounts = true,
	  .zstd = true,
	  .refcount_bits = 8 },
};

static void test_options(void **state)
{
	struct qcow2_header h;

	(void)state;
	IMAGES_NEED("qemu-img");
	images_run("truncate -s 10M back.raw data.raw");
	for (unsigned i = 0; i < ARRAY_SIZE(options); i++) {
		make(&options[i], "image", 65536);
		images_parse("image", &h);
		same_as_asked(&options[i], &h);
		images_same_as_info("image", &h);
		check_with_qemu("image");
	}
}

/* Any part is the same as that part of the whole. */
static void test_parts(void **state)
{
	static const struct qcow2_create some[] = {
		{ .size_bytes = GIB(1), .cluster_bytes = 512, .refcount_bits = 64 },
		{ .size_bytes = GIB(8), .cluster_bytes = 512, .refcount_bits = 2 },
		{ .size_bytes = MIB(1), .cluster_bytes = 4096, .backing_name = "back" },
	};
	struct prng p;

	(void)state;
	prng_init(&p, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(some); i++) {
		size_t bytes = image_bytes_of(&some[i]) + 1000;
		uint8_t *whole = malloc(bytes), *part = malloc(bytes);

		assert_non_null(whole);
		assert_non_null(part);
		qcow2_create_fill(&some[i], 0, whole, bytes);
		for (unsigned n = 0; n < 300; n++) {
			size_t from = prng_below(&p, bytes);
			size_t nr = prng_below(&p, MIN(bytes - from, (size_t)2000) + 1);

			memset(part, 0xee, nr + 1);
			qcow2_create_fill(&some[i], from, part, nr);
			assert_memory_equal(part, whole + from, nr);
			assert_int_equal(part[nr], 0xee);
		}
		for (size_t n = bytes - 1000; n < bytes; n++)
			assert_int_equal(whole[n], 0);
		free(whole);
		free(part);
	}
}

/* Order of the tables, one behind the other, each cluster counted once. */
static void test_layout(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(options); i++) {
		uint64_t image_bytes = image_bytes_of(&options[i]), clusters, blocks, at;
		uint8_t *image = malloc(image_bytes);
		char words[QCOW2_WORDS_BYTES];
		struct qcow2_geometry *g;
		struct qcow2_header h;

		assert_non_null(image);
		qcow2_create_fill(&options[i], 0, image, image_bytes);
		assert_int_equal(
			qcow2_header_parse(&h, image, MIN(image_bytes, 65536u), image_bytes, words),
			0);
		g = &h.g;
		clusters = image_bytes >> g->cluster_bits;
		assert_int_equal(h.reftable_offset, 1ull << g->cluster_bits);
		at = h.reftable_offset + ((uint64_t)h.reftable_clusters << g->cluster_bits);
		blocks = (h.l1_offset - at) >> g->cluster_bits;
		assert_int_equal(blocks,
				 (clusters + (1ull << g->refblock_bits) - 1) >> g->refblock_bits);
		for (uint64_t b = 0; b < blocks; b++)
			assert_int_equal(be_get64(image + h.reftable_offset + b * 8),
					 at + (b << g->cluster_bits));
		assert_int_equal(be_get64(image + h.reftable_offset + blocks * 8), 0);
		for (uint64_t n = 0; n < blocks << g->refblock_bits; n++) {
			unsigned idx = (unsigned)(n & ((1u << g->refblock_bits) - 1));
			const uint8_t *block =
				image + at + (n >> g->refblock_bits << g->cluster_bits);

			assert_int_equal(qcow2_refcount_get(block, g->refcount_order, idx),
					 n < clusters);
		}
		assert_in_range(image_bytes - h.l1_offset, (uint64_t)h.l1_entries * 8,
				h.l1_entries * 8 + (1ull << g->cluster_bits) - 1);
		free(image);
	}
}

/* The same bytes as QEMU's behind the fixed fields: extensions, names of features, of files. */
static void test_extensions_are_as_qemu_writes_them(void **state)
{
	static const struct {
		struct qcow2_create c;
		const char *options;
	} cases[] = {
		{ { .size_bytes = MIB(10) }, "" },
		{ { .size_bytes = MIB(10), .cluster_bytes = 512 }, "-o cluster_size=512" },
		{ { .size_bytes = MIB(10), .cluster_bytes = 4096 }, "-o cluster_size=4k" },
		{ { .size_bytes = MIB(10), .cluster_bytes = 8192 }, "-o cluster_size=8k" },
		{ { .size_bytes = MIB(10), .backing_name = "back.raw", .backing_format = "raw" },
		  "-b back.raw -F raw" },
		{ { .size_bytes = MIB(10),
		    .backing_name = "back.raw",
		    .backing_format = "raw",
		    .data_file_name = "data",
		    .zstd = true },
		  "-b back.raw -F raw -o data_file=data,compression_type=zstd" },
		{ { .size_bytes = MIB(10),
		    .backing_name = "back.raw",
		    .backing_format = "raw",
		    .version = 2 },
		  "-b back.raw -F raw -o compat=0.10" },
	};
	uint8_t theirs[4096], ours[4096];
	uint64_t image_bytes;

	(void)state;
	IMAGES_NEED("qemu-img");
	images_run("truncate -s 10M back.raw");
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t bytes = cases[i].c.cluster_bytes == 512 ? 512 : sizeof(ours);

		images_run("rm -f image data; qemu-img create -f qcow2 %s image 10M",
			   cases[i].options);
		images_read("image", theirs, bytes, &image_bytes);
		qcow2_create_fill(&cases[i].c, 0, ours, bytes);
		/* where its tables lie is QEMU's choice */
		memcpy(theirs + QCOW2_AT_L1_OFFSET, ours + QCOW2_AT_L1_OFFSET, 20);
		assert_memory_equal(ours, theirs, bytes);
	}
}

/*
 * Twice the disk, which is what a snapshot and then the disk once more take: QEMU has nothing to
 * enlarge.
 */
static void test_written_twice(void **state)
{
	static const struct qcow2_create some[] = {
		{ .size_bytes = MIB(4), .cluster_bytes = 512, .refcount_bits = 64 },
		{ .size_bytes = MIB(16), .cluster_bytes = 1024, .refcount_bits = 32 },
		{ .size_bytes = MIB(4) },
	};

	(void)state;
	IMAGES_NEED("qemu-img");
	IMAGES_NEED("qemu-io");
	for (unsigned i = 0; i < ARRAY_SIZE(some); i++) {
		struct qcow2_header before, after;
		uint64_t bytes = some[i].size_bytes;

		make(&some[i], "image", 1 << 20);
		images_parse("image", &before);
		images_run("qemu-io -t unsafe -c 'write -q -P 5 0 %zu' image && "
			   "qemu-img snapshot -c one image && "
			   "qemu-io -t unsafe -c 'write -q -P 6 0 %zu' image",
			   (size_t)bytes, (size_t)bytes);
		check_with_qemu("image");
		images_parse("image", &after);
		assert_int_equal(after.reftable_offset, before.reftable_offset);
		assert_int_equal(after.reftable_clusters, before.reftable_clusters);
		images_run("qemu-io -r -c 'read -q -P 6 0 %zu' image", (size_t)bytes);
	}
}

/* ---- refusals ---- */

#define NAME_250                                                                                   \
	"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567" \
	"8901234567890123456789012345678901234567890123456789012345678901234567890123456789012345" \
	"67890123456789012345678901234567890123456789012345678901234567890123456789"

static const struct {
	struct qcow2_create c;
	const char *words;
} refusals[] = {
	{ { .version = 1 }, "version 1" },
	{ { .version = 4 }, "version 4" },
	{ { .cluster_bytes = 256 }, "clusters of 256 bytes" },
	{ { .cluster_bytes = 3072 }, "clusters of 3072 bytes" },
	{ { .cluster_bytes = MIB(4) }, "clusters of 4194304 bytes" },
	{ { .cluster_bytes = 1ull << 41 }, "clusters of 2199023255552 bytes" },
	{ { .refcount_bits = 3 }, "counts of 3 bits" },
	{ { .refcount_bits = 128 }, "counts of 128 bits" },
	{ { .size_bytes = 1000 }, "a multiple of 512" },
	{ { .extended_l2 = true, .cluster_bytes = 8192 }, "clusters of 16384 bytes at least" },
	{ { .version = 2, .refcount_bits = 8 }, "not 16 bits: version 3" },
	{ { .version = 2, .extended_l2 = true }, "extended L2 entries: version 3" },
	{ { .version = 2, .lazy_refcounts = true }, "lazy reference counts: version 3" },
	{ { .version = 2, .zstd = true }, "zstd: version 3" },
	{ { .version = 2, .data_file_name = "data" }, "data file: version 3" },
	{ { .backing_format = "raw" }, "but no backing file" },
	{ { .data_file_raw = true }, "needs its name" },
	{ { .data_file_raw = true, .data_file_name = "a", .backing_name = "b" }, "exclude each" },
	{ { .backing_name = "" }, "backing file's name has 0 bytes" },
	{ { .backing_name = NAME_250 NAME_250 NAME_250 NAME_250 "012345678901234567890123" },
	  "backing file's name has 1024 bytes; 1 to 1023" },
	{ { .backing_name = "a", .backing_format = "sixteen letters!" }, "format has 16 bytes" },
	{ { .data_file_name = "" }, "data file's name has 0 bytes" },
	{ { .data_file_name = NAME_250, .backing_name = NAME_250, .cluster_bytes = 512 },
	  "make a header of 634 bytes" },
	{ { .size_bytes = GIB(128) + 512, .cluster_bytes = 512, .refcount_bits = 1 },
	  "too small for a disk of 137438953984: choose larger clusters" },
	{ { .size_bytes = GIB(33), .cluster_bytes = 512, .refcount_bits = 64 },
	  "counts of 64 bits are too small for a disk" },
	{ { .size_bytes = UINT64_MAX - 511 }, "too small for a disk" },
	{ { .size_bytes = UINT64_MAX - 511, .cluster_bytes = MIB(2) }, "too small for a disk" },
};

static void test_refusals(void **state)
{
	(void)state;
	assert_int_equal(strlen(NAME_250), 250);
	for (unsigned i = 0; i < ARRAY_SIZE(refusals); i++) {
		char words[QCOW2_WORDS_BYTES] = "";
		uint64_t image_bytes = 7;

		assert_int_equal(qcow2_create_check(&refusals[i].c, &image_bytes, words), -EINVAL);
		if (!strstr(words, refusals[i].words))
			print_message("# \"%s\" instead of \"%s\"\n", words, refusals[i].words);
		assert_non_null(strstr(words, refusals[i].words));
		assert_int_equal(image_bytes, 7);
	}
}

/* Names of the greatest length, where there is room for them. */
static void test_longest_names(void **state)
{
	static char name[QCOW2_BACKING_NAME_MAX + 1];
	const struct qcow2_create c = { .size_bytes = MIB(1),
					.backing_name = name,
					.backing_format = "fifteen letters",
					.data_file_name = name };
	static uint8_t image[65536];
	char words[QCOW2_WORDS_BYTES];
	struct qcow2_header h;

	(void)state;
	memset(name, 'n', QCOW2_BACKING_NAME_MAX);
	qcow2_create_fill(&c, 0, image, sizeof(image));
	assert_int_equal(qcow2_header_parse(&h, image, sizeof(image), image_bytes_of(&c), words),
			 0);
	same_as_asked(&c, &h);
}

/* The largest table describes this disk, but not twice. */
static void test_largest_table(void **state)
{
	const struct qcow2_create c = { .size_bytes = GIB(30),
					.cluster_bytes = 512,
					.refcount_bits = 64 };
	static uint8_t image[512];
	char words[QCOW2_WORDS_BYTES];
	struct qcow2_header h;

	(void)state;
	qcow2_create_fill(&c, 0, image, sizeof(image));
	assert_int_equal(qcow2_header_parse(&h, image, sizeof(image), image_bytes_of(&c), words),
			 0);
	assert_int_equal(h.reftable_clusters * 512, QCOW2_REFTABLE_BYTES_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_extensions_are_as_qemu_writes_them),
		cmocka_unit_test(test_written_twice),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_longest_names),
		cmocka_unit_test(test_largest_table),
	};

	return cmocka_run_group_tests(tests, images_make, images_remove);
}
