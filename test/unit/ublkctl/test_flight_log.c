/* flight_log and perfetto: what comes out of recorder files, the whole, the torn and the hostile.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

#include "storage/backend.h"
#include "base/util.h"
#include "ublkctl/flight_log.h"
#include "ublkctl/flight_perfetto.h"

static char dir[] = "/tmp/test_flight_log.XXXXXX";
static char path[64];
static struct flight_file *live;

static void event(uint64_t time_ns, enum flight_event e, uint16_t tag, int32_t value)
{
	flight_write(
		live, time_ns, e,
		&(struct flight_key){ .device = 3, .queue = 1, .tag = tag, .op = BACKEND_WRITE }, 8,
		value);
}

static int setup(void **state)
{
	(void)state;
	if (flight_create(&live, dir, 0) < 0)
		return -1;
	live->realtime_offset_ns = 1000;
	flight_name(live, 3, "disk");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	flight_close(live);
	return 0;
}

static void load(struct flight_log *log)
{
	struct flight_file *file;
	uint64_t head_after;

	*log = (struct flight_log){ 0 };
	assert_int_equal(flight_log_load(path, &file, &head_after), 0);
	assert_int_equal(flight_log_add(log, file, head_after), 0);
	free(file);
	flight_log_finish(log);
}

static void test_latency(void **state)
{
	struct flight_log log;

	(void)state;
	event(100, FLIGHT_FETCH, 5, 4096);
	event(100, FLIGHT_FETCH, 6, 4096);
	event(150, FLIGHT_DONE, 6, -EIO);
	event(170, FLIGHT_COMMIT, 6, -EIO);
	event(190, FLIGHT_COMMIT, 5, 4096);
	event(200, FLIGHT_COMMIT, 7, 4096); /* its FETCH is no longer there */
	load(&log);
	assert_int_equal(log.nr, 6);
	assert_int_equal(log.torn, 0);
	assert_string_equal(log.lines[0].name, "disk");
	assert_int_equal(log.lines[0].wall_ns, 1100);
	assert_int_equal(log.lines[3].latency_ns, 70);
	assert_int_equal(log.lines[4].latency_ns, 90);
	assert_int_equal(log.lines[5].latency_ns, 0);
	flight_log_fini(&log);
}

static void test_wrapped(void **state)
{
	struct flight_log log;

	(void)state;
	for (unsigned i = 0; i < FLIGHT_RECORD_NR + 10; i++)
		event(i + 1, FLIGHT_FETCH, 0, 512);
	load(&log);
	/* The oldest one may be about to be overwritten. */
	assert_int_equal(log.nr, FLIGHT_RECORD_NR - 1);
	assert_int_equal(log.overwritten, 0);
	assert_int_equal(log.lines[0].record.time_ns, 12);
	assert_int_equal(log.lines[log.nr - 1].record.time_ns, FLIGHT_RECORD_NR + 10);
	flight_log_fini(&log);
}

static void test_overtaken(void **state)
{
	struct flight_log log = { 0 };
	struct flight_file *file;
	uint64_t head_after;

	(void)state;
	for (unsigned i = 0; i < FLIGHT_RECORD_NR; i++)
		event(i + 1, FLIGHT_FETCH, 0, 512);
	assert_int_equal(flight_log_load(path, &file, &head_after), 0);
	assert_int_equal(flight_log_add(&log, file, head_after + 100), 0);
	assert_int_equal(log.overwritten, 100);
	assert_int_equal(log.nr, FLIGHT_RECORD_NR - 101);
	flight_log_fini(&log);
	/* More than a whole round: nothing is left. */
	assert_int_equal(flight_log_add(&log, file, head_after * 3), 0);
	assert_int_equal(log.nr, 0);
	assert_int_equal(log.overwritten, FLIGHT_RECORD_NR - 1);
	flight_log_fini(&log);
	free(file);
}

static void test_hostile(void **state)
{
	struct flight_log log;

	(void)state;
	event(0, FLIGHT_FETCH, 0, 512);
	event(1, FLIGHT_NONE, 0, 512);
	event(1, FLIGHT_EVENT_NR, 0, 512);
	event(1, FLIGHT_FETCH, 0, 512);
	live->record[3].key.op = 200;
	event(UINT64_MAX, FLIGHT_COMMIT, 65535, INT32_MIN);
	memset(live->name[3], 0x1b, FLIGHT_NAME_BYTES);
	live->realtime_offset_ns = INT64_MAX;
	load(&log);
	assert_int_equal(log.nr, 1);
	assert_int_equal(log.torn, 4);
	assert_int_equal(strlen(log.lines[0].name), FLIGHT_NAME_BYTES - 1);
	assert_null(strchr(log.lines[0].name, 0x1b));
	flight_log_fini(&log);
	/* A head from nowhere: records that were never written. */
	live->head = UINT64_MAX - 5;
	load(&log);
	assert_true(log.nr <= 1);
	assert_true(log.torn > 0);
	flight_log_fini(&log);
}

