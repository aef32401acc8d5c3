/*
 * Loads and attaches ublktrace/bpf/events.bpf.c. Main thread; owns all that is in the kernel for
 * it.
 *
 * Happy path: what this kernel can have is switched on, loaded and attached, then told to begin.
 * Kernels that cannot patch their functions (no fentry) get system calls by tracepoints and no
 * io-wq threads. Failure modes: no BTF, no right, no io_uring tracepoints: one line with its cure.
 */
#include "ublktrace/record/capture.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "events.skel.h"
#include "ublktrace/record/capture_daemon.h"
#include "ublktrace/record/capture_points.h"
#include "ublktrace/kernel/machine.h"
#include "ublktrace/kernel/point.h"

struct capture {
	struct events_bpf *skel;
	struct ring_buffer *reader;
	struct bpf_link *points[CAPTURE_POINTS_MAX], *probes[CAPTURE_PROBE_NR];
	void (*fn)(const struct event *e, void *arg);
	void *arg;
	/* Of skipped runs; those before the records began are no losses. */
	uint64_t skipped_start[EVENT_TYPE_NR], skipped_end[EVENT_TYPE_NR];
	bool drained;
};

/* The first warning of libbpf: the reason when loading fails. */
static char first_words[512];

/* UBLKTRACE_LIBBPF=1 shows all that it says, with the verifier's log. */
static int capture_note_words(enum libbpf_print_level level, const char *format, va_list args)
{
	if (getenv("UBLKTRACE_LIBBPF"))
		return vfprintf(stderr, format, args);
	if (level == LIBBPF_WARN && !first_words[0]) {
		vsnprintf(first_words, sizeof(first_words), format, args);
		first_words[strcspn(first_words, "\n")] = '\0';
	}
	return 0;
}

static int capture_say(int ret, const char *words, const char *cure)
{
	fprintf(stderr, "ublktrace: %s: %s\n", words, cure);
	return ret;
}

/* ---- what this kernel has ---- */

/* Returns the form of io_uring_complete, or -errno, said. */
static int capture_check_kernel(void)
{
	int ret;

	if (!machine_has("/sys/kernel/btf/vmlinux"))
		return capture_say(-ENOTSUP, "the kernel has no type information (BTF)",
				   "enable CONFIG_DEBUG_INFO_BTF, as distribution kernels do");
	ret = machine_may_trace();
	if (ret < 0)
		return ret;
	ret = point_tracepoint_args("io_uring_complete");
	if (ret < 0)
		return capture_say(ret, "the kernel has no tracepoints of io_uring",
				   "enable CONFIG_IO_URING and CONFIG_TRACEPOINTS");
	return ret;
}

/* ---- loading ---- */

static void choose(struct bpf_program *program, bool wanted)
{
	bpf_program__set_autoload(program, wanted);
}

static void capture_choose_around(struct events_bpf *s, unsigned parts)
{
	bool daemon = parts & CAPTURE_DAEMON;

	choose(s->progs.sched_switch, parts & CAPTURE_SWITCHES);
	choose(s->progs.rq_issue, parts & CAPTURE_BLOCK);
	choose(s->progs.rq_complete, parts & CAPTURE_BLOCK);
	choose(s->progs.io_fetch, daemon);
	choose(s->progs.io_submit, daemon);
	choose(s->progs.io_busy, daemon);
	choose(s->progs.io_done, daemon);
	choose(s->progs.io_commit, daemon);
	choose(s->progs.cqe_reap, daemon);
}

