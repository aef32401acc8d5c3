/* Which object has which bytes: names, the map's object, what a list must have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "backends/s3_disk/s3_disk_map.h"
#include "base/util.h"

#define OBJECTS 100u
#define GENERATION 7u
#define HEADER_BYTES 32u
#define ENTRY_BYTES 12u

static void name_is(struct s3_disk_name name, uint32_t generation, uint32_t seq)
{
	assert_int_equal(name.generation, generation);
	assert_int_equal(name.seq, seq);
}

/* ---- names ---- */

static void test_name(void **state)
{
	static const struct {
		uint32_t generation, index, seq;
		const char *text;
	} cases[] = {
		{ 1, 0, 1, "o/00000001/00000000.00000001" },
		{ 0x12ab, 0x3cd, 0xef, "o/000012ab/000003cd.000000ef" },
		{ S3_DISK_GENERATION_MAX, S3_DISK_OBJECTS_MAX - 1, S3_DISK_SEQ_MAX,
		  "o/7fffffff/00ffffff.7fffffff" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct s3_disk_name name = { .generation = cases[i].generation,
					     .seq = cases[i].seq };
		char text[S3_DISK_NAME_BYTES];
		uint32_t index = 0;

		s3_disk_name_text(name, cases[i].index, text);
		assert_string_equal(text, cases[i].text);
		/* That it has no bytes is not said in its name. */
		name.seq |= S3_DISK_HOLE;
		s3_disk_name_text(name, cases[i].index, text);
		assert_string_equal(text, cases[i].text);
		assert_true(s3_disk_name_parse(text, &name, &index));
		name_is(name, cases[i].generation, cases[i].seq);
		assert_int_equal(index, cases[i].index);
	}
}

static void test_name_bad(void **state)
{
	static const char *const bad[] = {
		"",
		"o/",
		"manifest",
		"map/00000001.0123",
		"o/00000000/00000000.00000001",
		"o/80000000/00000000.00000001",
		"o/00000001/01000000.00000001",
		"o/00000001/00000000.00000000",
		"o/00000001/00000000.80000000",
		"o/00000001/00000000.00000001 ",
		"o/00000001/00000000.000000012",
		"o/00000001/00000000.0000001",
		"o/1/0.1",
		"o/0000000A/00000000.00000001",
		"o/0x000001/00000000.00000001",
		"o/+0000001/00000000.00000001",
		"o/ 0000001/00000000.00000001",
		"o/-0000001/00000000.00000001",
		"x/00000001/00000000.00000001",
		"/o/00000001/00000000.00000001",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct s3_disk_name name = { .generation = 5, .seq = 6 };
		uint32_t index = 9;

		if (s3_disk_name_parse(bad[i], &name, &index))
			fail_msg("taken: \"%s\"", bad[i]);
		name_is(name, 5, 6);
		assert_int_equal(index, 9);
	}
}

static void test_hole(void **state)
{
	(void)state;
	assert_true(s3_disk_name_is_hole((struct s3_disk_name){ 0 }));
	assert_true(s3_disk_name_is_hole((struct s3_disk_name){ 1, 1 | S3_DISK_HOLE }));
	assert_false(s3_disk_name_is_hole((struct s3_disk_name){ 1, 1 }));
}

static void take(struct s3_disk_map *map, uint32_t index, uint32_t generation, uint32_t seq)
{
	const struct s3_disk_listed listed = { .name = { generation, seq }, .index = index };

	s3_disk_map_take(map, &listed);
}

static void test_take(void **state)
{
	struct s3_disk_map map;

	(void)state;
	assert_int_equal(s3_disk_map_init(&map, 2), 0);
	take(&map, 0, 3, 5);
	name_is(map.name[0], 3, 5);
	take(&map, 0, 3, 4);
	name_is(map.name[0], 3, 5);
	take(&map, 0, 2, 99);
	name_is(map.name[0], 3, 5);
	take(&map, 0, 3, 6);
	name_is(map.name[0], 3, 6);
	take(&map, 0, 4, 1);
	name_is(map.name[0], 4, 1);
	/* A hole is as new as its seq says, and no newer. */
	take(&map, 0, 4, 3 | S3_DISK_HOLE);
	name_is(map.name[0], 4, 3 | S3_DISK_HOLE);
	take(&map, 0, 4, 2);
	name_is(map.name[0], 4, 3 | S3_DISK_HOLE);
	take(&map, 0, 4, 2 | S3_DISK_HOLE);
	name_is(map.name[0], 4, 3 | S3_DISK_HOLE);
	take(&map, 0, 4, 4);
	name_is(map.name[0], 4, 4);
	/* Behind the end of the disk. */
	take(&map, 2, 4, 1);
	take(&map, S3_DISK_OBJECTS_MAX - 1, 4, 1);
	name_is(map.name[1], 0, 0);
	s3_disk_map_fini(&map);
	assert_null(map.name);
	s3_disk_map_fini(&map);
}

/* ---- the object ---- */

struct text {
	uint8_t at[HEADER_BYTES + OBJECTS * ENTRY_BYTES];
	size_t bytes;
};

/* Three objects, and two holes that are left out. */
static void text_make(struct text *t)
{
	struct s3_disk_map map;

	memset(t, 0xee, sizeof(*t));
	assert_int_equal(s3_disk_map_init(&map, OBJECTS), 0);
	take(&map, 1, 1, 10);
	take(&map, 2, 1, 1 | S3_DISK_HOLE);
	take(&map, 5, GENERATION - 1, S3_DISK_SEQ_MAX);
	take(&map, 50, 3, 7 | S3_DISK_HOLE);
	take(&map, OBJECTS - 1, 2, 4);
	t->bytes = s3_disk_map_bytes(&map);
	assert_int_equal(t->bytes, HEADER_BYTES + 3 * ENTRY_BYTES);
	s3_disk_map_write(&map, GENERATION, t->at);
	assert_int_equal(t->at[t->bytes], 0xee);
	s3_disk_map_fini(&map);
}

static int text_read(const struct text *t, struct s3_disk_map *map, char words[100])
{
	assert_int_equal(s3_disk_map_init(map, OBJECTS), 0);
	return s3_disk_map_read(map, GENERATION, t->at, t->bytes, words, 100);
}

static void test_round_trip(void **state)
{
	struct s3_disk_map map;
	struct text t;
	char words[100];

	(void)state;
	text_make(&t);
	assert_int_equal(text_read(&t, &map, words), 0);
	for (uint32_t i = 0; i < OBJECTS; i++) {
		if (i == 1)
			name_is(map.name[i], 1, 10);
		else if (i == 5)
			name_is(map.name[i], GENERATION - 1, S3_DISK_SEQ_MAX);
		else if (i == OBJECTS - 1)
			name_is(map.name[i], 2, 4);
		else
			name_is(map.name[i], 0, 0);
	}
	s3_disk_map_fini(&map);
}

static void test_sizes(void **state)
{
	struct s3_disk_map map;
	struct text t;
	char words[100];

	(void)state;
	assert_int_equal(s3_disk_map_bytes_max(OBJECTS), sizeof(t.at));
	assert_int_equal(s3_disk_map_init(&map, OBJECTS), 0);
	assert_int_equal(s3_disk_map_bytes(&map), HEADER_BYTES);
	for (uint32_t i = 0; i < OBJECTS; i++)
		take(&map, i, 1, i + 1);
	t.bytes = s3_disk_map_bytes(&map);
	assert_int_equal(t.bytes, sizeof(t.at));
	s3_disk_map_write(&map, GENERATION, t.at);
	s3_disk_map_fini(&map);
	assert_int_equal(text_read(&t, &map, words), 0);
	name_is(map.name[OBJECTS - 1], 1, OBJECTS);
	s3_disk_map_fini(&map);
}

static void put32(struct text *t, size_t at, uint32_t value)
{
	value = htole32(value);
	memcpy(t->at + at, &value, sizeof(value));
}

/* The sum is made right after the entries have changed. */
static void text_sum(struct text *t)
{
	put32(t, 24, (uint32_t)crc32_z(0, t->at + HEADER_BYTES, t->bytes - HEADER_BYTES));
}

static void text_bad(const struct text *t, const char *expected)
{
	struct s3_disk_map map;
	char words[100] = "";

	assert_int_equal(text_read(t, &map, words), -EINVAL);
	assert_string_equal(words, expected);
	s3_disk_map_fini(&map);
}

#define NONSENSE "the map makes no sense"

static void test_header_bad(void **state)
{
	static const struct {
		size_t at;
		uint32_t value;
	} cases[] = {
		{ 0, 0 }, /* magic */
		{ 8, 0 }, /* version */
		{ 8, 2 },
		{ 12, OBJECTS - 1 }, /* objects of the disk */
		{ 12, OBJECTS + 1 },
		{ 16, 2 }, /* entries */
		{ 16, 4 },
		{ 16, OBJECTS + 1 },
		{ 16, UINT32_MAX },
		{ 20, GENERATION - 1 }, /* generation */
		{ 20, GENERATION + 1 },
	};
	struct text t;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		text_make(&t);
		put32(&t, cases[i].at, cases[i].value);
		text_bad(&t, NONSENSE);
	}
	text_make(&t);
	put32(&t, 24, 1);
	text_bad(&t, "the map has a wrong checksum");
	text_make(&t);
	t.at[HEADER_BYTES] ^= 1;
	text_bad(&t, "the map has a wrong checksum");
}

