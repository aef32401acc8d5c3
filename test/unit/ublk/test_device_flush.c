/* Before a polite stop what was acknowledged reaches its storage, or the device stays
 * (device_flush.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "storage/owed.h"
#include "ublk/device/device_internal.h"
#include "ublk/openers.h"

static struct reactor reactor;
static struct ctl ctl = { .reactor = &reactor };
static struct device d;
static struct queue queue;
static char seen[200];
static char refusal[DEVICE_ERROR_BYTES]; /* what the last one said */
static enum block_users users;

static void note(const char *word)
{
	snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s ", word);
}

/* ---- those around it ---- */

enum block_users __wrap_openers_find(int dev_id, char *text, size_t text_bytes);
enum block_users __wrap_openers_find(int dev_id, char *text, size_t text_bytes)
{
	(void)dev_id;
	snprintf(text, text_bytes, "%s", users == BLOCK_USERS_REAL ? "open by fio[7]" : "");
	return users;
}

void __wrap_queue_flush(struct queue *q);
void __wrap_queue_flush(struct queue *q)
{
	assert_ptr_equal(q, &queue);
	note("FLUSH");
}

static void on_event(struct device *device, enum device_event event, void *arg)
{
	(void)arg;
	if (event == DEVICE_EVENT_STOP_REFUSED)
		snprintf(refusal, sizeof(refusal), "%s", device->error);
	note(event == DEVICE_EVENT_STOP_REFUSED ? "refused"
	     : event == DEVICE_EVENT_GONE	? "gone"
	     : event == DEVICE_EVENT_LATE	? "late"
						: "other");
}

static struct backend_cache_job *job;
static int cache_ret;

static int fake_cache_begin(struct backend_device *device, struct backend_cache_job *begun)
{
	if (cache_ret < 0) {
		snprintf(begun->words, sizeof(begun->words), "the cache says no");
		return cache_ret;
	}
	note(device->name);
	note(begun->op == BACKEND_CACHE_YIELD  ? "yields"
	     : begun->op == BACKEND_CACHE_BACK ? "back"
					       : "other");
	job = begun;
	return 0;
}

static const struct backend_cache_ops cache_ops = { .begin = fake_cache_begin };
static const struct backend cache = { .name = "cache", .cache_ops = &cache_ops };
static const struct backend mem = { .name = "mem" };
static struct backend_device leaf, lower, upper;
static const struct device_host host = { .ctl = &ctl, .event = on_event };

/* A device of one queue that has been written to. */
static int fresh(void **state)
{
	(void)state;
	leaf = (struct backend_device){ .ops = &mem, .name = "leaf" };
	lower = (struct backend_device){ .ops = &cache, .name = "lower", .child = &leaf };
	upper = (struct backend_device){ .ops = &cache, .name = "upper", .child = &lower };
	backend_owed_begin(&leaf, NULL);
	backend_owed_begin(&lower, NULL);
	backend_owed_begin(&upper, NULL);
	memset(&queue, 0, sizeof(queue));
	memset(&reactor, 0, sizeof(reactor));
	queue.setup.owner = &d;
	queue.stats.op[BACKEND_WRITE].done = 1;
	memset(&d, 0, sizeof(d));
	d.host = &host;
	d.state = DEVICE_LIVE;
	d.backend = &leaf;
	d.queues = &queue;
	d.cdev_fd = -1;
	d.spec.name = "disk";
	d.attach_nr = d.attached_nr = 1;
	seen[0] = refusal[0] = '\0';
	users = BLOCK_USERS_NONE;
	cache_ret = 0;
	job = NULL;
	return 0;
}

/* What is left of a stop is the driver's, and not of this: it has ended its queue already. */
static void nothing_is_left(void)
{
	d.attach_nr = d.attached_nr = 0;
}

/* What stands in the timers of the reactor, but for deadlines. */
static void turn(void)
{
	timer_heap_run(&reactor.timers, ++reactor.now_ns);
}

static void stop(bool force)
{
	assert_int_equal(device_stop(&d, force, NS_PER_SEC), 0);
	turn();
}

static void flush_answers(int result)
{
	device_queue_flushed(&queue, result);
	turn();
}

static void cache_answers(int ret)
{
	struct backend_cache_job *answered = job;

	assert_non_null(answered);
	job = NULL;
	if (ret < 0)
		snprintf(answered->words, sizeof(answered->words), "dirty blocks stay");
	answered->done(answered, ret);
	turn();
}

