/* What the user can say about an NVMe namespace. Main thread; nvme_config_target: any. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nvme/nvme.h"
#include "base/util.h"
#include "config/refusal.h"
#include "storage/word.h"

static const char *const cache_values[] = {
	[NVME_CACHE_KEPT] = "kept", [NVME_CACHE_VOLATILE] = "volatile", NULL
};

static const char *const identity_values[] = { "0", "1", NULL };

const struct option nvme_options[] = {
	{ .name = "uri",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct nvme_config, uri),
	  .min = 1,
	  .max = NVME_URI_BYTES_MAX,
	  .help = "The target, the subsystem and the namespace: "
		  "nvme+tcp://HOST[:PORT]/SUBSYSTEM-NQN[/NAMESPACE]. hostnqn, hostid, hdr_digest "
		  "and data_digest may follow as ?key=value. Instead of it: host and subsystem." },
	{ .name = "host",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct nvme_config, host),
	  .min = 1,
	  .max = 255,
	  .help = "The target: a name or an address." },
	{ .name = "port",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct nvme_config, port),
	  .min = 1,
	  .max = UINT16_MAX,
	  .def = "4420",
	  .help = "The TCP port of the target, with host." },
	{ .name = "subsystem",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct nvme_config, subsystem),
	  .min = 1,
	  .max = NVME_NQN_BYTES_MAX,
	  .help = "The NVMe qualified name of the subsystem, with host: "
		  "nqn.2024-01.com.example:disk. ublkctl nvme-discover HOST lists those of a "
		  "target." },
	{ .name = "namespace",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct nvme_config, namespace),
	  .min = 1,
	  .max = 63,
	  .help = "Which namespace: its number, uuid.UUID, nguid.32 hex digits or eui.16 hex "
		  "digits. Default: the only one." },
	{ .name = "paths",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct nvme_config, paths),
	  .min = 1,
	  .max = 1023,
	  .help = "More addresses of the same subsystem, HOST[:PORT], separated by commas. Each "
		  "queue has a connection to each of them: requests take the paths that the "
		  "target calls optimized (ANA), and another one when a path is lost." },
	{ .name = "host_nqn",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct nvme_config, host_nqn),
	  .min = 1,
	  .max = NVME_NQN_BYTES_MAX,
	  .help = "The name of this host to the target. Default: that in /etc/nvme/hostnqn, else "
		  "one made from the machine's identifier." },
	{ .name = "host_id",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct nvme_config, host_id),
	  .min = 36,
	  .max = 36,
	  .help = "The UUID of this host. Default: that in /etc/nvme/hostid, else the one in "
		  "host_nqn." },
	{ .name = "header_digest",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct nvme_config, header_digest),
	  .def = "false",
	  .help = "Protect the headers of the protocol by CRC32C checksums." },
	{ .name = "data_digest",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct nvme_config, data_digest),
	  .def = "false",
	  .help = "Protect the data on the network by CRC32C checksums. TCP's own checksum finds "
		  "few errors of memory and cards on the way." },
	{ .name = "dhchap_key_file",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct nvme_config, host_key_file),
	  .min = 1,
	  .max = PATH_MAX - 1,
	  .help = "File with the key of this host, DHHC-1:..., as nvme gen-dhchap-key makes it: "
		  "this host proves with it who it is (DH-HMAC-CHAP). Only owner and group may "
		  "have access to it." },
	{ .name = "dhchap_ctrl_key_file",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct nvme_config, ctrl_key_file),
	  .min = 1,
	  .max = PATH_MAX - 1,
	  .help = "File with the key of the target's controller, in the same form: the target must "
		  "prove who it is, too. With dhchap_key_file." },
	{ .name = "tls_key_file",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct nvme_config, tls_key_file),
	  .min = 1,
	  .max = PATH_MAX - 1,
	  .help = "File with a pre-shared key, NVMeTLSkey-1:..., as nvme gen-tls-key makes it: all "
		  "connections use TLS 1.3. Keys for SHA-256 (00, 01) only." },
	{ .name = "tls_identity",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct nvme_config, tls_identity),
	  .values = identity_values,
	  .def = "1",
	  .help = "The version of the TLS key's identity that the target has: 1, with a digest of "
		  "the key, or 0, of older targets." },
	{ .name = "cache",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct nvme_config, cache),
	  .values = cache_values,
	  .def = "kept",
	  .help = "What a lost connection means for writes that the target has acknowledged but "
		  "not "
		  "yet flushed. kept: they are in the cache of a controller that survives, as with "
		  "an array that protects its cache. volatile: they may be lost, so the next flush "
		  "fails, for example with a target that is a Linux machine." },
	{ .name = "keep_alive",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct nvme_config, keep_alive_ns),
	  .max = 3600 * NS_PER_SEC,
	  .def = "5s",
	  .help = "After so much time without a sign of the other side the target, or this host, "
		  "gives the connection up. 0: never." },
	{ .type = OPTION_GROUP,
	  .offset = offsetof(struct nvme_config, outage),
	  .table = net_outage_options },
	{ .type = OPTION_GROUP,
	  .offset = offsetof(struct nvme_config, outage),
	  .table = net_fail_fast_options },
	OPTION_END,
};

static const char *const uri_schemes[] = { "nvme+tcp", NULL };

const struct backend_uri nvme_backend_uri = { .option = &nvme_options[0], .schemes = uri_schemes };

static int target_refuse_both(struct config_refusal *r, const char *key)
{
	return config_refuse(r, key, "the URI has it too: say it once");
}

static int target_take_nqn(const char *text, const char *key, char *nqn, struct config_refusal *r)
{
	char words[160];

	if (nvme_nqn_check(text, words, sizeof(words)) < 0)
		return config_refuse(r, key, "%s", words);
	snprintf(nqn, NVME_NQN_BYTES_MAX + 1, "%s", text);
	return 0;
}

static int target_by_uri(const struct nvme_config *config, struct nvme_uri *uri,
			 struct config_refusal *r)
{
	struct nvme_uri_error e;

	if (config->host)
		return target_refuse_both(r, "host");
	if (config->subsystem)
		return target_refuse_both(r, "subsystem");
	if (nvme_uri_parse(config->uri, uri, &e) < 0)
		return config_refuse(r, "uri", "at its character %zu: %s", e.column, e.text);
	if (uri->discovery)
		return config_refuse(
			r, "uri",
			"the subsystem is missing: ublkctl nvme-discover lists those of a "
			"target");
	return 0;
}

/* An IPv6 address may stand in brackets. */
static void target_take_host(struct nvme_uri *uri, const char *host, uint64_t port)
{
	size_t bytes = strlen(host);
	bool brackets = host[0] == '[' && host[bytes - 1] == ']';

	uri->server.kind = NET_TCP;
	uri->server.port = (uint32_t)port;
	snprintf(uri->server.host, sizeof(uri->server.host), "%.*s",
		 (int)(bytes - (brackets ? 2 : 0)), host + brackets);
}

