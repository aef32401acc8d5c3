/*
 * A connection: PDUs in and out, and the life of a command. It takes what comes in any pieces,
 * answers in any order, data in PDUs that mix with those of other commands. What a correct host
 * never does fails the run.
 *
 *	a capsule -> (data are missing: R2T, H2CData, as often as needed) -> executed -> C2HData
 *	          -> CapsuleResp
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/nvme/target.h"

#define PDU_BYTES_MAX MIB(1)
#define TICK_NS_MAX (2 * NS_PER_MS)

static void step(struct sim_event *event);

static struct target_conn *conn_of(struct server_conn *c)
{
	return container_of(c, struct target_conn, c);
}

void target_command_later(struct target_command *cmd, uint64_t max_ns)
{
	sim_event_arm(&cmd->event, server_conn_when(&cmd->conn->c, max_ns), step);
}

/* ---- PDUs to the host ---- */

/* data_at: PDO, 0 without. */
static void say_head(struct target_conn *conn, uint8_t *head, uint8_t type, uint8_t flags,
		     uint32_t head_bytes, uint32_t data_at, uint32_t data_bytes)
{
	static const uint8_t padding[128];

	head[0] = type;
	head[1] = flags;
	head[2] = (uint8_t)head_bytes;
	head[3] = (uint8_t)data_at;
	nvme_put32(head + 4, data_at ? data_at + data_bytes : head_bytes);
	server_conn_say(&conn->c, head, head_bytes);
	if (data_at)
		server_conn_say(&conn->c, padding, data_at - head_bytes);
}

static void say_icresp(struct target_conn *conn)
{
	uint8_t head[NVME_PDU_IC_BYTES] = { 0 };

	head[10] = target_of(conn)->cpda;
	nvme_put32(head + 12, target_of(conn)->maxh2cdata_bytes);
	say_head(conn, head, NVME_PDU_ICRESP, 0, sizeof(head), 0, 0);
}

static void say_response(const struct target_command *cmd)
{
	struct target_conn *conn = cmd->conn;
	uint8_t head[NVME_PDU_RESP_BYTES] = { 0 };

	nvme_put64(head + 8, cmd->result);
	nvme_put16(head + 16, conn->has_success ? NVME_SQHD_NO_FLOW : 0);
	nvme_put16(head + 20, target_cid(cmd));
	nvme_put16(head + 22, (uint16_t)(cmd->status << 1));
	say_head(conn, head, NVME_PDU_CAPSULE_RESP, 0, sizeof(head), 0, 0);
}

static void say_r2t(const struct target_command *cmd, uint32_t bytes)
{
	uint8_t head[NVME_PDU_R2T_BYTES] = { 0 };

	nvme_put16(head + 8, target_cid(cmd));
	nvme_put16(head + 10, cmd->ttag);
	nvme_put32(head + 12, cmd->asked_bytes);
	nvme_put32(head + 16, bytes);
	say_head(cmd->conn, head, NVME_PDU_R2T, 0, sizeof(head), 0, 0);
}

/* More of its data. True: no CapsuleResp follows. */
static bool say_data(struct target_command *cmd)
{
	struct target_conn *conn = cmd->conn;
	const uint8_t *data = cmd->reply ? cmd->reply : target_io_data(cmd);
	uint32_t left = cmd->reply_bytes - cmd->said_bytes, bytes = left;
	uint8_t head[NVME_PDU_DATA_BYTES] = { 0 };
	uint32_t data_at = sizeof(head) + 4 * (uint32_t)(sim_one_in(4) ? sim_below(27) : 0);
	bool last, ends;

	if (left > 4 && sim_one_in(4))
		bytes = (uint32_t)sim_between(1, left / 4) * 4;
	last = bytes == left;
	ends = last && conn->has_success && cmd->result == 0 && sim_one_in(2);
	nvme_put16(head + 8, target_cid(cmd));
	nvme_put32(head + 12, cmd->said_bytes);
	nvme_put32(head + 16, bytes);
	say_head(conn, head, NVME_PDU_C2H_DATA,
		 (last ? NVME_PDU_FLAG_LAST : 0) | (ends ? NVME_PDU_FLAG_SUCCESS : 0), sizeof(head),
		 data_at, bytes);
	server_conn_say(&conn->c, data + cmd->said_bytes, bytes);
	cmd->said_bytes += bytes;
	return ends;
}

/* ---- the life of a command ---- */

