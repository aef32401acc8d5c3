/*
 * DH-HMAC-CHAP on one queue, by the host: a state machine over commands and completions, without
 * sockets or PDUs, run behind Connect before anything else (Base 8.13; Linux
 * drivers/nvme/host/auth.c). Pure, any thread, no allocation.
 *
 *	nvme_auth_init(&a, &config, &random, data)
 *	for (;;)
 *		switch (a.step) {
 *		case NVME_AUTH_COMMAND:
 *			send a.sqe (nvme_command_set_cid first) with the a.out_bytes of data in the
 *			capsule, for which a fabrics command always has room; what it reads, at most
 *			a.in_bytes, goes to data: fewer are a success too. Then
 *			nvme_auth_completed(&a, &cqe, bytes that came)
 *		case NVME_AUTH_DONE:
 *		case NVME_AUTH_FAILED:
 *			a.error in words, a.err; a.may_retry: it can be better later
 *		}
 *
 * The answer to a challenge costs two powers (nvme_crypto.h): in all one turn of 2 to 40 ms, by the
 * group that the target chooses.
 *
 * Nothing of what a controller says is trusted: not its lengths, not the order of its messages, and
 * not that it is who it says if there is a key for it. What is refused is told it (failure2) before
 * FAILED.
 */
#ifndef BACKENDS_NVME_NVME_AUTH_H
#define BACKENDS_NVME_NVME_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/nvme/protocol/nvme_dhchap.h"
#include "backends/nvme/protocol/nvme_proto.h"

struct nvme_dhchap_key;

/* Of every message, either way: what Linux asks for. */
#define NVME_AUTH_DATA_BYTES 4096u
/* An NQN, and what is said of it. */
#define NVME_AUTH_ERROR_BYTES 480

struct nvme_auth_config {
	/* The owner's, and stay; controller_key: what the controller is to prove, or NULL. */
	const struct nvme_dhchap_key *host_key, *controller_key;
	const char *host_nqn, *subsystem_nqn;
};

/* What nobody must guess; never the same for two queues. */
struct nvme_auth_random {
	uint8_t private[64]; /* nvme_crypto.h: NVME_DH_PRIVATE_BYTES */
	uint8_t challenge[NVME_DHCHAP_HASH_BYTES_MAX];
	uint32_t sequence;
	uint16_t transaction;
};
/* From the kernel. Returns 0 or -errno. */
int nvme_auth_draw(struct nvme_auth_random *ret_random);

enum nvme_auth_step { NVME_AUTH_COMMAND, NVME_AUTH_DONE, NVME_AUTH_FAILED };

struct nvme_auth {
	struct nvme_auth_config config;
	enum nvme_auth_step step; /* the owner's, and so are the next three */
	uint8_t sqe[NVME_SQE_BYTES];
	uint32_t out_bytes, in_bytes;
	/*
	 * When FAILED, printable words, and why: -EACCES a key is wrong, -EPROTO the controller
	 * broke the protocol, -EOPNOTSUPP host and controller have no hash or group in common, -EIO
	 * GnuTLS is out of order, or of nvme_status.h.
	 */
	char error[NVME_AUTH_ERROR_BYTES];
	int err;
	bool may_retry;
	uint8_t hash, group; /* of the challenge, once there was one */

	uint8_t state;
	uint8_t *data;
	struct nvme_auth_random random;		      /* wiped as soon as it was used */
	uint8_t expected[NVME_DHCHAP_HASH_BYTES_MAX]; /* of the controller */
};

/* data: NVME_AUTH_DATA_BYTES of the owner's. random is copied: the owner wipes it. */
void nvme_auth_init(struct nvme_auth *a, const struct nvme_auth_config *config,
		    const struct nvme_auth_random *random, uint8_t *data);

/* in_bytes: that came to data, at most a->in_bytes. Returns the step. */
enum nvme_auth_step nvme_auth_completed(struct nvme_auth *a, const struct nvme_cqe *cqe,
					uint32_t in_bytes);

/*
 * The connection ended, or an answer is late (err -ETIMEDOUT): wipes what is secret. Returns
 * whether a->error has the reason, with FAILED: the controller was being told of it, or closed the
 * connection when it had the host's response. Linux 6.12's target sometimes closes it before its
 * failure1 is out.
 */
bool nvme_auth_gone(struct nvme_auth *a, int err);

#endif
