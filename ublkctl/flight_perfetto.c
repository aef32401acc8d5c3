/*
 * Draws a flight log: a process per device, in it a track per (queue, tag), a slice per I/O. Owns
 * the writer while it runs; one thread.
 *
 * Happy path: track by track, each FETCH becomes a slice up to its COMMIT, what lies between them
 * are instants. An I/O without a COMMIT is a slice without an end; a COMMIT whose FETCH is no
 * longer there is left out. Failure mode: the file cannot be written.
 */
#include "ublkctl/flight_perfetto.h"

#include <stdlib.h>

#include "base/errname.h"
#include "storage/backend.h"
#include "tracefile/writer.h"

static struct trace_arg flight_result(const struct flight_record *r)
{
	return (struct trace_arg){ .name = "result",
				   .text = r->value < 0 ? errname(r->value) : NULL,
				   .number = r->value };
}

static bool flight_same_track(const struct flight_record *a, const struct flight_record *b)
{
	return a->key.device == b->key.device && a->key.queue == b->key.queue &&
	       a->key.tag == b->key.tag;
}

/* line is a FETCH; what follows up to end are the lines of its device, queue and tag, and others.
 */
static void flight_draw_slice(struct trace_writer *w, uint64_t track,
			      const struct flight_line *line, const struct flight_line *end)
{
	const struct flight_record *r = &line->record, *last = NULL;
	struct trace_arg args[3] = {
		{ .name = "sector", .number = (int64_t)r->sector, .is_unsigned = true },
		{ .name = "bytes", .number = (uint32_t)r->value },
	};
	struct trace_slice s = { .track = track,
				 .start_ns = r->time_ns,
				 .end_ns = TRACE_OPEN,
				 .name = backend_op_name(r->key.op),
				 .args = args,
				 .arg_nr = 2 };

	for (line++; line < end && flight_same_track(&line->record, r) && !last; line++)
		if (line->record.key.event == FLIGHT_FETCH ||
		    line->record.key.event == FLIGHT_COMMIT)
			last = &line->record;
	if (last)
		s.end_ns = last->time_ns;
	if (last && last->key.event == FLIGHT_COMMIT)
		args[s.arg_nr++] = flight_result(last);
	w->ops->slice(w, &s);
}

int perfetto_write(FILE *file, struct flight_log *log)
{
	const struct flight_line *line, *end = log->lines + log->nr;
	const struct flight_record *before = NULL;
	struct trace_clock clock = { .from_boot = true }; /* MONOTONIC: BOOTTIME but for suspends */
	uint64_t id = 0, process = 0;
	struct trace_writer *w;
	char name[64];

	if (log->nr > 0) {
		qsort(log->lines, log->nr, sizeof(*log->lines), flight_line_compare_tag);
		clock.start_ns = log->lines[0].record.time_ns;
		clock.wall_offset_ns = log->lines[0].wall_ns - (int64_t)clock.start_ns;
	}
	w = perfetto_writer_new(file, &clock);
	for (line = log->lines; line < end; line++) {
		const struct flight_record *r = &line->record;
		struct trace_arg result = flight_result(r);

		if (!before || before->key.device != r->key.device) {
			process = ++id;
			w->ops->process(w, process, line->name);
		}
		if (!before || !flight_same_track(before, r)) {
			snprintf(name, sizeof(name), "queue %u tag %u", r->key.queue, r->key.tag);
			w->ops->track(w, ++id, process, name);
		}
		before = r;
		if (r->key.event == FLIGHT_FETCH)
			flight_draw_slice(w, id, line, end);
		else if (r->key.event != FLIGHT_COMMIT)
			perfetto_instant(w, id, r->time_ns, flight_event_name(r->key.event),
					 &result, 1);
	}
	return w->ops->close(w);
}
