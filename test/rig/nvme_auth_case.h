/* nvme_auth.h against a fake controller: one run, from keys to DONE or FAILED. */
#ifndef TEST_RIG_NVME_AUTH_CASE_H
#define TEST_RIG_NVME_AUTH_CASE_H

#include <stdio.h>

#include "backends/nvme/keys/nvme_dhchap_key.h"
#include "backends/nvme/protocol/nvme_auth.h"
#include "test/rig/nvme_fake_auth.h"

struct auth_case {
	struct fake_auth fake;
	struct nvme_auth auth;
	struct nvme_dhchap_key host, controller; /* controller.secret.bytes 0: it is not asked */
	struct nvme_auth_random random;
	uint8_t data[NVME_AUTH_DATA_BYTES];
	/* The command number fail_at (from 1) has this status. */
	unsigned fail_at, commands_nr;
	uint16_t fail_status;
};

static inline void case_key(struct nvme_dhchap_key *key, const struct fake_key *fake)
{
	key->secret.hash = fake->hash;
	key->secret.bytes = fake->bytes;
	memcpy(key->secret.key, fake->at, sizeof(key->secret.key));
}

/* Both sides have the same keys. */
static inline void case_init(struct auth_case *c, uint8_t hash, uint8_t group, bool ask)
{
	memset(c, 0, sizeof(*c));
	fake_auth_init(&c->fake, hash, group);
	fake_key_init(&c->fake.host, 1, 32, 3, 1);
	case_key(&c->host, &c->fake.host);
	fake_key_init(&c->fake.controller, 2, 48, 5, 2);
	if (ask)
		case_key(&c->controller, &c->fake.controller);
	for (unsigned i = 0; i < 64; i++) {
		c->random.private[i] = (uint8_t)(i + 1);
		c->random.challenge[i] = (uint8_t)(0x40 + i);
	}
	c->random.sequence = 0x01020304;
	c->random.transaction = 0xbeef;
}

static inline void case_start(struct auth_case *c)
{
	struct nvme_auth_config config = {
		.host_key = &c->host,
		.controller_key = c->controller.secret.bytes ? &c->controller : NULL,
		.host_nqn = FAKE_HOST,
		.subsystem_nqn = FAKE_SUBSYSTEM,
	};

	nvme_auth_init(&c->auth, &config, &c->random, c->data);
}

/* One command and its answer; as few bytes as the controller has to say. */
static inline void case_answer(struct auth_case *c)
{
	struct nvme_auth *a = &c->auth;
	struct nvme_cqe cqe = { 0 };
	uint32_t bytes = 0;

	ASSERT(a->out_bytes <= sizeof(c->data) && !a->out_bytes != !a->in_bytes);
	if (a->out_bytes)
		fake_auth_send(&c->fake, a->sqe, c->data, a->out_bytes);
	else
		bytes = fake_auth_receive(&c->fake, a->sqe, c->data);
	if (++c->commands_nr == c->fail_at)
		cqe.status = c->fail_status;
	nvme_auth_completed(a, &cqe, bytes);
}

static inline enum nvme_auth_step case_run(struct auth_case *c)
{
	case_start(c);
	while (c->auth.step == NVME_AUTH_COMMAND) {
		ASSERT(c->commands_nr < 6);
		case_answer(c);
	}
	return c->auth.step;
}

#endif