static void test_length_bad(void **state)
{
	struct text t;
	size_t bytes;

	(void)state;
	text_make(&t);
	bytes = t.bytes;
	for (t.bytes = 0; t.bytes < bytes; t.bytes++)
		text_bad(&t, NONSENSE);
	t.bytes = bytes + 1;
	text_bad(&t, NONSENSE);
	t.bytes = bytes + ENTRY_BYTES;
	text_bad(&t, NONSENSE);
}

static void test_entry_bad(void **state)
{
	/* Of the second entry: index 5. */
	static const struct {
		size_t at;
		uint32_t value;
	} cases[] = {
		{ 0, 1 }, /* index: twice, less than before, behind the end */
		{ 0, 0 },
		{ 0, OBJECTS },
		{ 0, UINT32_MAX },
		{ 4, 0 }, /* generation */
		{ 4, GENERATION },
		{ 4, UINT32_MAX },
		{ 8, 0 }, /* seq */
		{ 8, 1 | S3_DISK_HOLE },
		{ 8, UINT32_MAX },
	};
	struct text t;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		text_make(&t);
		put32(&t, HEADER_BYTES + ENTRY_BYTES + cases[i].at, cases[i].value);
		text_sum(&t);
		text_bad(&t, NONSENSE);
	}
}

/* ---- what must be listed ---- */