static void capture_choose_programs(struct events_bpf *s, unsigned parts, bool fentry)
{
	bool calls = parts & CAPTURE_SYSCALLS;

	choose(s->progs.setup_fentry, calls && fentry);
	choose(s->progs.setup_fexit, calls && fentry);
	choose(s->progs.enter_fentry, calls && fentry);
	choose(s->progs.enter_fexit, calls && fentry);
	choose(s->progs.register_fentry, calls && fentry);
	choose(s->progs.register_fexit, calls && fentry);
	choose(s->progs.any_sys_enter, calls && !fentry);
	choose(s->progs.any_sys_exit, calls && !fentry);
	s->rodata->watch_workers = !fentry;
	choose(s->progs.worker_begin, fentry);
	choose(s->progs.worker_end, fentry);
	capture_choose_around(s, parts);
}

static void capture_set_target(struct events_bpf *s, const struct target *t)
{
	s->rodata->watch_all = t->all;
	s->rodata->watch_self = (uint32_t)getpid();
	s->rodata->watch_sample = t->sample ? t->sample : 1;
	s->rodata->watch_ring_nr = t->ring_nr;
	for (unsigned i = 0; i < t->ring_nr; i++)
		s->rodata->watch_rings[i] = t->ring_fds[i];
	s->rodata->watch_wake_bytes = t->buffer_bytes / 8;
	bpf_map__set_max_entries(s->maps.records, (uint32_t)t->buffer_bytes);
}

static int capture_watch_group(struct events_bpf *s, pid_t pid)
{
	uint32_t key = (uint32_t)pid;
	uint8_t one = 1;

	if (!pid)
		return 0;
	return bpf_map__update_elem(s->maps.groups, &key, sizeof(key), &one, sizeof(one), BPF_ANY);
}

/* Ways to load: which of them a kernel can have is seen by trying. */
struct way {
	bool fentry;
	bool perf; /* ublktrace/bpf/points.h */
};

static void capture_unload(struct capture *c)
{
	for (unsigned i = 0; i < CAPTURE_POINTS_MAX; i++)
		bpf_link__destroy(c->points[i]);
	memset(c->points, 0, sizeof(c->points));
	events_bpf__destroy(c->skel);
	c->skel = NULL;
}

static int capture_load(struct capture *c, const struct target *t, unsigned parts,
			int complete_args, const struct way *way)
{
	int ret;

	first_words[0] = '\0';
	c->skel = events_bpf__open();
	if (!c->skel)
		return -errno;
	capture_set_target(c->skel, t);
	capture_choose_programs(c->skel, parts, way->fentry);
	capture_points_choose(c->skel, way->perf, complete_args);
	ret = events_bpf__load(c->skel);
	if (!ret)
		ret = capture_watch_group(c->skel, t->pid);
	if (!ret)
		ret = events_bpf__attach(c->skel);
	if (!ret)
		ret = capture_points_attach(c->skel, c->points);
	if (ret < 0)
		capture_unload(c);
	return ret;
}

static int capture_load_any(struct capture *c, const struct target *t, unsigned parts)
{
	static const struct way ways[] = {
		{ .fentry = true, .perf = true },
		{ .fentry = true },
		{ .perf = true },
		{ 0 },
	};
	int complete_args = capture_check_kernel(), ret = -1;
	const struct way *way = ways;

	if (complete_args < 0)
		return complete_args;
	for (unsigned i = 0; i < ARRAY_SIZE(ways) && ret < 0; i++) {
		way = &ways[i];
		ret = capture_load(c, t, parts, complete_args, way);
	}
	if (ret < 0) {
		fprintf(stderr, "ublktrace: the kernel refused the BPF programs: %s: %s\n",
			strerror(-ret), first_words);
		return ret;
	}
	if (way->fentry)
		return 0;
	fprintf(stderr, "ublktrace: this kernel does not support fentry: the begin of a WORKER is "
			"derived, and rings with DEFER_TASKRUN have none\n");
	return 0;
}

static void capture_attach_daemon(struct capture *c, const struct target *t)
{
	int ret = capture_daemon_attach(c->skel, t, c->probes);

	if (ret < 0)
		fprintf(stderr,
			"ublktrace: the probe points of ublkd cannot be attached: %s; the kernel "
			"needs CONFIG_UPROBE_EVENTS\n",
			strerror(-ret));
	capture_daemon_devices(c->skel, t);
}

