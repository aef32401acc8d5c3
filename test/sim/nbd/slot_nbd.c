/*
 * Devices on a server of NBD: the product's backend. Its question to the server is answered without
 * a network in between (CMakeLists.txt wraps two functions): what goes wrong with a question is for
 * the unit tests of nbd_examine.
 */
#include <stdio.h>
#include <string.h>

#include "backends/nbd/nbd.h"
#include "backends/nbd/nbd_examine.h"
#include "storage/registry.h"
#include "test/sim/nbd/nbd_server.h"
#include "test/sim/slot.h"

static uint64_t choose_outage_timeout(char *yaml, size_t yaml_bytes)
{
	static const struct {
		const char *yaml;
		uint64_t ns;
	} some[] = {
		{ "{queue: 30s}", 30 * NS_PER_SEC },
		{ "{queue: 1s}", NS_PER_SEC },
		{ "forever", UINT64_MAX },
		{ "fail", 0 },
	};
	/* Where all else goes well nothing may fail. */
	size_t i = sim.cut.on ? 0 : sim_below(ARRAY_SIZE(some));

	if (sim.defect == DEFECT_IMPATIENT || sim.defect == DEFECT_PATIENT) {
		snprintf(yaml, yaml_bytes, "%s",
			 sim.defect == DEFECT_PATIENT ? "forever" : "{queue: 500ms}");
		return NS_PER_SEC;
	}
	snprintf(yaml, yaml_bytes, "%s", some[i].yaml);
	return some[i].ns;
}

void slot_nbd_init(struct slot *slot)
{
	struct nbd_server *server = nbd_server_create(slot->idx, slot->st);
	char uri[64], outage_timeout[32], yaml[256];

	slot->nbd_tcp = sim_one_in(2);
	nbd_server_uri(server, slot->nbd_tcp, uri, sizeof(uri));
	server->outage_timeout_ns = choose_outage_timeout(outage_timeout, sizeof(outage_timeout));
	server->timeout_ns = sim.cut.on ? 10 * NS_PER_SEC : sim_skewed(50, 10000) * NS_PER_MS;
	server->cache_kept = sim.defect == DEFECT_NONE && sim_one_in(4);
	snprintf(yaml, sizeof(yaml),
		 "uri: '%s'\nconnections: %llu\non_disconnect: %s\ntimeout: %llums\ncache: %s\n"
		 "replies: structured\n",
		 uri, (unsigned long long)(sim.cut.on ? 1 : sim_between(1, 3)), outage_timeout,
		 (unsigned long long)(server->timeout_ns / NS_PER_MS),
		 server->cache_kept ? "kept" : "volatile");
	slot->config = sim_parse_options(&backend_nbd, yaml);
}

/* Handshake of a client and a server without a network between them. */
static void ask(struct nbd_server *server, struct nbd_export *ret_export)
{
	static struct nbd_handshake h;
	struct nbd_handshake_config config = { .mode = NBD_HANDSHAKE_GO,
					       .export_name = "disk",
					       .no_meta = true };
	struct nbd_conn *conn = nbd_conn_create(server, NULL);
	const uint8_t *said;
	size_t bytes, used;

	nbd_handshake_init(&h, &config);
	while (h.step == NBD_HANDSHAKE_MORE && conn->out.nr > 0) {
		nbd_handshake_feed(&h, net_bytes_at(&conn->out), conn->out.nr, &used);
		net_bytes_drop(&conn->out, used);
		bytes = nbd_handshake_output(&h, &said);
		if (bytes > 0)
			nbd_conn_hears(conn, said, bytes);
		nbd_handshake_sent(&h, bytes);
	}
	if (h.step != NBD_HANDSHAKE_DONE)
		sim_fail("a probe ends with \"%s\"", h.error);
	*ret_export = h.export;
	nbd_conn_lost(conn);
}

/* Of the device that is opened next. */
static struct nbd_found found;

int __wrap_net_host_find(const struct net_host *host, struct net_addresses *ret_addresses,
			 char *error, size_t error_bytes);
int __wrap_nbd_examine_begin(struct nbd_examine **ret_examine, struct reactor *reactor,
			     const struct nbd_examine_params *params, nbd_examine_fn *fn,
			     void *arg);

int __wrap_net_host_find(const struct net_host *host, struct net_addresses *ret_addresses,
			 char *error, size_t error_bytes)
{
	(void)host, (void)error, (void)error_bytes;
	*ret_addresses = found.addresses;
	return 0;
}

int __wrap_nbd_examine_begin(struct nbd_examine **ret_examine, struct reactor *reactor,
			     const struct nbd_examine_params *params, nbd_examine_fn *fn, void *arg)
{
	(void)ret_examine, (void)reactor, (void)params;
	fn(arg, 0, &found.export, "");
	return 0;
}

void slot_nbd_begin(struct slot *slot, bool anew)
{
	struct nbd_server *server = slot->st->server;

	nbd_server_begin(server, anew);
	server->filtered = slot->filters.nr > 0;
	found = (struct nbd_found){ 0 };
	ask(server, &found.export);
	found.addresses.nr = slot->nbd_tcp ? (unsigned)sim_between(1, 2) : 1;
	for (unsigned i = 0; i < found.addresses.nr; i++) {
		struct net_address *a = &found.addresses.address[i];

		a->bytes = nbd_server_address(server, slot->nbd_tcp, i, &a->name);
	}
}
