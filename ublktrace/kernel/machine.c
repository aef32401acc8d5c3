/*
 * Files of /proc and /sys, capabilities, tracefs.
 *
 * Happy path: each answer is read where the kernel tells it. Failure modes: what cannot be read is
 * "no", and the callers say what that means. Main thread.
 */
#include <errno.h>
#include "ublktrace/kernel/machine.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "ublktrace/kernel/machine_path.h"
#include "ublktrace/kernel/point.h"

#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#endif
#ifndef CAP_BPF
#define CAP_BPF 39
#endif

static const char *root = "";

void machine_root_set(const char *new_root)
{
	root = new_root;
	machine_btf_forget();
}

const char *machine_root(void)
{
	return root;
}

FILE *machine_open(const char *path)
{
	char full[512];

	snprintf(full, sizeof(full), "%s%s", root, path);
	return fopen(full, "re");
}

bool machine_has(const char *path)
{
	char full[512];

	snprintf(full, sizeof(full), "%s%s", root, path);
	return access(full, F_OK) == 0;
}

/*
 * fsmount makes a mount that has no place in any folder and goes with its descriptor, so neither
 * this process nor its children see a changed tree. By number: glibc has these calls since 2.36.
 */
static int tracefs_own(void)
{
	int fs = (int)syscall(SYS_fsopen, "tracefs", FSOPEN_CLOEXEC), mount = -1;

	if (fs < 0)
		return -1;
	if (!syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		mount = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
	close(fs);
	return mount;
}

FILE *machine_open_tracefs(const char *name)
{
	static const char *const places[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };
	char path[256];
	FILE *f = NULL;
	int mount, fd;

	for (unsigned i = 0; i < ARRAY_SIZE(places) && !f; i++) {
		snprintf(path, sizeof(path), "%s/%s", places[i], name);
		f = machine_open(path);
	}
	if (f || root[0])
		return f;
	mount = tracefs_own();
	if (mount < 0)
		return NULL;
	fd = openat(mount, name, O_RDONLY | O_CLOEXEC);
	close(mount);
	if (fd < 0)
		return NULL;
	f = fdopen(fd, "r");
	if (!f)
		close(fd);
	return f;
}

unsigned machine_kernel(void)
{
	FILE *f = machine_open("/proc/sys/kernel/osrelease");
	unsigned major, minor, release = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%u.%u", &major, &minor) == 2)
		release = POINT_KERNEL(major, minor);
	fclose(f);
	return release;
}

bool machine_has_module(const char *module)
{
	char path[256];

	snprintf(path, sizeof(path), "/sys/module/%s", module);
	return machine_has(path);
}

bool machine_can(unsigned capability)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };
	uint64_t effective;

	if (syscall(SYS_capget, &header, data))
		return false;
	effective = data[0].effective | (uint64_t)data[1].effective << 32;
	return effective & (1ull << capability | 1ull << CAP_SYS_ADMIN);
}

const char *machine_lacks(bool modules, char *buf, size_t bytes)
{
	bool bpf = !machine_can(CAP_BPF), perfmon = !machine_can(CAP_PERFMON);

	if (modules && !machine_can(CAP_SYS_ADMIN))
		snprintf(buf, bytes, "CAP_SYS_ADMIN");
	else
		snprintf(buf, bytes, "%s%s%s", bpf ? "CAP_BPF" : "", bpf && perfmon ? " and " : "",
			 perfmon ? "CAP_PERFMON" : "");
	return buf;
}

int machine_may_trace(void)
{
	char lacks[64];

	if (!*machine_lacks(false, lacks, sizeof(lacks)))
		return 0;
	fprintf(stderr,
		"ublktrace: no permission to trace the kernel; run it as root, or with %s\n",
		lacks);
	return -EPERM;
}
