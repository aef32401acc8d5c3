/*
 * adopt: the notes of a dead daemon against what the driver has, row by row of the table in
 * docs/recovery.md. The driver is a table of this test; devices, once adopted, are fake ones.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/adopt.h"
#include "daemon/adopt_sweep.h"
#include "daemon/fleet_keep.h"
#include "daemon/mark.h"
#include "daemon/park.h"
#include "test/unit/fleet_rig.h"

#define CONTROL "/run/test.sock"
#define DRIVER_DEVICES_MAX 8
#define OURS(name) mark_of(CONTROL, name)
#define REISSUE (UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE)

static struct driver_device {
	struct ublksrv_ctrl_dev_info info;
	bool there, silent;
	int info_result, del_result;
	uint64_t sectors; /* 0: GET_PARAMS is refused */
} driver[DRIVER_DEVICES_MAX];
static unsigned driver_nr, asked_nr, deleted_nr;
static bool has_del_async;
static struct ctl_cmd *pending;
static unsigned sweeps_nr;
static char folder[64], dev_folder[64];
static struct state notes;
static struct ctl ctl;
static struct loop loop;
static struct adoption adoption;
static struct backend_device memory;

/* ---- the driver, as adopt.c sees it ---- */

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);

DIR *__wrap_opendir(const char *path)
{
	return __real_opendir(strcmp(path, "/dev") == 0 ? dev_folder : path);
}

int ctl_cmd_init(struct ctl_cmd *cmd, struct ctl *of)
{
	*cmd = (struct ctl_cmd){ .ctl = of };
	return 0;
}

void ctl_cmd_fini(struct ctl_cmd *cmd)
{
	assert_ptr_not_equal(cmd, pending);
}

bool ctl_cmd_busy(const struct ctl_cmd *cmd)
{
	return cmd == pending;
}

void ctl_cmd_send(struct ctl_cmd *cmd, const struct ctl_request *request, ctl_cmd_fn *done)
{
	assert_null(pending);
	asked_nr++;
	cmd->request = *request;
	cmd->done = done;
	pending = cmd;
}

static int delete_device(struct driver_device *d, bool is_async)
{
	if (is_async && !has_del_async)
		return -EOPNOTSUPP;
	if (d->del_result == 0) {
		d->there = false;
		deleted_nr++;
	}
	return d->del_result;
}

static int answer(const struct ctl_request *request)
{
	struct driver_device *d = &driver[request->dev_id];

	assert_int_equal(request->queue_id, -1);
	if (!d->there)
		return -ENODEV;
	if (request->cmd_op == UBLK_U_CMD_GET_PARAMS) {
		((struct ublk_params *)request->buf)->basic.dev_sectors = d->sectors;
		return d->sectors ? 0 : -EINVAL;
	}
	if (request->cmd_op != UBLK_U_CMD_GET_DEV_INFO)
		return delete_device(d, request->cmd_op == UBLK_U_CMD_DEL_DEV_ASYNC);
	assert_int_equal(request->buf_bytes, sizeof(d->info));
	if (d->info_result == 0)
		memcpy(request->buf, &d->info, sizeof(d->info));
	return d->info_result;
}

bool loop_run_until(struct loop *of, const bool *flag, uint64_t timeout_ns)
{
	struct ctl_cmd *cmd = pending;

	assert_ptr_equal(of, &loop);
	assert_true(timeout_ns > 0);
	if (!driver[cmd->request.dev_id].silent) {
		pending = NULL;
		cmd->done(cmd, answer(&cmd->request));
	}
	return *flag;
}

void adopt_sweep(const struct ublksrv_ctrl_dev_info *info)
{
	assert_true(driver[info->dev_id].there);
	sweeps_nr++;
}

/* ---- what a dead daemon left ---- */

static void make_node(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dev_folder, name);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	close(fd);
}

/* The driver has a device; its number. */
static unsigned device(uint64_t mark, uint64_t flags, unsigned state)
{
	struct driver_device *d = &driver[driver_nr];
	char node[32];

	*d = (struct driver_device){ .there = true,
				     .info = { .dev_id = driver_nr,
					       .nr_hw_queues = 1,
					       .queue_depth = 1,
					       .state = (uint16_t)state,
					       .flags = flags,
					       .ublksrv_flags = mark } };
	snprintf(node, sizeof(node), "ublkc%u", driver_nr);
	make_node(node);
	return driver_nr++;
}

static unsigned quiesced(const char *name)
{
	return device(OURS(name), REISSUE, UBLK_S_DEV_QUIESCED);
}

/* name or "name:depth" */
static void note(const char *name, enum state_phase phase, int64_t id)
{
	struct state_record record = { .phase = phase,
				       .id = id,
				       .from_file = true,
				       .size_bytes = 1u << 20,
				       .identity = "mem" };
	struct settings s;

	parse(&s, name);
	record.settings = s.devices[0];
	snprintf(record.name, sizeof(record.name), "%s", record.settings->options.name);
	assert_int_equal(state_write(&notes, &record), 0);
	settings_free(&s);
}

