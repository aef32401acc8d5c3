/*
 * A namespace, or a controller, that is not what the device was opened with. A namespace that has
 * grown is what it was: the size is noted, and the device may follow.
 */
#include <stdio.h>
#include <string.h>

#include "backends/nvme/nvme.h"
#include "base/util.h"
#include "storage/resize.h"

static bool ids_differ(const struct nvme_ids *was, const struct nvme_ids *is)
{
	return memcmp(was->nguid, is->nguid, sizeof(was->nguid)) != 0 ||
	       memcmp(was->eui64, is->eui64, sizeof(was->eui64)) != 0 ||
	       (was->has_uuid && is->has_uuid &&
		memcmp(was->uuid, is->uuid, sizeof(is->uuid)) != 0);
}

/* The first thing that its users must not be left to find out; "" there is none. */
static void nvme_changed_how(const struct nvme_device *nvme,
			     const struct nvme_controller *controller,
			     const struct nvme_namespace *is, char *buf, size_t bytes)
{
	const struct nvme_namespace *was = &nvme->namespace;
	char before[32], after[32];

	buf[0] = '\0';
	if (ids_differ(&was->ids, &is->ids))
		snprintf(buf, bytes, "another namespace has the number %u", is->nsid);
	else if (was->block_bytes != is->block_bytes)
		snprintf(buf, bytes, "its blocks were of %u bytes, are of %u", was->block_bytes,
			 is->block_bytes);
	else if (is->size_bytes < backend_size_needed(nvme->device))
		snprintf(buf, bytes, "size was %s, is %s",
			 option_format_size(backend_size(nvme->device), before, sizeof(before)),
			 option_format_size(is->size_bytes, after, sizeof(after)));
	else if (!was->read_only && is->read_only)
		snprintf(buf, bytes, "was writable, is read-only");
	else if (!nvme->controller.has_write_cache && controller->has_write_cache)
		snprintf(buf, bytes, "had no volatile write cache, has one");
	else if (controller->max_transfer_bytes < nvme->controller.max_transfer_bytes)
		snprintf(buf, bytes, "largest transfer was %u bytes, is %u",
			 nvme->controller.max_transfer_bytes, controller->max_transfer_bytes);
}

bool nvme_changed_note(struct nvme_device *nvme, const struct nvme_controller *controller,
		       const struct nvme_namespace *is)
{
	char how[NET_CHANGED_BYTES];

	nvme_changed_how(nvme, controller, is, how, sizeof(how));
	if (how[0] == '\0') {
		atomic_store(&nvme->seen_bytes, is->size_bytes);
		if (atomic_exchange(&nvme->told_bytes, is->size_bytes) < is->size_bytes)
			backend_has_grown(nvme->device);
		return false;
	}
	net_changed_note(&nvme->changed, "the namespace", how, nvme->name, nvme->path[0]);
	return true;
}

const char *nvme_failure(const struct backend_device *device)
{
	const struct nvme_device *nvme = device->priv;

	return net_changed_words(&nvme->changed);
}
