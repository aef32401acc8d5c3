/* timeline: what is drawn for records in order, out of order, with some missing; the rules that
 * every encoder relies on, checked on all that is drawn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/prng.h"
#include "test/trace/synthetic.h"
#include "test/rig/timeline_drawing.h"
#include "tracefile/map.h"
#include "ublktrace/timeline/timeline.h"
#include "ublktrace/timeline/timeline_hold.h"
#include "ublktrace/timeline/timeline_track.h"

/* ---- tests ---- */

static void test_one_read(void **state)
{
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct notes n;
	const struct drawn *outer, *queued, *daemon, *backend, *commit;

	(void)state;
	synthetic_run(&s, 1, 1);
	n = draw(&r);
	outer = only(&n, "queue 0 tag 0", "read");
	queued = only(&n, "queue 0 tag 0", "queued");
	daemon = only(&n, "queue 0 tag 0", "daemon");
	backend = only(&n, "queue 0 tag 0", "backend read");
	commit = only(&n, "queue 0 tag 0", "commit");
	assert_true(outer->start_ns == queued->start_ns && outer->end_ns == commit->end_ns);
	assert_true(queued->end_ns < daemon->start_ns && daemon->end_ns == commit->start_ns);
	assert_true(daemon->start_ns < backend->start_ns && backend->end_ns < daemon->end_ns);
	assert_int_equal(backend->end_ns - backend->start_ns, 400);
	assert_int_equal(arrows(&n, "fio 101", "queue 0 tag 0"), 1);
	assert_int_equal(arrows(&n, "complete", "queue 0 tag 0"), 1);
	assert_int_equal(arrows(&n, "queue 0 tag 0", "submit"), 1);
	assert_int_equal(count(&n, "fio 101", "io_uring_enter"), 1);
	assert_int_equal(count(&n, "fio 101 off CPU", "off CPU"), 1);
	assert_true(has_place(&n, "ring 5 of fio (100)"));
	assert_true(has_place(&n, "ublkb0"));
	notes_free(&n);
	free(r.events);
}

/* A tag that waits for work is not busy, however long it does. */
static void test_idle_is_not_drawn(void **state)
{
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct notes n;

	(void)state;
	synthetic_command(&s, SYNTHETIC_FETCH, 1, 3);
	s.now_ns += 5000000000ull;
	synthetic_answer(&s, SYNTHETIC_FETCH, 1, 3, -19); /* the device goes away */
	n = draw(&r);
	assert_int_equal(count(&n, "queue 0 tag 3", NULL), 0);
	assert_int_equal(count(&n, "submit", "UBLK_IO_FETCH_REQ"), 1);
	assert_int_equal(arrows(&n, "submit", "complete"), 1);
	for (size_t i = 0; i < n.nr; i++)
		assert_true(n.drawn[i].end_ns - n.drawn[i].start_ns <= TRACK_POINT_NS);
	notes_free(&n);
	free(r.events);
}

static void test_ways(void **state)
{
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct notes n;

	(void)state;
	synthetic_ways(&s, 100);
	n = draw(&r);
	assert_int_equal(count(&n, "waiting", "poll armed"), 1);
	assert_int_equal(count(&n, "waiting", "queued to io-wq"), 1);
	assert_int_equal(count(&n, "io-wq 150", "FSYNC"), 1);
	assert_int_equal(arrows(&n, "submit", "waiting"), 2);
	assert_int_equal(arrows(&n, "waiting", "complete"), 1); /* the poll */
	assert_int_equal(arrows(&n, "waiting", "io-wq 150"), 1);
	assert_int_equal(arrows(&n, "io-wq 150", "complete"), 1);
	assert_int_equal(arrows(&n, "submit", "submit"), 1);	 /* the link */
	assert_int_equal(arrows(&n, "complete", "complete"), 1); /* of many completions */
	notes_free(&n);
	free(r.events);
}

