/*
 * adopt: memory that is parked for devices of a dead daemon. It is dropped only where it is known
 * that no device in the driver is to have it back.
 */
#include <sys/mman.h>

#include "daemon/devices/fleet_keep.h"
#include "daemon/fdstore/park.h"
#include "test/rig/adopt_rig.h"

static struct park park;

static void park_memory(const char *device)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	char name[64];

	assert_true(fd >= 0);
	keep_park_name(name, device);
	park_put(&park, name, fd);
	close(fd);
}

static bool is_parked(const char *device)
{
	char name[64];

	keep_park_name(name, device);
	return park_find(&park, name) >= 0;
}

/* systemd is the holder, but is not there: what it does not do fails nothing. */
static void with_park(void)
{
	log_init(LOG_LEVEL_ERROR);
	assert_int_equal(park_open(&park, folder), 0);
	park.systemd = true;
	fleet.park = &park;
}

/* What is parked after a start; nothing is adopted, so that nothing is parked anew. */
static void find_with_park(size_t found_nr)
{
	assert_int_equal(find(found_nr), 0);
	adoption_free(&adoption);
	fleet.park = NULL;
}

static void test_memory_that_nobody_wants_is_dropped(void **state)
{
	(void)state;
	with_park();
	note("a", STATE_SERVING, quiesced("a"));
	note("stale", STATE_SERVING, 7);
	park_memory("a");
	park_memory("stale");
	park_memory("removed");
	find_with_park(1);
	assert_true(is_parked("a"));
	assert_false(is_parked("stale"));
	assert_false(is_parked("removed"));
	park_close(&park);
}

/* The device that the note tells of may have memory of any name. */
static void test_memory_stays_while_a_note_cannot_be_read(void **state)
{
	(void)state;
	with_park();
	/* Its device is seen by nobody here, such as one of an id that /dev does not show. */
	note("a", STATE_SERVING, 5);
	assert_int_equal(truncate(note_path("a"), 7), 0);
	note("stale", STATE_SERVING, 7);
	park_memory("a");
	park_memory("unknown");
	park_memory("stale");
	find_with_park(0);
	assert_true(is_parked("a"));
	assert_true(is_parked("unknown"));
	/* Its note can be read: it is over. */
	assert_false(is_parked("stale"));
	park_close(&park);
	unlink(note_path("a"));
}

static void test_memory_stays_while_a_device_has_no_note(void **state)
{
	(void)state;
	with_park();
	quiesced("a");
	park_memory("a");
	park_memory("removed");
	find_with_park(0);
	assert_true(is_parked("a") && is_parked("removed"));
	/* Another daemon's device is none of ours. */
	driver[0].info.ublksrv_flags = mark_of("/run/other.sock", "a");
	fleet.park = &park;
	find_with_park(0);
	assert_false(is_parked("a") || is_parked("removed"));
	park_close(&park);
}

/* Of the noted name, but of another id: which of both the memory is, is not known. */
static void test_memory_stays_while_a_device_has_another_id(void **state)
{
	(void)state;
	with_park();
	quiesced("a");
	note("a", STATE_SERVING, 7);
	park_memory("a");
	find_with_park(0);
	assert_true(has_note("a"));
	assert_true(is_parked("a"));
	/* And no new device takes its place. */
	fleet.park = &park;
	add("a", true);
	run();
	assert_string_equal(state_of("a"), "failed");
	assert_non_null(strstr(fleet_find(&fleet, "a")->error, "is still parked"));
	assert_true(is_parked("a"));
	/* Given up, it can start. */
	park_drop(&park, "mem-a");
	reload("a");
	run();
	assert_string_equal(state_of("a"), "live");
	fleet.park = NULL;
	park_close(&park);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ADOPT(test_memory_that_nobody_wants_is_dropped),
		ADOPT(test_memory_stays_while_a_note_cannot_be_read),
		ADOPT(test_memory_stays_while_a_device_has_no_note),
		ADOPT(test_memory_stays_while_a_device_has_another_id),
	};

	return cmocka_run_group_tests_name("adopt_memory", tests, quiet, end);
}
