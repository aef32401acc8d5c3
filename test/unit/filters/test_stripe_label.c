/* Labels of a stripe: what is written is read, and what becomes of each mixture (stripe_label.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/util.h"
#include "filters/stripe/stripe_label.h"

#define CHUNK_BYTES 65536u

static char words[256];

static struct stripe_label label(enum stripe_label_kind kind, uint64_t set, uint32_t nr,
				 uint32_t idx)
{
	return (struct stripe_label){ .kind = kind,
				      .set = { set, ~set },
				      .chunk_bytes = CHUNK_BYTES,
				      .child_nr = nr,
				      .idx = idx };
}

/* One as it lies there. */
static struct stripe_label written(enum stripe_label_kind kind, uint64_t set, uint32_t nr,
				   uint32_t idx)
{
	const struct stripe_label l = label(kind, set, nr, idx);
	static uint8_t block[STRIPE_LABEL_BYTES];
	struct stripe_label found;

	stripe_label_write(&l, block);
	stripe_label_parse(&found, block);
	return found;
}

static struct stripe_label ready(uint64_t set, uint32_t nr, uint32_t idx)
{
	return written(STRIPE_LABEL_READY, set, nr, idx);
}

static struct stripe_label of_kind(enum stripe_label_kind kind)
{
	return (struct stripe_label){ .kind = kind };
}

static enum stripe_verdict judge(struct stripe_label a, struct stripe_label b,
				 struct stripe_label c)
{
	const struct stripe_label labels[] = { a, b, c };

	words[0] = '\0';
	return stripe_labels_judge(labels, 3, CHUNK_BYTES, words, sizeof(words));
}

static void expect_refused(enum stripe_verdict verdict, const char *text)
{
	assert_int_equal(verdict, STRIPE_REFUSED);
	if (!strstr(words, text))
		fail_msg("\"%s\" does not say \"%s\"", words, text);
}

static void test_what_is_written_is_read(void **state)
{
	const struct stripe_label l = label(STRIPE_LABEL_NEW, 77, 32, 31);
	struct stripe_label found = written(STRIPE_LABEL_NEW, 77, 32, 31);

	(void)state;
	assert_int_equal(found.kind, l.kind);
	assert_memory_equal(found.set, l.set, sizeof(l.set));
	assert_int_equal(found.chunk_bytes, l.chunk_bytes);
	assert_int_equal(found.child_nr, l.child_nr);
	assert_int_equal(found.idx, l.idx);
	assert_int_equal(ready(77, 32, 31).kind, STRIPE_LABEL_READY);
}

static void test_blocks_without_one(void **state)
{
	static uint8_t block[STRIPE_LABEL_BYTES];
	struct stripe_label found;

	(void)state;
	memset(block, 0, sizeof(block));
	stripe_label_parse(&found, block);
	assert_int_equal(found.kind, STRIPE_LABEL_NONE);
	block[STRIPE_LABEL_BYTES - 1] = 1;
	stripe_label_parse(&found, block);
	assert_int_equal(found.kind, STRIPE_LABEL_FOREIGN);
}

/* Each bit of what it says, but for its magic, which makes it another thing. */
static void test_a_damaged_one(void **state)
{
	const struct stripe_label l = label(STRIPE_LABEL_READY, 77, 3, 1);
	static uint8_t block[STRIPE_LABEL_BYTES];
	struct stripe_label found;

	(void)state;
	for (unsigned bit = 64; bit < 52 * 8; bit++) {
		stripe_label_write(&l, block);
		block[bit / 8] ^= (uint8_t)(1u << bit % 8);
		stripe_label_parse(&found, block);
		assert_int_equal(found.kind, STRIPE_LABEL_DAMAGED);
	}
}

static void test_a_set_is_made(void **state)
{
	const struct stripe_label none = of_kind(STRIPE_LABEL_NONE);
	const struct stripe_label new = written(STRIPE_LABEL_NEW, 7, 3, 0);

	(void)state;
	assert_int_equal(judge(none, none, none), STRIPE_MAKE);
	/* A cut came in the first round. */
	assert_int_equal(judge(new, none, none), STRIPE_MAKE);
	assert_int_equal(judge(none, none, written(STRIPE_LABEL_NEW, 8, 3, 2)), STRIPE_MAKE);
	/* In the second. */
	assert_int_equal(judge(ready(7, 3, 0), written(STRIPE_LABEL_NEW, 7, 3, 1),
			       written(STRIPE_LABEL_NEW, 7, 3, 2)),
			 STRIPE_FINISH);
	assert_int_equal(judge(ready(7, 3, 0), ready(7, 3, 1), ready(7, 3, 2)), STRIPE_IS_RIGHT);
}

