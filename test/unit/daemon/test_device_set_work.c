/* device set, backend_work and helper: backends that are opened and closed by threads. */
#define FAKE_PROBES
#include "daemon/runtime/loop.h"
#include "daemon/devices/backend_work.h"
#include "test/rig/device_set_adopt_rig.h"

static struct loop loop;
static struct helpers *helpers;
static struct ctl ctl;

static struct ev_timer tick;

/* What does not come ends the test instead of it all. */
static void on_tick(struct ev_loop *l, struct ev_timer *w, int events)
{
	(void)l, (void)w, (void)events;
}

static void turn(uint64_t until_ns)
{
	ev_run(ev, EVRUN_ONCE);
	if (ring_clock_ns() > until_ns)
		fail_msg("it does not come");
}

static void run_until(const char *name, const char *state)
{
	uint64_t until_ns = ring_clock_ns() + 20 * NS_PER_SEC;

	while (strcmp(state_of(name), state) != 0)
		turn(until_ns);
}

static void wait_for_asked(unsigned nr)
{
	uint64_t until_ns = ring_clock_ns() + 20 * NS_PER_SEC;

	while (atomic_load(&fake_asked) < nr)
		turn(until_ns);
}

enum how { ADDED, ADOPTED };

/* A device "a" whose server is being asked, until the test posts fake_answer_sem. */
static struct member *one_that_waits(enum how how, const char *backend)
{
	struct member *m;

	rig_backend = backend;
	m = how == ADOPTED ? adopt("a") : add("a", true);
	wait_for_asked(1);
	return m;
}

static struct member *one_that_asks(enum how how)
{
	return one_that_waits(how, "{type: net, path: slow}");
}

/* The same, but its open(2) does not return: on a helper. */
static struct member *one_that_is_stuck(enum how how)
{
	return one_that_waits(how, "{type: net, path: stuck}");
}

/* Threads that nobody waits for have ended: nothing is open. */
static void wait_for_threads(void)
{
	while (atomic_load(&fake_ended) != atomic_load(&fake_asked) || atomic_load(&fake_nets))
		usleep(1000);
}

static int examine_setup(void **state)
{
	assert_int_equal(loop_init(&loop), 0);
	ctl = (struct ctl){ .reactor = &loop.control };
	assert_int_equal(helpers_create(&helpers, &loop.control), 0);
	host = (struct device_host){ .ctl = &ctl, .helpers = helpers };
	rig_backend = "{type: net, path: good}";
	assert_int_equal(sem_init(&fake_answer_sem, 0, 0), 0);
	atomic_store(&fake_asked, 0);
	atomic_store(&fake_ended, 0);
	atomic_store(&fake_bad_times, 0);
	strcpy(fake_found, "nothing");
	ev_timer_init(&tick, on_tick, .05, .05);
	ev_timer_start(loop.ev, &tick);
	return adopt_setup(state);
}

static int examine_teardown(void **state)
{
	int ret = adopt_teardown(state);

	ev_timer_stop(ev, &tick);
	helpers_close(helpers);
	wait_for_threads();
	sem_destroy(&fake_answer_sem);
	loop_fini(&loop);
	host = (struct device_host){ 0 };
	return ret;
}

static void test_good(void **state)
{
	struct member *m = add("a", true);
	struct told t;

	(void)state;
	watch(&t, m);
	assert_string_equal(state_of("a"), "starting");
	assert_null(m->device);
	assert_int_equal(fake_nr, 0);
	assert_string_equal(note_of("a"), "none");
	assert_false(device_set_settled(&device_set));
	run_until("a", "live");
	assert_int_equal(t.outcome, DEVICE_SET_LIVE);
	assert_string_equal(fake_found, "good");
	assert_null(m->work);
}

