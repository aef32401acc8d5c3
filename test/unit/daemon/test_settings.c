/* settings: what a configuration may say, and every way it can be wrong, as the user reads it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "daemon/settings/settings.h"
#include "host/cpus.h"
#include "test/rig/fake_backends.h"

#define DEVICE(name, rest) "- {name: " name ", backend: {type: mem, size: 1M}" rest "}\n"

static char dir[] = "/tmp/test_settings.XXXXXX";

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* Reads text as a file that is called f. Returns what settings_load did. */
static int load(struct settings *s, const char *text, char **ret_errors)
{
	struct config_errors e;
	char path[64];
	int ret;

	snprintf(path, sizeof(path), "%s/ublkd.yaml", dir);
	write_file(path, text);
	config_errors_init(&e, "f");
	ret = settings_load(s, path, &e);
	*ret_errors = config_errors_text(&e);
	config_errors_fini(&e);
	unlink(path);
	return ret;
}

static void good(struct settings *s, const char *text)
{
	char *errors;
	int ret = load(s, text, &errors);

	assert_string_equal(errors, "");
	assert_int_equal(ret, 0);
	free(errors);
}

static void bad(const char *text, const char *expected)
{
	struct settings s;
	char *errors;
	int ret = load(&s, text, &errors);

	assert_string_equal(errors, expected);
	assert_int_equal(ret, -EINVAL);
	free(errors);
	settings_free(&s);
}

/* The same for what `ublkctl add` sends. */
static int parse(struct settings *s, const char *text, char **ret_errors)
{
	struct config_errors e;
	int ret;

	config_errors_init(&e, "f");
	ret = settings_parse_devices(s, text, strlen(text), &e);
	*ret_errors = config_errors_text(&e);
	config_errors_fini(&e);
	return ret;
}

static void test_defaults(void **state)
{
	struct settings s;
	const struct device_settings *d;

	(void)state;
	good(&s, "devices:\n" DEVICE("a", ""));
	assert_true(s.daemon.reactors.is_auto);
	assert_string_equal(s.daemon.control, SETTINGS_CONTROL_DEFAULT);
	assert_int_equal(s.daemon.busy_poll_us, 0);
	assert_int_equal(s.daemon.stop_timeout_ns, 30 * NS_PER_SEC);
	assert_int_equal(s.daemon.open_timeout_ns, 10 * NS_PER_SEC);
	assert_int_equal(s.daemon.watchdog_ns, 10 * NS_PER_SEC);
	assert_int_equal(s.daemon.log_level, LOG_LEVEL_INFO);
	assert_int_equal(s.device_nr, 1);
	d = s.devices[0];
	assert_string_equal(d->options.name, "a");
	assert_int_equal(d->id, -1);
	assert_int_equal(d->options.queues, 1);
	assert_int_equal(d->options.depth, 128);
	assert_int_equal(d->options.block_bytes, 512);
	assert_int_equal(d->options.max_io_bytes, KIB(512));
	assert_false(d->options.read_only);
	assert_true(d->options.partition_scan);
	assert_ptr_equal(d->backend->ops, &fake_mem);
	assert_int_equal(((const struct fake_config *)d->backend->config)->size_bytes, MIB(1));
	settings_free(&s);
}

static void test_everything_said(void **state)
{
	struct settings s;
	const struct device_settings *d;

	(void)state;
	good(&s, "daemon:\n"
		 "  reactors: [0]\n"
		 "  busy_poll_us: 50\n"
		 "  control: /x/y.sock\n"
		 "  stop_timeout: 5s\n"
		 "  open_timeout: 20s\n"
		 "  watchdog: 0\n"
		 "  log_level: debug\n"
		 "devices:\n"
		 "  - name: scratch.1_A-z\n"
		 "    id: 3\n"
		 "    queues: 1\n"
		 "    depth: 4096\n"
		 "    block_size: 4096\n"
		 "    max_io: 32MiB\n"
		 "    read_only: yes\n"
		 "    partition_scan: off\n"
		 "    backend: {type: mem, size: 1GiB}\n");
	assert_int_equal(s.daemon.reactors.nr, 1);
	assert_int_equal(s.daemon.busy_poll_us, 50);
	assert_string_equal(s.daemon.control, "/x/y.sock");
	assert_int_equal(s.daemon.stop_timeout_ns, 5 * NS_PER_SEC);
	assert_int_equal(s.daemon.open_timeout_ns, 20 * NS_PER_SEC);
	assert_int_equal(s.daemon.watchdog_ns, 0);
	assert_int_equal(s.daemon.log_level, LOG_LEVEL_DEBUG);
	d = s.devices[0];
	assert_int_equal(d->id, 3);
	assert_int_equal(d->options.depth, 4096);
	assert_int_equal(d->options.block_bytes, 4096);
	assert_int_equal(d->options.max_io_bytes, MIB(32));
	assert_true(d->options.read_only);
	assert_false(d->options.partition_scan);
	settings_free(&s);
}

