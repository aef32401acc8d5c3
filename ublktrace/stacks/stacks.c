/*
 * `ublktrace stacks`: who brings requests to a point of the kernel. Main thread.
 *
 * Happy path: the programs of the point are attached, at the end their stacks are named, folded and
 * written; ways, batches and losses follow on stderr, so that stdout can be piped. Failure modes: a
 * wrong command line; a point that is not here: one line with the cure.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "stacks.skel.h"
#include "ublktrace/command.h"
#include "ublktrace/events/losses.h"
#include "ublktrace/events/names.h"
#include "ublktrace/kernel/machine.h"
#include "ublktrace/kernel/programs.h"
#include "ublktrace/stacks/fold.h"
#include "ublktrace/stacks/kernel_names.h"
#include "ublktrace/stacks/stacks_map.h"

enum stacks_at { AT_QUEUE, AT_DISPATCH, AT_COMPLETE, AT_NVME_QUEUE };

static const char *const at_names[] = { "queue", "dispatch", "complete", "nvme_queue" };

struct stacks {
	enum stacks_at at;
	char disk[32]; /* "": all */
	const char *file;
	bool svg;
	struct target target;
	struct stacks_bpf *bpf;
	struct kernel_names *names;
	struct fold fold;
	struct {
		const char *name;
		uint64_t count;
	} path[8];
	unsigned path_nr;
};

/* ---- the command line */

static bool stacks_parse_at(const char *text, enum stacks_at *ret_at)
{
	for (unsigned i = 0; i < ARRAY_SIZE(at_names); i++)
		if (!strcmp(text, at_names[i])) {
			*ret_at = i;
			return true;
		}
	return false;
}

static bool stacks_parse_disk(struct stacks *s, const char *text)
{
	if (!strncmp(text, "/dev/", 5))
		text += 5;
	return *text && (size_t)snprintf(s->disk, sizeof(s->disk), "%s", text) < sizeof(s->disk);
}

static int stacks_option(void *arg, int option, char *value)
{
	struct stacks *s = arg;

	switch (option) {
	case 'a':
		return command_check("stacks", stacks_parse_at(value, &s->at),
				     "--at needs queue, dispatch, complete or nvme_queue", value);
	case 'd':
		return command_check("stacks", stacks_parse_disk(s, value),
				     "-d needs a disk, such as ublkb0", value);
	case 's':
		s->svg = true;
		return 0;
	default:
		s->file = value;
		return 0;
	}
}

/* ---- programs */

static int stacks_missing(const struct stacks *s, const char *module)
{
	if (!machine_has_module(module))
		fprintf(stderr,
			"ublktrace stacks: --at %s: the module %s is not loaded: run modprobe %s, "
			"or "
			"start a program that uses it\n",
			at_names[s->at], module, module);
	else
		fprintf(stderr,
			"ublktrace stacks: --at %s: this kernel's %s has no function that can be "
			"traced there; `ublktrace probes` lists the functions\n",
			at_names[s->at], module);
	return -ENOENT;
}

/* Switches the programs of the point on whose functions are here. Returns 0 or -ENOENT, said. */
static int stacks_choose(struct stacks *s)
{
	bool one, list;

	switch (s->at) {
	case AT_DISPATCH: /* one of them, by the version of the driver */
		return programs_want(s->bpf->progs.at_start_io, "ublk_drv", "ublk_start_io") ||
				       programs_want(s->bpf->progs.at_dispatch, "ublk_drv",
						     "ublk_dispatch_req") ||
				       programs_want(s->bpf->progs.at_task_work, "ublk_drv",
						     "ublk_rq_task_work_cb")
			       ? 0
			       : stacks_missing(s, "ublk_drv");
	case AT_NVME_QUEUE:
		one = programs_want(s->bpf->progs.at_nvme_queue, "nvme", "nvme_queue_rq");
		list = programs_want(s->bpf->progs.at_nvme_list, "nvme", "nvme_queue_rqs");
		return one || list ? 0 : stacks_missing(s, "nvme");
	case AT_QUEUE:
		bpf_program__set_autoload(s->bpf->progs.at_queue, true);
		/* Batches are the driver's: they are counted when it is there. */
		programs_want(s->bpf->progs.one_queued, "ublk_drv", "ublk_queue_rq");
		programs_want(s->bpf->progs.list_queued, "ublk_drv", "ublk_queue_rqs");
		programs_want(s->bpf->progs.batch_one_queued, "ublk_drv", "ublk_batch_queue_rq");
		programs_want(s->bpf->progs.batch_list_queued, "ublk_drv", "ublk_batch_queue_rqs");
		return 0;
	default:
		bpf_program__set_autoload(s->bpf->progs.at_complete, true);
		return 0;
	}
}

