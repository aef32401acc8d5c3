/*
 * DH-HMAC-CHAP of the host: the responses are those that Python's hmac, hashlib and pow calculate,
 * and a controller of another hand accepts them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "test/rig/nvme_auth_case.h"

static struct auth_case c;

/*
 * Key byte i of the host is 3 i + 1, of the controller 5 i + 2; private byte i is i + 1 (host),
 * 0x21
 * + i (controller, 32 of them), C1 0x80 + i, C2 0x40 + i, S1 0x55667788, S2 0x01020304, T_ID
 * 0xbeef.
 */
static const struct vector {
	uint8_t hash, group;
	const char *host, *controller; /* keys */
	const char *response, *expected;
	const char *number; /* SHA-256 of the host's DH number */
} vectors[] = {
	{ 1, 0, "DHHC-1:00:AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW174Qyfn:",
	  "DHHC-1:01:AgcMERYbICUqLzQ5PkNITVJXXGFma3B1en+EiY6TmJ19R/Gn:",
	  "461b1ded1e5de8f162fe95bdb5dbc145c31b76996163b9e4e8c35470ffd85b13",
	  "2fa0e603ec1193105fd2f242804d755eb5864486fb56d25cfeffa48a1524e532", "" },
	{ 2, 0,
	  "DHHC-1:02:AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW15hZGdqbXBzdnl8f4KFiIuOuCFqpg==:",
	  "DHHC-1:00:AgcMERYbICUqLzQ5PkNITVJXXGFma3B1en+EiY6TmJ2ip6yxtrvAxcrP1Nne4+jt/YOD6g==:",
	  "6413d26512ca97353bf0da3645b0b6ebc42f2a16aba18f6b98f18e8675a422594529463b09d5a45fbc78f93b"
	  "262c8858",
	  "ce5b28c971bdb3c2f862e12dbb42f756eb18a69c805bbca79f75ce61cc758efcdbf2d035a4f6eeb4261a22c7"
	  "926cb125",
	  "" },
	{ 3, 0,
	  "DHHC-1:03:"
	  "AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW15hZGdqbXBzdnl8f4KFiIuOkZSXmp2go6aprK+"
	  "ytbi7vjuf7H8=:",
	  "DHHC-1:02:AgcMERYbICUqLzQ5PkNITVJXXGFma3B1en+EiY6TmJ19R/Gn:",
	  "1591b9a4c4c7acb61d46e7bf78fd89cc66759ec180bb48a88eb98be9b631c53978e8392ac49c92cd1f172364"
	  "70f51065a9a838b98cb6376c0d8e1b15cedb0663",
	  "f75066dd2f6dc0ef42480b9f6d10490594c98c84198993181b29013bb2d2712cb3812140791dc5bd88606e39"
	  "983d90e6a827e0edfc2cf18f5390daec6f45fac0",
	  "" },
	{ 1, 1, "DHHC-1:01:AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW174Qyfn:",
	  "DHHC-1:01:AgcMERYbICUqLzQ5PkNITVJXXGFma3B1en+EiY6TmJ19R/Gn:",
	  "ee47329583e1b5ddb5da38872986cedc7af608ba2b215bf5ebbd1b1b64b0f51b",
	  "681b44cc4c75160de4fe88c162286438b04658e20fb7313deb28544f70535ca6",
	  "1908b0773912e53f8b481d76c9723f551e22e7edcee9e562bf0cc763a9ce3958" },
	{ 2, 2,
	  "DHHC-1:01:"
	  "AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW15hZGdqbXBzdnl8f4KFiIuOkZSXmp2go6aprK+"
	  "ytbi7vjuf7H8=:",
	  "DHHC-1:03:AgcMERYbICUqLzQ5PkNITVJXXGFma3B1en+EiY6TmJ2ip6yxtrvAxcrP1Nne4+"
	  "jt8vf8AQYLEBUaHyQpLjM4PTTICRM=:",
	  "e20233e98fed9908d909d423d044832bd98e4eb8ff7d376110a3a814c904c12cff0fc9b380c0fdf9755f6588"
	  "02aeb8eb",
	  "3159ae1a5a1f3c1b52cb3c4aa7592867a51873e3ffc494624f4aa5f6b4ff1de244211b93d2a93a1bc6c89fa1"
	  "bfdfffce",
	  "e9f81f609bb558fd1ea247cff217d7681f14a9b132cb0c93203a873ad800ca24" },
	{ 3, 3,
	  "DHHC-1:02:AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW15hZGdqbXBzdnl8f4KFiIuOuCFqpg==:",
	  "DHHC-1:01:AgcMERYbICUqLzQ5PkNITVJXXGFma3B1en+EiY6TmJ2ip6yxtrvAxcrP1Nne4+jt/YOD6g==:",
	  "7f583cbf4912614f780b04754387915c992c7b90431e1e4a879bd7ca0d2313a18c87db3adca35d1291800540"
	  "16b81ebadcb7b3c5305489be17b488bd0ff29516",
	  "e0718708042966aa87e7e4edbdb2b2be3b3b413cb459f3bd7a14326333a63873f24d8ea89955d8fe2227fe38"
	  "acfdf9f1136dfd072e385d7dfa7544cdcd89a7c4",
	  "a53688d3a4d42b2c60ebff8551c83d059a0415eea23c365d1e190ebaff879f1c" },
	{ 1, 4, "DHHC-1:03:AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW174Qyfn:",
	  "DHHC-1:00:AgcMERYbICUqLzQ5PkNITVJXXGFma3B1en+EiY6TmJ2ip6yxtrvAxcrP1Nne4+"
	  "jt8vf8AQYLEBUaHyQpLjM4PTTICRM=:",
	  "b9375ce18271759dbf6ff8915f30dc2acd026df36d5236efd76e7c741e3c1fbb",
	  "bfc72122c60c504d6711da095786821a6d318e2d152d2a8f96f012f35e5023e4",
	  "21ff5bd61a7d69b1817b7ae910dc291ab6c5f4d60aa562b30c987dda2f0f9157" },
	{ 2, 5,
	  "DHHC-1:00:AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW15hZGdqbXBzdnl8f4KFiIuOuCFqpg==:",
	  "DHHC-1:03:AgcMERYbICUqLzQ5PkNITVJXXGFma3B1en+EiY6TmJ19R/Gn:",
	  "de083c2017829d75b142a52a57de09cb9bfa084fee176919890977888f55264fc1cd591c1dac9c256f148d80"
	  "b84a1f6f",
	  "c95216f3f20c566dcb8132f1784f2150d255ec2806d4c226910f0691147891cc83846eb06824babd3792e1b7"
	  "90cb6aa6",
	  "b2f1e92b44e0a45ee7b23938bfd9be352a84ab3878fa0afae756e3c4f6999e9e" },
};

