/*
 * Writes and reads the messages of DH-HMAC-CHAP. Owns nothing; any thread. Failure modes: -errno,
 * and the reason as the controller is told it.
 */
#include "backends/nvme/protocol/nvme_dhchap.h"

#include <errno.h>

#include "backends/nvme/keys/nvme_crypto.h"
#include "backends/nvme/protocol/nvme_proto.h"
#include "base/assert.h"
#include "base/util.h"

_Static_assert(NVME_DHCHAP_HASH_BYTES_MAX == NVME_HASH_BYTES_MAX, "of a hash");
_Static_assert(NVME_DHCHAP_DH_BYTES_MAX == NVME_DH_BYTES_MAX, "of a DH number");

/* AUTH_TYPE, AUTH_ID: Linux NVME_AUTH_*_MESSAGES, NVME_AUTH_DHCHAP_MESSAGE_* */
#define TYPE_COMMON 0x00u
#define TYPE_DHCHAP 0x01u
#define ID_NEGOTIATE 0x00u
#define ID_CHALLENGE 0x01u
#define ID_REPLY 0x02u
#define ID_SUCCESS1 0x03u
#define ID_SUCCESS2 0x04u
#define ID_FAILURE2 0xf0u
#define ID_FAILURE1 0xf1u

#define PROTOCOL_DHCHAP 0x01u
#define REASON_FAILED 0x01u

/* Bytes of a message. */
#define AT_TRANSACTION 4
#define AT_HASH_BYTES 6 /* challenge, reply, success1 */
#define AT_SEQUENCE 12	/* challenge, reply */
#define AT_VALUES NVME_DHCHAP_HEAD_BYTES

static void message_start(uint8_t *at, uint32_t bytes, uint8_t type, uint8_t id,
			  uint16_t transaction)
{
	memset(at, 0, bytes);
	at[0] = type;
	at[1] = id;
	nvme_put16(at + AT_TRANSACTION, transaction);
}

void nvme_dhchap_negotiate(uint8_t *at, uint16_t transaction)
{
	/* The protocol's descriptor: hashes in the first half of its list, groups in the second. */
	uint8_t *descriptor = at + 8, *hashes = descriptor + 4, *groups = hashes + 30;

	message_start(at, NVME_DHCHAP_NEGOTIATE_BYTES, TYPE_COMMON, ID_NEGOTIATE, transaction);
	at[6] = 0; /* SC_C: no secure channel */
	at[7] = 1; /* protocols */
	descriptor[0] = PROTOCOL_DHCHAP;
	descriptor[2] = NVME_HASH_SHA512;
	descriptor[3] = NVME_DH_GROUPS_NR;
	for (unsigned hash = NVME_HASH_SHA256; hash <= NVME_HASH_SHA512; hash++)
		*hashes++ = (uint8_t)hash;
	for (unsigned group = 0; group < NVME_DH_GROUPS_NR; group++)
		*groups++ = (uint8_t)group;
}

uint32_t nvme_dhchap_reply(uint8_t *at, const struct nvme_dhchap_reply *reply)
{
	uint32_t hash_bytes = reply->hash_bytes;
	uint32_t bytes = AT_VALUES + 2 * hash_bytes + reply->dh.bytes;

	ASSERT(bytes <= NVME_DHCHAP_REPLY_BYTES_MAX);
	message_start(at, bytes, TYPE_DHCHAP, ID_REPLY, reply->transaction);
	at[AT_HASH_BYTES] = (uint8_t)hash_bytes;
	nvme_put16(at + 10, (uint16_t)reply->dh.bytes);
	memcpy(at + AT_VALUES, reply->response, hash_bytes);
	if (reply->challenge) {
		at[8] = 1; /* CVALID */
		nvme_put32(at + AT_SEQUENCE, reply->sequence);
		memcpy(at + AT_VALUES + hash_bytes, reply->challenge, hash_bytes);
	}
	if (reply->dh.bytes > 0)
		memcpy(at + AT_VALUES + 2 * (size_t)hash_bytes, reply->dh.at, reply->dh.bytes);
	return bytes;
}

