/* Tables of options of any backend with a server. Constant data; any thread. */
#include "net/options.h"

#include <limits.h>

#include "base/util.h"

const struct option net_outage_options[] = {
	{ .name = "on_disconnect",
	  .type = OPTION_OUTAGE_TIMEOUT,
	  .offset = offsetof(struct net_outage_config, outage_timeout_ns),
	  .def = "{queue: 30s}",
	  .help = "What happens to requests while the server is away. {queue: TIME}: they wait "
		  "for TIME, then they fail until the server is back. forever: they wait. fail: "
		  "they fail at once. Requests that the server did not answer are sent again." },
	{ .name = "timeout",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct net_outage_config, timeout_ns),
	  .min = 10 * NS_PER_MS,
	  .def = "10s",
	  .help = "If the server does not answer a request within this time, or does not connect "
		  "or complete the handshake, the client closes the connection and reconnects." },
	OPTION_END,
};

uint64_t net_outage_grant_ns(const struct net_outage_config *outage, uint64_t wish_ns)
{
	uint64_t limit_ns = outage->outage_timeout_ns;
	uint64_t grant_ns = limit_ns ? MIN(limit_ns / 2, NET_WISH_NS_MAX) : NS_PER_SEC;

	return MIN(wish_ns, grant_ns);
}

const struct option net_fail_fast_options[] = {
	{ .name = "failfast",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct net_outage_config, fail_fast),
	  .def = "no",
	  .help = "yes: a request that the kernel marks as failfast (from dm-multipath, from md "
		  "with failfast, and all read-ahead) does not wait while the server is away: it "
		  "fails at once with a transport error. no: it waits as all others do." },
	OPTION_END,
};

static const char *const net_tls_types[] = { [NET_TLS_AUTO] = "auto",
					     [NET_TLS_ANON] = "anon",
					     [NET_TLS_X509] = "x509",
					     [NET_TLS_PSK] = "psk",
					     NULL };

/* In the words of nbdkit, libnbd and the NBD URI. */
const struct option net_tls_options[] = {
	{ .name = "psk_file",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct net_tls_config, psk_file),
	  .min = 1,
	  .max = PATH_MAX - 1,
	  .help = "File with pre-shared keys of users, as psktool writes it. Only owner and "
		  "group may have access to it." },
	{ .name = "username",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct net_tls_config, username),
	  .min = 1,
	  .max = 255,
	  .help = "The user whose key in psk_file is used." },
	{ .name = "certificates",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct net_tls_config, certificates),
	  .min = 1,
	  .max = PATH_MAX - 1,
	  .help = "Folder with ca-cert.pem and optionally ca-crl.pem, client-cert.pem and "
		  "client-key.pem. Default: the certificate authorities of the system." },
	{ .name = "hostname",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct net_tls_config, hostname),
	  .min = 1,
	  .max = 255,
	  .help = "The name or address that the server's certificate must be valid for. Default: "
		  "the host of the URI." },
	{ .name = "verify_peer",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct net_tls_config, verify_peer),
	  .def = "true",
	  .help = "false: accept any certificate, so that any server can impersonate yours." },
	{ .name = "type",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct net_tls_config, type),
	  .values = net_tls_types,
	  .def = "auto",
	  .help = "auto: psk if there is a psk_file, else x509. anon authenticates nobody: an "
		  "attacker on the network path can read and change the data." },
	OPTION_END,
};
