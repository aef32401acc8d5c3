/*
 * The parts of the doctor that ask the kernel itself: a ring as the reactors make it, and the ublk
 * driver's features over a control ring of its own. Main thread of ublkctl.
 */
#include "ublkctl/doctor_driver.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/util.h"
#include "daemon/runtime/loop.h"
#include "host/caps.h"
#include "ublk/control.h"
#include "ublk/partition_scan.h"

#define ANSWER_TIMEOUT_NS (5 * NS_PER_SEC)

/* ---- io_uring ---- */

static const char *setup_cure(int err)
{
	switch (-err) {
	case ENOSYS:
		return "run a kernel with CONFIG_IO_URING";
	case EPERM:
	case EACCES:
		return "sysctl kernel.io_uring_disabled=0; in a container, its seccomp filter";
	case ENOMEM:
		return "raise the limit of locked memory: ulimit -l, LimitMEMLOCK";
	default:
		return "see errno(3)";
	}
}

void doctor_check_ring(void)
{
	struct ring_params params = {
		.sq_entries = 8, .cq_entries = 16, .files_nr = 8, .single_issuer = true
	};
	struct ring ring;
	int ret = ring_init(&ring, &params);

	if (ret < 0) {
		doctor_find(DOCTOR_FAIL, "io_uring", setup_cure(ret), "setup failed: %s",
			    errname(ret));
		return;
	}
	if (ring.uring.flags & IORING_SETUP_DEFER_TASKRUN)
		doctor_find(DOCTOR_OK, "io_uring", "", "works, with DEFER_TASKRUN");
	else
		doctor_find(DOCTOR_WARN, "io_uring", "run Linux 6.1 or newer",
			    "works, but without DEFER_TASKRUN: slower");
	ring_fini(&ring);
}

/* ---- the driver ---- */

struct question {
	struct loop loop;
	struct ctl ctl;
	bool answered;
	int result;
};

static void on_features(struct ctl *ctl, int res)
{
	struct question *q = container_of(ctl, struct question, ctl);

	q->answered = true;
	q->result = res;
}

/* Does this kernel have the module at all, loaded or not? */
static bool module_exists(void)
{
	static const char *const lists[] = { "modules.dep", "modules.builtin" };
	struct utsname name;
	char path[256], line[4096];
	bool found = false;

	uname(&name);
	for (size_t i = 0; i < ARRAY_SIZE(lists) && !found; i++) {
		FILE *file;

		snprintf(path, sizeof(path), "/lib/modules/%s/%s", name.release, lists[i]);
		file = fopen(path, "re");
		while (file && !found && fgets(line, sizeof(line), file))
			found = strstr(line, "/ublk_drv.ko") != NULL;
		if (file)
			fclose(file);
	}
	return found;
}

static void tell_missing(void)
{
	if (module_exists())
		doctor_find(DOCTOR_FAIL, "ublk driver", "modprobe ublk_drv", "not loaded");
	else
		doctor_find(DOCTOR_FAIL, "ublk driver",
			    "run a kernel with CONFIG_BLK_DEV_UBLK; ./dev vm has one to try",
			    "this kernel has none");
}

/* Which says nothing about a host where nobody wants to go without: no warning. */
static void tell_partition_scan(uint64_t features)
{
	char words[PARTITION_SCAN_ERROR_BYTES];

	if (partition_scan_check(false, features, words) < 0)
		doctor_find(DOCTOR_OK, "partition_scan", "", "cannot be switched off: %s", words);
	else
		doctor_find(DOCTOR_OK, "partition_scan", "", "can be switched off");
}

/* The driver names ZONED whether or not the kernel has zones: a function of block/blk-zoned.c. */
static bool kernel_has_zones(void)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	bool found = false;
	char line[512];

	while (file && !found && fgets(line, sizeof(line), file))
		found = strstr(line, " blk_revalidate_disk_zones\n") != NULL;
	if (file)
		fclose(file);
	return found;
}

static void tell_zones(uint64_t features)
{
	if (!(features & UBLK_F_ZONED) || !(features & UBLK_F_USER_COPY))
		doctor_find(DOCTOR_WARN, "zones", "Linux 6.6 has it",
			    "no ZONED: devices of type zoned cannot be made");
	else if (!kernel_has_zones())
		doctor_find(DOCTOR_WARN, "zones", "run a kernel with CONFIG_BLK_DEV_ZONED",
			    "the kernel has none: devices of type zoned cannot be made");
	else
		doctor_find(DOCTOR_OK, "zones", "", "the kernel and its driver have them");
}