/* Who does not ask is opened at once. */
static void test_who_does_not_ask(void **state)
{
	(void)state;
	rig_backend = "{type: mem, size: 1M}";
	strcpy(fake_found, "nothing");
	add("a", true);
	assert_null(fake_find("a"));
	run_until("a", "live");
	assert_int_equal(atomic_load(&fake_asked), 0);
	assert_string_equal(fake_found, "nothing");
}

static void test_bad(void **state)
{
	struct told t;

	(void)state;
	rig_backend = "{type: net, path: bad}";
	watch(&t, add("a", true));
	run_until("a", "failed");
	run();
	assert_int_equal(t.outcome, DEVICE_SET_FAILED);
	assert_string_equal(t.error, "no server at bad: is it started?");
	assert_string_equal(device_set_find(&device_set, "a")->error, t.error);
	assert_true(device_set_settled(&device_set));
	watch(&t, add("b", false));
	run_until("b", "none");
	assert_int_equal(t.outcome, DEVICE_SET_FAILED);
	assert_string_equal(t.error, "no server at bad: is it started?");
	/* It is there now. */
	rig_backend = "{type: net, path: good}";
	reload("a");
	run_until("a", "live");
	assert_int_equal(fake_starts > 0, 1);
}

/* The backend is good, the device is not. */
static void test_open_and_not_started(void **state)
{
	uint64_t until_ns = ring_clock_ns() + 20 * NS_PER_SEC;

	(void)state;
	add("absent", true);
	run_until("absent", "failed");
	assert_string_equal(note_of("absent"), "none");
	while (atomic_load(&fake_nets))
		turn(until_ns);
}

/* The question is given up at once; what open(2) was called for is closed again. */
static void test_stopped_while_it_asks(void **state)
{
	uint64_t until_ns = ring_clock_ns() + 20 * NS_PER_SEC;
	struct member *m = one_that_asks(ADDED);
	struct told t;

	(void)state;
	device_set_del(&device_set, m, false);
	watch(&t, m);
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_string_equal(state_of("a"), "none");
	while (atomic_load(&fake_ended) == 0 || atomic_load(&fake_nets))
		turn(until_ns);
	assert_int_equal(fake_nr, 0);
	sem_post(&fake_answer_sem);
	add("b", true);
	run_until("b", "live");
	assert_null(fake_find("a"));
}

/* open(2) returns, and nobody wants it: its peer is not asked any more, and it is closed. */
static void test_stopped_while_it_is_stuck(void **state)
{
	uint64_t until_ns = ring_clock_ns() + 20 * NS_PER_SEC;
	struct member *m = one_that_is_stuck(ADDED);
	struct told t;

	(void)state;
	device_set_del(&device_set, m, false);
	watch(&t, m);
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_string_equal(state_of("a"), "none");
	sem_post(&fake_answer_sem);
	while (atomic_load(&fake_ended) == 0 || atomic_load(&fake_nets))
		turn(until_ns);
	assert_int_equal(fake_nr, 0);
	assert_string_equal(fake_found, "nothing");
}

static void test_changed_while_it_asks(void **state)
{
	(void)state;
	one_that_asks(ADDED);
	/* The same again goes on as it is. */
	reload("a");
	run();
	assert_string_equal(state_of("a"), "starting");
	assert_int_equal(atomic_load(&fake_asked), 1);
	rig_backend = "{type: net, path: good}";
	reload("a");
	run_until("a", "live");
	assert_string_equal(fake_found, "good");
	assert_int_equal(atomic_load(&fake_asked), 2);
	sem_post(&fake_answer_sem);
}

static void test_removed_by_reload_while_it_asks(void **state)
{
	(void)state;
	one_that_asks(ADDED);
	reload("");
	run();
	assert_int_equal(device_set.member_nr, 0);
	sem_post(&fake_answer_sem);
}

