/*
 * What belongs together in a report of `ublktrace latency`, and by what names. Pure; main thread.
 * Failure modes: out of memory only.
 */
#include "ublktrace/latency/latency_report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/errname.h"
#include "base/util.h"
#include "ublktrace/events/names.h"

void latency_report_free(struct latency_report *r)
{
	if (!r)
		return;
	free(r->device);
	free(r);
}

struct latency_report *latency_report_clone(const struct latency_report *r)
{
	struct latency_report *copy = malloc(sizeof(*copy));

	if (!copy)
		return NULL;
	*copy = *r;
	copy->device = calloc(r->device_nr + 1, sizeof(*copy->device));
	if (!copy->device) {
		free(copy);
		return NULL;
	}
	if (r->device_nr)
		memcpy(copy->device, r->device, r->device_nr * sizeof(*copy->device));
	return copy;
}

static void block_subtract(struct latency_block *now, const struct latency_block *before)
{
	for (unsigned i = 0; i < LATENCY_STAGE_NR; i++)
		latency_hist_subtract(&now->stage[i], &before->stage[i]);
	now->errors -= MIN(now->errors, before->errors);
}

static void devices_subtract(struct latency_report *now, const struct latency_report *before)
{
	for (unsigned i = 0, j = 0; i < now->device_nr; i++) {
		while (j < before->device_nr && before->device[j].number < now->device[i].number)
			j++;
		if (j == before->device_nr || before->device[j].number != now->device[i].number)
			continue;
		for (unsigned op = 0; op < LATENCY_OP_NR; op++)
			block_subtract(&now->device[i].op[op], &before->device[j].op[op]);
	}
}

static void uring_subtract(struct latency_uring *now, const struct latency_uring *before)
{
	latency_hist_subtract(&now->hist, &before->hist);
	now->async -= MIN(now->async, before->async);
	now->polled -= MIN(now->polled, before->polled);
	now->migrated -= MIN(now->migrated, before->migrated);
	now->errors -= MIN(now->errors, before->errors);
}

static void errors_subtract(struct latency_report *now, const struct latency_report *before)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < now->error_nr; i++) {
		struct latency_error_count e = now->error[i];

		for (unsigned j = 0; j < before->error_nr; j++)
			if (!memcmp(&e.error, &before->error[j].error, sizeof(e.error)))
				e.count -= before->error[j].count;
		if (e.count)
			now->error[kept++] = e;
	}
	now->error_nr = kept;
}

void latency_report_subtract(struct latency_report *now, const struct latency_report *before)
{
	now->seconds -= before->seconds;
	devices_subtract(now, before);
	for (unsigned i = 0; i < LATENCY_URING_ROWS; i++)
		uring_subtract(&now->uring[i], &before->uring[i]);
	for (unsigned i = 0; i < LATENCY_LEVEL_NR; i++)
		for (unsigned n = 0; n < LATENCY_LEVELS; n++)
			now->level[i][n] -= MIN(now->level[i][n], before->level[i][n]);
	errors_subtract(now, before);
	now->fetches -= before->fetches;
	now->totals.aux -= before->totals.aux;
}

/* ---- rows */

static bool is_empty(const struct latency_block *b)
{
	return !latency_hist_count(&b->stage[LATENCY_TOTAL]);
}

static void block_add(struct latency_block *dst, const struct latency_block *src)
{
	for (unsigned i = 0; i < LATENCY_STAGE_NR; i++)
		latency_hist_add(&dst->stage[i], &src->stage[i]);
	dst->errors += src->errors;
}

/* Where the requests of a device and an operation belong. */
static unsigned row_of(enum latency_by by, unsigned device, unsigned op)
{
	if (by == LATENCY_BY_OP)
		return op;
	return by == LATENCY_BY_DEVICE ? device : device * LATENCY_OP_NR + op;
}