/* A program begins with the name of who started it, a thread with its maker's. */
static void test_renamed(void **state)
{
	static const char *const names[] = { "ublktrace", "env", "prog" };
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct notes n;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct event e = synthetic_event(&s, EVENT_SWITCH, 300, 300, names[i]);

		e.value = i & 1;
		synthetic_put(&s, &e, 50);
		e.tid = 301;
		synthetic_put(&s, &e, 50);
	}
	n = draw(&r);
	assert_true(has_place(&n, "prog (300)"));
	assert_true(has_place(&n, "prog 300") && has_place(&n, "prog 300 off CPU"));
	assert_true(has_place(&n, "prog 301") && has_place(&n, "prog 301 off CPU"));
	for (unsigned i = 0; i < 2; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s 300", names[i]);
		assert_false(has_place(&n, name));
	}
	notes_free(&n);
	free(r.events);
}

static int by_all(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct drawn));
}

static void assert_same(const struct notes *a, const struct notes *b)
{
	assert_int_equal(a->nr, b->nr);
	qsort(a->drawn, a->nr, sizeof(*a->drawn), by_all);
	qsort(b->drawn, b->nr, sizeof(*b->drawn), by_all);
	for (size_t i = 0; i < a->nr; i++) {
		assert_string_equal(a->drawn[i].name, b->drawn[i].name);
		assert_int_equal(a->drawn[i].start_ns, b->drawn[i].start_ns);
		assert_int_equal(a->drawn[i].end_ns, b->drawn[i].end_ns);
		assert_int_equal(a->drawn[i].in_nr, b->drawn[i].in_nr);
		assert_int_equal(a->drawn[i].out_nr, b->drawn[i].out_nr);
	}
}

/* Whatever the order in which the CPUs' records come, the same is drawn. */
static void test_out_of_order(void **state)
{
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct notes in_order, shuffled;
	struct prng prng;

	(void)state;
	prng_init(&prng, 7);
	synthetic_run(&s, 400, 8);
	in_order = draw(&r);
	/* less than a second: tracks are told in the order of time, not of arrival */
	assert_true(s.now_ns - START_NS < HOLD_NS);
	for (size_t i = r.nr - 1; i > 0; i--) {
		size_t j = prng_next(&prng) % (i + 1);
		struct event e = r.events[i];

		r.events[i] = r.events[j];
		r.events[j] = e;
	}
	shuffled = draw(&r);
	assert_same(&in_order, &shuffled);
	assert_int_equal(shuffled.lost_late, 0);
	notes_free(&in_order);
	notes_free(&shuffled);
	free(r.events);
}

static void test_100k(void **state)
{
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct notes n;

	(void)state;
	synthetic_run(&s, 6400, 128);
	assert_true(r.nr > 100000);
	n = draw(&r);
	assert_int_equal(count(&n, NULL, "read"), 6400);
	assert_int_equal(count(&n, NULL, "backend read"), 6400);
	assert_int_equal(arrows(&n, "fio 101", "queue 0 tag 5"), 50);
	assert_int_equal(n.lost_late, 0);
	notes_free(&n);
	free(r.events);
}

/* Any record may be lost: the rules of nesting and arrows hold all the same (draw checks them). */
static void test_losses(void **state)
{
	struct records r = { 0 }, left = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct prng prng;

	(void)state;
	synthetic_run(&s, 300, 4);
	for (unsigned seed = 0; seed < 40; seed++) {
		struct notes n;

		prng_init(&prng, seed);
		left.nr = 0;
		for (size_t i = 0; i < r.nr; i++)
			if (prng_next(&prng) % 40 > seed)
				keep(&r.events[i], &left);
		n = draw(&left);
		notes_free(&n);
	}
	free(r.events);
	free(left.events);
}

/* Each type of record alone, with nothing before and nothing after. */
static void test_alone(void **state)
{
	struct records r = { 0 }, one = { 0 };
	struct synthetic s = synthetic_of(&r);

	(void)state;
	synthetic_run(&s, 8, 1);
	for (size_t i = 0; i < r.nr; i++) {
		struct notes n;

		one.nr = 0;
		keep(&r.events[i], &one);
		n = draw(&one);
		notes_free(&n);
	}
	free(r.events);
	free(one.events);
}

