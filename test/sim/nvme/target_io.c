/*
 * Commands of an I/O queue: what may be asked, and what is done. Every bound and rule is computed
 * here by other means than those of the product.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/nvme/target.h"

/* Of a host that tries again: five times, as Linux does. */
#define TRIES_MAX 5
#define AWAY_NS_MAX (40 * NS_PER_SEC)

/* What a target may say, and what becomes of it in the end. */
static const struct refusal {
	uint16_t status;
	int err;
	bool again; /* the host tries again */
} refusals[] = {
	{ 0x006, EIO, true },	      /* Internal Error */
	{ 0x021, EREMOTEIO, true },   /* Command Interrupted */
	{ 0x022, EIO, true },	      /* Transient Transport Error */
	{ 0x082, EREMOTEIO, true },   /* Namespace Not Ready */
	{ 0x280, ENODATA, true },     /* Write Fault */
	{ 0x302, ENOLINK, true },     /* Asymmetric Access Inaccessible */
	{ 0x007, EIO, true },	      /* Command Abort Requested */
	{ 0x081, ENOSPC, false },     /* Capacity Exceeded */
	{ 0x4006, EIO, false },	      /* Internal Error, do not retry */
	{ 0x4281, ENODATA, false },   /* Unrecovered Read Error, do not retry */
	{ 0x4080, EREMOTEIO, false }, /* LBA Out of Range, do not retry */
};

/* ---- what the host may ask ---- */

static uint64_t first_byte(const struct target *target, const uint8_t *sqe)
{
	if (sqe[0] == NVME_CMD_READ || sqe[0] == NVME_CMD_WRITE || sqe[0] == NVME_CMD_WRITE_ZEROES)
		return nvme_get64(sqe + 40) * target->block_bytes;
	return 0;
}

static uint64_t byte_nr(const struct target *target, const uint8_t *sqe)
{
	return (nvme_get16(sqe + 48) + 1ull) * target->block_bytes;
}

static void check_range(const struct target *target, const uint8_t *sqe, uint64_t at,
			uint64_t bytes)
{
	uint64_t end = target->size_bytes;

	if (at > end || bytes > end - at)
		sim_fail("opcode %u for %llu bytes at %llu of %llu", sqe[0],
			 (unsigned long long)bytes, (unsigned long long)at,
			 (unsigned long long)end);
}

static void check_rw(const struct target *target, const uint8_t *sqe)
{
	uint64_t bytes = byte_nr(target, sqe);

	check_range(target, sqe, first_byte(target, sqe), bytes);
	if (sqe[0] != NVME_CMD_WRITE_ZEROES && target->mdts && bytes > 4096ull << target->mdts)
		sim_fail("command %u of %llu bytes", sqe[0], (unsigned long long)bytes);
	if (sqe[0] == NVME_CMD_WRITE_ZEROES && target->vs >= NVME_VS(2, 0) && bytes > 65536)
		sim_fail("WRITE_ZEROES of %llu bytes", (unsigned long long)bytes);
	if (!target->server.st->has_cache && sqe[51] & NVME_CONTROL_FUA >> 8)
		sim_fail("FUA without a cache");
}

static void check_dsm(const struct target *target, const uint8_t *sqe, const uint8_t *data)
{
	check_range(target, sqe, nvme_get64(data + 8) * target->block_bytes,
		    (uint64_t)nvme_get32(data + 4) * target->block_bytes);
}

uint32_t target_io_check(const struct target_conn *conn, const uint8_t *sqe, bool *ret_out)
{
	const struct target *target = target_of(conn);

	if (nvme_get32(sqe + 4) != TARGET_NSID)
		sim_fail("a command for namespace %u", nvme_get32(sqe + 4));
	*ret_out = sqe[0] == NVME_CMD_WRITE || sqe[0] == NVME_CMD_DSM;
	switch (sqe[0]) {
	case NVME_CMD_READ:
	case NVME_CMD_WRITE:
		check_rw(target, sqe);
		return (uint32_t)byte_nr(target, sqe);
	case NVME_CMD_WRITE_ZEROES:
		check_rw(target, sqe);
		return 0;
	case NVME_CMD_DSM:
		if (nvme_get32(sqe + 40) != 0 || nvme_get32(sqe + 44) != NVME_DSM_DEALLOCATE)
			sim_fail("Dataset Management of several ranges, or for another purpose");
		return NVME_DSM_RANGE_BYTES;
	case NVME_CMD_FLUSH:
		if (!target->server.st->has_cache)
			sim_fail("FLUSH without a cache");
		return 0;
	default:
		sim_fail("an unknown command: opcode %u", sqe[0]);
	}
}

/* ---- whose it is ---- */

/* Identifiers of ublkd end with the tag. */
unsigned target_io_tag(const struct target_conn *conn, uint16_t cid)
{
	const struct model_dev *user = conn->c.server->st->user;
	unsigned bits = 0;

	while (user && 1u << bits < user->info.queue_depth)
		bits++;
	return cid & ((1u << bits) - 1);
}