static int stacks_load(struct stacks *s)
{
	int err;

	s->bpf = stacks_bpf__open();
	if (!s->bpf)
		return -errno;
	err = stacks_choose(s);
	if (err)
		return err;
	memcpy((char *)s->bpf->rodata->disk_wanted, s->disk, sizeof(s->disk));
	err = stacks_bpf__load(s->bpf);
	if (!err)
		err = stacks_bpf__attach(s->bpf);
	if (err)
		fprintf(stderr,
			"ublktrace stacks: cannot load the BPF programs: %s; `ublktrace probes` "
			"shows "
			"what is missing\n",
			strerror(-err));
	return err;
}

/* ---- what was counted */

static void stacks_count_path(struct stacks *s, const char *path, uint64_t count)
{
	unsigned i = 0;

	while (i < s->path_nr && strcmp(s->path[i].name, path) != 0)
		i++;
	if (i == ARRAY_SIZE(s->path))
		return;
	s->path[i].name = path;
	s->path[i].count += count;
	s->path_nr = MAX(s->path_nr, i + 1);
}

/* Ours and the kernel's own of tracing are no part of the way. */
static bool stacks_is_tracing(const char *name)
{
	return !strncmp(name, "bpf_", 4) || !strncmp(name, "__bpf_", 6) ||
	       !strncmp(name, "__traceiter_", 12);
}

/* Names of a stack, the outermost first, below the command. */
static unsigned stacks_name_frames(const struct stacks *s, const struct stacks_key *key,
				   const char **frame)
{
	uint64_t address[STACKS_DEPTH] = { 0 };
	unsigned nr = 0, depth = 0;
	const char *op = name_block_op(key->op);

	frame[nr++] = key->op == STACKS_ANY_OP ? "any" : op ? op : "other";
	if (key->stack < 0 || bpf_map__lookup_elem(s->bpf->maps.stacks, &key->stack,
						   sizeof(uint32_t), address, sizeof(address), 0)) {
		frame[nr++] = "[stack lost]";
		return nr;
	}
	while (depth < STACKS_DEPTH && address[depth])
		depth++;
	while (depth-- > 0) {
		const char *name = kernel_names_find(s->names, address[depth]);

		if (!name)
			name = "[unknown]";
		if (!stacks_is_tracing(name))
			frame[nr++] = name;
	}
	return nr;
}

static int stacks_fold(struct stacks *s)
{
	struct stacks_key key, *prev = NULL;
	const char *frame[FOLD_FRAMES_MAX];
	uint64_t count;
	int err = 0;

	while (!err && !bpf_map__get_next_key(s->bpf->maps.counts, prev, &key, sizeof(key))) {
		prev = &key;
		err = bpf_map__lookup_elem(s->bpf->maps.counts, &key, sizeof(key), &count,
					   sizeof(count), 0);
		if (!err) {
			unsigned nr = stacks_name_frames(s, &key, frame);

			stacks_count_path(s, fold_issue_path(frame + 1, nr - 1), count);
			err = fold_add(&s->fold, frame, nr, count);
		}
	}
	fold_sort(&s->fold);
	return err;
}

