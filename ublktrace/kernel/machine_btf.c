/*
 * BTF of the kernel and of its modules, read once from /sys/kernel/btf (which needs no right), and
 * the descriptors by which attaching names a module's (which does).
 *
 * Failure modes: a kernel without CONFIG_DEBUG_INFO_BTF has none: NULL. Main thread.
 */
#include "ublktrace/kernel/machine.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "ublktrace/kernel/machine_path.h"

#define MODULES_MAX 8

/* [0] is the kernel itself. */
static struct known {
	char module[64];
	struct btf *btf;
	bool own; /* false: it is the kernel's */
} known[MODULES_MAX];
static unsigned known_nr;

void machine_btf_forget(void)
{
	while (known_nr > 0) {
		known_nr--;
		if (known[known_nr].own)
			btf__free(known[known_nr].btf);
	}
}

static struct known *remember(const char *module, struct btf *btf, bool own)
{
	struct known *k = &known[known_nr++];

	snprintf(k->module, sizeof(k->module), "%s", module);
	k->btf = btf;
	k->own = own;
	return k;
}

static struct known *look_up(const char *module)
{
	char path[512];
	struct btf *btf;

	for (unsigned i = 0; i < known_nr; i++)
		if (!strcmp(known[i].module, module))
			return &known[i];
	if (known_nr == MODULES_MAX)
		return NULL;
	if (known_nr == 0 && strcmp(module, "vmlinux") != 0)
		look_up("vmlinux");
	snprintf(path, sizeof(path), "%s/sys/kernel/btf/%s", machine_root(), module);
	if (access(path, R_OK))
		return remember(module, known_nr ? known[0].btf : NULL, false);
	/* Strict since libbpf 1.0: NULL and errno. */
	btf = known_nr ? btf__parse_split(path, known[0].btf) : btf__parse(path, NULL);
	return remember(module, btf, true);
}

struct btf *machine_btf(const char *module, int *ret_first)
{
	struct known *k = look_up(module ? module : "vmlinux");

	if (!k || !k->btf)
		return NULL;
	*ret_first = k->own && k != &known[0] ? (int)btf__type_cnt(known[0].btf) : 1;
	return k->btf;
}

/* The name of a BTF object; "" when it cannot be asked. */
static void btf_name(int fd, char *name, size_t bytes)
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
	struct known *k = module ? look_up(module) : NULL;
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
		btf_name(fd, name, sizeof(name));
		if (!strcmp(name, module))
			return fd;
		close(fd);
	}
	return errno == ENOENT ? -ENOENT : -errno;
}
