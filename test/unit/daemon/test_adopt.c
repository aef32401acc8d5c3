/*
 * adopt: the notes of a dead daemon against what the driver has, row by row of the table in
 * docs/recovery.md.
 */
#include "test/rig/adopt_rig.h"

static void test_nothing_at_all(void **state)
{
	(void)state;
	start(0, "");
	assert_int_equal(asked_nr, 0);
	assert_int_equal(device_set.member_nr, 0);
}

static void test_notes_without_a_device(void **state)
{
	(void)state;
	note("a", STATE_ADDING, -1);
	note("b", STATE_SERVING, 0);
	note("c", STATE_RECOVERING, 7);
	start(0, "b");
	assert_false(has_note("a"));
	assert_false(has_note("c"));
	assert_int_equal(deleted_nr, 0);
	/* Not adopted: configured, it is started. */
	assert_string_equal(state_of("b"), "live");
	assert_int_equal(fake_get("b")->spec.id, -1);
}

static void test_what_can_be_recovered_is_adopted(void **state)
{
	static const unsigned states[] = { UBLK_S_DEV_QUIESCED, UBLK_S_DEV_LIVE,
					   UBLK_S_DEV_FAIL_IO };
	static const uint64_t flags[] = { REISSUE, UBLK_F_USER_RECOVERY,
					  UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_FAIL_IO };
	char name[8];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(states); i++) {
		snprintf(name, sizeof(name), "d%u", i);
		note(name, i ? STATE_SERVING : STATE_RECOVERING,
		     device(OURS(name), flags[i], states[i]));
	}
	start(3, "d0 d1 d2");
	for (unsigned i = 0; i < ARRAY_SIZE(states); i++) {
		snprintf(name, sizeof(name), "d%u", i);
		assert_string_equal(state_of(name), "live");
		assert_int_equal(fake_get(name)->spec.id, i);
		assert_true(has_note(name));
	}
	assert_int_equal(deleted_nr, 0);
}

/* A daemon that died between a change of a device's size and the note of it. */
static void test_the_driver_knows_the_size(void **state)
{
	(void)state;
	note("a", STATE_SERVING, quiesced("a"));
	note("b", STATE_SERVING, quiesced("b"));
	driver[0].sectors = 4096;
	assert_int_equal(find(2), 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct state_record *r = adoption.found[i].record;

		assert_int_equal(r->size_bytes, strcmp(r->name, "a") == 0 ? 2u << 20 : 1u << 20);
	}
	adoption_free(&adoption);
}

/* As it was configured then; what is configured now comes after. */
static void test_adopted_as_it_was(void **state)
{
	unsigned starts;

	(void)state;
	note("slow:7", STATE_SERVING, quiesced("slow"));
	note("gone", STATE_SERVING, quiesced("gone"));
	assert_int_equal(find(2), 0);
	adoption_begin(&adoption, &device_set);
	starts = fake_starts;
	reload("slow:9");
	adoption_free(&adoption);
	run();
	assert_int_equal(fake_get("slow")->spec.depth, 7);
	fake_release("slow");
	run();
	fake_release("slow");
	run();
	assert_int_equal(fake_get("slow")->spec.depth, 9);
	assert_int_equal(fake_starts, starts + 1);
	assert_string_equal(state_of("gone"), "none");
	assert_false(has_note("gone"));
}

static void test_dead_ones_are_deleted_and_started_anew(void **state)
{
	(void)state;
	note("none", STATE_SERVING, device(OURS("none"), 0, UBLK_S_DEV_DEAD));
	note("early", STATE_SERVING, device(OURS("early"), REISSUE, UBLK_S_DEV_DEAD));
	note("earlier", STATE_ADDING, -1);
	device(OURS("earlier"), REISSUE, UBLK_S_DEV_QUIESCED);
	note("removed", STATE_SERVING, device(OURS("removed"), 0, UBLK_S_DEV_DEAD));
	note("unnoticed", STATE_SERVING, device(OURS("unnoticed"), 0, UBLK_S_DEV_LIVE));
	start(0, "none early earlier");
	assert_int_equal(deleted_nr, 5);
	assert_string_equal(state_of("none"), "live");
	assert_string_equal(state_of("early"), "live");
	assert_string_equal(state_of("earlier"), "live");
	assert_int_equal(fake_get("earlier")->spec.id, -1);
	assert_false(has_note("removed"));
	assert_int_equal(device_set.member_nr, 3);
}

