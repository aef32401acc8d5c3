/*
 * A connection from the server's side. It takes what comes in any pieces, answers in any order and
 * in chunks that mix with those of other answers. What a correct client never does fails the run.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nbd/nbd_request.h"
#include "test/sim/nbd/nbd_server.h"

#define OPTION_HEAD_BYTES 16
#define OPTION_BYTES_MAX 8192u
#define SECTOR_BYTES 512u

enum state { CLIENT_FLAGS, OPTIONS, REQUESTS, DEAF };

struct request {
	struct sim_event event;
	struct list_node node;
	struct nbd_conn *conn;
	struct nbd_request r;
	uint8_t *data; /* of a WRITE */
	uint64_t seq;  /* what was done before it came a FLUSH owes */
	bool done;
	uint32_t error, said_bytes;
};

static void serve(struct sim_event *event);

static struct nbd_conn *conn_of(struct server_conn *c)
{
	return container_of(c, struct nbd_conn, c);
}

static struct nbd_server *server_of(const struct nbd_conn *conn)
{
	return container_of(conn->c.server, struct nbd_server, server);
}

static void say(struct nbd_conn *conn, const void *data, size_t bytes)
{
	server_conn_say(&conn->c, data, bytes);
}

static uint64_t when(const struct nbd_conn *conn, uint64_t max_ns)
{
	return server_conn_when(&conn->c, max_ns);
}

static void begin_requests(struct nbd_conn *conn)
{
	conn->state = REQUESTS;
	conn->c.serves = true;
}

/* ---- handshake ---- */

static void answer(struct nbd_conn *conn, uint32_t opt, uint32_t type, const void *data,
		   uint32_t bytes)
{
	uint8_t head[20];
	uint8_t *at = be_put64(head, NBD_OPTION_REPLY_MAGIC);

	at = be_put32(at, opt);
	at = be_put32(at, type);
	be_put32(at, bytes);
	say(conn, head, sizeof(head));
	say(conn, data, bytes);
}

static void tell_export(struct nbd_conn *conn)
{
	const struct nbd_server *server = server_of(conn);
	uint8_t info[14];
	uint8_t *at = be_put16(info, NBD_INFO_EXPORT);

	at = be_put64(at, nbd_server_size_bytes(server));
	be_put16(at, server->flags);
	answer(conn, NBD_OPT_GO, NBD_REP_INFO, info, 12);
	at = be_put16(info, NBD_INFO_BLOCK_SIZE);
	at = be_put32(at, server->min_block_bytes);
	at = be_put32(at, 4096);
	be_put32(at, NBD_SERVER_MAX_PAYLOAD);
	answer(conn, NBD_OPT_GO, NBD_REP_INFO, info, 14);
	answer(conn, NBD_OPT_GO, NBD_REP_ACK, NULL, 0);
	begin_requests(conn);
}

static void tell_by_name(struct nbd_conn *conn)
{
	uint8_t text[10 + 124] = { 0 };

	be_put16(be_put64(text, nbd_server_size_bytes(server_of(conn))), server_of(conn)->flags);
	say(conn, text, server_of(conn)->no_zeroes ? 10 : sizeof(text));
	begin_requests(conn);
}

static void accept_or_not(struct nbd_conn *conn, uint32_t opt, bool known, bool *ret_on)
{
	*ret_on = known;
	answer(conn, opt, known ? NBD_REP_ACK : NBD_REP_ERR_UNSUP, NULL, 0);
}

static void on_option(struct nbd_conn *conn, uint32_t opt, const uint8_t *data, uint32_t bytes)
{
	const struct nbd_server *server = server_of(conn);

	switch (opt) {
	case NBD_OPT_EXTENDED_HEADERS:
		accept_or_not(conn, opt, server->has_extended, &conn->extended);
		break;
	case NBD_OPT_STRUCTURED_REPLY:
		accept_or_not(conn, opt, server->has_structured, &conn->structured);
		break;
	case NBD_OPT_GO:
		if (bytes < 10 || be_get32(data) != 4 || memcmp(data + 4, "disk", 4) != 0)
			sim_fail("GO for another export");
		if (server->has_go)
			tell_export(conn);
		else
			answer(conn, opt, NBD_REP_ERR_UNSUP, NULL, 0);
		break;
	case NBD_OPT_EXPORT_NAME:
		if (bytes != 4 || memcmp(data, "disk", 4) != 0)
			sim_fail("EXPORT_NAME of another export");
		tell_by_name(conn);
		break;
	default:
		sim_fail("the client asks for option %u", opt);
	}
}

