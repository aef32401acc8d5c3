/* snippet and node_wait: files that keep a device, and waiting for its node. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "ublkctl/node_wait.h"
#include "ublkctl/snippet.h"

static char top[] = "/tmp/test_snippet.XXXXXX", folder[64];

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void write_file(const char *name, const char *text)
{
	FILE *file = fopen(path_of(name), "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void check_file(const char *name, const char *expected)
{
	FILE *file = fopen(path_of(name), "r");
	char text[256] = "";

	assert_non_null(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	assert_string_equal(text, expected);
}

/* What is in the folder, hidden files too. */
static unsigned file_nr(void)
{
	char command[128];
	unsigned nr = 0;
	FILE *list;

	snprintf(command, sizeof(command), "ls -A %s | wc -l", folder);
	list = popen(command, "r");
	assert_int_equal(fscanf(list, "%u", &nr), 1);
	pclose(list);
	return nr;
}

static int make_top(void **state)
{
	(void)state;
	strcpy(top + strlen(top) - 6, "XXXXXX");
	if (!mkdtemp(top))
		return -1;
	snprintf(folder, sizeof(folder), "%s/devices.d", top);
	return 0;
}

static int remove_top(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command);
}

static void test_keep(void **state)
{
	mode_t before = umask(077);
	struct snippet s;
	struct stat st;

	(void)state;
	assert_int_equal(snippet_begin(&s, folder, "a", "name: a\n"), 0);
	/* Nobody reads it yet. */
	assert_false(snippet_exists(folder, "a"));
	assert_int_equal(file_nr(), 1);
	assert_int_equal(access(path_of("a.yaml"), F_OK), -1);
	assert_int_equal(snippet_keep(&s), 0);
	umask(before);
	assert_int_equal(file_nr(), 1);
	assert_string_equal(s.path, path_of("a.yaml"));
	check_file("a.yaml", "name: a\n");
	assert_int_equal(stat(path_of("a.yaml"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_true(snippet_exists(folder, "a"));
}

static void test_drop(void **state)
{
	struct snippet s;

	(void)state;
	assert_int_equal(snippet_begin(&s, folder, "a", "name: a\n"), 0);
	snippet_drop(&s);
	assert_int_equal(file_nr(), 0);
}

static void test_never_replaced(void **state)
{
	struct snippet s;

	(void)state;
	mkdir(folder, 0755);
	write_file("a.yaml", "mine\n");
	assert_int_equal(snippet_begin(&s, folder, "a", "x"), -EEXIST);
	check_file("a.yaml", "mine\n");
	assert_int_equal(file_nr(), 1);
	/* Also when it comes in between. */
	assert_int_equal(snippet_begin(&s, folder, "b", "x"), 0);
	write_file("b.yaml", "mine\n");
	assert_int_equal(snippet_keep(&s), -EEXIST);
	check_file("b.yaml", "mine\n");
	assert_int_equal(file_nr(), 2);
}

static void test_no_folder(void **state)
{
	struct snippet s;

	(void)state;
	assert_int_equal(snippet_begin(&s, "/proc/none/devices.d", "a", "x"), -ENOENT);
	assert_int_equal(snippet_remove("/proc/none", "a"), -ENOENT);
}

static void check_removed(const char *text, int expected)
{
	write_file("a.yaml", text);
	assert_int_equal(snippet_remove(folder, "a"), expected);
	assert_int_equal(snippet_exists(folder, "a"), expected != 0);
}

static void test_remove(void **state)
{
	(void)state;
	mkdir(folder, 0755);
	check_removed("name: a\n", 0);
	check_removed("# x\n\"name\": \"a\"\nbackend: {}\n", 0);
	check_removed("- name: a\n", 0);
	check_removed("devices: [{name: a}]\n", 0);
	check_removed("- name: a\n- name: b\n", -EBUSY);
	check_removed("name: b\n", -EBUSY);
	check_removed("name: [a]\n", -EBUSY);
	check_removed("a: [\n", -EBUSY);
	check_removed("", -EBUSY);
	check_removed("[]", -EBUSY);
	unlink(path_of("a.yaml"));
	assert_int_equal(snippet_remove(folder, "a"), -ENOENT);
}

static void check_wait(const char *path, const char *expected)
{
	char error[NODE_WAIT_ERROR_BYTES];

	assert_int_equal(node_wait(path, folder, 0.05, error), -ETIMEDOUT);
	if (!strstr(error, expected))
		fail_msg("%s", error);
}

static void test_node_missing(void **state)
{
	struct timespec start, end;

	(void)state;
	clock_gettime(CLOCK_MONOTONIC, &start);
	check_wait("/proc/none", "No such file or directory: is devtmpfs mounted");
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_true((end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000 >=
		    45);
	check_wait("/dev/null", "not a block device");
	check_wait("/tmp", "not a block device");
}

/* Any number will do: it is never opened before udev knows it. */
static void test_node_udev(void **state)
{
	char node[128], command[300], error[NODE_WAIT_ERROR_BYTES];

	(void)state;
	snprintf(node, sizeof(node), "%s/node", top);
	if (mknod(node, S_IFBLK | 0600, makedev(259, 1048575)) < 0) {
		print_message("no block device can be made here\n");
		skip();
	}
	snprintf(command, sizeof(command), "mkdir -p %s/data; touch %s/control", folder, folder);
	assert_int_equal(system(command), 0);
	check_wait(node, "udev has not finished");
	write_file("data/b259:1048575", "");
	/* There is no such device. */
	assert_int_equal(node_wait(node, folder, 0, error), -ETIMEDOUT);
	assert_null(strstr(error, "udev"));
	unlink(path_of("data/b259:1048575"));
	unlink(path_of("control"));
	assert_int_equal(node_wait(node, folder, 0, error), -ETIMEDOUT);
	assert_null(strstr(error, "udev"));
}

#define SNIPPET_TEST(test) cmocka_unit_test_setup_teardown(test, make_top, remove_top)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SNIPPET_TEST(test_keep),	   SNIPPET_TEST(test_drop),
		SNIPPET_TEST(test_never_replaced), SNIPPET_TEST(test_no_folder),
		SNIPPET_TEST(test_remove),	   SNIPPET_TEST(test_node_missing),
		SNIPPET_TEST(test_node_udev),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
