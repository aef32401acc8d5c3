/* Entries of the table of snapshots: QEMU's, hostile ones, ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "base/big_endian.h"
#include "backends/qcow2/format/qcow2_snapshot.h"
#include "test/rig/qcow2/qcow2_images.h"

static char words[QCOW2_WORDS_BYTES];

/* Of 1 GiB in clusters of 64 KiB. */
static struct qcow2_header header(unsigned version)
{
	struct qcow2_header h = { .size_bytes = GIB(1) };

	qcow2_geometry_init(&h.g, version, 16, 4, false);
	return h;
}

/* ---- what qemu-img makes ---- */

/* The whole table, which is at the end of the file, or behind which there are zeroes. */
static size_t read_table(const char *name, const struct qcow2_header *h, uint8_t *buf, size_t bytes)
{
	FILE *file = fopen(name, "rb");
	size_t nr;

	assert_non_null(file);
	assert_int_equal(fseek(file, (long)h->snapshots_offset, SEEK_SET), 0);
	nr = fread(buf, 1, bytes, file);
	fclose(file);
	return nr;
}

static void same_as_listed(const json_t *listed, const struct qcow2_snapshot *s)
{
	assert_string_equal(images_string(listed, "id"), s->id);
	assert_string_equal(images_string(listed, "name"), s->name);
	assert_int_equal(images_number(listed, "date-sec"), s->sec);
	assert_int_equal(images_number(listed, "date-nsec"), s->nsec);
	assert_int_equal(images_number(listed, "vm-state-size"), s->vm_state_bytes);
	assert_int_equal(images_number(listed, "vm-clock-sec") * NS_PER_SEC +
				 images_number(listed, "vm-clock-nsec"),
			 s->vm_clock_ns);
}

#define LONG_NAME                                                                                  \
	"a name of many letters, which is longer than most names of snapshots that people give, "  \
	"and has blanks"

/* In the order of the table: compared with qemu-img's list, then written as QEMU has. */
static void test_made(void **state)
{
	static uint8_t table[4096], ours[QCOW2_SNAPSHOT_BYTES_MAX];
	static const uint64_t size[] = { MIB(10), MIB(10), MIB(10), MIB(600) };
	struct qcow2_snapshot s;
	struct qcow2_header h;
	size_t nr, at = 0;
	json_t *info, *list;

	(void)state;
	IMAGES_NEED("qemu-img");
	images_run("qemu-img create -f qcow2 image 10M && qemu-img snapshot -c first image && "
		   "qemu-img snapshot -c '" LONG_NAME "' image && "
		   "qemu-img snapshot -c 1234567 image && qemu-img resize image 600M && "
		   "qemu-img snapshot -c larger image");
	images_parse("image", &h);
	assert_int_equal(h.snapshot_nr, ARRAY_SIZE(size));
	nr = read_table("image", &h, table, sizeof(table));
	info = images_json("qemu-img info --output=json image");
	list = json_object_get(info, "snapshots");
	for (unsigned i = 0; i < h.snapshot_nr; i++) {
		assert_int_equal(qcow2_snapshot_parse(&s, &h, table + at, nr - at, words), 0);
		same_as_listed(json_array_get(list, i), &s);
		assert_int_equal(s.size_bytes, size[i]);
		assert_int_equal(s.l1_entries, qcow2_l1_entries_for(&h.g, size[i]));
		assert_int_equal(s.entry_bytes, qcow2_snapshot_bytes(&s));
		qcow2_snapshot_encode(&s, ours);
		assert_memory_equal(ours, table + at, MIN((size_t)s.entry_bytes, nr - at));
		at += s.entry_bytes;
	}
	/* QEMU writes no padding behind the last one */
	assert_true(at >= nr || table[at] == 0);
	json_decref(info);
}

/* It takes a table of ours. */
static void test_taken_by_qemu(void **state)
{
	static uint8_t table[4096];
	struct qcow2_snapshot s;
	struct qcow2_header h;
	json_t *info, *list;
	FILE *file;
	size_t nr;

	(void)state;
	IMAGES_NEED("qemu-img");
	images_run("qemu-img create -f qcow2 taken 10M && qemu-img snapshot -c first taken");
	images_parse("taken", &h);
	nr = read_table("taken", &h, table, sizeof(table));
	assert_int_equal(qcow2_snapshot_parse(&s, &h, table, nr, words), 0);
	strcpy(s.id, "77");
	memset(s.name, 'n', 200);
	s.sec = 1700000000;
	s.nsec = 5;
	s.vm_clock_ns = 3 * NS_PER_SEC + 7;
	qcow2_snapshot_encode(&s, table);
	file = fopen("taken", "r+b");
	assert_non_null(file);
	assert_int_equal(fseek(file, (long)h.snapshots_offset, SEEK_SET), 0);
	assert_int_equal(fwrite(table, 1, qcow2_snapshot_bytes(&s), file),
			 qcow2_snapshot_bytes(&s));
	assert_int_equal(fclose(file), 0);
	info = images_json("qemu-img info --output=json taken");
	list = json_object_get(info, "snapshots");
	assert_int_equal(json_array_size(list), 1);
	same_as_listed(json_array_get(list, 0), &s);
	images_run("qemu-img check taken && qemu-img snapshot -a 77 taken");
	json_decref(info);
}