static void test_nothing_is_a_configuration(void **state)
{
	static const char *const texts[] = { "", "# nothing\n", "devices:\n", "devices: []\n",
					     "daemon:\ndevices:\n" };
	struct settings s;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		good(&s, texts[i]);
		assert_int_equal(s.device_nr, 0);
		assert_true(s.daemon.reactors.is_auto);
		settings_free(&s);
	}
}

static void test_null_backend_quoted_or_not(void **state)
{
	static const char *const types[] = { "null", "'null'", "\"null\"" };
	struct settings s;
	char text[128];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		snprintf(text, sizeof(text), "devices:\n- {name: a, backend: {type: %s}}\n",
			 types[i]);
		good(&s, text);
		assert_ptr_equal(s.devices[0]->backend->ops, &fake_null);
		settings_free(&s);
	}
}

static void test_id_zero_is_not_no_id(void **state)
{
	struct settings s;

	(void)state;
	good(&s, "devices:\n" DEVICE("a", ", id: 0") DEVICE("b", ", id: ~") DEVICE("c", ""));
	assert_int_equal(s.devices[0]->id, 0);
	assert_int_equal(s.devices[1]->id, -1);
	assert_int_equal(s.devices[2]->id, -1);
	settings_free(&s);
}

static void test_wrong_sections(void **state)
{
	(void)state;
	bad("devicez: []\n", "f:1:1: unknown key \"devicez\" (did you mean \"devices\"?)\n");
	bad("devices: {a: b}\n", "f:1:10: devices: expected a list (\"- name: ...\")\n");
	bad("daemon: [1]\n", "f:1:9: daemon: expected a map\n");
	bad("daemon: 7\n", "f:1:9: daemon: expected a map or a list, not a text\n");
	bad("devices:\n- 7\n", "f:2:3: expected a device: a map with name and backend\n");
	bad("- 7\n", "f:1:1: expected a map at the top, as in devices: ...\n");
}

static void test_wrong_daemon(void **state)
{
	(void)state;
	bad("daemon: {reactor: auto}\n",
	    "f:1:10: unknown key \"reactor\" (did you mean \"reactors\"?)\n");
	bad("daemon:\n  reactors: [0, 1000]\n",
	    "f:2:13: reactors: CPU 1000 is not one this machine can have\n");
	bad("daemon: {log_level: loud}\n",
	    "f:1:21: log_level: \"loud\" is not one of error, warn, info, debug\n");
	bad("daemon: {stop_timeout: 500ms}\n",
	    "f:1:24: stop_timeout: 500ms is below the minimum 1s\n");
	bad("daemon: {watchdog: 999ms}\n", "f:1:20: watchdog: less than 1s; 0 turns it off\n");
	bad("daemon: {busy_poll_us: 1000000}\n",
	    "f:1:24: busy_poll_us: 1000000 is above the maximum 100000\n");
	bad("daemon: {control: ''}\n", "f:1:19: control: must not be empty\n");
}

static void test_wrong_names(void **state)
{
	(void)state;
	bad("devices:\n- {backend: {type: null}}\n", "f:2:3: \"name\" is missing\n");
	bad("devices:\n" DEVICE("'a b'", ""),
	    "f:2:10: name: \"a b\" has other characters than letters, digits, '.', '_' and '-'\n");
	bad("devices:\n" DEVICE("ä", ""),
	    "f:2:10: name: \"ä\" has other characters than letters, digits, '.', '_' and '-'\n");
	bad("devices:\n" DEVICE("a2345678901234567890123456789012", ""),
	    "f:2:10: name: 32 bytes are above the maximum 31\n");
	bad("devices:\n" DEVICE("''", ""), "f:2:10: name: must not be empty\n");
	/* It becomes the name of files. */
	bad("devices:\n" DEVICE(".hid", ""),
	    "f:2:10: name: \".hid\" begins with a dot: begin it with a letter or a digit\n");
	bad("devices:\n" DEVICE("..", ""),
	    "f:2:10: name: \"..\" begins with a dot: begin it with a letter or a digit\n");
	bad("devices:\n" DEVICE("a/b", ""),
	    "f:2:10: name: \"a/b\" has other characters than letters, digits, '.', '_' and '-'\n");
	bad("devices:\n" DEVICE("\"a\\nb\"", ""), "f:2:10: name: \"a\\x0ab\" has other characters "
						  "than letters, digits, '.', '_' and '-'\n");
}

