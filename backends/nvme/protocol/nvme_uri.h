/*
 * NVMe-oF URIs, as the NVM Express Boot Specification 1.0 has them (1.5.7, 3.1.2.5.3) and
 * libnvme's libnvmf_uri_parse reads them:
 *
 *	nvme+tcp://host[:port]/subsystem-nqn[/namespace][?key=value&...]
 *	nvme+tcp://host[:port]/			the discovery controller there
 *
 * namespace: nvme_want_parse. Keys, with the names of the kernel's fabrics options (nvme connect):
 * hostnqn, hostid, hdr_digest, data_digest; and nsid, uuid, nguid, eui64 instead of a namespace in
 * the path. A key that is not known is refused, as is one given twice. The port is 4420, that of a
 * discovery controller 8009. Pure, any thread.
 */
#ifndef BACKENDS_NVME_NVME_URI_H
#define BACKENDS_NVME_NVME_URI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/nvme/protocol/nvme_namespace.h"
#include "backends/nvme/protocol/nvme_nqn.h"
#include "net/address.h"

#define NVME_URI_BYTES_MAX 2048u

/* Of the query. */
enum nvme_uri_key {
	NVME_URI_HOSTNQN,
	NVME_URI_HOSTID,
	NVME_URI_HDR_DIGEST,
	NVME_URI_DATA_DIGEST,
	NVME_URI_NSID,
	NVME_URI_UUID,
	NVME_URI_NGUID,
	NVME_URI_EUI64,
	NVME_URI_KEY_NR,
};

/* Texts are decoded, terminated and without NUL; "" where nothing was said. */
struct nvme_uri {
	struct net_host server; /* NET_TCP */
	char subsystem_nqn[NVME_NQN_BYTES_MAX + 1];
	bool discovery; /* subsystem_nqn is the well-known one */
	struct nvme_want want;
	char host_nqn[NVME_NQN_BYTES_MAX + 1];
	uint8_t host_id[16];
	bool header_digest, data_digest;
	uint32_t said; /* bits of enum nvme_uri_key */
};

struct nvme_uri_error {
	size_t column; /* from 1: where in the text */
	char text[200];
};

/* Returns 0, or -EINVAL with *e filled. *ret_uri is then undefined. */
int nvme_uri_parse(const char *text, struct nvme_uri *ret_uri, struct nvme_uri_error *e);

/* "hdr_digest". */
const char *nvme_uri_key_name(enum nvme_uri_key key);

#endif
