/*
 * The order of DH-HMAC-CHAP's messages, and what is wrong with an answer. Owns struct nvme_auth;
 * whichever thread the connection belongs to.
 *
 * Happy path: negotiate -> challenge -> reply -> success1, and success2 if the controller was asked
 * for its proof. Failure modes: FAILED with words; a message that is refused is answered by
 * failure2 first.
 */
#include "backends/nvme/protocol/nvme_auth.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>

#include "backends/nvme/keys/nvme_dhchap_key.h"
#include "backends/nvme/protocol/nvme_command.h"
#include "backends/nvme/protocol/nvme_status.h"
#include "base/assert.h"
#include "base/util.h"

_Static_assert(sizeof(((struct nvme_auth_random *)NULL)->private) == NVME_DH_PRIVATE_BYTES, "");
_Static_assert(NVME_DHCHAP_REPLY_BYTES_MAX <= NVME_AUTH_DATA_BYTES, "");
/* A fabrics command's data are always in its capsule, of an I/O queue too. */
_Static_assert(NVME_DHCHAP_REPLY_BYTES_MAX <= NVME_ADMIN_IN_CAPSULE_BYTES, "");

enum auth_state { NEGOTIATE, CHALLENGE, REPLY, SUCCESS1, SUCCESS2, FAILURE2, OVER };

static const char *const auth_names[] = {
	[NEGOTIATE] = "Authentication Send (negotiate)",
	[CHALLENGE] = "Authentication Receive (challenge)",
	[REPLY] = "Authentication Send (reply)",
	[SUCCESS1] = "Authentication Receive (success1)",
	[SUCCESS2] = "Authentication Send (success2)",
};

int nvme_auth_draw(struct nvme_auth_random *ret_random)
{
	/* So few bytes come whole. */
	return getrandom(ret_random, sizeof(*ret_random), 0) == sizeof(*ret_random) ? 0 : -EIO;
}

static void auth_wipe(struct nvme_auth *a)
{
	explicit_bzero(&a->random, sizeof(a->random));
	explicit_bzero(a->expected, sizeof(a->expected));
}

static void auth_end(struct nvme_auth *a, enum nvme_auth_step step)
{
	auth_wipe(a);
	a->state = OVER;
	a->step = step;
}

static void auth_send(struct nvme_auth *a, enum auth_state state, uint32_t bytes)
{
	a->state = state;
	a->out_bytes = bytes;
	a->in_bytes = 0;
	a->step = NVME_AUTH_COMMAND;
	nvme_command_auth_send(a->sqe, bytes);
}

static void auth_receive(struct nvme_auth *a, enum auth_state state)
{
	a->state = state;
	a->out_bytes = 0;
	a->in_bytes = NVME_AUTH_DATA_BYTES;
	a->step = NVME_AUTH_COMMAND;
	nvme_command_auth_receive(a->sqe, NVME_AUTH_DATA_BYTES);
}

__attribute__((format(printf, 3, 4))) static void auth_fail(struct nvme_auth *a, int err,
							    const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(a->error, sizeof(a->error), fmt, args);
	va_end(args);
	a->err = err;
	auth_end(a, NVME_AUTH_FAILED);
}

/* As auth_fail, and the controller is told first. */
__attribute__((format(printf, 4, 5))) static void
auth_refuse(struct nvme_auth *a, enum nvme_dhchap_why why, int err, const char *fmt, ...)
{
	uint16_t transaction = a->random.transaction;
	va_list args;

	va_start(args, fmt);
	vsnprintf(a->error, sizeof(a->error), fmt, args);
	va_end(args);
	a->err = err;
	auth_wipe(a);
	nvme_dhchap_failure2(a->data, transaction, why);
	auth_send(a, FAILURE2, NVME_DHCHAP_FAILURE_BYTES);
}

/* ---- failure1 ---- */

static void take_failure1(struct nvme_auth *a)
{
	uint8_t why = nvme_dhchap_failure1(a->data);

	if (why != NVME_DHCHAP_FAILED || a->state != SUCCESS1)
		return auth_fail(a, why == NVME_DHCHAP_FAILED ? -EACCES : -EOPNOTSUPP,
				 "the target ends the authentication with: %s (failure %u)",
				 nvme_dhchap_why_words(why), why);
	auth_fail(a, -EACCES,
		  "the target does not accept the key of this host, %s: give it the same key at "
		  "the target (dhchap_key)%s",
		  a->config.host_nqn,
		  a->config.controller_key ? "; or the target has no key of its own "
					     "(dhchap_ctrl_key), for which it was asked"
					   : "");
}

