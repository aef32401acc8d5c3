/*
 * gc: which devices of the driver are orphans, and their removal, with a driver of the test's own
 * in the place of ublk/control.c. The nodes stand in a folder of the test; who has one open is read
 * from the real /proc.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "daemon/devices/gc.h"
#include "test/rig/fake_backends.h"
#include "test/rig/fake_device.h"

#define ID_NR 8
#define MARK 0x1234

static char folder[] = "/tmp/test_gc.XXXXXX";
static struct ev_loop *ev;
static struct device_set device_set;
static struct device_host host;
static int dead_pid;

/* ---- the driver ---- */

static struct driver {
	bool exists;
	unsigned state;
	int pid;
	bool hangs;    /* STOP_DEV does not answer */
	bool no_async; /* knows no DEL_DEV_ASYNC */
	bool unprivileged, of_others;
	int stop_error;
	struct ctl_cmd *owed;
} driver[ID_NR];

static struct waiting {
	struct ev_timer timer;
	struct ctl_cmd *cmd;
	bool used;
} waiting[64];

static int execute(const struct ctl_request *q)
{
	struct driver *d = &driver[q->dev_id % ID_NR];

	if (q->dev_id >= ID_NR || !d->exists)
		return -ENODEV;
	switch (q->cmd_op) {
	case UBLK_U_CMD_GET_DEV_INFO2:
		assert_true(q->with_path);
		if (d->of_others)
			return -EACCES;
		*(struct ublksrv_ctrl_dev_info *)q->buf = (struct ublksrv_ctrl_dev_info){
			.nr_hw_queues = 1,
			.dev_id = q->dev_id,
			.state = (uint16_t)d->state,
			.ublksrv_pid = d->pid,
			.flags = d->unprivileged ? UBLK_F_UNPRIVILEGED_DEV : 0,
			.ublksrv_flags = MARK,
		};
		return 0;
	case UBLK_U_CMD_STOP_DEV:
		assert_int_equal(q->with_path, d->unprivileged);
		d->state = UBLK_S_DEV_DEAD;
		return d->stop_error;
	case UBLK_U_CMD_DEL_DEV_ASYNC:
		assert_false(d->unprivileged);
		if (d->no_async)
			return -EOPNOTSUPP;
		d->exists = false;
		return 0;
	case UBLK_U_CMD_DEL_DEV:
		d->exists = false;
		return 0;
	}
	return -EINVAL;
}

static void answer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	struct waiting *w = container_of(timer, struct waiting, timer);
	struct ctl_cmd *cmd = w->cmd;

	(void)loop, (void)events;
	w->used = false;
	cmd->op.state = OP_IDLE;
	cmd->done(cmd, execute(&cmd->request));
}

static void plan_answer(struct ctl_cmd *cmd)
{
	struct waiting *w = waiting;

	while (w->used)
		w++;
	w->used = true;
	w->cmd = cmd;
	ev_timer_init(&w->timer, answer, 0.001, 0.);
	ev_timer_start(ev, &w->timer);
}

int ctl_cmd_init(struct ctl_cmd *cmd, struct ctl *ctl)
{
	*cmd = (struct ctl_cmd){ .ctl = ctl };
	return 0;
}

void ctl_cmd_fini(struct ctl_cmd *cmd)
{
	cmd->ctl = NULL;
}

void ctl_cmd_send(struct ctl_cmd *cmd, const struct ctl_request *request, ctl_cmd_fn *done)
{
	struct driver *d = &driver[request->dev_id % ID_NR];

	cmd->request = *request;
	cmd->done = done;
	cmd->op.state = OP_IDLE + 1;
	if (d->hangs && request->cmd_op == UBLK_U_CMD_STOP_DEV)
		d->owed = cmd;
	else
		plan_answer(cmd);
}

bool ctl_cmd_busy(const struct ctl_cmd *cmd)
{
	return cmd->op.state != OP_IDLE;
}

const char *ctl_cmd_name(uint32_t cmd_op)
{
	return cmd_op == UBLK_U_CMD_STOP_DEV ? "STOP_DEV" : "OTHER";
}

