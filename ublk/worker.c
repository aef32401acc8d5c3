/*
 * Control commands run in worker threads of io_uring, which belong to this process: their kernel
 * stacks tell where a command that does not come back waits. Any thread; owns nothing.
 *
 * Happy path: of the tasks of /proc/self named "iou-wrk-...", the one whose stack has the driver's
 * function for the command: its first line is where it waits. Failure modes: the stack may be read
 * by root alone (-EACCES or -EPERM), or not be built into the kernel (-ENOENT).
 */
#include "ublk/worker.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/util.h"
#include "ublk/ublk_abi.h"

/*
 * Functions of drivers/block/ublk_drv.c that only this command runs. Some are inlined into
 * ublk_ctrl_uring_cmd: then that is all that can be seen, and enough when no other stack fits
 * better.
 */
static const struct {
	uint32_t cmd_op;
	const char *functions[4];
} runs[] = {
	{ UBLK_U_CMD_ADD_DEV, { "ublk_ctrl_add_dev", "ublk_add_tag_set" } },
	{ UBLK_U_CMD_DEL_DEV, { "ublk_ctrl_del_dev", "ublk_remove" } },
	{ UBLK_U_CMD_DEL_DEV_ASYNC, { "ublk_ctrl_del_dev", "ublk_remove" } },
	{ UBLK_U_CMD_START_DEV, { "ublk_ctrl_start_dev" } },
	{ UBLK_U_CMD_STOP_DEV, { "ublk_ctrl_stop_dev", "ublk_stop_dev" } },
	{ UBLK_U_CMD_TRY_STOP_DEV, { "ublk_ctrl_try_stop_dev", "ublk_stop_dev" } },
	{ UBLK_U_CMD_SET_PARAMS, { "ublk_ctrl_set_params" } },
	{ UBLK_U_CMD_UPDATE_SIZE, { "ublk_ctrl_set_size" } },
	{ UBLK_U_CMD_START_USER_RECOVERY, { "ublk_ctrl_start_recovery" } },
	{ UBLK_U_CMD_END_USER_RECOVERY, { "ublk_ctrl_end_recovery" } },
	{ UBLK_U_CMD_QUIESCE_DEV, { "ublk_ctrl_quiesce_dev" } },
};

#define DISPATCHER "ublk_ctrl_uring_cmd"

/* "ublk_ctrl_del_dev.isra.0" is ublk_ctrl_del_dev. */
static bool is_function(const char *name, const char *function)
{
	size_t len = strlen(function);

	return strncmp(name, function, len) == 0 && (name[len] == '\0' || name[len] == '.');
}

static bool is_of(const char *name, uint32_t cmd_op)
{
	for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
		if (runs[i].cmd_op != cmd_op)
			continue;
		for (size_t k = 0; k < ARRAY_SIZE(runs[i].functions); k++)
			if (runs[i].functions[k] && is_function(name, runs[i].functions[k]))
				return true;
	}
	return false;
}

/* Lines: "[<0>] ublk_ctrl_del_dev+0x1f4/0x240 [ublk_drv]", the innermost first. */
static bool read_line(FILE *stack, char name[static 64])
{
	char line[256];

	while (fgets(line, sizeof(line), stack))
		if (sscanf(line, "[<%*x>] %63[^+ \n]", name) == 1)
			return true;
	return false;
}

struct frames {
	char first[64], driver[64]; /* the innermost; the innermost of the driver */
	bool of_command, of_driver;
};

static void read_frames(FILE *stack, uint32_t cmd_op, struct frames *f)
{
	char name[64];

	*f = (struct frames){ 0 };
	while (read_line(stack, name)) {
		if (f->first[0] == '\0')
			memcpy(f->first, name, sizeof(name));
		if (f->driver[0] == '\0' && strncmp(name, "ublk_", 5) == 0)
			memcpy(f->driver, name, sizeof(name));
		f->of_command |= is_of(name, cmd_op);
		f->of_driver |= is_function(name, DISPATCHER);
	}
}

static void say(const struct frames *f, char text[static WORKER_TEXT_BYTES])
{
	if (strcmp(f->first, f->driver) == 0)
		snprintf(text, WORKER_TEXT_BYTES, "%s", f->first);
	else
		snprintf(text, WORKER_TEXT_BYTES, "%s, called by %s", f->first, f->driver);
}

int worker_read_stack(FILE *stack, uint32_t cmd_op, char text[static WORKER_TEXT_BYTES])
{
	struct frames f;

	text[0] = '\0';
	read_frames(stack, cmd_op, &f);
	if (!f.of_command && !f.of_driver)
		return -ENOENT;
	say(&f, text);
	return f.of_command ? 0 : 1;
}

int worker_thread_where(int tid, char text[static WORKER_TEXT_BYTES])
{
	char path[64], name[64], caller[64];
	FILE *stack;

	text[0] = '\0';
	if (tid == 0)
		return -ESRCH;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stack", tid);
	stack = fopen(path, "re");
	if (!stack)
		return -errno;
	if (read_line(stack, name) && read_line(stack, caller))
		snprintf(text, WORKER_TEXT_BYTES, "%s, called by %s", name, caller);
	fclose(stack);
	return text[0] ? 0 : -ENOENT;
}

static bool is_worker(const char *task)
{
	char path[64], comm[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", task);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (!fgets(comm, sizeof(comm), file))
		comm[0] = '\0';
	fclose(file);
	return strncmp(comm, "iou-wrk-", 8) == 0;
}

/* As worker_read_stack. */
static int worker_look_at(const char *task, uint32_t cmd_op, char text[static WORKER_TEXT_BYTES])
{
	char path[64];
	FILE *stack;
	int ret;

	snprintf(path, sizeof(path), "/proc/self/task/%.16s/stack", task);
	stack = fopen(path, "re");
	if (!stack)
		return -errno;
	errno = 0;
	ret = worker_read_stack(stack, cmd_op, text);
	if (ret < 0 && ferror(stack))
		ret = errno ? -errno : -EIO;
	fclose(stack);
	return ret;
}

int worker_where(uint32_t cmd_op, char text[static WORKER_TEXT_BYTES])
{
	char one[WORKER_TEXT_BYTES];
	DIR *dir = opendir("/proc/self/task");
	const struct dirent *entry;
	int best = -ENOENT;

	text[0] = '\0';
	while (dir && best != 0 && (entry = readdir(dir))) {
		int ret = is_worker(entry->d_name) ? worker_look_at(entry->d_name, cmd_op, one)
						   : -ENOENT;

		if (ret >= 0)
			memcpy(text, one, sizeof(one));
		/* Surely this command, then one that may be it, then a reason why not. */
		if (ret >= 0 || (best < 0 && ret != -ENOENT && ret != -ESRCH))
			best = ret;
	}
	if (dir)
		closedir(dir);
	return best > 0 ? 0 : best;
}