static void test_what_is_refused(void **state)
{
	const struct stripe_label a = ready(7, 3, 0), b = ready(7, 3, 1), c = ready(7, 3, 2);
	struct stripe_label other = ready(7, 3, 2);

	(void)state;
	expect_refused(judge(b, a, c), "give them as 2, 1, 3");
	expect_refused(judge(b, c, a), "give them as 3, 1, 2");
	expect_refused(judge(a, b, b), "copies of one: give it the one that was at place 3");
	expect_refused(judge(a, of_kind(STRIPE_LABEL_NONE), c), "backend 2 of the stripe is empty");
	expect_refused(judge(a, b, of_kind(STRIPE_LABEL_FOREIGN)),
		       "backend 3 of the stripe begins");
	expect_refused(judge(a, of_kind(STRIPE_LABEL_DAMAGED), c), "backend 2 of the stripe has a");
	expect_refused(judge(a, b, ready(8, 3, 2)), "backends 1 and 3 belong to different");
	expect_refused(judge(ready(7, 4, 0), ready(7, 4, 1), ready(7, 4, 2)), "made of 4 backends");
	other.chunk_bytes = MIB(1);
	expect_refused(judge(a, b, other), "`chunk: 1048576`");
	/* One whose label was never written is no reason to write over others. */
	expect_refused(judge(of_kind(STRIPE_LABEL_FOREIGN), of_kind(STRIPE_LABEL_NONE),
			     of_kind(STRIPE_LABEL_NONE)),
		       "backend 1 of the stripe begins");
	expect_refused(judge(written(STRIPE_LABEL_NEW, 7, 3, 1), a, c), "give them as 2, 1, 3");
}

/* One too many is empty, or has other data: it is the number that is wrong. */
static void test_one_too_many(void **state)
{
	const struct stripe_label a = ready(7, 2, 0), b = ready(7, 2, 1);
	const enum stripe_label_kind others[] = { STRIPE_LABEL_NONE, STRIPE_LABEL_FOREIGN,
						  STRIPE_LABEL_DAMAGED };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(others); i++) {
		expect_refused(judge(a, b, of_kind(others[i])), "made of 2 backends, and has 3");
		expect_refused(judge(of_kind(others[i]), a, b), "made of 2 backends, and has 3");
	}
	/* Where they do not agree, they are of different stripes. */
	expect_refused(judge(ready(7, 3, 0), ready(7, 3, 1), ready(8, 2, 0)),
		       "backends 1 and 3 belong to different");
}

/* Without `verify`: the words of a refusal, or "". */
static const char *unwanted(struct stripe_label a, struct stripe_label b, struct stripe_label c)
{
	const struct stripe_label labels[] = { a, b, c };
	bool is_unwanted;

	words[0] = '\0';
	is_unwanted = stripe_labels_unwanted(labels, 3, words, sizeof(words));
	assert_int_equal(is_unwanted, words[0] != '\0');
	return words;
}

static void test_labels_without_verify(void **state)
{
	const struct stripe_label a = ready(7, 3, 0), b = ready(7, 3, 1), c = ready(7, 3, 2);
	const struct stripe_label none = of_kind(STRIPE_LABEL_NONE),
				  data = of_kind(STRIPE_LABEL_FOREIGN),
				  damaged = of_kind(STRIPE_LABEL_DAMAGED),
				  unread = of_kind(STRIPE_LABEL_UNREAD),
				  new = written(STRIPE_LABEL_NEW, 7, 3, 1);

	(void)state;
	assert_non_null(strstr(unwanted(a, b, c), "set verify: true"));
	assert_non_null(strstr(unwanted(c, a, b), "set verify: true"));
	assert_non_null(strstr(unwanted(none, a, b), "set verify: true"));
	assert_non_null(strstr(unwanted(a, data, ready(8, 2, 1)), "set verify: true"));
	assert_non_null(strstr(unwanted(a, damaged, none), "set verify: true"));
	assert_non_null(strstr(unwanted(damaged, damaged, none), "set verify: true"));
	assert_non_null(strstr(unwanted(a, new, new), "set verify: true"));
	assert_non_null(strstr(unwanted(none, b, unread), "backend 3 of the stripe cannot be"));
	/* The others were replaced, or the data of the device begin with a label. */
	assert_non_null(strstr(unwanted(a, none, none), "one backend alone has the label"));
	assert_non_null(strstr(unwanted(data, data, c), "set verify: true"));
	assert_non_null(strstr(unwanted(none, damaged, none), "verify: ignore"));
	assert_string_equal(unwanted(none, data, none), "");
	assert_string_equal(unwanted(unread, unread, data), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_written_is_read),
		cmocka_unit_test(test_blocks_without_one),
		cmocka_unit_test(test_a_damaged_one),
		cmocka_unit_test(test_a_set_is_made),
		cmocka_unit_test(test_what_is_refused),
		cmocka_unit_test(test_one_too_many),
		cmocka_unit_test(test_labels_without_verify),
	};

	return cmocka_run_group_tests_name("stripe_label", tests, NULL, NULL);
}
