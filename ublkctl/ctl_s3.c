/*
 * s3-gc: deletes the garbage of disks of S3 objects (s3-disk), without a daemon. Owns the
 * configuration and the reactor while it runs. Main thread of ublkctl.
 *
 * Happy path: FILE -> the device in it that has such disks -> each of them: s3_disk_gc.c -> what it
 * found and deleted, as text or JSON. Failure modes: errors of the configuration, all of them;
 * none or several devices; what the store refuses: told, EXIT_REFUSED, and the next disk has its
 * turn.
 */
#include "ublkctl/ctl_commands.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/s3_disk/s3_disk_gc.h"
#include "base/errname.h"
#include "base/format.h"
#include "base/util.h"
#include "config/yaml.h"
#include "daemon/settings/settings.h"
#include "storage/child.h"
#include "storage/registry.h"
#include "daemon/wire/json_words.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/print/say.h"

#define PROGRESS_NS (100 * NS_PER_MS)

/* ---- the configuration ---- */

/* Not just devices: the daemon's settings too. */
static bool is_whole_configuration(const char *text, size_t bytes)
{
	struct config_errors ignored;
	struct yaml_doc doc = { 0 };
	bool is_whole;

	config_errors_init(&ignored, "");
	yaml_parse_value(&doc, text, bytes, &ignored);
	is_whole = doc.root && doc.root->kind == YAML_MAP && yaml_get(doc.root, "daemon");
	yaml_free(&doc);
	config_errors_fini(&ignored);
	return is_whole;
}

static enum exit_code s3_settings_read(struct settings *s, const char *path)
{
	static char text[CTL_YAML_BYTES_MAX + 1];
	long bytes = ctl_yaml_read(path, text);
	struct config_errors errors;
	char *words;
	int ret;

	if (bytes < 0)
		return EXIT_REFUSED;
	config_errors_init(&errors, path);
	ret = is_whole_configuration(text, (size_t)bytes)
		      ? settings_load(s, path, &errors)
		      : settings_parse_devices(s, text, (size_t)bytes, &errors);
	if (ret < 0) {
		words = config_errors_text(&errors);
		/* Its lines are printable already. */
		fputs(words && words[0] ? words : "ublkctl: out of memory\n", stderr);
		free(words);
	}
	config_errors_fini(&errors);
	return ret < 0 ? EXIT_REFUSED : EXIT_DONE;
}

static unsigned count_s3_disks(const struct backend_spec *spec)
{
	unsigned nr = spec->ops == &backend_s3_disk;

	for (const struct backend_spec *child = spec->child; child; child = child->sibling)
		nr += count_s3_disks(child);
	return nr;
}

/* The only one with such disks, or the one that was asked for. NULL: told. */
static const struct device_settings *choose_s3_device(const struct settings *s,
						      const struct ublkctl_args *a)
{
	const struct device_settings *found = NULL;

	for (size_t i = 0; i < s->device_nr; i++) {
		const struct device_settings *d = s->devices[i];
		bool is_named = !a->gc_device || strcmp(a->gc_device, d->options.name) == 0;

		if (!is_named || count_s3_disks(d->backend) == 0)
			continue;
		if (found) {
			say_to(stderr,
			       "ublkctl: %s: %s and %s have disks of S3 objects: --device NAME "
			       "says which\n",
			       a->name, found->options.name, d->options.name);
			return NULL;
		}
		found = d;
	}
	if (!found)
		say_to(stderr, "ublkctl: %s: no device%s%s with a backend s3-disk\n", a->name,
		       a->gc_device ? " named " : "", a->gc_device ? a->gc_device : "");
	return found;
}

/* ---- one disk ---- */

struct s3_gc_run {
	const struct ublkctl_args *args;
	const char *device;
	json_t *disks; /* what --json prints of each */
	enum exit_code code;
	/* Of the one that is under way. */
	struct reactor reactor;
	char where[S3_DISK_GC_WHERE_BYTES];
	bool is_over, is_terminal;
	uint64_t told_ns;
	int result;
	char words[S3_DISK_GC_WORDS_BYTES];
};

static void show_s3_progress(void *arg, const struct s3_disk_gc_report *report)
{
	struct s3_gc_run *run = arg;
	uint64_t now_ns = run->reactor.now_ns;
	unsigned long long kept = report->kept.objects, garbage = report->garbage.objects;

	if (!run->is_terminal || now_ns - run->told_ns < PROGRESS_NS)
		return;
	run->told_ns = now_ns;
	fputs("\r\033[K", stderr);
	say_to(stderr, "%s: %llu objects, %llu of them garbage, %llu deleted", report->doing,
	       kept + garbage, garbage, (unsigned long long)report->deleted.objects);
	fflush(stderr);
}

static void note_s3_end(void *arg, int result, const char *words)
{
	struct s3_gc_run *run = arg;

	run->is_over = true;
	run->result = result;
	snprintf(run->words, sizeof(run->words), "%s", words);
}

