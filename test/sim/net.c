/*
 * Sockets, and the parts of the ring seam that a network sees. Their SQEs are kept for a while and
 * then done in part: what a sendmsg takes, and where a receive writes, is looked at only then, so
 * that memory given back too early shows. A connection that is over on one side is so at once for
 * the server, whose client may hear of it later, behind bytes that were on their way.
 *
 * Faults: short sends and receives, EINTR and EAGAIN, no socket, a connection cut behind any byte
 * of either side (seen as an end, or as a reset that swallows what was on its way), nobody who
 * listens, or nobody who answers; a cancelled receive that has taken bytes.
 */
#include "test/sim/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/server/server.h"
#include "test/sim/ring_sim.h"
#include "test/sim/ublk_model.h"

static struct list_node sockets = LIST_INIT(sockets);

static void take_send(struct sim_event *event);
static void take_recv(struct sim_event *event);

/* ---- bytes ---- */

void net_bytes_add(struct net_bytes *b, const void *data, size_t bytes)
{
	if (b->head > 0 && b->head + b->nr + bytes > b->room) {
		memmove(b->data, b->data + b->head, b->nr);
		b->head = 0;
	}
	if (b->nr + bytes > b->room) {
		b->room = 2 * (b->nr + bytes);
		b->data = realloc(b->data, b->room);
	}
	if (bytes > 0)
		memcpy(b->data + b->head + b->nr, data, bytes);
	b->nr += bytes;
}

void net_bytes_drop(struct net_bytes *b, size_t bytes)
{
	b->nr -= bytes;
	b->head = b->nr > 0 ? b->head + bytes : 0;
}

void net_bytes_fini(struct net_bytes *b)
{
	free(b->data);
	*b = (struct net_bytes){ 0 };
}

/* ---- sockets ---- */

static struct sim_socket *find(int fd)
{
	list_for_each (node, &sockets) {
		struct sim_socket *sock = list_entry(node, struct sim_socket, node);

		if (sock->fd == fd)
			return sock;
	}
	return NULL;
}

static struct sim_socket *socket_of(const struct sim_op *op)
{
	struct sim_socket *sock = find(op->fd);

	if (!sock)
		sim_fail("an SQE of opcode %u on a closed socket", op->sqe.opcode);
	return sock;
}

unsigned net_socket_nr(void)
{
	unsigned nr = 0;

	list_for_each (node, &sockets)
		nr++;
	return nr;
}

bool net_any_over(const struct server *server, int queue)
{
	list_for_each (node, &sockets) {
		const struct sim_socket *sock = list_entry(node, struct sim_socket, node);

		if (sock->server == server && sock->life == server->life && sock->queue == queue &&
		    sock->over)
			return true;
	}
	return false;
}

static void soon(struct sim_op *op, sim_event_fn *fn, uint64_t max_ns)
{
	sim_event_arm(&op->event, sim.now_ns + sim_skewed(NS_PER_US, max_ns), fn);
}

/* What waits for the other side has something to see. */
static void wake(struct sim_socket *sock)
{
	if (sock->recv && sock->recv->event.pos == 0)
		soon(sock->recv, take_recv, sim_one_in(8) ? 20 * NS_PER_MS : 200 * NS_PER_US);
	if (sock->connected && sock->send && sock->send->event.pos == 0)
		soon(sock->send, take_send, 200 * NS_PER_US);
}

static void arrived(struct sim_event *event);

static void arrive_later(struct sim_socket *sock)
{
	if (sock->arrive.pos == 0 && sock->up.nr > 0 && sock->conn)
		sim_event_arm(&sock->arrive,
			      MAX(sim.now_ns + sim_skewed(NS_PER_US, 200 * NS_PER_US),
				  server_conn_silent_until_ns(sock->conn)),
			      arrived);
}

static void read_late(struct sim_socket *sock);