/* ---- entries that the test makes ---- */

/* Returns how long it is, without its padding. */
static size_t entry(uint8_t *at, uint32_t extra_bytes, const char *id, const char *name)
{
	memset(at, 0, 40 + extra_bytes);
	be_put64(at, 0x50000);
	be_put32(at + 8, 2);
	be_put16(at + 12, (uint16_t)strlen(id));
	be_put16(at + 14, (uint16_t)strlen(name));
	be_put32(at + 16, 11);
	be_put32(at + 20, 12);
	be_put64(at + 24, 13);
	be_put32(at + 32, 14);
	be_put32(at + 36, extra_bytes);
	for (uint32_t i = 0; i + 8 <= extra_bytes; i += 8)
		be_put64(at + 40 + i, (i + 1) << 20);
	memcpy(at + 40 + extra_bytes, id, strlen(id));
	memcpy(at + 40 + extra_bytes + strlen(id), name, strlen(name));
	return 40 + extra_bytes + strlen(id) + strlen(name);
}

/* At its exact size: ASan sees a read past the end. */
static int parse(struct qcow2_snapshot *s, const struct qcow2_header *h, const uint8_t *at,
		 size_t bytes)
{
	uint8_t *exact = malloc(bytes ? bytes : 1);
	int err;

	memcpy(exact, at, bytes);
	err = qcow2_snapshot_parse(s, h, exact, bytes, words);
	free(exact);
	return err;
}

/* Extra data came bit by bit into the format. */
static void test_extra(void **state)
{
	static const uint32_t extra[] = { 0, 7, 8, 15, 16, 23, 24, 100, 1024 };
	const struct qcow2_header h = header(2);
	uint8_t at[QCOW2_SNAPSHOT_BYTES_MAX];
	struct qcow2_snapshot s;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(extra); i++) {
		size_t bytes = entry(at, extra[i], "1", "name");

		assert_int_equal(parse(&s, &h, at, bytes), 0);
		assert_int_equal(s.l1_offset, 0x50000);
		assert_int_equal(s.l1_entries, 2);
		assert_int_equal(s.sec, 11);
		assert_int_equal(s.nsec, 12);
		assert_int_equal(s.vm_clock_ns, 13);
		assert_int_equal(s.vm_state_bytes, extra[i] >= 8 ? MIB(1) : 14);
		assert_int_equal(s.size_bytes, extra[i] >= 16 ? MIB(9) : GIB(1));
		assert_int_equal(s.icount, extra[i] >= 24 ? MIB(17) : QCOW2_SNAPSHOT_NO_ICOUNT);
		assert_string_equal(s.id, "1");
		assert_string_equal(s.name, "name");
		assert_int_equal(s.entry_bytes, (bytes + 7) & ~7ull);
	}
}

static void test_short(void **state)
{
	const struct qcow2_header h = header(3);
	uint8_t at[QCOW2_SNAPSHOT_BYTES_MAX];
	size_t bytes = entry(at, 24, "id", "name");
	struct qcow2_snapshot s;

	(void)state;
	for (size_t nr = 0; nr < bytes; nr++)
		assert_int_equal(parse(&s, &h, at, nr), -EAGAIN);
	assert_int_equal(parse(&s, &h, at, bytes), 0);
	assert_int_equal(parse(&s, &h, at, bytes + 20), 0);
}

static void test_longest(void **state)
{
	const struct qcow2_header h = header(3);
	uint8_t at[QCOW2_SNAPSHOT_BYTES_MAX];
	char name[QCOW2_SNAPSHOT_NAME_MAX + 1] = "";
	struct qcow2_snapshot s;

	(void)state;
	memset(name, 'n', QCOW2_SNAPSHOT_NAME_MAX);
	assert_int_equal(parse(&s, &h, at, entry(at, QCOW2_SNAPSHOT_EXTRA_MAX, name, name)), 0);
	assert_string_equal(s.id, name);
	assert_string_equal(s.name, name);
	assert_int_equal(s.entry_bytes, QCOW2_SNAPSHOT_BYTES_MAX);
	assert_true(qcow2_snapshot_bytes(&s) <= QCOW2_SNAPSHOT_BYTES_MAX);
}