static void test_wrong_numbers(void **state)
{
	char expected[128];

	(void)state;
	bad("devices:\n" DEVICE("a", ", queues: 0"), "f:2:53: queues: 0 is below the minimum 1\n");
	snprintf(expected, sizeof(expected),
		 "f:2:53: queues: 4096 is more than one per CPU; this machine has %u\n",
		 cpu_possible_nr());
	bad("devices:\n" DEVICE("a", ", queues: 4096"), expected);
	bad("devices:\n" DEVICE("a", ", depth: 4097"),
	    "f:2:52: depth: 4097 is above the maximum 4096\n");
	bad("devices:\n" DEVICE("a", ", block_size: 1000"),
	    "f:2:57: block_size: 1000 is not a power of two (nearest: 512, 1KiB)\n");
	bad("devices:\n" DEVICE("a", ", block_size: 8k"),
	    "f:2:57: block_size: 8k is above the maximum 4KiB\n");
	bad("devices:\n" DEVICE("a", ", max_io: 5000"),
	    "f:2:53: max_io: 5000 is not a multiple of 4096\n");
	bad("devices:\n" DEVICE("a", ", max_io: 64MiB"),
	    "f:2:53: max_io: 64MiB is above the maximum 32MiB\n");
	bad("devices:\n" DEVICE("a", ", id: -1"), "f:2:49: id: -1 is below the minimum 0\n");
	bad("devices:\n" DEVICE("a", ", read_only: maybe"),
	    "f:2:56: read_only: \"maybe\" is neither true nor false\n");
	bad("devices:\n" DEVICE("a", ", qeues: 1"),
	    "f:2:45: unknown key \"qeues\" (did you mean \"queues\"?)\n");
}

static void test_wrong_backends(void **state)
{
	(void)state;
	bad("devices:\n- {name: a}\n", "f:2:3: \"backend\" is missing\n");
	bad("devices:\n- {name: a, backend: mem}\n",
	    "f:2:22: backend: expected a map or a list, not a text\n");
	bad("devices:\n- {name: a, backend: [mem]}\n",
	    "f:2:22: backend: expected a map, for example {type: mem, size: 1GiB}\n");
	bad("devices:\n- {name: a, backend: {size: 1M}}\n",
	    "f:2:22: backend: \"type\" is missing\n");
	bad("devices:\n- {name: a, backend: {type: mme, size: 1M}}\n",
	    "f:2:29: type: \"mme\" is not one of null, mem, file (did you mean \"mem\"?)\n");
	bad("devices:\n- {name: a, backend: {type: [mem]}}\n",
	    "f:2:29: type: expected the name of a backend\n");
	bad("devices:\n- {name: a, backend: {type: mem}}\n", "f:2:22: \"size\" is missing\n");
	bad("devices:\n- {name: a, backend: {type: mem, size: 1M, sise: 2M}}\n",
	    "f:2:44: unknown key \"sise\" (did you mean \"size\"?)\n");
}

static void test_duplicates(void **state)
{
	(void)state;
	bad("devices:\n" DEVICE("a", "") DEVICE("b", "") DEVICE("a", ""),
	    "f:4:10: name: \"a\" is taken already (line 2)\n");
	bad("devices:\n" DEVICE("a", ", id: 1") DEVICE("b", ", id: 1"),
	    "f:3:49: id: 1 is taken already by device \"a\" (line 2)\n");
}

#define FILE_DEVICE(name) "- {name: " name ", backend: {type: file, path: '%s/%s'}}\n"

static void overlap(const char *first, const char *second, bool expected)
{
	char text[512], message[512];
	struct settings s;

	snprintf(text, sizeof(text), "devices:\n" FILE_DEVICE("a") FILE_DEVICE("b"), dir, first,
		 dir, second);
	if (!expected) {
		good(&s, text);
		settings_free(&s);
		return;
	}
	snprintf(message, sizeof(message),
		 "f:3:41: path: \"%s/%s\" is the file of device \"a\" (line 2) too; they would "
		 "destroy each other's data\n",
		 dir, second);
	bad(text, message);
}

