/*
 * DH-HMAC-CHAP as bytes: the messages of a host and of a controller, and the responses that they
 * carry. Base 8.13.5; Linux struct nvmf_auth_dhchap_*_data, drivers/nvme/common/auth.c. Pure, any
 * thread, no allocation.
 *
 * The host sends negotiate, gets challenge (C1, S1, perhaps a DH number), sends reply (its response
 * to C1; perhaps C2, S2; its DH number), gets success1 (perhaps the controller's response to C2),
 * and sends success2 if it asked for that. Instead of challenge and success1 it may get failure1;
 * it sends failure2 for what it does not accept.
 */
#ifndef BACKENDS_NVME_NVME_DHCHAP_H
#define BACKENDS_NVME_NVME_DHCHAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As nvme_crypto.h has them. */
#define NVME_DHCHAP_HASH_BYTES_MAX 64u
#define NVME_DHCHAP_DH_BYTES_MAX 1024u

#define NVME_DHCHAP_HEAD_BYTES 16u /* of all but the next two */
#define NVME_DHCHAP_NEGOTIATE_BYTES 72u
#define NVME_DHCHAP_FAILURE_BYTES 8u
#define NVME_DHCHAP_REPLY_BYTES_MAX                                                                \
	(NVME_DHCHAP_HEAD_BYTES + 2 * NVME_DHCHAP_HASH_BYTES_MAX + NVME_DHCHAP_DH_BYTES_MAX)

/* Linux NVME_AUTH_DHCHAP_FAILURE_*: why, in failure1 and failure2 */
enum nvme_dhchap_why {
	NVME_DHCHAP_FAILED = 1,
	NVME_DHCHAP_NO_PROTOCOL = 2,
	NVME_DHCHAP_CONCATENATION = 3, /* of a secure channel: both must want it, or none */
	NVME_DHCHAP_NO_HASH = 4,
	NVME_DHCHAP_NO_GROUP = 5,
	NVME_DHCHAP_BAD_PAYLOAD = 6,
	NVME_DHCHAP_BAD_MESSAGE = 7,
};

enum nvme_dhchap_message {
	NVME_DHCHAP_CHALLENGE,
	NVME_DHCHAP_SUCCESS1,
	NVME_DHCHAP_FAILURE1,
};

/* at points into what was decoded. */
struct nvme_dhchap_bytes {
	const uint8_t *at;
	uint32_t bytes;
};

struct nvme_dhchap_challenge {
	uint8_t hash, group; /* those of negotiate; group 0: no DH number */
	uint32_t sequence;
	struct nvme_dhchap_bytes challenge, dh;
};

struct nvme_dhchap_reply {
	uint16_t transaction;
	uint32_t hash_bytes;
	const uint8_t *response;
	const uint8_t *challenge; /* of hash_bytes; NULL: the controller is not asked */
	uint32_t sequence;	  /* 0 without challenge */
	struct nvme_dhchap_bytes dh;
};

/*
 * What host and controller agree on, all hashes and groups: no secure channel is to follow. Writes
 * NVME_DHCHAP_NEGOTIATE_BYTES.
 */
void nvme_dhchap_negotiate(uint8_t *at, uint16_t transaction);
/* Returns how many bytes, at most NVME_DHCHAP_REPLY_BYTES_MAX. */
uint32_t nvme_dhchap_reply(uint8_t *at, const struct nvme_dhchap_reply *reply);
/* NVME_DHCHAP_HEAD_BYTES */
void nvme_dhchap_success2(uint8_t *at, uint16_t transaction);
/* NVME_DHCHAP_FAILURE_BYTES */
void nvme_dhchap_failure2(uint8_t *at, uint16_t transaction, enum nvme_dhchap_why why);

/*
 * Which message came, of the two that a controller may send: the wanted one, or failure1. Returns
 * it, or -EPROTO: another one, a short one, or of another transaction; *ret_why is for failure2.
 */
int nvme_dhchap_kind(const uint8_t *at, uint32_t bytes, enum nvme_dhchap_message want,
		     uint16_t transaction, enum nvme_dhchap_why *ret_why);

/* Behind nvme_dhchap_kind. Return 0, or -EPROTO, or -EOPNOTSUPP: a hash or group not offered. */
int nvme_dhchap_challenge(const uint8_t *at, uint32_t bytes, struct nvme_dhchap_challenge *ret,
			  enum nvme_dhchap_why *ret_why);
/* ret_response: of hash_bytes if the controller was asked, or NULL. */
int nvme_dhchap_success1(const uint8_t *at, uint32_t bytes, uint32_t hash_bytes,
			 const uint8_t **ret_response, enum nvme_dhchap_why *ret_why);
/* enum nvme_dhchap_why, or what is not known. */
uint8_t nvme_dhchap_failure1(const uint8_t *at);

/* "the hashes that are offered do not do"; "an unknown reason". */
const char *nvme_dhchap_why_words(uint8_t why);

/* "SHA-256", "ffdhe2048", "no group": of numbers that are known. */
const char *nvme_dhchap_hash_name(uint8_t hash);
const char *nvme_dhchap_group_name(uint8_t group);

/* What a response is made of. */
struct nvme_dhchap_proof {
	uint8_t hash;
	uint16_t transaction;
	uint32_t sequence;
	const uint8_t *key; /* transformed */
	uint32_t key_bytes;
	const uint8_t *challenge;	  /* as many bytes as the hash has */
	struct nvme_dhchap_bytes session; /* the shared DH number; bytes 0: none */
	bool of_controller;
	const char *host_nqn, *subsystem_nqn;
};

/* Writes as many bytes as the hash has. Returns 0, or -EIO (nvme_hmac). */
int nvme_dhchap_response(const struct nvme_dhchap_proof *proof, uint8_t *ret_response);

#endif