void nvme_dhchap_success2(uint8_t *at, uint16_t transaction)
{
	message_start(at, NVME_DHCHAP_HEAD_BYTES, TYPE_DHCHAP, ID_SUCCESS2, transaction);
}

void nvme_dhchap_failure2(uint8_t *at, uint16_t transaction, enum nvme_dhchap_why why)
{
	message_start(at, NVME_DHCHAP_FAILURE_BYTES, TYPE_COMMON, ID_FAILURE2, transaction);
	at[6] = REASON_FAILED;
	at[7] = (uint8_t)why;
}

/* ---- what a controller sends ---- */

static int dhchap_bad(enum nvme_dhchap_why *ret_why, enum nvme_dhchap_why why, int err)
{
	*ret_why = why;
	return err;
}

int nvme_dhchap_kind(const uint8_t *at, uint32_t bytes, enum nvme_dhchap_message want,
		     uint16_t transaction, enum nvme_dhchap_why *ret_why)
{
	uint8_t id = want == NVME_DHCHAP_CHALLENGE ? ID_CHALLENGE : ID_SUCCESS1;

	if (bytes < NVME_DHCHAP_FAILURE_BYTES)
		return dhchap_bad(ret_why, NVME_DHCHAP_BAD_PAYLOAD, -EPROTO);
	/* Linux' target does not know the transaction of a negotiate that it could not read. */
	if (at[0] == TYPE_COMMON && at[1] == ID_FAILURE1)
		return NVME_DHCHAP_FAILURE1;
	if (at[0] != TYPE_DHCHAP || at[1] != id || nvme_get16(at + AT_TRANSACTION) != transaction)
		return dhchap_bad(ret_why, NVME_DHCHAP_BAD_MESSAGE, -EPROTO);
	if (bytes < NVME_DHCHAP_HEAD_BYTES)
		return dhchap_bad(ret_why, NVME_DHCHAP_BAD_PAYLOAD, -EPROTO);
	return want;
}

int nvme_dhchap_challenge(const uint8_t *at, uint32_t bytes, struct nvme_dhchap_challenge *ret,
			  enum nvme_dhchap_why *ret_why)
{
	uint8_t hash = at[8], group = at[9];
	uint32_t hash_bytes = nvme_hash_bytes(hash), dh_bytes = nvme_get16(at + 10);

	if (hash_bytes == 0 || at[AT_HASH_BYTES] != hash_bytes)
		return dhchap_bad(ret_why, NVME_DHCHAP_NO_HASH, -EOPNOTSUPP);
	if (group >= NVME_DH_GROUPS_NR)
		return dhchap_bad(ret_why, NVME_DHCHAP_NO_GROUP, -EOPNOTSUPP);
	/* A number may come without its leading zeroes. */
	if (dh_bytes > nvme_dh_bytes(group) || (group != NVME_DH_NULL && dh_bytes == 0) ||
	    bytes < AT_VALUES + hash_bytes + dh_bytes)
		return dhchap_bad(ret_why, NVME_DHCHAP_BAD_PAYLOAD, -EPROTO);
	*ret = (struct nvme_dhchap_challenge){
		.hash = hash,
		.group = group,
		.sequence = nvme_get32(at + AT_SEQUENCE),
		.challenge = { at + AT_VALUES, hash_bytes },
		.dh = { at + AT_VALUES + hash_bytes, dh_bytes },
	};
	return 0;
}

int nvme_dhchap_success1(const uint8_t *at, uint32_t bytes, uint32_t hash_bytes,
			 const uint8_t **ret_response, enum nvme_dhchap_why *ret_why)
{
	*ret_response = NULL;
	if (!(at[8] & 1)) /* RVALID */
		return 0;
	if (at[AT_HASH_BYTES] != hash_bytes || bytes < AT_VALUES + hash_bytes)
		return dhchap_bad(ret_why, NVME_DHCHAP_BAD_PAYLOAD, -EPROTO);
	*ret_response = at + AT_VALUES;
	return 0;
}

