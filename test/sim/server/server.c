/*
 * Servers and their media. A medium is the storage's `medium` with `stable` behind it: what a write
 * does is in the first, a flush or FUA brings it to the second, and a death may leave no more than
 * that. What was lost so is noted in the storage, for reads and for the FLUSH that must fail.
 *
 * Faults: it dies, is away for a while (and says so, or does not even do that), reads nothing for a
 * while, or comes back as another one.
 */
#include "test/sim/server/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define SERVER_NR_MAX 16
#define PORT 20000
#define FATE_NS_MAX (10 * NS_PER_SEC)
#define AWAY_NS_MAX (40 * NS_PER_SEC)
/* Beyond what requests wait, on the way to it and with it. */
#define MUTE_NS (10 * NS_PER_SEC)

static struct server *servers[SERVER_NR_MAX];

/* ---- where it is ---- */

unsigned server_port(const struct server *server, unsigned nr)
{
	return PORT + server->idx + nr * SERVER_NR_MAX;
}

socklen_t server_address(const struct server *server, bool tcp, unsigned nr,
			 struct sockaddr_storage *ret_name)
{
	struct sockaddr_in *in = (void *)ret_name;
	struct sockaddr_un *un = (void *)ret_name;

	*ret_name = (struct sockaddr_storage){ .ss_family = tcp ? AF_INET : AF_UNIX };
	if (tcp) {
		in->sin_port = htons((uint16_t)server_port(server, nr));
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return sizeof(*in);
	}
	snprintf(un->sun_path, sizeof(un->sun_path), SERVER_UNIX_PATH "%u", server->idx);
	return sizeof(*un);
}

static struct server *find(const struct sockaddr *address, unsigned *ret_nr)
{
	unsigned idx = SERVER_NR_MAX;

	*ret_nr = 0;
	if (address->sa_family == AF_INET) {
		idx = ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port) - PORT;
		*ret_nr = idx / SERVER_NR_MAX;
		idx %= SERVER_NR_MAX;
	} else {
		sscanf(((const struct sockaddr_un *)(const void *)address)->sun_path,
		       SERVER_UNIX_PATH "%u", &idx);
	}
	if (idx >= SERVER_NR_MAX || !servers[idx] || *ret_nr >= servers[idx]->address_nr)
		return NULL;
	return servers[idx];
}

bool server_is_lost(const struct sockaddr *address)
{
	unsigned nr;
	const struct server *server = find(address, &nr);

	return server && server->down && server->lost;
}

int server_accept(const struct sockaddr *address, struct sim_socket *sock,
		  struct server_conn **ret_conn)
{
	struct server *server = find(address, &sock->address_nr);

	if (!server)
		return -ECONNREFUSED;
	if (server->down && address->sa_family == AF_UNIX && sim_one_in(4))
		return sim_one_in(2) ? -ENOENT : -EAGAIN;
	if (server->down)
		return -ECONNREFUSED;
	sock->server = server;
	sock->life = server->life;
	*ret_conn = server->protocol->accept(server, sock);
	return 0;
}

/* ---- its medium ---- */

static void keep(struct server *server, uint64_t block)
{
	const struct storage *st = server->st;

	memcpy(server->stable + block * st->block_bytes, st->medium + block * st->block_bytes,
	       st->block_bytes);
}

static void done(struct server *server, uint64_t offset_bytes, uint32_t bytes, bool fua)
{
	struct storage *st = server->st;

	storage_dirty(st, offset_bytes, bytes);
	if (st->has_cache && !fua)
		return;
	storage_clean(st, offset_bytes, bytes);
	for (uint64_t at = offset_bytes; at < offset_bytes + bytes; at += st->block_bytes)
		keep(server, at / st->block_bytes);
}

void server_write(struct server *server, uint64_t offset_bytes, const uint8_t *data, uint32_t bytes,
		  bool fua)
{
	memcpy(server->st->medium + offset_bytes, data, bytes);
	done(server, offset_bytes, bytes, fua);
}

void server_fill(struct server *server, uint64_t offset_bytes, uint8_t value, uint32_t bytes,
		 bool fua)
{
	memset(server->st->medium + offset_bytes, value, bytes);
	done(server, offset_bytes, bytes, fua);
}

void server_flush(struct server *server, uint64_t before_seq)
{
	struct storage *st = server->st;

	for (uint64_t i = 0; i < st->block_nr; i++)
		if (st->dirty_seq[i] != 0 && st->dirty_seq[i] < before_seq && !st->gone[i])
			keep(server, i);
	storage_flush(st, before_seq);
}

