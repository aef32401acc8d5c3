/*
 * Opening a namespace: what the target says of it becomes the device's limits. Owns the target and
 * the question to it. Helper, but for nvme_*_async: control thread.
 *
 * Happy path: nvme_open finds the addresses of all paths, nvme_open_async asks the first that
 * answers and makes limits of it. No connection is kept.
 * Failure modes: each in words: no target, no subsystem, no namespace, one that cannot be a disk.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/nvme/nvme.h"
#include "backends/nvme/nvme_examine.h"
#include "backends/nvme/nvme_host.h"
#include "base/util.h"
#include "storage/resize.h"
#include "storage/visit.h"

struct nvme_fabrics_config nvme_fabrics_wish(const struct nvme_device *nvme)
{
	const struct nvme_uri *uri = &nvme->target.uri;
	struct nvme_fabrics_config wish = {
		.mode = NVME_FABRICS_ADMIN,
		.subsystem_nqn = uri->subsystem_nqn,
		.host_nqn = uri->host_nqn,
		.kato_ms = (uint32_t)(nvme->config->keep_alive_ns / NS_PER_MS),
		.queues_nr = 1,
		.entries_nr = MIN(nvme->device->open_params.depth + 1, 65536u),
		.want = uri->want,
		.host_key = nvme->keys.has_host ? &nvme->keys.host : NULL,
		.controller_key = nvme->keys.has_controller ? &nvme->keys.controller : NULL,
	};

	memcpy(wish.host_id, uri->host_id, sizeof(wish.host_id));
	return wish;
}

/* ---- limits ---- */

static uint32_t namespace_caps(const struct nvme_device *nvme)
{
	const struct nvme_controller *controller = &nvme->controller;
	uint32_t caps = 0;

	if (controller->has_write_cache)
		caps |= BACKEND_CAP_FLUSH | BACKEND_CAP_FUA;
	if (controller->has_deallocate)
		caps |= BACKEND_CAP_DISCARD;
	if (controller->has_write_zeroes)
		caps |= BACKEND_CAP_WRITE_ZEROES;
	if (nvme->namespace.read_only)
		caps |= BACKEND_CAP_READ_ONLY;
	return caps;
}

static uint64_t whole_blocks(uint64_t bytes, uint32_t block_bytes)
{
	return bytes - bytes % block_bytes;
}

/* Of one range in one command, and of a request of ours. */
static uint64_t max_discard_bytes(const struct nvme_device *nvme)
{
	const struct nvme_controller *controller = &nvme->controller;
	uint64_t blocks =
		MIN((uint64_t)controller->max_range_blocks, controller->max_discard_blocks);
	uint32_t block_bytes = nvme->namespace.block_bytes;

	return whole_blocks(MIN(blocks, UINT32_MAX / block_bytes) * block_bytes, block_bytes);
}

static void namespace_limits(struct backend_device *device)
{
	const struct nvme_device *nvme = device->priv;
	const struct nvme_namespace *ns = &nvme->namespace;
	const struct nvme_controller *controller = &nvme->controller;
	uint64_t taken_over_bytes = device->open_params.size_bytes;
	uint32_t block = ns->block_bytes;

	device->limits = (struct backend_limits){
		.caps = namespace_caps(nvme),
		.logical_block_bytes = block,
		/* What is written as a whole even when the power fails. */
		.physical_block_bytes = MIN(MAX(ns->atomic_write_bytes, block),
					    MAX(ns->write_granularity_bytes, block)),
		.io_opt_bytes = ns->optimal_write_bytes,
		.max_io_bytes = (uint32_t)whole_blocks(
			MIN((uint64_t)controller->max_transfer_bytes, 65536ull * block), block),
		.discard_granularity_bytes = MAX(ns->discard_granularity_bytes, block),
		.max_discard_bytes = max_discard_bytes(nvme),
		.max_write_zeroes_bytes = whole_blocks(
			MIN((uint64_t)controller->max_zeroes_bytes, 65536ull * block), block),
		.boundary_bytes = ns->boundary_bytes,
	};
	backend_set_found_size(device, ns->size_bytes);
	if (taken_over_bytes)
		device->limits.size_bytes = MIN(taken_over_bytes, device->limits.size_bytes);
}

/* ---- open ---- */