const char *ctl_explain(uint32_t cmd_op, int err)
{
	(void)cmd_op, (void)err;
	return "";
}

/* ---- the test's side ---- */

static struct ctl ctl;
static struct outcome {
	unsigned calls;
	size_t nr;
	enum gc_step step[ID_NR];
	char error[ID_NR][GC_TEXT_BYTES];
	int pid[ID_NR];
} outcome;

static void on_done(struct gc_job *job, const struct gc_device *devices, size_t nr, void *arg)
{
	(void)job;
	assert_ptr_equal(arg, &outcome);
	outcome.calls++;
	outcome.nr = nr;
	for (size_t i = 0; i < nr; i++) {
		unsigned id = devices[i].id % ID_NR;

		outcome.step[id] = devices[i].step;
		outcome.pid[id] = devices[i].info.ublksrv_pid;
		snprintf(outcome.error[id], GC_TEXT_BYTES, "%s", devices[i].error);
	}
}

static void node_path(char *path, size_t bytes, unsigned id)
{
	snprintf(path, bytes, "%s/ublkc%u", folder, id);
}

/* Old: was made long ago. */
static void make(unsigned id, unsigned state, int pid)
{
	char path[64];

	node_path(path, sizeof(path), id);
	close(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
	driver[id] = (struct driver){ .exists = true, .state = state, .pid = pid };
}

/* Long: who has a device open is looked for in all of /proc, on a machine that may be busy. */
static double deadline_seconds = 60;

static struct gc_job *start(bool remove, const unsigned *ids, size_t id_nr)
{
	struct gc_params params = {
		.ev = ev,
		.ctl = &ctl,
		.device_set = &device_set,
		.folder = folder,
		.seconds = deadline_seconds,
		.remove = remove,
		.ids = ids,
		.id_nr = id_nr,
		.done = on_done,
		.arg = &outcome,
	};
	struct gc_job *job;

	outcome = (struct outcome){ 0 };
	assert_int_equal(gc_start(&job, &params), 0);
	assert_int_equal(outcome.calls, 0);
	return job;
}

static void run_for(double seconds)
{
	double until = ev_time() + seconds;

	while (ev_time() < until && (outcome.calls == 0 || gc_busy())) {
		ev_run(ev, EVRUN_NOWAIT);
		usleep(500);
	}
}

static void gc(bool remove, const unsigned *ids, size_t id_nr)
{
	start(remove, ids, id_nr);
	run_for(50);
	assert_int_equal(outcome.calls, 1);
	assert_false(gc_busy());
}

static void test_nothing(void **state)
{
	(void)state;
	gc(false, NULL, 0);
	assert_int_equal(outcome.nr, 0);
}

static void test_list_changes_nothing(void **state)
{
	(void)state;
	make(1, UBLK_S_DEV_DEAD, dead_pid);
	make(2, UBLK_S_DEV_QUIESCED, dead_pid);
	make(3, UBLK_S_DEV_LIVE, dead_pid);
	gc(false, NULL, 0);
	assert_int_equal(outcome.nr, 3);
	for (unsigned id = 1; id <= 3; id++) {
		assert_int_equal(outcome.step[id], GC_LISTED);
		assert_int_equal(outcome.pid[id], dead_pid);
		assert_true(driver[id].exists);
	}
	assert_int_equal(driver[3].state, UBLK_S_DEV_LIVE);
}

static void test_remove(void **state)
{
	(void)state;
	make(1, UBLK_S_DEV_QUIESCED, dead_pid);
	make(2, UBLK_S_DEV_FAIL_IO, dead_pid);
	driver[2].no_async = true;
	gc(true, NULL, 0);
	assert_int_equal(outcome.step[1], GC_REMOVED);
	assert_int_equal(outcome.step[2], GC_REMOVED);
	assert_false(driver[1].exists || driver[2].exists);
}

/* Users' devices are asked and removed by path; those of others are for them to remove. */
static void test_users_devices(void **state)
{
	unsigned ids[] = { 2 };

	(void)state;
	make(1, UBLK_S_DEV_DEAD, dead_pid);
	make(2, UBLK_S_DEV_DEAD, dead_pid);
	driver[1].unprivileged = true;
	driver[2].of_others = true;
	gc(true, NULL, 0);
	assert_int_equal(outcome.step[1], GC_REMOVED);
	assert_int_equal(outcome.step[2], GC_SKIPPED);
	gc(true, ids, 1);
	assert_int_equal(outcome.step[2], GC_FAILED);
	assert_true(driver[2].exists);
}

static void test_remove_by_id(void **state)
{
	unsigned ids[] = { 2, 5 };

	(void)state;
	make(1, UBLK_S_DEV_DEAD, dead_pid);
	make(2, UBLK_S_DEV_DEAD, dead_pid);
	gc(true, ids, 2);
	assert_int_equal(outcome.nr, 2);
	assert_int_equal(outcome.step[2], GC_REMOVED);
	assert_int_equal(outcome.step[5], GC_FAILED);
	assert_true(driver[1].exists);
}

/* A process that has the node open serves it, whatever the driver knows of it. */
static void test_open_nodes_are_served(void **state)
{
	unsigned ids[] = { 1 };
	char path[64], words[64];
	int fd;

	(void)state;
	make(1, UBLK_S_DEV_DEAD, dead_pid);
	node_path(path, sizeof(path), 1);
	fd = open(path, O_RDWR | O_CLOEXEC);
	gc(true, NULL, 0);
	assert_int_equal(outcome.step[1], GC_SKIPPED);
	gc(true, ids, 1);
	close(fd);
	assert_int_equal(outcome.step[1], GC_REFUSED);
	snprintf(words, sizeof(words), "is served by the living process %d", getpid());
	assert_string_equal(outcome.error[1], words);
	assert_true(driver[1].exists);
}

static void test_live_with_a_living_pid(void **state)
{
	unsigned ids[] = { 1 };

	(void)state;
	make(1, UBLK_S_DEV_LIVE, getppid());
	gc(true, ids, 1);
	assert_int_equal(outcome.step[1], GC_REFUSED);
	assert_non_null(strstr(outcome.error[1], "lives, though"));
	assert_true(driver[1].exists);
	/* A number that somebody else has by now does not save a dead device. */
	driver[1].state = UBLK_S_DEV_QUIESCED;
	gc(true, ids, 1);
	assert_int_equal(outcome.step[1], GC_REMOVED);
}

/* Between ADD_DEV and open nobody can be seen. */
static void test_young_ones_may_be_starting(void **state)
{
	unsigned ids[] = { 1 };

	(void)state;
	make(1, UBLK_S_DEV_DEAD, -1);
	gc(true, ids, 1);
	assert_int_equal(outcome.step[1], GC_REFUSED);
	assert_string_equal(outcome.error[1], "was made a moment ago, and may be starting");
}

static void test_own_devices(void **state)
{
	struct config_errors e;
	struct settings s;
	static const char yaml[] = "{name: a, id: 4, backend: {type: mem, size: 1M}}";

	(void)state;
	make(4, UBLK_S_DEV_DEAD, dead_pid);
	config_errors_init(&e, "f");
	assert_int_equal(settings_parse_devices(&s, yaml, strlen(yaml), &e), 0);
	config_errors_fini(&e);
	device_set_add(&device_set, settings_take(&s, 0), false);
	settings_free(&s);
	gc(true, NULL, 0);
	assert_int_equal(outcome.step[4], GC_SKIPPED);
	assert_true(driver[4].exists);
}

static bool named(const struct ublksrv_ctrl_dev_info *info, void *arg)
{
	assert_ptr_equal(arg, &outcome);
	return info->dev_id == 1 && info->ublksrv_flags == MARK;
}

static void test_named_ones(void **state)
{
	struct gc_params params = {
		.ev = ev,
		.ctl = &ctl,
		.device_set = &device_set,
		.is_named = named,
		.folder = folder,
		.seconds = deadline_seconds,
		.remove = true,
		.done = on_done,
		.arg = &outcome,
	};
	struct gc_job *job;

	(void)state;
	make(1, UBLK_S_DEV_QUIESCED, dead_pid);
	make(2, UBLK_S_DEV_QUIESCED, dead_pid);
	outcome = (struct outcome){ 0 };
	assert_int_equal(gc_start(&job, &params), 0);
	run_for(50);
	assert_int_equal(outcome.step[1], GC_SKIPPED);
	assert_int_equal(outcome.step[2], GC_REMOVED);
}

/* One that does not answer is told at the deadline, and keeps nobody else waiting. */
static void test_one_hangs(void **state)
{
	(void)state;
	make(1, UBLK_S_DEV_QUIESCED, dead_pid);
	make(2, UBLK_S_DEV_QUIESCED, dead_pid);
	driver[1].hangs = true;
	deadline_seconds = 3;
	start(true, NULL, 0);
	deadline_seconds = 60;
	while (outcome.calls == 0)
		run_for(0.1);
	assert_int_equal(outcome.calls, 1);
	assert_int_equal(outcome.step[1], GC_FAILED);
	assert_string_equal(outcome.error[1], "STOP_DEV has not answered for 3 s; ask again later");
	assert_int_equal(outcome.step[2], GC_REMOVED);
	assert_true(gc_busy());
	plan_answer(driver[1].owed);
	run_for(50);
	/* The answer came, and nothing more is done about it. */
	assert_false(gc_busy());
	assert_true(driver[1].exists);
}

static void test_refused_stop(void **state)
{
	(void)state;
	make(1, UBLK_S_DEV_QUIESCED, dead_pid);
	driver[1].stop_error = -EPERM;
	gc(true, NULL, 0);
	assert_int_equal(outcome.step[1], GC_FAILED);
	assert_string_equal(outcome.error[1], "STOP_DEV failed: EPERM");
	assert_true(driver[1].exists);
}

static void test_cancel(void **state)
{
	(void)state;
	make(1, UBLK_S_DEV_QUIESCED, dead_pid);
	gc_cancel(start(true, NULL, 0));
	while (gc_busy())
		run_for(0.01);
	run_for(0.05);
	assert_int_equal(outcome.calls, 0);
	assert_false(gc_busy());
	assert_true(driver[1].exists);
}

static int setup(void **state)
{
	(void)state;
	device_set_init(&device_set, ev, &host, NS_PER_SEC);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	device_set_stop_all(&device_set);
	while (ev_is_active(&device_set.sweep) || fake_pending())
		ev_run(ev, EVRUN_ONCE | EVRUN_NOWAIT);
	device_set_fini(&device_set);
	for (unsigned id = 0; id < ID_NR; id++) {
		char path[64];

		node_path(path, sizeof(path), id);
		unlink(path);
		driver[id] = (struct driver){ 0 };
	}
	return 0;
}

/* The id of a process that was, and whose number nobody has yet. */
static int group_setup(void **state)
{
	(void)state;
	dead_pid = fork();
	if (dead_pid == 0)
		_exit(0);
	waitpid(dead_pid, NULL, 0);
	return mkdtemp(folder) ? 0 : -1;
}

static int group_teardown(void **state)
{
	(void)state;
	return rmdir(folder);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_nothing),
		TEST(test_list_changes_nothing),
		TEST(test_remove),
		TEST(test_users_devices),
		TEST(test_remove_by_id),
		TEST(test_open_nodes_are_served),
		TEST(test_live_with_a_living_pid),
		TEST(test_young_ones_may_be_starting),
		TEST(test_own_devices),
		TEST(test_named_ones),
		TEST(test_one_hangs),
		TEST(test_refused_stop),
		TEST(test_cancel),
	};

	log_init(LOG_LEVEL_ERROR);
	ev = ev_default_loop(0);
	return cmocka_run_group_tests_name("gc", tests, group_setup, group_teardown);
}
