/*
 * Any answers to the commands of an authentication. The first byte says which hash and group the
 * controller chooses and what keys the two have, the second whether the connection ends; then each
 * answer is flags, a status, a length, and what differs in the message, which is otherwise that of
 * a good controller: so deep states are reached. What must hold: it ends within five commands;
 * messages of the host are right (nvme_fake_auth.h); DONE only if the controller proved what it was
 * asked for; words are words; no secret is left.
 */
#include <errno.h>

#include "answers.h"
#include "fuzz.h"
#include "test/rig/nvme_auth_case.h"

const char *const fuzz_words[] = {
	"\x01", "\x02", "\x03", "\x05", "\x10", "\x20", "\x30", "\x40", "\xf1", "\xff", NULL,
};

/* The controller means what it sent: the host's reply is judged by it. */
static void adopt_challenge(struct fake_auth *fake, uint8_t *at)
{
	/* A larger group than was chosen takes too long. */
	if (at[9] > 1 && at[9] <= 5 && at[9] != fake->group)
		at[9] = 6;
	if (at[8] < 1 || at[8] > 3 || at[9] > 5)
		return;
	fake->hash = at[8];
	fake->group = at[9];
	fake->s1 = nvme_get32(at + 12);
	memcpy(fake->c1, at + 16, fake_bytes(fake->hash));
}

/* Whether success1, as it was delivered, has the controller's proof. */
static bool has_proof(const struct fake_auth *fake, const uint8_t *at)
{
	uint8_t proof[64];

	if (!fake->asked || fake->controller.bytes == 0)
		return false;
	fake_response(fake, true, proof);
	return (at[8] & 1) && memcmp(at + 16, proof, fake_bytes(fake->hash)) == 0;
}

/* Returns whether the controller has proved itself by this answer. */
static bool answer(struct auth_case *c, struct answers *a)
{
	struct nvme_auth *auth = &c->auth;
	uint8_t change[4] = { 0 };
	struct nvme_cqe cqe = { 0 };
	uint32_t bytes = 0;
	bool proof = false;

	if (auth->out_bytes) {
		fake_auth_send(&c->fake, auth->sqe, c->data, auth->out_bytes);
	} else {
		bytes = fake_auth_receive(&c->fake, auth->sqe, c->data);
		answers_bend(a, c->data, bytes);
		if (c->fake.step == FAKE_NEGOTIATE)
			adopt_challenge(&c->fake, c->data);
		else
			proof = has_proof(&c->fake, c->data);
	}
	answers_take(a, change, sizeof(change));
	if (change[0] & 1)
		cqe.status = (uint16_t)(change[1] | change[2] << 8) & 0x7fff;
	if (change[0] & 2)
		bytes = MIN(bytes, (uint32_t)change[3]);
	if (change[0] & 4)
		bytes = auth->in_bytes;
	nvme_auth_completed(auth, &cqe, bytes);
	return proof;
}

static void check_end(const struct auth_case *c, bool proved)
{
	static const struct nvme_auth_random none;
	const struct nvme_auth *a = &c->auth;

	ASSERT(memcmp(&a->random, &none, sizeof(none)) == 0);
	if (a->step == NVME_AUTH_DONE) {
		ASSERT(a->err == 0 && a->hash >= 1 && a->hash <= 3 && a->group <= 5);
		ASSERT(proved || c->controller.secret.bytes == 0);
		return;
	}
	ASSERT(a->err < 0 && a->error[0]);
	fuzz_expect_printable(a->error);
}

/* Groups take long: few inputs have one, and very few a large one. */
static uint8_t choose_group(uint8_t how)
{
	if (how < 246)
		return 0;
	return how < 252 ? 1 : (uint8_t)(how - 250);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct auth_case c;
	struct answers a = { data + 2, data + bytes };
	bool proved = false;

	if (bytes < 2)
		return 0;
	case_init(&c, (uint8_t)(data[0] % 3 + 1), choose_group(data[0]), data[1] & 1);
	if (data[1] & 2)
		c.host.secret.key[0] ^= 1;
	if (data[1] & 4)
		c.fake.controller.at[0] ^= 1;
	if (data[1] & 8)
		c.fake.fail_why = data[1] >> 4;
	case_start(&c);
	for (unsigned nr = 0; c.auth.step == NVME_AUTH_COMMAND; nr++) {
		ASSERT(nr < 6);
		if (a.at == a.end && nr > 0 && (data[1] & 128)) {
			nvme_auth_gone(&c.auth, -ECONNRESET);
			return 0;
		}
		proved |= answer(&c, &a);
	}
	check_end(&c, proved);
	return 0;
}