static void stacks_print_batches(const struct stacks *s, FILE *out)
{
	int cpus = libbpf_num_possible_cpus();
	uint64_t *count = calloc((size_t)cpus, sizeof(*count));

	for (uint32_t n = 0; count && n <= STACKS_BATCH_MAX; n++) {
		uint64_t sum = 0;

		if (bpf_map__lookup_elem(s->bpf->maps.batches, &n, sizeof(n), count,
					 sizeof(*count) * (size_t)cpus, 0))
			break;
		for (int cpu = 0; cpu < cpus; cpu++)
			sum += count[cpu];
		if (sum)
			fprintf(out, "batch of %u%s: %" PRIu64 "\n", n,
				n == STACKS_BATCH_MAX ? "+" : "", sum);
	}
	free(count);
}

static int stacks_write(const struct stacks *s)
{
	FILE *out = s->file ? fopen(s->file, "we") : stdout;
	char title[128];
	int err;

	if (!out)
		return -errno;
	snprintf(title, sizeof(title), "requests%s%s at %s", s->disk[0] ? " of " : "", s->disk,
		 at_names[s->at]);
	errno = 0;
	if (s->svg)
		fold_write_svg(&s->fold, out, title);
	else
		fold_write(&s->fold, out);
	err = fflush(out) || ferror(out) ? (errno ? -errno : -EIO) : 0;
	if (s->file && fclose(out) && !err)
		err = -errno;
	return err;
}

static int stacks_finish(struct stacks *s)
{
	int err = stacks_fold(s);
	struct losses losses;

	if (!err)
		err = stacks_write(s);
	if (err) {
		fprintf(stderr, "ublktrace stacks: cannot write %s: %s\n",
			s->file ? s->file : "the stacks", strerror(-err));
		return err;
	}
	if (s->at == AT_QUEUE || s->at == AT_NVME_QUEUE)
		for (unsigned i = 0; i < s->path_nr; i++)
			fprintf(stderr, "%s: %" PRIu64 "\n", s->path[i].name, s->path[i].count);
	stacks_print_batches(s, stderr);
	if (s->at == AT_DISPATCH && bpf_program__autoload(s->bpf->progs.at_task_work))
		fputs("this kernel dispatches all outstanding requests in one call: these are such "
		      "calls, "
		      "of any disk and command\n",
		      stderr);
	losses = (struct losses){ .map_full = s->bpf->bss->map_full,
				  .recursion = programs_skipped(s->bpf->obj) };
	losses_print(stderr, &losses);
	return 0;
}

/* ---- the run */

static int stacks_turn(void *arg)
{
	(void)arg;
	usleep(50000);
	return 0;
}

static int stacks_read_names(struct stacks *s)
{
	FILE *f = machine_open("/proc/kallsyms");
	int err = f ? kernel_names_read(f, &s->names) : -errno;

	if (f)
		fclose(f);
	if (err)
		fprintf(stderr,
			"ublktrace stacks: /proc/kallsyms does not show addresses (%s): run as "
			"root, or set sysctl kernel.kptr_restrict=1\n",
			strerror(-err));
	return err;
}

int command_stacks(int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "at", required_argument, NULL, 'a' },
		{ "device", required_argument, NULL, 'd' },
		COMMAND_OPTION_DURATION,
		{ "svg", no_argument, NULL, 's' },
		{ "output", required_argument, NULL, 'o' },
		{ 0 },
	};
	struct stacks s = { .target.sample = 1 };
	struct command_line line = {
		.short_options = "d:o:",
		.long_options = long_options,
		.option = stacks_option,
		.arg = &s,
		.target = &s.target,
	};
	int err;

	if (!command_line_parse(&line, argc, argv, &err))
		return err;
	err = machine_may_trace();
	if (!err)
		err = stacks_load(&s);
	if (!err)
		err = target_run(&s.target, stacks_turn, NULL);
	if (!err)
		err = stacks_read_names(&s); /* at the end: modules may have come meanwhile */
	if (!err)
		err = stacks_finish(&s);
	fold_free(&s.fold);
	kernel_names_free(s.names);
	stacks_bpf__destroy(s.bpf);
	return err ? 1 : 0;
}
