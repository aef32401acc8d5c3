/* See cuts_change.h. */
#include "test/cuts/cuts_change.h"

#include <stdio.h>

#include "test/cuts/cuts_world.h"

static uint32_t found[MODEL_SECTORS_MAX], made[MODEL_SECTORS_MAX];

void changes_add(struct changes *c, const char *name, const uint32_t *value, uint64_t sector_nr)
{
	struct change_snapshot *s = &c->entry[c->nr++];

	snprintf(s->name, sizeof(s->name), "%s", name);
	memcpy(s->value, value, sector_nr * sizeof(*value));
}

/* ---- its beginning ---- */

static bool choose_change(struct world *w, enum backend_snapshot_op *ret_op, unsigned *ret_idx)
{
	struct changes *c = &w->changes;
	unsigned n = (unsigned)prng_below(&w->prng, 3);

	*ret_idx = c->nr;
	*ret_op = BACKEND_SNAPSHOT_CREATE;
	if (n > 0 && c->nr > 0) {
		*ret_idx = (unsigned)prng_below(&w->prng, c->nr);
		*ret_op = n == 1 ? BACKEND_SNAPSHOT_DELETE : BACKEND_SNAPSHOT_APPLY;
	}
	if (*ret_op == BACKEND_SNAPSHOT_APPLY)
		return model_has_room(&w->model, 0, w->shape.bytes);
	return *ret_op == BACKEND_SNAPSHOT_DELETE || c->nr + 1 < CHANGE_SNAPSHOTS_MAX;
}

static void change_ended(struct rig *rig, int ret);

static void change_begin(struct world *w, struct rig *rig)
{
	struct changes *c = &w->changes;
	const char *name = c->entry[c->idx].name;
	int ret;

	c->state = CHANGE_RUNS;
	rig->on_changed = change_ended;
	ret = rig_change(rig, c->op, name);
	if (ret < 0)
		world_fail(w, "change %u of %s does not begin: %d, %s", c->op, name, ret,
			   rig->change.words);
}

static bool choose_new(struct world *w)
{
	struct changes *c = &w->changes;
	struct change_snapshot *s;

	if (!choose_change(w, &c->op, &c->idx))
		return false;
	s = &c->entry[c->idx];
	if (c->op == BACKEND_SNAPSHOT_CREATE)
		snprintf(s->name, sizeof(s->name), "s%u", c->made_nr++);
	c->begin = c->op == BACKEND_SNAPSHOT_APPLY ? model_begin_values(&w->model, s->value)
						   : model_now(&w->model);
	return true;
}

void change_maybe_begin(struct world *w, struct rig *rig)
{
	struct changes *c = &w->changes;

	if (rig->is_changing || !prng_one_in(&w->prng, c->one_in))
		return;
	/* Of which nobody knows whether it is done: the same again. */
	if (c->state == CHANGE_NONE ? choose_new(w) : c->op != BACKEND_SNAPSHOT_APPLY)
		change_begin(w, rig);
}

/* ---- its end ---- */

static void settle(struct changes *c)
{
	if (c->op == BACKEND_SNAPSHOT_CREATE)
		c->nr++;
	if (c->op == BACKEND_SNAPSHOT_DELETE) {
		c->nr--;
		memmove(&c->entry[c->idx], &c->entry[c->idx + 1],
			(c->nr - c->idx) * sizeof(c->entry[0]));
	}
	c->done_nr++;
	c->state = CHANGE_NONE;
}

/*
 * What a new snapshot has is the disk at one moment since the change began: nothing is there
 * without all that had ended before it began.
 */
static bool judge_moment(struct world *w, const uint32_t *value)
{
	uint64_t last = w->changes.begin;
	char words[300];

	for (uint64_t i = 0; i < w->model.sector_nr; i++)
		last = MAX(last, model_began(&w->model, i, value[i]));
	for (uint64_t i = 0; i < w->model.sector_nr; i++) {
		if (model_may_read(&w->model, i, value[i], last))
			continue;
		model_tell(&w->model, i, words, sizeof(words));
		return world_fail(w, "a snapshot of %llu has %u in sector %llu, allowed at %llu:%s",
				  (unsigned long long)w->changes.begin, value[i],
				  (unsigned long long)i, (unsigned long long)last, words);
	}
	return true;
}

static bool take_created(struct world *w, const struct disk *d)
{
	struct changes *c = &w->changes;

	return judge_read(w, d, (int)c->idx, c->entry[c->idx].value) &&
	       judge_moment(w, c->entry[c->idx].value);
}

/*
 * What it says is so: it is done, but for its space; or nobody knows, and it is under way for ever,
 * of an apply with a device that fails all; or nothing has changed. True: it is done.
 */
