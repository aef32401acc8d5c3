/*
 * Opening an export: what the server says of it becomes the device's limits. Owns the parsed URI,
 * the TLS credentials and the question to the server. Helper, but for nbd_*_async: control thread.
 *
 * Happy path: nbd_open reads the keys and finds the addresses, nbd_open_async asks the server and
 * makes limits of the answer. No connection is kept.
 * Failure modes: each in words: no such server, no such export, one that does not allow what was
 * configured.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nbd/nbd.h"
#include "backends/nbd/nbd_credentials.h"
#include "backends/nbd/nbd_examine.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/resize.h"
#include "storage/visit.h"

static bool wants_simple(const struct nbd_config *config, const struct net_addresses *addresses)
{
	if (config->replies == NBD_REPLIES_AUTO)
		return net_address_is_local(&addresses->address[0]);
	return config->replies == NBD_REPLIES_FEWEST;
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

/*
 * Requests of all kinds are whole blocks, so that the server's smallest block must be one of ours.
 * The preferred block is the smallest efficient request (NBD protocol, "Block size constraints"),
 * not the best one: of that the protocol says nothing.
 */
static void fill_limits(struct backend_device *device, const struct nbd_export *export)
{
	struct nbd_device *nbd = device->priv;
	uint32_t block_bytes = MAX(export->min_block_bytes, 512u);
	/* A server that says nothing of blocks is asked for less at the end, as QEMU does. */
	uint64_t rest_bytes =
		export->has_block_sizes ? export->size_bytes % export->min_block_bytes : 0;
	bool several = export->flags & NBD_FLAG_CAN_MULTI_CONN;

	device->limits = (struct backend_limits){
		.caps = caps_of(export),
		.logical_block_bytes = block_bytes,
		.max_io_bytes = export->max_payload_bytes - export->max_payload_bytes % block_bytes,
		.discard_granularity_bytes = export->preferred_block_bytes,
		.max_discard_bytes = UINT32_MAX - UINT32_MAX % block_bytes,
		.max_write_zeroes_bytes = UINT32_MAX - UINT32_MAX % block_bytes,
		.queue_nr_max = several ? 0 : 1,
		.queue_nr_cure = "let the NBD server allow several connections (multi-conn)",
	};
	backend_set_found_size(device, export->size_bytes - rest_bytes);
	if (rest_bytes)
		device->note = "the export ends within a block of its server: the last bytes are "
			       "left out, for no request can reach them";
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

/* ---- places ---- */

/* On one machine these two are one server. */
static bool is_loopback(const struct sockaddr_in6 *in6)
{
	const struct in6_addr v4 = { .s6_addr = { [10] = 255, 255, 127, 0, 0, 1 } };

	return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) ||
	       memcmp(&in6->sin6_addr, &v4, sizeof(v4)) == 0;
}

/* An address of IPv4 as IPv6 has it. */
static struct sockaddr_in6 as_in6(const struct net_address *address)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&address->name;
	struct sockaddr_in6 in6 = { .sin6_port = in->sin_port };

	if (address->name.ss_family == AF_INET6)
		return *(const struct sockaddr_in6 *)&address->name;
	in6.sin6_addr.s6_addr[10] = in6.sin6_addr.s6_addr[11] = 255;
	memcpy(&in6.sin6_addr.s6_addr[12], &in->sin_addr, sizeof(in->sin_addr));
	return in6;
}

static uint64_t hash_internet(uint64_t hash, const struct net_address *address)
{
	struct sockaddr_in6 in6 = as_in6(address);

	if (is_loopback(&in6))
		in6.sin6_addr = (struct in6_addr)IN6ADDR_LOOPBACK_INIT;
	hash = hash_bytes(hash, &in6.sin6_port, sizeof(in6.sin6_port));
	return hash_bytes(hash, &in6.sin6_addr, sizeof(in6.sin6_addr));
}

/* Whatever links lead to the socket. */
static uint64_t hash_socket(uint64_t hash, const struct net_host *server)
{
	char *full = server->path[0] ? realpath(server->path, NULL) : NULL;

	hash = full ? hash_text(hash, full) : hash_bytes(hash, server->path, server->path_bytes);
	free(full);
	return hash;
}

static void find_places(struct nbd_device *nbd)
{
	const struct net_addresses *addresses = &nbd->found.addresses;
	uint64_t export = hash_text(HASH_START, nbd->uri.export_name);

	nbd->place[0] = hash_text(export, nbd->address);
	for (unsigned i = 0; i < addresses->nr; i++) {
		const struct net_address *a = &addresses->address[i];

		if (nbd->uri.server.kind == NET_TCP)
			nbd->place[1 + i] = hash_internet(export, a);
		else if (nbd->uri.server.kind == NET_UNIX)
			nbd->place[1 + i] = hash_socket(export, &nbd->uri.server);
		else
			nbd->place[1 + i] = nbd->place[0];
	}
}

