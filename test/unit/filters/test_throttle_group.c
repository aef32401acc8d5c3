/*
 * Who goes when: devices and queues that share buckets, in virtual time. Each queue has a reactor
 * that nobody turns; the test sets its clock and runs its mail and timers, all in one thread. The
 * lowest backend answers at once, or keeps everything.
 */
#include "test/rig/throttle_rig.h"

static void test_rate(void **state)
{
	struct sim_device *d = open_busy(0, iops(THROTTLE_TOTAL_IOPS, 1000, NULL), 1, 4);

	(void)state;
	run_until(now_ns + 10 * NS_PER_SEC);
	/* a tenth of a second's worth at once, and one that fills the bucket over */
	assert_in_range(done_of(d), 10100, 10101);
}

static void test_rate_of_many_queues(void **state)
{
	struct sim_device *d = open_busy(0, iops(THROTTLE_READ_IOPS, 1000, NULL), 4, DEPTH);

	(void)state;
	run_until(now_ns + 10 * NS_PER_SEC);
	assert_in_range(done_of(d), 10100, 10101);
	for (unsigned i = 0; i < 4; i++)
		assert_in_range(d->queue[i].done_nr, 10000 / 4, 10000 / 4 + 101);
	/* One timer serves them all. */
	assert_in_range(timers_nr, 10000, 10010);
}

static void test_rate_of_bytes(void **state)
{
	struct sim_device *d = open_busy(0, iops(THROTTLE_WRITE_BYTES, 1000 * 4096, NULL), 2, 3);

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		d->queue[i].op = BACKEND_DISCARD; /* a write to throttle */
		d->queue[i].length_bytes = 8 * 4096;
	}
	run_until(now_ns + 8 * NS_PER_SEC);
	assert_in_range(done_of(d), 1000 + 12, 1000 + 14);
}

/* One request of one device, then one of the other: not what each has queued up. */
static void test_group_takes_turns(void **state)
{
	struct throttle_config config = iops(THROTTLE_TOTAL_IOPS, 1000, "g");
	struct sim_device *small = open_busy(0, config, 1, 1);
	struct sim_device *large = open_busy(1, config, 3, DEPTH);

	(void)state;
	run_until(now_ns + NS_PER_SEC); /* the first burst is for who comes first */
	small->queue[0].done_nr = large->queue[0].done_nr = large->queue[1].done_nr =
		large->queue[2].done_nr = 0;
	run_until(now_ns + 12 * NS_PER_SEC);
	assert_in_range(done_of(small), 5999, 6001);
	assert_in_range(done_of(large), 5999, 6001);
	for (unsigned i = 0; i < 3; i++)
		assert_in_range(large->queue[i].done_nr, 1999, 2001);
}

static void test_directions_take_turns(void **state)
{
	struct sim_device *d = open_busy(0, iops(THROTTLE_TOTAL_IOPS, 1000, NULL), 2, 8);

	(void)state;
	d->queue[1].op = BACKEND_WRITE;
	run_until(now_ns + NS_PER_SEC);
	d->queue[0].done_nr = d->queue[1].done_nr = 0;
	run_until(now_ns + 10 * NS_PER_SEC);
	assert_in_range(d->queue[0].done_nr, 4999, 5001);
	assert_in_range(d->queue[1].done_nr, 4999, 5001);
}

/* The owner's timer may be an age away: whoever may go before becomes the owner. */
static void test_slow_writes_do_not_delay_reads(void **state)
{
	struct throttle_config config = iops(THROTTLE_READ_IOPS, 1000, NULL);
	struct sim_device *d;

	(void)state;
	config.limits.rate[THROTTLE_WRITE_IOPS].avg = 1;
	d = open_busy(0, config, 2, 4);
	d->queue[1].op = BACKEND_WRITE;
	d->queue[0].busy_nr = 0;
	run_until(now_ns + NS_PER_SEC / 2);
	d->queue[0].busy_nr = 4;
	run_until(now_ns + 10 * NS_PER_SEC);
	assert_in_range(d->queue[0].done_nr, 10100, 10101);
	assert_in_range(d->queue[1].done_nr, 11, 12);
}