static void check_hex(const uint8_t *at, uint32_t bytes, const char *hex)
{
	char text[2 * 64 + 1];

	assert_int_equal(strlen(hex), 2 * bytes);
	for (uint32_t i = 0; i < bytes; i++)
		snprintf(text + (size_t)2 * i, 3, "%02x", at[i]);
	assert_string_equal(text, hex);
}

static void parse(struct nvme_dhchap_key *key, struct fake_key *fake, const char *text)
{
	char error[200];

	assert_int_equal(nvme_dhchap_key_parse(key, text, error, sizeof(error)), 0);
	fake->hash = key->secret.hash;
	fake->bytes = key->secret.bytes;
	memcpy(fake->at, key->secret.key, sizeof(fake->at));
}

static void test_vectors(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(vectors); i++) {
		const struct vector *v = &vectors[i];
		uint32_t hash_bytes = fake_bytes(v->hash), dh_bytes;
		const uint8_t *reply = c.fake.last_reply;
		uint8_t digest[64];

		case_init(&c, v->hash, v->group, true);
		parse(&c.host, &c.fake.host, v->host);
		parse(&c.controller, &c.fake.controller, v->controller);
		assert_int_equal(case_run(&c), NVME_AUTH_DONE);
		assert_true(c.fake.host_proved && c.fake.asked);
		assert_int_equal(c.fake.step, FAKE_SUCCESS2);
		check_hex(reply + 16, hash_bytes, v->response);
		fake_response(&c.fake, true, digest);
		check_hex(digest, hash_bytes, v->expected);
		dh_bytes = c.fake.last_reply_bytes - 16 - 2 * hash_bytes;
		assert_int_equal(dh_bytes, v->group ? fake_prime(v->group)->size : 0);
		if (dh_bytes == 0)
			continue;
		gnutls_hash_fast(GNUTLS_DIG_SHA256, reply + 16 + (size_t)2 * hash_bytes, dh_bytes,
				 digest);
		check_hex(digest, 32, v->number);
	}
}

