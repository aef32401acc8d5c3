/* Headers that no program should have written: each is refused, in words about what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "test/rig/qcow2/qcow2_header_case.h"

static struct header_case c;

static void refused(int err, const char *words)
{
	assert_int_equal(case_parse(&c), err);
	if (!strstr(c.words, words))
		print_message("# \"%s\" instead of \"%s\"\n", c.words, words);
	assert_non_null(strstr(c.words, words));
	assert_memory_equal(c.words, "qcow2: ", 7);
	assert_true(strlen(c.words) < QCOW2_WORDS_BYTES);
}

/* ---- a field each ---- */

#define BEYOND "beyond 2^56"
#define BORDER "not on the border of a cluster"
#define CUT "is it a whole copy?"

static const struct {
	unsigned at, width;
	uint64_t value;
	int err;
	const char *words;
} fields[] = {
	{ 0, 4, 0x514649fa, -EINVAL, "no qcow2 image" },
	{ QCOW2_AT_VERSION, 4, 0, -EOPNOTSUPP, "version 0" },
	{ QCOW2_AT_VERSION, 4, 1, -EOPNOTSUPP, "convert it with qemu-img convert" },
	{ QCOW2_AT_VERSION, 4, 4, -EOPNOTSUPP, "version 4" },
	{ QCOW2_AT_VERSION, 4, UINT32_MAX, -EOPNOTSUPP, "version 4294967295" },
	{ QCOW2_AT_BACKING_OFFSET, 8, 1, -EINVAL, "backing file is at offset 1," },
	{ QCOW2_AT_BACKING_OFFSET, 8, 104, -EINVAL, "backing file is at offset 104," },
	{ QCOW2_AT_BACKING_OFFSET, 8, CASE_CLUSTER + 1, -EINVAL, "is at offset 65537," },
	{ QCOW2_AT_BACKING_OFFSET, 8, UINT64_MAX, -EINVAL, "is at offset 18446744073709551615," },
	{ QCOW2_AT_CLUSTER_BITS, 4, 0, -EINVAL, "2^0 bytes" },
	{ QCOW2_AT_CLUSTER_BITS, 4, 8, -EINVAL, "2^8 bytes" },
	{ QCOW2_AT_CLUSTER_BITS, 4, 22, -EINVAL, "2^22 bytes" },
	{ QCOW2_AT_CLUSTER_BITS, 4, 64, -EINVAL, "2^64 bytes" },
	{ QCOW2_AT_CLUSTER_BITS, 4, 256 + 16, -EINVAL, "2^272 bytes" },
	{ QCOW2_AT_SIZE, 8, (1ull << 30) + 1, -EINVAL, "has 2 entries" },
	{ QCOW2_AT_SIZE, 8, UINT64_MAX, -EINVAL, "needs 34359738368" },
	{ QCOW2_AT_CRYPT, 4, 1, -EOPNOTSUPP, "(AES)" },
	{ QCOW2_AT_CRYPT, 4, 2, -EINVAL, "does not say where the LUKS header is" },
	{ QCOW2_AT_CRYPT, 4, 3, -EOPNOTSUPP, "(3); known is LUKS" },
	{ QCOW2_AT_CRYPT, 4, UINT32_MAX, -EOPNOTSUPP, "(4294967295)" },
	{ QCOW2_AT_L1_ENTRIES, 4, 0, -EINVAL, "has 0 entries" },
	{ QCOW2_AT_L1_ENTRIES, 4, 1, -EINVAL, "needs 2" },
	{ QCOW2_AT_L1_ENTRIES, 4, (4u << 20) + 1, -EINVAL, "has 4194305 entries; 4194304" },
	{ QCOW2_AT_L1_ENTRIES, 4, UINT32_MAX, -EINVAL, "has 4294967295 entries" },
	{ QCOW2_AT_L1_ENTRIES, 4, CASE_CLUSTER / 8 + 1, -EINVAL, CUT },
	{ QCOW2_AT_L1_OFFSET, 8, 0, -EINVAL, "L1 table is at offset 0, where the header is" },
	{ QCOW2_AT_L1_OFFSET, 8, 3 * CASE_CLUSTER + 512, -EINVAL, BORDER },
	{ QCOW2_AT_L1_OFFSET, 8, 4 * CASE_CLUSTER, -EINVAL, CUT },
	{ QCOW2_AT_L1_OFFSET, 8, 1ull << 56, -EINVAL, BEYOND },
	{ QCOW2_AT_L1_OFFSET, 8, 0ull - CASE_CLUSTER, -EINVAL, BEYOND },
	{ QCOW2_AT_L1_OFFSET, 8, CASE_CLUSTER, -EINVAL,
	  "L1 table and the reference count table lie over each other" },
	{ QCOW2_AT_REFTABLE_OFFSET, 8, 0, -EINVAL, "reference count table is at offset 0," },
	{ QCOW2_AT_REFTABLE_OFFSET, 8, CASE_CLUSTER - 1, -EINVAL, BORDER },
	{ QCOW2_AT_REFTABLE_OFFSET, 8, 4 * CASE_CLUSTER, -EINVAL, CUT },
	{ QCOW2_AT_REFTABLE_OFFSET, 8, (1ull << 63), -EINVAL, BEYOND },
	{ QCOW2_AT_REFTABLE_OFFSET, 8, 3 * CASE_CLUSTER, -EINVAL, "lie over each other" },
	{ QCOW2_AT_REFTABLE_CLUSTERS, 4, 0, -EINVAL, "has 0 clusters; 1 to 128" },
	{ QCOW2_AT_REFTABLE_CLUSTERS, 4, 129, -EINVAL, "has 129 clusters" },
	{ QCOW2_AT_REFTABLE_CLUSTERS, 4, UINT32_MAX, -EINVAL, "has 4294967295 clusters" },
	{ QCOW2_AT_REFTABLE_CLUSTERS, 4, 3, -EINVAL, "lie over each other" },
	{ QCOW2_AT_REFTABLE_CLUSTERS, 4, 4, -EINVAL, CUT },
	{ QCOW2_AT_SNAPSHOT_NR, 4, 1, -EINVAL, "table of snapshots is at offset 0," },
	{ QCOW2_AT_SNAPSHOT_NR, 4, 65537, -EINVAL, "65537 internal snapshots; 65536" },
	{ QCOW2_AT_SNAPSHOT_NR, 4, UINT32_MAX, -EINVAL, "4294967295 internal snapshots" },
	{ QCOW2_AT_INCOMPATIBLE, 8, QCOW2_INCOMPAT_COMPRESSION, -EINVAL, "type is 0" },
	{ QCOW2_AT_INCOMPATIBLE, 8, 1ull << 63, -EOPNOTSUPP,
	  "a feature without a name (incompatible bit 63), which ublkd does not know" },
	{ QCOW2_AT_INCOMPATIBLE, 8, 7ull << 5, -EOPNOTSUPP, "(incompatible bit 5) and 2 more," },
	{ QCOW2_AT_AUTOCLEAR, 8, QCOW2_AUTOCLEAR_RAW_DATA_FILE, -EINVAL, "raw data file, but" },
	{ QCOW2_AT_REFCOUNT_ORDER, 4, 7, -EINVAL, "2^7 bits" },
	{ QCOW2_AT_REFCOUNT_ORDER, 4, 260, -EINVAL, "2^260 bits" },
	{ QCOW2_AT_HEADER_BYTES, 4, 0, -EINVAL, "it has 0 bytes" },
	{ QCOW2_AT_HEADER_BYTES, 4, 96, -EINVAL, "it has 96 bytes" },
	{ QCOW2_AT_HEADER_BYTES, 4, 105, -EINVAL, "it has 105 bytes" },
	{ QCOW2_AT_HEADER_BYTES, 4, CASE_CLUSTER + 8, -EINVAL, "it has 65544 bytes" },
	{ QCOW2_AT_HEADER_BYTES, 4, UINT32_MAX - 7, -EINVAL, "it has 4294967288 bytes" },
	{ QCOW2_AT_COMPRESSION, 1, 1, -EINVAL, "type is 1, and the bit" },
};

