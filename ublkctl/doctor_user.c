/*
 * The part of the doctor for users who are not root: what root must have allowed, and what their
 * session must have. Main thread of ublkctl.
 */
#include "ublkctl/doctor_driver.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "host/sysfs.h"
#include "host/user_paths.h"
#include "ublk/ublk_abi.h"

#define RULE "59-ublkd-owner.rules"
#define NODES_CURE                                                                                 \
	"install the rule " RULE " of ublkd in /etc/udev/rules.d, and as root: udevadm control "   \
	"--reload"

/* Where udev looks, udev(7). */
static const char *const rule_folders[] = {
	"/etc/udev/rules.d",	 "/run/udev/rules.d", "/usr/local/lib/udev/rules.d",
	"/usr/lib/udev/rules.d", "/lib/udev/rules.d",
};

static bool has_rule(void)
{
	char path[128];

	for (size_t i = 0; i < ARRAY_SIZE(rule_folders); i++) {
		snprintf(path, sizeof(path), "%s/%s", rule_folders[i], RULE);
		if (access(path, R_OK) == 0)
			return true;
	}
	return false;
}

static void check_nodes(void)
{
	if (access("/run/udev/control", F_OK) < 0)
		doctor_find(DOCTOR_WARN, "device nodes", "start systemd-udevd",
			    "udev does not run: nobody gives /dev/ublkcN to the user who made it");
	else if (!has_rule())
		doctor_find(DOCTOR_WARN, "device nodes", NODES_CURE,
			    "no rule " RULE ": udev gives /dev/ublkcN to root");
	else
		doctor_find(DOCTOR_OK, "device nodes", "", "udev gives them to who made them");
}

static void check_runtime_dir(void)
{
	char path[PATH_MAX];

	if (user_path(USER_PATH_CONTROL, path) < 0)
		doctor_find(DOCTOR_WARN, "session", user_path_cure(USER_PATH_CONTROL),
			    "no folder for the control socket");
	else
		doctor_find(DOCTOR_OK, "session", "", "control socket: %s", path);
}

static unsigned count_devices(void)
{
	DIR *dev = opendir("/dev");
	const struct dirent *entry;
	unsigned nr = 0;

	while (dev && (entry = readdir(dev)))
		nr += strncmp(entry->d_name, "ublkc", 5) == 0;
	if (dev)
		closedir(dev);
	return nr;
}

/* Before Linux 6.15 it counts the devices of all, root's too. */
static void check_limit(void)
{
	char max[32];
	unsigned nr = count_devices();

	if (!sysfs_line(max, sizeof(max), "/sys/module/ublk_drv/parameters/ublks_max"))
		return;
	if (nr >= strtoul(max, NULL, 10))
		doctor_find(DOCTOR_WARN, "devices",
			    "root raises /sys/module/ublk_drv/parameters/ublks_max",
			    "%u in the kernel, and users may have %s", nr, max);
	else
		doctor_find(DOCTOR_OK, "devices", "", "%u in the kernel, users may have %s", nr,
			    max);
}

void doctor_check_user(void)
{
	doctor_find(DOCTOR_OK, "privileges", "root's ublkd has recovery, zero copy and zones, too",
		    "no CAP_SYS_ADMIN: devices are unprivileged, and end with ublkd");
	check_nodes();
	if (user_paths_apply())
		check_runtime_dir();
	check_limit();
}

void doctor_user_features(uint64_t features)
{
	if (!(features & UBLK_F_UNPRIVILEGED_DEV))
		doctor_find(DOCTOR_FAIL, "ublk features", "run as root",
			    "no UNPRIVILEGED_DEV: only root makes devices");
	else
		doctor_find(DOCTOR_OK, "for users", "",
			    "no recovery, no zero copy or user copy, no zones, no partitions");
}

void doctor_control_refused(void)
{
	doctor_find(DOCTOR_FAIL, "ublk driver",
		    "run as root; or let users make devices: root copies "
		    "/usr/share/ublkd/ublk-control-for-users.rules to /etc/udev/rules.d "
		    "(docs/security.md says what that means)",
		    "/dev/ublk-control is not for this user");
}
