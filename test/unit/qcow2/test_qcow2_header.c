/* Headers that are as they should be: ours and those of qemu-img, as qemu-img describes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "base/big_endian.h"
#include "test/rig/qcow2/qcow2_header_case.h"
#include "test/rig/qcow2/qcow2_images.h"

static struct header_case c;

/* ---- what qemu-img makes ---- */

static const struct {
	const char *options, *size;
	unsigned cluster_bits, l2_bits, refblock_bits;
} made[] = {
	{ "", "0", 16, 13, 15 },
	{ "", "512", 16, 13, 15 },
	{ "", "1T", 16, 13, 15 },
	{ "-o compat=0.10", "10M", 16, 13, 15 },
	{ "-o cluster_size=512", "10M", 9, 6, 8 },
	{ "-o cluster_size=1k", "10M", 10, 7, 9 },
	{ "-o cluster_size=4k", "10M", 12, 9, 11 },
	{ "-o cluster_size=1M", "10M", 20, 17, 19 },
	{ "-o cluster_size=2M", "2P", 21, 18, 20 },
	{ "-o refcount_bits=1", "10M", 16, 13, 19 },
	{ "-o refcount_bits=2", "10M", 16, 13, 18 },
	{ "-o refcount_bits=4", "10M", 16, 13, 17 },
	{ "-o refcount_bits=8", "10M", 16, 13, 16 },
	{ "-o refcount_bits=32", "10M", 16, 13, 14 },
	{ "-o refcount_bits=64", "10M", 16, 13, 13 },
	{ "-o extended_l2=on,cluster_size=16k", "10M", 14, 10, 13 },
	{ "-o extended_l2=on,cluster_size=2M", "10M", 21, 17, 20 },
	{ "-o lazy_refcounts=on", "10M", 16, 13, 15 },
	{ "-o compression_type=zstd", "10M", 16, 13, 15 },
	{ "-b back.raw -F raw", "10M", 16, 13, 15 },
	{ "-b back.raw -F raw -o compat=0.10", "10M", 16, 13, 15 },
	{ "-b ./././././././././././././././././back.raw -F raw -o cluster_size=512", "10M", 9, 6,
	  8 },
	{ "-o data_file=data.raw", "10M", 16, 13, 15 },
	{ "-o data_file=data.raw,data_file_raw=on", "10M", 16, 13, 15 },
};

static void test_made(void **state)
{
	struct qcow2_header h;

	(void)state;
	IMAGES_NEED("qemu-img");
	images_run("truncate -s 10M back.raw");
	for (unsigned i = 0; i < ARRAY_SIZE(made); i++) {
		images_run("rm -f image data.raw; qemu-img create -f qcow2 %s image %s",
			   made[i].options, made[i].size);
		images_parse("image", &h);
		images_same_as_info("image", &h);
		assert_int_equal(h.g.cluster_bits, made[i].cluster_bits);
		assert_int_equal(h.g.l2_bits, made[i].l2_bits);
		assert_int_equal(h.g.refblock_bits, made[i].refblock_bits);
		assert_int_equal(h.g.l2_entry_bytes << h.g.l2_bits, 1u << h.g.cluster_bits);
		assert_true(h.l1_entries >= qcow2_l1_entries_for(&h.g, h.size_bytes));
	}
}

/*
 * qemu-img measures how long the key's derivation takes, and gives up when the clock of CPU time
 * has not moved meanwhile: on some machines that is now and then, so that it is asked more than
 * once.
 */
static void test_made_luks(void **state)
{
	struct qcow2_header h;

	(void)state;
	IMAGES_NEED("qemu-img");
	images_run("for i in 1 2 3 4 5 6 7 8 9; do qemu-img create -f qcow2 "
		   "--object secret,id=k,data=secret "
		   "-o encrypt.format=luks,encrypt.key-secret=k,encrypt.iter-time=10 luks 10M && "
		   "exit 0; tail -n 1 log | grep 'Unable to get accurate CPU usage' || exit 1; "
		   "done; touch no-luks");
	if (access("no-luks", F_OK) == 0) {
		print_message("# qemu-img cannot measure the CPU time of PBKDF2\n");
		skip();
	}
	images_parse("luks", &h);
	images_same_as_info("luks", &h);
	assert_int_equal(h.crypt, QCOW2_CRYPT_LUKS);
	assert_true(h.crypto_bytes > 100000);
	assert_true(h.crypto_offset >= qcow2_cluster_bytes(&h.g));
}

