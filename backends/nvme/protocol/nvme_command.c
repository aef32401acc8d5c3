/*
 * Encodes NVMe commands. Owns nothing; any thread. Dword n of a command is at byte 4 * n. Nothing
 * fails: what cannot be said in a command is a bug of the caller.
 */
#include "backends/nvme/protocol/nvme_command.h"

#include "base/assert.h"
#include "base/util.h"

static void command_start(uint8_t *sqe, uint8_t opcode, uint32_t nsid)
{
	memset(sqe, 0, NVME_SQE_BYTES);
	sqe[0] = opcode;
	sqe[1] = NVME_SQE_FLAG_SGL;
	nvme_put32(sqe + 4, nsid);
	/* Without data too: Linux' nvme_tcp_set_sg_null. */
	sqe[39] = NVME_SGL_TRANSPORT;
}

static void command_data(uint8_t *sqe, uint32_t bytes, bool in_capsule)
{
	/* The address is an offset in the capsule's data, which ICDOFF must allow to be 0. */
	nvme_put32(sqe + 32, bytes);
	sqe[39] = in_capsule ? NVME_SGL_IN_CAPSULE : NVME_SGL_TRANSPORT;
}

void nvme_command_set_cid(uint8_t sqe[static NVME_SQE_BYTES], uint16_t cid)
{
	nvme_put16(sqe + 2, cid);
}

void nvme_command_rw(uint8_t sqe[static NVME_SQE_BYTES], const struct nvme_rw *rw)
{
	ASSERT(rw->blocks_nr >= 1 && rw->blocks_nr <= 65536);
	command_start(sqe, rw->opcode, rw->nsid);
	command_data(sqe, rw->data_bytes, rw->in_capsule);
	nvme_put64(sqe + 40, rw->lba);
	nvme_put16(sqe + 48, (uint16_t)(rw->blocks_nr - 1));
	nvme_put16(sqe + 50, rw->control);
}

void nvme_command_flush(uint8_t sqe[static NVME_SQE_BYTES], uint32_t nsid)
{
	command_start(sqe, NVME_CMD_FLUSH, nsid);
}

void nvme_command_deallocate(uint8_t sqe[static NVME_SQE_BYTES], uint32_t nsid, uint32_t ranges_nr,
			     bool in_capsule)
{
	ASSERT(ranges_nr >= 1 && ranges_nr <= NVME_DSM_RANGES_MAX);
	command_start(sqe, NVME_CMD_DSM, nsid);
	command_data(sqe, ranges_nr * NVME_DSM_RANGE_BYTES, in_capsule);
	nvme_put32(sqe + 40, ranges_nr - 1);
	nvme_put32(sqe + 44, NVME_DSM_DEALLOCATE);
}

void nvme_dsm_range(uint8_t range[static NVME_DSM_RANGE_BYTES], uint64_t lba, uint32_t blocks_nr)
{
	nvme_put32(range, 0); /* context attributes */
	nvme_put32(range + 4, blocks_nr);
	nvme_put64(range + 8, lba);
}

/* ---- fabrics ---- */

/* The fabrics command type stands where other commands have their namespace. */
static void command_start_fabrics(uint8_t *sqe, enum nvme_fctype type)
{
	command_start(sqe, NVME_FABRICS, type);
}

static void command_put_nqn(uint8_t *at, const char *nqn)
{
	size_t bytes = strnlen(nqn, NVME_NQN_BYTES_MAX + 1);

	ASSERT(bytes <= NVME_NQN_BYTES_MAX);
	memcpy(at, nqn, bytes);
}

void nvme_command_connect(uint8_t sqe[static NVME_SQE_BYTES],
			  uint8_t data[static NVME_CONNECT_BYTES], const struct nvme_connect *c)
{
	ASSERT(c->entries_nr >= 2 && c->entries_nr <= 65536);
	command_start_fabrics(sqe, NVME_FCTYPE_CONNECT);
	command_data(sqe, NVME_CONNECT_BYTES, true);
	nvme_put16(sqe + 42, c->qid);
	nvme_put16(sqe + 44, (uint16_t)(c->entries_nr - 1));
	sqe[46] = c->no_sq_flow ? NVME_CONNECT_NO_SQ_FLOW : 0;
	nvme_put32(sqe + 48, c->kato_ms);

	memset(data, 0, NVME_CONNECT_BYTES);
	memcpy(data, c->host_id, sizeof(c->host_id));
	nvme_put16(data + 16, c->cntlid);
	command_put_nqn(data + 256, c->subsystem_nqn);
	command_put_nqn(data + 512, c->host_nqn);
}

static void command_auth(uint8_t *sqe, enum nvme_fctype type, uint32_t bytes)
{
	command_start_fabrics(sqe, type);
	command_data(sqe, bytes, type == NVME_FCTYPE_AUTH_SEND);
	sqe[41] = NVME_AUTH_SPSP;
	sqe[42] = NVME_AUTH_SPSP;
	sqe[43] = NVME_AUTH_SECP;
	nvme_put32(sqe + 44, bytes);
}

void nvme_command_auth_send(uint8_t sqe[static NVME_SQE_BYTES], uint32_t bytes)
{
	command_auth(sqe, NVME_FCTYPE_AUTH_SEND, bytes);
}

