/* cache store: what is printed of a store, for people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "test/unit/filters/cache_store_file.h"
#include "ublkctl/ctl_commands.h"

static char printed[4096];

/* A store whose origin has this name; block 1 is half dirty. */
static void make(const char *origin)
{
	struct cache_header header = { .generation = 7,
				       .instance = STORE_INSTANCE,
				       .origin_bytes = MIB(16),
				       .block_bytes = 65536,
				       .slot_nr = 200,
				       .found = "v1" };
	struct cache_page page = { .seq = 2, .entry = { { 1, 0xffff, 0xff } } };

	snprintf(header.origin, sizeof(header.origin), "%s", origin);
	assert_int_equal(ftruncate(store_file, 0), 0);
	store_put_header(&header, 0);
	store_put_header(&header, 1);
	store_put_page(&page, 0);
}

/* What the command prints, in printed. */
static void print(void)
{
	const struct ublkctl_args args = { .name = store_path };
	FILE *to = tmpfile(), *was = stdout;
	size_t bytes;

	assert_non_null(to);
	stdout = to;
	assert_int_equal(ublkctl_cache_store(&args), EXIT_DONE);
	stdout = was;
	rewind(to);
	bytes = fread(printed, 1, sizeof(printed) - 1, to);
	printed[bytes] = '\0';
	fclose(to);
}

static void test_a_line_for_each(void **state)
{
	static const char wanted[] = "origin: auto file, 16MiB\nits version: v1\n"
				     "32KiB clean, 32KiB dirty\n";

	(void)state;
	make("auto file");
	print();
	assert_memory_equal(printed, wanted, sizeof(wanted) - 1);
	assert_non_null(strstr(printed, "\nDIRTY FROM"));
	assert_null(strchr(printed, '\\'));
}

static void test_a_name_begins_no_line(void **state)
{
	(void)state;
	make("one\nits version: none");
	print();
	assert_int_equal(strncmp(printed, "origin: one\\x0aits version: none, ", 33), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_line_for_each),
		cmocka_unit_test(test_a_name_begins_no_line),
	};

	return cmocka_run_group_tests_name("ctl_store", tests, store_make_file, store_remove_file);
}
