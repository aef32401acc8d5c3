/*
 * What of a session is NVMe's: the table of the protocol. Owns of each connection the bring-up of
 * an association: the session's stream is its I/O queue, nvme_admin.c its admin queue. Reactor
 * thread. It is called by net/session*.c and nvme_admin.c, and commands nvme_transfer.c and
 * nvme_watch.c.
 *
 * Happy path: the stream is open -> ICReq on it, while the admin queue is brought up beside it ->
 * both are there: Connect of I/O queue 1 -> ready -> commands are sent, completions end them.
 *
 * The end of one of the two connections is the end of the association: the other is closed before
 * anything is sent again. A command that was lost is sent again by a new association. All that a
 * device of ours sends can be done twice; what the old association still does late is the same
 * bytes in the same place, unless the target is slower than the whole of a new bring-up.
 *
 * Failure modes: whatever the target refuses ends the try, in words; a namespace that is not what
 * it was makes the device fail.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nvme/nvme.h"
#include "backends/nvme/nvme_command.h"
#include "backends/nvme/nvme_digest.h"
#include "base/assert.h"
#include "base/util.h"

#define CONNECT_CID 0u

/* ---- memory ---- */

static void connection_admin_ready(void *arg);
static void connection_admin_ended(void *arg, enum net_end end, int err, bool unanswered,
				   const char *words);
static void connection_admin_event(void *arg, uint32_t result);

static int nvme_connection_init(struct session_connection *c)
{
	static const struct nvme_admin_ops ops = { .ready = connection_admin_ready,
						   .ended = connection_admin_ended,
						   .event = connection_admin_event };
	struct nvme_connection *conn = nvme_connection_of(c);
	const struct session_params *params = &c->session->params;
	const struct nvme_device *nvme = nvme_device_of(conn);
	struct nvme_admin_params admin = {
		.ops = &ops,
		.arg = conn,
		.queue_idx = params->queue_idx,
		.leg = c->idx,
		.fabrics = nvme_fabrics_wish(nvme),
		.header_digest = nvme->target.uri.header_digest,
		.data_digest = nvme->target.uri.data_digest,
		.timeout_ns = params->timeout_ns,
	};

	nvme_watch_init(conn);
	list_init(&conn->pump);
	conn->heads = calloc(params->depth + 1, NVME_PDU_HEAD_BYTES_MAX);
	return conn->heads ? nvme_admin_new(&conn->admin, params->reactor, &admin) : -ENOMEM;
}

static void nvme_connection_fini(struct session_connection *c)
{
	struct nvme_connection *conn = nvme_connection_of(c);

	nvme_admin_forget(conn->admin);
	free(conn->heads);
}

/* ---- the bring-up ---- */

static struct nvme_slot *connection_lookup_connect(void *ctx, uint16_t cid)
{
	struct nvme_connection *conn = ctx;

	return cid == CONNECT_CID ? &conn->connect : NULL;
}

static void nvme_connection_hello(struct session_connection *c)
{
	struct nvme_connection *conn = nvme_connection_of(c);
	const struct nvme_uri *uri = &nvme_device_of(conn)->target.uri;
	const struct nvme_wire wire = { .header_digest = uri->header_digest,
					.data_digest = uri->data_digest,
					.r2t_nr = 1 };

	conn->has_icresp = conn->connect.waiting = false;
	nvme_receive_init(&conn->receive, &wire, connection_lookup_connect, conn);
	nvme_pdu_icreq(conn->heads, &wire);
	stream_send(&c->stream, conn->heads, NVME_PDU_IC_BYTES);
	nvme_admin_begin(conn->admin, (const struct sockaddr *)&c->stream.address,
			 c->stream.address_bytes);
}