static void row_name(struct latency_row *row, enum latency_by by, uint32_t number, unsigned op)
{
	if (by == LATENCY_BY_OP)
		snprintf(row->name, sizeof(row->name), "%s", latency_op_name(op));
	else if (by == LATENCY_BY_DEVICE)
		snprintf(row->name, sizeof(row->name), "ublkb%u", number);
	else
		snprintf(row->name, sizeof(row->name), "ublkb%u %s", number, latency_op_name(op));
}

int latency_rows(const struct latency_report *r, enum latency_by by, struct latency_row **ret_row)
{
	unsigned room = (r->device_nr + 1) * LATENCY_OP_NR, kept = 0;
	struct latency_row *rows = calloc(room, sizeof(*rows));

	if (!rows)
		return -ENOMEM;
	for (unsigned d = 0; d < r->device_nr; d++)
		for (unsigned op = 0; op < LATENCY_OP_NR; op++) {
			struct latency_row *row = &rows[row_of(by, d, op)];

			row_name(row, by, r->device[d].number, op);
			block_add(&row->sum, &r->device[d].op[op]);
		}
	for (unsigned i = 0; i < room; i++)
		if (!is_empty(&rows[i].sum)) {
			if (kept != i)
				rows[kept] = rows[i];
			kept++;
		}
	*ret_row = rows;
	return (int)kept;
}

/* ---- names */

const char *latency_op_name(enum latency_op op)
{
	static const char *const names[] = { "read",	"write",	"flush",
					     "discard", "write_zeroes", "other" };

	return names[op];
}

const char *latency_stage_name(enum latency_stage stage)
{
	static const char *const names[] = { "queued", "daemon", "commit", "total", "not split" };

	return names[stage];
}

const char *latency_level_name(enum latency_level level)
{
	static const char *const names[] = { "SQEs per submission", "CQEs per wait",
					     "SQ depth behind an SQE", "CQ depth at an SQE" };

	return names[level];
}

/* block/blk-core.c: blk_errors[] of Linux 6.12 and 7.2. */
static int latency_block_errno(unsigned status)
{
	static const int numbers[] = {
		[1] = EOPNOTSUPP, [2] = ETIMEDOUT, [3] = ENOSPC, [4] = ENOLINK, [5] = EREMOTEIO,
		[6] = EBADE,	  [7] = ENODATA,   [8] = EILSEQ, [9] = ENOMEM,	[10] = EIO,
		[11] = EREMCHG,	  [12] = EAGAIN,   [13] = EBUSY,
	};

	return status < ARRAY_SIZE(numbers) && numbers[status] ? numbers[status] : EIO;
}

const char *latency_error_name(const struct latency_error *e)
{
	return errname(e->block ? latency_block_errno((unsigned)e->error) : e->error);
}

static const char *latency_opcode_name(unsigned opcode, char *buf, size_t bytes)
{
	const char *name = name_opcode(opcode);

	if (name)
		snprintf(buf, bytes, "%s", name);
	else
		snprintf(buf, bytes, "opcode %u", opcode);
	return buf;
}

const char *latency_error_code(const struct latency_error *e, char *buf, size_t bytes)
{
	const char *name = name_block_op(e->code);

	if (!e->block)
		return latency_opcode_name(e->code, buf, bytes);
	if (name)
		snprintf(buf, bytes, "%s", name);
	else
		snprintf(buf, bytes, "operation %u", e->code);
	return buf;
}

const char *latency_uring_name(const struct latency_report *r, unsigned idx, char *buf,
			       size_t bytes)
{
	if (!r->by_ring)
		return latency_opcode_name(idx, buf, bytes);
	snprintf(buf, bytes, "ring %llx of %.16s (%u)", r->ring[idx].ctx & 0xffffff,
		 r->ring[idx].comm, r->ring[idx].pid);
	return buf;
}

const char *latency_time(uint64_t ns, char *buf)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	double value = (double)ns;
	unsigned unit = 0;

	while (value >= 999.5 && unit < 3) {
		value /= 1000;
		unit++;
	}
	snprintf(buf, 16, value < 100 && unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return buf;
}
