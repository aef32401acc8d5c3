/* Zones of a slot's devices: their shape for the life of a medium, their limits for a start. */
#include "test/sim/zones/slot_zones.h"

#include <stdio.h>
#include <stdlib.h>

#include "filters/zoned/zone_format.h"
#include "storage/registry.h"
#include "test/sim/slot.h"

#define ZONE_BYTES_MIN 65536u
/* The page of the table is read with its two places at once. */
#define IO_BYTES_MIN 8192u

bool slot_zones_seed(unsigned idx)
{
	return sim.defect == DEFECT_NONE && !sim.cut.on && (sim.seed + idx) % 8 == 6;
}

bool slot_zones_wanted(const struct slot *slot)
{
	const uint64_t needed = UBLK_F_ZONED | UBLK_F_USER_COPY;

	return slot_zones_seed(slot->idx) &&
	       (slot->kind == SLOT_SCRIPTED || slot->kind == SLOT_MOVER) &&
	       (slot_features(slot->host) & needed) == needed;
}

void slot_zones_choose(struct slot *slot)
{
	slot->st->data_at = slot->st->medium_bytes = 0;
	if (slot_zones_wanted(slot))
		storage_resize(slot->st, slot->first_bytes);
}

static void choose_shape(struct sim_zones *z, uint64_t medium_bytes)
{
	uint32_t nr;

	z->zone_bytes = (uint64_t)ZONE_BYTES_MIN << sim_one_in(3);
	if (zone_format_fit(medium_bytes, z->zone_bytes) < 2)
		z->zone_bytes = ZONE_BYTES_MIN;
	nr = zone_format_fit(medium_bytes, z->zone_bytes);
	z->capacity_bytes = z->zone_bytes;
	if (sim_one_in(2))
		z->capacity_bytes -= sim_below(z->zone_bytes / 8192) * 4096;
	z->conventional_nr = sim_one_in(3) ? (uint32_t)sim_below(MIN(nr, 3u)) : 0;
	free(z->zone);
	z->zone = calloc(nr, sizeof(*z->zone));
	z->nr = nr;
}

/* What the node makes of a limit: of more zones than there are it is none. */
static uint32_t limit_of(const struct sim_zones *z, uint32_t wanted)
{
	return wanted < z->nr - z->conventional_nr ? wanted : 0;
}

/* Sometimes more than there are zones: on a medium that has grown it must stay none. */
static uint32_t choose_active(const struct sim_zones *z)
{
	if (sim_one_in(2))
		return 0;
	return sim_one_in(4) ? z->nr + (uint32_t)sim_below(3) : (uint32_t)sim_between(2, 6);
}

static void *choose_limits(struct sim_zones *z)
{
	uint32_t active = choose_active(z);
	uint32_t open = sim_one_in(2) ? (uint32_t)sim_between(1, active ? active : 4) : 0;
	char yaml[200];

	snprintf(yaml, sizeof(yaml),
		 "zones:\n  size: %llu\n  capacity: %llu\n  conventional: %u\n  max_open: %u\n"
		 "  max_active: %u\n",
		 (unsigned long long)z->zone_bytes,
		 (unsigned long long)(z->capacity_bytes == z->zone_bytes ? 0 : z->capacity_bytes),
		 z->conventional_nr, open, active);
	z->active_nr_max = limit_of(z, active);
	z->open_nr_max = limit_of(z, open);
	/* What is open is active. */
	if (z->open_nr_max == 0)
		z->open_nr_max = z->active_nr_max;
	return sim_parse_options(&backend_zoned, yaml);
}

static void free_config(struct slot_zones *s)
{
	if (s->config)
		option_free(backend_zoned.options, s->config);
	free(s->config);
	s->config = NULL;
}

const struct backend_spec *slot_zones_make(struct slot *slot, const struct backend_spec *below)
{
	struct slot_zones *s = &slot->zones;
	struct storage *st = slot->st;

	s->is_kept = s->ended_well && !sim_one_in(4);
	s->ended_well = false;
	st->medium_bytes = st->size_bytes;
	if (!s->is_kept)
		choose_shape(&s->zones, st->medium_bytes);
	free_config(s);
	s->config = choose_limits(&s->zones);
	s->spec =
		(struct backend_spec){ .ops = &backend_zoned, .config = s->config, .child = below };
	st->zones = &s->zones;
	st->data_at = zone_data_at(s->zones.nr);
	storage_resize(st, s->zones.nr * s->zones.zone_bytes);
	return &s->spec;
}