/* Each taker returns how many of the bytes it has understood; 0: more are needed. */
static size_t take_flags(struct nbd_conn *conn, const uint8_t *at, size_t bytes)
{
	uint32_t wanted =
		NBD_FLAG_FIXED_NEWSTYLE | (server_of(conn)->no_zeroes ? NBD_FLAG_NO_ZEROES : 0u);

	if (bytes < 4)
		return 0;
	if (be_get32(at) != wanted)
		sim_fail("client flags %x", be_get32(at));
	conn->state = OPTIONS;
	return 4;
}

static size_t take_option(struct nbd_conn *conn, const uint8_t *at, size_t bytes)
{
	uint32_t data_bytes;

	if (bytes < OPTION_HEAD_BYTES)
		return 0;
	data_bytes = be_get32(at + 12);
	if (be_get64(at) != NBD_OPTION_MAGIC || data_bytes > OPTION_BYTES_MAX)
		sim_fail("an option with a wrong magic or %u bytes", data_bytes);
	if (bytes < OPTION_HEAD_BYTES + data_bytes)
		return 0;
	on_option(conn, be_get32(at + 8), at + OPTION_HEAD_BYTES, data_bytes);
	return OPTION_HEAD_BYTES + data_bytes;
}

/* ---- replies ---- */

static void head_simple(const struct request *rq)
{
	uint8_t head[16];

	be_put64(be_put32(be_put32(head, NBD_SIMPLE_REPLY_MAGIC), rq->error), rq->r.cookie);
	say(rq->conn, head, sizeof(head));
}

static void head_chunk(const struct request *rq, uint16_t type, bool last, uint32_t bytes)
{
	bool extended = rq->conn->extended;
	uint8_t head[32];
	uint8_t *at =
		be_put32(head, extended ? NBD_EXTENDED_REPLY_MAGIC : NBD_STRUCTURED_REPLY_MAGIC);

	at = be_put16(at, last ? NBD_REPLY_FLAG_DONE : 0);
	at = be_put16(at, type);
	at = be_put64(at, rq->r.cookie);
	if (extended)
		at = be_put64(be_put64(at, rq->r.offset_bytes), bytes);
	else
		at = be_put32(at, bytes);
	say(rq->conn, head, (size_t)(at - head));
}

static const uint8_t *medium_at(const struct request *rq)
{
	return rq->conn->c.server->st->medium + rq->r.offset_bytes + rq->said_bytes;
}

static bool is_zero(const uint8_t *at, uint32_t bytes)
{
	return at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0;
}

static void say_data(struct request *rq, uint32_t bytes, bool last)
{
	const uint8_t *data = medium_at(rq);
	uint8_t place[12];

	be_put32(be_put64(place, rq->r.offset_bytes + rq->said_bytes), bytes);
	if (is_zero(data, bytes) && !sim_one_in(4)) {
		head_chunk(rq, NBD_REPLY_TYPE_OFFSET_HOLE, last, 12);
		say(rq->conn, place, 12);
	} else {
		head_chunk(rq, NBD_REPLY_TYPE_OFFSET_DATA, last, 8 + bytes);
		say(rq->conn, place, 8);
		say(rq->conn, data, bytes);
	}
	rq->said_bytes += bytes;
}

/* The next chunk of it. True: the last one. */
static bool say_chunk(struct request *rq)
{
	uint32_t left = (uint32_t)rq->r.length_bytes - rq->said_bytes, bytes = left;
	uint8_t error[6];
	bool last;

	if (rq->error) {
		be_put16(be_put32(error, rq->error), 0);
		head_chunk(rq, NBD_REPLY_TYPE_ERROR, true, sizeof(error));
		say(rq->conn, error, sizeof(error));
		return true;
	}
	if (rq->r.cmd != NBD_CMD_READ || left == 0) {
		head_chunk(rq, NBD_REPLY_TYPE_NONE, true, 0);
		return true;
	}
	if (left > SECTOR_BYTES && sim_one_in(4))
		bytes = (uint32_t)sim_between(1, left / SECTOR_BYTES - 1) * SECTOR_BYTES;
	last = bytes == left && sim_one_in(2);
	say_data(rq, bytes, last);
	return last;
}

static bool say_simple(struct request *rq)
{
	head_simple(rq);
	if (rq->r.cmd == NBD_CMD_READ && !rq->error)
		say(rq->conn, medium_at(rq), rq->r.length_bytes);
	return true;
}

static bool say_some(struct request *rq)
{
	const struct nbd_conn *conn = rq->conn;
	bool may_be_simple = !conn->extended && rq->r.cmd != NBD_CMD_READ;

	if (!(conn->structured || conn->extended) || (may_be_simple && sim_one_in(4)))
		return say_simple(rq);
	return say_chunk(rq);
}

/* ---- requests ---- */

static void request_free(struct request *rq)
{
	sim_event_cancel(&rq->event);
	list_remove(&rq->node);
	free(rq->data);
	free(rq);
}