static void test_made_aes(void **state)
{
	static uint8_t buf[QCOW2_HEADER_READ_BYTES];
	uint64_t image_bytes;
	size_t nr;

	(void)state;
	IMAGES_NEED("qemu-img");
	images_run("qemu-img create -f qcow2 --object secret,id=k,data=secret "
		   "-o encrypt.format=aes,encrypt.key-secret=k aes 10M");
	nr = images_read("aes", buf, sizeof(buf), &image_bytes);
	assert_int_equal(qcow2_header_parse(&c.h, buf, nr, image_bytes, c.words), -EOPNOTSUPP);
	assert_non_null(strstr(c.words, "convert it to LUKS with qemu-img convert"));
}

static void test_made_with_more_in_it(void **state)
{
	struct qcow2_header h;

	(void)state;
	IMAGES_NEED("qemu-img");
	images_run("qemu-img create -f qcow2 more 10M && qemu-img bitmap --add more one && "
		   "qemu-img bitmap --add more two && qemu-img snapshot -c first more && "
		   "qemu-img snapshot -c second more");
	images_parse("more", &h);
	images_same_as_info("more", &h);
	assert_int_equal(h.bitmap_nr, 2);
	assert_in_range(h.bitmaps_bytes, 2 * 27, 200);
	assert_int_equal(h.autoclear, QCOW2_AUTOCLEAR_BITMAPS);
	assert_int_equal(h.snapshot_nr, 2);
}

/* ---- fields ---- */

/* Each at its limits, the others as they are. */
static void test_limits(void **state)
{
	(void)state;
	for (uint32_t bits = 9; bits <= 21; bits++) {
		case_init(&c);
		be_put32(c.at + QCOW2_AT_CLUSTER_BITS, bits);
		be_put64(c.at + QCOW2_AT_SIZE, 1ull << (2 * bits - 3));
		be_put32(c.at + QCOW2_AT_L1_ENTRIES, 1);
		be_put64(c.at + QCOW2_AT_L1_OFFSET, 3ull << bits);
		be_put64(c.at + QCOW2_AT_REFTABLE_OFFSET, 1ull << bits);
		c.image_bytes = 4ull << bits;
		assert_int_equal(case_parse(&c), 0);
		assert_int_equal(c.h.g.cluster_bits, bits);
		assert_int_equal(c.h.g.subcluster_bits, bits);
		be_put64(c.at + QCOW2_AT_SIZE, (1ull << (2 * bits - 3)) + 1);
		assert_int_equal(case_parse(&c), -EINVAL);
	}
	for (uint32_t order = 0; order <= 6; order++) {
		case_init(&c);
		be_put32(c.at + QCOW2_AT_REFCOUNT_ORDER, order);
		assert_int_equal(case_parse(&c), 0);
		assert_int_equal(c.h.g.refcount_order, order);
		assert_int_equal(qcow2_cluster_bytes(&c.h.g) * 8 >> order,
				 1u << c.h.g.refblock_bits);
	}
}

static void test_largest_tables(void **state)
{
	(void)state;
	case_init(&c);
	c.image_bytes = UINT64_MAX;
	be_put64(c.at + QCOW2_AT_SIZE, 1ull << 51);
	be_put32(c.at + QCOW2_AT_L1_ENTRIES, QCOW2_L1_BYTES_MAX / 8);
	be_put64(c.at + QCOW2_AT_L1_OFFSET, (1ull << 56) - QCOW2_L1_BYTES_MAX);
	be_put64(c.at + QCOW2_AT_REFTABLE_OFFSET, 1ull << 40);
	be_put32(c.at + QCOW2_AT_REFTABLE_CLUSTERS, 128);
	be_put32(c.at + QCOW2_AT_SNAPSHOT_NR, 65536);
	be_put64(c.at + QCOW2_AT_SNAPSHOTS_OFFSET, 1ull << 41);
	assert_int_equal(case_parse(&c), 0);
	assert_int_equal(c.h.size_bytes, 1ull << 51);
	assert_int_equal(c.h.l1_entries, 4u << 20);
	assert_int_equal(c.h.l1_offset, (1ull << 56) - (32u << 20));
	assert_int_equal(c.h.reftable_offset, 1ull << 40);
	assert_int_equal(c.h.reftable_clusters, 128);
	assert_int_equal(c.h.snapshot_nr, 65536);
	assert_int_equal(c.h.snapshots_offset, 1ull << 41);
}

