/*
 * Storage that ends within a block. Helper and control thread at open, the main thread afterwards.
 *
 * Happy path: it ends on one, and nothing is here to be done. Failure modes: none.
 */
#include "storage/tail.h"

#include <stdio.h>

#include "base/log.h"
#include "base/util.h"
#include "storage/sharing.h"

void backend_set_found_size(struct backend_device *device, uint64_t bytes)
{
	uint32_t block_bytes = device->open_params.logical_block_bytes;
	bool is_only_read =
		device->open_params.read_only || (device->limits.caps & BACKEND_CAP_READ_ONLY);
	uint64_t whole_bytes = round_down(bytes, (uint64_t)block_bytes);

	device->tail = (struct backend_tail){ .found_bytes = bytes };
	device->limits.size_bytes = whole_bytes;
	if (whole_bytes == bytes)
		return;
	/* A device keeps the size that it has: it may have been made before there was padding. */
	device->tail.is_padded =
		is_only_read && (whole_bytes == 0 || device->open_params.size_bytes != whole_bytes);
	if (device->tail.is_padded) {
		device->limits.size_bytes = whole_bytes + block_bytes;
		device->limits.caps |= BACKEND_CAP_READ_ONLY;
		log_info("the storage ends within a block: zeroes follow",
			 "node=%s size_bytes=%llu zeroes_bytes=%llu", device->name,
			 (unsigned long long)bytes,
			 (unsigned long long)(device->limits.size_bytes - bytes));
	} else {
		log_warn("the storage ends within a block: its last bytes are left out",
			 "node=%s size_bytes=%llu left_out_bytes=%llu", device->name,
			 (unsigned long long)bytes, (unsigned long long)(bytes - whole_bytes));
	}
}

static uint64_t tail_load(const struct backend_device *device)
{
	return __atomic_load_n(&device->tail.found_bytes, __ATOMIC_RELAXED);
}

void backend_tail_found(struct backend_device *device, uint64_t bytes)
{
	uint64_t before_bytes = tail_load(device);
	uint32_t rest_bytes = (uint32_t)(bytes % device->open_params.logical_block_bytes);

	if (before_bytes == 0 || before_bytes == bytes)
		return;
	__atomic_store_n(&device->tail.found_bytes, bytes, __ATOMIC_RELAXED);
	if (rest_bytes)
		log_warn("the storage ends within a block: its last bytes are left out",
			 "node=%s size_bytes=%llu left_out_bytes=%u", device->name,
			 (unsigned long long)bytes, rest_bytes);
}

/* It has grown, or was cut: the storage has become as long. */
void backend_tail_follow(struct backend_device *device)
{
	uint64_t size_bytes = backend_size(device), found_bytes = tail_load(device);

	if (found_bytes && (size_bytes > found_bytes ||
			    found_bytes - size_bytes >= device->open_params.logical_block_bytes))
		__atomic_store_n(&device->tail.found_bytes, size_bytes, __ATOMIC_RELAXED);
}

uint64_t backend_size_needed(const struct backend_device *device)
{
	uint64_t found_bytes = tail_load(device), size_bytes = backend_size(device);

	return device->tail.is_padded ? MIN(size_bytes, found_bytes) : size_bytes;
}

uint32_t backend_left_out(const struct backend_device *node)
{
	uint64_t found_bytes = tail_load(node), size_bytes = backend_size(node);

	/* More is no part of a block: a smaller size was configured. */
	return found_bytes > size_bytes &&
			       found_bytes - size_bytes < node->open_params.logical_block_bytes
		       ? (uint32_t)(found_bytes - size_bytes)
		       : 0;
}

/* Counts *idx down by the notes that this part of the tree has. */
static bool find_note(const struct backend_device *node, unsigned *idx,
		      char words[BACKEND_NOTE_BYTES])
{
	uint32_t left_out_bytes = backend_left_out(node);

	if (left_out_bytes && (*idx)-- == 0) {
		snprintf(words, BACKEND_NOTE_BYTES,
			 "the storage ends within a block of %u bytes: its last %u bytes are left "
			 "out",
			 node->open_params.logical_block_bytes, left_out_bytes);
		return true;
	}
	if (node->note && (*idx)-- == 0) {
		snprintf(words, BACKEND_NOTE_BYTES, "%s", node->note);
		return true;
	}
	for (const struct backend_device *c = backend_below(node); c; c = c->sibling)
		if (find_note(c, idx, words))
			return true;
	return false;
}

bool backend_note(const struct backend_device *top, unsigned idx, char words[BACKEND_NOTE_BYTES])
{
	return find_note(top, &idx, words);
}
