/* Timers: the pairing heap against a plain array, and what callbacks may do to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/prng.h"
#include "base/util.h"
#include "reactor/ring.h"
#include "reactor/timer.h"

struct alarm_clock {
	struct timer timer;
	uint64_t ran_ns;
	unsigned ran_nr;
	struct timer *arms, *cancels;
	uint64_t arms_ns;
};

static struct timer_heap *heap;
static uint64_t heap_now_ns, last_deadline_ns;
static bool out_of_order;

static void on_alarm(struct timer *timer)
{
	struct alarm_clock *a = container_of(timer, struct alarm_clock, timer);

	a->ran_nr++;
	a->ran_ns = timer->deadline_ns;
	out_of_order = out_of_order || timer->deadline_ns < last_deadline_ns;
	last_deadline_ns = timer->deadline_ns;
	if (a->cancels)
		timer_heap_cancel(heap, a->cancels);
	if (a->arms)
		timer_heap_arm(heap, a->arms, a->arms_ns);
	a->cancels = a->arms = NULL;
}

#define CLOCK_NR 200

/* Against a plain array of deadlines; UINT64_MAX: not armed. */
static void step_timers(struct timer_heap *h, struct alarm_clock *clocks, uint64_t *model,
			struct prng *prng)
{
	unsigned i = (unsigned)prng_below(prng, CLOCK_NR);
	uint64_t what = prng_below(prng, 10), due_nr = 0, next = UINT64_MAX;

	if (what < 6) {
		model[i] = MAX(heap_now_ns + prng_below(prng, 1000), h->floor_ns);
		timer_heap_arm(h, &clocks[i].timer, model[i]);
	} else if (what < 8) {
		model[i] = UINT64_MAX;
		timer_heap_cancel(h, &clocks[i].timer);
	} else {
		heap_now_ns += prng_below(prng, 100);
		for (unsigned j = 0; j < CLOCK_NR; j++)
			due_nr += model[j] <= heap_now_ns;
		last_deadline_ns = 0;
		assert_int_equal(timer_heap_run(h, heap_now_ns), due_nr);
		for (unsigned j = 0; j < CLOCK_NR; j++)
			if (model[j] <= heap_now_ns) {
				assert_int_equal(clocks[j].ran_ns, model[j]);
				model[j] = UINT64_MAX;
			}
	}
	for (unsigned j = 0; j < CLOCK_NR; j++) {
		assert_int_equal(clocks[j].timer.armed, model[j] != UINT64_MAX);
		next = MIN(next, model[j]);
	}
	assert_int_equal(timer_heap_next_ns(h), next);
}

static void test_timers_against_a_model(void **state)
{
	static struct alarm_clock clocks[CLOCK_NR];
	static uint64_t model[CLOCK_NR];
	uint64_t seed = (uint64_t)time(NULL);
	struct timer_heap h = TIMER_HEAP_INIT;
	struct prng prng;

	(void)state;
	print_message("# seed %llu\n", (unsigned long long)seed);
	prng_init(&prng, seed);
	heap = &h;
	heap_now_ns = 0;
	out_of_order = false;
	for (unsigned i = 0; i < CLOCK_NR; i++) {
		timer_init(&clocks[i].timer, on_alarm);
		model[i] = UINT64_MAX;
	}
	for (unsigned i = 0; i < 20000; i++)
		step_timers(&h, clocks, model, &prng);
	assert_false(out_of_order);
}

static void test_timer_callbacks_arm_and_cancel(void **state)
{
	struct alarm_clock a = { 0 }, b = { 0 }, c = { 0 };
	struct timer_heap h = TIMER_HEAP_INIT;

	(void)state;
	heap = &h;
	timer_init(&a.timer, on_alarm);
	timer_init(&b.timer, on_alarm);
	timer_init(&c.timer, on_alarm);
	timer_heap_arm(&h, &a.timer, 10);
	timer_heap_arm(&h, &b.timer, 20);
	a.cancels = &b.timer;
	a.arms = &a.timer; /* itself, for the past: not in this run */
	a.arms_ns = 5;
	assert_int_equal(timer_heap_run(&h, 100), 1);
	assert_int_equal(b.ran_nr, 0);
	assert_true(a.timer.armed);
	timer_heap_arm(&h, &c.timer, 101);
	timer_heap_arm(&h, &c.timer, 500); /* moved */
	assert_int_equal(timer_heap_run(&h, 101), 1);
	assert_int_equal(a.ran_nr, 2);
	assert_int_equal(timer_heap_next_ns(&h), 500);
	timer_heap_cancel(&h, &c.timer);
	timer_heap_cancel(&h, &c.timer);
	assert_int_equal(timer_heap_next_ns(&h), RING_NO_TIMEOUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_timers_against_a_model),
		cmocka_unit_test(test_timer_callbacks_arm_and_cancel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