static void perform(const struct request *rq)
{
	struct server *server = rq->conn->c.server;
	const struct nbd_request *r = &rq->r;
	bool fua = r->flags & NBD_CMD_FLAG_FUA;

	switch (r->cmd) {
	case NBD_CMD_WRITE:
		server_write(server, r->offset_bytes, rq->data, (uint32_t)r->length_bytes, fua);
		break;
	case NBD_CMD_TRIM:
		server_fill(server, r->offset_bytes, 0xdd, (uint32_t)r->length_bytes, fua);
		break;
	case NBD_CMD_WRITE_ZEROES:
		server_fill(server, r->offset_bytes, 0, (uint32_t)r->length_bytes, fua);
		break;
	case NBD_CMD_FLUSH:
		server_flush(server, rq->seq);
		break;
	}
}

/* The cookies of ublkd end with the tag. */
static unsigned tag_of(const struct request *rq)
{
	return rq->r.cookie & 0xffff;
}

static void note(const struct request *rq, int err)
{
	struct client_rq *client_rq = server_conn_rq(&rq->conn->c, tag_of(rq));

	if (client_rq)
		client_rq_note(client_rq, err, false);
}

static uint32_t choose_error(const struct request *rq)
{
	static const uint8_t errors[] = { EIO, ENOSPC, ENOMEM };
	uint32_t error = errors[sim_below(ARRAY_SIZE(errors))];

	if (!sim_fault(FAULT_NET_ERROR))
		return 0;
	note(rq, -(int)error);
	return error;
}

static void serve(struct sim_event *event)
{
	struct request *rq = container_of(event, struct request, event);
	struct nbd_conn *conn = rq->conn;

	if (sim.now_ns < server_conn_silent_until_ns(&conn->c)) {
		sim_event_arm(event, when(conn, NS_PER_MS), serve);
		return;
	}
	if (server_conn_is_mute(&conn->c, rq->done, event, serve))
		return;
	if (!rq->done) {
		rq->done = true;
		rq->error = choose_error(rq);
		if (!rq->error)
			perform(rq);
		sim_trace("nbd-serves", rq->r.cmd, rq->r.cookie, rq->r.offset_bytes, rq->error);
	}
	if (!say_some(rq)) {
		sim_event_arm(event, when(conn, NS_PER_MS), serve);
		return;
	}
	judge_said(&conn->c);
	request_free(rq);
}

static void check(const struct nbd_conn *conn, const struct nbd_request *r)
{
	const struct nbd_server *server = server_of(conn);
	uint64_t end = r->offset_bytes + r->length_bytes;

	if (r->cmd >= NBD_CMD_NR || !nbd_request_allowed(r, server->flags, false))
		sim_fail("command %u with flags %x is not allowed", r->cmd, r->flags);
	if (r->cmd == NBD_CMD_FLUSH ? end != 0 : r->length_bytes == 0)
		sim_fail("command %u of %llu bytes", r->cmd, (unsigned long long)r->length_bytes);
	if (end > server->server.st->size_bytes || r->offset_bytes % server->min_block_bytes ||
	    r->length_bytes % server->min_block_bytes)
		sim_fail("command %u of %llu bytes at %llu", r->cmd,
			 (unsigned long long)r->length_bytes, (unsigned long long)r->offset_bytes);
	list_for_each (node, &conn->requests)
		if (list_entry(node, struct request, node)->r.cookie == r->cookie)
			sim_fail("cookie %llx is used twice", (unsigned long long)r->cookie);
}

static void begin(struct nbd_conn *conn, const struct nbd_request *r, const uint8_t *data)
{
	struct request *rq = calloc(1, sizeof(*rq));
	uint64_t max_ns = sim_fault(FAULT_NET_SLOW) ? 3 * NS_PER_SEC : 2 * NS_PER_MS;

	check(conn, r);
	*rq = (struct request){ .conn = conn, .r = *r, .seq = storage_next_seq() };
	if (r->cmd == NBD_CMD_WRITE) {
		rq->data = malloc(r->length_bytes);
		memcpy(rq->data, data, r->length_bytes);
	}
	list_push_back(&conn->requests, &rq->node);
	server_conn_heard(&conn->c, tag_of(rq));
	sim_event_arm(&rq->event, when(conn, max_ns), serve);
}