/* The server reads; whatever it says to that it says later. */
static void arrived(struct sim_event *event)
{
	struct sim_socket *sock = container_of(event, struct sim_socket, arrive);
	size_t bytes = sock->up.nr;

	if (sim.now_ns < server_conn_silent_until_ns(sock->conn)) {
		arrive_later(sock);
		return;
	}
	if (bytes > 1 && sim_one_in(2))
		bytes = (size_t)sim_between(1, bytes - 1);
	sim_trace("net-arrive", (uint64_t)sock->fd, bytes, sock->up.nr, 0);
	server_conn_hears(sock->conn, net_bytes_at(&sock->up), bytes);
	net_bytes_drop(&sock->up, bytes);
	read_late(sock);
	wake(sock);
	arrive_later(sock);
}

/*
 * For the server it is over, here and now: what it has read it does at once or never, so that it
 * does nothing behind the back of the next connection (docs/nbd.md, "What NBD cannot guarantee").
 */
static void end(struct sim_socket *sock, int err)
{
	struct server_conn *conn = sock->conn;

	sock->conn = NULL;
	sim_event_cancel(&sock->arrive);
	if (sock->over || !sock->connected)
		return;
	sim_trace("net-end", (uint64_t)sock->fd, sock->sent[0], sock->sent[1], err);
	sock->over = true;
	sock->over_err = err;
	if (err < 0 && sim_one_in(2))
		net_bytes_drop(&sock->down, sock->down.nr);
	/* It may still have read what had come. */
	if (conn && sock->up.nr > 0 && sim_one_in(2))
		server_conn_hears(conn, net_bytes_at(&sock->up), sock->up.nr);
	if (conn)
		server_conn_lost(conn);
	net_bytes_drop(&sock->up, sock->up.nr);
	wake(sock);
}

void net_hang_up(struct sim_socket *sock, int err)
{
	end(sock, err);
}

static void cut(struct sim_socket *sock, enum net_side by)
{
	bool reset = sim_one_in(2);

	sim_saw(by == NET_CLIENT ? FAULT_NET_CUT_CLIENT : FAULT_NET_CUT_SERVER);
	if (reset)
		sim_saw(FAULT_NET_RESET);
	if (sim.cut.fd == sock->fd)
		sim.cut.done = true;
	server_conn_cut(sock->conn, reset ? -ECONNRESET : 0);
}

/* How many of the bytes get through before the connection is cut. */
static size_t pass(struct sim_socket *sock, enum net_side by, size_t bytes)
{
	size_t left = (size_t)MIN(sock->cut_at[by] - sock->sent[by], (uint64_t)bytes);

	sock->sent[by] += left;
	return left;
}

static bool is_cut(const struct sim_socket *sock, enum net_side by)
{
	return sock->sent[by] == sock->cut_at[by];
}

void net_say(struct sim_socket *sock, const void *data, size_t bytes)
{
	if (sock->over)
		return;
	net_bytes_add(&sock->down, data, pass(sock, NET_SERVER, bytes));
	wake(sock);
	if (is_cut(sock, NET_SERVER))
		cut(sock, NET_SERVER);
}

/* ---- sending ---- */

static void send_done(struct sim_socket *sock, int res)
{
	struct sim_op *op = sock->send;

	sock->send = NULL;
	sim_trace("net-send", (uint64_t)sock->fd, sock->sent[NET_CLIENT], 0, res);
	sim_op_done(op, res);
}

static size_t gathered(const struct msghdr *msg)
{
	size_t bytes = 0;

	for (size_t i = 0; i < msg->msg_iovlen; i++)
		bytes += msg->msg_iov[i].iov_len;
	return bytes;
}

/* The first `bytes` of the message are taken; those behind a cut nowhere. */
static void copy_from(struct sim_socket *sock, const struct msghdr *msg, size_t bytes)
{
	for (size_t i = 0; i < msg->msg_iovlen && bytes > 0; i++) {
		size_t part = MIN(bytes, msg->msg_iov[i].iov_len);

		net_bytes_add(&sock->up, msg->msg_iov[i].iov_base, pass(sock, NET_CLIENT, part));
		bytes -= part;
	}
}

