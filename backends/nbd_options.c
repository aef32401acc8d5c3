/* What the user can say about an NBD server. Main thread. */
#include <string.h>

#include "backends/nbd.h"

static const char *const cache_values[] = {
	[NBD_CACHE_VOLATILE] = "volatile", [NBD_CACHE_KEPT] = "kept", NULL
};

const struct option nbd_options[] = {
	{ .name = "uri",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct nbd_config, uri),
	  .min = 1,
	  .max = NBD_URI_BYTES_MAX,
	  .flags = OPTION_REQUIRED,
	  .help = "The server and its export: nbd://HOST[:PORT]/EXPORT, "
		  "nbd+unix:///EXPORT?socket=PATH or nbd+vsock://CID[:PORT]/EXPORT; nbds instead "
		  "of "
		  "nbd is with TLS (tls-psk-file, tls-username, tls-certificates, tls-hostname, "
		  "tls-verify-peer, tls-type say how)." },
	{ .name = "connections",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct nbd_config, connections),
	  .min = 1,
	  .max = NBD_CONNECTIONS_MAX,
	  .def = "1",
	  .help = "Connections of each queue. A server whose exports cannot have several at a time "
		  "(no multi-conn) is served by one queue and one connection." },
	{ .name = "on_disconnect",
	  .type = OPTION_PATIENCE,
	  .offset = offsetof(struct nbd_config, patience_ns),
	  .def = "{queue: 30s}",
	  .help = "What becomes of requests while the server is gone: with {queue: TIME} they wait "
		  "so "
		  "long, then they fail until it is back; with forever they wait; with fail they "
		  "fail "
		  "at once. Unanswered ones are sent again." },
	{ .name = "timeout",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct nbd_config, timeout_ns),
	  .min = 10 * NS_PER_MS,
	  .def = "10s",
	  .help = "A server that does not answer a request for so long, or takes so long to "
		  "connect "
		  "or to greet, is given up and connected to again." },
	{ .name = "cache",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct nbd_config, cache),
	  .values = cache_values,
	  .def = "volatile",
	  .help = "What becomes of writes that the server has acknowledged and not yet flushed "
		  "when "
		  "its connection is lost. volatile: they may be gone, so the next flush fails. "
		  "kept: "
		  "they are not lost when the server is, as with a server of files on a machine "
		  "that "
		  "goes on." },
	OPTION_END,
};

void nbd_check(const void *config, const struct yaml_node *map, struct config_errors *e)
{
	const struct nbd_config *nbd = config;
	const struct yaml_node *node = yaml_get(map, "uri");
	struct config_pos pos = node ? node->pos : map ? map->pos : (struct config_pos){ 0 };
	struct nbd_uri_error error;
	struct nbd_uri *uri = malloc(sizeof(*uri));

	if (!uri || !nbd->uri)
		config_errors_add(e, pos, "uri: out of memory");
	else if (nbd_uri_parse(nbd->uri, uri, &error) < 0)
		config_errors_add(e, pos, "uri: at its character %zu: %s", error.column,
				  error.text);
	free(uri);
}
