/*
 * Loads and reads the histograms of ublktrace/bpf/latency.bpf.c. Main thread; owns the BPF object.
 *
 * Happy path: latency_open (size the maps, choose between programs, load, attach), latency_read any
 * number of times, latency_close. Failure modes: no rights, no BTF, a tracepoint that this kernel
 * does not have: one line on stderr. No ublk driver: the rings are still counted.
 */
#include "ublktrace/latency/latency_read.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "latency.skel.h"
#include "ublktrace/command.h"
#include "ublktrace/kernel/machine.h"
#include "ublktrace/kernel/point.h"
#include "ublktrace/kernel/programs.h"

/* All CPUs together: what the rows of devices may take, and how many there are at least. */
#define BLOCK_BYTES_MAX (512ull << 20)
#define BLOCK_DEVICES_MIN 8u

struct latency {
	struct latency_bpf *bpf;
	struct bpf_link *start_io;
	int cpus;
	uint64_t start_ns;
	bool by_ring;
	bool has_ublk;
};

/* Devices that are there, and as many again for those that will be. */
static uint32_t latency_devices_expected(void)
{
	DIR *dir = opendir("/sys/block");
	struct dirent *e;
	uint32_t nr = 0;

	while (dir && (e = readdir(dir)))
		nr += !strncmp(e->d_name, "ublkb", 5);
	if (dir)
		closedir(dir);
	return MAX(BLOCK_DEVICES_MIN, 2 * nr);
}

static uint32_t latency_rows_wanted(int cpus)
{
	uint64_t most = BLOCK_BYTES_MAX / (sizeof(struct latency_block) * (uint64_t)cpus);
	uint64_t wanted = (uint64_t)latency_devices_expected() * LATENCY_OP_NR;

	return (uint32_t)MAX(MIN(most, wanted), (uint64_t)LATENCY_OP_NR);
}

static void latency_choose_programs(struct latency *l, bool with_children)
{
	/* ring, request, CQE; before 6.16 user_data, result, flags and two extras in its place */
	bool pieces = point_tracepoint_args("io_uring_complete") > 3;

	bpf_program__set_autoload(pieces ? l->bpf->progs.uring_complete_pieces
					 : l->bpf->progs.uring_complete_cqe,
				  true);
	bpf_program__set_autoload(l->bpf->progs.process_fork, with_children);
	/* It costs something for every queue: attached when there is one that needs it. */
	programs_want(l->bpf->progs.ublk_start, "ublk_drv", "ublk_start_io");
	bpf_program__set_autoattach(l->bpf->progs.ublk_start, false);
	l->has_ublk = machine_has_module("ublk_drv");
	if (!l->has_ublk) {
		bpf_program__set_autoload(l->bpf->progs.block_issue, false);
		bpf_program__set_autoload(l->bpf->progs.block_complete, false);
	}
}

static int latency_load(struct latency *l, pid_t pid, bool with_children)
{
	uint32_t rows = latency_rows_wanted(l->cpus);
	int ret;

	latency_choose_programs(l, with_children);
	l->bpf->rodata->with_children = with_children;
	l->bpf->rodata->target_pid = (uint32_t)pid;
	l->bpf->rodata->by_ring = l->by_ring;
	l->bpf->rodata->block_rows = rows;
	bpf_map__set_max_entries(l->bpf->maps.block, rows);
	ret = latency_bpf__load(l->bpf);
	return ret ? ret : latency_bpf__attach(l->bpf);
}

static void latency_open_failed(int err)
{
	fprintf(stderr,
		"ublktrace latency: cannot load the BPF programs: %s; `ublktrace probes` shows "
		"what is "
		"missing\n",
		strerror(-err));
}

int latency_open(pid_t pid, bool with_children, bool by_ring, struct latency **ret_latency)
{
	struct latency *l;
	int err = machine_may_trace();

	if (err)
		return err;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->cpus = libbpf_num_possible_cpus();
	l->by_ring = by_ring;
	l->bpf = latency_bpf__open();
	err = l->bpf ? latency_load(l, pid, with_children) : -errno;
	if (err) {
		latency_open_failed(err);
		latency_close(l);
		return err;
	}
	l->start_ns = command_clock_ns(CLOCK_MONOTONIC);
	*ret_latency = l;
	return 0;
}

void latency_follow(struct latency *l)
{
	if (l->start_io || !l->bpf->bss->batch_seen ||
	    !bpf_program__autoload(l->bpf->progs.ublk_start))
		return;
	l->start_io = bpf_program__attach(l->bpf->progs.ublk_start);
	if (!l->start_io) /* their requests are "not split" then */
		bpf_program__set_autoload(l->bpf->progs.ublk_start, false);
}

void latency_close(struct latency *l)
{
	if (!l)
		return;
	bpf_link__destroy(l->start_io);
	latency_bpf__destroy(l->bpf);
	free(l);
}

bool latency_has_ublk(const struct latency *l, const char **ret_why)
{
	*ret_why = l->has_ublk
			   ? NULL
			   : "the module ublk_drv is not loaded: ublk devices are not shown; start "
			     "the server first, or run modprobe ublk_drv";
	return l->has_ublk;
}

/* ---- reading */

/* A per-CPU map is read whole, all CPUs of an entry at once; add folds them into one. */
static int latency_read_percpu(const struct latency *l, const struct bpf_map *map, uint32_t key,
			       size_t bytes, void (*add)(void *dst, const void *src), void *dst)
{
	char *all = calloc((size_t)l->cpus, bytes);
	int err;

	if (!all)
		return -ENOMEM;
	err = bpf_map__lookup_elem(map, &key, sizeof(key), all, bytes * (size_t)l->cpus, 0);
	for (int cpu = 0; !err && cpu < l->cpus; cpu++)
		add(dst, all + bytes * (size_t)cpu);
	free(all);
	return err;
}