static size_t room_of(const struct sim_socket *sock)
{
	return sock->window_bytes - MIN(sock->up.nr, sock->window_bytes);
}

/* Planted: all of it counts as sent, although the kernel has still to read what is behind `from`.
 */
static size_t claim_rest(struct sim_socket *sock, const struct msghdr *msg, size_t from)
{
	size_t at = 0;

	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		const struct iovec *piece = &msg->msg_iov[i];
		size_t skip = from > at ? MIN(from - at, piece->iov_len) : 0;

		net_bytes_add(&sock->late, (const uint8_t *)piece->iov_base + skip,
			      piece->iov_len - skip);
		at += piece->iov_len;
	}
	return at;
}

static void read_late(struct sim_socket *sock)
{
	size_t bytes = MIN(sock->late.nr, room_of(sock));

	net_bytes_add(&sock->up, net_bytes_at(&sock->late), pass(sock, NET_CLIENT, bytes));
	net_bytes_drop(&sock->late, bytes);
}

static size_t choose_bytes(size_t bytes, enum fault fault)
{
	return bytes > 1 && sim_fault(fault) ? (size_t)sim_between(1, bytes - 1) : bytes;
}

/* Errors that only want another try. */
static int choose_nuisance(void)
{
	if (!sim_fault(FAULT_NET_EINTR))
		return 0;
	return sim_one_in(2) ? -EINTR : -EAGAIN;
}

static void take_send(struct sim_event *event)
{
	struct sim_op *op = container_of(event, struct sim_op, event);
	struct sim_socket *sock = socket_of(op);
	const struct msghdr *msg = (const void *)(uintptr_t)op->sqe.addr;
	size_t room = sock->late.nr > 0 ? 0 : room_of(sock);
	size_t all = gathered(msg), bytes;
	int nuisance = choose_nuisance();

	if (sock->shut || sock->over) {
		send_done(sock, sock->over_err && sim_one_in(2) ? sock->over_err : -EPIPE);
	} else if (nuisance < 0) {
		send_done(sock, nuisance);
	} else if (room > 0) {
		bytes = choose_bytes(MIN(all, room), FAULT_NET_SHORT_SEND);
		copy_from(sock, msg, bytes);
		if (bytes < all && sim_defect_always(DEFECT_LONG_SEND))
			bytes = claim_rest(sock, msg, bytes);
		server_conn_sent_to(sock->conn);
		arrive_later(sock);
		send_done(sock, (int)bytes);
		if (is_cut(sock, NET_CLIENT))
			cut(sock, NET_CLIENT);
	}
	/* Without room it waits for the server to read. */
}

/* ---- receiving ---- */

static void recv_done(struct sim_socket *sock, int res)
{
	struct sim_op *op = sock->recv;

	sock->recv = NULL;
	/* The kernel looks once more, and may be wrong by the time that it is read. */
	if (sock->down.nr > 0 ? !sim_one_in(4) : sim_one_in(16))
		op->cqe_flags = IORING_CQE_F_SOCK_NONEMPTY;
	sim_trace("net-recv", (uint64_t)sock->fd, sock->down.nr, op->cqe_flags, res);
	sim_op_done(op, res);
}

static void receive(struct sim_socket *sock)
{
	const struct sim_op *op = sock->recv;
	size_t bytes = MIN((size_t)op->sqe.len, sock->down.nr);

	bytes = choose_bytes(bytes, FAULT_NET_SHORT_RECEIVE);
	memcpy((void *)(uintptr_t)op->sqe.addr, net_bytes_at(&sock->down), bytes);
	net_bytes_drop(&sock->down, bytes);
	judge_got(sock, bytes);
	/* Planted: not all of what it says has come. */
	if (bytes < op->sqe.len && bytes > 1000 && sim_one_in(8) &&
	    sim_defect_always(DEFECT_LONG_RECEIVE))
		memset((uint8_t *)(uintptr_t)op->sqe.addr + bytes - 500, 0xee, 500);
	recv_done(sock, (int)bytes);
}