static void test_no_recorder(void **state)
{
	struct flight_file *file;
	uint64_t head_after;

	(void)state;
	assert_int_equal(flight_log_load("/nonexistent", &file, &head_after), -ENOENT);
	assert_int_equal(flight_log_load("/dev/zero", &file, &head_after), -EBADMSG);
	live->version++;
	assert_int_equal(flight_log_load(path, &file, &head_after), -EBADMSG);
	live->version--;
	assert_int_equal(truncate(path, 4096), 0);
	assert_int_equal(flight_log_load(path, &file, &head_after), -EBADMSG);
	assert_int_equal(truncate(path, sizeof(*file)), 0);
}

/* ---- the trace, decoded again ---- */

struct view {
	const uint8_t *at, *end;
};

static uint64_t varint(struct view *v)
{
	uint64_t value = 0;

	for (unsigned shift = 0;; shift += 7) {
		assert_true(v->at < v->end && shift < 64);
		value |= (uint64_t)(*v->at & 0x7f) << shift;
		if (!(*v->at++ & 0x80))
			return value;
	}
}

/* The next field; false at the end. ret_inner is empty for a number. */
static bool field(struct view *v, unsigned *ret_nr, uint64_t *ret_value, struct view *ret_inner)
{
	uint64_t key;

	if (v->at == v->end)
		return false;
	key = varint(v);
	*ret_nr = (unsigned)(key >> 3);
	*ret_value = varint(v);
	*ret_inner = (struct view){ v->at, v->at };
	assert_true((key & 7) == 0 || (key & 7) == 2);
	if ((key & 7) == 0)
		return true;
	assert_true(*ret_value <= (uint64_t)(v->end - v->at));
	v->at += *ret_value;
	ret_inner->end = v->at;
	return true;
}

/* The n-th occurrence of a field, counted from 0. */
static bool get(struct view v, unsigned nr, unsigned n, uint64_t *ret_value, struct view *ret_inner)
{
	unsigned found;

	while (field(&v, &found, ret_value, ret_inner))
		if (found == nr && n-- == 0)
			return true;
	return false;
}

static uint64_t number(struct view v, unsigned nr)
{
	struct view inner;
	uint64_t value;

	return get(v, nr, 0, &value, &inner) ? value : 0;
}

static struct view inner(struct view v, unsigned nr, unsigned n)
{
	struct view in = { v.end, v.end };
	uint64_t value;

	return get(v, nr, n, &value, &in) ? in : (struct view){ v.end, v.end };
}

static bool is_text(struct view v, const char *text)
{
	return (size_t)(v.end - v.at) == strlen(text) && memcmp(v.at, text, strlen(text)) == 0;
}