struct target_command *target_command_find(const struct target_conn *conn, uint16_t cid)
{
	list_for_each (node, &conn->commands) {
		struct target_command *cmd = list_entry(node, struct target_command, node);

		if (target_cid(cmd) == cid)
			return cmd;
	}
	return NULL;
}

static void command_free(struct target_command *cmd)
{
	sim_event_cancel(&cmd->event);
	list_remove(&cmd->node);
	free(cmd->data);
	free(cmd->reply);
	free(cmd);
}

static void command_said(struct target_command *cmd)
{
	struct target_conn *conn = cmd->conn;

	if (conn->c.serves && cmd->sqe[0] != NVME_FABRICS &&
	    (cmd->status & NVME_STATUS_CODE_MASK) != NVME_SC_INVALID_NAMESPACE)
		judge_said(&conn->c);
	/* The host may have begun to send what was asked for. */
	if (cmd->came_bytes < cmd->asked_bytes) {
		list_remove(&cmd->node);
		list_push_back(&conn->ghosts, &cmd->node);
	} else {
		command_free(cmd);
	}
}

/* Connect of an I/O queue has gone well: requests may come. */
static void begin_to_serve(struct target_conn *conn)
{
	if (conn->queue == TARGET_IO && conn->c.sock) {
		conn->c.serves = true;
		conn->c.sock->harmless = false;
	}
}

/* False: there is more to say. */
static bool say_some(struct target_command *cmd)
{
	struct target_conn *conn = cmd->conn;
	bool connects = !conn->c.serves && conn->queue == TARGET_IO;

	if (cmd->status == 0 && cmd->said_bytes < cmd->reply_bytes) {
		if (say_data(cmd))
			return true;
		if (cmd->said_bytes < cmd->reply_bytes || sim_one_in(4))
			return false;
	}
	say_response(cmd);
	if (conn->c.serves && (cmd->status & NVME_STATUS_CODE_MASK) == NVME_SC_INVALID_NAMESPACE)
		judge_useless(&conn->c, true);
	if (connects && cmd->status == 0)
		begin_to_serve(conn);
	return true;
}

void target_command_end(struct target_command *cmd, uint16_t status)
{
	cmd->done = true;
	cmd->status = status;
	target_command_later(cmd, TICK_NS_MAX);
}

static void execute_admin(struct target_command *cmd)
{
	static struct target_answer answer;

	if (target_admin_refuses(cmd))
		return;
	target_admin_execute(cmd->conn->controller, cmd->sqe, &answer);
	cmd->status = answer.status;
	cmd->result = answer.result;
	cmd->reply_bytes = answer.bytes;
	if (answer.bytes > 0) {
		cmd->reply = malloc(answer.bytes);
		memcpy(cmd->reply, answer.page, answer.bytes);
	}
}

static void execute(struct target_command *cmd)
{
	cmd->done = true;
	if (cmd->conn->queue == TARGET_NO_QUEUE)
		target_connect(cmd);
	else if (cmd->conn->queue == TARGET_ADMIN)
		execute_admin(cmd);
	else
		target_io_execute(cmd);
	sim_trace("nvme-does", cmd->sqe[0], target_cid(cmd), (uint64_t)cmd->conn->queue,
		  cmd->status);
}

/* Asks for the next of its data; or it is refused instead, also when some of them have come. */
static void ask(struct target_command *cmd)
{
	uint32_t left = cmd->data_bytes - cmd->asked_bytes, bytes = left;

	if (sim_fault(FAULT_NET_REFUSED_EARLY)) {
		target_io_note(cmd->conn, target_cid(cmd), NVME_STATUS_DNR | 0x006);
		/* Planted in the host's way: it may be sending what was asked for. */
		target_command_end(cmd, NVME_STATUS_DNR | 0x006);
		return;
	}
	if (left > 4 && sim_one_in(4))
		bytes = (uint32_t)sim_between(1, left / 4) * 4;
	cmd->ttag = ++cmd->conn->last_ttag;
	say_r2t(cmd, bytes);
	cmd->asked_bytes += bytes;
	/* While its data are awaited it may still be refused. */
	if (sim_fault(FAULT_NET_REFUSED_EARLY)) {
		target_io_note(cmd->conn, target_cid(cmd), NVME_STATUS_DNR | 0x006);
		target_command_end(cmd, NVME_STATUS_DNR | 0x006);
	}
}