/* ---- a FLUSH ---- */

static void test_a_good_flush_goes_on(void **state)
{
	(void)state;
	stop(false);
	assert_int_equal(d.state, DEVICE_FLUSHING);
	assert_string_equal(seen, "FLUSH ");
	nothing_is_left();
	flush_answers(0);
	assert_string_equal(seen, "FLUSH gone ");
	assert_false(backend_is_owed(&leaf));
}

/* Nothing is lost by the stop, and its user hears of the loss. */
static void test_a_failed_one_keeps_the_device(void **state)
{
	(void)state;
	stop(false);
	flush_answers(-EIO);
	assert_string_equal(seen, "FLUSH refused ");
	assert_int_equal(d.state, DEVICE_LIVE);
	assert_false(d.stop_wanted);
}

/* A FLUSH of the device as the core judges it, with this answer from below. */
static int flush_judged(int result)
{
	struct backend_queue backend_queue = { .device = &leaf };
	struct backend_io io = { .queue = &backend_queue, .op = BACKEND_FLUSH };

	backend_owed_flush_begin(&io);
	return backend_owed_flush_judge(&io, result);
}

/* As queue_flush.c: what it has told is owed again. */
static void stop_flush_answers(int below)
{
	int result = flush_judged(below);

	if (result < 0)
		backend_owe(&leaf);
	flush_answers(result);
}

static void stop_flush_fails(void)
{
	stop_flush_answers(-EIO);
}

/* Whoever asks, and however often: the second time no FLUSH is sent, as it might succeed. */
static void test_refused_again_until_its_user_flushes(void **state)
{
	(void)state;
	stop(false);
	stop_flush_fails();
	stop(false);
	assert_string_equal(seen, "FLUSH refused refused ");
	assert_int_equal(d.state, DEVICE_LIVE);
	assert_int_equal(flush_judged(0), -EIO); /* the user hears of it */
	stop(false);
	assert_string_equal(seen, "FLUSH refused refused refused ");
	assert_int_equal(flush_judged(0), 0);
	stop(false);
	assert_string_equal(seen, "FLUSH refused refused refused FLUSH ");
	nothing_is_left();
	stop_flush_answers(0);
	assert_string_equal(seen, "FLUSH refused refused refused FLUSH gone ");
	assert_string_equal(device_loss(&d), "");
}

static void test_a_refused_one_asks_the_user_once(void **state)
{
	uint32_t losses;

	(void)state;
	stop(false);
	stop_flush_fails();
	losses = backend_losses(&leaf);
	stop(false);
	stop(false);
	assert_int_equal(backend_losses(&leaf), losses);
}

/* The user's good FLUSH has not covered what storage has lost since. */
static void test_a_new_loss_is_not_passed_over(void **state)
{
	(void)state;
	stop(false);
	stop_flush_fails();
	assert_int_equal(flush_judged(0), -EIO);
	assert_int_equal(flush_judged(0), 0);
	backend_owe(&leaf);
	stop(false);
	stop_flush_answers(0);
	assert_string_equal(seen, "FLUSH refused FLUSH refused ");
	stop(false);
	assert_string_equal(seen, "FLUSH refused FLUSH refused refused ");
}

/* Each of them: with and without a FLUSH of its own. */
static void test_the_refusal_says_what_helps(void **state)
{
	(void)state;
	stop(false);
	stop_flush_fails();
	assert_non_null(strstr(refusal, "a FLUSH failed (EIO)"));
	assert_non_null(strstr(refusal, "fsync until that succeeds"));
	assert_non_null(strstr(refusal, "--force"));
	refusal[0] = '\0';
	stop(false);
	assert_non_null(strstr(refusal, "a FLUSH failed (EIO)"));
	assert_non_null(strstr(refusal, "fsync until that succeeds"));
}

/* By force after a refusal: what was said then is said again, unless the user's FLUSH is good. */
static void test_force_after_a_refusal(void **state)
{
	(void)state;
	stop(false);
	stop_flush_fails();
	stop(false);
	nothing_is_left();
	stop(true);
	assert_non_null(strstr(device_loss(&d), "a FLUSH failed (EIO)"));
	assert_null(strstr(device_loss(&d), "fsync"));
	fresh(NULL);
	stop(false);
	stop_flush_fails();
	assert_int_equal(flush_judged(0), -EIO);
	assert_int_equal(flush_judged(0), 0);
	nothing_is_left();
	stop(true);
	assert_string_equal(device_loss(&d), "");
}

