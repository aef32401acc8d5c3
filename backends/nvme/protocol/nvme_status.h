/*
 * What the status of an NVMe completion means: errno, words, and whether and where the command may
 * be sent again. Pure, any thread.
 */
#ifndef BACKENDS_NVME_NVME_STATUS_H
#define BACKENDS_NVME_NVME_STATUS_H

#include <stddef.h>
#include <stdint.h>

#include "backends/nvme/protocol/nvme_proto.h"

/* As Linux' nvme_decide_disposition: a status of type 3 is one of the path. */
enum nvme_retry {
	NVME_RETRY_NEVER,
	NVME_RETRY_HERE, /* on any path, this one included, after the delay (nvme_status_delay) */
	NVME_RETRY_ELSEWHERE, /* on another path; on this one when its ANA state has changed */
};

struct nvme_verdict {
	int err; /* 0, or -errno as Linux' nvme_error_status and blk_status_to_errno have it */
	enum nvme_retry retry;
	const char *words; /* what the target says; "an unknown status" */
};

/* status: without the phase tag (nvme_cqe). DNR makes every retry NEVER. */
struct nvme_verdict nvme_status_verdict(uint16_t status);

/*
 * How long to wait before a retry, ms: by CRD of the status and CRDT1 to 3 of the controller
 * (units of 100 ms: Base 4.2.3, Linux nvme_retry_req). 0: at once.
 */
uint32_t nvme_status_delay_ms(uint16_t status, const uint16_t crdt[3]);

/* "Invalid Host (type 1, code 0x84, do not retry)". Returns buf. */
const char *nvme_status_format(uint16_t status, char *buf, size_t buf_bytes);

/* Whether commands may be sent on a path in this state, and what its state is called. */
enum nvme_ana_use { NVME_ANA_USE_BEST, NVME_ANA_USE_ALSO, NVME_ANA_USE_LATER, NVME_ANA_USE_NEVER };
enum nvme_ana_use nvme_ana_use(uint8_t state);
const char *nvme_ana_name(uint8_t state);

#endif