static void test_wait_is_told(void **state)
{
	struct sim_device *d = open_busy(0, iops(THROTTLE_TOTAL_IOPS, 10, NULL), 1, 0);
	struct sim_queue *q = &d->queue[0];

	(void)state;
	assert_int_equal(submit(q, 0, BACKEND_READ, 512), BACKEND_DONE);
	assert_int_equal(submit(q, 1, BACKEND_READ, 512), BACKEND_DONE);
	assert_int_equal(submit(q, 2, BACKEND_READ, 512), BACKEND_QUEUED);
	now_ns += 30 * NS_PER_MS;
	assert_int_equal(submit(q, 3, BACKEND_READ, 512), BACKEND_QUEUED);
	run_until(now_ns + NS_PER_SEC);
	assert_int_equal(q->io[2].io.throttle_ns, 100 * NS_PER_MS);
	assert_int_equal(q->io[3].io.throttle_ns, 170 * NS_PER_MS);
}

/* The timer is late: who comes now must not overtake. */
static void test_no_overtaking(void **state)
{
	struct sim_device *d = open_busy(0, iops(THROTTLE_TOTAL_IOPS, 10, NULL), 1, 0);
	struct sim_queue *q = &d->queue[0];

	(void)state;
	for (unsigned tag = 0; tag < 3; tag++)
		submit(q, tag, BACKEND_READ, 512);
	assert_true(q->io[2].out);
	now_ns += 150 * NS_PER_MS;
	assert_int_equal(submit(q, 3, BACKEND_READ, 512), BACKEND_QUEUED);
	settle();
	assert_false(q->io[2].out);
	assert_true(q->io[3].out);
	run_until(now_ns + NS_PER_SEC);
	assert_int_equal(q->io[2].io.throttle_ns, 150 * NS_PER_MS);
	assert_int_equal(q->io[3].io.throttle_ns, 50 * NS_PER_MS);
}

static void test_flush_passes(void **state)
{
	struct sim_device *d = open_busy(0, iops(THROTTLE_WRITE_IOPS, 1, NULL), 1, 0);
	struct sim_queue *q = &d->queue[0];

	(void)state;
	assert_int_equal(submit(q, 0, BACKEND_WRITE, 512), BACKEND_DONE);
	assert_int_equal(submit(q, 1, BACKEND_WRITE, 512), BACKEND_QUEUED);
	assert_int_equal(submit(q, 2, BACKEND_FLUSH, 0), BACKEND_DONE);
	assert_int_equal(submit(q, 3, BACKEND_READ, 512), BACKEND_DONE);
}

/* ---- coming and going ---- */

static struct sim_queue *owner_of(const struct sim_device *d)
{
	const struct throttle_device *t = d->device->priv;

	FOR_EACH_QUEUE(q)
	if (q->queue && q->queue->priv == t->group->owner)
		return q;
	return NULL;
}

static void test_owner_leaves(void **state)
{
	struct throttle_config config = iops(THROTTLE_TOTAL_IOPS, 100, "g");
	struct sim_device *a = open_busy(0, config, 1, 2);
	struct sim_device *b = open_busy(1, config, 2, 2);

	(void)state;
	run_until(now_ns + NS_PER_SEC);
	for (int round = 0; round < 2; round++) {
		struct sim_queue *owner = owner_of(a);
		uint64_t before;

		assert_non_null(owner);
		close_queue(owner);
		assert_non_null(owner_of(a));
		before = done_of(a) + done_of(b);
		run_until(now_ns + 10 * NS_PER_SEC);
		assert_in_range(done_of(a) + done_of(b) - before, 999, 1001);
	}
}

static void test_last_leaves_and_comes_again(void **state)
{
	struct sim_device *a = open_busy(0, iops(THROTTLE_TOTAL_IOPS, 10, "g"), 1, 4);

	(void)state;
	run_until(now_ns + NS_PER_SEC);
	close_device(a);
	/* The group is forgotten: other limits are no contradiction. */
	a = open_busy(0, iops(THROTTLE_TOTAL_IOPS, 1000, "g"), 1, 4);
	run_until(now_ns + 10 * NS_PER_SEC);
	assert_in_range(done_of(a), 10100, 10101);
}