static void latency_add_block(void *dst, const void *src)
{
	struct latency_block *d = dst;
	const struct latency_block *s = src;

	for (unsigned i = 0; i < LATENCY_STAGE_NR; i++)
		latency_hist_add(&d->stage[i], &s->stage[i]);
	d->errors += s->errors;
}

static void latency_add_uring(void *dst, const void *src)
{
	struct latency_uring *d = dst;
	const struct latency_uring *s = src;

	latency_hist_add(&d->hist, &s->hist);
	d->async += s->async;
	d->polled += s->polled;
	d->migrated += s->migrated;
	d->errors += s->errors;
}

static void latency_add_cpu(void *dst, const void *src)
{
	struct latency_report *r = dst;
	const struct latency_cpu *cpu = src;

	r->fetches += cpu->fetches;
	for (unsigned i = 0; i < LATENCY_LEVEL_NR; i++)
		for (unsigned n = 0; n < LATENCY_LEVELS; n++)
			r->level[i][n] += cpu->level[i][n];
}

static void latency_add_totals(void *dst, const void *src)
{
	struct latency_totals *d = dst;
	const struct latency_totals *s = src;

	d->map_full += s->map_full;
	d->unmatched += s->unmatched;
	d->aux += s->aux;
}

static int latency_compare_devices(const void *a, const void *b)
{
	const struct latency_device *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static int latency_read_devices(const struct latency *l, struct latency_report *r)
{
	const struct bpf_map *map = l->bpf->maps.devices;
	uint32_t key, row, *prev = NULL;
	int err = 0;

	while (!err && r->device_nr < LATENCY_DEVICES_MAX &&
	       !bpf_map__get_next_key(map, prev, &key, sizeof(key))) {
		struct latency_device *d = reallocarray(r->device, r->device_nr + 1, sizeof(*d));

		prev = &key;
		if (!d)
			return -ENOMEM;
		r->device = d;
		d += r->device_nr++;
		memset(d, 0, sizeof(*d));
		d->number = key;
		err = bpf_map__lookup_elem(map, &key, sizeof(key), &row, sizeof(row), 0);
		for (uint32_t op = 0; !err && op < LATENCY_OP_NR; op++)
			err = latency_read_percpu(l, l->bpf->maps.block, row + op, sizeof(d->op[0]),
						  latency_add_block, &d->op[op]);
	}
	if (r->device_nr > 0)
		qsort(r->device, r->device_nr, sizeof(*r->device), latency_compare_devices);
	return err;
}

static int latency_read_uring(const struct latency *l, struct latency_report *r)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < LATENCY_URING_ROWS; i++) {
		err = latency_read_percpu(l, l->bpf->maps.uring, i, sizeof(r->uring[i]),
					  latency_add_uring, &r->uring[i]);
		if (!err && l->by_ring)
			err = bpf_map__lookup_elem(l->bpf->maps.rings, &i, sizeof(i), &r->ring[i],
						   sizeof(r->ring[i]), 0);
	}
	return err;
}

static int latency_read_cpus(const struct latency *l, struct latency_report *r)
{
	int err = latency_read_percpu(l, l->bpf->maps.cpus, 0, sizeof(struct latency_cpu),
				      latency_add_cpu, r);

	latency_batches(r->level[LATENCY_BATCH]);
	return err;
}

static int latency_compare_errors(const void *a, const void *b)
{
	const struct latency_error_count *x = a, *y = b;

	return x->count > y->count ? -1 : x->count < y->count;
}

static int latency_read_errors(const struct latency *l, struct latency_report *r)
{
	const struct bpf_map *map = l->bpf->maps.errors;
	struct latency_error *prev = NULL;
	int err = 0;

	while (!err && r->error_nr < LATENCY_ERRORS_MAX) {
		struct latency_error_count *e = &r->error[r->error_nr];

		if (bpf_map__get_next_key(map, prev, &e->error, sizeof(e->error)))
			break;
		err = bpf_map__lookup_elem(map, &e->error, sizeof(e->error), &e->count,
					   sizeof(e->count), 0);
		prev = &e->error;
		r->error_nr++;
	}
	qsort(r->error, r->error_nr, sizeof(r->error[0]), latency_compare_errors);
	return err;
}

static int latency_read_all(const struct latency *l, struct latency_report *r)
{
	int err = latency_read_devices(l, r);

	if (!err)
		err = latency_read_uring(l, r);
	if (!err)
		err = latency_read_cpus(l, r);
	if (!err)
		err = latency_read_errors(l, r);
	if (!err)
		err = latency_read_percpu(l, l->bpf->maps.totals, 0, sizeof(r->totals),
					  latency_add_totals, &r->totals);
	r->losses = (struct losses){ .map_full = r->totals.map_full,
				     .unmatched = r->totals.unmatched,
				     .recursion = programs_skipped(l->bpf->obj) };
	return err;
}

int latency_report_read(const struct latency *l, struct latency_report **ret_report)
{
	struct latency_report *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	r->by_ring = l->by_ring;
	r->seconds = (double)(command_clock_ns(CLOCK_MONOTONIC) - l->start_ns) / 1e9;
	err = latency_read_all(l, r);
	if (err) {
		latency_report_free(r);
		return err;
	}
	*ret_report = r;
	return 0;
}
