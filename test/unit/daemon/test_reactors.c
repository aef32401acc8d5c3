/* reactors and loop: threads that come and go, and the control reactor inside libev. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "host/cpus.h"
#include "daemon/runtime/loop.h"
#include "daemon/runtime/pins.h"
#include "daemon/runtime/reactors.h"

static const struct option_cpus all_cpus = { .is_auto = true };
static const struct reactors_params all = { .cpus = &all_cpus };

/* Bounces between a data reactor and the control reactor. */
struct ball {
	struct mail mail;
	struct reactor *home, *away;
	unsigned bounces;
	bool done;
};

static void at_home(struct mail *mail);

static void away(struct mail *mail)
{
	struct ball *ball = container_of(mail, struct ball, mail);

	reactor_post(ball->home, &ball->mail, at_home);
}

static void at_home(struct mail *mail)
{
	struct ball *ball = container_of(mail, struct ball, mail);

	if (++ball->bounces == 1000)
		ball->done = true;
	else
		reactor_post(ball->away, &ball->mail, away);
}

static int allowed_cpu_nr(void)
{
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	return CPU_COUNT(&set);
}

static void test_one_reactor_per_cpu(void **state)
{
	char error[REACTORS_ERROR_BYTES];
	struct reactors rs;

	(void)state;
	assert_int_equal(reactors_start(&rs, &all, error, sizeof(error)), 0);
	assert_int_equal(rs.nr, allowed_cpu_nr());
	for (unsigned i = 0; i < rs.nr; i++)
		assert_int_equal(rs.reactor[i]->idx, i);
	reactors_stop(&rs);
	assert_int_equal(rs.nr, 0);
	reactors_stop(&rs); /* again is harmless */
}

static void test_start_and_stop_often(void **state)
{
	char error[REACTORS_ERROR_BYTES];
	struct reactors rs;

	(void)state;
	for (int i = 0; i < 50; i++) {
		assert_int_equal(reactors_start(&rs, &all, error, sizeof(error)), 0);
		reactors_stop(&rs);
	}
}

static void test_no_such_cpu(void **state)
{
	unsigned cpu[] = { 0, CPU_SETSIZE - 1 };
	struct option_cpus cpus = { .nr = 2, .cpu = cpu };
	struct reactors_params params = { .cpus = &cpus };
	char error[REACTORS_ERROR_BYTES] = "";
	struct reactors rs;

	(void)state;
	assert_int_equal(reactors_start(&rs, &params, error, sizeof(error)), -EINVAL);
	assert_string_equal(error, "cannot start a thread on CPU 1023: EINVAL");
	assert_int_equal(rs.nr, 0);
}

static void get_affinity(const struct reactors *rs, cpu_set_t *set)
{
	assert_int_equal(sched_getaffinity(reactors_tid(rs, 0), sizeof(*set), set), 0);
}

/*
 * What the kernel does to a thread whose CPU goes offline and comes back while nobody looks: it may
 * run anywhere. An administrator's own choice stays. A CPU that is offline:
 * guest_hostile_scarce.sh.
 */
static void test_pinned_again(void **state)
{
	unsigned cpu[] = { 0 };
	struct option_cpus cpus = { .nr = 1, .cpu = cpu };
	struct reactors_params params = { .cpus = &cpus };
	char error[REACTORS_ERROR_BYTES] = "";
	struct reactors rs;
	cpu_set_t every, set;

	(void)state;
	sched_getaffinity(0, sizeof(every), &every);
	if (!CPU_ISSET(0, &every) || CPU_COUNT(&every) < 2)
		skip();
	assert_int_equal(reactors_start(&rs, &params, error, sizeof(error)), 0);
	assert_false(pins_look(&rs));
	get_affinity(&rs, &set);
	assert_int_equal(CPU_COUNT(&set), 1);
	sched_setaffinity(reactors_tid(&rs, 0), sizeof(every), &every);
	assert_false(pins_look(&rs));
	get_affinity(&rs, &set);
	assert_true(CPU_COUNT(&set) == 1 && CPU_ISSET(0, &set));

	set = every;
	CPU_CLR(0, &set);
	sched_setaffinity(reactors_tid(&rs, 0), sizeof(set), &set);
	assert_false(pins_look(&rs));
	get_affinity(&rs, &set);
	assert_false(CPU_ISSET(0, &set));

	/* One that is away comes back as soon as its CPU can be used. */
	rs.away[0] = true;
	assert_false(pins_look(&rs));
	assert_false(rs.away[0]);
	get_affinity(&rs, &set);
	assert_true(CPU_COUNT(&set) == 1 && CPU_ISSET(0, &set));
	reactors_stop(&rs);
}

static void test_cpu_lists(void **state)
{
	(void)state;
	assert_true(cpu_list_has("0-3,6\n", 0));
	assert_true(cpu_list_has("0-3,6\n", 3));
	assert_false(cpu_list_has("0-3,6\n", 4));
	assert_true(cpu_list_has("0-3,6\n", 6));
	assert_false(cpu_list_has("0-3,6\n", 7));
	assert_false(cpu_list_has("\n", 0));
	assert_true(cpu_is_possible(0));
	assert_false(cpu_is_possible(CPU_SETSIZE));
}