/* Each hash and group, asked or not: six of them, as a controller may choose any. */
static void test_all(void **state)
{
	(void)state;
	for (uint8_t hash = 1; hash <= 3; hash++)
		for (uint8_t group = 0; group <= 5; group++)
			for (unsigned ask = 0; ask < 2; ask++) {
				case_init(&c, hash, group, ask);
				assert_int_equal(case_run(&c), NVME_AUTH_DONE);
				assert_true(c.fake.host_proved);
				assert_int_equal(c.auth.hash, hash);
				assert_int_equal(c.auth.group, group);
				assert_int_equal(c.commands_nr, 4 + ask);
				assert_int_equal(c.fake.asked, ask);
			}
}

/* A controller that always sends 4096 bytes. */
static void test_padded(void **state)
{
	struct nvme_cqe cqe = { 0 };

	(void)state;
	case_init(&c, 1, 1, true);
	case_start(&c);
	while (c.auth.step == NVME_AUTH_COMMAND)
		if (c.auth.out_bytes) {
			case_answer(&c);
		} else {
			fake_auth_receive(&c.fake, c.auth.sqe, c.data);
			nvme_auth_completed(&c.auth, &cqe, 4096);
		}
	assert_int_equal(c.auth.step, NVME_AUTH_DONE);
}

/* A controller whose number begins with zeroes, and one that leaves them away: the same. */
static void test_zeroes(void **state)
{
	struct nvme_cqe cqe = { 0 };
	uint8_t response[2][32];

	(void)state;
	for (unsigned zeroes = 0; zeroes < 2; zeroes++) {
		case_init(&c, 1, 1, false);
		case_start(&c);
		case_answer(&c);
		fake_auth_receive(&c.fake, c.auth.sqe, c.data);
		nvme_put16(c.data + 10, (uint16_t)(255 + zeroes));
		memset(c.data + 48, 0x77, 256);
		if (zeroes)
			c.data[48] = 0;
		nvme_auth_completed(&c.auth, &cqe, 48 + 255 + zeroes);
		assert_int_equal(c.auth.out_bytes, 16 + 64 + 256);
		memcpy(response[zeroes], c.data + 16, 32);
	}
	assert_memory_equal(response[0], response[1], 32);
}

/* What the messages look like: Base 8.13.5. */
static void test_bytes(void **state)
{
	static const uint8_t negotiate[72] = { 0, 0, 0, 0, 0xef, 0xbe,	   0, 1, 1, 0,
					       3, 6, 1, 2, 3,	 [43] = 1, 2, 3, 4, 5 };
	static const uint8_t reply[16] = { 1, 2, 0, 0, 0xef, 0xbe, 32, 0, 1, 0, 0, 0, 4, 3, 2, 1 };
	static const uint8_t plain[16] = { 1, 2, 0, 0, 0xef, 0xbe, 32 };
	static const uint8_t success2[16] = { 1, 4, 0, 0, 0xef, 0xbe };
	uint8_t sent[3][72];

	(void)state;
	case_init(&c, 1, 0, true);
	case_start(&c);
	for (unsigned i = 0; i < 3; i++) {
		memcpy(sent[i], c.data, 72);
		case_answer(&c);
		if (c.auth.step == NVME_AUTH_COMMAND && c.auth.in_bytes)
			case_answer(&c);
	}
	assert_int_equal(c.auth.step, NVME_AUTH_DONE);
	assert_memory_equal(sent[0], negotiate, 72);
	assert_memory_equal(sent[1], reply, 16);
	for (unsigned i = 0; i < 24; i++)
		assert_int_equal(sent[1][48 + i], 0x40 + i);
	assert_memory_equal(sent[2], success2, 16);
	/* A controller that is not asked gets no challenge: zeroes. */
	case_init(&c, 1, 0, false);
	case_run(&c);
	assert_memory_equal(c.fake.last_reply, plain, 16);
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(c.fake.last_reply[48 + i], 0);
}