/* True: the message is the one that is wanted. */
static bool auth_is_message(struct nvme_auth *a, uint32_t in_bytes, enum nvme_dhchap_message want)
{
	enum nvme_dhchap_why why;
	int kind = nvme_dhchap_kind(a->data, in_bytes, want, a->random.transaction, &why);

	if (kind == (int)want)
		return true;
	if (kind == NVME_DHCHAP_FAILURE1)
		take_failure1(a);
	else
		auth_refuse(a, why, kind,
			    "the target answers to %s with %s of %u bytes (type %u, message %u)",
			    auth_names[a->state],
			    why == NVME_DHCHAP_BAD_PAYLOAD ? "a message that is cut off,"
							   : "another message,",
			    in_bytes, in_bytes > 0 ? a->data[0] : 0, in_bytes > 1 ? a->data[1] : 0);
	return false;
}

/* ---- challenge, reply ---- */

/* What the two sides have calculated together; bytes 0: nothing. */
struct auth_session {
	uint32_t bytes;
	uint8_t public[NVME_DH_BYTES_MAX], shared[NVME_DH_BYTES_MAX];
};

/* The response of the host to the controller's challenge, or that expected of the controller. */
static int auth_prove(struct nvme_auth *a, const struct auth_session *session,
		      const uint8_t *challenge, uint32_t sequence, bool of_controller,
		      uint8_t *ret_response)
{
	const struct nvme_auth_config *c = &a->config;
	uint8_t key[NVME_HASH_BYTES_MAX];
	struct nvme_dhchap_proof proof = {
		.hash = a->hash,
		.transaction = a->random.transaction,
		.sequence = sequence,
		.key = key,
		.challenge = challenge,
		.session = { session->shared, session->bytes },
		.of_controller = of_controller,
		.host_nqn = c->host_nqn,
		.subsystem_nqn = c->subsystem_nqn,
	};
	int ret = nvme_dhchap_key_transform(of_controller ? c->controller_key : c->host_key,
					    of_controller ? c->subsystem_nqn : c->host_nqn, key);

	if (ret >= 0) {
		proof.key_bytes = (uint32_t)ret;
		ret = nvme_dhchap_response(&proof, ret_response);
	}
	explicit_bzero(key, sizeof(key));
	return ret;
}

static void auth_reply(struct nvme_auth *a, const struct auth_session *session,
		       const uint8_t *response)
{
	bool ask = a->config.controller_key;
	struct nvme_dhchap_reply reply = {
		.transaction = a->random.transaction,
		.hash_bytes = nvme_hash_bytes(a->hash),
		.response = response,
		.challenge = ask ? a->random.challenge : NULL,
		.sequence = ask ? a->random.sequence : 0,
		.dh = { session->public, session->bytes },
	};

	auth_send(a, REPLY, nvme_dhchap_reply(a->data, &reply));
}

static int auth_agree(const struct nvme_auth *a, const struct nvme_dhchap_challenge *c,
		      struct auth_session *ret_session)
{
	ret_session->bytes = nvme_dh_bytes(c->group);
	if (ret_session->bytes == 0)
		return 0;
	nvme_dh_public(c->group, a->random.private, ret_session->public);
	return nvme_dh_shared(c->group, a->random.private, c->dh.at, c->dh.bytes,
			      ret_session->shared);
}

static void auth_answer(struct nvme_auth *a, const struct nvme_dhchap_challenge *c,
			struct auth_session *session)
{
	uint8_t response[NVME_HASH_BYTES_MAX];
	int err = auth_agree(a, c, session);

	if (err < 0)
		return auth_refuse(a, NVME_DHCHAP_BAD_PAYLOAD, err,
				   "the target's Diffie-Hellman number cannot be one of %s",
				   nvme_dhchap_group_name(c->group));
	err = auth_prove(a, session, c->challenge.at, c->sequence, false, response);
	if (err == 0 && a->config.controller_key)
		err = auth_prove(a, session, a->random.challenge, a->random.sequence, true,
				 a->expected);
	if (err < 0)
		return auth_refuse(a, NVME_DHCHAP_FAILED, err,
				   "GnuTLS does not calculate: is it in a FIPS mode that failed?");
	auth_reply(a, session, response);
}

static void take_challenge(struct nvme_auth *a, uint32_t in_bytes)
{
	struct nvme_dhchap_challenge c;
	struct auth_session session;
	enum nvme_dhchap_why why;
	int err;

	if (!auth_is_message(a, in_bytes, NVME_DHCHAP_CHALLENGE))
		return;
	err = nvme_dhchap_challenge(a->data, in_bytes, &c, &why);
	if (err == -EOPNOTSUPP)
		return auth_refuse(a, why, err,
				   "the target's challenge is with hash %u of %u bytes and group "
				   "%u, which are not among those offered",
				   a->data[8], a->data[6], a->data[9]);
	if (err < 0)
		return auth_refuse(a, why, err,
				   "the target's challenge of %u bytes is malformed: with %s and "
				   "%s, it says that its number has %u bytes",
				   in_bytes, nvme_dhchap_hash_name(a->data[8]),
				   nvme_dhchap_group_name(a->data[9]), nvme_get16(a->data + 10));
	a->hash = c.hash;
	a->group = c.group;
	auth_answer(a, &c, &session);
	explicit_bzero(&session, sizeof(session));
	explicit_bzero(a->random.private, sizeof(a->random.private));
}