/* Version 2 has 72 bytes: what is behind them are extensions. */
static void test_version_2(void **state)
{
	(void)state;
	case_init(&c);
	be_put32(c.at + QCOW2_AT_VERSION, 2);
	memset(c.at + 72, 0, 40);
	c.extensions = 72;
	case_extension(&c, QCOW2_EXT_BACKING_FORMAT, "vmdk", 4, 4);
	assert_int_equal(case_parse(&c), 0);
	assert_int_equal(c.h.header_bytes, 72);
	assert_int_equal(c.h.g.refcount_order, 4);
	assert_int_equal(c.h.incompatible | c.h.compatible | c.h.autoclear, 0);
	assert_string_equal(c.h.backing_format, "vmdk");
	assert_string_equal(c.h.backing_name, "");
}

static void test_features(void **state)
{
	(void)state;
	case_init(&c);
	be_put64(c.at + QCOW2_AT_INCOMPATIBLE, QCOW2_INCOMPAT_KNOWN);
	c.at[QCOW2_AT_COMPRESSION] = QCOW2_COMPRESSION_ZSTD;
	be_put32(c.at + QCOW2_AT_L1_ENTRIES, 4);
	be_put64(c.at + QCOW2_AT_COMPATIBLE, 1ull << 63 | 1);
	be_put64(c.at + QCOW2_AT_AUTOCLEAR, 1ull << 62 | QCOW2_AUTOCLEAR_RAW_DATA_FILE);
	assert_int_equal(case_parse(&c), 0);
	assert_int_equal(c.h.incompatible, 31);
	assert_int_equal(c.h.compatible, 1ull << 63 | 1);
	assert_int_equal(c.h.autoclear, 1ull << 62 | 2);
	assert_int_equal(c.h.compression, QCOW2_COMPRESSION_ZSTD);
	assert_int_equal(c.h.g.l2_entry_bytes, 16);
	assert_int_equal(c.h.g.l2_bits, 12);
	assert_int_equal(c.h.g.subcluster_bits, 11);
	assert_string_equal(c.h.data_file_name, "");
}

/* An old header ends before the field. */
static void test_no_compression_field(void **state)
{
	(void)state;
	case_init(&c);
	be_put32(c.at + QCOW2_AT_HEADER_BYTES, 104);
	c.extensions = 104;
	case_extension(&c, 0x01020304, "unknown", 7, 7);
	case_extension(&c, QCOW2_EXT_BACKING_FORMAT, "raw", 3, 3);
	assert_int_equal(case_parse(&c), 0);
	assert_int_equal(c.h.compression, QCOW2_COMPRESSION_ZLIB);
	assert_int_equal(c.h.header_bytes, 104);
	assert_string_equal(c.h.backing_format, "raw");
}

/* Fields of later versions are passed over. */
static void test_longer_header(void **state)
{
	(void)state;
	case_init(&c);
	be_put32(c.at + QCOW2_AT_HEADER_BYTES, 4096);
	memset(c.at + 112, 0xee, 4096 - 112);
	c.extensions = 4096;
	case_extension(&c, QCOW2_EXT_BACKING_FORMAT, "raw", 3, 3);
	assert_int_equal(case_parse(&c), 0);
	assert_string_equal(c.h.backing_format, "raw");
}