static void take_recv(struct sim_event *event)
{
	struct sim_op *op = container_of(event, struct sim_op, event);
	struct sim_socket *sock = socket_of(op);
	int nuisance = choose_nuisance();

	if (nuisance < 0)
		recv_done(sock, nuisance);
	else if (sock->down.nr > 0)
		receive(sock);
	else if (sock->shut || sock->over)
		recv_done(sock, sock->shut ? 0 : sock->over_err);
}

/* ---- connecting ---- */

static void choose_cuts(struct sim_socket *sock)
{
	sock->cut_at[NET_CLIENT] = sock->cut_at[NET_SERVER] = UINT64_MAX;
	if (sim.cut.on && sim.cut.connect_nr++ == sim.cut.nth) {
		sim.cut.fd = sock->fd;
		sock->cut_at[sim.cut.by] = sim.cut.at;
	} else if (sim_fault(FAULT_NET_CUT)) {
		sock->cut_at[sim_below(2)] = sim_skewed(0, MIB(4));
	}
}

/* 0 or -errno. */
static int reach(struct sim_socket *sock, const struct sockaddr *address)
{
	int ret = server_accept(address, sock, &sock->conn);

	sim_trace("net-connect", (uint64_t)sock->fd, 0, 0, ret);
	if (ret < 0) {
		sim_saw(FAULT_NET_REFUSED);
		return ret;
	}
	sock->connected = true;
	choose_cuts(sock);
	wake(sock);
	for (enum net_side by = NET_CLIENT; by <= NET_SERVER && sock->conn; by++)
		if (is_cut(sock, by))
			cut(sock, by);
	return 0;
}

static void take_connect(struct sim_event *event)
{
	struct sim_op *op = container_of(event, struct sim_op, event);
	struct sim_socket *sock = socket_of(op);
	int res = sock->shut ? -ECONNRESET : 0;

	if (res == 0)
		res = reach(sock, (const void *)(uintptr_t)op->sqe.addr);
	send_done(sock, res);
}

/* ---- cancelling ---- */

static void cancel_send(struct sim_socket *sock)
{
	if (sim_one_in(2))
		send_done(sock, -ECANCELED);
	else
		soon(sock->send, sock->connected ? take_send : take_connect, 100 * NS_PER_US);
}

/* What it had taken by then counts. */
static void cancel_recv(struct sim_socket *sock)
{
	if (sock->down.nr > 0 && !sim_one_in(4)) {
		sim_saw(FAULT_NET_CANCELLED_RECEIVE);
		receive(sock);
	} else if (sim_one_in(2)) {
		recv_done(sock, -ECANCELED);
	} else {
		soon(sock->recv, take_recv, 100 * NS_PER_US);
	}
}

static void cancel(struct sim_event *event)
{
	struct sim_op *op = container_of(event, struct sim_op, event);
	struct sim_socket *sock = socket_of(op);
	int nr = (sock->send != NULL) + (sock->recv != NULL);

	if (sock->send)
		cancel_send(sock);
	if (sock->recv)
		cancel_recv(sock);
	sock->cancel_nr--;
	sim_op_done(op, nr > 0 ? nr : -ENOENT);
}

/* ---- the seam ---- */

bool net_knows(uint8_t opcode)
{
	return opcode == IORING_OP_SENDMSG || opcode == IORING_OP_RECV ||
	       opcode == IORING_OP_CONNECT || opcode == IORING_OP_ASYNC_CANCEL;
}

static void keep(struct sim_op **place, struct sim_op *op)
{
	if (*place)
		sim_fail("two SQEs of opcode %u on one socket", op->sqe.opcode);
	*place = op;
}

