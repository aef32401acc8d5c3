/*
 * A reactor as JSON: the statistics of its loop, and whether it turns. Main thread; the counters
 * are written by the reactor's thread, each is read whole.
 */
#include "daemon/api/json_reactor.h"

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "daemon/devices/doing.h"
#include "daemon/wire/json_words.h"
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

static void set_counter(json_t *all, const char *name, uint64_t value)
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

		set_counter(all, counters[i].name,
			    __atomic_load_n((const uint64_t *)counter, __ATOMIC_RELAXED));
	}
	reactor_times(r, &times);
	set_counter(all, "callback_ns", times.callback_ns);
	set_counter(all, "kernel_ns", times.kernel_ns);
	set_counter(all, "poll_ns", times.poll_ns);
	set_counter(all, "idle_ns", times.idle_ns);
	return all;
}

/* ---- whether it turns ---- */

/* For a reactor that has not answered its ping, or that the watchdog found stuck. */
static void set_doing(json_t *o, const struct device_set *f, const struct reactors *rs,
		      unsigned idx)
{
	struct reactor_look look;
	struct doing doing;
	char text[256];

	reactor_look(rs->reactor[idx], &look);
	doing_find(f, rs, idx, &look, &doing);
	doing_text(&doing, text, sizeof(text));
	json_object_set_new(o, "doing", json_words(text));
}

static json_t *json_reactor_alive(const struct reactors *rs, unsigned idx, uint64_t silent_ns)
{
	const struct reactor *r = rs->reactor[idx];
	uint64_t turns = __atomic_load_n(&r->stats.turns, __ATOMIC_RELAXED);

	return json_pack("{s:i, s:i, s:i, s:I, s:I}", "reactor", (int)idx, "cpu", rs->cpu[idx],
			 "ring_fd", r->ring.uring.ring_fd, "turns", (json_int_t)turns, "silent_ns",
			 (json_int_t)silent_ns);
}

json_t *json_reactors_alive(const struct device_set *f, const struct reactors *rs,
			    const struct watchdog *watchdog, uint64_t now_ns)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < rs->nr; i++) {
		uint64_t silent_ns = reactors_silent_ns(rs, i, now_ns);
		uint64_t stuck_ns = watchdog_stuck_ns(watchdog, i);
		json_t *o = json_reactor_alive(rs, i, MAX(silent_ns, stuck_ns));

		json_object_set_new(o, "stuck_ns", json_integer((json_int_t)stuck_ns));
		if (silent_ns || stuck_ns)
			set_doing(o, f, rs, i);
		json_array_append_new(all, o);
	}
	return all;
}
