/*
 * The watchdog of the reactors. Main thread.
 *
 * Happy path: four times in the time that a reactor may take, a timer looks at the words that each
 * of them publishes. One that is in code for too long, or inside the kernel although mail or
 * completions wait for it or its thread cannot be interrupted, is told. When no reactor does
 * anything the watchdog dozes: it leaves a nudge with each of them, which the reactor sends back
 * when it wakes, and stops its timer, so that an idle daemon sleeps for good.
 *
 * Failure modes: a reactor that hangs inside the kernel without ever having come back to code after
 * an idle time sends no nudge: it is seen as soon as this thread wakes for anything, at the latest
 * for the service manager. This thread itself is watched by the service manager only.
 */
#include "daemon/devices/watchdog.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "daemon/devices/doing.h"
#include "daemon/runtime/notify.h"
#include "base/thread.h"

#define LOOKS_PER_LIMIT 4

struct watched {
	uint64_t turns;	   /* at the last look */
	uint64_t since_ns; /* it has work and has not turned; 0: it is well */
	bool stuck;	   /* and that has been told */
	uint64_t stuck_nr;
	struct watchdog *watchdog;
	struct reactor_nudge nudge;
	bool nudged; /* the nudge is the reactor's, or on its way back */
};

/* ---- one reactor ---- */

static void tell_stuck(struct watchdog *w, unsigned idx, const struct reactor_look *look,
		       uint64_t now_ns)
{
	struct doing doing;

	doing_find(w->params.device_set, w->params.reactors, idx, look, &doing);
	log_error("reactor is stuck",
		  "reactor=%u cpu=%d for_ms=%llu where=%s what=%s whom=\"%s\" thread=%c "
		  "function=\"%s\"",
		  idx, w->params.reactors->cpu[idx],
		  (unsigned long long)((now_ns - w->watched[idx].since_ns) / NS_PER_MS),
		  doing.in_code ? "code" : "kernel", doing.what, doing.whom, doing.thread_state,
		  doing.function);
}

static void set_stuck(struct watchdog *w, unsigned idx, const struct reactor_look *look,
		      uint64_t now_ns)
{
	struct watched *one = &w->watched[idx];

	one->stuck = true;
	one->stuck_nr++;
	w->stuck_nr++;
	tell_stuck(w, idx, look, now_ns);
}

static void set_well(struct watchdog *w, unsigned idx, uint64_t now_ns)
{
	struct watched *one = &w->watched[idx];

	one->stuck = false;
	w->stuck_nr--;
	log_warn("reactor turns again", "reactor=%u after_ms=%llu", idx,
		 (unsigned long long)((now_ns - one->since_ns) / NS_PER_MS));
}

/* Inside the kernel, where it need not have moved: asleep, unless something waits for it. */
static bool watched_has_work(const struct watchdog *w, unsigned idx,
			     const struct reactor_look *look)
{
	return look->mail || look->cqes ||
	       thread_state(reactors_tid(w->params.reactors, idx)) == 'D';
}

/* Since when it has had work without having turned; 0: it has turned, or sleeps. */
static uint64_t busy_since(const struct watchdog *w, unsigned idx, const struct reactor_look *look,
			   uint64_t now_ns)
{
	const struct watched *one = &w->watched[idx];

	if (look->code_since_ns)
		return look->code_since_ns;
	if (look->turns != one->turns || !watched_has_work(w, idx, look))
		return 0;
	return one->since_ns ? one->since_ns : now_ns;
}

/* Returns whether it sleeps and has done so since the last look. */
static bool watchdog_look_at(struct watchdog *w, unsigned idx, uint64_t now_ns)
{
	struct watched *one = &w->watched[idx];
	struct reactor_look look;
	uint64_t since_ns;
	bool moved;

	reactor_look(w->params.reactors->reactor[idx], &look);
	moved = look.turns != one->turns;
	since_ns = busy_since(w, idx, &look, now_ns);
	if (one->stuck && (moved || !since_ns))
		set_well(w, idx, now_ns);
	one->turns = look.turns;
	one->since_ns = since_ns;
	if (!one->stuck && since_ns && since_ns + w->params.limit_ns <= now_ns)
		set_stuck(w, idx, &look, now_ns);
	return !moved && !since_ns;
}

/* Returns whether all of them sleep. */
static bool watchdog_look_at_all(struct watchdog *w)
{
	uint64_t now_ns = ring_clock_ns();
	bool quiet = true;

	for (unsigned i = 0; i < w->params.reactors->nr; i++)
		quiet &= watchdog_look_at(w, i, now_ns);
	return quiet;
}

