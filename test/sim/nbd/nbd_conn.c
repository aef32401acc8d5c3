/*
 * A connection from the server's side. It takes what comes in any pieces, answers in any order and
 * in chunks that mix with those of other answers. What a correct client never does fails the run.
 * It is told of bytes, and speaks by events of its own, so that nothing of it ends under its feet.
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

static void speak(struct sim_event *event);
static void serve(struct sim_event *event);

/* ---- speaking ---- */

static uint64_t when(const struct nbd_conn *conn, uint64_t max_ns)
{
	return MAX(sim.now_ns + sim_skewed(NS_PER_US, max_ns), nbd_conn_silent_until_ns(conn));
}

static void say(struct nbd_conn *conn, const void *data, size_t bytes)
{
	net_bytes_add(&conn->out, data, bytes);
	if (conn->sock)
		conn->sock->answers.said_bytes += bytes;
	if (conn->speak.pos == 0)
		sim_event_arm(&conn->speak, when(conn, 100 * NS_PER_US), speak);
}

/* Behind net_say the connection may be gone. */
static void speak(struct sim_event *event)
{
	struct nbd_conn *conn = container_of(event, struct nbd_conn, speak);
	struct net_bytes out = conn->out;

	if (sim.now_ns < nbd_conn_silent_until_ns(conn)) {
		sim_event_arm(event, nbd_conn_silent_until_ns(conn), speak);
		return;
	}
	conn->out = (struct net_bytes){ 0 };
	if (conn->disc)
		net_hang_up(conn->sock, 0);
	else
		net_say(conn->sock, net_bytes_at(&out), out.nr);
	net_bytes_fini(&out);
}

/* ---- handshake ---- */

static void answer(struct nbd_conn *conn, uint32_t opt, uint32_t type, const void *data,
		   uint32_t bytes)
{
	uint8_t head[20];
	uint8_t *at = nbd_put64(head, NBD_OPTION_REPLY_MAGIC);

	at = nbd_put32(at, opt);
	at = nbd_put32(at, type);
	nbd_put32(at, bytes);
	say(conn, head, sizeof(head));
	say(conn, data, bytes);
}

static void tell_export(struct nbd_conn *conn)
{
	const struct nbd_server *server = conn->server;
	uint8_t info[14];
	uint8_t *at = nbd_put16(info, NBD_INFO_EXPORT);

	at = nbd_put64(at, nbd_server_size_bytes(server));
	nbd_put16(at, server->flags);
	answer(conn, NBD_OPT_GO, NBD_REP_INFO, info, 12);
	at = nbd_put16(info, NBD_INFO_BLOCK_SIZE);
	at = nbd_put32(at, server->min_block_bytes);
	at = nbd_put32(at, 4096);
	nbd_put32(at, NBD_SERVER_MAX_PAYLOAD);
	answer(conn, NBD_OPT_GO, NBD_REP_INFO, info, 14);
	answer(conn, NBD_OPT_GO, NBD_REP_ACK, NULL, 0);
	conn->state = REQUESTS;
}

static void tell_by_name(struct nbd_conn *conn)
{
	uint8_t text[10 + 124] = { 0 };

	nbd_put16(nbd_put64(text, nbd_server_size_bytes(conn->server)), conn->server->flags);
	say(conn, text, conn->server->no_zeroes ? 10 : sizeof(text));
	conn->state = REQUESTS;
}

static void accept_or_not(struct nbd_conn *conn, uint32_t opt, bool known, bool *ret_on)
{
	*ret_on = known;
	answer(conn, opt, known ? NBD_REP_ACK : NBD_REP_ERR_UNSUP, NULL, 0);
}

