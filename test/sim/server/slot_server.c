/* What the devices on a server have in common, whichever protocol it speaks. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "net/address.h"
#include "test/sim/server/server.h"

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

void slot_server_choose_waits(struct server *server, char *yaml, size_t yaml_bytes)
{
	char outage_timeout[32];

	server->outage_timeout_ns = choose_outage_timeout(outage_timeout, sizeof(outage_timeout));
	server->timeout_ns = sim.cut.on ? 10 * NS_PER_SEC : sim_skewed(50, 10000) * NS_PER_MS;
	/* Where each connection is cut a FLUSH has something to lose. */
	server->cache_kept = sim.defect == DEFECT_NONE && sim_one_in(4) && !sim.cut.on;
	snprintf(yaml, yaml_bytes, "on_disconnect: %s\ntimeout: %llums\ncache: %s\n",
		 outage_timeout, (unsigned long long)(server->timeout_ns / NS_PER_MS),
		 server->cache_kept ? "kept" : "volatile");
}

/* Of the device that is opened next. */
static struct net_addresses found;

void slot_server_found(const struct server *server, bool tcp, unsigned address_nr)
{
	found = (struct net_addresses){ .nr = address_nr };
	for (unsigned i = 0; i < address_nr; i++) {
		struct net_address *a = &found.address[i];

		a->bytes = server_address(server, tcp, i, &a->name);
	}
}

int __wrap_net_host_find(const struct net_host *host, struct net_addresses *ret_addresses,
			 char *error, size_t error_bytes);

int __wrap_net_host_find(const struct net_host *host, struct net_addresses *ret_addresses,
			 char *error, size_t error_bytes)
{
	struct sockaddr_in *in = (void *)&found.address[0].name;

	(void)error, (void)error_bytes;
	/* One of several paths. */
	if (host->kind == NET_TCP)
		in->sin_port = htons((uint16_t)host->port);
	*ret_addresses = found;
	return 0;
}