static void test_group_agrees(void **state)
{
	char error[BACKEND_ERROR_BYTES] = "";
	struct sim_device *b;

	(void)state;
	open_busy(0, iops(THROTTLE_TOTAL_IOPS, 1000, "g"), 1, 4);
	assert_int_equal(open_device(1, iops(THROTTLE_TOTAL_IOPS, 1001, "g"), error), -EINVAL);
	assert_string_equal(error, "throttle group \"g\" has other limits already: say the same "
				   "ones, or none");
	memset(&sim[1], 0, sizeof(sim[1]));
	b = open_busy(1, iops(THROTTLE_TOTAL_IOPS, 0, "g"), 1, 4);
	run_until(now_ns + 10 * NS_PER_SEC);
	assert_in_range(done_of(b), 4990, 5110);
	/* another group, and none, are not concerned */
	open_busy(2, iops(THROTTLE_TOTAL_IOPS, 7, "h"), 1, 4);
}

static void test_limits_come_later(void **state)
{
	struct sim_device *a = open_busy(0, iops(THROTTLE_TOTAL_IOPS, 0, "g"), 1, 0);
	struct sim_device *b = open_busy(1, iops(THROTTLE_TOTAL_IOPS, 100, "g"), 1, 0);

	(void)state;
	a->queue[0].busy_nr = b->queue[0].busy_nr = 4;
	run_until(now_ns + 10 * NS_PER_SEC);
	assert_in_range(done_of(a) + done_of(b), 1010, 1011);
}

/* ---- live change ---- */

static void set(struct sim_device *d, struct throttle_config config)
{
	struct throttle_device *t = d->device->priv;

	throttle_group_set(t->group, &config.limits, now_ns);
}

static void test_set(void **state)
{
	struct sim_device *d = open_busy(0, iops(THROTTLE_TOTAL_BYTES, 1, NULL), 2, 4);
	struct throttle_limits limits;
	uint64_t before;

	(void)state;
	/* From one request in 512 seconds ... */
	run_until(now_ns + 100 * NS_PER_SEC);
	assert_int_equal(done_of(d), 1);
	/* ... to a thousand a second ... */
	set(d, iops(THROTTLE_TOTAL_IOPS, 1000, NULL));
	throttle_get(d->device, &limits);
	assert_int_equal(limits.rate[THROTTLE_TOTAL_IOPS].avg, 1000);
	run_until(now_ns + 10 * NS_PER_SEC);
	assert_in_range(done_of(d), 1 + 10100, 1 + 10102);
	/* ... to ten ... */
	before = done_of(d);
	set(d, iops(THROTTLE_TOTAL_IOPS, 10, NULL));
	run_until(now_ns + 10 * NS_PER_SEC);
	assert_in_range(done_of(d) - before, 101, 102);
	/* ... to none at all: what waits goes at once. */
	set(d, unlimited());
	for (unsigned i = 0; i < 2; i++)
		d->queue[i].busy_nr = 0;
	settle();
	for (unsigned i = 0; i < 2; i++)
		for (unsigned tag = 0; tag < 4; tag++)
			assert_false(d->queue[i].io[tag].out);
	assert_int_equal(submit(&d->queue[0], 0, BACKEND_READ, 512), BACKEND_DONE);
}

static void test_find(void **state)
{
	struct sim_device *d = open_busy(0, unlimited(), 0, 0);

	(void)state;
	assert_ptr_equal(throttle_find(d->device), d->device);
	assert_null(throttle_find(d->device->child));
}

/* ---- cancel ---- */