/* The daemon ends; its loop and its reactor are gone when open(2) returns. */
static void the_end(void **state)
{
	device_set_stop_all(&device_set);
	run();
	assert_int_equal(device_set.member_nr, 0);
	device_set_fini(&device_set);
	ev_timer_stop(ev, &tick);
	helpers_close(helpers);
	loop_fini(&loop);
	sem_post(&fake_answer_sem);
	sem_post(&fake_answer_sem);
	wait_for_threads();
	usleep(20000);
	assert_true(mailbox_empty(&loop.control.mailbox));
	assert_int_equal(loop_init(&loop), 0);
	assert_int_equal(helpers_create(&helpers, &loop.control), 0);
	host.helpers = helpers;
	setup(state);
	device_set.state = &notes;
}

static void test_the_end_while_it_asks(void **state)
{
	rig_backend = "{type: net, path: slow}";
	add("a", true);
	add("b", true);
	wait_for_asked(2);
	the_end(state);
}

static void test_the_end_while_it_is_stuck(void **state)
{
	rig_backend = "{type: net, path: stuck}";
	add("a", true);
	rig_backend = "{type: net, path: stuck2}";
	add("b", true);
	wait_for_asked(2);
	the_end(state);
}

/* An answer that came and was not read. */
static void test_the_end_before_the_answer_is_read(void **state)
{
	(void)state;
	add("a", true);
	while (atomic_load(&fake_nets) == 0)
		usleep(1000);
	usleep(20000);
	device_set_stop_all(&device_set);
	ev_run(ev, EVRUN_ONCE | EVRUN_NOWAIT);
	run();
	assert_int_equal(device_set.member_nr, 0);
	assert_int_equal(fake_nr, 0);
	while (atomic_load(&fake_nets))
		turn(ring_clock_ns() + 20 * NS_PER_SEC);
}

static void test_more_than_threads(void **state)
{
	char name[8];
	unsigned nr = 2 * BACKEND_WORK_OPENS_MAX;
	uint64_t until_ns = ring_clock_ns() + 20 * NS_PER_SEC;

	(void)state;
	rig_backend = "{type: net, path: slow}";
	for (unsigned i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "d%u", i);
		add(name, true);
	}
	wait_for_asked(BACKEND_WORK_OPENS_MAX);
	for (int i = 0; i < 5; i++)
		ev_run(ev, EVRUN_ONCE);
	assert_int_equal(atomic_load(&fake_asked), BACKEND_WORK_OPENS_MAX);
	for (unsigned i = 0; i < nr; i++)
		sem_post(&fake_answer_sem);
	while (!device_set_settled(&device_set))
		turn(until_ns);
	assert_int_equal(fake_nr, nr);
	assert_int_equal(atomic_load(&fake_asked), nr);
}

/* ---- adopting ---- */

static void test_adopted(void **state)
{
	struct told t;

	(void)state;
	watch(&t, adopt("a"));
	assert_string_equal(state_of("a"), "starting");
	/* Not before the driver is asked: should we die now, nothing was begun. */
	assert_string_equal(note_of("a"), "serving 5");
	run_until("a", "live");
	assert_int_equal(t.outcome, DEVICE_SET_LIVE);
	assert_string_equal(fake_found, "good");
	assert_int_equal(fake_get("a")->spec.id, 5);
}

/* The server comes back later than we do. */
static void test_adopted_after_some_tries(void **state)
{
	uint64_t until_ns = ring_clock_ns() + 20 * NS_PER_SEC;

	(void)state;
	atomic_store(&fake_bad_times, 2);
	rig_backend = "{type: net, path: flaky}";
	adopt("a");
	while (atomic_load(&fake_asked) < 2)
		turn(until_ns);
	assert_string_equal(state_of("a"), "starting");
	run_until("a", "live");
	assert_int_equal(atomic_load(&fake_asked), 3);
	assert_string_equal(device_set_find(&device_set, "a")->error, "");
}

