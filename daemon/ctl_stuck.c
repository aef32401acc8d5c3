/*
 * Puts the daemon's view of a device beside the kernel's and prints both with the verdict. Asks
 * twice: a reactor that turns has answered by then, and a request that both looks saw is no passing
 * one. Failure modes: no daemon (told), no debugfs or no block device (said to be unknown).
 */
#include "daemon/ctl_stuck.h"

#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "daemon/client.h"
#include "daemon/ctl_print.h"
#include "daemon/stuck.h"
#include "daemon/table.h"

/* Longer than STUCK_REACTOR_NS. */
#define BETWEEN_LOOKS_US 300000

static const char *text(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static uint64_t number(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

/* ---- the kernel's view ---- */

struct kernel_view {
	long inflight; /* started, /sys/block; -1: not known */
	long busy;     /* tags in use, debugfs; -1: not known */
	char state[128];
};

static long sysfs_inflight(long long id)
{
	long reads, writes, nr = -1;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/block/ublkb%lld/inflight", id);
	file = fopen(path, "re");
	if (file && fscanf(file, "%ld %ld", &reads, &writes) == 2)
		nr = reads + writes;
	if (file)
		fclose(file);
	return nr;
}

/* One line per request. */
static long count_lines(const char *path)
{
	FILE *file = fopen(path, "re");
	long nr = 0;
	int c;

	if (!file)
		return 0;
	while ((c = fgetc(file)) != EOF)
		nr += c == '\n';
	fclose(file);
	return nr;
}

static long debugfs_busy(long long id)
{
	char pattern[96];
	glob_t found;
	long nr = 0;

	snprintf(pattern, sizeof(pattern), "/sys/kernel/debug/block/ublkb%lld/hctx*/busy", id);
	if (glob(pattern, 0, NULL, &found) != 0)
		return -1;
	for (size_t i = 0; i < found.gl_pathc; i++)
		nr += count_lines(found.gl_pathv[i]);
	globfree(&found);
	return nr;
}

static void debugfs_state(long long id, char *state, size_t bytes)
{
	char path[96];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/kernel/debug/block/ublkb%lld/hctx0/state", id);
	file = fopen(path, "re");
	if (!file || !fgets(state, (int)bytes, file))
		state[0] = '\0';
	state[strcspn(state, "\n")] = '\0';
	if (file)
		fclose(file);
}

static void look_at_kernel(long long id, struct kernel_view *ret_view)
{
	*ret_view = (struct kernel_view){ .inflight = -1, .busy = -1 };
	if (id < 0)
		return;
	ret_view->inflight = sysfs_inflight(id);
	ret_view->busy = debugfs_busy(id);
	debugfs_state(id, ret_view->state, sizeof(ret_view->state));
}

static long kernel_nr(const struct kernel_view *k)
{
	return MAX(k->inflight, k->busy);
}

/* ---- the daemon's view ---- */

static unsigned inflight_of(const json_t *queue)
{
	return (unsigned)(number(queue, "serving") + number(queue, "busy") + number(queue, "done"));
}

static void add_reactor(struct stuck_view *v, const json_t *reactors, size_t idx)
{
	uint64_t silent_ns = number(json_array_get(reactors, idx), "silent_ns");

	if (v->reactor >= 0 && silent_ns <= v->silent_ns)
		return;
	v->reactor = (int)idx;
	v->silent_ns = silent_ns;
}

static void add_queue(struct stuck_view *v, const json_t *queue, const json_t *reactors)
{
	unsigned armed = (unsigned)number(queue, "armed"), depth = (unsigned)number(queue, "depth");
	unsigned down = (unsigned)number(queue, "down");

	if (!v->has_queues || down > v->short_depth - v->short_armed) {
		v->short_queue = (unsigned)number(queue, "queue");
		v->short_armed = armed;
		v->short_depth = depth;
	}
	v->has_queues = true;
	v->depth += depth;
	v->armed += armed;
	v->inflight += inflight_of(queue);
	add_reactor(v, reactors, number(queue, "reactor"));
}

static void add_oldest(struct stuck_view *v, const json_t *io)
{
	if (!io)
		return;
	v->has_oldest = true;
	v->queue = (unsigned)number(io, "queue");
	v->tag = (unsigned)number(io, "tag");
	v->sector = number(io, "sector");
	v->bytes = number(io, "bytes");
	v->age_ns = number(io, "age_ns");
	v->op = text(io, "op");
	v->state = text(io, "state");
	v->backend = text(io, "backend");
	v->backend_state = text(io, "backend_state");
}

static void fill_view(struct stuck_view *v, const json_t *device, const json_t *reactors)
{
	json_t *queue;
	size_t i;

	*v = (struct stuck_view){
		.name = text(device, "name"),
		.step = text(device, "step"),
		.reactor = -1,
		.kernel_nr = -1,
	};
	json_array_foreach(json_object_get(device, "queues"), i, queue)
		add_queue(v, queue, reactors);
	add_oldest(v, json_array_get(json_object_get(device, "ios"), 0));
	v->seen_nr = v->inflight;
}

/* ---- printing ---- */

static void print_queues(const json_t *device, const json_t *reactors)
{
	char age[CTL_NUMBER_BYTES];
	json_t *q;
	size_t i;

	json_array_foreach(json_object_get(device, "queues"), i, q)
	{
		const json_t *r = json_array_get(reactors, number(q, "reactor"));
		uint64_t silent_ns = number(r, "silent_ns");
		bool turns = silent_ns < STUCK_REACTOR_NS;

		printf("  daemon  queue %llu: %llu of %llu tags armed, %u in flight; reactor %llu "
		       "%s%s, %llu turns\n",
		       (unsigned long long)number(q, "queue"),
		       (unsigned long long)number(q, "armed"),
		       (unsigned long long)number(q, "depth"), inflight_of(q),
		       (unsigned long long)number(q, "reactor"), turns ? "answers" : "silent for ",
		       turns ? "" : ctl_format_ns(silent_ns, age),
		       (unsigned long long)number(r, "turns"));
	}
}

static void print_kernel(const struct kernel_view *k)
{
	if (kernel_nr(k) < 0) {
		printf("  kernel  no block device, or not to be seen from here\n");
		return;
	}
	printf("  kernel  %ld in flight", k->inflight);
	if (k->busy >= 0)
		printf(", %ld tags busy", k->busy);
	else
		printf(" (debugfs cannot be read)");
	printf("%s%s\n", k->state[0] ? ", hctx0 state " : "", k->state);
}

static void print_oldest(const struct stuck_view *v)
{
	char age[CTL_NUMBER_BYTES], bytes[CTL_NUMBER_BYTES];

	if (!v->has_oldest)
		return;
	printf("  oldest  queue %u tag %u: %s of %s at sector %llu, %s old, %s%s%s%s%s\n", v->queue,
	       v->tag, v->op, ctl_format_bytes(v->bytes, bytes), (unsigned long long)v->sector,
	       ctl_format_ns(v->age_ns, age), v->state, v->backend ? " in " : "",
	       v->backend ? v->backend : "", v->backend_state ? ": " : "",
	       v->backend_state ? v->backend_state : "");
}

static json_t *verdict_json(const json_t *device, const struct kernel_view *k,
			    const struct stuck_verdict *verdict)
{
	json_t *o =
		json_pack("{s:s, s:s, s:s, s:I, s:I}", "verdict", stuck_kind_name(verdict->kind),
			  "where", verdict->where, "cure", verdict->cure, "kernel_inflight",
			  (json_int_t)k->inflight, "kernel_busy", (json_int_t)k->busy);

	json_object_update_missing(o, (json_t *)device);
	return o;
}

static void print_verdict(const struct stuck_verdict *verdict)
{
	bool bad = verdict->kind != STUCK_NOTHING;

	printf("  %s%s%s\n", table_color_on(bad ? TABLE_RED : TABLE_GREEN), verdict->where,
	       table_color_off());
	if (verdict->cure[0])
		printf("  to do:  %s\n", verdict->cure);
}

/* ---- two looks ---- */

/* The same device in the first look; NULL: it was not there. */
static const json_t *find(const json_t *data, const char *name)
{
	json_t *device;
	size_t i;

	json_array_foreach(json_object_get(data, "devices"), i, device)
	{
		if (strcmp(text(device, "name"), name) == 0)
			return device;
	}
	return NULL;
}

#define DEVICES_MAX 4096

struct looks {
	json_t *first, *second;
	struct kernel_view kernel[DEVICES_MAX]; /* in the order of the first look */
};

static void judge(struct looks *l, const json_t *device, json_t *all, struct kernel_view *first)
{
	const json_t *reactors = json_object_get(l->second, "reactors"),
		     *before = find(l->first, text(device, "name"));
	struct stuck_verdict verdict;
	struct stuck_view view, old;
	struct kernel_view kernel;

	look_at_kernel(json_integer_value(json_object_get(device, "id")), &kernel);
	fill_view(&view, device, reactors);
	if (before && first) {
		fill_view(&old, before, reactors);
		view.seen_nr = MAX(view.seen_nr, old.seen_nr);
		view.kernel_nr = MIN(kernel_nr(&kernel), kernel_nr(first));
	}
	stuck_judge(&view, &verdict);
	if (all) {
		json_array_append_new(all, verdict_json(device, &kernel, &verdict));
		return;
	}
	printf("%s%s%s (%s)\n", table_color_on(TABLE_BOLD), view.name, table_color_off(),
	       view.step);
	print_queues(device, reactors);
	print_kernel(&kernel);
	print_oldest(&view);
	print_verdict(&verdict);
}

static enum exit_code ask(const char *socket_path, const char *name, json_t **ret_data)
{
	json_t *request = json_pack("{s:s}", "command", "inflight");

	if (name)
		json_object_set_new(request, "name", json_string(name));
	return client_ask(socket_path, request, CLIENT_SECONDS, ret_data);
}

static void look_first(struct looks *l)
{
	json_t *device;
	size_t i;

	json_array_foreach(json_object_get(l->first, "devices"), i, device)
	{
		if (i < DEVICES_MAX)
			look_at_kernel(json_integer_value(json_object_get(device, "id")),
				       &l->kernel[i]);
	}
}

static void tell(struct looks *l, bool json)
{
	json_t *devices = json_object_get(l->second, "devices"), *device;
	json_t *all = json ? json_array() : NULL;
	size_t i;

	json_array_foreach(devices, i, device)
	{
		const json_t *before = json_array_get(json_object_get(l->first, "devices"), i);
		bool same = before && strcmp(text(before, "name"), text(device, "name")) == 0;

		judge(l, device, all, same && i < DEVICES_MAX ? &l->kernel[i] : NULL);
	}
	if (json)
		ctl_print_json(all);
	else if (json_array_size(devices) == 0)
		printf("no devices\n");
	json_decref(all);
}

enum exit_code ctl_why_stuck(const char *socket_path, const char *name, bool json)
{
	static struct looks looks;
	enum exit_code code = ask(socket_path, name, &looks.first);

	if (code != EXIT_DONE)
		return code;
	look_first(&looks);
	usleep(BETWEEN_LOOKS_US);
	code = ask(socket_path, name, &looks.second);
	if (code == EXIT_DONE)
		tell(&looks, json);
	json_decref(looks.first);
	json_decref(looks.second);
	return code;
}
