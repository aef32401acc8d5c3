/* Wrong keys either way, and a controller that breaks DH-HMAC-CHAP: told in words, and answered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "base/prng.h"
#include "test/rig/nvme_auth_case.h"

static struct auth_case c;

/* why: of failure2; 0: none is sent. */
static void check_failed(int err, uint8_t why, const char *words)
{
	assert_int_equal(case_run(&c), NVME_AUTH_FAILED);
	assert_string_equal(c.auth.error, words);
	assert_int_equal(c.auth.err, err);
	assert_int_equal(c.fake.why2, why);
	assert_int_equal(c.fake.step == FAKE_FAILURE2, why != 0);
	assert_false(c.auth.may_retry);
}

static void test_wrong_keys(void **state)
{
	(void)state;
	for (uint8_t group = 0; group < 2; group++) {
		case_init(&c, 1, group, false);
		c.host.secret.key[31] ^= 1;
		check_failed(-EACCES, 0,
			     "the target does not accept the key of this host, " FAKE_HOST
			     ": give it the same key at the target (dhchap_key)");
		case_init(&c, 1, group, true);
		c.host.secret.key[0] ^= 0x80;
		check_failed(-EACCES, 0,
			     "the target does not accept the key of this host, " FAKE_HOST
			     ": give it the same key at the target (dhchap_key); or the target has "
			     "no key of its own (dhchap_ctrl_key), for which it was asked");
		case_init(&c, 1, group, true);
		c.host.secret.hash = 2;
		assert_int_equal(case_run(&c), NVME_AUTH_FAILED);
		case_init(&c, 1, group, true);
		c.controller.secret.key[47] ^= 1;
		check_failed(-EACCES, 1,
			     "the target does not have the key that is expected of it "
			     "(dhchap_ctrl_key): the keys differ, or it is another target");
		case_init(&c, 1, group, true);
		c.fake.controller.bytes = 0;
		case_run(&c);
		assert_int_equal(c.auth.err, -EACCES);
		assert_true(c.fake.host_proved);
	}
}

/* A controller that was asked and keeps silent about itself has proved nothing. */
static void test_unproved(void **state)
{
	(void)state;
	case_init(&c, 2, 0, true);
	c.fake.bend_at = 2;
	c.fake.at_byte = 8;
	c.fake.bend_xor = 1;
	check_failed(-EACCES, 1,
		     "the target does not show that it has a key of its own: set dhchap_ctrl_key "
		     "at the target");
}

static void test_failures(void **state)
{
	static const struct {
		uint8_t why;
		int err;
		const char *words;
	} cases[] = {
		{ 1, -EACCES, "authentication failed (failure 1)" },
		{ 2, -EOPNOTSUPP, "it does not do DH-HMAC-CHAP (failure 2)" },
		{ 3, -EOPNOTSUPP, "it wants a secure channel to follow (failure 3)" },
		{ 4, -EOPNOTSUPP, "it takes none of SHA-256, SHA-384 and SHA-512 (failure 4)" },
		{ 5, -EOPNOTSUPP,
		  "it takes none of the groups ffdhe2048 to ffdhe8192 (failure 5)" },
		{ 6, -EOPNOTSUPP, "a message is malformed (failure 6)" },
		{ 7, -EOPNOTSUPP, "a message is not the one that it waits for (failure 7)" },
		{ 8, -EOPNOTSUPP, "an unknown reason (failure 8)" },
		{ 255, -EOPNOTSUPP, "an unknown reason (failure 255)" },
	};
	char words[200];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		case_init(&c, 1, 0, false);
		c.fake.fail_why = cases[i].why;
		snprintf(words, sizeof(words), "the target ends the authentication with: %s",
			 cases[i].words);
		check_failed(cases[i].err, 0, words);
	}
}

static void bend(unsigned answer, unsigned at, uint8_t xor)
{
	case_init(&c, 1, 1, true);
	c.fake.bend_at = answer;
	c.fake.at_byte = at;
	c.fake.bend_xor = xor;
}