static void test_missing_begin_and_end(void **state)
{
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct event fio = fio_event(&s, EVENT_SYSCALL);
	struct notes n;

	(void)state;
	s.now_ns += 1000;
	synthetic_exit(&s, fio, 5, START_NS, 1);     /* no ENTER */
	synthetic_complete(&s, fio, 1, 1, 22, 5, 0); /* no SUBMIT */
	synthetic_submit(&s, fio, 2, 2, 22, 0);	     /* no COMPLETE */
	fio.time_ns = s.now_ns;
	synthetic_enter(&s, fio, 5, 1); /* no end */
	synthetic_switch(&s, fio, 0);
	n = draw(&r);
	assert_int_equal(count(&n, "fio 101", "io_uring_enter"), 2);
	assert_int_equal(count(&n, "complete", "READ"), 2);
	assert_int_equal(arrows(&n, "submit", "complete"), 1); /* to what says "still in flight" */
	assert_true(only(&n, "fio 101 off CPU", "off CPU")->unseen);
	notes_free(&n);
	free(r.events);
}

/* Two at one time: drawn after each other, never on each other. */
static void test_points_at_one_time(void **state)
{
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct event fio = fio_event(&s, EVENT_SUBMIT);
	struct notes n;

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		synthetic_submit(&s, fio, 10 + i, i, 0, 0);
		s.now_ns = START_NS;
	}
	n = draw(&r);
	assert_int_equal(count(&n, "submit", "NOP"), 100);
	notes_free(&n);
	free(r.events);
}

/* A record of an overflow names no request: it is the one with that user data, when there is just
 * one. */
static void test_overflow(void **state)
{
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct event fio = fio_event(&s, EVENT_OVERFLOW), other = daemon_event(&s, EVENT_SUBMIT);
	struct notes n;

	(void)state;
	synthetic_submit(&s, fio, 1, 70, 0, 0);
	synthetic_submit(&s, other, 2, 70, 0, 0); /* of another ring */
	for (unsigned i = 0; i < 2; i++)
		synthetic_submit(&s, fio, 3 + i, 71, 0, 0);
	for (unsigned i = 0; i < 2; i++) {
		fio.time_ns = s.now_ns;
		fio.user_data = 70 + i;
		fio.cqe = (struct event_cqe){ .res = 5, .opcode = 0xff, .fd = -1, .ublk_id = -1 };
		synthetic_put(&s, &fio, 100);
	}
	n = draw(&r);
	assert_int_equal(count(&n, "complete", "CQ overflow"), 2);
	assert_int_equal(count(&n, "complete", "NOP"), 3); /* they have no end */
	assert_int_equal(arrows(&n, "submit", "complete"), 4);
	for (size_t i = 0; i < n.nr; i++)
		if (!strcmp(n.drawn[i].name, "CQ overflow"))
			assert_int_equal(n.drawn[i].result, 5);
	notes_free(&n);
	free(r.events);
}

/* Known by the descriptor by which it is entered; closed and made again at the same address. */
static void test_rings(void **state)
{
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct event fio = fio_event(&s, EVENT_SUBMIT);
	struct notes n;

	(void)state;
	synthetic_submit(&s, fio, 1, 1, 0, 0);
	fio.time_ns = s.now_ns;
	synthetic_enter(&s, fio, 6, 1);
	fio.time_ns = s.now_ns;
	fio.type = EVENT_RING;
	synthetic_ring(&s, fio, 9, 0);
	synthetic_submit(&s, fio, 1, 1, 0, 0);
	n = draw(&r);
	assert_true(has_place(&n, "ring 6 of fio (100)"));
	assert_true(has_place(&n, "ring 9 of fio (100)"));
	/* what the old one had in flight ended with it */
	assert_int_equal(arrows(&n, "submit", "complete"), 2);
	notes_free(&n);
	free(r.events);
}

static void test_many_threads(void **state)
{
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct notes n;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		struct event e = synthetic_event(&s, EVENT_TASK_WORK, 1 + i / 10, 1 + i, "many");

		synthetic_put(&s, &e, 1);
	}
	n = draw(&r);
	assert_int_equal(count(&n, NULL, "task work"), 1000);
	assert_true(has_place(&n, "many 1000"));
	notes_free(&n);
	free(r.events);
}