/* The controller is up, and does nothing: true; cmd may be gone. */
static bool is_mute(struct target_command *cmd)
{
	struct server_conn *c = &cmd->conn->c;

	return c->serves && !cmd->aborted && server_conn_is_mute(c, cmd->done, &cmd->event, step);
}

static void step(struct sim_event *event)
{
	struct target_command *cmd = container_of(event, struct target_command, event);
	struct target_conn *conn = cmd->conn;

	if (sim.now_ns < server_conn_silent_until_ns(&conn->c)) {
		target_command_later(cmd, NS_PER_MS);
		return;
	}
	if (is_mute(cmd))
		return;
	if (!cmd->done && cmd->asked_bytes < cmd->data_bytes) {
		ask(cmd);
		return;
	}
	if (!cmd->done)
		execute(cmd);
	if (!say_some(cmd)) {
		target_command_later(cmd, sim_fault(FAULT_NET_SLOW) ? NS_PER_SEC : NS_PER_MS);
		return;
	}
	if (conn->queue == TARGET_ADMIN && conn->controller)
		target_controller_lives(conn->controller);
	command_said(cmd);
}

/* ---- commands that come ---- */

static void check_sqe(const struct target_conn *conn, const uint8_t *sqe)
{
	unsigned nr = 0;

	if (sqe[1] != NVME_SQE_FLAG_SGL)
		sim_fail("a command with flags %x", sqe[1]);
	if (target_command_find(conn, nvme_get16(sqe + 2)))
		sim_fail("identifier %x is used twice", nvme_get16(sqe + 2));
	list_for_each (node, &conn->commands)
		nr++;
	if (conn->queue == TARGET_IO && nr >= conn->entries_nr)
		sim_fail("%u commands in a queue of %u entries", nr + 1, conn->entries_nr + 1);
	if (conn->queue == TARGET_IO && target_of(conn)->maxcmd && nr >= target_of(conn)->maxcmd)
		sim_fail("%u commands, but MAXCMD is %u", nr + 1, target_of(conn)->maxcmd);
}

/* An admin queue's data from the host are in its capsules. */
static uint32_t moved_bytes(const struct target_conn *conn, const uint8_t *sqe, bool *ret_out)
{
	if (conn->queue == TARGET_IO)
		return target_io_check(conn, sqe, ret_out);
	*ret_out = sqe[0] == NVME_FABRICS && sqe[4] == NVME_FCTYPE_CONNECT;
	if (*ret_out)
		return NVME_CONNECT_BYTES;
	return sqe[0] == NVME_ADMIN_IDENTIFY || sqe[0] == NVME_ADMIN_GET_LOG_PAGE
		       ? nvme_get32(sqe + 32)
		       : 0;
}

/* What the SGL says, and where the data are, must be what the command needs. */
static void check_sgl(const struct target_conn *conn, const uint8_t *sqe, uint32_t capsule_bytes,
		      uint32_t bytes, bool out)
{
	uint32_t room = conn->queue == TARGET_IO ? target_of(conn)->capsule_data_bytes
						 : NVME_ADMIN_IN_CAPSULE_BYTES;
	bool in_capsule = out && bytes <= room;

	if (sqe[39] != (in_capsule ? NVME_SGL_IN_CAPSULE : NVME_SGL_TRANSPORT) ||
	    nvme_get32(sqe + 32) != bytes)
		sim_fail("opcode %x: an SGL of type %x for %u bytes, not %u", sqe[0], sqe[39],
			 nvme_get32(sqe + 32), bytes);
	if (capsule_bytes != (in_capsule ? bytes : 0))
		sim_fail("opcode %x: %u bytes in the capsule", sqe[0], capsule_bytes);
}

static struct target_command *command_new(struct target_conn *conn, const uint8_t *sqe)
{
	struct target_command *cmd = calloc(1, sizeof(*cmd));

	cmd->conn = conn;
	cmd->seq = storage_next_seq();
	memcpy(cmd->sqe, sqe, sizeof(cmd->sqe));
	list_push_back(&conn->commands, &cmd->node);
	return cmd;
}

static void drop_ghost(struct target_conn *conn, uint16_t cid)
{
	list_for_each_safe (node, next, &conn->ghosts) {
		struct target_command *ghost = list_entry(node, struct target_command, node);

		if (target_cid(ghost) == cid)
			command_free(ghost);
	}
}