static void test_overlapping_files(void **state)
{
	char path[64], other[64];

	(void)state;
	snprintf(path, sizeof(path), "%s/disk", dir);
	snprintf(other, sizeof(other), "%s/link", dir);
	write_file(path, "x");
	overlap("disk", "disk", true);
	overlap("disk", "./disk", true);
	overlap("disk", "other", false);
	assert_int_equal(symlink(path, other), 0);
	overlap("disk", "link", true);
	unlink(other);
	assert_int_equal(link(path, other), 0);
	overlap("disk", "link", true);
	unlink(other);
	unlink(path);
	/* Not there yet: the names decide. */
	overlap("disk", "disk", true);
	overlap("disk", ".//disk", true);
	overlap("disk", "disk2", false);
}

/* Two nodes of one device, as udev makes them under many names. */
static void test_overlapping_block_devices(void **state)
{
	char path[64], other[64];

	(void)state;
	snprintf(path, sizeof(path), "%s/node", dir);
	snprintf(other, sizeof(other), "%s/other", dir);
	if (mknod(path, S_IFBLK | 0600, makedev(7, 77)) < 0)
		skip(); /* only root may, and not everywhere */
	assert_int_equal(mknod(other, S_IFBLK | 0600, makedev(7, 77)), 0);
	overlap("node", "other", true);
	unlink(other);
	assert_int_equal(mknod(other, S_IFBLK | 0600, makedev(7, 78)), 0);
	overlap("node", "other", false);
	unlink(other);
	unlink(path);
}

/* Nobody writes: as many as like may read. */
static void test_file_shared_by_readers(void **state)
{
	struct settings s;

	(void)state;
	good(&s, "devices:\n"
		 "- {name: a, read_only: true, backend: {type: file, path: /x}}\n"
		 "- {name: b, read_only: true, backend: {type: file, path: /x}}\n");
	settings_free(&s);
	bad("devices:\n"
	    "- {name: a, read_only: true, backend: {type: file, path: /x}}\n"
	    "- {name: b, backend: {type: file, path: /x}}\n",
	    "f:3:41: path: \"/x\" is the file of device \"a\" (line 2) too; they would destroy "
	    "each other's data\n");
}

static void test_all_errors_at_once(void **state)
{
	(void)state;
	bad("daemon: {log_level: x}\n"
	    "devices:\n"
	    "  - name: a!\n"
	    "    depth: 0\n"
	    "    backend: {type: mem, size: 12}\n"
	    "  - name: b\n"
	    "    id: 9999999\n"
	    "    backend: {type: fil}\n"
	    "  - name: b\n"
	    "    backend: {type: null, size: 1}\n"
	    "extra: 1\n",
	    "f:1:21: log_level: \"x\" is not one of error, warn, info, debug\n"
	    "f:3:11: name: \"a!\" has other characters than letters, digits, '.', '_' and '-'\n"
	    "f:4:12: depth: 0 is below the minimum 1\n"
	    "f:5:32: size: 12 is below the minimum 4KiB\n"
	    "f:7:9: id: 9999999 is above the maximum 1048575\n"
	    "f:8:21: type: \"fil\" is not one of null, mem, file (did you mean \"file\"?)\n"
	    "f:9:11: name: \"b\" is taken already (line 6)\n"
	    "f:10:27: unknown key \"size\"\n"
	    "f:11:1: unknown key \"extra\"\n");
}

static void test_too_many_devices(void **state)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *file = open_memstream(&text, &bytes);

	(void)state;
	fputs("devices:\n", file);
	for (int i = 0; i <= SETTINGS_DEVICES_MAX; i++)
		fprintf(file, "- {name: d%d, backend: {type: null}}\n", i);
	fclose(file);
	bad(text, "f:1026:3: more than 1024 devices\n");
	free(text);
}

static void test_broken_file(void **state)
{
	struct settings s;
	struct config_errors e;
	char *text;

	(void)state;
	config_errors_init(&e, "nowhere.yaml");
	assert_int_equal(settings_load(&s, "/nonexistent/nowhere.yaml", &e), -ENOENT);
	text = config_errors_text(&e);
	assert_non_null(strstr(text, "nowhere.yaml"));
	free(text);
	config_errors_fini(&e);
	settings_free(&s);
}

static void test_devices_to_add(void **state)
{
	static const char *const texts[] = { "name: a\nbackend: {type: null}\n",
					     "- {name: a, backend: {type: null}}\n",
					     "devices:\n- {name: a, backend: {type: null}}\n" };
	struct settings s;
	char *errors;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_int_equal(parse(&s, texts[i], &errors), 0);
		assert_string_equal(errors, "");
		free(errors);
		assert_int_equal(s.device_nr, 1);
		assert_string_equal(s.devices[0]->options.name, "a");
		settings_free(&s);
	}
}