static json_t *s3_count_json(const struct s3_disk_gc_count *count)
{
	return json_pack("{s:I, s:I, s:I}", "objects", (json_int_t)count->objects, "bytes",
			 (json_int_t)count->bytes, "maps", (json_int_t)count->maps);
}

static json_t *s3_disk_json(const struct s3_gc_run *run, const struct s3_disk_gc_report *report)
{
	return json_pack("{s:o, s:I, s:I, s:o, s:o, s:o, s:o}", "disk", json_words(run->where),
			 "generation", (json_int_t)report->generation, "snapshots",
			 (json_int_t)report->snapshots, "kept", s3_count_json(&report->kept),
			 "garbage", s3_count_json(&report->garbage), "deleted",
			 s3_count_json(&report->deleted), "error",
			 run->result < 0 ? json_words(run->words) : json_null());
}

static void print_s3_count(const char *what, const struct s3_disk_gc_count *count)
{
	char bytes[FORMAT_BYTES];

	say_to(stdout, "%s %llu object%s (%s) and %llu map%s", what,
	       (unsigned long long)count->objects, count->objects == 1 ? "" : "s",
	       format_bytes(count->bytes, bytes), (unsigned long long)count->maps,
	       count->maps == 1 ? "" : "s");
}

static void print_s3_disk(const struct s3_gc_run *run, const struct s3_disk_gc_report *report)
{
	say_to(stdout, "%s: ", run->where);
	print_s3_count("kept", &report->kept);
	if (run->args->dry_run)
		print_s3_count("; would delete", &report->garbage);
	else
		print_s3_count("; deleted", &report->deleted);
	putchar('\n');
}

static void tell_s3_disk(struct s3_gc_run *run, const struct s3_disk_gc *gc)
{
	static const struct s3_disk_gc_report none;
	const struct s3_disk_gc_report *report = gc ? s3_disk_gc_look(gc) : &none;
	const struct s3_disk_gc_count *deleted = &report->deleted;

	if (run->is_terminal)
		fputs("\r\033[K", stderr);
	if (run->result < 0) {
		say_to(stderr, "ublkctl: %s: %s\n", run->where, run->words);
		run->code = EXIT_REFUSED;
	}
	if (run->args->json)
		json_array_append_new(run->disks, s3_disk_json(run, report));
	else if (run->result == 0 || deleted->objects + deleted->maps > 0)
		print_s3_disk(run, report);
}

static void run_s3_gc(struct s3_gc_run *run, const struct backend_spec *spec)
{
	const struct s3_disk_gc_params params = {
		.config = spec->config,
		.name = run->device,
		.is_dry = run->args->dry_run,
		.progress = show_s3_progress,
		.done = note_s3_end,
		.arg = run,
	};
	struct s3_disk_gc *gc;

	run->result = s3_disk_gc_begin(&gc, &run->reactor, &params, run->words);
	run->is_over = run->result < 0;
	while (!run->is_over)
		reactor_turn(&run->reactor, true);
	tell_s3_disk(run, gc);
	s3_disk_gc_free(gc);
}

static void collect_s3_disk(struct s3_gc_run *run, const struct backend_spec *spec)
{
	const struct reactor_params small = { .sq_entries = 32, .cq_entries = 128 };

	s3_disk_gc_where(spec->config, run->where);
	run->result = reactor_init(&run->reactor, &small);
	if (run->result == 0) {
		run_s3_gc(run, spec);
		reactor_fini(&run->reactor);
	} else {
		snprintf(run->words, sizeof(run->words),
			 "io_uring cannot be used (%s): ublkctl doctor may say why",
			 errname(run->result));
		tell_s3_disk(run, NULL);
	}
}

static void collect_s3_disks(struct s3_gc_run *run, const struct backend_spec *spec)
{
	if (spec->ops == &backend_s3_disk)
		collect_s3_disk(run, spec);
	for (const struct backend_spec *child = spec->child; child; child = child->sibling)
		collect_s3_disks(run, child);
}

/* ---- s3-gc ---- */

static enum exit_code collect_s3_device(const struct ublkctl_args *a,
					const struct device_settings *device)
{
	struct s3_gc_run *run = calloc(1, sizeof(*run));
	enum exit_code code;
	json_t *json;

	if (!run)
		return EXIT_REFUSED;
	run->args = a;
	run->device = device->options.name;
	run->disks = json_array();
	run->is_terminal = isatty(STDERR_FILENO);
	collect_s3_disks(run, device->backend);
	json = json_pack("{s:s, s:b, s:o}", "device", run->device, "dry_run", a->dry_run, "disks",
			 run->disks);
	if (a->json)
		print_json(json);
	json_decref(json);
	code = run->code;
	free(run);
	return code;
}

enum exit_code ublkctl_s3_gc(const struct ublkctl_args *a)
{
	struct settings settings = { 0 };
	enum exit_code code = s3_settings_read(&settings, a->name);
	const struct device_settings *device = NULL;

	if (code == EXIT_DONE) {
		device = choose_s3_device(&settings, a);
		code = device ? collect_s3_device(a, device) : EXIT_REFUSED;
	}
	settings_free(&settings);
	return code;
}
