/* state: notes written, read, removed; and all that a folder may hold that is no good note. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "daemon/devices/state.h"
#include "test/rig/fake_backends.h"

#define GOOD_DEVICE "{\"name\": \"a\", \"backend\": {\"type\": \"mem\", \"size\": \"1M\"}}"

static char folder[64];
static struct state notes;

static const char *path_of(const char *file)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	return path;
}

static void put(const char *file, const char *text)
{
	FILE *f = fopen(path_of(file), "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* The caller frees it. */
static char *get(const char *file)
{
	FILE *f = fopen(path_of(file), "r");
	char *text = calloc(1, 65536);

	assert_non_null(f);
	assert_true(fread(text, 1, 65535, f) > 0);
	fclose(f);
	return text;
}

static bool exists(const char *file)
{
	return access(path_of(file), F_OK) == 0;
}

static struct state_record record_of(const char *name)
{
	struct state_record record = { .phase = STATE_SERVING,
				       .id = 5,
				       .from_file = true,
				       .size_bytes = 1ull << 40,
				       .identity = "file 8:1:77 \"born\"" };
	struct config_errors e;
	struct settings s;
	char text[128];

	snprintf(text, sizeof(text), "{name: %s, id: 9, backend: {type: mem, size: 1M}}", name);
	config_errors_init(&e, "f");
	assert_int_equal(settings_parse_devices(&s, text, strlen(text), &e), 0);
	config_errors_fini(&e);
	snprintf(record.name, sizeof(record.name), "%s", name);
	record.settings = settings_take(&s, 0);
	settings_free(&s);
	return record;
}

static int write_one(struct state_record record)
{
	int ret = state_write(&notes, &record);

	device_settings_free(record.settings);
	return ret;
}

static struct state_record *load(size_t nr, size_t unreadable_nr)
{
	struct state_record *records = NULL;
	size_t found_nr = 99, found_unreadable_nr = 99;

	assert_int_equal(state_load(&notes, &records, &found_nr, &found_unreadable_nr), 0);
	assert_int_equal(found_nr, nr);
	assert_int_equal(found_unreadable_nr, unreadable_nr);
	return records;
}

/* There is exactly one note, of device a: the one of write_one(record_of("a")). */
static void check_a(void)
{
	struct state_record *r = load(1, 0), same = record_of("a");

	assert_string_equal(r->name, "a");
	assert_int_equal(r->phase, STATE_SERVING);
	assert_int_equal(r->id, 5);
	assert_true(r->from_file);
	assert_int_equal(r->size_bytes, 1ull << 40);
	assert_string_equal(r->identity, "file 8:1:77 \"born\"");
	assert_true(device_settings_equal(r->settings, same.settings));
	device_settings_free(same.settings);
	state_free(r, 1);
}

static void test_round_trip(void **state)
{
	struct state_record *r, wanted = record_of("a");

	(void)state;
	free(load(0, 0));
	assert_int_equal(write_one(wanted), 0);
	assert_false(exists("a.json.new"));
	check_a();
	assert_int_equal(state_check(&notes, "a"), 0);
	assert_int_equal(state_check(&notes, "b"), 0);
	r = load(1, 0);
	device_settings_free(state_take(r));
	assert_null(r->settings);
	state_free(r, 1);
	state_remove(&notes, "a");
	free(load(0, 0));
	state_remove(&notes, "a");
}

static void test_every_phase(void **state)
{
	struct state_record record, *r;

	(void)state;
	for (int phase = STATE_ADDING; phase <= STATE_RECOVERING; phase++) {
		record = record_of("a");
		record.phase = (enum state_phase)phase;
		record.id = phase == STATE_ADDING ? -1 : 1 << 19;
		record.from_file = false;
		assert_int_equal(write_one(record), 0);
		r = load(1, 0);
		assert_int_equal(r->phase, phase);
		assert_int_equal(r->id, record.id);
		assert_false(r->from_file);
		state_free(r, 1);
	}
}

static void test_longest_name(void **state)
{
	struct state_record *r;
	char name[SETTINGS_NAME_MAX + 1];

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(write_one(record_of(name)), 0);
	r = load(1, 0);
	assert_string_equal(r->name, name);
	state_free(r, 1);
	state_remove(&notes, name);
	free(load(0, 0));
}

