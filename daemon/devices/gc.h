/*
 * Devices in the driver that nobody serves: found, and removed when somebody says so. Main thread;
 * nothing here waits, a job tells when it has ended.
 */
#ifndef DAEMON_DEVICES_GC_H
#define DAEMON_DEVICES_GC_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/devices/device_set.h"
#include "ublk/control.h"

#define GC_TEXT_BYTES 256

enum gc_step {
	GC_ASKING,
	GC_STOPPING,
	GC_DELETING,
	GC_SKIPPED, /* not an orphan, and not asked for by its id */
	GC_LISTED,
	GC_REMOVED,
	GC_REFUSED, /* not an orphan: error says why */
	GC_FAILED,  /* error says at which step */
};

struct gc_job;

struct gc_device {
	struct gc_job *job;
	struct ctl_cmd cmd;
	struct ublksrv_ctrl_dev_info info; /* as the driver answered */
	unsigned id;
	enum gc_step step;
	int holder;	     /* a process that has /dev/ublkcN open; 0: none seen */
	uint64_t size_bytes; /* 0: it has no disk any more */
	char users[GC_TEXT_BYTES], error[GC_TEXT_BYTES];
};

struct gc_params {
	struct ev_loop *ev;
	struct ctl *ctl;
	const struct device_set *device_set; /* what this daemon serves is no orphan */
	/* What the daemon knows and will take care of by itself is none either; NULL: nothing. */
	bool (*is_named)(const struct ublksrv_ctrl_dev_info *info, void *arg);
	const char *folder; /* of the nodes: "/dev" */
	double seconds;	    /* what has not answered by then is told as failed */
	bool remove;
	const unsigned *ids; /* these only; NULL: all */
	size_t id_nr;
	/* Once, from the loop, never from gc_start: devices are the job's, until this returns. */
	void (*done)(struct gc_job *job, const struct gc_device *devices, size_t nr, void *arg);
	void *arg;
};

/* Begins to look, and to remove. Returns 0 or -ENOMEM. */
int gc_start(struct gc_job **ret_job, const struct gc_params *params);

/* Nobody wants to hear of it any more; what is under way with the driver comes to its end. */
void gc_cancel(struct gc_job *job);

/* Commands of jobs are with the driver: the control reactor cannot be taken down. */
bool gc_busy(void);

#endif