static bool failed_is_done(struct world *w, struct rig *rig, int ret)
{
	struct changes *c = &w->changes;

	if (!w->may_fail)
		return world_fail(w, "change %u of %s fails: %d, %s", c->op, c->entry[c->idx].name,
				  ret, rig->change.words);
	c->failed_nr++;
	c->may_differ = true;
	if (strstr(rig->change.words, "not known")) {
		if (c->op == BACKEND_SNAPSHOT_APPLY && !backend_failure(rig->device, NULL))
			world_fail(w, "the device goes on after an apply that nobody knows of");
		return false;
	}
	if (strstr(rig->change.words, "the snapshots are changed"))
		return true;
	if (c->op == BACKEND_SNAPSHOT_APPLY)
		model_settle(&w->model, c->begin, false);
	c->state = CHANGE_NONE;
	return false;
}

static void change_ended(struct rig *rig, int ret)
{
	struct world *w = rig->arg;
	struct changes *c = &w->changes;

	if (ret < 0 && !failed_is_done(w, rig, ret))
		return;
	if (c->op == BACKEND_SNAPSHOT_CREATE && !take_created(w, w->disk))
		return;
	if (c->op == BACKEND_SNAPSHOT_APPLY)
		model_end(&w->model, c->begin, 0, w->shape.bytes, false, true);
	settle(c);
}

/* ---- what is left ---- */

static unsigned nr_when_done(const struct changes *c)
{
	return c->nr + (c->op == BACKEND_SNAPSHOT_CREATE) - (c->op == BACKEND_SNAPSHOT_DELETE);
}

static bool nr_may_be(const struct changes *c, unsigned nr)
{
	return nr == c->nr || (nr == nr_when_done(c) && c->state == CHANGE_RUNS);
}

static bool judge_one(struct world *w, unsigned idx, const uint32_t *wanted)
{
	if (!judge_read(w, w->left, (int)idx, found))
		return false;
	for (uint64_t i = 0; i < w->model.sector_nr; i++)
		if (found[i] != wanted[i])
			return world_fail(w, "snapshot %u has %u in sector %llu, and had %u", idx,
					  found[i], (unsigned long long)i, wanted[i]);
	return true;
}

/* The last one is that of a create that had no end. */
static bool judge_made(struct world *w, unsigned idx, bool again)
{
	if (again)
		return judge_one(w, idx, made);
	return judge_read(w, w->left, (int)idx, made) && judge_moment(w, made);
}

bool change_judge_snapshots(struct world *w, bool again)
{
	static unsigned last_nr;
	struct changes *c = &w->changes;
	unsigned nr = judge_snapshot_nr();

	if (!nr_may_be(c, nr) || (again && nr != last_nr))
		return world_fail(w, "there are %u snapshots, and were %u; change %u, state %u", nr,
				  again ? last_nr : c->nr, c->op, c->state);
	last_nr = nr;
	for (unsigned i = 0; i < nr; i++) {
		bool is_after = nr < c->nr && i >= c->idx;

		if (i == c->nr ? !judge_made(w, i, again)
			       : (c->state != CHANGE_NONE || prng_one_in(&w->prng, 3)) &&
					 !judge_one(w, i, c->entry[i + is_after].value))
			return false;
	}
	return true;
}

/* Bit 0: some sector says that the apply is not done; bit 1: that it is. */
static unsigned sides_of_apply(const struct world *w, const uint32_t *values, bool after_cut)
{
	unsigned sides = 0;

	for (uint64_t i = 0; i < w->model.sector_nr; i++) {
		int side = model_side(&w->model, i, values[i], w->changes.begin, after_cut);

		if (side)
			sides |= side < 0 ? 1 : 2;
	}
	return sides;
}

bool change_judge_apply(struct world *w, const uint32_t *values, bool after_cut)
{
	const struct changes *c = &w->changes;

	if (c->state != CHANGE_RUNS || c->op != BACKEND_SNAPSHOT_APPLY ||
	    sides_of_apply(w, values, after_cut) != 3)
		return true;
	return world_fail(w, "an apply of %llu is done by half", (unsigned long long)c->begin);
}

bool change_adopted(struct world *w, const uint32_t *values)
{
	struct changes *c = &w->changes;
	unsigned sides;

	if (c->state != CHANGE_RUNS)
		return true;
	c->may_differ = true;
	c->state = CHANGE_NONE;
	if (c->op == BACKEND_SNAPSHOT_APPLY) {
		sides = sides_of_apply(w, values, false);
		if (sides)
			model_settle(&w->model, c->begin, sides == 2);
		return true;
	}
	if (!judge_open(w, w->disk))
		return false;
	if (judge_snapshot_nr() == c->nr)
		return true;
	if (c->op == BACKEND_SNAPSHOT_CREATE && !take_created(w, w->disk))
		return false;
	settle(c);
	return true;
}
