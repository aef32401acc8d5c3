/* See cuts_model.h. */
#include "test/cuts/cuts_model.h"

#include <stdio.h>

#include "base/assert.h"

void model_init(struct model *m, uint64_t bytes)
{
	m->sector_nr = bytes / SECTOR_BYTES;
	ASSERT(m->sector_nr <= MODEL_SECTORS_MAX);
	m->clock = 1;
	m->next_value = VALUE_FIRST;
}

void model_set(struct model *m, uint64_t sector, uint32_t value)
{
	struct model_sector *s = &m->sector[sector];

	s->nr = 1;
	s->entry[0] = (struct model_entry){
		.value = value, .is_strong = true, .is_durable = true, .begin = 1, .end = 1
	};
}

bool model_has_room(const struct model *m, uint64_t offset, uint64_t bytes)
{
	for (uint64_t i = offset / SECTOR_BYTES; i < (offset + bytes) / SECTOR_BYTES; i++)
		if (m->sector[i].nr == MODEL_ENTRIES)
			return false;
	return true;
}

uint64_t model_begin(struct model *m, uint64_t offset, uint64_t bytes, uint32_t value,
		     bool is_strong)
{
	uint64_t begin = model_now(m);

	for (uint64_t i = offset / SECTOR_BYTES; i < (offset + bytes) / SECTOR_BYTES; i++) {
		struct model_sector *s = &m->sector[i];

		s->entry[s->nr++] = (struct model_entry){ .value = value,
							  .is_strong = is_strong,
							  .begin = begin };
	}
	return begin;
}

uint64_t model_begin_values(struct model *m, const uint32_t *value)
{
	uint64_t begin = model_now(m);

	for (uint64_t i = 0; i < m->sector_nr; i++) {
		struct model_sector *s = &m->sector[i];

		s->entry[s->nr++] = (struct model_entry){ .value = value[i],
							  .is_strong = true,
							  .begin = begin };
	}
	return begin;
}

void model_end(struct model *m, uint64_t begin, uint64_t offset, uint64_t bytes, bool is_failed,
	       bool is_durable)
{
	uint64_t end = model_now(m);

	for (uint64_t i = offset / SECTOR_BYTES; i < (offset + bytes) / SECTOR_BYTES; i++)
		for (unsigned k = 0; k < m->sector[i].nr; k++) {
			struct model_entry *e = &m->sector[i].entry[k];

			if (e->begin != begin)
				continue;
			e->end = end;
			e->is_durable = is_durable && !is_failed;
			e->is_strong = e->is_strong && !is_failed;
		}
}

static bool is_over(const struct model_entry *e, const struct model_entry *old)
{
	return e->is_strong && e->end && old->end && old->end < e->begin;
}

static bool is_gone(const struct model_sector *s, const struct model_entry *old, bool after_cut,
		    uint64_t before)
{
	for (unsigned i = 0; i < s->nr; i++) {
		const struct model_entry *e = &s->entry[i];

		if (is_over(e, old) && e->end < before && (e->is_durable || !after_cut))
			return true;
	}
	return false;
}

static void forget(struct model_sector *s, uint64_t oldest_read)
{
	unsigned nr = 0;
	struct model_sector kept;

	for (unsigned i = 0; i < s->nr; i++)
		if (!is_gone(s, &s->entry[i], true, oldest_read))
			kept.entry[nr++] = s->entry[i];
	memcpy(s->entry, kept.entry, nr * sizeof(s->entry[0]));
	s->nr = nr;
}

void model_flushed(struct model *m, uint64_t begin, uint64_t oldest_read)
{
	for (uint64_t i = 0; i < m->sector_nr; i++) {
		struct model_sector *s = &m->sector[i];

		for (unsigned k = 0; k < s->nr; k++)
			if (s->entry[k].end && s->entry[k].end < begin)
				s->entry[k].is_durable = true;
		if (s->nr > 1)
			forget(s, oldest_read);
	}
}

void model_lost(struct model *m)
{
	for (uint64_t i = 0; i < m->sector_nr; i++)
		for (unsigned k = 0; k < m->sector[i].nr; k++)
			m->sector[i].entry[k].is_strong &= m->sector[i].entry[k].is_durable;
}

void model_killed(struct model *m)
{
	uint64_t end = model_now(m);

	for (uint64_t i = 0; i < m->sector_nr; i++)
		for (unsigned k = 0; k < m->sector[i].nr; k++) {
			struct model_entry *e = &m->sector[i].entry[k];

			if (e->end)
				continue;
			e->end = end;
			e->is_strong = false;
		}
}

static void settle_one(struct model_sector *s, uint64_t begin, bool is_done)
{
	unsigned nr = 0;

	for (unsigned k = 0; k < s->nr; k++) {
		struct model_entry e = s->entry[k];

		e.is_strong |= e.begin == begin;
		e.is_durable |= e.begin == begin;
		if (e.begin != begin || is_done)
			s->entry[nr++] = e;
	}
	s->nr = nr;
}

void model_settle(struct model *m, uint64_t begin, bool is_done)
{
	for (uint64_t i = 0; i < m->sector_nr; i++)
		settle_one(&m->sector[i], begin, is_done);
}

static bool may_be(const struct model *m, uint64_t sector, uint32_t value, bool after_cut,
		   uint64_t before)
{
	const struct model_sector *s = &m->sector[sector];

	for (unsigned i = 0; i < s->nr; i++)
		if (s->entry[i].value == value && !is_gone(s, &s->entry[i], after_cut, before))
			return true;
	return false;
}

bool model_may_read(const struct model *m, uint64_t sector, uint32_t value, uint64_t begin)
{
	return may_be(m, sector, value, false, begin);
}

bool model_may_be_left(const struct model *m, uint64_t sector, uint32_t value)
{
	return may_be(m, sector, value, true, UINT64_MAX);
}

uint64_t model_began(const struct model *m, uint64_t sector, uint32_t value)
{
	const struct model_sector *s = &m->sector[sector];
	uint64_t began = 0;
	unsigned nr = 0;

	for (unsigned i = 0; i < s->nr; i++)
		if (s->entry[i].value == value) {
			began = s->entry[i].begin;
			nr++;
		}
	return nr == 1 ? began : 0;
}

int model_side(const struct model *m, uint64_t sector, uint32_t value, uint64_t begin,
	       bool after_cut)
{
	const struct model_sector *s = &m->sector[sector];
	bool by_it = false, by_older = false;

	for (unsigned i = 0; i < s->nr; i++) {
		const struct model_entry *e = &s->entry[i];

		if (e->value != value || is_gone(s, e, after_cut, UINT64_MAX))
			continue;
		if (e->begin == begin)
			by_it = true;
		else if (e->end && e->end < begin)
			by_older = true;
		else
			return 0;
	}
	return by_it - by_older;
}

void model_tell(const struct model *m, uint64_t sector, char *words, size_t bytes)
{
	const struct model_sector *s = &m->sector[sector];
	int at = 0;

	words[0] = '\0';
	for (unsigned i = 0; i < s->nr && at < (int)bytes; i++) {
		const struct model_entry *e = &s->entry[i];

		at += snprintf(words + at, bytes - (size_t)at, " %u[%llu-%llu%s%s]", e->value,
			       (unsigned long long)e->begin, (unsigned long long)e->end,
			       e->is_strong ? "" : " weak", e->is_durable ? " durable" : "");
	}
}