static const struct refusal *refusal_of(uint16_t status)
{
	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
		if (refusals[i].status == (status & ~(3u << 11)))
			return &refusals[i];
	sim_fail("status %x is of no refusal", status);
}

void target_io_note(const struct target_conn *conn, uint16_t cid, uint16_t status)
{
	struct client_rq *rq = server_conn_rq(&conn->c, target_io_tag(conn, cid));
	const struct refusal *refusal = refusal_of(status);

	if (rq && (!refusal->again || ++rq->again_nr > TRIES_MAX))
		client_rq_note(rq, -refusal->err, false);
}

uint16_t target_io_refusal(void)
{
	return refusals[sim_below(ARRAY_SIZE(refusals))].status | (uint16_t)(sim_below(4) << 11);
}

/* What has gone wrong goes wrong again, so that it is the end now and then. */
static bool is_refused(const struct target_command *cmd)
{
	const struct client_rq *rq =
		server_conn_rq(&cmd->conn->c, target_io_tag(cmd->conn, target_cid(cmd)));

	return sim_fault(FAULT_NET_ERROR) || (rq && rq->again_nr > 0 && !sim_one_in(3));
}

/* ---- what is done ---- */

static void write_data(const struct target_command *cmd, uint32_t bytes)
{
	struct server *server = cmd->conn->c.server;

	if (bytes > 0)
		server_write(server, first_byte(target_of(cmd->conn), cmd->sqe), cmd->data, bytes,
			     cmd->sqe[51] & NVME_CONTROL_FUA >> 8);
}

static void perform(const struct target_command *cmd)
{
	const struct target *target = target_of(cmd->conn);
	struct server *server = cmd->conn->c.server;
	bool fua = cmd->sqe[51] & NVME_CONTROL_FUA >> 8;

	switch (cmd->sqe[0]) {
	case NVME_CMD_WRITE:
		write_data(cmd, cmd->data_bytes);
		break;
	case NVME_CMD_WRITE_ZEROES:
		server_fill(server, first_byte(target, cmd->sqe), 0,
			    (uint32_t)byte_nr(target, cmd->sqe), fua);
		break;
	case NVME_CMD_DSM:
		server_fill(server, nvme_get64(cmd->data + 8) * target->block_bytes, 0xdd,
			    nvme_get32(cmd->data + 4) * target->block_bytes, false);
		break;
	case NVME_CMD_FLUSH:
		server_flush(server, cmd->seq);
		break;
	}
}

/* ---- a namespace that goes and comes ---- */

void target_namespace_back(struct sim_event *event)
{
	struct target *target = container_of(event, struct target, back);

	target->is_away = false;
	target->back_seq = storage_next_seq();
	target_tell(target);
}

static void go_away(struct target *target)
{
	target->is_away = true;
	sim_event_arm(&target->back, sim.now_ns + sim_skewed(NS_PER_MS, AWAY_NS_MAX),
		      target_namespace_back);
	target_tell(target);
}

/* True: it is answered so. What the host can do is wait, or fail it as if there were no server. */
static bool is_away(struct target_command *cmd)
{
	struct target *target = target_of(cmd->conn);
	struct client_rq *rq =
		server_conn_rq(&cmd->conn->c, target_io_tag(cmd->conn, target_cid(cmd)));

	if (!target->is_away && sim_fault(FAULT_NVME_AWAY))
		go_away(target);
	/* What has come before it was back does not show that it is. */
	if (!target->is_away && cmd->seq > target->back_seq)
		judge_useless(&cmd->conn->c, false);
	if (!target->is_away)
		return false;
	cmd->status = NVME_SC_INVALID_NAMESPACE | (sim_one_in(2) ? NVME_STATUS_DNR : 0);
	judge_useless(&cmd->conn->c, true);
	if (rq && target->server.outage_timeout_ns == 0)
		client_rq_note(rq, -EIO, false);
	return true;
}

void target_io_execute(struct target_command *cmd)
{
	if (cmd->sqe[0] == NVME_CMD_DSM)
		check_dsm(target_of(cmd->conn), cmd->sqe, cmd->data);
	if (is_away(cmd))
		return;
	if (is_refused(cmd)) {
		cmd->status = target_io_refusal();
		target_io_note(cmd->conn, target_cid(cmd), cmd->status);
	} else {
		perform(cmd);
	}
	if (cmd->sqe[0] == NVME_CMD_READ && cmd->status == 0)
		cmd->reply_bytes = (uint32_t)byte_nr(target_of(cmd->conn), cmd->sqe);
}

/* Blocks that have come may be written, whatever becomes of the others. */
void target_io_lost(const struct target_command *cmd)
{
	uint32_t block_bytes = cmd->conn->c.server->st->block_bytes;

	if (cmd->done || !sim_one_in(2))
		return;
	if (cmd->came_bytes == cmd->data_bytes)
		perform(cmd);
	else if (cmd->sqe[0] == NVME_CMD_WRITE)
		write_data(cmd, cmd->came_bytes / block_bytes * block_bytes);
}

const uint8_t *target_io_data(const struct target_command *cmd)
{
	return cmd->conn->c.server->st->medium + first_byte(target_of(cmd->conn), cmd->sqe);
}