static void on_option(struct nbd_conn *conn, uint32_t opt, const uint8_t *data, uint32_t bytes)
{
	const struct nbd_server *server = conn->server;

	switch (opt) {
	case NBD_OPT_EXTENDED_HEADERS:
		accept_or_not(conn, opt, server->has_extended, &conn->extended);
		break;
	case NBD_OPT_STRUCTURED_REPLY:
		accept_or_not(conn, opt, server->has_structured, &conn->structured);
		break;
	case NBD_OPT_GO:
		if (bytes < 10 || nbd_get32(data) != 4 || memcmp(data + 4, "disk", 4) != 0)
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
		NBD_FLAG_FIXED_NEWSTYLE | (conn->server->no_zeroes ? NBD_FLAG_NO_ZEROES : 0u);

	if (bytes < 4)
		return 0;
	if (nbd_get32(at) != wanted)
		sim_fail("client flags %x", nbd_get32(at));
	conn->state = OPTIONS;
	return 4;
}

static size_t take_option(struct nbd_conn *conn, const uint8_t *at, size_t bytes)
{
	uint32_t data_bytes;

	if (bytes < OPTION_HEAD_BYTES)
		return 0;
	data_bytes = nbd_get32(at + 12);
	if (nbd_get64(at) != NBD_OPTION_MAGIC || data_bytes > OPTION_BYTES_MAX)
		sim_fail("an option with a wrong magic or %u bytes", data_bytes);
	if (bytes < OPTION_HEAD_BYTES + data_bytes)
		return 0;
	on_option(conn, nbd_get32(at + 8), at + OPTION_HEAD_BYTES, data_bytes);
	return OPTION_HEAD_BYTES + data_bytes;
}

/* ---- replies ---- */

static void head_simple(const struct request *rq)
{
	uint8_t head[16];

	nbd_put64(nbd_put32(nbd_put32(head, NBD_SIMPLE_REPLY_MAGIC), rq->error), rq->r.cookie);
	say(rq->conn, head, sizeof(head));
}

static void head_chunk(const struct request *rq, uint16_t type, bool last, uint32_t bytes)
{
	bool extended = rq->conn->extended;
	uint8_t head[32];
	uint8_t *at =
		nbd_put32(head, extended ? NBD_EXTENDED_REPLY_MAGIC : NBD_STRUCTURED_REPLY_MAGIC);

	at = nbd_put16(at, last ? NBD_REPLY_FLAG_DONE : 0);
	at = nbd_put16(at, type);
	at = nbd_put64(at, rq->r.cookie);
	if (extended)
		at = nbd_put64(nbd_put64(at, rq->r.offset_bytes), bytes);
	else
		at = nbd_put32(at, bytes);
	say(rq->conn, head, (size_t)(at - head));
}

static const uint8_t *medium_at(const struct request *rq)
{
	return rq->conn->server->st->medium + rq->r.offset_bytes + rq->said_bytes;
}

static bool is_zero(const uint8_t *at, uint32_t bytes)
{
	return at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0;
}

static void say_data(struct request *rq, uint32_t bytes, bool last)
{
	const uint8_t *data = medium_at(rq);
	uint8_t place[12];

	nbd_put32(nbd_put64(place, rq->r.offset_bytes + rq->said_bytes), bytes);
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
		nbd_put16(nbd_put32(error, rq->error), 0);
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
	struct nbd_server *server = rq->conn->server;
	const struct nbd_request *r = &rq->r;
	bool fua = r->flags & NBD_CMD_FLAG_FUA;

	switch (r->cmd) {
	case NBD_CMD_WRITE:
		nbd_server_write(server, r->offset_bytes, rq->data, (uint32_t)r->length_bytes, fua);
		break;
	case NBD_CMD_TRIM:
		nbd_server_fill(server, r->offset_bytes, 0xdd, (uint32_t)r->length_bytes, fua);
		break;
	case NBD_CMD_WRITE_ZEROES:
		nbd_server_fill(server, r->offset_bytes, 0, (uint32_t)r->length_bytes, fua);
		break;
	case NBD_CMD_FLUSH:
		nbd_server_flush(server, rq->seq);
		break;
	}
}

/* By the client's numbers: the cookies of ublkd end with the tag. */
static struct client_rq *client_rq_of(const struct request *rq)
{
	const struct nbd_conn *conn = rq->conn;
	const struct model_dev *user = conn->server->st->user;

	return user ? model_rq(user, (unsigned)conn->sock->queue, rq->r.cookie & 0xffff) : NULL;
}

static void note(const struct request *rq, int err)
{
	struct client_rq *client_rq = client_rq_of(rq);

	if (client_rq)
		client_rq_note(client_rq, err, false);
}

static void note_heard(const struct request *rq)
{
	struct client_rq *client_rq = client_rq_of(rq);

	if (client_rq && !client_rq->heard_ns)
		client_rq->heard_ns = sim.now_ns;
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

/* It has shaken hands, and does nothing: true; rq may be gone. */
static bool is_mute(struct request *rq)
{
	const struct nbd_conn *conn = rq->conn;
	struct nbd_server *server = conn->server;

	if (sim.now_ns >= server->mute_until_ns && !rq->done && sim_fault(FAULT_NET_MUTE))
		nbd_server_fall_mute(server);
	if (sim.now_ns >= server->mute_until_ns)
		return false;
	if (server->mute_hangs_up)
		net_hang_up(conn->sock, 0);
	else
		sim_event_arm(&rq->event, server->mute_until_ns + sim_skewed(NS_PER_US, NS_PER_MS),
			      serve);
	return true;
}

static void serve(struct sim_event *event)
{
	struct request *rq = container_of(event, struct request, event);
	struct nbd_conn *conn = rq->conn;

	if (sim.now_ns < nbd_conn_silent_until_ns(conn)) {
		sim_event_arm(event, when(conn, NS_PER_MS), serve);
		return;
	}
	if (is_mute(rq))
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
	nbd_judge_said(conn);
	request_free(rq);
}

static void check(const struct nbd_conn *conn, const struct nbd_request *r)
{
	const struct nbd_server *server = conn->server;
	uint64_t end = r->offset_bytes + r->length_bytes;

	if (r->cmd >= NBD_CMD_NR || !nbd_request_allowed(r, server->flags, false))
		sim_fail("command %u with flags %x is not allowed", r->cmd, r->flags);
	if (r->cmd == NBD_CMD_FLUSH ? end != 0 : r->length_bytes == 0)
		sim_fail("command %u of %llu bytes", r->cmd, (unsigned long long)r->length_bytes);
	if (end > server->st->size_bytes || r->offset_bytes % server->min_block_bytes ||
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
	note_heard(rq);
	sim_event_arm(&rq->event, when(conn, max_ns), serve);
}

static void parse(const struct nbd_conn *conn, const uint8_t *at, struct nbd_request *r)
{
	uint32_t magic = conn->extended ? NBD_EXTENDED_REQUEST_MAGIC : NBD_REQUEST_MAGIC;

	if (nbd_get32(at) != magic)
		sim_fail("a request with magic %x", nbd_get32(at));
	*r = (struct nbd_request){
		.flags = nbd_get16(at + 4),
		.cmd = nbd_get16(at + 6),
		.cookie = nbd_get64(at + 8),
		.offset_bytes = nbd_get64(at + 16),
		.length_bytes = conn->extended ? nbd_get64(at + 24) : nbd_get32(at + 24),
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
		conn->disc = true;
		conn->state = DEAF;
		say(conn, NULL, 0);
	} else {
		begin(conn, &r, at + head);
	}
	return head + data_bytes;
}

/* ---- for the judge ---- */

bool nbd_conn_is_fresh(const struct nbd_conn *conn)
{
	return conn->state == REQUESTS && !conn->used && conn->out.nr == 0 &&
	       conn->sock->down.nr == 0;
}

/* Bytes of the client, from `at` on, that the server has read or will: how many of them. */
static size_t peek(const struct nbd_conn *conn, size_t at, uint8_t *buf, size_t bytes)
{
	const struct net_bytes *in = &conn->in, *up = &conn->sock->up;
	size_t nr = 0;

	for (; nr < bytes && at + nr < in->nr; nr++)
		buf[nr] = net_bytes_at(in)[at + nr];
	for (; nr < bytes && at + nr < in->nr + up->nr; nr++)
		buf[nr] = net_bytes_at(up)[at + nr - in->nr];
	return nr;
}

bool nbd_conn_lacks(const struct nbd_conn *conn, unsigned tag)
{
	size_t head_bytes = conn->extended ? NBD_EXTENDED_REQUEST_BYTES : NBD_REQUEST_BYTES;
	size_t all_bytes = conn->in.nr + conn->sock->up.nr, at = 0;
	uint8_t head[NBD_REQUEST_BYTES_MAX];
	struct nbd_request r;

	while (conn->state == REQUESTS && peek(conn, at, head, head_bytes) == head_bytes) {
		parse(conn, head, &r);
		at += head_bytes + (r.cmd == NBD_CMD_WRITE ? r.length_bytes : 0);
		if (at > all_bytes)
			return (r.cookie & 0xffff) == tag;
	}
	return false;
}

/* ---- the connection ---- */

static size_t take(struct nbd_conn *conn, const uint8_t *at, size_t bytes)
{
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

void nbd_conn_hears(struct nbd_conn *conn, const uint8_t *data, size_t bytes)
{
	size_t taken;

	net_bytes_add(&conn->in, data, bytes);
	do {
		taken = take(conn, net_bytes_at(&conn->in), conn->in.nr);
		net_bytes_drop(&conn->in, taken);
	} while (taken > 0);
}

void nbd_conn_sent_to(struct nbd_conn *conn)
{
	if (conn->state == REQUESTS && !conn->used)
		nbd_judge_up(conn);
}

uint64_t nbd_conn_silent_until_ns(const struct nbd_conn *conn)
{
	return conn->server->silent_until_ns;
}

struct nbd_conn *nbd_conn_create(struct nbd_server *server, struct sim_socket *sock)
{
	struct nbd_conn *conn = calloc(1, sizeof(*conn));
	uint8_t greeting[18];
	uint8_t *at = nbd_put64(nbd_put64(greeting, NBD_MAGIC), NBD_OPTION_MAGIC);

	*conn = (struct nbd_conn){ .server = server, .sock = sock, .life = server->life };
	list_init(&conn->requests);
	list_push_back(&server->conns, &conn->node);
	nbd_put16(at,
		  NBD_FLAG_FIXED_NEWSTYLE | (server->no_zeroes ? (uint16_t)NBD_FLAG_NO_ZEROES : 0));
	say(conn, greeting, sizeof(greeting));
	return conn;
}

void nbd_conn_lost(struct nbd_conn *conn)
{
	if (conn->state == REQUESTS || conn->state == DEAF)
		nbd_judge_over(conn);
	while (!list_empty(&conn->requests)) {
		struct request *rq = list_entry(conn->requests.next, struct request, node);

		if (!rq->done && sim_one_in(2))
			perform(rq);
		request_free(rq);
	}
	sim_event_cancel(&conn->speak);
	list_remove(&conn->node);
	net_bytes_fini(&conn->in);
	net_bytes_fini(&conn->out);
	free(conn);
}

void nbd_conn_cut(struct nbd_conn *conn, int err)
{
	if (sim_one_in(3))
		nbd_server_die(conn->server);
	else
		net_hang_up(conn->sock, err);
}
