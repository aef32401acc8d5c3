/*
 * Authentication within a bring-up: nvme_auth.h as one state of nvme_fabrics.h. Owns nothing; the
 * thread of the struct nvme_fabrics. Failure modes: words in f->error, with the cure.
 */
#include "backends/nvme/protocol/nvme_fabrics.h"

#include <errno.h>
#include <stdio.h>

#include "base/util.h"

_Static_assert(NVME_AUTH_DATA_BYTES <= NVME_FABRICS_DATA_BYTES, "its messages are in f->data");

static int fabrics_auth_fail(struct nvme_fabrics *f, int err, const char *words)
{
	snprintf(f->error, sizeof(f->error), "%s", words);
	return err;
}

/* Whether what Connect says and what is configured go together. */
static int fabrics_auth_judge(struct nvme_fabrics *f, uint32_t authreq)
{
	const struct nvme_fabrics_config *c = &f->config;

	if (authreq && !c->host_key)
		return fabrics_auth_fail(
			f, -EACCES,
			"the target wants DH-HMAC-CHAP authentication: set dhchap_key_file, or "
			"remove the host's key (dhchap_key) at the target");
	if (authreq & NVME_CONNECT_AUTHREQ_ASCR)
		return fabrics_auth_fail(
			f, -EOPNOTSUPP,
			"the target wants TLS with a key made by authentication (secure channel "
			"concatenation), which is not supported: give both a key for TLS, or "
			"switch it off at the target");
	/*
	 * Base 8.13: I/O queues of a controller that has proven itself need not be authenticated;
	 * Linux 7.2's target does not ask for it.
	 */
	if (!authreq && c->controller_key && c->mode != NVME_FABRICS_IO)
		return fabrics_auth_fail(
			f, -EACCES,
			"the target does not ask for authentication, so it need not show that it "
			"has its key (dhchap_ctrl_key): set the host's key (dhchap_key) and its "
			"own at the target");
	return authreq != 0;
}

/* As the auth state machine is: 1: its command is in f, 0: DONE, or -errno. */
static int fabrics_auth_step(struct nvme_fabrics *f)
{
	struct nvme_auth *a = &f->auth;

	switch (a->step) {
	case NVME_AUTH_COMMAND:
		memcpy(f->sqe, a->sqe, sizeof(f->sqe));
		return 1;
	case NVME_AUTH_DONE:
		return 0;
	default:
		f->may_retry = a->may_retry;
		return fabrics_auth_fail(f, a->err, a->error);
	}
}

int nvme_fabrics_auth_start(struct nvme_fabrics *f, uint32_t result)
{
	const struct nvme_fabrics_config *c = &f->config;
	struct nvme_auth_config config = {
		.host_key = c->host_key,
		.controller_key = c->controller_key,
		.host_nqn = c->host_nqn,
		.subsystem_nqn = c->subsystem_nqn,
	};
	struct nvme_auth_random random;
	int ret = fabrics_auth_judge(
		f, result & (NVME_CONNECT_AUTHREQ_ATR | NVME_CONNECT_AUTHREQ_ASCR));

	if (ret <= 0)
		return ret;
	if (nvme_auth_draw(&random) < 0)
		return fabrics_auth_fail(f, -EIO,
					 "the kernel gives no random numbers"); /* UNTESTED */
	nvme_auth_init(&f->auth, &config, &random, f->data);
	explicit_bzero(&random, sizeof(random));
	return fabrics_auth_step(f);
}

int nvme_fabrics_auth_completed(struct nvme_fabrics *f, const struct nvme_cqe *cqe,
				uint32_t in_bytes)
{
	nvme_auth_completed(&f->auth, cqe, in_bytes);
	return fabrics_auth_step(f);
}