static int target_by_fields(const struct nvme_config *config, struct nvme_uri *uri,
			    struct config_refusal *r)
{
	*uri = (struct nvme_uri){ 0 };
	if (!config->host)
		return config_refuse(r, "host",
				     "the target is missing: say uri, or host and subsystem");
	if (!config->subsystem)
		return config_refuse(r, "subsystem",
				     "the name of the subsystem is missing: ublkctl "
				     "nvme-discover lists those of a target");
	target_take_host(uri, config->host, config->port);
	return target_take_nqn(config->subsystem, "subsystem", uri->subsystem_nqn, r);
}

static int target_take_namespace(const struct nvme_config *config, struct nvme_uri *uri,
				 struct config_refusal *r)
{
	if (!config->namespace)
		return 0;
	if (uri->want.by != NVME_WANT_ONLY)
		return target_refuse_both(r, "namespace");
	if (nvme_want_parse(config->namespace, &uri->want) < 0)
		return config_refuse(
			r, "namespace",
			"expected a number, uuid.UUID, nguid.32 hex digits or eui.16 hex "
			"digits");
	return 0;
}

static int target_take_us(const struct nvme_config *config, struct nvme_uri *uri,
			  struct config_refusal *r)
{
	if (config->host_nqn && uri->host_nqn[0] != '\0')
		return target_refuse_both(r, "host_nqn");
	if (config->host_nqn && target_take_nqn(config->host_nqn, "host_nqn", uri->host_nqn, r) < 0)
		return -EINVAL;
	if (config->host_id && uri->said & 1u << NVME_URI_HOSTID)
		return target_refuse_both(r, "host_id");
	if (config->host_id && nvme_uuid_parse(config->host_id, uri->host_id) < 0)
		return config_refuse(r, "host_id", "not a UUID");
	uri->header_digest |= config->header_digest;
	uri->data_digest |= config->data_digest;
	return 0;
}