/* Of one path all addresses, to be tried in turn; of several the first of each. */
static int find_addresses(struct backend_device *device)
{
	struct nvme_device *nvme = device->priv;
	const struct nvme_target *target = &nvme->target;
	struct net_addresses found;
	int ret;

	if (target->path_nr == 1)
		return net_host_find(&target->path[0], &nvme->addresses, device->error,
				     sizeof(device->error));
	for (unsigned i = 0; i < target->path_nr; i++) {
		ret = net_host_find(&target->path[i], &found, device->error, sizeof(device->error));
		if (ret < 0)
			return ret;
		nvme->addresses.address[i] = found.address[0];
	}
	nvme->addresses.nr = target->path_nr;
	return 0;
}

static void tell_strange_names(struct backend_device *device)
{
	const struct nvme_device *nvme = device->priv;
	const struct nvme_uri *uri = &nvme->target.uri;
	const char *subsystem = nvme_nqn_strange(uri->subsystem_nqn);
	const char *host = nvme_nqn_strange(uri->host_nqn);

	if (subsystem)
		log_warn("the name of the subsystem is strange",
			 "device=%s nqn=\"%s\" reason=\"%s\"", nvme->name, uri->subsystem_nqn,
			 subsystem);
	if (host)
		log_warn("the name of this host is strange", "device=%s nqn=\"%s\" reason=\"%s\"",
			 nvme->name, uri->host_nqn, host);
	if (subsystem || host)
		device->note = subsystem ? "the name of its NVMe subsystem has not the form of an "
					   "NQN, nqn.2024-01.com.example:disk: not every target "
					   "takes that"
					 : "host_nqn has not the form of an NQN, "
					   "nqn.2024-01.com.example:host: not every target takes "
					   "that";
}

int nvme_open(struct backend_device *device)
{
	struct nvme_device *nvme = device->priv;
	int ret;

	nvme->config = device->config;
	nvme->device = device;
	nvme->name = device->name;
	net_witness_init(&nvme->witness, device->open_params.stored_fd, false);
	ret = nvme_config_target(nvme->config, &nvme->target, device->error, sizeof(device->error));
	if (ret == 0)
		ret = nvme_host_complete(&nvme->target.uri, device->error, sizeof(device->error));
	if (ret == 0)
		ret = nvme_keys_read(&nvme->keys, nvme->config, &nvme->target.uri, device->error,
				     sizeof(device->error));
	if (ret < 0)
		return ret;
	tell_strange_names(device);
	for (unsigned i = 0; i < nvme->target.path_nr; i++)
		nvme->path[i] = net_host_format(&nvme->target.path[i], nvme->address[i],
						sizeof(nvme->address[i]));
	return find_addresses(device);
}

/* Who served it before may have left writes that no flush has covered. */
static void nvme_take_over(struct backend_device *device)
{
	struct nvme_device *nvme = device->priv;
	bool is_volatile =
		nvme->config->cache == NVME_CACHE_VOLATILE && nvme->controller.has_write_cache;

	if (!net_flush_init(&nvme->flush, is_volatile, device->open_params.is_taken_over,
			    &device->owed->unflushed, NET_FLUSH_SEVERAL) ||
	    nvme->witness.stood || !net_flush_lost(&nvme->flush))
		return;
	backend_owe(device);
	net_flush_tell_left(nvme->name);
}

static void nvme_answered(void *arg, int ret, const struct nvme_fabrics *found, const char *words)
{
	struct backend_visit *visit = arg;
	struct backend_device *device = visit->device;
	struct nvme_device *nvme = device->priv;

	nvme->question = NULL;
	if (ret < 0) {
		backend_fail(device, ret, "%s", words);
		backend_visit_done(visit, ret);
		return;
	}
	nvme->controller = found->controller;
	nvme->namespace = found->namespace;
	nvme_take_over(device);
	nvme->block_shift = (unsigned)__builtin_ctz(found->namespace.block_bytes);
	atomic_store(&nvme->seen_bytes, found->namespace.size_bytes);
	if (nvme->namespace.read_only && !device->open_params.read_only)
		log_info("the namespace is write protected, and the device read-only", "device=%s",
			 nvme->name);
	namespace_limits(device);
	/* A device that is taken over follows what has grown meanwhile, once it is connected. */
	atomic_store(&nvme->told_bytes, device->limits.size_bytes);
	backend_visit_done(visit, 0);
}

