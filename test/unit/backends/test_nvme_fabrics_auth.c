/* DH-HMAC-CHAP as a part of bringing up a queue: when it runs, when it must, and how it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "test/rig/nvme_auth_case.h"
#include "test/rig/nvme_fake_controller.h"

#define ATR (1u << 17)
#define ASCR (1u << 18)

static struct fake_controller c;
static struct nvme_fabrics f;
static struct nvme_fabrics_config config;
static struct auth_case keys; /* keys and the fake side; its auth is not used */

static uint32_t on_auth(void *ctx, struct nvme_fabrics *fabrics)
{
	struct fake_auth *a = ctx;

	if (fabrics->out_bytes == 0) {
		/* The data came by C2HData, fewer than asked for. */
		assert_true(fabrics->short_ok);
		return fake_auth_receive(a, fabrics->sqe, fabrics->data);
	}
	fake_auth_send(a, fabrics->sqe, fabrics->data, fabrics->out_bytes);
	return 0;
}

static void start(enum nvme_fabrics_mode mode, bool ask)
{
	case_init(&keys, 1, 1, ask);
	fake_init(&c);
	fake_add(&c, 1, 2048);
	c.connect_result |= ATR;
	c.on_auth = on_auth;
	c.ctx = &keys.fake;
	config = (struct nvme_fabrics_config){
		.mode = mode,
		.subsystem_nqn = FAKE_SUBSYSTEM,
		.host_nqn = FAKE_HOST,
		.queues_nr = 2,
		.entries_nr = 128,
		.want = { .by = NVME_WANT_NSID, .nsid = 1 },
		.cntlid = 7,
		.qid = mode == NVME_FABRICS_IO ? 3 : 0,
		.host_key = &keys.host,
		.controller_key = ask ? &keys.controller : NULL,
	};
}

static void run(void)
{
	nvme_fabrics_init(&f, &config);
	fake_run(&c, &f);
}

static void check_failed(int err, const char *words)
{
	run();
	assert_int_equal(f.step, NVME_FABRICS_FAILED);
	assert_string_equal(f.error, words);
	assert_int_equal(f.err, err);
	assert_false(f.may_retry);
}

static void test_modes(void **state)
{
	(void)state;
	for (enum nvme_fabrics_mode mode = NVME_FABRICS_ADMIN; mode <= NVME_FABRICS_IO; mode++)
		for (unsigned ask = 0; ask < 2; ask++) {
			start(mode, ask);
			c.identify[111] = mode == NVME_FABRICS_DISCOVERY ? NVME_CNTRLTYPE_DISCOVERY
									 : NVME_CNTRLTYPE_IO;
			run();
			assert_string_equal(f.error, "");
			assert_int_equal(f.step, NVME_FABRICS_DONE);
			assert_true(keys.fake.host_proved);
			assert_int_equal(keys.fake.step, ask ? FAKE_SUCCESS2 : FAKE_REPLY);
			assert_int_equal(f.controller.cntlid, 7);
			if (mode == NVME_FABRICS_IO)
				assert_int_equal(c.commands_nr, 5 + ask);
			else
				assert_false(f.short_ok);
		}
}

/* A host's key waits until it is asked for; a controller's key does not. */
static void test_unasked(void **state)
{
	(void)state;
	start(NVME_FABRICS_ADMIN, false);
	c.connect_result &= ~ATR;
	run();
	assert_int_equal(f.step, NVME_FABRICS_DONE);
	assert_int_equal(keys.fake.receives_nr, 0);
	start(NVME_FABRICS_ADMIN, true);
	c.connect_result &= ~ATR;
	check_failed(-EACCES,
		     "the target does not ask for authentication, so it need not show that "
		     "it has its key (dhchap_ctrl_key): set the host's key (dhchap_key) "
		     "and its own at the target");
	assert_int_equal(c.commands_nr, 1);
	/* Of an association whose admin queue has shown it. */
	start(NVME_FABRICS_IO, true);
	c.connect_result &= ~ATR;
	run();
	assert_int_equal(f.step, NVME_FABRICS_DONE);
}

static void test_secure_channel(void **state)
{
	(void)state;
	start(NVME_FABRICS_ADMIN, false);
	c.connect_result |= ASCR;
	check_failed(-EOPNOTSUPP,
		     "the target wants TLS with a key made by authentication (secure channel "
		     "concatenation), which is not supported: give both a key for TLS, or switch "
		     "it off at the target");
	assert_int_equal(keys.fake.receives_nr, 0);
}

static void test_wrong_keys(void **state)
{
	(void)state;
	for (enum nvme_fabrics_mode mode = NVME_FABRICS_ADMIN; mode <= NVME_FABRICS_IO; mode++) {
		start(mode, false);
		keys.host.secret.key[5] ^= 1;
		check_failed(-EACCES, "the target does not accept the key of this host, " FAKE_HOST
				      ": give it the same key at the target (dhchap_key)");
		start(mode, true);
		keys.controller.secret.key[5] ^= 1;
		check_failed(-EACCES,
			     "the target does not have the key that is expected of it "
			     "(dhchap_ctrl_key): the keys differ, or it is another target");
		assert_int_equal(keys.fake.why2, 1);
	}
}

static void test_status(void **state)
{
	(void)state;
	start(NVME_FABRICS_ADMIN, false);
	c.fail_at = 3;
	c.fail_status = 0x6;
	run();
	assert_int_equal(f.step, NVME_FABRICS_FAILED);
	assert_string_equal(f.error, "the target answers to Authentication Receive (challenge): "
				     "Internal Error (type 0, code 0x06)");
	assert_true(f.may_retry);
}

static void advance(unsigned nr)
{
	nvme_fabrics_init(&f, &config);
	while (c.commands_nr < nr)
		fake_answer(&c, &f);
	assert_int_equal(f.step, NVME_FABRICS_COMMAND);
}

static void test_gone(void **state)
{
	static const struct nvme_auth_random none;

	(void)state;
	start(NVME_FABRICS_IO, true);
	advance(2);
	nvme_fabrics_gone(&f, -ECONNRESET);
	assert_string_equal(f.error,
			    "the connection ended while the target was asked for Authentication");
	assert_int_equal(f.err, -ECONNRESET);
	assert_true(f.may_retry);
	assert_memory_equal(&f.auth.random, &none, sizeof(none));
	start(NVME_FABRICS_IO, true);
	advance(2);
	nvme_fabrics_gone(&f, -ETIMEDOUT);
	assert_string_equal(f.error, "the target does not answer to Authentication in time");
	/* It has the host's response. */
	start(NVME_FABRICS_IO, true);
	advance(3);
	nvme_fabrics_gone(&f, -ECONNRESET);
	assert_non_null(strstr(f.error, "the key of dhchap_key_file and the target's"));
	assert_int_equal(f.err, -ECONNRESET);
	assert_true(f.may_retry);
	/* It was being told that its key is wrong. */
	start(NVME_FABRICS_IO, true);
	keys.controller.secret.key[5] ^= 1;
	advance(5);
	nvme_fabrics_gone(&f, -ECONNRESET);
	assert_int_equal(f.step, NVME_FABRICS_FAILED);
	assert_string_equal(f.error, "the target does not have the key that is expected of it "
				     "(dhchap_ctrl_key): the keys differ, or it is another target");
	assert_int_equal(f.err, -EACCES);
	assert_false(f.may_retry);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modes),	       cmocka_unit_test(test_unasked),
		cmocka_unit_test(test_secure_channel), cmocka_unit_test(test_wrong_keys),
		cmocka_unit_test(test_status),	       cmocka_unit_test(test_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