/* The driver names INTEGRITY when the kernel is built with CONFIG_BLK_DEV_INTEGRITY. */
static void tell_integrity(uint64_t features)
{
	if (features & UBLK_F_INTEGRITY)
		doctor_find(DOCTOR_OK, "integrity", "", "devices can keep checksums (T10 PI)");
	else
		doctor_find(
			DOCTOR_OK, "integrity", "",
			"no INTEGRITY: devices of type integrity cannot be made; Linux 7.0 with "
			"CONFIG_BLK_DEV_INTEGRITY has it");
}

/* As for partition_scan: few hosts have clients that share memory. */
static void tell_shmem(uint64_t features)
{
	if (features & UBLK_F_SHMEM_ZC)
		doctor_find(DOCTOR_OK, "shared_memory", "", "the driver has it (SHMEM_ZC)");
	else
		doctor_find(DOCTOR_OK, "shared_memory", "",
			    "cannot be used: it needs a kernel whose ublk driver has SHMEM_ZC "
			    "(Linux 7.1)");
}

static void tell_features(uint64_t features)
{
	char have[512] = "", lack[512] = "";

	for (unsigned bit = 0; ctl_feature_name(bit); bit++) {
		char *list = features >> bit & 1 ? have : lack;
		size_t len = strlen(list);

		snprintf(list + len, sizeof(have) - len, " %s", ctl_feature_name(bit));
	}
	if (!(features & UBLK_F_CMD_IOCTL_ENCODE))
		doctor_find(DOCTOR_FAIL, "ublk features", "run Linux 6.8 or newer",
			    "CMD_IOCTL_ENCODE is missing");
	doctor_find(DOCTOR_OK, "ublk features", "", "%s", have[0] ? have + 1 : "none");
	if (!(features & UBLK_F_SAFE_STOP_DEV))
		doctor_find(DOCTOR_WARN, "ublk features", "Linux 7.0 has it",
			    "no SAFE_STOP_DEV: that a device is in use is found out by looking at "
			    "all processes");
	if (host_is_privileged()) {
		tell_partition_scan(features);
		tell_zones(features);
		tell_integrity(features);
		tell_shmem(features);
	} else {
		doctor_user_features(features);
	}
	if (lack[0])
		doctor_find(DOCTOR_OK, "not there yet", "", "%s", lack + 1);
}

static void tell_driver(const struct question *q, int ret)
{
	if (ret == -ENOENT || ret == -ENODEV || ret == -ENXIO)
		tell_missing();
	else if (ret == -EACCES || ret == -EPERM)
		doctor_control_refused();
	else if (ret == -ETIMEDOUT)
		doctor_find(DOCTOR_FAIL, "ublk driver", "see dmesg; a restart helps",
			    "does not answer");
	else if (ret < 0)
		doctor_find(DOCTOR_FAIL, "ublk driver", "run Linux 6.8 or newer", "%s",
			    errname(ret));
	else
		tell_features(q->ctl.features);
}

static int ask_driver(struct question *q)
{
	int ret = ctl_open(&q->ctl, &q->loop.control, on_features);

	if (ret < 0)
		return ret;
	if (!loop_run_until(&q->loop, &q->answered, ANSWER_TIMEOUT_NS))
		return -ETIMEDOUT; /* the command is still out: nothing can be closed */
	ctl_close(&q->ctl);
	return q->result;
}

void doctor_check_driver(void)
{
	static struct question q;
	int ret = loop_init(&q.loop);

	if (ret < 0) {
		doctor_find(DOCTOR_FAIL, "ublk driver", setup_cure(ret),
			    "cannot be asked, no control ring: %s", errname(ret));
		return;
	}
	ret = ask_driver(&q);
	if (ret == 0 && access("/dev/ublk-control", F_OK) == 0)
		doctor_find(DOCTOR_OK, "ublk driver", "", "loaded, answers");
	tell_driver(&q, ret);
	if (ret != -ETIMEDOUT)
		loop_fini(&q.loop);
}