static void put(unsigned at, unsigned width, uint64_t value)
{
	if (width == 8)
		be_put64(c.at + at, value);
	else if (width == 4)
		be_put32(c.at + at, (uint32_t)value);
	else
		c.at[at] = (uint8_t)value;
}

static void test_fields(void **state)
{
	(void)state;
	case_init(&c);
	assert_int_equal(case_parse(&c), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(fields); i++) {
		case_init(&c);
		put(fields[i].at, fields[i].width, fields[i].value);
		refused(fields[i].err, fields[i].words);
	}
}

/* However few bytes there are, none behind them is looked at. */
static void test_short(void **state)
{
	(void)state;
	case_init(&c);
	case_extension(&c, QCOW2_EXT_BACKING_FORMAT, "raw", 3, 3);
	be_put64(c.at + QCOW2_AT_BACKING_OFFSET, 300);
	be_put32(c.at + QCOW2_AT_BACKING_BYTES, 20);
	memset(c.at + 300, 'b', 20);
	for (c.nr_bytes = 0; c.nr_bytes < 320; c.nr_bytes++)
		refused(-EINVAL, c.nr_bytes < 4	    ? "no qcow2 image"
				 : c.nr_bytes < 112 ? "ends within its header"
				 : c.nr_bytes < 136 ? "header extension"
						    : "ends beyond the first");
	assert_int_equal(case_parse(&c), 0);
	/* more bytes than the image has are not its own */
	c.image_bytes = 300;
	refused(-EINVAL, "ends beyond the first 300 bytes");
}