/* A stop that the driver refuses after a good FLUSH is free to try again. */
static void test_refused_by_the_driver_alone(void **state)
{
	(void)state;
	stop(false);
	d.retry.armed = true; /* as while it is sent to the driver: nothing goes on */
	device_queue_flushed(&queue, flush_judged(0));
	d.retry.armed = false;
	device_refuse_stop(&d, "in use: open by fio[7]");
	assert_null(strstr(refusal, "fsync"));
	stop(false);
	assert_string_equal(seen, "FLUSH refused FLUSH ");
}

static void test_force_asks_nobody(void **state)
{
	(void)state;
	nothing_is_left();
	stop(true);
	assert_string_equal(seen, "gone ");
}

/* It goes on, but not before the queue has its tag back. */
static void test_force_does_not_wait_for_the_answer(void **state)
{
	(void)state;
	stop(false);
	assert_string_equal(seen, "FLUSH ");
	nothing_is_left();
	stop(true);
	assert_string_equal(seen, "FLUSH ");
	flush_answers(-ECANCELED);
	assert_string_equal(seen, "FLUSH gone ");
	assert_false(backend_is_owed(&leaf));
}

static void test_late_is_told_and_nothing_cancelled(void **state)
{
	(void)state;
	stop(false);
	d.deadline.fn(&d.deadline);
	assert_string_equal(seen, "FLUSH late ");
	assert_false(d.cancelled);
	assert_non_null(strstr(d.error, "--force"));
	flush_answers(-EIO);
	assert_string_equal(seen, "FLUSH late refused ");
}

static void test_what_was_only_read_is_not_flushed(void **state)
{
	(void)state;
	queue.stats.op[BACKEND_WRITE].done = 0;
	nothing_is_left();
	stop(false);
	assert_string_equal(seen, "gone ");
}

/* The user's FLUSH has brought all of it there: a storage that is gone keeps no device. */
static void test_what_its_user_has_flushed_is_not_flushed(void **state)
{
	(void)state;
	queue.writes_flushed = 1;
	assert_int_equal(device_stop(&d, false, NS_PER_SEC), 0);
	d.cmd.op.state = OP_INFLIGHT; /* nothing of the rest of the stop goes on */
	turn();
	assert_string_equal(seen, "");
	assert_true(d.flush.is_good);
	assert_string_equal(device_loss(&d), "");
}

static void test_what_is_owed_is_told(void **state)
{
	(void)state;
	queue.stats.op[BACKEND_WRITE].done = 0;
	backend_owe(&leaf);
	stop(false);
	assert_string_equal(seen, "FLUSH ");
	flush_answers(-EIO);
	assert_string_equal(seen, "FLUSH refused ");
}

static void test_stopped_by_somebody_else(void **state)
{
	(void)state;
	stop(false);
	d.drained_nr = 1;
	device_go_down(&d);
	assert_string_equal(seen, "FLUSH ");
	nothing_is_left();
	stop_flush_fails();
	assert_string_equal(seen, "FLUSH gone ");
	assert_non_null(strstr(device_loss(&d), "a FLUSH failed (EIO)"));
}

static void test_force_tells_what_is_owed(void **state)
{
	(void)state;
	nothing_is_left();
	stop(true);
	assert_string_equal(device_loss(&d), "");
	fresh(NULL);
	backend_owe(&leaf);
	nothing_is_left();
	stop(true);
	assert_non_null(strstr(device_loss(&d), "lost writes"));
}

/* No deadline fails the requests of a device that stays, whatever a stop waits for. */
static void test_late_while_a_snapshot_is_changed(void **state)
{
	(void)state;
	d.snapshot.busy = true;
	stop(false);
	d.deadline.fn(&d.deadline);
	assert_string_equal(seen, "late ");
	assert_false(d.cancelled);
	d.snapshot.busy = false;
	device_go_down(&d);
	turn();
	assert_string_equal(seen, "late FLUSH ");
	flush_answers(-EIO);
	assert_string_equal(seen, "late FLUSH refused ");
}

/* ---- caches ---- */

static void test_caches_write_first(void **state)
{
	(void)state;
	d.backend = &upper;
	stop(false);
	cache_answers(0);
	cache_answers(0);
	assert_string_equal(seen, "upper yields lower yields FLUSH ");
	nothing_is_left();
	flush_answers(0);
	assert_string_equal(seen, "upper yields lower yields FLUSH gone ");
}