static void test_names(void **state)
{
	(void)state;
	case_init(&c);
	be_put64(c.at + QCOW2_AT_INCOMPATIBLE, QCOW2_INCOMPAT_DATA_FILE);
	case_extension(&c, QCOW2_EXT_DATA_FILE, "/data\0behind", 12, 12);
	case_extension(&c, QCOW2_EXT_BACKING_FORMAT, "fifteen letters", 15, 15);
	/* to the last byte of the cluster */
	be_put64(c.at + QCOW2_AT_BACKING_OFFSET, CASE_CLUSTER - 1023);
	be_put32(c.at + QCOW2_AT_BACKING_BYTES, 1023);
	memset(c.at + CASE_CLUSTER - 1023, 'b', 1023);
	assert_int_equal(case_parse(&c), 0);
	assert_string_equal(c.h.data_file_name, "/data");
	assert_string_equal(c.h.backing_format, "fifteen letters");
	assert_int_equal(strlen(c.h.backing_name), 1023);
}

/* Of an image that has none any more. */
static void test_old_data_file_name(void **state)
{
	(void)state;
	case_init(&c);
	case_extension(&c, QCOW2_EXT_DATA_FILE, "data", 4, 4);
	assert_int_equal(case_parse(&c), 0);
	assert_string_equal(c.h.data_file_name, "");
}

/* Extensions may end at the name, without the one that says so. */
static void test_no_end_extension(void **state)
{
	(void)state;
	case_init(&c);
	case_extension(&c, QCOW2_EXT_BACKING_FORMAT, "raw", 3, 3);
	be_put64(c.at + QCOW2_AT_BACKING_OFFSET, c.extensions);
	be_put32(c.at + QCOW2_AT_BACKING_BYTES, 4);
	memcpy(c.at + c.extensions, "back", 4);
	assert_int_equal(case_parse(&c), 0);
	assert_string_equal(c.h.backing_name, "back");
	assert_string_equal(c.h.backing_format, "raw");
}

static void test_stale_bitmaps(void **state)
{
	static const uint8_t nothing[24] = { 0 };

	(void)state;
	case_init(&c);
	case_extension(&c, QCOW2_EXT_BITMAPS, nothing, 24, 24);
	assert_int_equal(case_parse(&c), 0);
	assert_int_equal(c.h.bitmap_nr, 0);
}

static void test_l1_entries(void **state)
{
	struct qcow2_geometry g;

	(void)state;
	qcow2_geometry_init(&g, 3, 16, 4, false);
	assert_int_equal(qcow2_l1_entries_for(&g, 0), 0);
	assert_int_equal(qcow2_l1_entries_for(&g, 512), 1);
	assert_int_equal(qcow2_l1_entries_for(&g, MIB(512)), 1);
	assert_int_equal(qcow2_l1_entries_for(&g, MIB(512) + 512), 2);
	assert_int_equal(qcow2_l1_entries_for(&g, UINT64_MAX), 1ull << 35);
	qcow2_geometry_init(&g, 3, 16, 4, true);
	assert_int_equal(qcow2_l1_entries_for(&g, MIB(512)), 2);
}

/* ---- changes ---- */

static void change(struct qcow2_header *h)
{
	h->size_bytes = GIB(2);
	h->l1_entries = 4;
	h->l1_offset = 5 * CASE_CLUSTER;
	h->reftable_offset = 6 * CASE_CLUSTER;
	h->reftable_clusters = 2;
	h->snapshot_nr = 3;
	h->snapshots_offset = 8 * CASE_CLUSTER;
	h->incompatible = QCOW2_INCOMPAT_DIRTY;
	h->compatible = 3;
	h->autoclear = 4;
}

static void test_update(void **state)
{
	struct header_case after;
	struct qcow2_header want;

	(void)state;
	case_init(&c);
	case_extension(&c, 0x01020304, "unknown", 7, 7);
	be_put64(c.at + QCOW2_AT_BACKING_OFFSET, 200);
	be_put32(c.at + QCOW2_AT_BACKING_BYTES, 4);
	memcpy(c.at + 200, "back", 4);
	c.image_bytes = 9 * CASE_CLUSTER;
	assert_int_equal(case_parse(&c), 0);
	want = c.h;
	change(&want);
	after = c;
	qcow2_header_update(after.at, &want);
	assert_int_equal(case_parse(&after), 0);
	assert_memory_equal(&after.h, &want, sizeof(want));
	/* and back again: no other byte has changed */
	assert_memory_not_equal(after.at, c.at, sizeof(c.at));
	qcow2_header_update(after.at, &c.h);
	assert_memory_equal(after.at, c.at, sizeof(c.at));
}

