/* nbd_resolve: an answer that is wanted, and one that nobody wants any more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/nbd/nbd_resolve.h"
#include "base/util.h"

static struct reactor r;
static unsigned answered_nr, found_nr;

static void on_answer(void *arg, const struct nbd_addresses *found, const char *error)
{
	(void)error;
	assert_ptr_equal(arg, &r);
	answered_nr++;
	found_nr = found ? found->nr : 0;
}

static int setup(void **state)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };

	(void)state;
	answered_nr = found_nr = 0;
	return reactor_init(&r, &params);
}

static int teardown(void **state)
{
	(void)state;
	return 0;
}

static struct nbd_resolve *begin(void)
{
	struct nbd_uri_error error;
	struct nbd_resolve *resolve = NULL;
	struct nbd_uri uri;

	assert_int_equal(nbd_uri_parse("nbd://127.0.0.1:10809", &uri, &error), 0);
	assert_int_equal(nbd_resolve_begin(&resolve, &r, &uri, on_answer, &r), 0);
	return resolve;
}

static void test_answer(void **state)
{
	(void)state;
	begin();
	while (answered_nr == 0)
		reactor_turn(&r, true);
	assert_int_equal(found_nr, 1);
	assert_int_equal(r.leaving, 0);
	reactor_fini(&r);
}

/* The mail is there and has not been read: the reactor waits for it, and it tells nobody. */
static void test_forgotten_with_its_mail_on_the_way(void **state)
{
	struct nbd_resolve *resolve = begin();
	struct reactor_look look;

	(void)state;
	for (reactor_look(&r, &look); !look.mail; reactor_look(&r, &look))
		usleep(1000);
	nbd_resolve_forget(resolve);
	assert_int_equal(r.leaving, 1);
	while (r.leaving > 0)
		reactor_turn(&r, true);
	assert_int_equal(r.leaving, 0);
	assert_int_equal(answered_nr, 0);
	reactor_fini(&r);
}

/* Whether the thread has answered by then is chance: nothing is left behind either way. */
static void test_forgotten_at_once(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 100; i++)
		nbd_resolve_forget(begin());
	nbd_resolve_forget(NULL);
	reactor_fini(&r);
	assert_int_equal(answered_nr, 0);
}

int main(void)
{
#define RIG(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = { RIG(test_answer),
					    RIG(test_forgotten_with_its_mail_on_the_way),
					    RIG(test_forgotten_at_once) };

	return cmocka_run_group_tests_name("nbd_resolve", tests, NULL, NULL);
}