static void test_perfetto(void **state)
{
	struct view trace, packet, texts, e;
	struct flight_log log;
	size_t bytes;
	char *data;
	FILE *file = open_memstream(&data, &bytes);

	(void)state;
	event(100, FLIGHT_FETCH, 5, 4096);
	event(150, FLIGHT_DONE, 5, -EIO);
	event(190, FLIGHT_COMMIT, 5, -EIO);
	event(200, FLIGHT_COMMIT, 6, 0); /* never began: leaves no end of a slice */
	load(&log);
	assert_int_equal(perfetto_write(file, &log), 0);
	trace = (struct view){ (uint8_t *)data, (uint8_t *)data + bytes };

	/* Clocks, device, tag 5, begin, instant, tag 6, end. Texts are by number, and told once. */
	packet = inner(trace, 1, 0);
	assert_int_equal(number(inner(inner(packet, 6, 0), 1, 0), 1), 6);
	assert_int_equal(number(inner(inner(packet, 6, 0), 1, 0), 2), 100);
	assert_int_equal(number(inner(inner(packet, 6, 0), 1, 2), 2), 1100);
	e = inner(inner(trace, 1, 1), 60, 0);
	assert_true(is_text(inner(inner(e, 3, 0), 6, 0), "disk"));
	assert_int_equal(number(inner(inner(trace, 1, 2), 60, 0), 5), number(e, 1));
	e = inner(inner(trace, 1, 2), 60, 0);
	assert_true(is_text(inner(e, 2, 0), "queue 1 tag 5"));

	packet = inner(trace, 1, 3);
	assert_int_equal(number(packet, 8), 100);
	assert_int_equal(number(packet, 10), 1);
	assert_int_equal(number(inner(packet, 11, 0), 11), number(e, 1));
	texts = inner(packet, 12, 0);
	e = inner(packet, 11, 0);
	assert_int_equal(number(e, 9), 1);
	assert_int_equal(number(e, 10), 1);
	assert_true(is_text(inner(inner(texts, 2, 0), 2, 0), "write"));
	assert_int_equal(number(inner(e, 4, 0), 1), 1);
	assert_true(is_text(inner(inner(texts, 3, 0), 2, 0), "sector"));
	assert_int_equal(number(inner(e, 4, 0), 3), 8);
	assert_int_equal(number(inner(e, 4, 1), 4), 4096);
	assert_int_equal(number(inner(e, 4, 2), 17), 1);
	assert_true(is_text(inner(inner(texts, 29, 0), 2, 0), "EIO"));

	packet = inner(trace, 1, 4);
	e = inner(packet, 11, 0);
	assert_int_equal(number(packet, 8), 150);
	assert_int_equal(number(e, 9), 3);
	assert_int_equal(number(inner(e, 4, 0), 17), 1);
	assert_true(is_text(inner(inner(inner(packet, 12, 0), 2, 0), 2, 0), "done"));
	assert_true(is_text(inner(inner(inner(trace, 1, 5), 60, 0), 2, 0), "queue 1 tag 6"));
	packet = inner(trace, 1, 6); /* ends are written late: the next one, or the end of all */
	assert_int_equal(number(packet, 8), 190);
	assert_int_equal(number(inner(packet, 11, 0), 9), 2);
	packet = inner(trace, 1, 7);
	assert_ptr_equal(packet.at, packet.end);
	free(data);
	flight_log_fini(&log);
}

/* A tmpfs of 64 KiB over the folder, for this process alone. */
static bool make_small_folder(const char *folder)
{
	if (unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return false;
	return mount("", "/", NULL, MS_PRIVATE | MS_REC, NULL) == 0 &&
	       mount("small", folder, "tmpfs", 0, "size=64k") == 0;
}

/* A file whose pages the folder cannot give: all of it is recorded, and read while we live. */
static void test_full_folder(void **state)
{
	char folder[] = "/tmp/test_flight_full.XXXXXX", name[64], target[128];
	struct flight_file *full, *copy;
	uint64_t head_after;
	bool small;
	ssize_t len;

	(void)state;
	assert_non_null(mkdtemp(folder));
	small = make_small_folder(folder);
	if (!small)
		print_message("# no mount namespace here\n");
	if (!small)
		skip();
	assert_int_equal(flight_create(&full, folder, 7), -ENOSPC);
	assert_non_null(full);
	for (unsigned i = 0; i < FLIGHT_RECORD_NR; i++)
		flight_write(full, i + 1, FLIGHT_FETCH, &(struct flight_key){ .tag = 1 }, 0, 0);
	snprintf(name, sizeof(name), "%s/flight-7", folder);
	len = readlink(name, target, sizeof(target) - 1);
	assert_true(len > 0);
	if (geteuid() == 0) {
		assert_int_equal(flight_log_load(name, &copy, &head_after), 0);
		assert_int_equal(head_after, FLIGHT_RECORD_NR);
		assert_int_equal(copy->record[FLIGHT_RECORD_NR - 1].time_ns, FLIGHT_RECORD_NR);
		free(copy);
	}
	flight_close(full);
	assert_int_equal(flight_log_load(name, &copy, &head_after), -ENOENT);
	/* The next one: the link is no evidence, and nothing else was left there. */
	assert_int_equal(flight_create(&full, folder, 7), -ENOSPC);
	flight_close(full);
	snprintf(name, sizeof(name), "%s/flight-7.old", folder);
	assert_int_equal(access(name, F_OK), -1);
	assert_int_equal(umount(folder), 0);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_latency, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrapped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_overtaken, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hostile, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_recorder, setup, teardown),
		cmocka_unit_test_setup_teardown(test_perfetto, setup, teardown),
		cmocka_unit_test(test_full_folder),
	};
	char old[80];
	int failed;

	if (!mkdtemp(dir))
		return 1;
	snprintf(path, sizeof(path), "%s/flight-0", dir);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(old, sizeof(old), "%s/flight-0.old", dir);
	unlink(path);
	unlink(old);
	rmdir(dir);
	return failed;
}
