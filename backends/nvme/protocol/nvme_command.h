/*
 * Writes NVMe commands (SQEs) and the data that goes with them. Pure, any thread; what cannot be
 * sent is a bug of the caller. Each function writes all 64 bytes with the command identifier 0
 * (nvme_command_set_cid) and, for commands with data, the SGL that says how the data travels:
 * `in_capsule` behind the command, else by C2HData, or by R2T and H2CData.
 *
 * Of a queue's writes that fit into a capsule, all must be sent in it (nvme_in_capsule): Linux'
 * target waits for the data of a small write for ever otherwise.
 */
#ifndef BACKENDS_NVME_NVME_COMMAND_H
#define BACKENDS_NVME_NVME_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/nvme/protocol/nvme_proto.h"

void nvme_command_set_cid(uint8_t sqe[static NVME_SQE_BYTES], uint16_t cid);

/* capsule_data_bytes: NVME_ADMIN_IN_CAPSULE_BYTES, or what the controller said (nvme_controller) */
static inline bool nvme_in_capsule(uint32_t capsule_data_bytes, uint32_t data_bytes)
{
	return data_bytes > 0 && data_bytes <= capsule_data_bytes;
}

/* READ, WRITE, WRITE_ZEROES of 1 to 65536 blocks; data_bytes 0 for WRITE_ZEROES. NVM 3.2 */
struct nvme_rw {
	uint8_t opcode;
	uint32_t nsid;
	uint64_t lba;
	uint32_t blocks_nr;
	uint16_t control; /* NVME_CONTROL_* */
	uint32_t data_bytes;
	bool in_capsule;
};
void nvme_command_rw(uint8_t sqe[static NVME_SQE_BYTES], const struct nvme_rw *rw);

void nvme_command_flush(uint8_t sqe[static NVME_SQE_BYTES], uint32_t nsid);

/* Deallocates ranges_nr (1 to 256) ranges of nvme_dsm_range. */
void nvme_command_deallocate(uint8_t sqe[static NVME_SQE_BYTES], uint32_t nsid, uint32_t ranges_nr,
			     bool in_capsule);
void nvme_dsm_range(uint8_t range[static NVME_DSM_RANGE_BYTES], uint64_t lba, uint32_t blocks_nr);

/* ---- fabrics: Base 6 ---- */

struct nvme_connect {
	uint16_t qid;
	uint32_t entries_nr; /* of the queue: 2 to 65536 */
	bool no_sq_flow;     /* SQ flow control is not wanted */
	uint32_t kato_ms;    /* of the admin queue */
	uint16_t cntlid;     /* NVME_CNTLID_ANY for an admin queue */
	uint8_t host_id[16];
	const char *subsystem_nqn, *host_nqn; /* at most NVME_NQN_BYTES_MAX */
};
/* data goes in the capsule, as the specification has it. */
void nvme_command_connect(uint8_t sqe[static NVME_SQE_BYTES],
			  uint8_t data[static NVME_CONNECT_BYTES], const struct nvme_connect *c);
/*
 * A message of the protocols of authentication, in the capsule; and what the controller says next,
 * up to bytes of it.
 */
void nvme_command_auth_send(uint8_t sqe[static NVME_SQE_BYTES], uint32_t bytes);
void nvme_command_auth_receive(uint8_t sqe[static NVME_SQE_BYTES], uint32_t bytes);

void nvme_command_disconnect(uint8_t sqe[static NVME_SQE_BYTES]);
void nvme_command_property_get(uint8_t sqe[static NVME_SQE_BYTES], enum nvme_property property);
void nvme_command_property_set(uint8_t sqe[static NVME_SQE_BYTES], enum nvme_property property,
			       uint64_t value);

/* ---- admin: Base 5 ---- */

/* Its data are NVME_IDENTIFY_BYTES. */
void nvme_command_identify(uint8_t sqe[static NVME_SQE_BYTES], enum nvme_cns cns, uint32_t nsid);
void nvme_command_set_feature(uint8_t sqe[static NVME_SQE_BYTES], enum nvme_feature feature,
			      uint32_t dword11);
/* The value of NVME_FEAT_NUM_QUEUES for nr (1 to 65535) queues, and what the answer grants. */
uint32_t nvme_queues_value(uint32_t nr);
uint32_t nvme_queues_granted(uint64_t result);
void nvme_command_keep_alive(uint8_t sqe[static NVME_SQE_BYTES]);
void nvme_command_async_event(uint8_t sqe[static NVME_SQE_BYTES]);
void nvme_command_abort(uint8_t sqe[static NVME_SQE_BYTES], uint16_t qid, uint16_t cid);

struct nvme_log_request {
	uint8_t log, specific; /* enum nvme_log; LSP */
	bool retain;	       /* RAE: the event stays */
	uint64_t at_bytes;     /* 0 unless NVME_LPA_EXTENDED; whole dwords */
	uint32_t bytes;	       /* whole dwords, at least one */
};
void nvme_command_get_log(uint8_t sqe[static NVME_SQE_BYTES], const struct nvme_log_request *l);

/* "WRITE_ZEROES"; by opcode, of an I/O queue or an admin queue. Unknown: NULL. */
const char *nvme_command_name(uint8_t opcode, bool admin);

#endif
