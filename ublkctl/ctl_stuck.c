/*
 * `ublkctl why-stuck`: prints the daemon's and the kernel's view of each device with the verdict.
 *
 * Happy path: both views are read twice, so that a reactor that turns has answered its ping, and a
 * request that is in both looks did not just arrive. Failure modes: no daemon: the reason is
 * printed; no debugfs, no block device: that part is unknown.
 */
#include "ublkctl/ctl_commands.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/util.h"
#include "ublkctl/client.h"
#include "ublkctl/ctl_kernel.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/print/say.h"
#include "daemon/verdict/stuck.h"
#include "daemon/wire/json_words.h"
#include "ublkctl/print/table.h"
#include "base/format.h"

/* Longer than STUCK_REACTOR_NS. */
#define BETWEEN_LOOKS_US 300000

/* ---- the kernel's view ---- */

#define DEVICES_MAX 4096
#define REACTORS_MAX 1024

/* What is looked at once, in whatever order the devices ask for it. */
struct ring_looks {
	bool looked[REACTORS_MAX];
	struct kernel_ring ring[REACTORS_MAX];
};

struct looks {
	json_t *first, *second;
	struct kernel_view kernel[DEVICES_MAX]; /* in the order of the first look */
	struct ring_looks rings_first, rings_second;
};

static const struct kernel_ring *look_at_ring(struct ring_looks *looks, const json_t *data,
					      uint64_t reactor)
{
	static const struct kernel_ring unknown = { .err = -ENODATA };
	const json_t *r = json_array_get(json_object_get(data, "reactors"), reactor);

	/* An older ublkd reports neither its pid nor the ring. */
	if (reactor >= REACTORS_MAX || !json_object_get(r, "ring_fd"))
		return &unknown;
	if (!looks->looked[reactor]) {
		kernel_look_ring((int)client_number(data, "pid"), (int)client_number(r, "ring_fd"),
				 &looks->ring[reactor]);
		looks->looked[reactor] = true;
	}
	return &looks->ring[reactor];
}

/* What stands in the ring in both looks without having moved. */
static void add_ring(struct stuck_view *v, const struct kernel_ring *a, const struct kernel_ring *b)
{
	if (a->err < 0 || b->err < 0)
		return;
	if (a->sq_head == b->sq_head)
		v->sq_waiting = MIN(a->sq_waiting, b->sq_waiting);
	if (a->cq_head == b->cq_head)
		v->cq_unseen = MIN(a->cq_unseen, b->cq_unseen);
	v->overflow = MIN(a->overflow, b->overflow);
}

/* ---- printing ---- */

static void print_queues(const json_t *device, const json_t *reactors)
{
	char age[FORMAT_BYTES];
	json_t *q;
	size_t i;

	json_array_foreach(json_object_get(device, "queues"), i, q)
	{
		const json_t *r = json_array_get(reactors, client_number(q, "reactor"));
		uint64_t silent_ns = client_number(r, "silent_ns");
		bool turns = silent_ns < STUCK_REACTOR_NS;

		say_to(stdout,
		       "  daemon  queue %llu: %llu of %llu tags armed, %u in flight; reactor %llu "
		       "%s%s, %llu turns\n",
		       client_number(q, "queue"), client_number(q, "armed"),
		       client_number(q, "depth"), stuck_queue_inflight(q),
		       client_number(q, "reactor"), turns ? "answers" : "silent for ",
		       turns ? "" : format_ns(silent_ns, age), client_number(r, "turns"));
	}
}

static void print_kernel(const struct kernel_view *k)
{
	if (kernel_nr(k) < 0) {
		say_to(stdout, "  kernel  no block device, or it is not visible here\n");
		return;
	}
	if (k->inflight >= 0)
		say_to(stdout, "  kernel  %ld in flight", k->inflight);
	else
		say_to(stdout, "  kernel  (sysfs cannot be read)");
	if (k->busy >= 0)
		say_to(stdout, ", %ld tags busy", k->busy);
	else
		say_to(stdout, " (debugfs cannot be read)");
	say_to(stdout, "%s%s\n", k->state[0] ? ", hctx0 state " : "", k->state);
}

static void print_driver(const struct stuck_view *v)
{
	char age[FORMAT_BYTES];

	if (v->driver_error)
		say_to(stdout, "  driver  refuses to report its state: %s\n", v->driver_error);
	else if (!v->driver_state)
		say_to(stdout, "  driver  %s\n",
		       v->driver_owed_ns ? "has not answered yet"
					 : "was not asked: the device is not added");
	else if (v->server_pid > 0)
		say_to(stdout, "  driver  %s, its server is pid %d%s\n", v->driver_state,
		       v->server_pid, v->server_pid == v->daemon_pid ? " (this ublkd)" : "");
	else
		say_to(stdout, "  driver  %s, without a server\n", v->driver_state);
	if (v->driver_owed_ns >= STUCK_REACTOR_NS)
		say_to(stdout, "  driver  has not answered for %s\n",
		       format_ns(v->driver_owed_ns, age));
}

