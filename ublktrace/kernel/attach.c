/*
 * Attaches a program of two instructions to one point and lets go of it: what works is seen, not
 * concluded. Built by hand, not from an object file: of those each load reads the kernel's BTF
 * anew, which takes longer than all of the table here.
 *
 * Happy path: load, attach, close. Failure modes: whatever the kernel refuses is its errno.
 */
#include "ublktrace/kernel/attach.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ublktrace/kernel/machine.h"
#include "ublktrace/elf/symbols.h"
#include "ublktrace/elf/usdt.h"

/* r0 = 0; exit */
static const struct bpf_insn nothing[] = {
	{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0 },
	{ .code = BPF_JMP | BPF_EXIT },
};

/* tp_btf and fentry: the target is part of the program. */
static int attach_try_btf(const struct point *p, enum bpf_attach_type type)
{
	const struct symbol *s = point_symbol(p);
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = type);
	int btf, program, link, ret = 0;

	if (!s || !s->btf_id)
		return -ENOENT;
	btf = p->module ? machine_btf_fd(p->module) : 0;
	if (btf < 0)
		return btf;
	opts.attach_btf_id = (__u32)s->btf_id;
	opts.attach_btf_obj_fd = (__u32)btf;
	program = bpf_prog_load(BPF_PROG_TYPE_TRACING, "ublktrace_look", "GPL", nothing, 2, &opts);
	if (program < 0)
		ret = -errno;
	if (btf > 0)
		close(btf);
	if (ret)
		return ret;
	link = bpf_raw_tracepoint_open(NULL, program);
	if (link < 0)
		ret = -errno;
	else
		close(link);
	close(program);
	return ret;
}

/* The number of a PMU ("kprobe", "uprobe"), or -ENOENT. */
static int attach_pmu_type(const char *pmu)
{
	char path[128];
	int type = -ENOENT;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/type", pmu);
	f = machine_open(path);
	if (!f)
		return -ENOENT;
	if (fscanf(f, "%d", &type) != 1)
		type = -ENOENT;
	fclose(f);
	return type;
}

static int attach_perf_open(const char *pmu, const char *where, uint64_t offset)
{
	int type = attach_pmu_type(pmu);
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = (__u32)type,
		.config1 = (uint64_t)(uintptr_t)where,
		.config2 = offset,
		.sample_period = 1,
		.wakeup_events = 1,
	};
	int fd;

	if (type < 0)
		return type;
	fd = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int attach_try_perf(const char *pmu, const char *where, uint64_t offset)
{
	int program, event = attach_perf_open(pmu, where, offset), ret = 0;

	if (event < 0)
		return event;
	program = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "ublktrace_look", "GPL", nothing, 2, NULL);
	if (program < 0) {
		ret = -errno;
	} else {
		if (ioctl(event, PERF_EVENT_IOC_SET_BPF, program))
			ret = -errno;
		close(program);
	}
	close(event);
	return ret;
}

static int attach_try_usdt(const struct point *p)
{
	struct usdt_place place;
	int ret = usdt_find("ublkd", p->symbol, &place);

	return ret ? ret : attach_try_perf("uprobe", place.path, place.offset);
}

int attach_try_how(const struct point *p, const char *found, enum point_how how)
{
	switch (how) {
	case POINT_BTF_TRACEPOINT:
		return attach_try_btf(p, BPF_TRACE_RAW_TP);
	case POINT_FENTRY:
		return attach_try_btf(p, BPF_TRACE_FENTRY);
	case POINT_KPROBE:
		return attach_try_perf("kprobe", found, 0);
	case POINT_USDT:
		return attach_try_usdt(p);
	case POINT_TRACEPOINT:
		break; /* no point of the table is one */
	}
	return -EINVAL;
}

int attach_try(const struct point *p, const char *found, enum point_how *ret_how)
{
	int ret = attach_try_how(p, found, p->how);

	if (!ret) {
		*ret_how = p->how;
		return 0;
	}
	if (p->how != POINT_FENTRY || attach_try_how(p, found, POINT_KPROBE))
		return ret;
	*ret_how = POINT_KPROBE;
	return 0;
}

const char *attach_how_name(enum point_how how)
{
	static const char *const names[] = {
		[POINT_BTF_TRACEPOINT] = "tp_btf",
		[POINT_TRACEPOINT] = "tracepoint",
		[POINT_FENTRY] = "fentry",
		[POINT_KPROBE] = "kprobe",
		[POINT_USDT] = "usdt",
	};

	return names[how];
}

static const char *attach_cure_eperm(enum point_how how)
{
	char lacks[64];

	if (machine_lacks(how == POINT_FENTRY, lacks, sizeof(lacks))[0])
		return "a capability is missing: run it as root";
	if (how == POINT_FENTRY)
		return "the kernel refused fentry (lockdown, or built without "
		       "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS)";
	return "the kernel refused it: lockdown, a container's seccomp filter or LSM";
}

const char *attach_error_cure(enum point_how how, int err)
{
	switch (err < 0 ? -err : err) {
	case EPERM:
	case EACCES:
		return attach_cure_eperm(how);
	case ENOTSUP:
	case EINVAL:
		return how == POINT_FENTRY
			       ? "the kernel has no trampolines for it (CONFIG_FUNCTION_TRACER)"
			       : "the kernel cannot probe there (CONFIG_KPROBES)";
	case EBUSY:
		return "another tool uses it: a live patch, or ftrace with a direct call";
	case ENOENT:
		return "the kernel does not have it (or is built without it)";
	case ENOSYS:
		return "the kernel is built without CONFIG_BPF_SYSCALL";
	case ENOMEM:
	case E2BIG:
		return "out of memory";
	default:
		return "";
	}
}
