/*
 * Words for commands of ublk servers and their results. What the driver means by an errno is from
 * drivers/block/ublk_drv.c of Linux 6.12 and 7.2.
 *
 * Happy path: a line for each record. Failure modes: numbers without a name are printed as such.
 */
#include "ublktrace/control/control_text.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <time.h>

#include "base/errname.h"
#include "base/printable.h"
#include "base/util.h"
#include "ublktrace/events/names.h"

#define UNKNOWN UINT32_MAX

enum {
	ANY = 0,
	ADD_DEV = 0x04,
	DEL_DEV = 0x05,
	START_DEV = 0x06,
	STOP_DEV = 0x07,
	SET_PARAMS = 0x08,
	START_RECOVERY = 0x10,
	END_RECOVERY = 0x11,
	GET_FEATURES = 0x13,
	QUIESCE_DEV = 0x16,
	TRY_STOP_DEV = 0x17,
	FETCH = 0x20,
	COMMIT = 0x21,
};

static const struct words {
	uint8_t nr; /* of the command; ANY: of any control command */
	int err;
	const char *text;
} words[] = {
	{ ADD_DEV, EEXIST,
	  "a device with this id exists: choose another id, or delete the device" },
	{ ADD_DEV, EACCES, "the limit of ublk devices is reached (module parameter ublks_max)" },
	{ ADD_DEV, EINVAL, "the driver refuses these queues, depth, buffer size or flags" },
	{ SET_PARAMS, EINVAL, "the driver refuses the block sizes or limits" },
	{ SET_PARAMS, EACCES, "the device is live already" },
	{ START_DEV, EEXIST, "the device is started already" },
	{ START_DEV, EINVAL,
	  "SET_PARAMS is missing, or the pid in data[0] is not the process that fetches" },
	{ START_DEV, EINTR, "waiting for FETCH_REQ of all tags was interrupted" },
	{ TRY_STOP_DEV, EBUSY, "a process has the device open" },
	{ START_RECOVERY, EBUSY, "the driver has not released the dead server yet" },
	{ START_RECOVERY, EINVAL,
	  "the device was not created with UBLK_F_USER_RECOVERY, or is not dead" },
	{ END_RECOVERY, EINVAL, "the driver does not accept this process as the server" },
	{ GET_FEATURES, EOPNOTSUPP, "the driver is older than Linux 6.5" },
	{ FETCH, EINVAL,
	  "no such queue or tag, another thread owns the queue, or the buffer address is wrong (it "
	  "must "
	  "be 0 with UBLK_F_USER_COPY and set without it): this tag will never get an I/O" },
	{ FETCH, EBUSY,
	  "this tag is fetched already, or its queue is ready: FETCH_REQ is sent once" },
	{ FETCH, ENODEV, "the device is stopped or deleted" },
	{ FETCH, EOPNOTSUPP, "the driver requires ioctl-encoded commands (UBLK_U_IO_*)" },
	{ COMMIT, EINVAL, "the server does not own this tag, or the buffer address is wrong" },
	{ COMMIT, ENODEV, "the device is stopped or deleted" },
	{ ANY, ENODEV, "there is no such device, or it was deleted" },
	{ ANY, EPERM, "no permission: CAP_SYS_ADMIN, or the owner of an unprivileged device" },
	{ ANY, EACCES, "no permission for this device" },
	{ ANY, EINVAL,
	  "the driver refuses the arguments: was the ring created with IORING_SETUP_SQE128?" },
	{ ANY, EOPNOTSUPP, "the driver does not know this command, or requires it ioctl-encoded" },
	{ ANY, EINTR, "it was interrupted" },
};

const char *control_words(const struct control_event *e)
{
	uint8_t nr = e->cmd_op & 0xff;

	if (e->type == CONTROL_BEGIN || e->res >= 0)
		return "";
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (words[i].err == -e->res &&
		    (words[i].nr == nr || (words[i].nr == ANY && nr < FETCH)))
			return words[i].text;
	return "";
}

const char *control_waits_for(const struct control_event *e)
{
	switch (e->cmd_op & 0xff) {
	case START_DEV:
		return "the driver waits until every tag of every queue has its FETCH_REQ; failed "
		       "ones are printed here";
	case END_RECOVERY:
		return "the driver waits until the new server has fetched every tag";
	case DEL_DEV:
		return "the driver waits until /dev/ublkcN and /dev/ublkbN are closed by all "
		       "processes";
	case STOP_DEV:
	case TRY_STOP_DEV:
	case QUIESCE_DEV:
		return "the driver waits for I/O that the server has not committed";
	default:
		return "";
	}
}

const char *control_name(const struct control_event *e, char *buf, size_t bytes)
{
	const char *name =
		e->type == CONTROL_DATA ? name_ublk_io(e->cmd_op) : name_ublk_ctrl(e->cmd_op);

	if (name)
		return name;
	snprintf(buf, bytes, "ublk command 0x%x", e->cmd_op);
	return buf;
}

static const char *control_data_device(const struct control_event *e, char *buf, size_t bytes)
{
	int n = snprintf(buf, bytes, "%.16s", e->file);

	if (e->queue != UNKNOWN && (size_t)n < bytes)
		snprintf(buf + n, bytes - (size_t)n, " queue %u tag %u", e->queue, e->tag);
	return buf;
}