/* Older than what is held back: drawn where the timeline is, and counted. */
static void test_late(void **state)
{
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct event fio = fio_event(&s, EVENT_SUBMIT);
	struct notes n;

	(void)state;
	synthetic_submit(&s, fio, 1, 1, 0, 0);
	s.now_ns += 10 * HOLD_NS;
	synthetic_submit(&s, fio, 2, 2, 0, 0);
	s.now_ns -= 10 * HOLD_NS + 1000;
	synthetic_submit(&s, fio, 3, 3, 0, 0);
	n = draw(&r);
	assert_int_equal(n.lost_late, 1);
	assert_int_equal(count(&n, "submit", "NOP"), 3);
	notes_free(&n);
	free(r.events);
}

/* However many records come in one second, no more than HOLD_NR_MAX are kept. */
static void test_hold_is_bounded(void **state)
{
	struct hold h = { 0 };
	struct event e = { .time_ns = START_NS }, out;
	uint64_t last_ns = 0;
	size_t taken = 0;

	(void)state;
	for (unsigned i = 0; i < 3 * HOLD_NR_MAX; i++) {
		e.time_ns = START_NS + (i ^ 0x3ff);
		hold_put(&h, &e);
		while (hold_take(&h, false, &out)) {
			assert_true(out.time_ns > last_ns);
			last_ns = out.time_ns;
			taken++;
		}
		assert_true(h.nr <= HOLD_NR_MAX);
	}
	assert_int_equal(taken, 2 * HOLD_NR_MAX);
	hold_free(&h);
}

/* Records of one time come out in the order in which they were put. */
static void test_hold_keeps_the_order(void **state)
{
	struct event e = { .time_ns = START_NS }, out;
	struct hold h = { 0 };

	(void)state;
	for (e.value = 0; e.value < 100; e.value++)
		hold_put(&h, &e);
	for (unsigned i = 0; i < 100; i++) {
		assert_true(hold_take(&h, true, &out));
		assert_int_equal(out.value, i);
	}
	assert_false(hold_take(&h, true, &out));
	hold_free(&h);
}

/* In a call that lasts for long not everything is kept. */
static void test_endless_call(void **state)
{
	struct records r = { 0 };
	struct synthetic s = synthetic_of(&r);
	struct event fio = fio_event(&s, EVENT_ENTER);
	struct notes n;

	(void)state;
	synthetic_enter(&s, fio, 5, 1);
	fio.type = EVENT_TASK_WORK;
	for (unsigned i = 0; i < 2 * TRACK_ROOM_MAX; i++) {
		fio.time_ns = s.now_ns;
		synthetic_put(&s, &fio, 10);
	}
	n = draw(&r);
	assert_int_equal(count(&n, "fio 101", "task work"), TRACK_ROOM_MAX - 1);
	assert_true(only(&n, "fio 101", "io_uring_enter")->unseen);
	notes_free(&n);
	free(r.events);
}

/* Numbers that no kernel tells, in every field. */
static void test_hostile(void **state)
{
	struct records r = { 0 };
	struct prng prng;
	struct notes n;

	(void)state;
	prng_init(&prng, 11);
	for (unsigned i = 0; i < 5000; i++) {
		struct event e;
		uint64_t *words = (uint64_t *)&e;

		for (size_t j = 0; j < sizeof(e) / 8; j++)
			words[j] = prng_next(&prng) >> (prng_next(&prng) % 64);
		e.time_ns = START_NS + prng_next(&prng) % 1000000;
		e.type = (uint32_t)(prng_next(&prng) % (EVENT_TYPE_NR + 2));
		e.ring = prng_next(&prng) % 4;
		e.req = prng_next(&prng) % 8;
		e.tid = (uint32_t)(prng_next(&prng) % 8);
		e.pid = e.tid / 2;
		keep(&e, &r);
	}
	n = draw(&r);
	assert_true(n.nr > 1000);
	notes_free(&n);
	free(r.events);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_read),
		cmocka_unit_test(test_idle_is_not_drawn),
		cmocka_unit_test(test_ways),
		cmocka_unit_test(test_renamed),
		cmocka_unit_test(test_out_of_order),
		cmocka_unit_test(test_100k),
		cmocka_unit_test(test_losses),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_missing_begin_and_end),
		cmocka_unit_test(test_points_at_one_time),
		cmocka_unit_test(test_overflow),
		cmocka_unit_test(test_rings),
		cmocka_unit_test(test_many_threads),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_hold_is_bounded),
		cmocka_unit_test(test_hold_keeps_the_order),
		cmocka_unit_test(test_endless_call),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