static const char *nvme_waits_for(const struct backend_visit *visit, char *buf, size_t bytes)
{
	const struct nvme_device *nvme = visit->device->priv;

	return nvme->question ? nvme_examine_doing(nvme->question, buf, bytes) : "";
}

void nvme_open_async(struct backend_visit *visit)
{
	struct nvme_device *nvme = visit->device->priv;
	struct nvme_examine_params params = {
		.fabrics = nvme_fabrics_wish(nvme),
		.header_digest = nvme->target.uri.header_digest,
		.data_digest = nvme->target.uri.data_digest,
		.tls = nvme->keys.tls,
		.whom = nvme->path[0],
		.addresses = &nvme->addresses,
		.timeout_ns = nvme->config->outage.timeout_ns,
	};
	int ret;

	visit->doing = "asking its target";
	visit->timeout_ns = BACKEND_VISIT_OWN_DEADLINE;
	visit->ends_ns = ring_clock_ns() + params.timeout_ns;
	visit->waits_for = nvme_waits_for;
	ret = nvme_examine_begin(&nvme->question, visit->reactor, &params, nvme_answered, visit);
	if (ret < 0)
		backend_visit_done(visit, ret);
}

void nvme_cancel_async(struct backend_visit *visit)
{
	struct nvme_device *nvme = visit->device->priv;

	nvme_examine_forget(nvme->question);
	nvme->question = NULL;
	backend_visit_done(visit, -ECANCELED);
}

void nvme_close(struct backend_device *device)
{
	struct nvme_device *nvme = device->priv;

	nvme_keys_free(&nvme->keys);
	if (nvme->config)
		net_witness_fini(&nvme->witness);
}

int nvme_stored_fd(const struct backend_device *device)
{
	struct nvme_device *nvme = device->priv;

	return net_witness_fd(&nvme->witness);
}

/* ---- identity ---- */

static int format_hex(char *buf, size_t bytes, const uint8_t *id, size_t id_bytes)
{
	int nr = 0;

	for (size_t i = 0; i < id_bytes; i++)
		nr += snprintf(buf + nr, bytes - (size_t)nr, "%02x", id[i]);
	return nr;
}

static bool is_id(const uint8_t *id, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (id[i] != 0)
			return true;
	return false;
}

/* Of the whole world where the namespace has an identifier, else of this subsystem. */
void nvme_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct nvme_device *nvme = device->priv;
	const struct nvme_ids *ids = &nvme->namespace.ids;
	char hex[2 * 16 + 1];

	if (ids->has_uuid && is_id(ids->uuid, sizeof(ids->uuid))) {
		format_hex(hex, sizeof(hex), ids->uuid, sizeof(ids->uuid));
		snprintf(text, BACKEND_IDENTITY_BYTES, "nvme uuid %s", hex);
	} else if (is_id(ids->nguid, sizeof(ids->nguid))) {
		format_hex(hex, sizeof(hex), ids->nguid, sizeof(ids->nguid));
		snprintf(text, BACKEND_IDENTITY_BYTES, "nvme nguid %s", hex);
	} else if (is_id(ids->eui64, sizeof(ids->eui64))) {
		format_hex(hex, sizeof(hex), ids->eui64, sizeof(ids->eui64));
		snprintf(text, BACKEND_IDENTITY_BYTES, "nvme eui %s", hex);
	} else {
		snprintf(text, BACKEND_IDENTITY_BYTES, "nvme %s %u %.50s",
			 nvme->controller.id.serial, nvme->namespace.nsid,
			 nvme->target.uri.subsystem_nqn);
	}
}

/* ---- size ---- */

static int nvme_size_now(struct backend_device *device, uint64_t *ret_bytes)
{
	const struct nvme_device *nvme = device->priv;

	*ret_bytes = atomic_load(&nvme->seen_bytes);
	return 0;
}

static int nvme_grow(struct backend_device *device, uint64_t size_bytes)
{
	const struct nvme_device *nvme = device->priv;
	uint64_t now_bytes = atomic_load(&nvme->seen_bytes);
	char text[32];

	if (size_bytes <= now_bytes)
		return 0;
	return backend_fail(device, -ENOSPC,
			    "the namespace has %s: let it grow at the target first",
			    option_format_size(now_bytes, text, sizeof(text)));
}

const struct backend_resize nvme_resize = { .size_now = nvme_size_now, .grow = nvme_grow };