/* Names that the configuration allows and a file system might take for something else. */
static void test_odd_names(void **state)
{
	static const char *const names[] = { "a.json", "a.json.new", "-", "a..b", "_" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_int_equal(write_one(record_of(names[i])), 0);
	state_free(load(ARRAY_SIZE(names), 0), ARRAY_SIZE(names));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		state_remove(&notes, names[i]);
	assert_int_equal(rmdir(folder), 0);
	assert_int_equal(mkdir(folder, 0700), 0);
}

static void test_rights(void **state)
{
	char path[128], words[PATH_WORDS_BYTES];
	struct state other = { 0 };
	struct stat st;
	mode_t mask = umask(0);

	(void)state;
	assert_int_equal(write_one(record_of("a")), 0);
	assert_int_equal(stat(path_of("a.json"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	snprintf(path, sizeof(path), "%s/new", folder);
	assert_int_equal(state_open(&other, path, words), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	state_close(&other);
	state_close(&other);
	umask(mask);
	rmdir(path);
}

/* A writer was cut short: what it left is not read, and does not disturb the next. */
static void test_a_new_one_left_over(void **state)
{
	(void)state;
	assert_int_equal(write_one(record_of("a")), 0);
	put("a.json.new", "{\"version\": 1, half a no");
	put("b.json.new", GOOD_DEVICE);
	check_a();
	assert_int_equal(write_one(record_of("a")), 0);
	assert_false(exists("a.json.new"));
	assert_true(exists("b.json.new"));
	put("a.json.new", "");
	put("json.new", "no note's name");
	state_clean(&notes);
	assert_false(exists("a.json.new") || exists("b.json.new"));
	assert_true(exists("json.new"));
	check_a();
}

/* The whole file or the old one, at every length at which the disk may be full. */
static void test_disk_full(void **state)
{
	struct rlimit unlimited, limit;
	struct state_record bigger;
	char *before, *after;

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
	assert_int_equal(write_one(record_of("a")), 0);
	before = get("a.json");
	limit = unlimited;
	for (limit.rlim_cur = 0; limit.rlim_cur < strlen(before); limit.rlim_cur += 37) {
		bigger = record_of("a");
		bigger.id = 1000;
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		assert_int_equal(write_one(bigger), -EFBIG);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
		assert_false(exists("a.json.new"));
		after = get("a.json");
		assert_string_equal(after, before);
		free(after);
	}
	free(before);
	check_a();
}

static void test_no_folder(void **state)
{
	struct state gone = { .fd = -1, .path = "/tmp/test_state.none" };
	struct state_record record = record_of("a"), *records;
	size_t nr, unreadable_nr;
	char words[PATH_WORDS_BYTES];

	(void)state;
	assert_int_equal(state_write(&gone, &record), -EBADF);
	device_settings_free(record.settings);
	assert_int_equal(state_load(&gone, &records, &nr, &unreadable_nr), -EBADF);
	state_clean(&gone);
	put("file", "");
	assert_int_equal(state_open(&gone, path_of("file"), words), -ENOTDIR);
	assert_int_equal(state_open(&gone, path_of("file/below"), words), -ENOTDIR);
}

static void test_no_rights(void **state)
{
	uid_t uid = geteuid();

	(void)state;
	assert_int_equal(write_one(record_of("a")), 0);
	assert_int_equal(chmod(folder, 0555), 0);
	if (uid == 0) /* who may do all */
		assert_int_equal(seteuid(65534), 0);
	assert_int_equal(write_one(record_of("b")), -EACCES);
	state_remove(&notes, "a"); /* told only */
	assert_int_equal(seteuid(uid), 0);
	assert_int_equal(chmod(folder, 0700), 0);
	check_a();
}

/* The file is counted as unreadable and is afterwards what it was. */
static void refused(const char *file, const char *text)
{
	char device[8];
	char *after;

	put(file, text);
	free(load(0, 1));
	snprintf(device, sizeof(device), "%.*s", (int)strcspn(file, "."), file);
	assert_int_equal(state_check(&notes, device), -EEXIST);
	after = get(file);
	assert_string_equal(after, text);
	free(after);
	assert_int_equal(unlink(path_of(file)), 0);
}

static void with(const char *head, const char *device)
{
	char *text = NULL;

	assert_true(asprintf(&text, "{%s, \"device\": %s}", head, device) > 0);
	refused("a.json", text);
	free(text);
}

#define REST                                                                                       \
	", \"phase\": \"serving\", \"id\": 5, \"from_file\": true, \"size_bytes\": 4096, "         \
	"\"identity\": \"x\""

static void test_the_texts_of_these_tests(void **state)
{
	(void)state;
	put("a.json", "{\"version\": 1, \"name\": \"a\"" REST ", \"device\": " GOOD_DEVICE "}");
	state_free(load(1, 0), 1);
}

static void test_other_versions(void **state)
{
	(void)state;
	with("\"version\": 2, \"name\": \"a\"" REST, GOOD_DEVICE);
	with("\"version\": 2147483647, \"name\": 7", "8");
	with("\"version\": \"1\", \"name\": \"a\"" REST, GOOD_DEVICE);
	with("\"name\": \"a\"" REST, GOOD_DEVICE);
	with("\"version\": 0, \"name\": \"a\"" REST, GOOD_DEVICE);
}

static void test_damaged(void **state)
{
	(void)state;
	refused("a.json", "{");
	refused("a.json", "[]");
	refused("a.json", "null");
	refused("a.json", "{\"version\": 1}");
	refused("a.json", "{\"version\": 1, \"version\": 1, \"name\": \"a\"" REST
			  ", \"device\": " GOOD_DEVICE "}");
	refused("a.json",
		"{\"version\": 1, \"name\": \"a\"" REST ", \"device\": " GOOD_DEVICE "} more");
	refused("a.json",
		"{\"version\": 1, \"name\": \"a\xff\"" REST ", \"device\": " GOOD_DEVICE "}");
	put("a.json", "");
	free(load(0, 1));
}

static void test_contradictions(void **state)
{
	char text[1024];

	(void)state;
	with("\"version\": 1, \"name\": \"b\"" REST, GOOD_DEVICE);
	with("\"version\": 1, \"name\": \"../a\"" REST, GOOD_DEVICE);
	refused("b.json", "{\"version\": 1, \"name\": \"b\"" REST ", \"device\": " GOOD_DEVICE "}");
	with("\"version\": 1, \"name\": \"a\", \"phase\": \"dreaming\", \"id\": 5, "
	     "\"from_file\": true, \"size_bytes\": 4096, \"identity\": \"x\"",
	     GOOD_DEVICE);
	with("\"version\": 1, \"name\": \"a\", \"phase\": \"serving\", \"id\": 5, "
	     "\"from_file\": true, \"size_bytes\": -1, \"identity\": \"x\"",
	     GOOD_DEVICE);
	snprintf(text, sizeof(text),
		 "\"version\": 1, \"name\": \"a\", \"phase\": \"serving\", \"id\": 5, "
		 "\"from_file\": true, \"size_bytes\": 1, \"identity\": \"%0*d\"",
		 BACKEND_IDENTITY_BYTES, 7);
	with(text, GOOD_DEVICE);
}

static void test_devices_that_are_none(void **state)
{
	static const char head[] = "\"version\": 1, \"name\": \"a\"" REST;

	(void)state;
	with(head, "7");
	with(head, "null");
	with(head, "{}");
	with(head, "[]");
	with(head, "[" GOOD_DEVICE ", " GOOD_DEVICE "]");
	with(head, "{\"name\": \"a\"}");
	with(head, "{\"name\": \"a\", \"backend\": {\"type\": \"of_tomorrow\"}}");
	with(head, "{\"name\": \"a\", \"option_of_tomorrow\": 1, "
		   "\"backend\": {\"type\": \"mem\", \"size\": \"1M\"}}");
	with(head, "{\"name\": \"../a\", \"backend\": {\"type\": \"mem\", \"size\": \"1M\"}}");
}

/* What is no note by its name is not looked at. */
static void test_other_files(void **state)
{
	(void)state;
	assert_int_equal(write_one(record_of("a")), 0);
	put("README", "x");
	put("json", "x");
	put("a.json~", "x");
	put("keeper.sock", "x");
	check_a();
}

/* A note is never passed over: what it tells of may be in the driver. */
static void test_names_that_no_device_has(void **state)
{
	static const char *const names[] = {
		".json",     ".hidden.json",
		"..json",    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn.json", /* longer than any */
		"a b.json",  "\x80.json",
		"a\nb.json",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		put(names[i],
		    "{\"version\": 1, \"name\": \".hidden\"" REST ", \"device\": "
		    "{\"name\": \".hidden\", \"backend\": {\"type\": \"mem\", \"size\": \"1M\"}}}");
	free(load(0, ARRAY_SIZE(names)));
}

/* Written by another, or by whoever may write to it: what it says is not believed. */
static void test_notes_of_others(void **state)
{
	static const mode_t open_modes[] = { 0620, 0602, 0666 };
	char link_path[256];

	(void)state;
	assert_int_equal(write_one(record_of("a")), 0);
	for (size_t i = 0; i < ARRAY_SIZE(open_modes); i++) {
		assert_int_equal(chmod(path_of("a.json"), open_modes[i]), 0);
		free(load(0, 1));
		assert_int_equal(state_check(&notes, "a"), -EEXIST);
	}
	assert_int_equal(chmod(path_of("a.json"), 0644), 0);
	check_a();
	strcpy(link_path, path_of("other name"));
	assert_int_equal(link(path_of("a.json"), link_path), 0);
	free(load(0, 1));
	assert_int_equal(unlink(link_path), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(path_of("a.json"), 65534, 0), 0);
		free(load(0, 1));
		assert_int_equal(chown(path_of("a.json"), 0, 0), 0);
	}
	check_a();
}

/* Neither read nor waited for, nor written through. */
static void test_what_is_no_file(void **state)
{
	struct stat st, elsewhere;

	(void)state;
	put("elsewhere", "{\"version\": 1, \"name\": \"a\"" REST ", \"device\": " GOOD_DEVICE "}");
	assert_int_equal(stat(path_of("elsewhere"), &elsewhere), 0);
	assert_int_equal(symlink("elsewhere", path_of("a.json")), 0);
	assert_int_equal(mkfifo(path_of("b.json"), 0600), 0);
	assert_int_equal(mkdir(path_of("c.json"), 0700), 0);
	free(load(0, 3));
	/* Not written through: it goes. */
	assert_int_equal(symlink("elsewhere", path_of("d.json.new")), 0);
	assert_int_equal(write_one(record_of("d")), 0);
	state_remove(&notes, "d");
	assert_int_equal(mkdir(path_of("e.json.new"), 0700), 0);
	assert_int_equal(write_one(record_of("e")), -EISDIR);
	assert_int_equal(stat(path_of("elsewhere"), &st), 0);
	assert_int_equal(st.st_size, elsewhere.st_size);
	assert_int_equal(write_one(record_of("a")), 0);
	assert_int_equal(lstat(path_of("a.json"), &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(write_one(record_of("c")), -EISDIR);
	assert_false(exists("c.json.new"));
	state_free(load(1, 2), 1);
}

/* A good note with a long tail of blanks: too large by one byte. */
static void test_huge(void **state)
{
	FILE *f;

	(void)state;
	put("a.json", "{\"version\": 1, \"name\": \"a\"" REST ", \"device\": " GOOD_DEVICE "}");
	f = fopen(path_of("a.json"), "a");
	assert_non_null(f);
	while (ftell(f) < (4l << 20))
		fputc(' ', f);
	assert_int_equal(fflush(f), 0);
	state_free(load(1, 0), 1);
	fputc(' ', f);
	fclose(f);
	free(load(0, 1));
	assert_int_equal(truncate(path_of("a.json"), 1l << 40), 0);
	free(load(0, 1));
}

/* One that is bad does not hide the others. */
static void test_many(void **state)
{
	struct state_record *r;
	char name[16];

	(void)state;
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "d%d", i);
		assert_int_equal(write_one(record_of(name)), 0);
	}
	put("bad.json", "x");
	put("d7.json", "x");
	r = load(99, 2);
	state_free(r, 99);
}

static void test_default_path(void **state)
{
	char path[256], control[] = "/run/x/y.sock", dir[] = "/var/lib/z";
	struct daemon_settings settings = { .control = control };

	(void)state;
	state_path(&settings, path);
	assert_string_equal(path, "/run/x/y.sock.state");
	settings.state_dir = dir;
	state_path(&settings, path);
	assert_string_equal(path, "/var/lib/z");
}

static int setup(void **state)
{
	char words[PATH_WORDS_BYTES];

	(void)state;
	umask(022); /* what others may write is refused */
	strcpy(folder, "/tmp/test_state.XXXXXX");
	return mkdtemp(folder) ? state_open(&notes, folder, words) : -1;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	state_close(&notes);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static int quiet(void **state)
{
	(void)state;
	log_init(LOG_LEVEL_ERROR);
	return 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_round_trip),
		TEST(test_every_phase),
		TEST(test_longest_name),
		TEST(test_odd_names),
		TEST(test_rights),
		TEST(test_a_new_one_left_over),
		TEST(test_disk_full),
		TEST(test_no_folder),
		TEST(test_no_rights),
		TEST(test_the_texts_of_these_tests),
		TEST(test_other_versions),
		TEST(test_damaged),
		TEST(test_contradictions),
		TEST(test_devices_that_are_none),
		TEST(test_other_files),
		TEST(test_what_is_no_file),
		TEST(test_names_that_no_device_has),
		TEST(test_notes_of_others),
		TEST(test_huge),
		TEST(test_many),
		TEST(test_default_path),
	};

	return cmocka_run_group_tests_name("state", tests, quiet, NULL);
}
