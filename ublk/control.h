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

struct ctl {
	struct reactor *reactor;
	int fd;		   /* /dev/ublk-control */
	uint64_t features; /* GET_FEATURES: UBLK_F_* the driver knows */
};

struct ctl_cmd;
typedef void ctl_cmd_fn(struct ctl_cmd *cmd, int res);

/*
 * One command in flight, embedded in its owner. The kernel may write to buf until done ran: the
 * owner and its buffer must live until then, however long it takes. A deadline that passes does not
 * end the command (nothing can); it is told by `late`, once per deadline.
 */
struct ctl_cmd {
	struct op op;
	struct timer deadline;
	struct ctl *ctl;
	uint32_t cmd_op; /* UBLK_U_CMD_* */
	struct ublksrv_ctrl_cmd arg;
	ctl_cmd_fn *done;
	void (*late)(struct ctl_cmd *cmd, uint64_t waited_ns);
	uint64_t sent_ns;
	uint64_t deadline_ns; /* relative */
};

#define CTL_DEADLINE_NS 30000000000ull

/*
 * Opens the control device and asks for the driver's features, calling done(res) once: 0, or
 * -errno. Returns 0 (done will come) or -errno at once: -ENOENT when the module is not loaded,
 * -EACCES without rights.
 */
int ctl_open(struct ctl *ctl, struct reactor *reactor, void (*done)(struct ctl *ctl, int res));
void ctl_close(struct ctl *ctl);

/* Prepares an idle command for one device: fills arg's header. Returns 0 or -ENOBUFS. */
int ctl_cmd_init(struct ctl_cmd *cmd, struct ctl *ctl);
void ctl_cmd_fini(struct ctl_cmd *cmd);

/*
 * Sends cmd_op for a device (queue_id -1: for no queue) with buf and data; done runs from a later
 * turn of the control reactor with the driver's answer.
 */
struct ctl_request {
	uint32_t cmd_op;
	uint32_t dev_id;
	int queue_id;
	void *buf;
	uint16_t buf_bytes;
	uint64_t data;
};
void ctl_cmd_send(struct ctl_cmd *cmd, const struct ctl_request *request, ctl_cmd_fn *done);
bool ctl_cmd_busy(const struct ctl_cmd *cmd);

/* "START_DEV" for UBLK_U_CMD_START_DEV. */
const char *ctl_cmd_name(uint32_t cmd_op);

/* What this errno of this command usually means and what to do, in words; "" when unknown. */
const char *ctl_explain(uint32_t cmd_op, int err);

/* "ZERO_COPY" for bit 0 ... ; NULL for a bit without a name. */
const char *ctl_feature_name(unsigned bit);

#endif