static void test_challenges(void **state)
{
	(void)state;
	bend(1, 0, 1);
	check_failed(-EPROTO, 7,
		     "the target answers to Authentication Receive (challenge) with another "
		     "message, of 304 bytes (type 0, message 1)");
	bend(1, 1, 2);
	check_failed(-EPROTO, 7,
		     "the target answers to Authentication Receive (challenge) with another "
		     "message, of 304 bytes (type 1, message 3)");
	bend(1, 5, 1); /* T_ID */
	check_failed(-EPROTO, 7,
		     "the target answers to Authentication Receive (challenge) with another "
		     "message, of 304 bytes (type 1, message 1)");
	bend(1, 6, 16);
	check_failed(-EOPNOTSUPP, 4,
		     "the target's challenge is with hash 1 of 48 bytes and group 1, which are not "
		     "among those offered");
	bend(1, 8, 1);
	check_failed(-EOPNOTSUPP, 4,
		     "the target's challenge is with hash 0 of 32 bytes and group 1, which are not "
		     "among those offered");
	bend(1, 8, 5);
	check_failed(-EOPNOTSUPP, 4,
		     "the target's challenge is with hash 4 of 32 bytes and group 1, which are not "
		     "among those offered");
	bend(1, 9, 7);
	check_failed(-EOPNOTSUPP, 5,
		     "the target's challenge is with hash 1 of 32 bytes and group 6, which are not "
		     "among those offered");
	/* the null group, with a number; a group without one, with one that is too long */
	bend(1, 9, 1);
	check_failed(-EPROTO, 6,
		     "the target's challenge of 304 bytes is malformed: with SHA-256 and no group, "
		     "it says that its number has 256 bytes");
	bend(1, 11, 1);
	check_failed(-EPROTO, 6,
		     "the target's challenge of 304 bytes is malformed: with SHA-256 and "
		     "ffdhe2048, it says that its number has 0 bytes");
	bend(1, 10, 1);
	check_failed(-EPROTO, 6,
		     "the target's challenge of 304 bytes is malformed: with SHA-256 and "
		     "ffdhe2048, it says that its number has 257 bytes");
}

/* A number of the target that makes the shared one known to all. */
static void test_weak_numbers(void **state)
{
	struct nvme_cqe cqe = { 0 };

	(void)state;
	for (unsigned n = 0; n < 2; n++) {
		case_init(&c, 1, 1, false);
		case_start(&c);
		case_answer(&c);
		fake_auth_receive(&c.fake, c.auth.sqe, c.data);
		memset(c.data + 48, 0, 256);
		c.data[48 + 255] = (uint8_t)n;
		nvme_auth_completed(&c.auth, &cqe, 48 + 256);
		case_answer(&c);
		assert_int_equal(c.auth.step, NVME_AUTH_FAILED);
		assert_string_equal(c.auth.error, "the target's Diffie-Hellman number cannot be "
						  "one of ffdhe2048");
		assert_int_equal(c.auth.err, -EPROTO);
		assert_int_equal(c.fake.why2, 6);
	}
}

static void test_success1(void **state)
{
	(void)state;
	bend(2, 1, 2);
	check_failed(-EPROTO, 7,
		     "the target answers to Authentication Receive (success1) with another "
		     "message, of 48 bytes (type 1, message 1)");
	bend(2, 4, 1);
	check_failed(-EPROTO, 7,
		     "the target answers to Authentication Receive (success1) with another "
		     "message, of 48 bytes (type 1, message 3)");
	bend(2, 6, 16);
	check_failed(-EPROTO, 6,
		     "the target's response of 48 bytes, in 48 of a message, is malformed: SHA-256 "
		     "has 32");
	for (unsigned at = 16; at < 48; at++) {
		bend(2, at, 0x10);
		c.fake.group = 0;
		check_failed(-EACCES, 1,
			     "the target does not have the key that is expected of it "
			     "(dhchap_ctrl_key): the keys differ, or it is another target");
	}
}

/* Every message cut off everywhere. */
static void test_cut(void **state)
{
	static const struct {
		unsigned answer;
		uint8_t group;
		bool ask;
		uint32_t bytes;
	} cases[] = {
		{ 1, 0, true, 48 }, { 1, 1, true, 304 }, { 2, 0, true, 48 }, { 2, 0, false, 16 }
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		for (uint32_t bytes = 0; bytes < cases[i].bytes; bytes++) {
			case_init(&c, 1, cases[i].group, cases[i].ask);
			c.fake.bend_at = cases[i].answer;
			c.fake.bend_bytes = bytes;
			assert_int_equal(case_run(&c), NVME_AUTH_FAILED);
			assert_int_equal(c.auth.err, -EPROTO);
			assert_int_equal(c.fake.why2, 6);
			assert_non_null(strstr(c.auth.error, bytes < 16 ? "cut off" : "malformed"));
		}
	/* a failure1 without its reason */
	case_init(&c, 1, 0, false);
	c.fake.fail_why = 4;
	c.fake.bend_at = 1;
	c.fake.bend_bytes = 7;
	check_failed(-EPROTO, 6,
		     "the target answers to Authentication Receive (challenge) with a message that "
		     "is cut off, of 7 bytes (type 0, message 241)");
}

static void test_statuses(void **state)
{
	static const char *const names[] = {
		"Authentication Send (negotiate)", "Authentication Receive (challenge)",
		"Authentication Send (reply)",	   "Authentication Receive (success1)",
		"Authentication Send (success2)",
	};
	char words[200];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		case_init(&c, 1, 0, true);
		c.fail_at = i + 1;
		c.fail_status = 0x4002;
		snprintf(
			words, sizeof(words),
			"the target answers to %s: Invalid Field in Command (type 0, code 0x02, do "
			"not retry)",
			names[i]);
		assert_int_equal(case_run(&c), NVME_AUTH_FAILED);
		assert_string_equal(c.auth.error, words);
		assert_false(c.auth.may_retry);
		case_init(&c, 1, 0, true);
		c.fail_at = i + 1;
		c.fail_status = 0x0006;
		assert_int_equal(case_run(&c), NVME_AUTH_FAILED);
		assert_int_equal(c.auth.err, -EIO);
		assert_true(c.auth.may_retry);
	}
	/* that of failure2 changes nothing */
	case_init(&c, 1, 0, true);
	c.controller.secret.key[0] ^= 1;
	c.fail_at = 5;
	c.fail_status = 0x4002;
	check_failed(-EACCES, 1,
		     "the target does not have the key that is expected of it (dhchap_ctrl_key): "
		     "the keys differ, or it is another target");
}