void nvme_command_auth_receive(uint8_t sqe[static NVME_SQE_BYTES], uint32_t bytes)
{
	command_auth(sqe, NVME_FCTYPE_AUTH_RECEIVE, bytes);
}

void nvme_command_disconnect(uint8_t sqe[static NVME_SQE_BYTES])
{
	command_start_fabrics(sqe, NVME_FCTYPE_DISCONNECT);
}

/* ATTRIB: 1 for a property of 8 bytes. */
static void command_property(uint8_t *sqe, enum nvme_property property)
{
	sqe[40] = property == NVME_REG_CAP;
	nvme_put32(sqe + 44, property);
}

void nvme_command_property_get(uint8_t sqe[static NVME_SQE_BYTES], enum nvme_property property)
{
	command_start_fabrics(sqe, NVME_FCTYPE_PROPERTY_GET);
	command_property(sqe, property);
}

void nvme_command_property_set(uint8_t sqe[static NVME_SQE_BYTES], enum nvme_property property,
			       uint64_t value)
{
	command_start_fabrics(sqe, NVME_FCTYPE_PROPERTY_SET);
	command_property(sqe, property);
	nvme_put64(sqe + 48, value);
}

/* ---- admin ---- */

void nvme_command_identify(uint8_t sqe[static NVME_SQE_BYTES], enum nvme_cns cns, uint32_t nsid)
{
	command_start(sqe, NVME_ADMIN_IDENTIFY, nsid);
	command_data(sqe, NVME_IDENTIFY_BYTES, false);
	nvme_put32(sqe + 40, cns);
}

void nvme_command_set_feature(uint8_t sqe[static NVME_SQE_BYTES], enum nvme_feature feature,
			      uint32_t dword11)
{
	command_start(sqe, NVME_ADMIN_SET_FEATURES, 0);
	nvme_put32(sqe + 40, feature);
	nvme_put32(sqe + 44, dword11);
}

/* Submission and completion queues, both from 0: Base 5.27.1.5. */
uint32_t nvme_queues_value(uint32_t nr)
{
	ASSERT(nr >= 1 && nr <= 65535);
	return (nr - 1) << 16 | (nr - 1);
}

uint32_t nvme_queues_granted(uint64_t result)
{
	uint32_t submission = (uint32_t)result & 0xffff, completion = (uint32_t)result >> 16;

	return MIN(submission, completion) + 1;
}

void nvme_command_keep_alive(uint8_t sqe[static NVME_SQE_BYTES])
{
	command_start(sqe, NVME_ADMIN_KEEP_ALIVE, 0);
}

void nvme_command_async_event(uint8_t sqe[static NVME_SQE_BYTES])
{
	command_start(sqe, NVME_ADMIN_ASYNC_EVENT, 0);
}

void nvme_command_abort(uint8_t sqe[static NVME_SQE_BYTES], uint16_t qid, uint16_t cid)
{
	command_start(sqe, NVME_ADMIN_ABORT, 0);
	nvme_put16(sqe + 40, qid);
	nvme_put16(sqe + 42, cid);
}

void nvme_command_get_log(uint8_t sqe[static NVME_SQE_BYTES], const struct nvme_log_request *l)
{
	uint32_t dwords = l->bytes / 4 - 1;

	ASSERT(l->bytes >= 4 && l->bytes % 4 == 0 && l->at_bytes % 4 == 0);
	command_start(sqe, NVME_ADMIN_GET_LOG_PAGE, NVME_NSID_ALL);
	command_data(sqe, l->bytes, false);
	sqe[40] = l->log;
	sqe[41] = (uint8_t)((l->specific & 0x7f) | (l->retain ? 0x80 : 0));
	nvme_put16(sqe + 42, (uint16_t)dwords);
	nvme_put16(sqe + 44, (uint16_t)(dwords >> 16));
	nvme_put64(sqe + 48, l->at_bytes);
}

const char *nvme_command_name(uint8_t opcode, bool admin)
{
	static const char *const io[] = {
		[NVME_CMD_FLUSH] = "FLUSH", [NVME_CMD_WRITE] = "WRITE",
		[NVME_CMD_READ] = "READ",   [NVME_CMD_WRITE_ZEROES] = "WRITE_ZEROES",
		[NVME_CMD_DSM] = "DSM",
	};
	static const char *const of_admin[] = {
		[NVME_ADMIN_GET_LOG_PAGE] = "Get Log Page",
		[NVME_ADMIN_IDENTIFY] = "Identify",
		[NVME_ADMIN_ABORT] = "Abort",
		[NVME_ADMIN_SET_FEATURES] = "Set Features",
		[NVME_ADMIN_GET_FEATURES] = "Get Features",
		[NVME_ADMIN_ASYNC_EVENT] = "Asynchronous Event Request",
		[NVME_ADMIN_KEEP_ALIVE] = "Keep Alive",
	};

	if (opcode == NVME_FABRICS)
		return "a fabrics command";
	if (admin)
		return opcode < ARRAY_SIZE(of_admin) ? of_admin[opcode] : NULL;
	return opcode < ARRAY_SIZE(io) ? io[opcode] : NULL;
}