uint8_t nvme_dhchap_failure1(const uint8_t *at)
{
	return at[7];
}

const char *nvme_dhchap_why_words(uint8_t why)
{
	static const char *const words[] = {
		[NVME_DHCHAP_FAILED] = "authentication failed",
		[NVME_DHCHAP_NO_PROTOCOL] = "it does not do DH-HMAC-CHAP",
		[NVME_DHCHAP_CONCATENATION] = "it wants a secure channel to follow",
		[NVME_DHCHAP_NO_HASH] = "it takes none of SHA-256, SHA-384 and SHA-512",
		[NVME_DHCHAP_NO_GROUP] = "it takes none of the groups ffdhe2048 to ffdhe8192",
		[NVME_DHCHAP_BAD_PAYLOAD] = "a message is malformed",
		[NVME_DHCHAP_BAD_MESSAGE] = "a message is not the one that it waits for",
	};

	return why < ARRAY_SIZE(words) && words[why] ? words[why] : "an unknown reason";
}

const char *nvme_dhchap_hash_name(uint8_t hash)
{
	static const char *const names[] = { "no hash", "SHA-256", "SHA-384", "SHA-512" };

	return hash < ARRAY_SIZE(names) ? names[hash] : "an unknown hash";
}

const char *nvme_dhchap_group_name(uint8_t group)
{
	static const char *const names[] = { "no group",  "ffdhe2048", "ffdhe3072",
					     "ffdhe4096", "ffdhe6144", "ffdhe8192" };

	return group < ARRAY_SIZE(names) ? names[group] : "an unknown group";
}

/* ---- responses ---- */

/*
 * The challenge, tied to the DH exchange: the HMAC of it with the hash of the shared number (Linux
 * nvme_auth_augmented_challenge).
 */
static int dhchap_augment(const struct nvme_dhchap_proof *p, uint8_t *ret_challenge)
{
	uint32_t hash_bytes = nvme_hash_bytes(p->hash);
	uint8_t key[NVME_HASH_BYTES_MAX];
	int ret;

	if (p->session.bytes == 0) {
		memcpy(ret_challenge, p->challenge, hash_bytes);
		return 0;
	}
	ret = nvme_hash_data(p->hash, p->session.at, p->session.bytes, key);
	if (ret == 0)
		ret = nvme_hmac(p->hash, key, hash_bytes, p->challenge, hash_bytes, ret_challenge);
	explicit_bzero(key, sizeof(key));
	return ret;
}

/* The NUL behind it is overwritten by what comes next. */
static uint8_t *put_text(uint8_t *at, const char *text)
{
	return (uint8_t *)stpcpy((char *)at, text);
}

int nvme_dhchap_response(const struct nvme_dhchap_proof *p, uint8_t *ret_response)
{
	const char *mine = p->of_controller ? p->subsystem_nqn : p->host_nqn;
	const char *other = p->of_controller ? p->host_nqn : p->subsystem_nqn;
	uint8_t said[NVME_HASH_BYTES_MAX + 32 + 2 * NVME_NQN_FIELD_BYTES] = { 0 };
	uint8_t *at = said + nvme_hash_bytes(p->hash);
	int ret = dhchap_augment(p, said);

	if (ret < 0)
		return ret; /* UNTESTED: GnuTLS out of order */
	nvme_put32(at, p->sequence);
	nvme_put16(at + 4, p->transaction);
	at[6] = 0; /* SC_C, as in negotiate */
	at = put_text(at + 7, p->of_controller ? "Controller" : "HostHost");
	at = put_text(at, mine);
	*at++ = 0;
	at = put_text(at, other);
	ret = nvme_hmac(p->hash, p->key, p->key_bytes, said, (size_t)(at - said), ret_response);
	explicit_bzero(said, sizeof(said));
	return ret;
}