static void test_a_server_that_does_not_come_back(void **state)
{
	struct member *m;
	struct told t;

	(void)state;
	rig_backend = "{type: net, path: bad}";
	m = adopt("a");
	watch(&t, m);
	m->past->until_ns = 0;
	run_until("a", "failed");
	run();
	assert_int_equal(t.outcome, DEVICE_SET_FAILED);
	assert_string_equal(m->error, "no server at bad: is it started?");
	assert_non_null(m->past);
	assert_string_equal(note_of("a"), "serving 5");
	/* A reload finds it; as the driver has it, so with its old settings first. */
	rig_backend = "{type: net, path: good}";
	reload("a");
	run_until("a", "live");
	assert_int_equal(fake_get("a")->spec.id, 5);
}

/* It is held by the dead daemon's I/O when the server has answered: both again. */
static void test_busy_after_the_answer(void **state)
{
	(void)state;
	fake_held_nr = 2;
	adopt("held");
	run_until("held", "live");
	assert_int_equal(fake_held_nr, 0);
	assert_int_equal(atomic_load(&fake_asked), 3);
}

static void test_given_up_while_it_asks(void **state)
{
	struct member *m = one_that_asks(ADOPTED);
	struct told t;

	(void)state;
	device_set_del(&device_set, m, true);
	watch(&t, m);
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_string_equal(note_of("a"), "none");
	sem_post(&fake_answer_sem);
}

/* Politely: it is adopted first, as one that does not ask. */
static void test_removed_while_it_asks(void **state)
{
	struct member *m = one_that_asks(ADOPTED);
	struct told t;

	(void)state;
	device_set_del(&device_set, m, false);
	watch(&t, m);
	run();
	assert_string_equal(state_of("a"), "starting");
	sem_post(&fake_answer_sem);
	run_until("a", "none");
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_string_equal(fake_found, "slow");
}

/* ---- what takes too long ---- */

/* What a test examines before the timeout must not depend on how fast this machine is. */
static void end_open_timeout(struct member *m)
{
	uint64_t until_ns = ring_clock_ns() + 20 * NS_PER_SEC;

	assert_true(ev_is_active(&m->open_timeout));
	ev_timer_stop(ev, &m->open_timeout);
	ev_timer_set(&m->open_timeout, 0., 0.);
	ev_timer_start(ev, &m->open_timeout);
	while (!m->late)
		turn(until_ns);
}

static void test_late_and_then_live(void **state)
{
	struct member *m;
	struct told t;

	(void)state;
	device_set.open_timeout_seconds = 1000;
	m = one_that_asks(ADDED);
	watch(&t, m);
	assert_false(device_set_settled(&device_set));
	assert_true(ev_timer_remaining(ev, &m->open_timeout) > 900);
	end_open_timeout(m);
	assert_int_equal(t.outcome, DEVICE_SET_LATE);
	assert_string_equal(t.error,
			    "asking its server takes longer than 1000 s: waiting for slow");
	assert_string_equal(state_of("a"), "waiting");
	assert_true(device_set_settled(&device_set));
	sem_post(&fake_answer_sem);
	run_until("a", "live");
	assert_false(m->late);
	assert_string_equal(m->error, "");
}

/*
 * A limit of its own, as long as ours: its reason is awaited, a moment longer. Not when that moment
 * is over, nor where it has much more time.
 */
static void test_own_limit_is_awaited(void **state)
{
	static const int64_t limits_ns[] = { NS_PER_SEC, -1, -3 * (int64_t)NS_PER_SEC,
					     60 * NS_PER_SEC };
	struct member *m;
	struct told t;

	(void)state;
	device_set.open_timeout_seconds = 1000;
	for (unsigned i = 0; i < ARRAY_SIZE(limits_ns); i++) {
		fake_limit_ns = limits_ns[i];
		m = one_that_asks(ADDED);
		wait_for_asked(i + 1);
		watch(&t, m);
		ev_invoke(ev, &m->open_timeout, EV_TIMER);
		assert_int_equal(m->late, i > 1);
		assert_int_equal(t.nr, i > 1);
		if (i < 2)
			assert_true(ev_timer_remaining(ev, &m->open_timeout) <= 3);
		sem_post(&fake_answer_sem);
		run_until("a", "live");
		assert_int_equal(t.outcome, i > 1 ? DEVICE_SET_LATE : DEVICE_SET_LIVE);
		device_set_del(&device_set, m, true);
		run_until("a", "none");
	}
	fake_limit_ns = 0;
}