static void print_command(const json_t *device)
{
	const char *name = client_text(device, "command"),
		   *where = client_text(device, "command_waits_in");
	char waited[FORMAT_BYTES];

	if (!name[0])
		return;
	say_to(stdout, "  driver  %s has not completed for %s%s%s\n", name,
	       format_ns(client_number(device, "command_waited_ns"), waited),
	       where[0] ? ": waits in " : "", where);
}

static const char *unread_ring_hint(int err)
{
	switch (-err) {
	case EAGAIN:
		return " (the kernel had it locked)";
	case EACCES:
	case EPERM:
		return " (needs root)";
	case ENOENT:
		return " (ublkd runs in another pid namespace, or has ended)";
	default:
		return "";
	}
}

static void print_ring(uint64_t reactor, const struct kernel_ring *ring)
{
	if (ring->err < 0)
		say_to(stdout, "  ring    reactor %llu: cannot be read: %s%s\n",
		       (unsigned long long)reactor, errname(ring->err),
		       unread_ring_hint(ring->err));
	else
		say_to(stdout,
		       "  ring    reactor %llu: %u submissions not consumed, %u completions not "
		       "reaped, "
		       "%u overflowed\n",
		       (unsigned long long)reactor, ring->sq_waiting, ring->cq_unseen,
		       ring->overflow);
}

/* True when a queue before this one has the same reactor. */
static bool reactor_was_told(const json_t *queues, size_t nr)
{
	uint64_t reactor = client_number(json_array_get(queues, nr), "reactor");

	for (size_t i = 0; i < nr; i++)
		if (client_number(json_array_get(queues, i), "reactor") == reactor)
			return true;
	return false;
}

static void print_rings(struct looks *l, const json_t *device)
{
	const json_t *queues = json_object_get(device, "queues");

	for (size_t i = 0; i < json_array_size(queues); i++) {
		uint64_t reactor = client_number(json_array_get(queues, i), "reactor");

		if (!reactor_was_told(queues, i))
			print_ring(reactor, look_at_ring(&l->rings_second, l->second, reactor));
	}
}

static void print_oldest(const struct stuck_view *v)
{
	char age[FORMAT_BYTES], place[STUCK_PLACE_BYTES];

	if (!v->has_oldest)
		return;
	say_to(stdout, "  oldest  queue %u tag %u: %s%s, %s old, %s%s%s%s%s\n", v->queue, v->tag,
	       v->op, stuck_place(v, place), format_ns(v->age_ns, age), v->state,
	       v->backend ? " in " : "", v->backend ? v->backend : "", v->backend_state ? ": " : "",
	       v->backend_state ? v->backend_state : "");
}

static json_t *json_ring(uint64_t reactor, const struct kernel_ring *ring)
{
	if (ring->err < 0)
		return json_pack("{s:I, s:s}", "reactor", (json_int_t)reactor, "error",
				 errname(ring->err));
	return json_pack("{s:I, s:I, s:I, s:I}", "reactor", (json_int_t)reactor, "sq_waiting",
			 (json_int_t)ring->sq_waiting, "cq_unseen", (json_int_t)ring->cq_unseen,
			 "overflow", (json_int_t)ring->overflow);
}

static json_t *json_rings(struct looks *l, const json_t *device)
{
	const json_t *queues = json_object_get(device, "queues");
	json_t *all = json_array();

	for (size_t i = 0; i < json_array_size(queues); i++) {
		uint64_t reactor = client_number(json_array_get(queues, i), "reactor");

		if (!reactor_was_told(queues, i))
			json_array_append_new(
				all, json_ring(reactor,
					       look_at_ring(&l->rings_second, l->second, reactor)));
	}
	return all;
}

static json_t *verdict_json(struct looks *l, const json_t *device, const struct kernel_view *k,
			    const struct stuck_verdict *verdict)
{
	json_t *o = json_pack(
		"{s:s, s:o, s:s, s:I, s:I, s:o, s:I, s:o}", "verdict",
		stuck_kind_name(verdict->kind), "where", json_words(verdict->where), "cure",
		verdict->cure, "kernel_inflight", (json_int_t)k->inflight, "kernel_busy",
		(json_int_t)k->busy, "kernel_hctx0", json_words(k->state), "pid",
		(json_int_t)client_number(l->second, "pid"), "rings", json_rings(l, device));

	json_object_update_missing(o, (json_t *)device);
	return o;
}

