/* What the user can say about an NBD server. Main thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nbd/nbd.h"
#include "backends/nbd/nbd_credentials.h"
#include "base/util.h"
#include "storage/word.h"

#define NO_TLS "its URI says no TLS: the scheme must be nbds, nbds+unix or nbds+vsock"

static const char *const replies_values[] = { [NBD_REPLIES_AUTO] = "auto",
					      [NBD_REPLIES_FEWEST] = "simple",
					      [NBD_REPLIES_MOST] = "structured",
					      NULL };

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
		  "nbd+unix:///EXPORT?socket=PATH or nbd+vsock://CID[:PORT]/EXPORT. nbds instead "
		  "of nbd uses TLS. QEMU's nbd:HOST:PORT and nbd:unix:PATH, with "
		  ":exportname=EXPORT behind them as one likes, are the same without TLS." },
	{ .name = "tls",
	  .type = OPTION_MAP,
	  .offset = offsetof(struct nbd_config, tls),
	  .table = net_tls_options,
	  .table_bytes = sizeof(struct net_tls_config),
	  .help = "TLS settings for nbds. Each may be in the URI instead (tls-psk-file, USER@ "
		  "before the host, tls-certificates, tls-hostname, tls-verify-peer, tls-type), "
		  "but not in both." },
	{ .name = "connections",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct nbd_config, connections),
	  .min = 1,
	  .max = NBD_CONNECTIONS_MAX,
	  .def = "1",
	  .help = "Connections per queue. If the export does not allow several connections at a "
		  "time (no multi-conn), the device has one queue and one connection." },
	{ .type = OPTION_GROUP,
	  .offset = offsetof(struct nbd_config, outage),
	  .table = net_outage_options },
	{ .type = OPTION_GROUP,
	  .offset = offsetof(struct nbd_config, outage),
	  .table = net_fail_fast_options },
	{ .name = "replies",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct nbd_config, replies),
	  .values = replies_values,
	  .def = "auto",
	  .help = "The format of replies, if the server supports it. structured (or extended): "
		  "holes in the export are not sent as zeroes. simple: less work for each READ, "
		  "mainly for the server. auto: simple for a server on this machine (a unix "
		  "socket, a loopback address), else structured." },
	{ .name = "cache",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct nbd_config, cache),
	  .values = cache_values,
	  .def = "volatile",
	  .help = "What a lost connection means for writes that the server has acknowledged but "
		  "not yet flushed. volatile: they may be lost, so the next flush fails. kept: "
		  "they survive the server, for example a server of files on a machine that "
		  "keeps running." },
	OPTION_END,
};

/* Those of nbd_uri.c. */
static const char *const uri_schemes[] = { "nbd",	"nbds",	      "nbd+unix", "nbds+unix",
					   "nbd+vsock", "nbds+vsock", "nbd:",	  NULL };

const struct backend_uri nbd_backend_uri = { .option = &nbd_options[0], .schemes = uri_schemes };

static void uri_put_text(char *field, size_t bytes, const char *text)
{
	if (text)
		snprintf(field, bytes, "%s", text);
}

static void add_tls(struct nbd_uri *uri, const struct net_tls_config *tls)
{
	uri_put_text(uri->tls_psk_file, sizeof(uri->tls_psk_file), tls->psk_file);
	uri_put_text(uri->username, sizeof(uri->username), tls->username);
	uri_put_text(uri->tls_certificates, sizeof(uri->tls_certificates), tls->certificates);
	uri_put_text(uri->tls_hostname, sizeof(uri->tls_hostname), tls->hostname);
	if (tls->type != NET_TLS_AUTO)
		uri->tls_type = (enum net_tls_type)tls->type;
	uri->tls_no_verify |= !tls->verify_peer;
}

int nbd_config_uri(const struct nbd_config *config, struct nbd_uri *ret_uri, char *error,
		   size_t error_bytes)
{
	struct nbd_uri_error e;

	if (nbd_uri_parse(config->uri, ret_uri, &e) < 0) {
		snprintf(error, error_bytes, "nbd: uri: %s", e.text);
		return -EINVAL;
	}
	if (!config->tls)
		return 0;
	if (!ret_uri->tls) {
		snprintf(error, error_bytes, "nbd: tls: %s", NO_TLS);
		return -EINVAL;
	}
	add_tls(ret_uri, config->tls);
	return 0;
}

/* What stands in both places, even when it is the same. */
static void check_twice(const struct nbd_uri *uri, const struct yaml_node *tls,
			struct config_errors *e)
{
	static const struct {
		const char *name;
		enum nbd_uri_key key;
	} both[] = {
		{ "psk_file", NBD_URI_TLS_PSK_FILE },	      { "username", NBD_URI_TLS_USERNAME },
		{ "certificates", NBD_URI_TLS_CERTIFICATES }, { "hostname", NBD_URI_TLS_HOSTNAME },
		{ "verify_peer", NBD_URI_TLS_VERIFY_PEER },   { "type", NBD_URI_TLS_TYPE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(both); i++) {
		const struct yaml_node *node = yaml_get(tls, both[i].name);

		if (node && !yaml_is_null(node) && (uri->said & 1u << both[i].key))
			config_errors_add(
				e, node->pos, "tls: %s: the URI has it too, as %s%s: say it once",
				both[i].name, nbd_uri_key_name(both[i].key),
				both[i].key == NBD_URI_TLS_USERNAME ? " or before @" : "");
	}
}

static void check_tls(const struct nbd_config *config, struct nbd_uri *uri,
		      const struct yaml_node *map, struct config_pos pos, struct config_errors *e)
{
	const struct yaml_node *tls = yaml_get(map, "tls");
	size_t before_nr = e->nr + e->dropped_nr;
	const char *missing;

	if (config->tls && !uri->tls) {
		config_errors_add(e, tls ? tls->pos : pos, "tls: %s", NO_TLS);
		return;
	}
	check_twice(uri, tls, e);
	if (config->tls)
		add_tls(uri, config->tls);
	missing = nbd_credentials_missing(uri);
	if (missing && e->nr + e->dropped_nr == before_nr)
		config_errors_add(e, tls ? tls->pos : pos, "%s", missing);
}

void nbd_check(const void *config, const struct yaml_node *map, struct config_errors *e)
{
	const struct nbd_config *nbd = config;
	struct config_pos pos = yaml_pos(map, "uri");
	struct nbd_uri_error error;
	struct nbd_uri *uri = malloc(sizeof(*uri));

	if (!uri || !nbd->uri)
		config_errors_add(e, pos, "uri: out of memory");
	else if (nbd_uri_parse(nbd->uri, uri, &error) < 0)
		config_errors_add(e, pos, "uri: at its character %zu: %s", error.column,
				  error.text);
	else
		check_tls(nbd, uri, map, pos, e);
	free(uri);
}