/* Politely, and it is adopted late: nobody knows when, so that it is given up at once. */
static void test_late_and_given_up(void **state)
{
	struct member *m = one_that_asks(ADOPTED);
	struct told t;

	(void)state;
	end_open_timeout(m);
	device_set_del(&device_set, m, false);
	watch(&t, m);
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_string_equal(note_of("a"), "none");
	sem_post(&fake_answer_sem);
}

/* A backend that does not close keeps its member, and nobody else. */
static void test_late_to_close(void **state)
{
	uint64_t until_ns = ring_clock_ns() + 20 * NS_PER_SEC;
	struct member *m;
	struct told t;

	(void)state;
	device_set.open_timeout_seconds = .05;
	m = add("a", true);
	run_until("a", "live");
	atomic_store(&fake_close_waits, true);
	device_set_del(&device_set, m, false);
	watch(&t, m);
	while (!m->late)
		turn(until_ns);
	assert_int_equal(t.outcome, DEVICE_SET_LATE);
	assert_non_null(strstr(t.error, "closing its backend takes longer than"));
	assert_string_equal(state_of("a"), "stopping");
	add("b", true);
	run_until("b", "live");
	atomic_store(&fake_close_waits, false);
	run_until("a", "none");
}

/* ---- devices over devices ---- */

static void test_over_another_device(void **state)
{
	(void)state;
	rig_backend = "{type: net, path: /dev/absent}";
	atomic_store(&fake_absent, true);
	add("upper", true);
	rig_backend = "{type: net, path: slow}";
	add("lower", true);
	wait_for_asked(1);
	for (int i = 0; i < 5; i++)
		ev_run(ev, EVRUN_ONCE);
	assert_string_equal(state_of("upper"), "starting");
	sem_post(&fake_answer_sem);
	run_until("lower", "live");
	atomic_store(&fake_absent, false);
	run_until("upper", "live");
}

/* Nobody else starts: it is not waited for. */
static void test_over_nothing(void **state)
{
	(void)state;
	rig_backend = "{type: net, path: /dev/absent}";
	atomic_store(&fake_absent, true);
	add("upper", true);
	run_until("upper", "failed");
	atomic_store(&fake_absent, false);
}

#define EXAMINE(fn) cmocka_unit_test_setup_teardown(fn, examine_setup, examine_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EXAMINE(test_good),
		EXAMINE(test_who_does_not_ask),
		EXAMINE(test_bad),
		EXAMINE(test_open_and_not_started),
		EXAMINE(test_stopped_while_it_asks),
		EXAMINE(test_stopped_while_it_is_stuck),
		EXAMINE(test_changed_while_it_asks),
		EXAMINE(test_removed_by_reload_while_it_asks),
		EXAMINE(test_the_end_while_it_asks),
		EXAMINE(test_the_end_while_it_is_stuck),
		EXAMINE(test_the_end_before_the_answer_is_read),
		EXAMINE(test_more_than_threads),
		EXAMINE(test_adopted),
		EXAMINE(test_adopted_after_some_tries),
		EXAMINE(test_a_server_that_does_not_come_back),
		EXAMINE(test_busy_after_the_answer),
		EXAMINE(test_given_up_while_it_asks),
		EXAMINE(test_removed_while_it_asks),
		EXAMINE(test_late_and_then_live),
		EXAMINE(test_own_limit_is_awaited),
		EXAMINE(test_late_and_given_up),
		EXAMINE(test_late_to_close),
		EXAMINE(test_over_another_device),
		EXAMINE(test_over_nothing),
	};

	log_init(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, quiet, NULL);
}