/* 0 for S2 would mean that the controller need not answer. */
static void test_sequence(void **state)
{
	(void)state;
	case_init(&c, 1, 0, true);
	c.random.sequence = 0;
	assert_int_equal(case_run(&c), NVME_AUTH_DONE);
	assert_int_equal(c.fake.s2, 1);
}

static void check_wiped(const struct nvme_auth *a)
{
	static const struct nvme_auth_random none;

	assert_memory_equal(&a->random, &none, sizeof(none));
	for (unsigned i = 0; i < sizeof(a->expected); i++)
		assert_int_equal(a->expected[i], 0);
}

/* No secret outlives its use. */
static void test_wiped(void **state)
{
	static const uint8_t none[64];

	(void)state;
	case_init(&c, 2, 1, true);
	case_start(&c);
	for (unsigned i = 0; i < 2; i++)
		case_answer(&c);
	assert_memory_equal(c.auth.random.private, none, 64);
	while (c.auth.step == NVME_AUTH_COMMAND)
		case_answer(&c);
	check_wiped(&c.auth);
	case_init(&c, 2, 0, true);
	case_start(&c);
	case_answer(&c);
	assert_false(nvme_auth_gone(&c.auth, -ECONNRESET));
	assert_int_equal(c.auth.step, NVME_AUTH_FAILED);
	check_wiped(&c.auth);
}

static void test_draw(void **state)
{
	struct nvme_auth_random a, b;

	(void)state;
	assert_int_equal(nvme_auth_draw(&a), 0);
	assert_int_equal(nvme_auth_draw(&b), 0);
	assert_memory_not_equal(a.private, b.private, sizeof(a.private));
	assert_memory_not_equal(a.challenge, b.challenge, sizeof(a.challenge));
}

/* The ends of a group's numbers: 0, 1, p - 1, p; 2 and p - 2 are the first and last that do. */
static void test_edges(void **state)
{
	(void)state;
	for (uint8_t group = 1; group <= 5; group++) {
		const gnutls_datum_t *prime = fake_prime(group);
		uint8_t private[64] = { 0 }, n[1024] = { 0 }, shared[1024];
		size_t last = prime->size - 1;

		private[63] = 3;
		assert_int_equal(nvme_dh_shared(group, private, n, prime->size, shared), -EPROTO);
		assert_int_equal(nvme_dh_shared(group, private, n, 0, shared), -EPROTO);
		n[last] = 1;
		assert_int_equal(nvme_dh_shared(group, private, n, prime->size, shared), -EPROTO);
		n[last] = 2;
		assert_int_equal(nvme_dh_shared(group, private, n, prime->size, shared), 0);
		assert_int_equal(shared[last], 8);
		memcpy(n, prime->data, prime->size);
		assert_int_equal(nvme_dh_shared(group, private, n, prime->size, shared), -EPROTO);
		n[last]--;
		assert_int_equal(nvme_dh_shared(group, private, n, prime->size, shared), -EPROTO);
		n[last]--;
		assert_int_equal(nvme_dh_shared(group, private, n, prime->size, shared), 0);
		assert_int_equal(shared[last], 0xff - 8); /* (-2) ^ 3 */
		assert_int_equal(nvme_dh_shared(group, private, n, prime->size + 1, shared),
				 -EPROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors), cmocka_unit_test(test_all),
		cmocka_unit_test(test_padded),	cmocka_unit_test(test_zeroes),
		cmocka_unit_test(test_bytes),	cmocka_unit_test(test_sequence),
		cmocka_unit_test(test_wiped),	cmocka_unit_test(test_draw),
		cmocka_unit_test(test_edges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