static void print_verdict(const struct stuck_verdict *verdict)
{
	bool bad = verdict->kind != STUCK_NOTHING;

	fputs("  ", stdout);
	table_say(bad ? TABLE_RED : TABLE_GREEN, "%s", verdict->where);
	putchar('\n');
	if (verdict->cure[0])
		say_to(stdout, "  to do:  %s\n", verdict->cure);
}

/* ---- two looks ---- */

/* The same device in the first look; NULL: it was not there. */
static const json_t *find_device_in(const json_t *data, const char *name)
{
	json_t *device;
	size_t i;

	json_array_foreach(json_object_get(data, "devices"), i, device)
	{
		if (strcmp(client_text(device, "name"), name) == 0)
			return device;
	}
	return NULL;
}

/* The view of both looks, where there were two. */
static void look_again(struct looks *l, const json_t *device, const struct kernel_view *first,
		       struct stuck_view *ret_view, struct kernel_view *ret_kernel)
{
	const json_t *before = find_device_in(l->first, client_text(device, "name"));
	struct stuck_view old;

	kernel_look(json_integer_value(json_object_get(device, "id")), ret_kernel);
	stuck_view_fill(ret_view, device, l->second);
	if (!before || !first)
		return;
	stuck_view_fill(&old, before, l->second);
	ret_view->seen_nr = MAX(ret_view->seen_nr, old.seen_nr);
	ret_view->kernel_nr = MIN(kernel_nr(ret_kernel), kernel_nr(first));
	if (ret_view->reactor >= 0)
		add_ring(ret_view,
			 look_at_ring(&l->rings_first, l->first, (uint64_t)ret_view->reactor),
			 look_at_ring(&l->rings_second, l->second, (uint64_t)ret_view->reactor));
}

static void judge_device(struct looks *l, const json_t *device, json_t *all,
			 const struct kernel_view *first)
{
	struct stuck_verdict verdict;
	struct kernel_view kernel;
	struct stuck_view view;

	look_again(l, device, first, &view, &kernel);
	stuck_judge(&view, &verdict);
	if (all) {
		json_array_append_new(all, verdict_json(l, device, &kernel, &verdict));
		return;
	}
	table_say(TABLE_BOLD, "%s", view.name);
	say_to(stdout, " (%s)\n", view.step);
	print_queues(device, json_object_get(l->second, "reactors"));
	print_kernel(&kernel);
	print_driver(&view);
	print_command(device);
	print_rings(l, device);
	print_oldest(&view);
	print_verdict(&verdict);
}

static void look_first(struct looks *l)
{
	json_t *device, *queue;
	size_t i, j;

	json_array_foreach(json_object_get(l->first, "devices"), i, device)
	{
		if (i < DEVICES_MAX)
			kernel_look(json_integer_value(json_object_get(device, "id")),
				    &l->kernel[i]);
		json_array_foreach(json_object_get(device, "queues"), j, queue)
			look_at_ring(&l->rings_first, l->first, client_number(queue, "reactor"));
	}
}

static void print_looks(struct looks *l, bool json)
{
	json_t *devices = json_object_get(l->second, "devices"), *device;
	json_t *all = json ? json_array() : NULL;
	size_t i;

	json_array_foreach(devices, i, device)
	{
		const json_t *before = json_array_get(json_object_get(l->first, "devices"), i);
		bool same = before &&
			    strcmp(client_text(before, "name"), client_text(device, "name")) == 0;

		judge_device(l, device, all, same && i < DEVICES_MAX ? &l->kernel[i] : NULL);
	}
	if (json)
		print_json(all);
	else if (json_array_size(devices) == 0)
		say_to(stdout, "no devices\n");
	json_decref(all);
}

enum exit_code ublkctl_why_stuck(const struct ublkctl_args *a)
{
	static struct looks looks;
	enum exit_code code = client_ask(a->socket_path, client_request("inflight", a->name),
					 CLIENT_SECONDS, &looks.first);

	if (code != EXIT_DONE)
		return code;
	look_first(&looks);
	usleep(BETWEEN_LOOKS_US);
	code = client_ask(a->socket_path, client_request("inflight", a->name), CLIENT_SECONDS,
			  &looks.second);
	if (code == EXIT_DONE)
		print_looks(&looks, a->json);
	json_decref(looks.first);
	json_decref(looks.second);
	return code;
}
