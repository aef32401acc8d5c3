/*
 * Devices on a server of NBD: the product's backend. Its question to the server is answered without
 * a network in between (CMakeLists.txt wraps the functions): what goes wrong with a question is for
 * the unit tests of nbd_examine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nbd/nbd.h"
#include "backends/nbd/nbd_examine.h"
#include "storage/registry.h"
#include "test/sim/nbd/nbd_server.h"
#include "test/sim/slot.h"

uint64_t nbd_server_size_bytes(const struct nbd_server *server)
{
	const struct storage *st = server->server.st;

	return server->server.changed ? st->size_bytes + st->block_bytes : st->size_bytes;
}

static uint16_t choose_flags(const struct storage *st)
{
	uint16_t flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES;

	if (st->has_cache)
		flags |= NBD_FLAG_SEND_FLUSH;
	if (st->has_cache && !sim_one_in(3))
		flags |= NBD_FLAG_SEND_FUA;
	if (sim_one_in(2))
		flags |= NBD_FLAG_CAN_MULTI_CONN;
	return flags;
}

static struct nbd_server *create(unsigned idx, struct storage *st)
{
	struct nbd_server *server = calloc(1, sizeof(*server));

	server_init(&server->server, &nbd_server_protocol, idx, st);
	server->no_zeroes = !sim_one_in(4);
	server->has_go = !sim_one_in(8);
	server->has_structured = !sim_one_in(3);
	server->has_extended = sim_one_in(3);
	server->flags = choose_flags(st);
	server->min_block_bytes = 512;
	/* With extended headers there must be GO, and only GO tells of block sizes. */
	server->has_go |= server->has_extended;
	if (server->has_go)
		server->min_block_bytes = sim_one_in(2) ? 1 : st->block_bytes;
	server_start(&server->server);
	return server;
}

static void write_uri(const struct server *server, bool tcp, char *text, size_t text_bytes)
{
	if (tcp)
		snprintf(text, text_bytes, "nbd://127.0.0.1:%u/disk", server_port(server, 0));
	else
		snprintf(text, text_bytes, "nbd+unix:///disk?socket=" SERVER_UNIX_PATH "%u",
			 server->idx);
}

void slot_nbd_init(struct slot *slot)
{
	struct server *server = &create(slot->idx, slot->st)->server;
	char uri[64], waits[128], yaml[256];

	slot->nbd_tcp = sim_one_in(2);
	write_uri(server, slot->nbd_tcp, uri, sizeof(uri));
	slot_server_choose_waits(server, waits, sizeof(waits));
	snprintf(yaml, sizeof(yaml), "uri: '%s'\nconnections: %llu\nreplies: structured\n%s", uri,
		 (unsigned long long)(sim.cut.on ? 1 : sim_between(1, 3)), waits);
	slot->config = sim_parse_options(&backend_nbd, yaml);
}

/* Handshake of a client and a server without a network between them. */
static void ask(struct server *server, struct nbd_export *ret_export)
{
	static struct nbd_handshake h;
	struct nbd_handshake_config config = { .mode = NBD_HANDSHAKE_GO,
					       .export_name = "disk",
					       .no_meta = true };
	struct server_conn *conn = nbd_server_protocol.accept(server, NULL);
	const uint8_t *said;
	size_t bytes, used;

	nbd_handshake_init(&h, &config);
	while (h.step == NBD_HANDSHAKE_MORE && conn->out.nr > 0) {
		nbd_handshake_feed(&h, net_bytes_at(&conn->out), conn->out.nr, &used);
		net_bytes_drop(&conn->out, used);
		bytes = nbd_handshake_output(&h, &said);
		if (bytes > 0)
			server_conn_hears(conn, said, bytes);
		nbd_handshake_sent(&h, bytes);
	}
	if (h.step != NBD_HANDSHAKE_DONE)
		sim_fail("a probe ends with \"%s\"", h.error);
	*ret_export = h.export;
	server_conn_lost(conn);
}

/* Of the device that is opened next. */
static struct nbd_export found;

int __wrap_nbd_examine_begin(struct nbd_examine **ret_examine, struct reactor *reactor,
			     const struct nbd_examine_params *params, nbd_examine_fn *fn,
			     void *arg);

int __wrap_nbd_examine_begin(struct nbd_examine **ret_examine, struct reactor *reactor,
			     const struct nbd_examine_params *params, nbd_examine_fn *fn, void *arg)
{
	(void)ret_examine, (void)reactor, (void)params;
	fn(arg, 0, &found, "");
	return 0;
}

void slot_nbd_begin(struct slot *slot, bool anew)
{
	struct server *server = slot->st->server;

	server_begin(server, anew);
	server->filtered = slot->filters.nr > 0;
	found = (struct nbd_export){ 0 };
	ask(server, &found);
	slot_server_found(server, slot->nbd_tcp, slot->nbd_tcp ? (unsigned)sim_between(1, 2) : 1);
}
