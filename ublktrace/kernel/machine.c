/*
 * Files of /proc and /sys, capabilities, tracefs, BTF. Owns the types that were read: once, from
 * /sys/kernel/btf (which needs no right); attaching names those of a module by a descriptor (which
 * needs one). Main thread.
 *
 * Happy path: each answer is read where the kernel tells it. Failure modes: what cannot be read is
 * "no", and the callers say what that means; a kernel without CONFIG_DEBUG_INFO_BTF has no types.
 */
#include "ublktrace/kernel/machine.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "ublktrace/kernel/point.h"

#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#endif
#ifndef CAP_BPF
#define CAP_BPF 39
#endif

#define MODULES_MAX 8

static const char *root = "";

/* Types that were read; [0] is the kernel itself. */
static struct known {
	char module[64];
	struct btf *btf;
	bool own; /* false: it is the kernel's */
} known[MODULES_MAX];
static unsigned known_nr;

void machine_forget(void)
{
	while (known_nr > 0) {
		known_nr--;
		if (known[known_nr].own)
			btf__free(known[known_nr].btf);
	}
}

void machine_root_set(const char *new_root)
{
	root = new_root;
	machine_forget();
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

/* ---- types (BTF) ---- */

static struct known *machine_btf_remember(const char *module, struct btf *btf, bool own)
{
	struct known *k = &known[known_nr++];

	snprintf(k->module, sizeof(k->module), "%s", module);
	k->btf = btf;
	k->own = own;
	return k;
}

static struct known *machine_btf_look_up(const char *module)
{
	char path[512];
	struct btf *btf;

	for (unsigned i = 0; i < known_nr; i++)
		if (!strcmp(known[i].module, module))
			return &known[i];
	if (known_nr == MODULES_MAX)
		return NULL;
	if (known_nr == 0 && strcmp(module, "vmlinux") != 0)
		machine_btf_look_up("vmlinux");
	snprintf(path, sizeof(path), "%s/sys/kernel/btf/%s", root, module);
	if (access(path, R_OK))
		return machine_btf_remember(module, known_nr ? known[0].btf : NULL, false);
	/* Strict since libbpf 1.0: NULL and errno. */
	btf = known_nr ? btf__parse_split(path, known[0].btf) : btf__parse(path, NULL);
	return machine_btf_remember(module, btf, true);
}

struct btf *machine_btf(const char *module, int *ret_first)
{
	struct known *k = machine_btf_look_up(module ? module : "vmlinux");

	if (!k || !k->btf)
		return NULL;
	*ret_first = k->own && k != &known[0] ? (int)btf__type_cnt(known[0].btf) : 1;
	return k->btf;
}

/* The name of a BTF object; "" when it cannot be asked. */
static void machine_btf_name(int fd, char *name, size_t bytes)
{
	struct bpf_btf_info info = { .name = (uint64_t)(uintptr_t)name,
				     .name_len = (uint32_t)bytes };
	uint32_t info_bytes = sizeof(info);

	name[0] = 0;
	if (bpf_obj_get_info_by_fd(fd, &info, &info_bytes))
		name[0] = 0;
}

int machine_btf_fd(const char *module)
{
	struct known *k = module ? machine_btf_look_up(module) : NULL;
	char name[64];
	uint32_t id = 0;
	int fd;

	/* none, or built in */
	if (!k || !k->own)
		return 0;
	while (!bpf_btf_get_next_id(id, &id)) {
		fd = bpf_btf_get_fd_by_id(id);
		if (fd < 0)
			continue;
		machine_btf_name(fd, name, sizeof(name));
		if (!strcmp(name, module))
			return fd;
		close(fd);
	}
	return errno == ENOENT ? -ENOENT : -errno;
}

bool machine_has_function(const char *module, const char *function)
{
	int first;
	struct btf *btf = machine_btf(module, &first);

	return btf && btf__find_by_name_kind(btf, function, BTF_KIND_FUNC) > 0;
}
