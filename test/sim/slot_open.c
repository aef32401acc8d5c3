/*
 * A slot's backend is opened as by who may block, which is at once; of a device with zones by the
 * control reactor, as the daemon does, since it reads and writes its table (zones/slot_zones.c).
 */
#include "test/sim/slot.h"

int slot_open(struct slot *slot, const struct device_past *past, char *error, size_t error_bytes)
{
	struct backend_open_params open_params;

	device_open_params(&slot->spec, past, &open_params);
	open_params.stored_fds = past ? slot->past.stored_fds : NULL;
	slot->spec.opened = NULL;
	return backend_open(&slot->spec.opened, slot->spec.backend, slot->name, &open_params, error,
			    error_bytes);
}

void slot_opened(struct slot *slot, int err)
{
	if (err < 0 && slot->st->zones)
		slot_zones_close(slot, slot->spec.opened);
	else if (err < 0)
		backend_close(slot->spec.opened);
	slot->spec.opened = NULL;
}

bool slot_may_not_open(const struct slot *slot)
{
	return slot_open_excuses() != slot->open_excuses || slot->st->visit_faults > 0;
}
