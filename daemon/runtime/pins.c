/*
 * The kernel moves a thread whose only CPU goes offline to others, and never back. What CPUs do is
 * not told in a way that works everywhere (no uevents in containers, none for control groups), so
 * it is seen by looking at each thread's affinity: a system call per reactor and second, and none
 * while the daemon sleeps.
 *
 * Failure modes: the affinity cannot be set for another reason than its CPU: tried again at the
 * next look. An administrator who moves a thread to other CPUs on purpose (taskset) is left alone:
 * only an affinity that has its own CPU among others, as the kernel makes it, is narrowed again.
 */
#include "daemon/runtime/pins.h"

#include <sched.h>

#include "base/log.h"
#include "base/util.h"
#include "host/cpus.h"

#define LOOK_NS NS_PER_SEC
#define AWAY_SECONDS 1.
#define ALONE_SECONDS 5.

static bool is_only(const cpu_set_t *set, int cpu)
{
	return CPU_ISSET((size_t)cpu, set) && CPU_COUNT(set) == 1;
}

static bool pin(pid_t tid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	return sched_setaffinity(tid, sizeof(set), &set) == 0;
}

/* All that the main thread may use: it has no CPU of its own. */
static void unpin(pid_t tid, const cpu_set_t *now)
{
	cpu_set_t all;

	if (sched_getaffinity(0, sizeof(all), &all) == 0 && !CPU_EQUAL(&all, now))
		sched_setaffinity(tid, sizeof(all), &all);
}

static void pins_look_at(struct reactors *rs, unsigned idx)
{
	pid_t tid = reactors_tid(rs, idx);
	bool *away = &rs->away[idx];
	int cpu = rs->cpu[idx];
	bool pinned, was_away = *away;
	cpu_set_t now;

	/* One with no CPU that is online has an empty set. */
	if (sched_getaffinity(tid, sizeof(now), &now) < 0)
		return;
	pinned = is_only(&now, cpu);
	if (!pinned && (*away || CPU_ISSET((size_t)cpu, &now)))
		pinned = pin(tid, cpu);
	if (!pinned && !*away && !cpu_why_not((unsigned)cpu))
		return;
	*away = !pinned;
	if (!pinned)
		unpin(tid, &now);
	if (*away && !was_away)
		log_warn("the CPU of a reactor cannot be used; it runs on others until it can",
			 "reactor=%u cpu=%d reason=\"CPU %d %s\"", idx, cpu, cpu,
			 cpu_why_not((unsigned)cpu));
	else if (!*away && was_away)
		log_info("reactor is on its CPU again", "reactor=%u cpu=%d", idx, cpu);
}

bool pins_look(struct reactors *reactors)
{
	bool any = false;

	for (unsigned i = 0; i < reactors->nr; i++) {
		pins_look_at(reactors, i);
		any |= reactors->away[i];
	}
	return any;
}

static void pins_look_now(struct pins *p)
{
	double seconds = pins_look(p->reactors) ? AWAY_SECONDS : p->idle_seconds;

	p->looked_ns = ring_clock_ns();
	if (p->timer.repeat == seconds)
		return;
	p->timer.repeat = seconds;
	ev_now_update(p->ev);
	ev_timer_again(p->ev, &p->timer); /* stops it at 0 */
}

static void on_pins_timer(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	(void)ev, (void)events;
	pins_look_now(container_of(timer, struct pins, timer));
}

static void on_pins_before_sleep(struct ev_loop *ev, struct ev_prepare *prepare, int events)
{
	struct pins *p = container_of(prepare, struct pins, before_sleep);

	(void)ev, (void)events;
	if (ring_clock_ns() - p->looked_ns >= LOOK_NS)
		pins_look_now(p);
}

void pins_start(struct pins *p, struct ev_loop *ev, struct reactors *reactors, bool wakes)
{
	*p = (struct pins){
		.ev = ev,
		.reactors = reactors,
		.idle_seconds = wakes ? 0. : ALONE_SECONDS,
	};
	ev_timer_init(&p->timer, on_pins_timer, 0., 0.);
	ev_prepare_init(&p->before_sleep, on_pins_before_sleep);
	ev_prepare_start(ev, &p->before_sleep);
	pins_look_now(p);
}

void pins_stop(struct pins *p)
{
	if (!p->ev)
		return;
	ev_timer_stop(p->ev, &p->timer);
	ev_prepare_stop(p->ev, &p->before_sleep);
	*p = (struct pins){ 0 };
}