/* A cache is written back in any order: some of it may have been. */
static void lose_cache(struct server *server)
{
	struct storage *st = server->st;
	bool all = sim_one_in(2);

	for (uint64_t i = 0; i < st->block_nr; i++) {
		if (st->dirty_seq[i] == 0 || st->gone[i])
			continue;
		if (all || sim_one_in(2)) {
			memcpy(st->medium + i * st->block_bytes,
			       server->stable + i * st->block_bytes, st->block_bytes);
			/* A client that has not been there yet cannot know of it. */
			st->gone[i] = server->was_up ? STORAGE_LOST : STORAGE_LOST_TOLD;
			sim_saw(FAULT_NET_CACHE_LOST);
		} else {
			keep(server, i);
			st->dirty_seq[i] = 0;
		}
	}
}

/* ---- its lives ---- */

static void come_back(struct sim_event *event)
{
	struct server *server = container_of(event, struct server, back);

	server->down = false;
	sim_trace("server-back", server->idx, 0, 0, 0);
}

static void hang_up_all(struct server *server)
{
	int err = sim_one_in(2) ? 0 : -ECONNRESET;

	while (!list_empty(&server->conns))
		net_hang_up(list_entry(server->conns.next, struct server_conn, node)->sock, err);
}

void server_die(struct server *server)
{
	/* Not so long that requests fail where none may. */
	uint64_t max_ns = sim.cut.on ? NS_PER_SEC : AWAY_NS_MAX;

	sim_trace("server-dies", server->idx, 0, 0, 0);
	sim_saw(FAULT_NET_DEATH);
	hang_up_all(server);
	if (!server->cache_kept)
		lose_cache(server);
	server->silent_until_ns = 0;
	server->down = true;
	server->lost = sim_one_in(2);
	sim_event_arm(&server->back, sim.now_ns + sim_skewed(100 * NS_PER_US, max_ns), come_back);
}

static void fate(struct sim_event *event)
{
	struct server *server = container_of(event, struct server, fate);

	sim_event_arm(event, sim.now_ns + sim_skewed(NS_PER_MS, FATE_NS_MAX), fate);
	if (server->down)
		return;
	if (sim_fault(FAULT_NET_DIES)) {
		server_die(server);
	} else if (sim_fault(FAULT_NET_SILENT)) {
		server->silent_until_ns =
			sim.now_ns + sim_skewed(NS_PER_MS, 3 * server->timeout_ns);
	} else if (sim_fault(FAULT_NET_CHANGED)) {
		server->changed = true;
		hang_up_all(server);
	}
	/* Planted: what nobody can see. */
	if (server->was_up && sim_defect_always(DEFECT_LOST_CACHE))
		lose_cache(server);
}

bool server_is_mute(const struct server *server)
{
	return sim.now_ns < server->mute_until_ns;
}

/* Where requests wait for a time, often so long that none may have gone on waiting. */
void server_fall_mute(struct server *server)
{
	uint64_t max_ns = 3 * server->timeout_ns;

	if (server->outage_timeout_ns != 0 && server->outage_timeout_ns != UINT64_MAX)
		max_ns += 2 * server->outage_timeout_ns + MUTE_NS;
	server->mute_until_ns =
		sim.now_ns + (sim_one_in(2) ? max_ns : sim_skewed(NS_PER_MS, max_ns));
	server->mute_hangs_up = sim_one_in(2);
}

void server_begin(struct server *server, bool anew)
{
	struct storage *st = server->st;

	sim_event_cancel(&server->back);
	server->down = server->changed = false;
	server->silent_until_ns = server->mute_until_ns = 0;
	/* A device is not told what happened to those before it; docs/nbd.md and docs/nvme-tcp.md
	 * say that. */
	for (uint64_t i = 0; i < st->block_nr; i++) {
		if (st->gone[i])
			st->gone[i] = STORAGE_LOST_TOLD;
		if (anew)
			st->acked_seq[i] = 0;
	}
	judge_begin(server);
}

/* ---- the beginning and the end ---- */

void server_init(struct server *server, const struct server_protocol *protocol, unsigned idx,
		 struct storage *st)
{
	st->has_cache = sim.cut.on || sim.defect != DEFECT_NONE || !sim_one_in(4);
	st->medium = calloc(1, st->max_bytes);
	st->gone = calloc(1, st->max_block_nr);
	st->server = server;
	*server = (struct server){
		.protocol = protocol,
		.idx = idx,
		.address_nr = 1,
		.st = st,
		.stable = calloc(1, st->max_bytes),
	};
	list_init(&server->conns);
}

void server_start(struct server *server)
{
	servers[server->idx] = server;
	sim_event_arm(&server->fate, sim.now_ns + sim_skewed(NS_PER_MS, FATE_NS_MAX), fate);
}

void server_destroy(struct server *server)
{
	if (!server)
		return;
	sim_event_cancel(&server->fate);
	sim_event_cancel(&server->back);
	if (server->protocol->fini)
		server->protocol->fini(server);
	servers[server->idx] = NULL;
	free(server->stable);
	free(server);
}