static void parse(const struct nbd_conn *conn, const uint8_t *at, struct nbd_request *r)
{
	uint32_t magic = conn->extended ? NBD_EXTENDED_REQUEST_MAGIC : NBD_REQUEST_MAGIC;

	if (be_get32(at) != magic)
		sim_fail("a request with magic %x", be_get32(at));
	*r = (struct nbd_request){
		.flags = be_get16(at + 4),
		.cmd = be_get16(at + 6),
		.cookie = be_get64(at + 8),
		.offset_bytes = be_get64(at + 16),
		.length_bytes = conn->extended ? be_get64(at + 24) : be_get32(at + 24),
	};
	if (!conn->extended)
		return;
	if (!(r->flags & NBD_CMD_FLAG_PAYLOAD_LEN) != (r->cmd != NBD_CMD_WRITE))
		sim_fail("command %u with flags %x", r->cmd, r->flags);
	r->flags &= (uint16_t)~NBD_CMD_FLAG_PAYLOAD_LEN;
}

/* A WRITE may be answered before all of it is there, when there is no hope for it. */
static void refuse_early(struct nbd_conn *conn, const struct nbd_request *r)
{
	struct request *rq;

	if (conn->refused || !sim_fault(FAULT_NET_REFUSED_EARLY))
		return;
	conn->refused = true;
	rq = calloc(1, sizeof(*rq));
	*rq = (struct request){ .conn = conn, .r = *r, .done = true, .error = ENOSPC };
	list_push_back(&conn->requests, &rq->node);
	note(rq, -ENOSPC);
	sim_event_arm(&rq->event, when(conn, 100 * NS_PER_US), serve);
}

static size_t take_request(struct nbd_conn *conn, const uint8_t *at, size_t bytes)
{
	size_t head = conn->extended ? NBD_EXTENDED_REQUEST_BYTES : NBD_REQUEST_BYTES;
	struct nbd_request r;
	size_t data_bytes;

	if (bytes < head)
		return 0;
	parse(conn, at, &r);
	data_bytes = r.cmd == NBD_CMD_WRITE ? r.length_bytes : 0;
	if (data_bytes > NBD_SERVER_MAX_PAYLOAD)
		sim_fail("a WRITE of %zu bytes", data_bytes);
	if (bytes < head + data_bytes) {
		refuse_early(conn, &r);
		return 0;
	}
	if (conn->refused) {
		conn->refused = false;
	} else if (r.cmd == NBD_CMD_DISC) {
		conn->c.leaves = true;
		conn->state = DEAF;
		say(conn, NULL, 0);
	} else {
		begin(conn, &r, at + head);
	}
	return head + data_bytes;
}

static bool lacks(const struct server_conn *c, unsigned tag)
{
	const struct nbd_conn *conn = container_of(c, const struct nbd_conn, c);
	size_t head_bytes = conn->extended ? NBD_EXTENDED_REQUEST_BYTES : NBD_REQUEST_BYTES;
	size_t all_bytes = c->in.nr + c->sock->up.nr, at = 0;
	uint8_t head[NBD_REQUEST_BYTES_MAX];
	struct nbd_request r;

	while (conn->state == REQUESTS && server_conn_peek(c, at, head, head_bytes) == head_bytes) {
		parse(conn, head, &r);
		at += head_bytes + (r.cmd == NBD_CMD_WRITE ? r.length_bytes : 0);
		if (at > all_bytes)
			return (r.cookie & 0xffff) == tag;
	}
	return false;
}

/* ---- the connection ---- */

static size_t take(struct server_conn *c, const uint8_t *at, size_t bytes)
{
	struct nbd_conn *conn = conn_of(c);

	switch ((enum state)conn->state) {
	case CLIENT_FLAGS:
		return take_flags(conn, at, bytes);
	case OPTIONS:
		return take_option(conn, at, bytes);
	case REQUESTS:
		return take_request(conn, at, bytes);
	case DEAF:
		break;
	}
	return 0;
}

static struct server_conn *accept_client(struct server *server, struct sim_socket *sock)
{
	struct nbd_conn *conn = calloc(1, sizeof(*conn));
	uint8_t greeting[18];
	uint8_t *at = be_put64(be_put64(greeting, NBD_MAGIC), NBD_OPTION_MAGIC);

	server_conn_init(&conn->c, server, sock);
	list_init(&conn->requests);
	be_put16(at, NBD_FLAG_FIXED_NEWSTYLE |
			     (server_of(conn)->no_zeroes ? (uint16_t)NBD_FLAG_NO_ZEROES : 0));
	say(conn, greeting, sizeof(greeting));
	return &conn->c;
}

static void lost(struct server_conn *c)
{
	struct nbd_conn *conn = conn_of(c);

	while (!list_empty(&conn->requests)) {
		struct request *rq = list_entry(conn->requests.next, struct request, node);

		if (!rq->done && sim_one_in(2))
			perform(rq);
		request_free(rq);
	}
}

const struct server_protocol nbd_server_protocol = {
	.accept = accept_client,
	.take = take,
	.lost = lost,
	.lacks = lacks,
};