/* Behind byte 72 an image of version 2 has no features, but extensions. */
static void test_update_version_2(void **state)
{
	struct header_case before;

	(void)state;
	case_init(&c);
	be_put32(c.at + QCOW2_AT_VERSION, 2);
	memset(c.at + 72, 0, 40);
	c.extensions = 72;
	case_extension(&c, QCOW2_EXT_BACKING_FORMAT, "raw", 3, 3);
	before = c;
	assert_int_equal(case_parse(&c), 0);
	change(&c.h);
	qcow2_header_update(c.at, &c.h);
	assert_int_equal(be_get64(c.at + QCOW2_AT_SIZE), GIB(2));
	assert_memory_equal(c.at + 72, before.at + 72, sizeof(c.at) - 72);
}

/* ---- counts ---- */

/* Each width: the largest count fits, its neighbours stay. */
static void test_counts(void **state)
{
	(void)state;
	for (unsigned order = 0; order <= 6; order++) {
		struct qcow2_geometry g = { .refcount_order = (uint8_t)order };
		unsigned nr = 512 * 8 >> order;
		uint8_t block[512] = { 0 };

		for (unsigned i = 0; i < nr; i += 3)
			qcow2_refcount_set(block, order, i, qcow2_refcount_max(&g));
		for (unsigned i = 1; i < nr; i += 3)
			qcow2_refcount_set(block, order, i, 1);
		for (unsigned i = 0; i < nr; i++)
			assert_int_equal(qcow2_refcount_get(block, order, i),
					 i % 3 == 0   ? qcow2_refcount_max(&g)
					 : i % 3 == 1 ? 1
						      : 0);
		for (unsigned i = 0; i < nr; i++)
			qcow2_refcount_set(block, order, i, 0);
		for (unsigned i = 0; i < sizeof(block); i++)
			assert_int_equal(block[i], 0);
	}
}

/* As the format has it: big endian; of narrow ones the first is in the lowest bits. */
static void test_counts_as_bytes(void **state)
{
	static const struct {
		unsigned order, idx;
		uint64_t value;
		uint8_t want[16];
	} cases[] = {
		{ 0, 9, 1, { [1] = 0x02 } },
		{ 1, 5, 2, { [1] = 0x08 } },
		{ 2, 3, 0xb, { [1] = 0xb0 } },
		{ 3, 2, 0xcd, { [2] = 0xcd } },
		{ 4, 1, 0x0102, { [2] = 1, [3] = 2 } },
		{ 5, 1, 0x01020304, { [4] = 1, 2, 3, 4 } },
		{ 6, 1, 0x0102030405060708, { [8] = 1, 2, 3, 4, 5, 6, 7, 8 } },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		uint8_t block[16] = { 0 };

		qcow2_refcount_set(block, cases[i].order, cases[i].idx, cases[i].value);
		assert_memory_equal(block, cases[i].want, sizeof(block));
		assert_int_equal(qcow2_refcount_get(block, cases[i].order, cases[i].idx),
				 cases[i].value);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made),
		cmocka_unit_test(test_made_luks),
		cmocka_unit_test(test_made_aes),
		cmocka_unit_test(test_made_with_more_in_it),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_largest_tables),
		cmocka_unit_test(test_version_2),
		cmocka_unit_test(test_features),
		cmocka_unit_test(test_no_compression_field),
		cmocka_unit_test(test_longer_header),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_old_data_file_name),
		cmocka_unit_test(test_no_end_extension),
		cmocka_unit_test(test_stale_bitmaps),
		cmocka_unit_test(test_l1_entries),
		cmocka_unit_test(test_update),
		cmocka_unit_test(test_update_version_2),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_counts_as_bytes),
	};

	return cmocka_run_group_tests(tests, images_make, images_remove);
}