static void begin(struct target_conn *conn, const uint8_t *sqe, const uint8_t *data,
		  uint32_t capsule_bytes)
{
	uint64_t max_ns = sim_fault(FAULT_NET_SLOW) ? 3 * NS_PER_SEC : TICK_NS_MAX;
	struct target_command *cmd;
	uint32_t bytes;
	bool out;

	check_sqe(conn, sqe);
	bytes = moved_bytes(conn, sqe, &out);
	check_sgl(conn, sqe, capsule_bytes, bytes, out);
	drop_ghost(conn, nvme_get16(sqe + 2));
	cmd = command_new(conn, sqe);
	if (out) {
		cmd->data_bytes = bytes;
		cmd->data = malloc(bytes);
	}
	if (cmd->data && capsule_bytes > 0) {
		memcpy(cmd->data, data, capsule_bytes);
		cmd->came_bytes = cmd->asked_bytes = capsule_bytes;
	}
	if (conn->queue == TARGET_IO)
		server_conn_heard(&conn->c, target_io_tag(conn, target_cid(cmd)));
	if (conn->queue != TARGET_ADMIN || !target_admin_takes(cmd))
		target_command_later(cmd, max_ns);
}

/* A WRITE may be answered before all of its capsule is there, when there is no hope for it. */
static void refuse_early(struct target_conn *conn, const uint8_t *sqe)
{
	if (conn->refused || conn->queue != TARGET_IO || sqe[0] != NVME_CMD_WRITE ||
	    !sim_fault(FAULT_NET_REFUSED_EARLY))
		return;
	conn->refused = true;
	target_io_note(conn, nvme_get16(sqe + 2), NVME_STATUS_DNR | 0x006);
	target_command_end(command_new(conn, sqe), NVME_STATUS_DNR | 0x006);
}

/* ---- data that come ---- */

static struct target_command *find_ghost(const struct target_conn *conn, uint16_t cid,
					 uint16_t ttag)
{
	list_for_each (node, &conn->ghosts) {
		struct target_command *ghost = list_entry(node, struct target_command, node);

		if (target_cid(ghost) == cid && ghost->ttag == ttag)
			return ghost;
	}
	return NULL;
}

static void on_data(struct target_conn *conn, const uint8_t *head, const uint8_t *data,
		    uint32_t bytes)
{
	uint16_t cid = nvme_get16(head + 8), ttag = nvme_get16(head + 10);
	uint32_t at = nvme_get32(head + 12);
	struct target_command *cmd = target_command_find(conn, cid);
	bool last;

	if (!cmd)
		cmd = find_ghost(conn, cid, ttag);
	if (!cmd || cmd->ttag != ttag)
		sim_fail("H2CData for %x with tag %u that no R2T had", cid, ttag);
	if (at != cmd->came_bytes || bytes != nvme_get32(head + 16) || bytes == 0 ||
	    bytes > cmd->asked_bytes - at || bytes > target_of(conn)->maxh2cdata_bytes)
		sim_fail("H2CData of %u bytes at %u, asked for were those from %u to %u", bytes, at,
			 cmd->came_bytes, cmd->asked_bytes);
	memcpy(cmd->data + at, data, bytes);
	cmd->came_bytes += bytes;
	last = cmd->came_bytes == cmd->asked_bytes;
	if (!(head[1] & NVME_PDU_FLAG_LAST) != !last)
		sim_fail("H2CData with flags %x", head[1]);
	if (last && !cmd->done)
		target_command_later(cmd, TICK_NS_MAX);
}

/* ---- PDUs of the host ---- */

struct pdu {
	uint8_t type;
	uint32_t head_bytes, data_at, bytes;
};