/* ICReq is behind us, so that its memory is free: the capsule, its data and their digest follow. */
static void connection_send_connect(struct nvme_connection *conn)
{
	struct nvme_fabrics *f = &conn->fabrics;
	struct nvme_fabrics_config config = nvme_fabrics_wish(nvme_device_of(conn));
	const struct nvme_controller *controller = &nvme_admin_found(conn->admin)->controller;
	uint8_t *head = conn->heads, *digest = conn->heads + NVME_PDU_HEAD_BYTES_MAX;
	struct stream *s = &conn->c.stream;

	config.mode = NVME_FABRICS_IO;
	config.entries_nr = controller->entries_nr;
	config.cntlid = controller->cntlid;
	config.qid = 1;
	nvme_fabrics_init(f, &config);
	nvme_command_set_cid(f->sqe, CONNECT_CID);
	nvme_slot_start(&conn->connect, NVME_DATA_OUT, f->out_bytes, true);
	stream_send(s, head, nvme_pdu_capsule(head, &conn->receive.wire, f->sqe, f->out_bytes));
	stream_send(s, f->data, f->out_bytes);
	if (!conn->receive.wire.data_digest)
		return;
	nvme_pdu_data_digest(digest, nvme_digest(0, f->data, f->out_bytes));
	stream_send(s, digest, NVME_DIGEST_BYTES);
}

static void connection_send_if_ready(struct nvme_connection *conn)
{
	/* The stream may have ended in this turn, and not have said so yet. */
	if (conn->has_icresp && nvme_admin_is_ready(conn->admin) && !conn->connect.waiting &&
	    conn->c.stream.state == STREAM_OPEN)
		connection_send_connect(conn);
}

static void connection_admin_ready(void *arg)
{
	struct nvme_connection *conn = arg;
	const struct nvme_fabrics *found = nvme_admin_found(conn->admin);
	const struct nvme_queue *q = nvme_queue_of(&conn->c);

	if (nvme_changed_note(q->nvme, &found->controller, &found->namespace))
		session_drop(&conn->c, NET_END_CHANGED, "the namespace is not what it was");
	else if (found->controller.commands_nr < q->out_max)
		session_drop(&conn->c, NET_END_CHANGED,
			     "the controller takes %u commands at a time, %u were taken before",
			     found->controller.commands_nr, q->out_max);
	else
		connection_send_if_ready(conn);
}

static void connection_admin_ended(void *arg, enum net_end end, int err, bool unanswered,
				   const char *words)
{
	struct nvme_connection *conn = arg;

	(void)err;
	session_drop(&conn->c, end, "%s%s", unanswered ? "the admin queue cannot connect: " : "",
		     words);
}

static void connection_admin_event(void *arg, uint32_t result)
{
	nvme_watch_event(arg, result);
}

static void connection_ready(struct nvme_connection *conn)
{
	nvme_transfer_begin(conn);
	nvme_watch_begin(conn);
	session_ready(&conn->c);
}

static void connection_broken(struct nvme_connection *conn)
{
	struct nvme_receive *r = &conn->receive;
	uint8_t term[NVME_PDU_TERM_BYTES_MAX];

	stream_last_word(&conn->c.stream, term, nvme_receive_term(r, term));
	if (r->err == -EPROTO)
		session_drop(&conn->c, NET_END_PROTOCOL, "the target broke the protocol: %s",
			     r->error);
	else
		session_drop(&conn->c, r->err == -EOPNOTSUPP ? NET_END_REFUSED : NET_END_PROTOCOL,
			     "%s", r->error);
}

static void connection_connected(struct nvme_connection *conn)
{
	struct nvme_fabrics *f = &conn->fabrics;

	if (nvme_fabrics_completed(f, &conn->receive.cqe, 0) == NVME_FABRICS_DONE)
		connection_ready(conn);
	else
		session_drop(&conn->c, NET_END_REFUSED, "%s", f->error);
}

static size_t nvme_connection_hello_received(struct session_connection *c, const uint8_t *data,
					     size_t bytes)
{
	struct nvme_connection *conn = nvme_connection_of(c);
	struct nvme_input in = { data, data + bytes };
	enum nvme_receive_event event;

	while (c->state == SESSION_HELLO && c->stream.state == STREAM_OPEN) {
		event = nvme_receive_next(&conn->receive, &in);
		if (event == NVME_RECEIVE_MORE)
			break;
		if (event == NVME_RECEIVE_READY) {
			conn->has_icresp = true;
			connection_send_if_ready(conn);
		} else if (event == NVME_RECEIVE_DONE) {
			connection_connected(conn);
		} else {
			connection_broken(conn);
		}
	}
	return (size_t)(in.at - data);
}

static const char *nvme_connection_hello_doing(const struct session_connection *c)
{
	const struct nvme_connection *conn = container_of(c, const struct nvme_connection, c);

	if (conn->connect.waiting)
		return "Connect of the I/O queue";
	return conn->has_icresp ? "the bring-up of the controller" : "ICReq of the I/O queue";
}

