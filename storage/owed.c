/*
 * The counts of owed.h. Any thread: atomics; they change when something has failed, and are read
 * by FLUSHes alone.
 *
 * Happy path: a FLUSH notes how much has been told when it begins, and finds no more losses than
 * that when it ends: it is good, and settles them. Failure modes are what this is about. A FLUSH
 * that was under way while another one told of a loss fails too: it stands for the same writes.
 */
#include "storage/owed.h"

#include <errno.h>
#include <sys/mman.h>

#include "storage/backend.h"
#include "base/log.h"

_Atomic uint32_t backend_losses_nr;

/* The node's first: who finds that the process's has changed reads it. */
void backend_owe(const struct backend_device *device)
{
	atomic_fetch_add(&device->owed->losses, 1);
	atomic_fetch_add(&backend_losses_nr, 1);
}

uint32_t backend_losses(const struct backend_device *device)
{
	uint32_t losses = atomic_load(&device->owed->losses);

	for (const struct backend_device *c = device->child; c; c = c->sibling)
		losses += c->has_copies ? 0 : backend_losses(c);
	return losses;
}

bool backend_is_owed(const struct backend_device *device)
{
	return atomic_load(&device->owed->told) != backend_losses(device);
}

bool backend_is_settled(const struct backend_device *device, uint32_t losses)
{
	return (int32_t)(atomic_load(&device->owed->settled) - losses) >= 0;
}

struct backend_owed *backend_owed_map(int fd)
{
	void *kept = mmap(NULL, BACKEND_OWED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return kept == MAP_FAILED ? NULL : kept;
}

void backend_owed_unmap(struct backend_owed *kept)
{
	if (kept)
		munmap(kept, BACKEND_OWED_BYTES);
}

void backend_owed_begin(struct backend_device *device, struct backend_owed *kept)
{
	device->owed = kept ? kept : &device->owed_here;
	atomic_store(&device->owed->told, atomic_load(&device->owed->settled));
}

void backend_owed_open(struct backend_device *device)
{
	uint32_t losses = backend_losses(device);

	device->was_owed = atomic_load(&device->owed->settled) != losses;
	/* The node above asks; of the top only a FLUSH can tell the user. */
	if (device->parent)
		atomic_store(&device->owed->told, losses);
}

bool backend_was_owed(const struct backend_device *device)
{
	return device->was_owed;
}

/* Counts only grow: of two that tell at once the later one stands. */
static void grow_to(_Atomic uint32_t *count, uint32_t value)
{
	uint32_t now = atomic_load(count);

	while ((int32_t)(value - now) > 0 && !atomic_compare_exchange_weak(count, &now, value))
		;
}

void backend_owed_take(const struct backend_device *child, uint32_t losses)
{
	grow_to(&child->owed->told, losses);
}

/* With it those below, of which not each has had a FLUSH: what is told need not be told again. */
static void settle(const struct backend_device *device)
{
	grow_to(&device->owed->settled, atomic_load(&device->owed->told));
	for (const struct backend_device *c = device->child; c; c = c->sibling)
		settle(c);
}

void backend_owed_flush_begin(struct backend_io *io)
{
	io->flush_told = (uint16_t)atomic_load(&io->queue->device->owed->told);
	io->loss_is_counted = false;
}

/* One loss is one at each node above: counted again it would fail FLUSHes that began after it. */
static int tell_above(struct backend_io *io, int result)
{
	if (io->parent && io->parent->op == BACKEND_FLUSH && !io->queue->device->has_copies)
		io->parent->loss_is_counted = true;
	return result;
}

int backend_owed_flush_judge(struct backend_io *io, int result)
{
	struct backend_device *device = io->queue->device;
	struct backend_owed *owed = device->owed;
	uint32_t losses;

	if (result < 0 && !io->loss_is_counted)
		backend_owe(device);
	losses = backend_losses(device);
	if (result == 0 && (uint16_t)losses == io->flush_told) {
		settle(device);
		return 0;
	}
	grow_to(&owed->told, losses);
	if (result < 0)
		return tell_above(io, result);
	log_limited(LOG_LEVEL_WARN, "a FLUSH fails, as writes before it may be lost", "node=%s",
		    device->name);
	return tell_above(io, -EIO);
}