static const struct {
	unsigned at, width;
	uint64_t value;
	const char *words;
} hostile[] = {
	{ 0, 8, 0, "is where no table can be" },
	{ 0, 8, 512, "is not on the border of a cluster" },
	{ 0, 8, 1ull << 56, "is where no table can be" },
	{ 0, 8, (1ull << 56) - 65536 + 8, "is not on the border of a cluster" },
	{ 0, 8, 0ull - 65536, "is where no table can be" },
	{ 8, 4, 0, "is too small for its disk" },
	{ 8, 4, 1, "is too small for its disk" },
	{ 8, 4, (4u << 20) + 1, "is larger than can be" },
	{ 8, 4, UINT32_MAX, "is larger than can be" },
	{ 12, 2, 256, "an ID of 256 bytes" },
	{ 12, 2, 65535, "an ID of 65535 bytes" },
	{ 14, 2, 256, "a name of 256" },
	{ 14, 2, 65535, "a name of 65535" },
	{ 36, 4, 1025, "extra data of 1025; 255, 255 and 1024 can be" },
	{ 36, 4, UINT32_MAX, "extra data of 4294967295" },
	{ 48, 8, GIB(1) + 1, "is too small for its disk" },
	{ 48, 8, UINT64_MAX, "is too small for its disk" },
};

static void test_hostile(void **state)
{
	const struct qcow2_header h = header(3);
	struct qcow2_snapshot s;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(hostile); i++) {
		uint8_t at[QCOW2_SNAPSHOT_BYTES_MAX];
		size_t bytes = entry(at, 24, "id", "name");

		be_put64(at + 48, GIB(1));
		assert_int_equal(parse(&s, &h, at, bytes), 0);
		if (hostile[i].width == 8)
			be_put64(at + hostile[i].at, hostile[i].value);
		else if (hostile[i].width == 4)
			be_put32(at + hostile[i].at, (uint32_t)hostile[i].value);
		else
			be_put16(at + hostile[i].at, (uint16_t)hostile[i].value);
		assert_int_equal(parse(&s, &h, at, bytes), -EINVAL);
		if (!strstr(words, hostile[i].words))
			print_message("# \"%s\" instead of \"%s\"\n", words, hostile[i].words);
		assert_non_null(strstr(words, hostile[i].words));
	}
}

/* The last cluster that a table of 16 bytes can have, and one that ends beyond 2^56. */
static void test_last_cluster(void **state)
{
	const struct qcow2_header h = header(3);
	uint8_t at[QCOW2_SNAPSHOT_BYTES_MAX];
	size_t bytes = entry(at, 24, "id", "name");
	struct qcow2_snapshot s;

	(void)state;
	be_put64(at, (1ull << 56) - 65536);
	assert_int_equal(parse(&s, &h, at, bytes), 0);
	be_put32(at + 8, 65536 / 8);
	assert_int_equal(parse(&s, &h, at, bytes), 0);
	be_put32(at + 8, 65536 / 8 + 1);
	assert_int_equal(parse(&s, &h, at, bytes), -EINVAL);
}

/* As C programs see them. */
static void test_zero_in_name(void **state)
{
	const struct qcow2_header h = header(3);
	uint8_t at[QCOW2_SNAPSHOT_BYTES_MAX];
	size_t bytes = entry(at, 24, "id", "name");
	struct qcow2_snapshot s;

	(void)state;
	at[bytes - 2] = '\0';
	assert_int_equal(parse(&s, &h, at, bytes), 0);
	assert_string_equal(s.name, "na");
	assert_int_equal(s.entry_bytes, (bytes + 7) & ~7ull);
}

static void test_encode(void **state)
{
	const struct qcow2_header h = header(3);
	static const uint64_t vm_state[] = { 0, UINT32_MAX, (1ull << 32) + 5 };
	struct qcow2_snapshot s, again;
	uint8_t at[QCOW2_SNAPSHOT_BYTES_MAX];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(vm_state); i++) {
		memset(&s, 0, sizeof(s));
		s.l1_offset = 0x10000;
		s.l1_entries = 7;
		s.size_bytes = GIB(3);
		s.sec = 0x01020304;
		s.nsec = 999999999;
		s.vm_clock_ns = UINT64_MAX;
		s.vm_state_bytes = vm_state[i];
		s.icount = 5;
		memset(s.id, 'i', i);
		memset(s.name, 'n', 255);
		s.entry_bytes = (uint32_t)qcow2_snapshot_bytes(&s);
		memset(at, 0xee, sizeof(at));
		qcow2_snapshot_encode(&s, at);
		assert_int_equal(s.entry_bytes, (40 + 24 + i + 255 + 7) & ~7u);
		assert_int_equal(at[s.entry_bytes], 0xee);
		assert_int_equal(be_get32(at + 32), vm_state[i] > UINT32_MAX ? 0 : vm_state[i]);
		memset(&again, 0, sizeof(again));
		assert_int_equal(parse(&again, &h, at, s.entry_bytes), 0);
		assert_memory_equal(&again, &s, sizeof(s));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made),	     cmocka_unit_test(test_taken_by_qemu),
		cmocka_unit_test(test_extra),	     cmocka_unit_test(test_short),
		cmocka_unit_test(test_longest),	     cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_last_cluster), cmocka_unit_test(test_zero_in_name),
		cmocka_unit_test(test_encode),
	};

	return cmocka_run_group_tests(tests, images_make, images_remove);
}