static int capture_hand_out(void *arg, void *data, size_t bytes)
{
	struct capture *c = arg;

	if (bytes >= sizeof(struct event))
		c->fn(data, c->arg);
	return 0;
}

/* ---- losses ---- */

/* Of all CPUs. */
static uint64_t capture_counter(const struct capture *c, uint32_t which)
{
	int cpu_nr = libbpf_num_possible_cpus();
	uint64_t sum = 0, *values = calloc(cpu_nr > 0 ? (size_t)cpu_nr : 1, sizeof(*values));

	if (!values)
		return 0;
	if (!bpf_map_lookup_elem(bpf_map__fd(c->skel->maps.counts), &which, values))
		for (int cpu = 0; cpu < cpu_nr; cpu++)
			sum += values[cpu];
	free(values);
	return sum;
}

void capture_skipped(const struct capture *c, uint64_t ret_nr[EVENT_TYPE_NR])
{
	if (c->drained)
		memcpy(ret_nr, c->skipped_end, sizeof(c->skipped_end));
	else
		capture_points_skipped(c->skel->obj, ret_nr);
	for (unsigned type = 0; type < EVENT_TYPE_NR; type++)
		ret_nr[type] -= c->skipped_start[type];
}

void capture_losses(const struct capture *c, struct losses *ret_losses)
{
	uint64_t skipped[EVENT_TYPE_NR], recursion = 0;

	capture_skipped(c, skipped);
	for (unsigned type = 0; type < EVENT_TYPE_NR; type++)
		recursion += skipped[type];
	*ret_losses = (struct losses){
		.ring_full = capture_counter(c, 0),
		.map_full = capture_counter(c, 1),
		.recursion = recursion,
		.unmatched = capture_counter(c, 2),
	};
}

/* ---- life ---- */

int capture_open(const struct target *t, unsigned parts,
		 void (*fn)(const struct event *e, void *arg), void *arg,
		 struct capture **ret_capture)
{
	struct capture *c = calloc(1, sizeof(*c));
	int ret;

	if (!c)
		return capture_say(-ENOMEM, "cannot start", strerror(ENOMEM));
	c->fn = fn;
	c->arg = arg;
	libbpf_set_print(capture_note_words);
	ret = capture_load_any(c, t, parts);
	if (ret < 0) {
		free(c);
		return ret;
	}
	c->reader = ring_buffer__new(bpf_map__fd(c->skel->maps.records), capture_hand_out, c, NULL);
	if (!c->reader) {
		ret = -errno;
		capture_close(c);
		return capture_say(ret, "cannot map the ring buffer", strerror(-ret));
	}
	if (parts & CAPTURE_DAEMON)
		capture_attach_daemon(c, t);
	capture_points_skipped(c->skel->obj, c->skipped_start);
	__atomic_store_n(&c->skel->bss->watch_on, true, __ATOMIC_SEQ_CST);
	*ret_capture = c;
	return 0;
}

int capture_poll(struct capture *c, int timeout_ms)
{
	/* The programs wake us only when much is there: what is there without that is taken too. */
	int ret = ring_buffer__poll(c->reader, timeout_ms);

	return ret ? ret : ring_buffer__consume(c->reader);
}

void capture_drain(struct capture *c)
{
	__atomic_store_n(&c->skel->bss->watch_on, false, __ATOMIC_SEQ_CST);
	capture_points_skipped(c->skel->obj, c->skipped_end);
	c->drained = true;
	ring_buffer__consume(c->reader);
}

void capture_close(struct capture *c)
{
	if (!c)
		return;
	ring_buffer__free(c->reader);
	for (unsigned i = 0; i < CAPTURE_PROBE_NR; i++)
		bpf_link__destroy(c->probes[i]);
	capture_unload(c);
	free(c);
}