static void test_compression(void **state)
{
	(void)state;
	case_init(&c);
	be_put64(c.at + QCOW2_AT_INCOMPATIBLE, QCOW2_INCOMPAT_COMPRESSION);
	c.at[QCOW2_AT_COMPRESSION] = 2;
	refused(-EOPNOTSUPP, "(type 2); known are zlib and zstd");
	/* the field is behind the header's end: it is not there */
	c.at[QCOW2_AT_COMPRESSION] = 1;
	be_put32(c.at + QCOW2_AT_HEADER_BYTES, 104);
	refused(-EINVAL, "type is 0");
}

static void test_extended_l2(void **state)
{
	(void)state;
	for (uint32_t bits = 9; bits <= 14; bits++) {
		case_init(&c);
		be_put64(c.at + QCOW2_AT_INCOMPATIBLE, QCOW2_INCOMPAT_EXTENDED_L2);
		be_put32(c.at + QCOW2_AT_CLUSTER_BITS, bits);
		be_put64(c.at + QCOW2_AT_SIZE, 512);
		if (bits < 14)
			refused(-EINVAL, "need clusters of 2^14");
		else
			assert_int_equal(case_parse(&c), 0);
	}
	assert_int_equal(c.h.g.subcluster_bits, 9);
}

/* ---- extensions ---- */

static void test_extension_lengths(void **state)
{
	static const uint32_t lengths[] = { CASE_CLUSTER - 119, CASE_CLUSTER, 0x7fffffff,
					    0xfffffff8, 0xffffffff };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		case_init(&c);
		case_extension(&c, 0x01020304, "", 0, lengths[i]);
		refused(-EINVAL, "header extension at offset 112 ends beyond");
	}
	/* to the cluster's last byte */
	case_init(&c);
	case_extension(&c, 0x01020304, "", 0, CASE_CLUSTER - 120);
	assert_int_equal(case_parse(&c), 0);
	case_init(&c);
	case_extension(&c, 0x01020304, "", 0, CASE_CLUSTER - 124);
	assert_int_equal(case_parse(&c), 0);
}