static void test_others_are_not_touched(void **state)
{
	unsigned theirs, unmarked;

	(void)state;
	theirs = device(mark_of("/run/other.sock", "a"), REISSUE, UBLK_S_DEV_QUIESCED);
	unmarked = device(0, 0, UBLK_S_DEV_DEAD);
	note("a", STATE_SERVING, theirs);
	note("b", STATE_SERVING, unmarked);
	start(0, "");
	assert_int_equal(deleted_nr, 0);
	assert_true(driver[theirs].there && driver[unmarked].there);
	/* Their numbers were given away: the notes tell of devices that are no more. */
	assert_false(has_note("a"));
	assert_false(has_note("b"));
}

static void test_ours_without_a_note_are_left_alone(void **state)
{
	unsigned known;

	(void)state;
	quiesced("a");
	device(OURS("b"), 0, UBLK_S_DEV_DEAD);
	/* Of this name, but not the number that was noted. */
	known = quiesced("c");
	quiesced("c");
	note("c", STATE_SERVING, known);
	start(1, "c");
	assert_int_equal(deleted_nr, 0);
	assert_int_equal(fake_get("c")->spec.id, known);
	assert_int_equal(device_set.member_nr, 1);
}

/* A note that cannot be used: neither it nor its device is touched, nor is another made. */
static void test_a_newer_note(void **state)
{
	FILE *f = fopen(note_path("a"), "w");

	(void)state;
	fputs("{\"version\": 2}", f);
	fclose(f);
	quiesced("a");
	note("b", STATE_SERVING, quiesced("b"));
	assert_int_equal(find(1), 0);
	assert_int_equal(adoption.unreadable_nr, 1);
	adoption_begin(&adoption, &device_set);
	adoption_free(&adoption);
	reload("a b");
	run();
	assert_int_equal(deleted_nr, 0);
	assert_true(has_note("a"));
	assert_string_equal(state_of("a"), "failed");
	assert_string_equal(state_of("b"), "live");
	unlink(note_path("a"));
}

/* Noted before the driver was asked: it was never live. */
static void test_a_live_one_is_not_what_was_being_added(void **state)
{
	unsigned other = device(OURS("a"), REISSUE, UBLK_S_DEV_LIVE);

	(void)state;
	note("a", STATE_ADDING, -1);
	assert_int_equal(find(0), 0);
	assert_int_equal(adoption.unnamed_nr, 1);
	adoption_free(&adoption);
	assert_int_equal(deleted_nr, 0);
	assert_true(driver[other].there);
}

static void test_notes_half_written_are_removed(void **state)
{
	char path[128];
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "%s/a.json.new", folder);
	for (int look_only = 1; look_only >= 0; look_only--) {
		f = fopen(path, "we");
		assert_non_null(f);
		fclose(f);
		assert_int_equal(adoption_find(&adoption, &loop, &device_set, look_only), 0);
		adoption_free(&adoption);
		/* The old daemon may just be writing it. */
		assert_int_equal(access(path, F_OK), look_only ? 0 : -1);
	}
}

/* For an upgrade: who would serve it then? */
static void test_a_look_at_a_device_without_a_note(void **state)
{
	unsigned orphan = quiesced("orphan"), served;

	(void)state;
	driver[orphan].info.ublksrv_pid = 1 << 22;
	note("a", STATE_SERVING, device(OURS("a"), REISSUE, UBLK_S_DEV_LIVE));
	assert_int_equal(adoption_find(&adoption, &loop, &device_set, true), 0);
	adoption_free(&adoption);
	served = device(OURS("b"), REISSUE, UBLK_S_DEV_LIVE);
	driver[served].info.ublksrv_pid = getppid();
	assert_int_equal(adoption_find(&adoption, &loop, &device_set, true), -EPROTO);
	adoption_free(&adoption);
	assert_int_equal(deleted_nr, 0);
}

/* For an upgrade, while the old daemon serves: nothing is deleted, nothing is forgotten. */
static void test_only_a_look(void **state)
{
	(void)state;
	note("a", STATE_SERVING, device(OURS("a"), REISSUE, UBLK_S_DEV_LIVE));
	note("none", STATE_SERVING, device(OURS("none"), 0, UBLK_S_DEV_LIVE));
	note("adding", STATE_ADDING, -1);
	device(OURS("adding"), REISSUE, UBLK_S_DEV_DEAD);
	note("stale", STATE_SERVING, 7);
	assert_int_equal(adoption_find(&adoption, &loop, &device_set, true), 0);
	assert_int_equal(adoption.found_nr, 1);
	assert_int_equal(deleted_nr, 0);
	assert_true(has_note("none") && has_note("adding") && has_note("stale"));
	adoption_free(&adoption);
	note("b", STATE_SERVING, 6);
	assert_int_equal(truncate(note_path("b"), 1), 0);
	asked_nr = 0;
	assert_int_equal(adoption_find(&adoption, &loop, &device_set, true), -EPROTO);
	assert_int_equal(asked_nr, 0);
	adoption_free(&adoption);
}