static void test_cancel_waiting(void **state)
{
	struct sim_device *d = open_busy(0, iops(THROTTLE_TOTAL_IOPS, 10, NULL), 1, 0);
	struct sim_queue *q = &d->queue[0];

	(void)state;
	for (unsigned tag = 0; tag < 5; tag++)
		submit(q, tag, BACKEND_READ, 512);
	now_ns += 10 * NS_PER_MS;
	q->reactor.now_ns = now_ns;
	backend_io_cancel(&q->io[3].io);
	assert_true(q->io[3].answered_late);
	assert_int_equal(q->io[3].io.result, -EIO);
	assert_int_equal(q->io[3].io.throttle_ns, 10 * NS_PER_MS);
	run_until(now_ns + NS_PER_SEC);
	assert_int_equal(q->io[2].io.throttle_ns, 100 * NS_PER_MS);
	assert_int_equal(q->io[4].io.throttle_ns, 200 * NS_PER_MS);
	/* Cancelled all: the next one finds no owner that never comes. */
	for (unsigned tag = 0; tag < 5; tag++)
		submit(q, tag, BACKEND_READ, 512);
	for (unsigned tag = 0; tag < 5; tag++)
		backend_io_cancel(&q->io[tag].io);
	run_until(now_ns + NS_PER_SEC);
	q->busy_nr = 4;
	q->done_nr = 0;
	run_until(now_ns + 10 * NS_PER_SEC);
	assert_in_range(q->done_nr, 100, 102);
}

/* Another queue has let it go, and the mail is on its way. */
static void test_cancel_granted(void **state)
{
	struct sim_device *d = open_busy(0, iops(THROTTLE_TOTAL_IOPS, 10, NULL), 2, 0);
	struct sim_queue *q = &d->queue[0];

	(void)state;
	for (unsigned tag = 0; tag < 4; tag++)
		submit(q, tag, BACKEND_READ, 512);
	set(d, iops(THROTTLE_TOTAL_IOPS, 10, NULL)); /* lets tag 2 go */
	keep_all = true;
	backend_io_cancel(&q->io[2].io);
	assert_true(q->io[2].out);
	run_queue(q);
	assert_false(q->io[2].out);
	assert_int_equal(q->io[2].io.result, -EIO);
	/* ... and its use again is none the worse. */
	keep_all = false;
	run_until(now_ns + NS_PER_SEC);
	for (unsigned tag = 0; tag < 3; tag++)
		submit(q, tag, BACKEND_READ, 512);
	assert_true(q->io[2].out);
	run_until(now_ns + NS_PER_SEC);
	assert_int_equal(q->io[2].io.result, 0);
	assert_int_equal(cancelled_nr, 0);
}

/* What is granted goes when its mail arrives: until then it keeps the queue from being closed. */
static void test_timer_before_mail(void **state)
{
	struct sim_device *d = open_busy(0, iops(THROTTLE_TOTAL_IOPS, 10, NULL), 1, 0);
	struct sim_queue *q = &d->queue[0];

	(void)state;
	for (unsigned tag = 0; tag < 4; tag++)
		submit(q, tag, BACKEND_READ, 512);
	set(d, iops(THROTTLE_TOTAL_IOPS, 10, NULL)); /* lets tag 2 go */
	q->reactor.now_ns = now_ns += 10 * NS_PER_SEC;
	timer_heap_run(&q->reactor.timers, now_ns);
	assert_true(q->io[2].out);
	assert_false(q->io[3].out);
	run_queue(q);
	assert_false(q->io[2].out);
}

static void test_cancel_in_child(void **state)
{
	struct sim_device *d = open_busy(0, iops(THROTTLE_TOTAL_IOPS, 10, NULL), 1, 0);
	struct sim_queue *q = &d->queue[0];

	(void)state;
	keep_all = true;
	assert_int_equal(submit(q, 0, BACKEND_READ, 512), BACKEND_QUEUED);
	backend_io_cancel(&q->io[0].io);
	assert_int_equal(cancelled_nr, 1);
	assert_false(q->io[0].out);
}

int main(void)
{
#define SIM(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		SIM(test_rate),
		SIM(test_rate_of_many_queues),
		SIM(test_rate_of_bytes),
		SIM(test_group_takes_turns),
		SIM(test_directions_take_turns),
		SIM(test_slow_writes_do_not_delay_reads),
		SIM(test_wait_is_told),
		SIM(test_no_overtaking),
		SIM(test_flush_passes),
		SIM(test_owner_leaves),
		SIM(test_last_leaves_and_comes_again),
		SIM(test_group_agrees),
		SIM(test_limits_come_later),
		SIM(test_set),
		SIM(test_find),
		SIM(test_cancel_waiting),
		SIM(test_cancel_granted),
		SIM(test_timer_before_mail),
		SIM(test_cancel_in_child),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
