/*
 * Gives the nodes of an unprivileged device to the user who made it. Run by udev, as root, for each
 * event of a ublk node: without --set it says whose the device is, with --set it changes the node.
 * Asks no daemon.
 *
 * Happy path: the node is opened without being used (O_PATH), the driver says who owns the device
 * of that number, and the node behind the descriptor is changed. In this order: when the device is
 * removed meanwhile and another made with its number, devtmpfs has made another node, and what is
 * changed is the removed one. Failure modes: no such device, or one of root's: nothing is done,
 * exit code 1.
 */
#include "ublkctl/ctl_commands.h"
#include "ublkctl/print/say.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/util.h"
#include "daemon/runtime/loop.h"
#include "ublk/control.h"

#define OWNER_TIMEOUT_NS (10 * NS_PER_SEC)
#define OWNER_MODE 0600

struct owner_question {
	struct loop loop;
	struct ctl ctl;
	struct ctl_cmd cmd;
	struct ublksrv_ctrl_dev_info info;
	bool answered;
	int result;
};

/* "ublkb3", "/dev/ublkc3" -> 3 and whether it is the block device; -1: it is not called so. */
static long long owner_node_id(const char *node, bool *ret_block)
{
	long long id;
	char *end;

	if (strncmp(node, "/dev/", 5) == 0)
		node += 5;
	*ret_block = strncmp(node, "ublkb", 5) == 0;
	if ((!*ret_block && strncmp(node, "ublkc", 5) != 0) || !isdigit((unsigned char)node[5]))
		return -1;
	errno = 0;
	id = strtoll(node + 5, &end, 10);
	return errno || *end || id > INT32_MAX ? -1 : id;
}

/* ---- the driver ---- */

static void on_owner_features(struct ctl *ctl, int res)
{
	struct owner_question *q = container_of(ctl, struct owner_question, ctl);

	q->answered = true;
	q->result = res;
}

static void on_owner_info(struct ctl_cmd *cmd, int res)
{
	struct owner_question *q = container_of(cmd, struct owner_question, cmd);

	q->answered = true;
	q->result = res;
}

static int owner_wait(struct owner_question *q)
{
	if (!loop_run_until(&q->loop, &q->answered, OWNER_TIMEOUT_NS))
		return -ETIMEDOUT;
	q->answered = false;
	return q->result;
}

/* Static: after a timeout the driver may still write to it. What it holds the end of us closes. */
static struct owner_question question;

static int ask_owner(uint32_t id, struct ublksrv_ctrl_dev_info *ret_info)
{
	struct owner_question *q = &question;
	struct ctl_request request = {
		.cmd_op = UBLK_U_CMD_GET_DEV_INFO2,
		.dev_id = id,
		.queue_id = -1,
		.buf = &q->info,
		.buf_bytes = sizeof(q->info),
		.with_path = true,
	};
	int ret = loop_init(&q->loop);

	if (ret == 0)
		ret = ctl_open(&q->ctl, &q->loop.control, on_owner_features);
	if (ret == 0)
		ret = owner_wait(q);
	if (ret == 0)
		ret = ctl_cmd_init(&q->cmd, &q->ctl);
	if (ret < 0)
		return ret;
	ctl_cmd_send(&q->cmd, &request, on_owner_info);
	ret = owner_wait(q);
	*ret_info = q->info;
	return ret;
}

/* ---- the node ---- */

/* As the kernel calls it: of the node that udev tells of, where it says so. */
static bool is_node_of_event(const struct stat *st)
{
	const char *major_text = getenv("MAJOR"), *minor_text = getenv("MINOR");

	if (!major_text || !minor_text)
		return true;
	return strtoul(major_text, NULL, 10) == major(st->st_rdev) &&
	       strtoul(minor_text, NULL, 10) == minor(st->st_rdev);
}

/* Returns a descriptor, or -errno. */
static int open_node(long long id, bool block)
{
	char path[32];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/dev/ublk%c%lld", block ? 'b' : 'c', id);
	fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && (block ? S_ISBLK(st.st_mode) : S_ISCHR(st.st_mode)) &&
	    is_node_of_event(&st))
		return fd;
	close(fd);
	return -ENODEV;
}

/* The mode first: others must lose access before the owner can do anything. */
static int give_node(int fd, const struct ublksrv_ctrl_dev_info *info)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (chmod(path, OWNER_MODE) < 0 ||
	    fchownat(fd, "", info->owner_uid, info->owner_gid, AT_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

enum exit_code ublkctl_udev_owner(const struct ublkctl_args *a)
{
	struct ublksrv_ctrl_dev_info info = { 0 };
	bool block;
	long long id = owner_node_id(a->name, &block);
	int fd = id < 0 ? -ENODEV : open_node(id, block);
	int ret = fd < 0 ? fd : ask_owner((uint32_t)id, &info);

	if (ret == 0 && !(info.flags & UBLK_F_UNPRIVILEGED_DEV))
		return EXIT_REFUSED; /* root's: as udev has it */
	if (ret == 0 && a->set)
		ret = give_node(fd, &info);
	if (ret < 0) {
		say_to(stderr, "ublkctl: %s: %s\n", a->name, errname(ret));
		return EXIT_REFUSED;
	}
	if (!a->set)
		say_to(stdout, "%u:%u\n", info.owner_uid, info.owner_gid);
	return EXIT_DONE;
}