const char *control_device(const struct control_event *e, char *buf, size_t bytes)
{
	if (e->type == CONTROL_DATA)
		return control_data_device(e, buf, bytes);
	if (e->new_id != UNKNOWN)
		snprintf(buf, bytes, "new dev %u", e->new_id);
	else if (e->dev_id == UNKNOWN)
		snprintf(buf, bytes, "%s", (e->cmd_op & 0xff) == ADD_DEV ? "any dev" : "-");
	else
		snprintf(buf, bytes, "dev %u", e->dev_id);
	return buf;
}

const char *control_where(const struct control_event *e, char *buf, size_t bytes)
{
	const char *first = "";

	if (e->type == CONTROL_DATA) {
		snprintf(buf, bytes, "-");
		return buf;
	}
	if (e->first_ret == -EAGAIN && e->queued_ns)
		first = ", EAGAIN in-line";
	if (e->worker)
		snprintf(buf, bytes, "iou-wrk %u%s", e->worker, first);
	else
		snprintf(buf, bytes, "%s%s", e->queued_ns ? "io-wq" : "in-line", first);
	return buf;
}

#define COMM_TEXT_BYTES (PRINTABLE_GROWTH * 16 + 1)

/* The name that a process gave itself: any bytes, of which neither a terminal nor JSON takes all.
 */
static const char *control_comm(const struct control_event *e, char buf[static COMM_TEXT_BYTES])
{
	return printable(buf, COMM_TEXT_BYTES, e->comm, strnlen(e->comm, sizeof(e->comm)));
}

static void control_print_time(FILE *out, uint64_t time_ns, int64_t wall_offset_ns)
{
	int64_t wall_ns = (int64_t)time_ns + wall_offset_ns;
	time_t seconds = wall_ns / (int64_t)NS_PER_SEC;
	char text[32] = "";
	struct tm tm;

	if (localtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%H:%M:%S", &tm);
	fprintf(out, "%s.%06u", text, (unsigned)(wall_ns % (int64_t)NS_PER_SEC / 1000));
}

static uint64_t control_took_ns(const struct control_event *e)
{
	return e->submit_ns && e->time_ns > e->submit_ns ? e->time_ns - e->submit_ns : 0;
}

static void control_print_result(FILE *out, const struct control_event *e, bool colour)
{
	const char *text = control_words(e);

	if (e->type == CONTROL_BEGIN) {
		text = control_waits_for(e);
		fprintf(out, " has not completed after %.1f s%s%s\n",
			(double)control_took_ns(e) / 1e9, text[0] ? ": " : "", text);
		return;
	}
	if (e->res >= 0)
		fprintf(out, " = %d", e->res);
	else
		fprintf(out, " = %s%s%s", colour ? "\033[31m" : "", errname(e->res),
			colour ? "\033[0m" : "");
	if (e->submit_ns)
		fprintf(out, ", %.3f ms", (double)control_took_ns(e) / 1e6);
	fprintf(out, "%s%s", text[0] ? ": " : "", text);
}

void control_print(FILE *out, const struct control_event *e, int64_t wall_offset_ns, unsigned more,
		   bool colour)
{
	char name[CONTROL_TEXT_BYTES], device[64], where[64], process[COMM_TEXT_BYTES + 12],
		comm[COMM_TEXT_BYTES];

	control_print_time(out, e->time_ns, wall_offset_ns);
	snprintf(process, sizeof(process), "%s/%u", control_comm(e, comm), e->pid);
	fprintf(out, " %-16s %-22s %-10s %s", process, control_name(e, name, sizeof(name)),
		control_device(e, device, sizeof(device)), control_where(e, where, sizeof(where)));
	control_print_result(out, e, colour);
	if (e->type == CONTROL_BEGIN)
		return;
	if (more)
		fprintf(out, " (and %u more like it)", more);
	putc('\n', out);
}

void control_print_json(FILE *out, const struct control_event *e, int64_t wall_offset_ns,
			unsigned more)
{
	char name[CONTROL_TEXT_BYTES], where[64], comm[COMM_TEXT_BYTES];
	bool data = e->type == CONTROL_DATA, ended = e->type != CONTROL_BEGIN;
	uint32_t dev = e->new_id != UNKNOWN ? e->new_id : e->dev_id;
	json_int_t wall_ns = (json_int_t)e->time_ns + wall_offset_ns;
	const char *text = ended ? control_words(e) : control_waits_for(e);
	json_t *o = json_pack("{sI ss sI ss sb sI ss*}", "time_ns", wall_ns, "process",
			      control_comm(e, comm), "pid", (json_int_t)e->pid, "command",
			      control_name(e, name, sizeof(name)), "ended", ended, "took_ns",
			      (json_int_t)control_took_ns(e), "words", text[0] ? text : NULL);

	if (!o)
		return;
	if (data)
		sscanf(e->file, "ublkc%u", &dev);
	if (dev != UNKNOWN)
		json_object_set_new(o, "device", json_integer(dev));
	if (data && e->queue != UNKNOWN) {
		json_object_set_new(o, "queue", json_integer(e->queue));
		json_object_set_new(o, "tag", json_integer(e->tag));
	}
	if (!data)
		json_object_set_new(o, "where",
				    json_string(control_where(e, where, sizeof(where))));
	if (e->worker)
		json_object_set_new(o, "worker", json_integer(e->worker));
	if (ended) {
		json_object_set_new(o, "result", json_integer(e->res));
		json_object_set_new(o, "errno", json_string(e->res < 0 ? errname(e->res) : ""));
	}
	if (more)
		json_object_set_new(o, "more", json_integer(more));
	json_dumpf(o, out, JSON_COMPACT);
	putc('\n', out);
	json_decref(o);
}