/* They end at the backing file's name. */
static void test_extension_over_name(void **state)
{
	(void)state;
	case_init(&c);
	case_extension(&c, 0x01020304, "", 0, 81);
	be_put64(c.at + QCOW2_AT_BACKING_OFFSET, 200);
	be_put32(c.at + QCOW2_AT_BACKING_BYTES, 4);
	refused(-EINVAL, "header extension at offset 112");
	/* 4 bytes before the name are no extension */
	case_init(&c);
	case_extension(&c, QCOW2_EXT_BACKING_FORMAT, "raw", 3, 3);
	be_put64(c.at + QCOW2_AT_BACKING_OFFSET, c.extensions + 4);
	refused(-EINVAL, "header extension at offset 128");
}

static void test_extension_beyond_what_is_read(void **state)
{
	(void)state;
	case_init(&c);
	be_put32(c.at + QCOW2_AT_CLUSTER_BITS, 21);
	be_put64(c.at + QCOW2_AT_L1_OFFSET, 3u << 21);
	be_put64(c.at + QCOW2_AT_REFTABLE_OFFSET, 1u << 21);
	c.image_bytes = 4u << 21;
	case_extension(&c, 0x01020304, "", 0, CASE_CLUSTER);
	refused(-EINVAL, "header extension at offset 112");
	be_put64(c.at + QCOW2_AT_BACKING_OFFSET, CASE_CLUSTER - 3);
	be_put32(c.at + QCOW2_AT_BACKING_BYTES, 4);
	be_put32(c.at + CASE_HEADER_BYTES + 4, 8);
	refused(-EINVAL, "name of the backing file ends beyond the first 65536 bytes");
}

static void test_names(void **state)
{
	(void)state;
	case_init(&c);
	case_extension(&c, QCOW2_EXT_BACKING_FORMAT, "sixteen letters!", 16, 16);
	refused(-EINVAL, "backing file's format has 16 bytes");
	case_init(&c);
	be_put64(c.at + QCOW2_AT_INCOMPATIBLE, QCOW2_INCOMPAT_DATA_FILE);
	case_extension(&c, QCOW2_EXT_DATA_FILE, "", 0, 1024);
	refused(-EINVAL, "data file's name has 1024 bytes");
	case_init(&c);
	be_put64(c.at + QCOW2_AT_BACKING_OFFSET, 1000);
	be_put32(c.at + QCOW2_AT_BACKING_BYTES, 1024);
	refused(-EINVAL, "has 1024 bytes: it has 1023 at most");
	be_put32(c.at + QCOW2_AT_BACKING_BYTES, UINT32_MAX);
	refused(-EINVAL, "has 4294967295 bytes");
	be_put64(c.at + QCOW2_AT_BACKING_OFFSET, CASE_CLUSTER - 10);
	be_put32(c.at + QCOW2_AT_BACKING_BYTES, 11);
	refused(-EINVAL, "has 11 bytes");
}

static void test_raw_data_file_with_backing(void **state)
{
	(void)state;
	case_init(&c);
	be_put64(c.at + QCOW2_AT_INCOMPATIBLE, QCOW2_INCOMPAT_DATA_FILE);
	be_put64(c.at + QCOW2_AT_AUTOCLEAR, QCOW2_AUTOCLEAR_RAW_DATA_FILE);
	assert_int_equal(case_parse(&c), 0);
	be_put64(c.at + QCOW2_AT_BACKING_OFFSET, 1000);
	assert_int_equal(case_parse(&c), 0); /* "" is no name */
	be_put32(c.at + QCOW2_AT_BACKING_BYTES, 4);
	refused(-EINVAL, "take the backing file away with qemu-img rebase");
}

