/*
 * Loop statistics as JSON. Main thread; the counters are written by the reactor's thread, each is
 * read whole.
 */
#include "daemon/api/json_reactor.h"

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "reactor/reactor.h"

static const struct {
	const char *name;
	size_t offset;
} counters[] = {
	{ "turns", offsetof(struct loop_stats, turns) },
	{ "cqes", offsetof(struct loop_stats, cqes) },
	{ "cqes_max", offsetof(struct loop_stats, cqes_max) },
	{ "turn_ns_max", offsetof(struct loop_stats, turn_ns_max) },
	{ "stalls", offsetof(struct loop_stats, stalls) },
	{ "poll_hits", offsetof(struct loop_stats, poll_hits) },
	{ "sq_full", offsetof(struct loop_stats, sq_full) },
	{ "stale", offsetof(struct loop_stats, stale) },
	{ "mails", offsetof(struct loop_stats, mails) },
	{ "timers", offsetof(struct loop_stats, timers) },
	{ "timers_late", offsetof(struct loop_stats, timers_late) },
};

static void set(json_t *all, const char *name, uint64_t value)
{
	json_object_set_new(all, name, json_integer((json_int_t)value));
}

json_t *json_reactor(struct reactor *r, int cpu, bool pinned)
{
	struct reactor_times times;
	json_t *all = json_pack("{s:s, s:i, s:b}", "name", cpu < 0 ? "control" : "data", "cpu", cpu,
				"pinned", pinned);

	for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
		const char *counter = (const char *)&r->stats + counters[i].offset;

		set(all, counters[i].name,
		    __atomic_load_n((const uint64_t *)counter, __ATOMIC_RELAXED));
	}
	reactor_times(r, &times);
	set(all, "callback_ns", times.callback_ns);
	set(all, "kernel_ns", times.kernel_ns);
	set(all, "poll_ns", times.poll_ns);
	set(all, "idle_ns", times.idle_ns);
	return all;
}
