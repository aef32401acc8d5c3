/*
 * The ublk control device: commands to the driver as asynchronous uring_cmds on the control
 * reactor's ring. They run in io-wq threads of the kernel, may take long and, on some kernels, for
 * ever: nothing here ever waits. Main thread only.
 */
#ifndef UBLK_CONTROL_H
#define UBLK_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "reactor/reactor.h"
#include "ublk/ublk_abi.h"

struct ctl;
struct ctl_cmd;
typedef void ctl_cmd_fn(struct ctl_cmd *cmd, int res);

struct ctl_request {
	uint32_t cmd_op; /* UBLK_U_CMD_* */
	uint32_t dev_id;
	int queue_id; /* -1: not for a queue */
	void *buf;
	uint16_t buf_bytes;
	uint64_t data;
	bool with_path; /* the driver wants the path of /dev/ublkcN before buf: ctl_wants_path */
};

/* Before the payload, padded with NULs: all that dev_path_len counts. */
#define CTL_PATH_BYTES 32
#define CTL_PAYLOAD_BYTES_MAX 1024

/*
 * One command in flight, embedded in its owner. The kernel may write to buf until done ran: the
 * owner and its buffer must live until then, however long it takes. A deadline that passes does not
 * end the command (nothing can); `late` tells it, once per deadline.
 */
struct ctl_cmd {
	struct op op;
	struct timer deadline;
	struct ctl *ctl;
	struct ctl_request request;
	ctl_cmd_fn *done;
	void (*late)(struct ctl_cmd *cmd, uint64_t waited_ns); /* may be NULL */
	uint64_t sent_ns;
	unsigned char with_path[CTL_PATH_BYTES + CTL_PAYLOAD_BYTES_MAX]; /* what is sent then */
};

typedef void ctl_open_fn(struct ctl *ctl, int res);

struct ctl {
	struct reactor *reactor;
	int fd;		      /* /dev/ublk-control */
	uint64_t features;    /* GET_FEATURES: UBLK_F_* the driver knows */
	bool unprivileged;    /* set by the owner: ADD_DEV is refused without UNPRIVILEGED_DEV */
	uint64_t deadline_ns; /* a command that takes longer is told, again and again */
	struct ctl_cmd features_cmd;
	ctl_open_fn *opened;
};

#define CTL_DEADLINE_NS 30000000000ull

/*
 * Whether the driver notices by itself that a server has ended, whatever that had in its hands, and
 * makes the device ready for the next one (ublk_ch_release_work_fn, Linux 6.16; the flag is of the
 * same release). Older ones need help: old_driver.h and upgrade.c of the daemon.
 * ctl NULL: there is no driver to help.
 */
static inline bool ctl_notices_end(const struct ctl *ctl)
{
	return !ctl || (ctl->features & UBLK_F_QUIESCE);
}

/*
 * Opens the control device and asks for the driver's features, calling opened(res) once: 0, or
 * -errno. ctl->deadline_ns becomes CTL_DEADLINE_NS, and may be
 * changed. Returns 0 (opened will be called) or -errno at once: -ENOENT when the module is not
 * loaded, -EACCES without rights.
 */
int ctl_open(struct ctl *ctl, struct reactor *reactor, ctl_open_fn *opened);
void ctl_close(struct ctl *ctl);

/* Makes an idle command. Returns 0 or -ENOBUFS. */
int ctl_cmd_init(struct ctl_cmd *cmd, struct ctl *ctl);
/* The command must not be busy. Accepts a zeroed one. */
void ctl_cmd_fini(struct ctl_cmd *cmd);

/* Sends an idle command; done runs from a later turn of the control reactor with the answer. */
void ctl_cmd_send(struct ctl_cmd *cmd, const struct ctl_request *request, ctl_cmd_fn *done);
bool ctl_cmd_busy(const struct ctl_cmd *cmd);

/* How long it has not been answered; 0: it is idle. */
uint64_t ctl_cmd_waited_ns(const struct ctl_cmd *cmd);

/*
 * Whether commands to a device with these UBLK_F_* bring the path of its /dev/ublkcN: the driver
 * looks up who may read and write that node, root not excepted (ublk_ctrl_uring_cmd_permission).
 * GET_DEV_INFO2 brings it to any device, so that it can be asked without knowing the flags.
 */
static inline bool ctl_wants_path(uint64_t flags)
{
	return flags & UBLK_F_UNPRIVILEGED_DEV;
}

/* "START_DEV" for UBLK_U_CMD_START_DEV. */
const char *ctl_cmd_name(uint32_t cmd_op);

/* What this errno of this command usually means and what to do, in words; "" when unknown. */
const char *ctl_explain(uint32_t cmd_op, int err);

/* "ZERO_COPY" for bit 0 ... ; NULL for a bit without a name. */
const char *ctl_feature_name(unsigned bit);

#endif