static void parse(const struct target_conn *conn, const uint8_t *at, struct pdu *ret)
{
	static const uint8_t head_bytes[] = { [NVME_PDU_ICREQ] = NVME_PDU_IC_BYTES,
					      [NVME_PDU_CAPSULE_CMD] = NVME_PDU_CMD_BYTES,
					      [NVME_PDU_H2C_DATA] = NVME_PDU_DATA_BYTES };
	uint32_t align = 4 * (target_of(conn)->cpda + 1u);

	*ret = (struct pdu){ .type = at[0], .data_at = at[3], .bytes = nvme_get32(at + 4) };
	if (ret->type == NVME_PDU_H2C_TERM)
		sim_fail("the host ends the connection: it does not understand the target");
	if (ret->type >= ARRAY_SIZE(head_bytes) || head_bytes[ret->type] == 0)
		sim_fail("a PDU of type %x", ret->type);
	ret->head_bytes = head_bytes[ret->type];
	if (at[2] != ret->head_bytes || at[1] & ~(unsigned)NVME_PDU_FLAG_LAST ||
	    ret->bytes > PDU_BYTES_MAX || (ret->type == NVME_PDU_ICREQ) == conn->has_icreq)
		sim_fail("a PDU of type %x with header %u, flags %x, of %u bytes", at[0], at[2],
			 at[1], ret->bytes);
	if (ret->data_at == 0 ? ret->bytes != ret->head_bytes
			      : ret->data_at != (ret->head_bytes + align - 1) / align * align ||
					ret->bytes <= ret->data_at)
		sim_fail("a PDU of type %x, data at %u, of %u bytes", at[0], at[3], ret->bytes);
}

static void on_icreq(struct target_conn *conn, const uint8_t *at)
{
	if (nvme_get16(at + 8) != 0 || at[10] != 0 || at[11] != 0 || nvme_get32(at + 12) != 0)
		sim_fail("ICReq: version %u, alignment %u, digests %x, R2Ts %u", nvme_get16(at + 8),
			 at[10], at[11], nvme_get32(at + 12));
	conn->has_icreq = true;
	say_icresp(conn);
}

static void on_pdu(struct target_conn *conn, const struct pdu *pdu, const uint8_t *at)
{
	uint32_t data_bytes = pdu->data_at ? pdu->bytes - pdu->data_at : 0;

	if (pdu->type == NVME_PDU_ICREQ)
		on_icreq(conn, at);
	else if (pdu->type == NVME_PDU_H2C_DATA)
		on_data(conn, at, at + pdu->data_at, data_bytes);
	else if (conn->refused)
		conn->refused = false;
	else
		begin(conn, at + NVME_PDU_COMMON_BYTES, at + pdu->data_at, data_bytes);
}

static size_t take(struct server_conn *c, const uint8_t *at, size_t bytes)
{
	struct target_conn *conn = conn_of(c);
	struct pdu pdu;

	if (bytes < NVME_PDU_COMMON_BYTES)
		return 0;
	parse(conn, at, &pdu);
	if (bytes < pdu.bytes) {
		if (pdu.type == NVME_PDU_CAPSULE_CMD && bytes >= NVME_PDU_CMD_BYTES)
			refuse_early(conn, at + NVME_PDU_COMMON_BYTES);
		return 0;
	}
	on_pdu(conn, &pdu, at);
	return pdu.bytes;
}

static bool lacks(const struct server_conn *c, unsigned tag)
{
	const struct target_conn *conn = container_of(c, const struct target_conn, c);
	size_t all_bytes = c->in.nr + c->sock->up.nr, at = 0;
	uint8_t head[12];

	while (c->serves && server_conn_peek(c, at, head, sizeof(head)) == sizeof(head)) {
		/* The command's identifier is behind opcode and flags. */
		uint16_t cid = nvme_get16(head + (head[0] == NVME_PDU_CAPSULE_CMD ? 10 : 8));

		at += nvme_get32(head + 4);
		if (at > all_bytes)
			return target_io_tag(conn, cid) == tag;
	}
	return false;
}

static struct server_conn *accept_host(struct server *server, struct sim_socket *sock)
{
	struct target_conn *conn = calloc(1, sizeof(*conn));

	server_conn_init(&conn->c, server, sock);
	list_init(&conn->commands);
	list_init(&conn->ghosts);
	conn->path = sock->address_nr;
	/* Until it is an I/O queue. */
	sock->harmless = true;
	return &conn->c;
}

static void lost(struct server_conn *c)
{
	struct target_conn *conn = conn_of(c);

	while (!list_empty(&conn->ghosts))
		command_free(list_entry(conn->ghosts.next, struct target_command, node));
	while (!list_empty(&conn->commands)) {
		struct target_command *cmd =
			list_entry(conn->commands.next, struct target_command, node);

		if (c->serves)
			target_io_lost(cmd);
		command_free(cmd);
	}
	target_controller_left(conn);
}

static void fini(struct server *server)
{
	sim_event_cancel(&container_of(server, struct target, server)->back);
}

const struct server_protocol target_protocol = {
	.fini = fini,
	.accept = accept_host,
	.take = take,
	.lost = lost,
	.lacks = lacks,
};