/* As the host of a URI, with a subsystem behind it, so that the port is that of one. */
static int target_take_path(struct nvme_target *target, const char *at, int bytes,
			    struct config_refusal *r)
{
	struct nvme_uri path;
	struct nvme_uri_error e;
	char text[400];

	snprintf(text, sizeof(text), "nvme+tcp://%.*s/nqn.2014-08.org.nvmexpress:path", bytes, at);
	if (nvme_uri_parse(text, &path, &e) < 0)
		return config_refuse(r, "paths", "%.*s: %s", bytes, at, e.text);
	if (target->path_nr == NVME_PATHS_MAX)
		return config_refuse(r, "paths", "at most %u paths in all", NVME_PATHS_MAX);
	target->path[target->path_nr++] = path.server;
	return 0;
}

static int target_take_paths(const struct nvme_config *config, struct nvme_target *target,
			     struct config_refusal *r)
{
	const char *at = config->paths;

	target->path[0] = target->uri.server;
	target->path_nr = 1;
	while (at && *at) {
		size_t bytes;

		at += strspn(at, ", ");
		bytes = strcspn(at, ", ");
		if (bytes > 0 && target_take_path(target, at, (int)MIN(bytes, 300u), r) < 0)
			return -EINVAL;
		at += bytes;
	}
	return 0;
}

static int target_fill(const struct nvme_config *config, struct nvme_target *target,
		       struct config_refusal *r)
{
	struct nvme_uri *uri = &target->uri;
	int ret = config->uri ? target_by_uri(config, uri, r) : target_by_fields(config, uri, r);

	*target = (struct nvme_target){ .uri = *uri };
	if (ret == 0)
		ret = target_take_namespace(config, uri, r);
	if (ret == 0)
		ret = target_take_us(config, uri, r);
	if (ret == 0 && config->ctrl_key_file && !config->host_key_file)
		ret = config_refuse(r, "dhchap_ctrl_key_file",
				    "a target that proves who it is asks this host first: "
				    "dhchap_key_file is missing");
	return ret == 0 ? target_take_paths(config, target, r) : ret;
}

int nvme_config_target(const struct nvme_config *config, struct nvme_target *ret_target,
		       char *error, size_t error_bytes)
{
	struct config_refusal r;

	if (target_fill(config, ret_target, &r) == 0)
		return 0;
	snprintf(error, error_bytes, "nvme-tcp: %s: %s", r.key, r.words);
	return -EINVAL;
}

void nvme_check(const void *config, const struct yaml_node *map, struct config_errors *e)
{
	struct nvme_target *target = calloc(1, sizeof(*target));
	struct config_refusal r = { .key = "uri", .words = "out of memory" };

	if (!target || target_fill(config, target, &r) < 0)
		config_refusal_add(&r, map, e);
	free(target);
}