/* Returns how often reactor 0 polled with success. */
static uint64_t play_ball(const struct reactors_params *params)
{
	char error[REACTORS_ERROR_BYTES];
	struct ball ball = { 0 };
	struct reactors rs;
	struct loop loop;
	uint64_t poll_hits;

	assert_int_equal(reactors_start(&rs, params, error, sizeof(error)), 0);
	assert_int_equal(loop_init(&loop), 0);
	ball.home = &loop.control;
	ball.away = rs.reactor[0];
	reactor_post(ball.away, &ball.mail, away);
	assert_true(loop_run_until(&loop, &ball.done, 20 * NS_PER_SEC));
	assert_int_equal(ball.bounces, 1000);
	poll_hits = __atomic_load_n(&rs.reactor[0]->stats.poll_hits, __ATOMIC_RELAXED);
	reactors_stop(&rs);
	loop_fini(&loop);
	return poll_hits;
}

static void test_mail_to_and_fro(void **state)
{
	(void)state;
	assert_int_equal(play_ball(&all), 0);
}

/* Mail, and the mail to stop, end a poll that would be far too long for this test. */
static void test_mail_ends_a_poll(void **state)
{
	struct reactors_params params = { .cpus = &all_cpus, .busy_poll_ns = 60 * NS_PER_SEC };

	(void)state;
	assert_in_range(play_ball(&params), 1, 1001);
}

struct alarm_clock {
	struct timer timer;
	bool rang;
	uint64_t rang_ns;
};

static void ring_alarm(struct timer *timer)
{
	struct alarm_clock *alarm = container_of(timer, struct alarm_clock, timer);

	alarm->rang = true;
	alarm->rang_ns = ring_clock_ns();
}

static void test_reactor_timers_wake_the_loop(void **state)
{
	uint64_t due_ns = ring_clock_ns() + 30 * NS_PER_MS;
	struct alarm_clock alarm = { 0 };
	struct loop loop;

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	timer_init(&alarm.timer, ring_alarm);
	reactor_timer_arm(&loop.control, &alarm.timer, due_ns);
	assert_true(loop_run_until(&loop, &alarm.rang, 20 * NS_PER_SEC));
	assert_in_range(alarm.rang_ns, due_ns, due_ns + 5 * NS_PER_SEC);
	assert_true(ring_clock_ns() < due_ns + 5 * NS_PER_SEC);
	loop_fini(&loop);
}

static void test_timeout(void **state)
{
	uint64_t start_ns = ring_clock_ns();
	bool never = false;
	struct loop loop;

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	assert_false(loop_run_until(&loop, &never, 30 * NS_PER_MS));
	assert_true(ring_clock_ns() - start_ns >= 29 * NS_PER_MS);
	loop_fini(&loop);
}

static void on_child(struct ev_loop *ev, struct ev_timer *w, int events)
{
	siginfo_t end = { 0 };

	(void)ev, (void)events;
	if (waitid(P_ALL, 0, &end, WEXITED | WNOHANG | WNOWAIT) < 0 || end.si_pid != 0)
		*(bool *)w->data = true;
}

/* How a child ended stays to be asked for by who started it. */
static void test_children_are_not_reaped(void **state)
{
	bool never = false, ended = false;
	struct ev_timer look;
	struct loop loop;
	int status = 0;
	pid_t pid;

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	ev_init(&look, on_child);
	look.data = &ended;
	ev_timer_set(&look, .001, .001);
	ev_timer_start(loop.ev, &look);
	pid = fork();
	if (pid == 0)
		_exit(7);
	assert_true(loop_run_until(&loop, &ended, 20 * NS_PER_SEC));
	assert_false(loop_run_until(&loop, &never, 10 * NS_PER_MS));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 7);
	ev_timer_stop(loop.ev, &look);
	loop_fini(&loop);
}

static uint64_t seen_ns;
static bool clock_seen;

static void note_clock(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct loop *loop = w->data;

	(void)ev, (void)events;
	/* As device_stop does it: a deadline from the reactor's clock. */
	seen_ns = loop->control.now_ns;
	clock_seen = true;
}

/* The loop slept long; what runs then must not see the time of before. */
static void test_clock_is_fresh_in_callbacks(void **state)
{
	uint64_t start_ns = ring_clock_ns();
	struct ev_timer timer;
	struct loop loop;

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	ev_timer_init(&timer, note_clock, 0.2, 0.);
	timer.data = &loop;
	ev_timer_start(loop.ev, &timer);
	assert_true(loop_run_until(&loop, &clock_seen, 20 * NS_PER_SEC));
	assert_in_range(seen_ns, start_ns + 180 * NS_PER_MS, UINT64_MAX);
	loop_fini(&loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_reactor_per_cpu),
		cmocka_unit_test(test_start_and_stop_often),
		cmocka_unit_test(test_no_such_cpu),
		cmocka_unit_test(test_pinned_again),
		cmocka_unit_test(test_cpu_lists),
		cmocka_unit_test(test_mail_to_and_fro),
		cmocka_unit_test(test_mail_ends_a_poll),
		cmocka_unit_test(test_reactor_timers_wake_the_loop),
		cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_children_are_not_reaped),
		cmocka_unit_test(test_clock_is_fresh_in_callbacks),
	};

	return cmocka_run_group_tests_name("reactors", tests, NULL, NULL);
}
