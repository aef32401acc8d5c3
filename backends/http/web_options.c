/* What the user can say about a server, whatever kind of object it has. Constant data; any thread.
 */
#include <limits.h>

#include "backends/http/web.h"

const struct option web_options[] = {
	{ .name = "ca_file",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct web_config, ca_file),
	  .min = 1,
	  .max = PATH_MAX - 1,
	  .help = "File with the certificates (PEM) of those whom we trust to say who a server is. "
		  "Default: the certificate authorities of the system." },
	{ .name = "verify_peer",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct web_config, verify_peer),
	  .def = "true",
	  .help = "false: accept any certificate, so that any server can impersonate yours." },
	{ .name = "connections",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct web_config, connections),
	  .min = 1,
	  .max = WEB_CONNECTIONS_MAX,
	  .def = "8",
	  .help = "Requests to the server at a time, per queue. Each has a connection of its own "
		  "where the server does not speak HTTP/2." },
	{ .name = "request_max",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct web_config, request_max_bytes),
	  .min = WEB_REQUEST_BYTES_MIN,
	  .max = WEB_REQUEST_BYTES_MAX,
	  .flags = OPTION_POWER_OF_TWO,
	  .def = "1MiB",
	  .help = "Reads that wait and are next to each other are asked for together, up to so "
		  "much." },
	{ .type = OPTION_GROUP,
	  .offset = offsetof(struct web_config, outage),
	  .table = net_outage_options },
	OPTION_END,
};