unsigned nbd_places(const struct backend_device *device,
		    uint64_t ret_places[static BACKEND_PLACES_MAX])
{
	const struct nbd_device *nbd = device->priv;
	unsigned nr = 1 + nbd->found.addresses.nr;

	memcpy(ret_places, nbd->place, nr * sizeof(nbd->place[0]));
	return nr;
}

/* ---- opening ---- */

int nbd_open(struct backend_device *device)
{
	struct nbd_device *nbd = device->priv;
	int ret;

	nbd->config = device->config;
	nbd->name = device->name;
	/* Where there may be room for one connection, ours comes when the one before has ended. */
	net_witness_init(&nbd->witness, device->open_params.stored_fd,
			 !(atomic_load(&device->owed->unflushed) & NET_FLUSH_SEVERAL));
	ret = nbd_config_uri(nbd->config, &nbd->uri, device->error, sizeof(device->error));
	if (ret < 0)
		return ret;
	net_host_format(&nbd->uri.server, nbd->address, sizeof(nbd->address));
	ret = nbd_credentials_new(&nbd->uri, &nbd->tls, device->error, sizeof(device->error));
	if (ret < 0)
		return ret;
	ret = net_host_find(&nbd->uri.server, &nbd->found.addresses, device->error,
			    sizeof(device->error));
	if (ret == 0)
		find_places(nbd);
	return ret;
}

/* Who served it before may have left writes that no flush has covered. */
static void nbd_take_over(struct backend_device *device)
{
	struct nbd_device *nbd = device->priv;
	/* Where there is no FLUSH, what was acknowledged is durable (proto.md). */
	bool is_volatile = nbd->config->cache == NBD_CACHE_VOLATILE &&
			   (nbd->found.export.flags & NBD_FLAG_SEND_FLUSH);

	if (!net_flush_init(&nbd->flush, is_volatile, device->open_params.is_taken_over,
			    &device->owed->unflushed,
			    nbd->found.export.flags & NBD_FLAG_CAN_MULTI_CONN ? NET_FLUSH_SEVERAL
									      : 0) ||
	    nbd->witness.stood || !net_flush_lost(&nbd->flush))
		return;
	backend_owe(device);
	net_flush_tell_left(nbd->name);
}

static void nbd_answered(void *arg, int ret, const struct nbd_export *export, const char *words)
{
	struct backend_visit *visit = arg;
	struct nbd_device *nbd = visit->device->priv;

	nbd->question = NULL;
	if (ret == 0) {
		nbd->found.export = *export;
		nbd_take_over(visit->device);
		tell_read_only(visit->device, export);
		fill_limits(visit->device, export);
	} else {
		backend_fail(visit->device, ret, "%s", words);
	}
	backend_visit_done(visit, ret);
}

static const char *nbd_waits_for(const struct backend_visit *visit, char *buf, size_t bytes)
{
	const struct nbd_device *nbd = visit->device->priv;

	return nbd->question ? nbd_examine_doing(nbd->question, buf, bytes) : "";
}

void nbd_open_async(struct backend_visit *visit)
{
	struct nbd_device *nbd = visit->device->priv;
	struct nbd_found *found = &nbd->found;
	struct nbd_handshake_config wish = { .mode = NBD_HANDSHAKE_GO,
					     .export_name = nbd->uri.export_name,
					     .no_meta = true };
	const struct nbd_examine_params params = { .uri = &nbd->uri,
						   .tls = nbd->tls,
						   .wish = &wish,
						   .addresses = &found->addresses,
						   .timeout_ns = nbd->config->outage.timeout_ns };
	int ret;

	found->simple = wants_simple(nbd->config, &found->addresses);
	wish.no_structured = wish.no_extended = found->simple;
	visit->doing = "asking its server";
	visit->timeout_ns = BACKEND_VISIT_OWN_DEADLINE;
	visit->ends_ns = ring_clock_ns() + params.timeout_ns;
	visit->waits_for = nbd_waits_for;
	ret = nbd_examine_begin(&nbd->question, visit->reactor, &params, nbd_answered, visit);
	if (ret < 0)
		backend_visit_done(visit, ret);
}

void nbd_cancel_async(struct backend_visit *visit)
{
	struct nbd_device *nbd = visit->device->priv;

	nbd_examine_forget(nbd->question);
	nbd->question = NULL;
	backend_visit_done(visit, -ECANCELED);
}

void nbd_close(struct backend_device *device)
{
	struct nbd_device *nbd = device->priv;

	tls_credentials_free(nbd->tls);
	nbd->tls = NULL;
	if (nbd->config)
		net_witness_fini(&nbd->witness);
}

int nbd_stored_fd(const struct backend_device *device)
{
	struct nbd_device *nbd = device->priv;

	return net_witness_fd(&nbd->witness);
}

/* The place and the name; their whole length has no room, so a hash of both goes with them. */
void nbd_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct nbd_device *nbd = device->priv;
	uint64_t h = hash_text(hash_text(HASH_START, nbd->address), nbd->uri.export_name);

	snprintf(text, BACKEND_IDENTITY_BYTES, "nbd %016llx %.30s %.30s", (unsigned long long)h,
		 nbd->address, nbd->uri.export_name);
}