/* ---- success1 ---- */

static void take_success1(struct nvme_auth *a, uint32_t in_bytes)
{
	uint32_t hash_bytes = nvme_hash_bytes(a->hash);
	const uint8_t *response;
	enum nvme_dhchap_why why;
	int err;

	if (!auth_is_message(a, in_bytes, NVME_DHCHAP_SUCCESS1))
		return;
	if (!a->config.controller_key)
		return auth_end(a, NVME_AUTH_DONE);
	err = nvme_dhchap_success1(a->data, in_bytes, hash_bytes, &response, &why);
	if (err < 0)
		return auth_refuse(a, why, err,
				   "the target's response of %u bytes, in %u of a message, is "
				   "malformed: %s has %u",
				   a->data[6], in_bytes, nvme_dhchap_hash_name(a->hash),
				   hash_bytes);
	if (!response)
		return auth_refuse(a, NVME_DHCHAP_FAILED, -EACCES,
				   "the target does not show that it has a key of its own: set "
				   "dhchap_ctrl_key at the target");
	if (!nvme_secret_equal(response, a->expected, hash_bytes))
		return auth_refuse(a, NVME_DHCHAP_FAILED, -EACCES,
				   "the target does not have the key that is expected of it "
				   "(dhchap_ctrl_key): the keys differ, or it is another target");
	nvme_dhchap_success2(a->data, a->random.transaction);
	auth_send(a, SUCCESS2, NVME_DHCHAP_HEAD_BYTES);
}

/* ---- all of it ---- */

static void auth_take(struct nvme_auth *a, uint32_t in_bytes)
{
	switch ((enum auth_state)a->state) {
	case NEGOTIATE:
		return auth_receive(a, CHALLENGE);
	case CHALLENGE:
		return take_challenge(a, in_bytes);
	case REPLY:
		return auth_receive(a, SUCCESS1);
	case SUCCESS1:
		return take_success1(a, in_bytes);
	case SUCCESS2:
		return auth_end(a, NVME_AUTH_DONE);
	default:
		ASSERT(!"a completion of nothing");
	}
}

static void auth_fail_status(struct nvme_auth *a, uint16_t status)
{
	struct nvme_verdict v = nvme_status_verdict(status);
	char words[120];

	auth_fail(a, v.err, "the target answers to %s: %s", auth_names[a->state],
		  nvme_status_format(status, words, sizeof(words)));
	a->may_retry = v.retry != NVME_RETRY_NEVER;
}

enum nvme_auth_step nvme_auth_completed(struct nvme_auth *a, const struct nvme_cqe *cqe,
					uint32_t in_bytes)
{
	ASSERT(a->step == NVME_AUTH_COMMAND && in_bytes <= a->in_bytes);
	if (a->state == FAILURE2)
		auth_end(a, NVME_AUTH_FAILED);
	else if (cqe->status & NVME_STATUS_CODE_MASK)
		auth_fail_status(a, cqe->status);
	else
		auth_take(a, in_bytes);
	return a->step;
}

bool nvme_auth_gone(struct nvme_auth *a, int err)
{
	bool told = a->state == FAILURE2;

	if (a->step != NVME_AUTH_COMMAND)
		return told;
	if (err != -ETIMEDOUT && (a->state == REPLY || a->state == SUCCESS1)) {
		auth_fail(a, err,
			  "the target closed the connection after the host's response: the key of "
			  "dhchap_key_file and the target's for this host (dhchap_key) differ, or "
			  "its log says why");
		a->may_retry = true;
		return true;
	}
	auth_end(a, NVME_AUTH_FAILED);
	return told;
}

void nvme_auth_init(struct nvme_auth *a, const struct nvme_auth_config *config,
		    const struct nvme_auth_random *random, uint8_t *data)
{
	ASSERT(config->host_key);
	memset(a, 0, sizeof(*a));
	a->config = *config;
	a->random = *random;
	/* 0 would say that the controller need not prove itself: Base 8.13.5, "reply". */
	if (a->random.sequence == 0)
		a->random.sequence = 1;
	a->data = data;
	nvme_dhchap_negotiate(data, a->random.transaction);
	auth_send(a, NEGOTIATE, NVME_DHCHAP_NEGOTIATE_BYTES);
}