/* ---- a driver that does not do as it is told ---- */

static void test_a_silent_driver(void **state)
{
	(void)state;
	note("a", STATE_SERVING, quiesced("a"));
	note("b", STATE_SERVING, 7);
	driver[0].silent = true;
	assert_int_equal(find(0), -ETIMEDOUT);
	adoption_free(&adoption);
	/* Nothing is known: nothing is forgotten. */
	assert_true(has_note("a"));
	assert_true(has_note("b"));
	assert_int_equal(asked_nr, 1);
}

static void test_a_driver_that_does_not_delete(void **state)
{
	(void)state;
	note("a", STATE_SERVING, device(OURS("a"), 0, UBLK_S_DEV_DEAD));
	driver[0].del_result = -EINTR;
	note("b", STATE_SERVING, quiesced("b"));
	start(1, "b");
	assert_int_equal(deleted_nr, 0);
	assert_string_equal(state_of("b"), "live");
}

static void test_without_del_async(void **state)
{
	(void)state;
	has_del_async = false;
	note("a", STATE_SERVING, device(OURS("a"), 0, UBLK_S_DEV_DEAD));
	start(0, "");
	assert_int_equal(deleted_nr, 1);
	assert_false(has_note("a"));
}

static void test_a_device_that_goes_meanwhile(void **state)
{
	(void)state;
	note("a", STATE_SERVING, quiesced("a"));
	driver[0].info_result = -ENODEV;
	note("b", STATE_SERVING, quiesced("b"));
	start(1, "b");
	assert_false(has_note("a"));
	assert_string_equal(state_of("b"), "live");
}

static void test_other_nodes(void **state)
{
	(void)state;
	make_node("ublkb0");
	make_node("ublk-control");
	make_node("ublkc");
	make_node("null");
	start(0, "");
	assert_int_equal(asked_nr, 0);
}

/* Only where the driver needs it, and only what was cut short. */
static void test_recoveries_cut_short(void **state)
{
	(void)state;
	note("a", STATE_RECOVERING, quiesced("a"));
	note("b", STATE_SERVING, quiesced("b"));
	assert_int_equal(find(2), 0);
	ctl.features = UBLK_F_QUIESCE;
	adoption_begin(&adoption, &device_set);
	assert_int_equal(sweeps_nr, 0);
	adoption_free(&adoption);
	run();
	device_set_del(&device_set, device_set_find(&device_set, "a"), true);
	device_set_del(&device_set, device_set_find(&device_set, "b"), true);
	run();
	note("a", STATE_RECOVERING, 0);
	note("b", STATE_SERVING, 1);
	assert_int_equal(find(2), 0);
	ctl.features = 0;
	adoption_begin(&adoption, &device_set);
	assert_int_equal(sweeps_nr, 1);
	adoption_free(&adoption);
	run();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ADOPT(test_nothing_at_all),
		ADOPT(test_notes_without_a_device),
		ADOPT(test_what_can_be_recovered_is_adopted),
		ADOPT(test_the_driver_knows_the_size),
		ADOPT(test_adopted_as_it_was),
		ADOPT(test_dead_ones_are_deleted_and_started_anew),
		ADOPT(test_others_are_not_touched),
		ADOPT(test_ours_without_a_note_are_left_alone),
		ADOPT(test_a_newer_note),
		ADOPT(test_only_a_look),
		ADOPT(test_a_silent_driver),
		ADOPT(test_a_driver_that_does_not_delete),
		ADOPT(test_without_del_async),
		ADOPT(test_a_device_that_goes_meanwhile),
		ADOPT(test_other_nodes),
		ADOPT(test_recoveries_cut_short),
		ADOPT(test_a_live_one_is_not_what_was_being_added),
		ADOPT(test_notes_half_written_are_removed),
		ADOPT(test_a_look_at_a_device_without_a_note),
	};

	return cmocka_run_group_tests_name("adopt", tests, quiet, end);
}