static void test_a_cache_that_cannot_keeps_the_device(void **state)
{
	(void)state;
	d.backend = &upper;
	stop(false);
	cache_answers(0);
	cache_answers(-EIO);
	assert_string_equal(seen, "upper yields lower yields upper back ");
	cache_answers(0);
	assert_string_equal(seen, "upper yields lower yields upper back refused ");
	assert_int_equal(d.state, DEVICE_LIVE);
	assert_string_equal(d.flush.words, "lower: dirty blocks stay");
}

static void test_caches_come_back_after_a_failed_flush(void **state)
{
	(void)state;
	d.backend = &lower;
	stop(false);
	cache_answers(0);
	flush_answers(-EIO);
	assert_string_equal(seen, "lower yields FLUSH lower back ");
	cache_answers(0);
	assert_string_equal(seen, "lower yields FLUSH lower back refused ");
}

static void test_a_cache_refuses_at_once(void **state)
{
	(void)state;
	d.backend = &lower;
	cache_ret = -EIO;
	stop(false);
	assert_string_equal(seen, "refused ");
	assert_string_equal(d.flush.words, "lower: the cache says no");
}

/* The driver refuses it, so nothing is written for it. */
static void test_of_an_open_device_no_cache_is_asked(void **state)
{
	(void)state;
	d.backend = &lower;
	users = BLOCK_USERS_REAL;
	stop(false);
	assert_string_equal(seen, "refused ");
	assert_non_null(strstr(d.flush.words, "fio[7]"));
}

static void test_force_hurries_caches(void **state)
{
	(void)state;
	d.backend = &lower;
	stop(false);
	assert_false(job->is_cancelled);
	nothing_is_left();
	stop(true);
	assert_true(job->is_cancelled);
	cache_answers(-ECANCELED);
	assert_string_equal(seen, "lower yields gone ");
}

/* A stop that comes while caches come back waits for that. */
static void test_stop_again_while_they_come_back(void **state)
{
	(void)state;
	d.backend = &lower;
	stop(false);
	cache_answers(0);
	flush_answers(-EIO);
	nothing_is_left();
	stop(true);
	cache_answers(0);
	assert_string_equal(seen, "lower yields FLUSH lower back gone ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_a_good_flush_goes_on, fresh),
		cmocka_unit_test_setup(test_a_failed_one_keeps_the_device, fresh),
		cmocka_unit_test_setup(test_refused_again_until_its_user_flushes, fresh),
		cmocka_unit_test_setup(test_a_refused_one_asks_the_user_once, fresh),
		cmocka_unit_test_setup(test_a_new_loss_is_not_passed_over, fresh),
		cmocka_unit_test_setup(test_the_refusal_says_what_helps, fresh),
		cmocka_unit_test_setup(test_force_after_a_refusal, fresh),
		cmocka_unit_test_setup(test_refused_by_the_driver_alone, fresh),
		cmocka_unit_test_setup(test_force_asks_nobody, fresh),
		cmocka_unit_test_setup(test_force_does_not_wait_for_the_answer, fresh),
		cmocka_unit_test_setup(test_late_is_told_and_nothing_cancelled, fresh),
		cmocka_unit_test_setup(test_what_was_only_read_is_not_flushed, fresh),
		cmocka_unit_test_setup(test_what_its_user_has_flushed_is_not_flushed, fresh),
		cmocka_unit_test_setup(test_what_is_owed_is_told, fresh),
		cmocka_unit_test_setup(test_stopped_by_somebody_else, fresh),
		cmocka_unit_test_setup(test_force_tells_what_is_owed, fresh),
		cmocka_unit_test_setup(test_late_while_a_snapshot_is_changed, fresh),
		cmocka_unit_test_setup(test_caches_write_first, fresh),
		cmocka_unit_test_setup(test_a_cache_that_cannot_keeps_the_device, fresh),
		cmocka_unit_test_setup(test_caches_come_back_after_a_failed_flush, fresh),
		cmocka_unit_test_setup(test_a_cache_refuses_at_once, fresh),
		cmocka_unit_test_setup(test_of_an_open_device_no_cache_is_asked, fresh),
		cmocka_unit_test_setup(test_force_hurries_caches, fresh),
		cmocka_unit_test_setup(test_stop_again_while_they_come_back, fresh),
	};

	return cmocka_run_group_tests_name("device_flush", tests, NULL, NULL);
}
