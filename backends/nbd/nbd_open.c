/*
 * Opening an export: what the server says of it becomes the device's limits. Owns the parsed URI
 * and the TLS credentials. Any thread, at open and close.
 *
 * Happy path: nbd_ask (elsewhere, it waits) finds the addresses and the export, nbd_open makes
 * limits of that; without it nbd_open asks by itself and waits. No connection is kept.
 * Failure modes: each in words: no such server, no such export, one that does not allow what was
 * configured.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nbd/nbd.h"
#include "backends/nbd/nbd_credentials.h"
#include "backends/nbd/nbd_examine.h"
#include "base/log.h"
#include "base/util.h"

static bool wants_simple(const struct nbd_config *config, const struct net_addresses *addresses)
{
	if (config->replies == NBD_REPLIES_AUTO)
		return net_address_is_local(&addresses->address[0]);
	return config->replies == NBD_REPLIES_FEWEST;
}

static int nbd_examine_export(const struct nbd_config *config, const struct nbd_uri *uri,
			      struct nbd_found *found, char *error, size_t error_bytes)
{
	struct nbd_handshake_config wish = { .mode = NBD_HANDSHAKE_GO,
					     .export_name = uri->export_name,
					     .no_meta = true };
	struct tls_credentials *tls = NULL;
	int ret = nbd_credentials_new(uri, &tls, error, error_bytes);

	if (ret == 0)
		ret = net_host_find(&uri->server, &found->addresses, error, error_bytes);
	if (ret == 0) {
		found->simple = wants_simple(config, &found->addresses);
		wish.no_structured = wish.no_extended = found->simple;
		ret = nbd_examine_wait(uri, tls, &wish, config->timeout_ns, &found->export, error,
				       error_bytes);
	}
	tls_credentials_free(tls);
	return ret;
}

int nbd_ask(const void *config, void **ret_found, char *error, size_t error_bytes)
{
	const struct nbd_config *nbd = config;
	struct nbd_uri *uri = malloc(sizeof(*uri));
	struct nbd_found *found = calloc(1, sizeof(*found));
	int ret = uri && found ? nbd_config_uri(nbd, uri, error, error_bytes) : -ENOMEM;

	if (ret == -ENOMEM)
		snprintf(error, error_bytes, "nbd: out of memory");
	if (ret == 0)
		ret = nbd_examine_export(nbd, uri, found, error, error_bytes);
	free(uri);
	if (ret == 0)
		*ret_found = found;
	else
		free(found);
	return ret;
}

static uint32_t caps_of(const struct nbd_export *export)
{
	static const struct {
		uint16_t flag;
		uint32_t cap;
	} of[] = { { NBD_FLAG_SEND_FLUSH, BACKEND_CAP_FLUSH },
		   { NBD_FLAG_SEND_FUA, BACKEND_CAP_FUA },
		   { NBD_FLAG_SEND_TRIM, BACKEND_CAP_DISCARD },
		   { NBD_FLAG_SEND_WRITE_ZEROES, BACKEND_CAP_WRITE_ZEROES },
		   { NBD_FLAG_READ_ONLY, BACKEND_CAP_READ_ONLY },
		   { NBD_FLAG_ROTATIONAL, BACKEND_CAP_ROTATIONAL } };
	uint32_t caps = 0;

	for (size_t i = 0; i < ARRAY_SIZE(of); i++)
		caps |= export->flags & of[i].flag ? of[i].cap : 0;
	return caps;
}

/* Requests of all kinds are whole blocks, so that the server's smallest block must be one of ours.
 */
static void fill_limits(struct backend_device *device, const struct nbd_export *export)
{
	struct nbd_device *nbd = device->priv;
	uint32_t block_bytes = MAX(export->min_block_bytes, 512u);
	bool several = export->flags & NBD_FLAG_CAN_MULTI_CONN;

	device->limits = (struct backend_limits){
		.size_bytes = export->size_bytes - export->size_bytes % block_bytes,
		.caps = caps_of(export),
		.logical_block_bytes = block_bytes,
		.io_opt_bytes = export->has_block_sizes ? export->preferred_block_bytes : 0,
		.max_io_bytes = export->max_payload_bytes - export->max_payload_bytes % block_bytes,
		.discard_granularity_bytes = export->preferred_block_bytes,
		.max_discard_bytes = UINT32_MAX - UINT32_MAX % block_bytes,
		.max_write_zeroes_bytes = UINT32_MAX - UINT32_MAX % block_bytes,
		.queue_nr_max = several ? 0 : 1,
		.queue_nr_cure = "let the NBD server allow several connections (multi-conn)",
	};
	nbd->conns_per_queue = several ? (unsigned)nbd->config->connections : 1;
	if (!several && nbd->config->connections > 1)
		log_info("the server allows one connection at a time", "device=%s export=\"%s\"",
			 device->name, nbd->uri.export_name);
}

static void tell_read_only(const struct backend_device *device, const struct nbd_export *export)
{
	if ((export->flags & NBD_FLAG_READ_ONLY) && !device->open_params.read_only)
		log_info("the export is read-only, and so is the device", "device=%s",
			 device->name);
}

int nbd_open(struct backend_device *device)
{
	struct nbd_device *nbd = device->priv;
	int ret;

	nbd->config = device->config;
	nbd->name = device->name;
	/* Who served it before may have left writes that no flush has covered. */
	atomic_init(&nbd->unflushed, device->open_params.size_bytes > 0);
	ret = nbd_config_uri(nbd->config, &nbd->uri, device->error, sizeof(device->error));
	if (ret < 0)
		return ret;
	net_host_format(&nbd->uri.server, nbd->address, sizeof(nbd->address));
	ret = nbd_credentials_new(&nbd->uri, &nbd->tls, device->error, sizeof(device->error));
	if (ret < 0)
		return ret;
	if (device->open_params.found)
		nbd->found = *(const struct nbd_found *)device->open_params.found;
	else
		ret = nbd_examine_export(nbd->config, &nbd->uri, &nbd->found, device->error,
					 sizeof(device->error));
	if (ret < 0)
		return ret;
	tell_read_only(device, &nbd->found.export);
	fill_limits(device, &nbd->found.export);
	return 0;
}

void nbd_close(struct backend_device *device)
{
	struct nbd_device *nbd = device->priv;

	tls_credentials_free(nbd->tls);
	nbd->tls = NULL;
}

static uint64_t nbd_identity_hash(uint64_t h, const char *text)
{
	while (*text)
		h = (h ^ (uint8_t)*text++) * 0x100000001b3ull; /* FNV-1a */
	return h;
}

/* The place and the name; their whole length has no room, so a hash of both goes with them. */
void nbd_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct nbd_device *nbd = device->priv;
	uint64_t h = nbd_identity_hash(nbd_identity_hash(0xcbf29ce484222325ull, nbd->address),
				       nbd->uri.export_name);

	snprintf(text, BACKEND_IDENTITY_BYTES, "nbd %016llx %.30s %.30s", (unsigned long long)h,
		 nbd->address, nbd->uri.export_name);
}
