/* flush: what is kept for the next process, at each moment at which this one may be killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/flush.h"
#include "base/util.h"

static _Atomic uint32_t kept;
static struct net_flush f;

static int setup(void **state)
{
	(void)state;
	kept = 0;
	assert_false(net_flush_init(&f, true, false, &kept, 0));
	return 0;
}

static void assert_left(bool left)
{
	struct net_flush next;
	_Atomic uint32_t copy = kept; /* what a kill would leave now */

	assert_int_equal(net_flush_init(&next, true, true, &copy, 0), left);
}

static void flush(int result)
{
	struct net_flush_mark m;

	net_flush_came(&m);
	net_flush_begin(&f, &m);
	net_flush_answered(&f, &m, result);
}

static void test_flushed(void **state)
{
	(void)state;
	assert_left(false);
	net_flush_wrote(&f);
	net_flush_wrote(&f);
	assert_left(true);
	flush(-5);
	assert_left(true);
	flush(0);
	assert_left(false);
	flush(0);
	net_flush_wrote(&f);
	assert_left(true);
}

/* A write comes while a FLUSH is under way, which does not cover it. */
static void test_written_meanwhile(void **state)
{
	struct net_flush_mark one, other;

	(void)state;
	net_flush_came(&one);
	net_flush_came(&other);
	net_flush_wrote(&f);
	net_flush_begin(&f, &one);
	assert_left(true);
	net_flush_wrote(&f);
	net_flush_begin(&f, &other);
	net_flush_answered(&f, &one, 0);
	assert_left(true); /* by the other */
	net_flush_answered(&f, &other, 0);
	assert_left(false);
}

/* It is sent again, and covers more then. */
static void test_sent_again(void **state)
{
	struct net_flush_mark m;

	(void)state;
	net_flush_came(&m);
	net_flush_wrote(&f);
	net_flush_begin(&f, &m);
	net_flush_wrote(&f);
	net_flush_begin(&f, &m);
	assert_left(true);
	net_flush_answered(&f, &m, 0);
	assert_left(false);
}

/* What is lost is left until a FLUSH succeeds. */
static void test_lost(void **state)
{
	struct net_flush_mark m;

	(void)state;
	net_flush_came(&m);
	net_flush_wrote(&f);
	net_flush_begin(&f, &m);
	net_flush_wrote(&f);
	assert_true(net_flush_lost(&f));
	assert_false(net_flush_may_resend(&f, &m));
	assert_left(true);
	assert_false(net_flush_lost(&f));
	flush(-5);
	assert_left(true);
	flush(0);
	assert_left(false);
}

static void test_own(void **state)
{
	(void)state;
	net_flush_begin_own(&f); /* of nothing */
	assert_left(false);
	net_flush_end_own(&f, 0);
	net_flush_wrote(&f);
	net_flush_begin_own(&f);
	assert_left(true);
	net_flush_end_own(&f, -5);
	assert_left(true);
	net_flush_begin_own(&f);
	assert_true(net_flush_lost(&f));
	net_flush_end_own(&f, 0);
	assert_left(true);
	flush(0);
	assert_left(false);
}

/* Nothing is left of a server that keeps what it acknowledges, nor by a device that is new. */
static void test_nothing_to_lose(void **state)
{
	(void)state;
	kept = 3;
	assert_false(net_flush_init(&f, false, true, &kept, 0));
	net_flush_wrote(&f);
	assert_int_equal(kept, 0);
	flush(0);
	assert_int_equal(kept, 0);
	kept = 3;
	assert_false(net_flush_init(&f, true, false, &kept, 0));
	assert_left(false);
	kept = 3;
	assert_true(net_flush_init(&f, true, true, &kept, 0));
	assert_left(true); /* until it is flushed */
	flush(0);
	assert_left(false);
}

/* It is no part of the count. */
static void test_several(void **state)
{
	(void)state;
	kept = NET_FLUSH_SEVERAL;
	assert_false(net_flush_init(&f, true, true, &kept, NET_FLUSH_SEVERAL));
	assert_left(true);
	flush(0);
	assert_left(false);
	assert_int_equal(kept, NET_FLUSH_SEVERAL);
	net_flush_wrote(&f);
	assert_true(net_flush_init(&f, true, true, &kept, 0));
	assert_int_equal(kept & NET_FLUSH_SEVERAL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_flushed, setup),
		cmocka_unit_test_setup(test_written_meanwhile, setup),
		cmocka_unit_test_setup(test_sent_again, setup),
		cmocka_unit_test_setup(test_lost, setup),
		cmocka_unit_test_setup(test_own, setup),
		cmocka_unit_test(test_nothing_to_lose),
		cmocka_unit_test(test_several),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