static void tally_is(struct s3_disk_tally tally, uint32_t objects, uint32_t seq)
{
	assert_int_equal(tally.objects, objects);
	assert_int_equal(tally.seq, seq);
}

static void test_tally(void **state)
{
	const struct s3_disk_name none = { 0 }, old = { .generation = 6, .seq = 9 };
	const struct s3_disk_name three = { .generation = 7, .seq = 3 };
	const struct s3_disk_name hole = { .generation = 7, .seq = 5 | S3_DISK_HOLE };
	struct s3_disk_tally tally = { 0 };

	(void)state;
	s3_disk_tally_add(&tally, 7, none, three);
	tally_is(tally, 1, 3);
	/* In the place of one of before, of an index that has none of this generation. */
	s3_disk_tally_add(&tally, 7, old, hole);
	tally_is(tally, 2, 5);
	/* A newer one of the same index, and an older one. */
	s3_disk_tally_add(&tally, 7, three, (struct s3_disk_name){ .generation = 7, .seq = 8 });
	tally_is(tally, 2, 8);
	s3_disk_tally_add(&tally, 7, hole, three);
	tally_is(tally, 2, 8);
}

static void test_tally_has(void **state)
{
	const struct s3_disk_tally known = { .objects = 3, .seq = 9 };

	(void)state;
	assert_true(s3_disk_tally_has(&known, &known));
	assert_true(s3_disk_tally_has(&(struct s3_disk_tally){ 4, 9 }, &known));
	assert_true(s3_disk_tally_has(&(struct s3_disk_tally){ 3, 10 }, &known));
	assert_false(s3_disk_tally_has(&(struct s3_disk_tally){ 2, 10 }, &known));
	assert_false(s3_disk_tally_has(&(struct s3_disk_tally){ 4, 8 }, &known));
	/* Of an older manifest nothing is known. */
	assert_true(s3_disk_tally_has(&(struct s3_disk_tally){ 0 }, &(struct s3_disk_tally){ 0 }));
}

/* Names of objects without bytes are even, the others odd, and each is above the one before. */
static void test_seq(void **state)
{
	uint32_t seq = 0;

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		bool is_hole = i % 3 == 0 || i % 7 == 0;
		uint32_t next = s3_disk_seq_next(seq, is_hole);
		struct s3_disk_name name = { .generation = 1, .seq = next };

		assert_in_range(next, seq + 1, seq + 2);
		assert_int_equal(s3_disk_seq_fits(name), !is_hole);
		name.seq |= S3_DISK_HOLE;
		assert_int_equal(s3_disk_seq_fits(name), is_hole);
		seq = next;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_name),	   cmocka_unit_test(test_name_bad),
		cmocka_unit_test(test_hole),	   cmocka_unit_test(test_take),
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_header_bad), cmocka_unit_test(test_length_bad),
		cmocka_unit_test(test_entry_bad),  cmocka_unit_test(test_tally),
		cmocka_unit_test(test_tally_has),  cmocka_unit_test(test_seq),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