void net_submit(struct sim_op *op)
{
	struct sim_socket *sock = socket_of(op);

	sock->queue = (int)user_data_queue(op->sqe.user_data);
	switch (op->sqe.opcode) {
	case IORING_OP_CONNECT:
		keep(&sock->send, op);
		soon(op, take_connect, NS_PER_MS);
		/* Nobody answers: until it is cancelled. */
		if (!sock->shut && server_is_lost((const void *)(uintptr_t)op->sqe.addr)) {
			sim_saw(FAULT_NET_UNANSWERED);
			sim_event_cancel(&op->event);
		}
		break;
	case IORING_OP_SENDMSG:
		keep(&sock->send, op);
		soon(op, take_send, 100 * NS_PER_US);
		break;
	case IORING_OP_RECV:
		keep(&sock->recv, op);
		judge_looked(sock);
		if (sock->down.nr > 0 || sock->over || sock->shut)
			soon(op, take_recv, 100 * NS_PER_US);
		break;
	default:
		if (op->sqe.cancel_flags != (IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL))
			sim_fail("a cancel with flags %x", op->sqe.cancel_flags);
		sock->cancel_nr++;
		soon(op, cancel, 100 * NS_PER_US);
	}
}

int ring_socket(int family)
{
	enum sim_side side = sim_cross(SIM_WORLD);
	struct sim_socket *sock = NULL;
	int ret = -EMFILE;

	sim_kill_point();
	if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
		sim_fail("a socket of family %d", family);
	if (!sim_fault(FAULT_NET_SOCKET)) {
		sock = calloc(1, sizeof(*sock));
		*sock = (struct sim_socket){
			.fd = SIM_FD_BASE + (int)model.next_fd++,
			.queue = -1,
			.window_bytes = (size_t)sim_skewed(4096, MIB(1)),
		};
		list_push_back(&sockets, &sock->node);
		ret = sock->fd;
	}
	sim_cross(side);
	return ret;
}

int ring_connect_unix(int fd, const struct sockaddr *address, socklen_t address_bytes)
{
	enum sim_side side = sim_cross(SIM_WORLD);
	int ret;

	(void)address_bytes;
	sim_kill_point();
	ret = reach(find(fd), address);
	sim_kill_point();
	sim_cross(side);
	return ret;
}

void ring_shutdown(int fd)
{
	enum sim_side side = sim_cross(SIM_WORLD);
	struct sim_socket *sock = find(fd);

	sim_trace("net-shutdown", (uint64_t)fd, 0, 0, 0);
	sock->shut = true;
	end(sock, 0);
	wake(sock);
	sim_kill_point();
	sim_cross(side);
}

static void sock_free(struct sim_socket *sock)
{
	if (sim.cut.on && sim.cut.fd == sock->fd)
		memcpy(sim.cut.sent, sock->sent, sizeof(sim.cut.sent));
	end(sock, 0);
	list_remove(&sock->node);
	net_bytes_fini(&sock->up);
	net_bytes_fini(&sock->down);
	net_bytes_fini(&sock->late);
	free(sock);
}

bool net_close(int fd)
{
	struct sim_socket *sock = find(fd);
	enum sim_side side;

	if (!sock)
		return false;
	if (sock->send || sock->recv || sock->cancel_nr > 0)
		sim_fail("a socket is closed with SQEs in flight");
	side = sim_cross(SIM_WORLD);
	sim_trace("net-close", (uint64_t)fd, 0, 0, 0);
	server_closed(sock);
	sock_free(sock);
	sim_kill_point();
	sim_cross(side);
	return true;
}

void net_die(void)
{
	list_for_each_safe (node, next, &sockets) {
		struct sim_socket *sock = list_entry(node, struct sim_socket, node);

		/* Their rings free them. */
		sock->send = sock->recv = NULL;
		sock_free(sock);
	}
}
