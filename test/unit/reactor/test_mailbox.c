/*
 * mailbox: mails of four threads to one reactor, which sleeps between them. Built with TSan too.
 * Every mail arrives once, those of one sender in order, and no wake-up is lost.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "reactor/reactor.h"

#define SENDER_NR 4
#define MAIL_NR 20000

struct sender;

struct letter {
	struct mail mail;
	struct sender *sender;
	unsigned number;
};

struct sender {
	pthread_t thread;
	struct letter *letters;
	unsigned idx, received_nr, in_disorder_nr;
};

static struct reactor r;
static unsigned received_nr;

static void on_mail(struct mail *mail)
{
	struct letter *letter = container_of(mail, struct letter, mail);
	struct sender *sender = letter->sender;

	sender->in_disorder_nr += letter->number != sender->received_nr;
	sender->received_nr++;
	received_nr++;
}

static void *send_all(void *arg)
{
	struct sender *sender = arg;

	for (unsigned i = 0; i < MAIL_NR; i++) {
		struct letter *letter = &sender->letters[i];

		letter->sender = sender;
		letter->number = i;
		reactor_post(&r, &letter->mail, on_mail);
		/* Pauses of several kinds, so that the reactor is met awake, asleep and between. */
		if (i % 1000 == 0)
			nanosleep(&(struct timespec){ .tv_nsec = 50000 * (sender->idx + 1) }, NULL);
		else if (i % 7 == 0)
			sched_yield();
	}
	return NULL;
}

static void init_reactor(void)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };

	assert_int_equal(reactor_init(&r, &params), 0);
	received_nr = 0;
}

static void test_four_senders(void **state)
{
	struct sender senders[SENDER_NR] = { 0 };

	(void)state;
	init_reactor();
	for (unsigned i = 0; i < SENDER_NR; i++) {
		senders[i].idx = i;
		senders[i].letters = calloc(MAIL_NR, sizeof(struct letter));
		pthread_create(&senders[i].thread, NULL, send_all, &senders[i]);
	}
	/* A lost wake-up would sleep here for ever: the test's time limit ends it. */
	while (received_nr < SENDER_NR * MAIL_NR)
		reactor_turn(&r, true);
	for (unsigned i = 0; i < SENDER_NR; i++) {
		pthread_join(senders[i].thread, NULL);
		assert_int_equal(senders[i].received_nr, MAIL_NR);
		assert_int_equal(senders[i].in_disorder_nr, 0);
		free(senders[i].letters);
	}
	assert_int_equal(r.stats.mails, SENDER_NR * MAIL_NR);
	reactor_fini(&r);
}

struct answering {
	struct mail mail;
	unsigned left_nr;
};

/* A mail may be posted again by its own callback. */
static void post_again(struct mail *mail)
{
	struct answering *a = container_of(mail, struct answering, mail);

	received_nr++;
	if (a->left_nr-- > 0)
		reactor_post(&r, mail, post_again);
}

static void test_mail_posted_by_its_callback(void **state)
{
	struct answering a = { .left_nr = 9 }, b = { .left_nr = 9 };

	(void)state;
	init_reactor();
	reactor_post(&r, &a.mail, post_again);
	reactor_post(&r, &b.mail, post_again);
	while (received_nr < 20)
		reactor_turn(&r, true);
	assert_int_equal(r.stats.mails, 20);
	reactor_fini(&r);
}

static bool reader_stop;

/* What metrics do: read the numbers while the reactor counts. */
static void *read_stats(void *arg)
{
	uint64_t turns = 0;

	(void)arg;
	while (!__atomic_load_n(&reader_stop, __ATOMIC_RELAXED)) {
		uint64_t now = __atomic_load_n(&r.stats.turns, __ATOMIC_RELAXED);

		if (now < turns)
			return &reader_stop;
		turns = now;
		turns += __atomic_load_n(&r.stats.enter_ns, __ATOMIC_RELAXED) & 0;
		turns += __atomic_load_n(&r.stats.turn_ns_max, __ATOMIC_RELAXED) & 0;
		turns += __atomic_load_n(&r.stats.mails, __ATOMIC_RELAXED) & 0;
	}
	return NULL;
}

static void test_stats_are_read_from_elsewhere(void **state)
{
	pthread_t reader;
	void *went_back;

	(void)state;
	init_reactor();
	pthread_create(&reader, NULL, read_stats, NULL);
	for (unsigned i = 0; i < 20000; i++)
		reactor_turn(&r, false);
	__atomic_store_n(&reader_stop, true, __ATOMIC_RELAXED);
	pthread_join(reader, &went_back);
	assert_null(went_back);
	reactor_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_four_senders),
		cmocka_unit_test(test_mail_posted_by_its_callback),
		cmocka_unit_test(test_stats_are_read_from_elsewhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
