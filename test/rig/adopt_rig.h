/*
 * The notes of a dead daemon, a driver that is a table, and what adopt.c makes of both. Devices,
 * once adopted, are fake ones. Definitions: for one program, which is linked with --wrap=opendir
 * and --wrap=old_driver_clear_recovery.
 */
#ifndef TEST_RIG_ADOPT_RIG_H
#define TEST_RIG_ADOPT_RIG_H

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/handover/adopt.h"
#include "daemon/devices/device_notes.h"
#include "test/rig/device_set_rig.h"

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

static inline int delete_device(struct driver_device *d, bool is_async)
{
	if (is_async && !has_del_async)
		return -EOPNOTSUPP;
	if (d->del_result == 0) {
		d->there = false;
		deleted_nr++;
	}
	return d->del_result;
}

static inline int answer(const struct ctl_request *request)
{
	struct driver_device *d = &driver[request->dev_id];

	assert_int_equal(request->queue_id, -1);
	if (!d->there)
		return -ENODEV;
	if (request->cmd_op == UBLK_U_CMD_GET_PARAMS) {
		((struct ublk_params *)request->buf)->basic.dev_sectors = d->sectors;
		return d->sectors ? 0 : -EINVAL;
	}
	if (request->cmd_op != UBLK_U_CMD_GET_DEV_INFO2)
		return delete_device(d, request->cmd_op == UBLK_U_CMD_DEL_DEV_ASYNC);
	assert_true(request->with_path);
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

void __wrap_old_driver_clear_recovery(const struct ublksrv_ctrl_dev_info *info);
void __wrap_old_driver_clear_recovery(const struct ublksrv_ctrl_dev_info *info)
{
	assert_true(driver[info->dev_id].there);
	sweeps_nr++;
}

/* ---- what a dead daemon left ---- */

static inline void make_node(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dev_folder, name);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	close(fd);
}

/* The driver has a device; its number. */
static inline unsigned device(uint64_t mark, uint64_t flags, unsigned state)
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

static inline unsigned quiesced(const char *name)
{
	return device(OURS(name), REISSUE, UBLK_S_DEV_QUIESCED);
}

/* name or "name:depth" */
static inline void note(const char *name, enum state_phase phase, int64_t id)
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

static inline const char *note_path(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s.json", folder, name);
	return path;
}

static inline bool has_note(const char *name)
{
	return access(note_path(name), F_OK) == 0;
}

static inline int find(size_t found_nr)
{
	int ret = adoption_find(&adoption, &loop, &device_set, false);

	assert_int_equal(adoption.found_nr, found_nr);
	return ret;
}

/* All of a start: finds, adopts, and applies a configuration. */
static inline void start(size_t found_nr, const char *configured)
{
	assert_int_equal(find(found_nr), 0);
	adoption_begin(&adoption, &device_set);
	reload(configured);
	adoption_free(&adoption);
	run();
}

/* ---- */

static inline int adopt_setup(void **state)
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
	device_set.control = CONTROL;
	device_set.state = &notes;
	return 0;
}

static inline int adopt_teardown(void **state)
{
	char command[160];
	int ret;

	device_set_stop_all(&device_set);
	run();
	if (fake_find("slow"))
		fake_release("slow");
	ret = teardown(state);
	state_close(&notes);
	snprintf(command, sizeof(command), "rm -rf %s %s", folder, dev_folder);
	return system(command) == 0 ? ret : -1;
}

#define ADOPT(fn) cmocka_unit_test_setup_teardown(fn, adopt_setup, adopt_teardown)

#endif