static void test_wrong_devices_to_add(void **state)
{
	static const char *const texts[][2] = {
		{ "7", "f:1:1: expected a device: a map with name and backend\n" },
		{ "", "f:1:1: expected a device: a map with name and backend\n" },
		{ "daemon: {}\ndevices: []\n", "f:1:1: unknown key \"daemon\"\n" },
		{ "- [a]\n", "f:1:3: expected a device: a map with name and backend\n" },
		{ "name: a\nname: b\nbackend: {type: null}\n",
		  "f:2:1: key \"name\" is given twice (first on line 1)\n" },
	};
	struct settings s;
	char *errors;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_int_equal(parse(&s, texts[i][0], &errors), -EINVAL);
		assert_string_equal(errors, texts[i][1]);
		free(errors);
		settings_free(&s);
	}
}

static void equal(const char *first, const char *second, bool expected)
{
	struct settings a, b;
	char text[256];

	snprintf(text, sizeof(text), "devices:\n- {name: a, %s}\n", first);
	good(&a, text);
	snprintf(text, sizeof(text), "devices:\n- {name: a, %s}\n", second);
	good(&b, text);
	assert_int_equal(device_settings_equal(a.devices[0], b.devices[0]), expected);
	settings_free(&a);
	settings_free(&b);
}

static void test_equal_devices(void **state)
{
	(void)state;
	equal("backend: {type: mem, size: 1M}", "depth: 128, backend: {size: 1024k, type: 'mem'}",
	      true);
	equal("backend: {type: mem, size: 1M}", "backend: {type: mem, size: 2M}", false);
	equal("backend: {type: null}", "backend: {type: mem, size: 2M}", false);
	equal("backend: {type: null}", "id: 0, backend: {type: null}", false);
	equal("backend: {type: null}", "depth: 2, backend: {type: null}", false);
	equal("backend: {type: file, path: /a}", "backend: {type: file, path: /b}", false);
}

static void test_equal_daemons(void **state)
{
	struct settings a, b;

	(void)state;
	good(&a, "daemon: {log_level: debug}\n");
	good(&b, "daemon: {log_level: info}\n");
	assert_true(daemon_settings_equal(&a.daemon, &b.daemon));
	settings_free(&b);
	good(&b, "daemon: {reactors: [0]}\n");
	assert_false(daemon_settings_equal(&a.daemon, &b.daemon));
	settings_free(&b);
	good(&b, "daemon: {busy_poll_us: 50}\n");
	assert_false(daemon_settings_equal(&a.daemon, &b.daemon));
	settings_free(&a);
	settings_free(&b);
}

/* Taken devices live on when the settings, and the document they were read from, are gone. */
static void test_taken_devices_outlive_settings(void **state)
{
	struct device_settings *d;
	struct settings s;
	size_t idx;

	(void)state;
	good(&s, "devices:\n" DEVICE("a", "") DEVICE("b", ""));
	assert_non_null(settings_find(&s, "b", &idx));
	assert_int_equal(idx, 1);
	d = settings_take(&s, idx);
	assert_null(settings_find(&s, "b", NULL));
	settings_free(&s);
	assert_string_equal(d->options.name, "b");
	assert_int_equal(d->options.backend->kind, YAML_MAP);
	device_settings_free(d);
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_everything_said),
		cmocka_unit_test(test_nothing_is_a_configuration),
		cmocka_unit_test(test_null_backend_quoted_or_not),
		cmocka_unit_test(test_id_zero_is_not_no_id),
		cmocka_unit_test(test_wrong_sections),
		cmocka_unit_test(test_wrong_daemon),
		cmocka_unit_test(test_wrong_names),
		cmocka_unit_test(test_wrong_numbers),
		cmocka_unit_test(test_wrong_backends),
		cmocka_unit_test(test_duplicates),
		cmocka_unit_test(test_overlapping_files),
		cmocka_unit_test(test_overlapping_block_devices),
		cmocka_unit_test(test_file_shared_by_readers),
		cmocka_unit_test(test_all_errors_at_once),
		cmocka_unit_test(test_too_many_devices),
		cmocka_unit_test(test_broken_file),
		cmocka_unit_test(test_devices_to_add),
		cmocka_unit_test(test_wrong_devices_to_add),
		cmocka_unit_test(test_equal_devices),
		cmocka_unit_test(test_equal_daemons),
		cmocka_unit_test(test_taken_devices_outlive_settings),
	};

	return cmocka_run_group_tests_name("settings", tests, setup, teardown);
}