static bool nvme_connection_hello_ended(struct session_connection *c, int err, char *words,
					size_t bytes)
{
	if (err == -ECONNRESET)
		snprintf(words, bytes, "the target closed the connection during %s",
			 nvme_connection_hello_doing(c));
	return false;
}

void nvme_connection_leave(struct session_connection *c)
{
	nvme_watch_end(nvme_connection_of(c));
	nvme_admin_close(nvme_connection_of(c)->admin);
}

/* ---- commands ---- */

static int nvme_connection_send(struct session_connection *c, struct session_request *r)
{
	nvme_transfer_send(nvme_connection_of(c), nvme_io_of(r));
	return 0;
}

static void nvme_connection_left(struct session_connection *c, struct session_request *r)
{
	nvme_transfer_left(nvme_connection_of(c), nvme_io_of(r));
}

static void nvme_connection_done(struct session_request *r, int result)
{
	struct nvme_io *n = nvme_io_of(r);

	if (!nvme_retry_takes(n, &result))
		nvme_end(n, result);
}

static const char *nvme_connection_request_name(const struct session_request *r)
{
	const struct nvme_io *n = container_of(r, const struct nvme_io, request);

	return backend_op_name((enum backend_op)n->io->op);
}

/* What was to be sent of a request will not be: it is sent again as a whole. */
static void nvme_connection_lost(struct session_connection *c)
{
	list_for_each (node, &c->sent)
		nvme_transfer_left(nvme_connection_of(c),
				   nvme_io_of(list_entry(node, struct session_request, node)));
}

static bool nvme_connection_is_over(const struct session *s)
{
	const struct nvme_queue *q = container_of(s, const struct nvme_queue, session);

	return net_has_changed(&q->nvme->changed);
}

/* ---- completions ---- */

static void connection_take(struct nvme_connection *conn, struct nvme_input in)
{
	struct nvme_io *n;
	int ret;

	while ((ret = nvme_transfer_received(conn, &in, &n)) > 0) {
		uint16_t status = conn->receive.cqe.status;

		if (__builtin_expect((status & NVME_STATUS_CODE_MASK) == 0, 1))
			session_answer(&conn->c, &nvme_protocol, &n->request, 0);
		else
			nvme_retry_judge(conn, n, status);
	}
	if (ret < 0)
		connection_broken(conn);
}

static void nvme_connection_received(struct session_connection *c, const uint8_t *data,
				     size_t bytes)
{
	connection_take(nvme_connection_of(c), (struct nvme_input){ data, data + bytes });
}

/* Straight to its place; the parser follows. Behind the last byte it may have more to say. */
static void nvme_connection_received_into(struct session_connection *c, size_t bytes)
{
	struct nvme_connection *conn = nvme_connection_of(c);

	nvme_transfer_received_into(conn, (uint32_t)bytes);
	if (c->stream.into_bytes == 0)
		connection_take(conn, (struct nvme_input){ NULL, NULL });
}

static void nvme_connection_sent(struct session_connection *c)
{
	nvme_transfer_sent(nvme_connection_of(c));
}

const struct session_protocol nvme_protocol = {
	.connection_bytes = sizeof(struct nvme_connection),
	/* Of the capsule and of H2CData: head, data, digest. */
	.pieces_nr = 6,
	.connection_init = nvme_connection_init,
	.connection_fini = nvme_connection_fini,
	.hello = nvme_connection_hello,
	.hello_received = nvme_connection_hello_received,
	.hello_doing = nvme_connection_hello_doing,
	.hello_ended = nvme_connection_hello_ended,
	.send = nvme_connection_send,
	.received = nvme_connection_received,
	.received_into = nvme_connection_received_into,
	.sent = nvme_connection_sent,
	.left = nvme_connection_left,
	.done = nvme_connection_done,
	.request_name = nvme_connection_request_name,
	.closed = nvme_connection_leave,
	.lost = nvme_connection_lost,
	.is_over = nvme_connection_is_over,
};

int nvme_connection_submit(struct nvme_queue *q, struct nvme_io *n)
{
	return session_submit(&q->session, &nvme_protocol, &n->request);
}