void slot_zones_fit(struct slot *slot)
{
	slot->spec.max_io_bytes = MAX(slot->spec.max_io_bytes, IO_BYTES_MIN);
	/* A table can only be read where there is one. */
	slot->spec.read_only = slot->spec.read_only && slot->zones.is_kept;
}

void slot_zones_begin(struct slot *slot)
{
	if (slot->zones.is_kept) {
		sim_zones_restart(slot->st->zones);
		sim_saw(FAULT_ZONE_RESTARTED);
		return;
	}
	storage_reset(slot->st);
	sim_zones_reset(slot->st->zones);
}

void slot_zones_ended(struct slot *slot, bool failed)
{
	slot->zones.ended_well = !failed && slot->was_live && !slot->past.kept;
}

/* ---- opening and closing ---- */

static struct backend_home home_of(const struct slot *slot)
{
	return (struct backend_home){ .reactor = slot->host->ctl->reactor };
}

static void opened(void *arg, const struct backend_life_end *end)
{
	struct slot *slot = arg;
	struct slot_zones *s = &slot->zones;
	enum sim_side side = sim_cross(SIM_WORLD);

	s->life = NULL;
	s->ret = end->ret;
	slot->spec.opened = end->ret < 0 ? NULL : end->device;
	snprintf(s->words, sizeof(s->words), "%s", end->ret < 0 ? end->words : "");
	sim_event_arm(&slot->event, sim.now_ns, s->then);
	sim_cross(side);
}

void slot_zones_open(struct slot *slot, const struct device_past *past,
		     void (*then)(struct sim_event *event))
{
	const struct backend_life_owner owner = { .done = opened, .arg = slot };
	const struct backend_home home = home_of(slot);
	struct slot_zones *s = &slot->zones;
	struct backend_open_params params;
	int ret;

	device_open_params(&slot->spec, past, &params);
	params.stored_fds = past ? slot->past.stored_fds : NULL;
	slot->spec.opened = slot->st->leaf = NULL;
	s->then = then;
	sim_cross(SIM_PRODUCT);
	ret = backend_open_begin(&s->life, &home, slot->spec.backend, slot->name, &params, &owner);
	sim_cross(SIM_WORLD);
	if (ret < 0)
		opened(slot, &(struct backend_life_end){ .ret = ret, .words = "out of memory" });
}

/* What it could not write at its end the next one does not find. */
static void has_closed(void *arg, const struct backend_life_end *end)
{
	struct slot_zones *s = &((struct slot *)arg)->zones;

	s->life = NULL;
	s->closing = NULL;
	if (end->ret < 0)
		s->ended_well = false;
}

void slot_zones_close(struct slot *slot, struct backend_device *backend)
{
	const struct backend_life_owner owner = { .done = has_closed, .arg = slot };
	const struct backend_home home = home_of(slot);
	struct slot_zones *s = &slot->zones;
	enum sim_side side = sim_cross(SIM_PRODUCT);

	s->closing = backend;
	if (backend && backend_close_begin(&s->life, &home, backend, &owner) < 0) {
		backend_close(backend);
		s->closing = NULL;
		s->ended_well = false;
	}
	sim_cross(side);
}

bool slot_zones_are_busy(const struct slot *slot)
{
	return slot->zones.life;
}

const struct backend_device *slot_zones_killed(struct slot *slot)
{
	struct slot_zones *s = &slot->zones;
	const struct backend_device *top = s->closing ? s->closing : slot->st->leaf;

	s->ended_well = false;
	if (!s->life)
		return NULL;
	while (top && top->parent)
		top = top->parent;
	s->life = NULL;
	s->closing = NULL;
	return top;
}

void slot_zones_fini(struct slot *slot)
{
	free_config(&slot->zones);
	free(slot->zones.zones.zone);
}