/* ---- sleeping while they sleep ---- */

static void wake_up(struct watchdog *w)
{
	w->quiet_nr = 0;
	if (!w->dozes)
		return;
	w->dozes = false;
	ev_now_update(w->params.ev);
	ev_timer_again(w->params.ev, &w->look);
}

/* A turn of the control reactor: a reactor has woken. */
static void on_nudge(struct mail *mail)
{
	struct watched *one = container_of(mail, struct watched, nudge.mail);

	one->nudged = false;
	wake_up(one->watchdog);
}

static bool nudge_all(struct watchdog *w)
{
	bool nudged = true;

	for (unsigned i = 0; i < w->params.reactors->nr; i++) {
		struct watched *one = &w->watched[i];

		if (one->nudged)
			continue;
		one->nudged = true;
		nudged = false;
		reactor_nudge(w->params.reactors->reactor[i], &one->nudge);
	}
	return nudged;
}

/*
 * The nudges have been with them for a whole interval before the timer stops: a reactor that was
 * on its way out of the kernel when it got its nudge has either seen it or is seen to have moved.
 */
static void on_watchdog_look(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	struct watchdog *w = container_of(timer, struct watchdog, look);

	(void)events;
	w->quiet_nr = watchdog_look_at_all(w) ? w->quiet_nr + 1 : 0;
	if (w->quiet_nr == 0 || !nudge_all(w) || w->quiet_nr < 2)
		return;
	w->dozes = true;
	ev_timer_stop(ev, timer);
}

/* This thread was awake for something else, and may have given work to a reactor. */
static void on_watchdog_before_sleep(struct ev_loop *ev, struct ev_prepare *prepare, int events)
{
	struct watchdog *w = container_of(prepare, struct watchdog, before_sleep);

	(void)ev, (void)events;
	if (w->dozes && !watchdog_look_at_all(w))
		wake_up(w);
}

/* ---- the service manager ---- */

static void on_alive(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	struct watchdog *w = container_of(timer, struct watchdog, alive);

	(void)ev, (void)events;
	if (w->params.limit_ns)
		watchdog_look_at_all(w);
	if (w->stuck_nr == 0)
		notify_watchdog();
}

/* ---- up and down ---- */

static void start_looking(struct watchdog *w)
{
	double seconds = (double)w->params.limit_ns / NS_PER_SEC / LOOKS_PER_LIMIT;

	ev_timer_init(&w->look, on_watchdog_look, seconds, seconds);
	ev_timer_start(w->params.ev, &w->look);
	ev_prepare_init(&w->before_sleep, on_watchdog_before_sleep);
	ev_set_priority(&w->before_sleep, EV_MINPRI);
	ev_prepare_start(w->params.ev, &w->before_sleep);
}

static void start_telling(struct watchdog *w, uint64_t interval_ns)
{
	double seconds = (double)interval_ns / NS_PER_SEC / 2;

	ev_timer_init(&w->alive, on_alive, seconds, seconds);
	ev_timer_start(w->params.ev, &w->alive);
}

int watchdog_start(struct watchdog *w, const struct watchdog_params *params)
{
	unsigned nr = params->reactors->nr;
	uint64_t interval_ns = notify_watchdog_ns();

	*w = (struct watchdog){ .params = *params };
	w->watched = calloc(nr, sizeof(w->watched[0]));
	if (!w->watched)
		return -ENOMEM;
	for (unsigned i = 0; i < nr; i++) {
		struct watched *one = &w->watched[i];

		one->watchdog = w;
		one->nudge.home = params->home;
		one->nudge.fn = on_nudge;
	}
	ev_now_update(params->ev);
	if (params->limit_ns)
		start_looking(w);
	if (interval_ns)
		start_telling(w, interval_ns);
	return 0;
}

void watchdog_stop(struct watchdog *w)
{
	if (!w->watched)
		return;
	ev_timer_stop(w->params.ev, &w->look);
	ev_timer_stop(w->params.ev, &w->alive);
	ev_prepare_stop(w->params.ev, &w->before_sleep);
	free(w->watched);
	*w = (struct watchdog){ 0 };
}

uint64_t watchdog_stuck_ns(const struct watchdog *w, unsigned idx)
{
	const struct watched *one = w->watched ? &w->watched[idx] : NULL;

	return one && one->stuck ? ring_clock_ns() - one->since_ns : 0;
}

uint64_t watchdog_stuck_count(const struct watchdog *w, unsigned idx)
{
	return w->watched ? w->watched[idx].stuck_nr : 0;
}