/* Many close the connection on failure2. */
static void test_gone(void **state)
{
	(void)state;
	case_init(&c, 1, 0, true);
	c.controller.secret.key[0] ^= 1;
	case_start(&c);
	for (unsigned i = 0; i < 4; i++)
		case_answer(&c);
	assert_true(nvme_auth_gone(&c.auth, -ECONNRESET));
	assert_int_equal(c.auth.step, NVME_AUTH_FAILED);
	assert_int_equal(c.auth.err, -EACCES);
	assert_false(nvme_auth_gone(&c.auth, -ECONNRESET));
}

/* A target with another key may close the connection instead of a failure1. */
static void test_gone_after_response(void **state)
{
	(void)state;
	for (unsigned answered = 2; answered <= 3; answered++) {
		case_init(&c, 1, 0, false);
		case_start(&c);
		for (unsigned i = 0; i < answered; i++)
			case_answer(&c);
		assert_true(nvme_auth_gone(&c.auth, -ECONNRESET));
		assert_int_equal(c.auth.step, NVME_AUTH_FAILED);
		assert_int_equal(c.auth.err, -ECONNRESET);
		assert_true(c.auth.may_retry);
		assert_non_null(strstr(c.auth.error, "dhchap_key_file"));
	}
	/* Late says nothing about keys. */
	case_init(&c, 1, 0, false);
	case_start(&c);
	for (unsigned i = 0; i < 2; i++)
		case_answer(&c);
	assert_false(nvme_auth_gone(&c.auth, -ETIMEDOUT));
	assert_int_equal(c.auth.step, NVME_AUTH_FAILED);
}

/* The longest names there are. */
static void test_long_names(void **state)
{
	char name[224];
	struct nvme_auth_config config = {
		.host_key = &c.host,
		.host_nqn = name,
		.subsystem_nqn = name,
	};

	(void)state;
	memset(name, 'n', 223);
	name[223] = '\0';
	case_init(&c, 3, 0, true);
	config.controller_key = &c.controller;
	nvme_auth_init(&c.auth, &config, &c.random, c.data);
	while (c.auth.step == NVME_AUTH_COMMAND)
		case_answer(&c);
	assert_int_equal(c.auth.step, NVME_AUTH_FAILED);
	assert_true(strlen(c.auth.error) + 1 < sizeof(c.auth.error));
	assert_non_null(strstr(c.auth.error, "for which it was asked"));
}

/* Any bytes for each answer: it ends within six commands, in words. */
static void test_noise(void **state)
{
	struct nvme_cqe cqe = { 0 };
	struct prng p;

	(void)state;
	prng_init(&p, 1);
	for (unsigned i = 0; i < 20000; i++) {
		unsigned nr = 0;

		case_init(&c, 1, 0, i % 2);
		case_start(&c);
		while (c.auth.step == NVME_AUTH_COMMAND) {
			uint32_t bytes = c.auth.in_bytes;

			assert_true(++nr < 6);
			for (uint32_t at = 0; at < MIN(bytes, 80u); at++)
				c.data[at] = (uint8_t)prng_below(&p, 4);
			nvme_put16(c.data + 4, 0xbeef);
			nvme_auth_completed(&c.auth, &cqe, (uint32_t)prng_below(&p, bytes + 1));
		}
		assert_true(c.auth.err < 0 && c.auth.error[0]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_keys),   cmocka_unit_test(test_unproved),
		cmocka_unit_test(test_failures),     cmocka_unit_test(test_challenges),
		cmocka_unit_test(test_weak_numbers), cmocka_unit_test(test_success1),
		cmocka_unit_test(test_cut),	     cmocka_unit_test(test_statuses),
		cmocka_unit_test(test_gone),	     cmocka_unit_test(test_gone_after_response),
		cmocka_unit_test(test_long_names),   cmocka_unit_test(test_noise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
