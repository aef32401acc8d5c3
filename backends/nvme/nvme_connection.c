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
#include "backends/nvme/nvme_send.h"
#include "backends/nvme/protocol/nvme_command.h"
#include "base/assert.h"
#include "base/util.h"

#define BRING_UP_CID 0u
#define IO_QUEUE 1u
/* For the target to end a command that it was asked to abort. */
#define ABORT_NS NS_PER_SEC

/* ---- memory ---- */

static void connection_admin_progress(void *arg);
static void connection_admin_ready(void *arg);
static void connection_admin_ended(void *arg, enum net_end end, int err, const char *words);
static void connection_admin_event(void *arg, uint32_t result);

static int nvme_connection_init(struct session_connection *c)
{
	static const struct nvme_admin_ops ops = { .progress = connection_admin_progress,
						   .ready = connection_admin_ready,
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
		.tls = nvme->keys.tls,
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

static struct nvme_slot *connection_lookup(void *ctx, uint16_t cid)
{
	struct nvme_connection *conn = ctx;

	return cid == BRING_UP_CID ? &conn->slot : NULL;
}

static void connection_say_icreq(struct nvme_connection *conn)
{
	conn->is_secured = true;
	nvme_pdu_icreq(conn->heads, &conn->receive.wire);
	stream_send(&conn->c.stream, conn->heads, NVME_PDU_IC_BYTES);
}

/* What came of a step of the TLS handshake: tls_start.h. */
static void connection_secure(struct nvme_connection *conn, int ret)
{
	if (ret > 0)
		connection_say_icreq(conn);
	else if (ret < 0)
		session_drop(&conn->c, NET_END_REFUSED, "TLS: %s", tls_error(conn->c.tls));
}

static void nvme_connection_hello(struct session_connection *c)
{
	struct nvme_connection *conn = nvme_connection_of(c);
	const struct nvme_uri *uri = &nvme_device_of(conn)->target.uri;
	const struct nvme_wire wire = { .header_digest = uri->header_digest,
					.data_digest = uri->data_digest,
					.r2t_nr = 1 };

	conn->is_secured = conn->has_icresp = conn->is_asked = conn->slot.waiting = false;
	nvme_receive_init(&conn->receive, &wire, connection_lookup, conn);
	nvme_admin_begin(conn->admin, (const struct sockaddr *)&c->stream.address,
			 c->stream.address_bytes);
	conn->tls = (struct tls_start){ .stream = &c->stream, .tls = c->tls };
	if (c->tls)
		connection_secure(conn, tls_start_begin(&conn->tls));
	else
		connection_say_icreq(conn);
}

/* What was sent before is answered, so that its memory is free. */
static void connection_send_command(struct nvme_connection *conn)
{
	struct nvme_fabrics *f = &conn->fabrics;
	uint8_t *head = conn->heads, *digest = conn->heads + NVME_PDU_HEAD_BYTES_MAX;
	struct stream *s = &conn->c.stream;
	bool in = f->in_bytes > 0, out = f->out_bytes > 0;

	nvme_command_set_cid(f->sqe, BRING_UP_CID);
	nvme_slot_start(&conn->slot,
			out  ? NVME_DATA_OUT
			: in ? NVME_DATA_IN
			     : NVME_NO_DATA,
			out ? f->out_bytes : f->in_bytes, out);
	conn->slot.short_ok = f->short_ok;
	stream_send(s, head, nvme_pdu_capsule(head, &conn->receive.wire, f->sqe, f->out_bytes));
	if (out)
		nvme_send_data(s, &conn->receive.wire, f->data, f->out_bytes, digest);
}

static void connection_ready(struct nvme_connection *conn)
{
	struct nvme_queue *q = nvme_queue_of(&conn->c);

	nvme_transfer_begin(conn);
	nvme_watch_begin(conn);
	if (q->queue->idx == 0 && conn->c.idx == 0 && q->nvme->flush.is_volatile) {
		if (!net_witness_is(&q->nvme->witness, conn->c.stream.fd) &&
		    net_flush_lost(&q->nvme->flush))
			backend_owe(q->queue->device);
		backend_tell(q->queue->device, BACKEND_NEWS_STORED);
	}
	session_ready(&conn->c);
}

static void connection_step(struct nvme_connection *conn)
{
	switch (conn->fabrics.step) {
	case NVME_FABRICS_COMMAND:
		connection_send_command(conn);
		return;
	case NVME_FABRICS_DONE:
		connection_ready(conn);
		return;
	default: /* FAILED; a queue of I/O has nothing to wait for */
		session_drop(&conn->c, NET_END_REFUSED, "%s", conn->fabrics.error);
		return;
	}
}

static void connection_ask_if_both_are_there(struct nvme_connection *conn)
{
	struct nvme_fabrics_config config = nvme_fabrics_wish(nvme_device_of(conn));
	const struct nvme_controller *controller = &nvme_admin_found(conn->admin)->controller;

	/* The stream may have ended in this turn, and not have said so yet. */
	if (!conn->has_icresp || !nvme_admin_is_ready(conn->admin) || conn->is_asked ||
	    conn->c.stream.state != STREAM_OPEN)
		return;
	conn->is_asked = true;
	config.mode = NVME_FABRICS_IO;
	config.entries_nr = controller->entries_nr;
	config.cntlid = controller->cntlid;
	config.qid = IO_QUEUE;
	nvme_fabrics_init(&conn->fabrics, &config);
	connection_step(conn);
}

/* A controller may take a minute to become ready (CAP.TO), and says meanwhile that it is not. */
static void connection_admin_progress(void *arg)
{
	struct nvme_connection *conn = arg;

	session_hello_goes_on(&conn->c);
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
		connection_ask_if_both_are_there(conn);
}

static void connection_admin_ended(void *arg, enum net_end end, int err, const char *words)
{
	struct nvme_connection *conn = arg;

	(void)err;
	session_drop(&conn->c, end, "%s%s",
		     end == NET_END_UNREACHABLE ? "the admin queue cannot connect: " : "", words);
}

static void connection_admin_event(void *arg, uint32_t result)
{
	nvme_watch_event(arg, result);
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

/* False: there is no more in these bytes. */
static bool connection_take_hello(struct nvme_connection *conn, struct nvme_input *in)
{
	switch (nvme_receive_next(&conn->receive, in)) {
	case NVME_RECEIVE_READY:
		conn->has_icresp = true;
		connection_ask_if_both_are_there(conn);
		return true;
	case NVME_RECEIVE_PAYLOAD:
		return nvme_receive_copy(&conn->receive, in, conn->fabrics.data) == 0;
	case NVME_RECEIVE_DONE:
		nvme_fabrics_completed(&conn->fabrics, &conn->receive.cqe, conn->slot.came_bytes);
		connection_step(conn);
		return true;
	case NVME_RECEIVE_MORE:
	case NVME_RECEIVE_R2T: /* never: all data is in capsules */
		return false;
	default:
		connection_broken(conn);
		return false;
	}
}

static size_t nvme_connection_hello_received(struct session_connection *c, const uint8_t *data,
					     size_t bytes)
{
	struct nvme_connection *conn = nvme_connection_of(c);
	struct nvme_input in = { data, data + bytes };
	size_t used;

	if (!conn->is_secured) {
		connection_secure(conn, tls_start_received(&conn->tls, data, bytes, &used));
		return bytes;
	}
	while (c->state == SESSION_HELLO && c->stream.state == STREAM_OPEN &&
	       connection_take_hello(conn, &in))
		;
	return (size_t)(in.at - data);
}

static void nvme_connection_hello_sent(struct session_connection *c)
{
	struct nvme_connection *conn = nvme_connection_of(c);

	if (!conn->is_secured)
		connection_secure(conn, tls_start_sent(&conn->tls));
}

static const char *nvme_connection_hello_doing(const struct session_connection *c)
{
	const struct nvme_connection *conn = container_of(c, const struct nvme_connection, c);

	if (!conn->is_secured)
		return "the TLS handshake";
	if (conn->is_asked)
		return "Connect of the I/O queue";
	return conn->has_icresp ? "the bring-up of the controller" : "ICReq of the I/O queue";
}

static bool nvme_connection_hello_ended(struct session_connection *c, int err, char *words,
					size_t bytes)
{
	if (err == -ECONNRESET && !nvme_connection_of(c)->is_secured) {
		tls_eof(c->tls);
		snprintf(words, bytes, "TLS: %s", tls_error(c->tls));
		return true;
	}
	if (err == -ECONNRESET)
		snprintf(words, bytes, "the target closed the connection during %s",
			 nvme_connection_hello_doing(c));
	return false;
}

void nvme_connection_leave(struct session_connection *c)
{
	struct nvme_connection *conn = nvme_connection_of(c);

	if (conn->is_asked)
		nvme_fabrics_gone(&conn->fabrics, -ECONNRESET);
	conn->is_asked = false;
	nvme_watch_end(conn);
	nvme_admin_close(conn->admin);
}

/* ---- commands ---- */

static int nvme_connection_send(struct session_connection *c, struct session_request *r)
{
	struct nvme_io *n = nvme_io_of(r);

	if (n->io->op == BACKEND_FLUSH)
		net_flush_begin(&nvme_queue_of(c)->nvme->flush, &n->flush);
	nvme_transfer_send(nvme_connection_of(c), n);
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

/* Abort is no more than a wish: what it does not end in time, the end of the connection does. */
static uint64_t nvme_connection_late(struct session_connection *c, struct session_request *r)
{
	struct nvme_connection *conn = nvme_connection_of(c);

	if (!nvme_admin_is_ready(conn->admin))
		return 0;
	nvme_admin_abort(conn->admin, IO_QUEUE, nvme_io_of(r)->cid);
	return MIN(c->session->timeout_ns / 4, ABORT_NS);
}

/* What was to be sent of a request will not be: it is sent again as a whole. */
static void nvme_connection_lost(struct session_connection *c)
{
	struct nvme_queue *q = nvme_queue_of(c);

	list_for_each (node, &c->sent)
		nvme_transfer_left(nvme_connection_of(c),
				   nvme_io_of(list_entry(node, struct session_request, node)));
	if (net_flush_lost(&q->nvme->flush))
		backend_owe(q->queue->device);
}

static int nvme_connection_may_resend(struct session_request *r)
{
	struct nvme_io *n = nvme_io_of(r);
	struct nvme_device *nvme = n->io->queue->device->priv;

	return net_flush_may_resend(&nvme->flush, &n->flush) ? 0 : -EIO;
}

static bool nvme_connection_fails_fast(const struct session_request *r)
{
	const struct backend_io *io = container_of(r, const struct nvme_io, request)->io;
	const struct nvme_device *nvme = io->queue->device->priv;

	return nvme->config->outage.fail_fast && (io->flags & BACKEND_FAIL_FAST);
}

static bool nvme_connection_is_over(const struct session *s)
{
	const struct nvme_queue *q = container_of(s, const struct nvme_queue, session);

	return net_has_changed(&q->nvme->changed);
}

/* ---- completions ---- */

static void connection_note_success(struct nvme_device *nvme, struct nvme_io *n)
{
	const struct backend_io *io = n->io;

	if (io->op == BACKEND_FLUSH)
		net_flush_answered(&nvme->flush, &n->flush, 0);
	else if ((io->op == BACKEND_WRITE || io->op == BACKEND_WRITE_ZEROES) &&
		 !(io->flags & BACKEND_FUA))
		net_flush_wrote(&nvme->flush);
}

static void connection_note_error(struct nvme_device *nvme, struct nvme_io *n)
{
	if (n->io->op == BACKEND_FLUSH)
		net_flush_answered(&nvme->flush, &n->flush, -EIO);
}

static void connection_take(struct nvme_connection *conn, struct nvme_input in)
{
	struct nvme_device *nvme = nvme_device_of(conn);
	struct nvme_io *n;
	int ret = 0;

	/* What ends a request may end the connection: the rest is nobody's. */
	while (conn->c.stream.state == STREAM_OPEN &&
	       (ret = nvme_transfer_received(conn, &in, &n)) > 0) {
		uint16_t status = conn->receive.cqe.status;

		if (__builtin_expect((status & NVME_STATUS_CODE_MASK) == 0, 1)) {
			connection_note_success(nvme, n);
			session_answer(&conn->c, &nvme_protocol, &n->request, 0);
		} else {
			connection_note_error(nvme, n);
			nvme_retry_judge(conn, n, status);
		}
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
	.hello_sent = nvme_connection_hello_sent,
	.hello_doing = nvme_connection_hello_doing,
	.hello_ended = nvme_connection_hello_ended,
	.send = nvme_connection_send,
	.received = nvme_connection_received,
	.received_into = nvme_connection_received_into,
	.sent = nvme_connection_sent,
	.left = nvme_connection_left,
	.done = nvme_connection_done,
	.request_name = nvme_connection_request_name,
	.late = nvme_connection_late,
	.closed = nvme_connection_leave,
	.lost = nvme_connection_lost,
	.may_resend = nvme_connection_may_resend,
	.fails_fast = nvme_connection_fails_fast,
	.is_over = nvme_connection_is_over,
};

int nvme_connection_submit(struct nvme_queue *q, struct nvme_io *n)
{
	return session_submit(&q->session, &nvme_protocol, &n->request);
}