static void test_data_file_with_snapshots(void **state)
{
	(void)state;
	case_init(&c);
	be_put64(c.at + QCOW2_AT_INCOMPATIBLE, QCOW2_INCOMPAT_DATA_FILE);
	be_put32(c.at + QCOW2_AT_SNAPSHOT_NR, 1);
	be_put64(c.at + QCOW2_AT_SNAPSHOTS_OFFSET, 2 * CASE_CLUSTER);
	refused(-EINVAL, "external data file and internal snapshots");
}

static void put_crypto(uint64_t offset, uint64_t bytes, uint32_t length)
{
	uint8_t data[24] = { 0 };

	be_put64(data, offset);
	be_put64(data + 8, bytes);
	case_extension(&c, QCOW2_EXT_CRYPTO, data, 16, length);
}

static void test_luks(void **state)
{
	static const struct {
		uint64_t offset, bytes;
		uint32_t length;
		const char *words;
	} cases[] = {
		{ 2 * CASE_CLUSTER, 592, 15, "LUKS header has 15 bytes" },
		{ 2 * CASE_CLUSTER, 592, 24, "LUKS header has 24 bytes" },
		{ 2 * CASE_CLUSTER, 0, 16, "LUKS header has 0 bytes" },
		{ 0, 592, 16, "LUKS header is at offset 0," },
		{ 512, 592, 16, BORDER },
		{ 4 * CASE_CLUSTER, 1, 16, CUT },
		{ 2 * CASE_CLUSTER, UINT64_MAX, 16, BEYOND },
		{ 0ull - CASE_CLUSTER, CASE_CLUSTER, 16, BEYOND },
		{ 2 * CASE_CLUSTER, CASE_CLUSTER + 1, 16, "lie over each other" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		case_init(&c);
		be_put32(c.at + QCOW2_AT_CRYPT, QCOW2_CRYPT_LUKS);
		put_crypto(cases[i].offset, cases[i].bytes, cases[i].length);
		refused(-EINVAL, cases[i].words);
	}
	case_init(&c);
	put_crypto(2 * CASE_CLUSTER, CASE_CLUSTER, 16);
	refused(-EINVAL, "says that it is not encrypted");
	be_put32(c.at + QCOW2_AT_CRYPT, QCOW2_CRYPT_LUKS);
	assert_int_equal(case_parse(&c), 0);
	assert_int_equal(c.h.crypto_offset, 2 * CASE_CLUSTER);
	assert_int_equal(c.h.crypto_bytes, CASE_CLUSTER);
	put_crypto(2 * CASE_CLUSTER, CASE_CLUSTER, 16);
	refused(-EINVAL, "LUKS header is there twice");
}

static void put_bitmaps(uint32_t nr, uint32_t reserved, uint64_t bytes, uint64_t offset)
{
	uint8_t data[24];

	be_put32(data, nr);
	be_put32(data + 4, reserved);
	be_put64(data + 8, bytes);
	be_put64(data + 16, offset);
	case_extension(&c, QCOW2_EXT_BITMAPS, data, 24, 24);
}

static void test_bitmaps(void **state)
{
	static const struct {
		uint32_t nr, reserved;
		uint64_t bytes, offset;
		const char *words;
	} cases[] = {
		{ 0, 0, 64, 2 * CASE_CLUSTER, "0 bitmaps in a directory of 64 bytes" },
		{ 65536, 0, 64u << 20, 2 * CASE_CLUSTER, "65536 bitmaps" },
		{ 1, 1, 64, 2 * CASE_CLUSTER, "1 bitmaps" },
		{ 1, 0, 23, 2 * CASE_CLUSTER, "directory of 23" },
		{ 3, 0, 71, 2 * CASE_CLUSTER, "3 bitmaps in a directory of 71" },
		{ 1, 0, (64u << 20) + 1, 2 * CASE_CLUSTER, "directory of 67108865" },
		{ 1, 0, UINT64_MAX, 2 * CASE_CLUSTER, "directory of 18446744073709551615" },
		{ 1, 0, 64, 0, "directory of bitmaps is at offset 0," },
		{ 1, 0, 64, 2 * CASE_CLUSTER + 8, BORDER },
		{ 1, 0, 64, 1ull << 57, BEYOND },
		{ 1, 0, 64, CASE_CLUSTER, "lie over each other" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		case_init(&c);
		be_put64(c.at + QCOW2_AT_AUTOCLEAR, QCOW2_AUTOCLEAR_BITMAPS);
		put_bitmaps(cases[i].nr, cases[i].reserved, cases[i].bytes, cases[i].offset);
		refused(-EINVAL, cases[i].words);
	}
	case_init(&c);
	be_put64(c.at + QCOW2_AT_AUTOCLEAR, QCOW2_AUTOCLEAR_BITMAPS);
	case_extension(&c, QCOW2_EXT_BITMAPS, "", 0, 16);
	refused(-EINVAL, "bitmaps has 16 bytes");
}

/* ---- names of features ---- */

static void feature(uint8_t *entry, uint8_t type, uint8_t bit, const char *name)
{
	memset(entry, 0, 48);
	entry[0] = type;
	entry[1] = bit;
	memcpy(entry + 2, name, MIN(strlen(name), 46u));
}

static void test_feature_names(void **state)
{
	const char *longest = "forty-six letters, and no zero behind the last";
	uint8_t table[5 * 48];

	(void)state;
	assert_int_equal(strlen(longest), 46);
	feature(table, 1, 7, "compatible");
	feature(table + 48, 0, 6, "six");
	feature(table + 96, 0, 7, "foo");
	feature(table + 144, 0, 8, longest);
	feature(table + 192, 0, 9, "a\nb\xff");
	case_init(&c);
	case_extension(&c, 0x01020304, "unknown", 7, 7);
	case_extension(&c, QCOW2_EXT_FEATURE_NAMES, table, sizeof(table), sizeof(table));
	be_put64(c.at + QCOW2_AT_INCOMPATIBLE, 1u << 7);
	refused(-EOPNOTSUPP, "qcow2: the image needs the feature \"foo\" (incompatible bit 7), "
			     "which ublkd does not know");
	be_put64(c.at + QCOW2_AT_INCOMPATIBLE, 1u << 7 | 1ull << 40);
	refused(-EOPNOTSUPP, "\"foo\" (incompatible bit 7) and 1 more,");
	be_put64(c.at + QCOW2_AT_INCOMPATIBLE, 1u << 8);
	refused(-EOPNOTSUPP, longest);
	be_put64(c.at + QCOW2_AT_INCOMPATIBLE, 1u << 9);
	refused(-EOPNOTSUPP, "\"a\\x0ab\\xff\"");
	be_put64(c.at + QCOW2_AT_INCOMPATIBLE, 1u << 10);
	refused(-EOPNOTSUPP, "without a name (incompatible bit 10)");
	/* the table ends within the entry of bit 9 */
	be_put32(c.at + CASE_HEADER_BYTES + 20, 239);
	be_put64(c.at + QCOW2_AT_INCOMPATIBLE, 1u << 9);
	refused(-EOPNOTSUPP, "without a name (incompatible bit 9)");
	/* it ends beyond the cluster: there are no names, and that is not the first thing to say */
	be_put32(c.at + CASE_HEADER_BYTES + 20, CASE_CLUSTER);
	refused(-EOPNOTSUPP, "without a name (incompatible bit 9)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_short),
		cmocka_unit_test(test_compression),
		cmocka_unit_test(test_extended_l2),
		cmocka_unit_test(test_extension_lengths),
		cmocka_unit_test(test_extension_over_name),
		cmocka_unit_test(test_extension_beyond_what_is_read),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_raw_data_file_with_backing),
		cmocka_unit_test(test_data_file_with_snapshots),
		cmocka_unit_test(test_luks),
		cmocka_unit_test(test_bitmaps),
		cmocka_unit_test(test_feature_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