static const char *note_path(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s.json", folder, name);
	return path;
}

static bool has_note(const char *name)
{
	return access(note_path(name), F_OK) == 0;
}

static int find(size_t found_nr)
{
	int ret = adoption_find(&adoption, &loop, &fleet, false);

	assert_int_equal(adoption.found_nr, found_nr);
	return ret;
}

/* All of a start: finds, adopts, and applies a configuration. */
static void start(size_t found_nr, const char *configured)
{
	assert_int_equal(find(found_nr), 0);
	adoption_begin(&adoption, &fleet);
	reload(configured);
	adoption_free(&adoption);
	run();
}

/* ---- the rows ---- */

static void test_nothing_at_all(void **state)
{
	(void)state;
	start(0, "");
	assert_int_equal(asked_nr, 0);
	assert_int_equal(fleet.member_nr, 0);
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
	adoption_begin(&adoption, &fleet);
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
	assert_int_equal(fleet.member_nr, 3);
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
	assert_int_equal(fleet.member_nr, 1);
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
	adoption_begin(&adoption, &fleet);
	adoption_free(&adoption);
	reload("a b");
	run();
	assert_int_equal(deleted_nr, 0);
	assert_true(has_note("a"));
	assert_string_equal(state_of("a"), "failed");
	assert_string_equal(state_of("b"), "live");
	unlink(note_path("a"));
}

/* ---- memory ---- */

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
		assert_int_equal(adoption_find(&adoption, &loop, &fleet, look_only), 0);
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
	assert_int_equal(adoption_find(&adoption, &loop, &fleet, true), 0);
	adoption_free(&adoption);
	served = device(OURS("b"), REISSUE, UBLK_S_DEV_LIVE);
	driver[served].info.ublksrv_pid = getppid();
	assert_int_equal(adoption_find(&adoption, &loop, &fleet, true), -EPROTO);
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
	assert_int_equal(adoption_find(&adoption, &loop, &fleet, true), 0);
	assert_int_equal(adoption.found_nr, 1);
	assert_int_equal(deleted_nr, 0);
	assert_true(has_note("none") && has_note("adding") && has_note("stale"));
	adoption_free(&adoption);
	note("b", STATE_SERVING, 6);
	assert_int_equal(truncate(note_path("b"), 1), 0);
	asked_nr = 0;
	assert_int_equal(adoption_find(&adoption, &loop, &fleet, true), -EPROTO);
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
	adoption_begin(&adoption, &fleet);
	assert_int_equal(sweeps_nr, 0);
	adoption_free(&adoption);
	run();
	fleet_del(&fleet, fleet_find(&fleet, "a"), true);
	fleet_del(&fleet, fleet_find(&fleet, "b"), true);
	run();
	note("a", STATE_RECOVERING, 0);
	note("b", STATE_SERVING, 1);
	assert_int_equal(find(2), 0);
	ctl.features = 0;
	adoption_begin(&adoption, &fleet);
	assert_int_equal(sweeps_nr, 1);
	adoption_free(&adoption);
	run();
}

/* ---- */

static int adopt_setup(void **state)
{
	char words[PATH_WORDS_BYTES];

	setup(state);
	memset(driver, 0, sizeof(driver));
	driver_nr = asked_nr = deleted_nr = sweeps_nr = 0;
	has_del_async = true;
	pending = NULL;
	strcpy(folder, "/tmp/test_adopt.XXXXXX");
	strcpy(dev_folder, "/tmp/test_adopt_dev.XXXXXX");
	if (!mkdtemp(folder) || !mkdtemp(dev_folder) || state_open(&notes, folder, words) < 0)
		return -1;
	ctl = (struct ctl){ 0 };
	host.ctl = &ctl;
	memory = (struct backend_device){ .ops = backend_find("mem") };
	fake_backend = &memory;
	fleet.control = CONTROL;
	fleet.state = &notes;
	return 0;
}

static int adopt_teardown(void **state)
{
	char command[160];
	int ret;

	fleet_stop_all(&fleet);
	run();
	if (fake_find("slow"))
		fake_release("slow");
	ret = teardown(state);
	state_close(&notes);
	snprintf(command, sizeof(command), "rm -rf %s %s", folder, dev_folder);
	return system(command) == 0 ? ret : -1;
}

#define ADOPT(fn) cmocka_unit_test_setup_teardown(fn, adopt_setup, adopt_teardown)

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
		ADOPT(test_memory_that_nobody_wants_is_dropped),
		ADOPT(test_memory_stays_while_a_note_cannot_be_read),
		ADOPT(test_memory_stays_while_a_device_has_no_note),
		ADOPT(test_memory_stays_while_a_device_has_another_id),
		ADOPT(test_a_live_one_is_not_what_was_being_added),
		ADOPT(test_notes_half_written_are_removed),
		ADOPT(test_a_look_at_a_device_without_a_note),
	};

	return cmocka_run_group_tests_name("adopt", tests, quiet, end);
}
