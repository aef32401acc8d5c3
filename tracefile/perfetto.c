/*
 * Writes a timeline as Perfetto's TracePacket messages (protos/perfetto/trace of the Perfetto
 * project), for https://ui.perfetto.dev and trace_processor. Owns the file. One thread.
 *
 * Happy path: a packet ties the trace's clock to the time of day; a TrackDescriptor for each
 * process and track; two TrackEvents for each slice. Names and texts are interned: a packet carries
 * those that it is the first to use. Failure mode: the file cannot be written, which close tells.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tracefile/out.h"

/* Field numbers. */
enum { TRACE_PACKET = 1 };
enum {
	PACKET_CLOCK_SNAPSHOT = 6,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE_ID = 10,
	PACKET_TRACK_EVENT = 11,
	PACKET_INTERNED_DATA = 12,
	PACKET_SEQUENCE_FLAGS = 13,
	PACKET_TRACK_DESCRIPTOR = 60,
};
enum { SNAPSHOT_CLOCK = 1, CLOCK_ID = 1, CLOCK_TIMESTAMP = 2 };
enum {
	TRACK_UUID = 1,
	TRACK_NAME = 2,
	TRACK_PROCESS = 3,
	TRACK_PARENT = 5,
	TRACK_COUNTER = 8,
	TRACK_MERGE = 15,
};
enum { PROCESS_PID = 1, PROCESS_NAME = 6 };
enum {
	EVENT_ANNOTATION = 4,
	EVENT_KIND = 9,
	EVENT_NAME_IID = 10,
	EVENT_TRACK = 11,
	EVENT_COUNTER_VALUE = 30,
	EVENT_FLOW = 47,
	EVENT_FLOW_END = 48,
};
enum {
	ANNOTATION_NAME_IID = 1,
	ANNOTATION_UINT = 3,
	ANNOTATION_INT = 4,
	ANNOTATION_STRING_IID = 17,
};
enum { INTERNED_EVENT_NAME = 2, INTERNED_ANNOTATION_NAME = 3, INTERNED_STRING = 29 };
enum { INTERNED_IID = 1, INTERNED_TEXT = 2 };

enum { EVENT_SLICE_BEGIN = 1, EVENT_SLICE_END = 2, EVENT_INSTANT = 3, EVENT_COUNTER = 4 };
enum { CLOCK_IS_REALTIME = 1, CLOCK_IS_MONOTONIC = 3, CLOCK_IS_BOOTTIME = 6 }; /* BuiltinClock */
enum { MERGE_NONE = 2 };
enum { STATE_CLEARED = 1, STATE_NEEDED = 2 };

#define SEQUENCE 1
#define TEXTS_MAX 100000u
#define DEPTH_MAX 16u

/* Slices whose end has not been written: the end goes before the next begin on the track. */
struct open_slices {
	uint64_t track;
	uint64_t end_ns[DEPTH_MAX];
	unsigned depth;
};

struct perfetto {
	struct trace_writer writer;
	struct out out;
	struct trace_clock clock;
	struct map open; /* by track: struct open_slices */
	struct text_table names, arg_names, texts;
	/* Used again and again, so that a packet allocates nothing. */
	struct bytes packet, event, inner, interned, entry;
};

/* ---- protobuf ---- */

static void protobuf_varint(struct bytes *b, uint64_t value)
{
	uint8_t data[10];
	size_t nr = 0;

	do {
		data[nr++] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value);
	bytes_put(b, data, nr);
}

static void protobuf_uint(struct bytes *b, unsigned field, uint64_t value)
{
	protobuf_varint(b, field << 3);
	protobuf_varint(b, value);
}

static void protobuf_fixed64(struct bytes *b, unsigned field, uint64_t value)
{
	protobuf_varint(b, field << 3 | 1);
	bytes_put(b, &value, sizeof(value)); /* little endian, as are the machines we run on */
}

static void protobuf_data(struct bytes *b, unsigned field, const void *data, size_t nr)
{
	protobuf_varint(b, field << 3 | 2);
	protobuf_varint(b, nr);
	bytes_put(b, data, nr);
}

static void protobuf_string(struct bytes *b, unsigned field, const char *text)
{
	protobuf_data(b, field, text, strlen(text));
}

/* Empties inner. */
static void protobuf_message(struct bytes *b, unsigned field, struct bytes *inner)
{
	protobuf_data(b, field, inner->data, inner->nr);
	inner->nr = 0;
}

/* Adds what all packets have, and writes. */
static void perfetto_write_packet(struct perfetto *p, unsigned flags)
{
	protobuf_uint(&p->packet, PACKET_SEQUENCE_ID, SEQUENCE);
	protobuf_uint(&p->packet, PACKET_SEQUENCE_FLAGS, flags);
	if (p->interned.nr)
		protobuf_message(&p->packet, PACKET_INTERNED_DATA, &p->interned);
	protobuf_message(&p->entry, TRACE_PACKET, &p->packet);
	out_write(&p->out, p->entry.data, p->entry.nr);
	p->entry.nr = 0;
}

/* ---- the clock ---- */

static void perfetto_put_clock(struct perfetto *p, unsigned id, uint64_t time_ns)
{
	protobuf_uint(&p->entry, CLOCK_ID, id);
	protobuf_uint(&p->entry, CLOCK_TIMESTAMP, time_ns);
	protobuf_message(&p->inner, SNAPSHOT_CLOCK, &p->entry);
}

/* Time stamps without a clock are BOOTTIME's. */
static void perfetto_write_clocks(struct perfetto *p)
{
	uint64_t start_ns = p->clock.start_ns;

	perfetto_put_clock(p, CLOCK_IS_BOOTTIME, trace_clock_file_ns(&p->clock, start_ns));
	perfetto_put_clock(p, CLOCK_IS_MONOTONIC, start_ns);
	perfetto_put_clock(p, CLOCK_IS_REALTIME, start_ns + (uint64_t)p->clock.wall_offset_ns);
	protobuf_message(&p->packet, PACKET_CLOCK_SNAPSHOT, &p->inner);
	perfetto_write_packet(p, STATE_CLEARED);
}

/* ---- texts ---- */

static uint64_t perfetto_intern(struct perfetto *p, struct text_table *table, unsigned field,
				const char *text)
{
	bool is_new;
	uint32_t number = text_number(table, text, TEXTS_MAX, &is_new);

	if (number == 0) {
		/* more names than any trace has: the rest share one */
		text = "(one of too many names)";
		number = text_number(table, text, TEXTS_MAX + 1, &is_new);
	}
	if (!is_new)
		return number;
	protobuf_uint(&p->entry, INTERNED_IID, number);
	protobuf_string(&p->entry, INTERNED_TEXT, text);
	protobuf_message(&p->interned, field, &p->entry);
	return number;
}

/* ---- tracks ---- */

static void perfetto_process(struct trace_writer *w, uint64_t process, const char *name)
{
	struct perfetto *p = (struct perfetto *)w;

	protobuf_uint(&p->entry, PROCESS_PID, process);
	protobuf_string(&p->entry, PROCESS_NAME, name);
	protobuf_uint(&p->inner, TRACK_UUID, process);
	protobuf_message(&p->inner, TRACK_PROCESS, &p->entry);
	protobuf_message(&p->packet, PACKET_TRACK_DESCRIPTOR, &p->inner);
	perfetto_write_packet(p, 0);
}

static void perfetto_put_track(struct perfetto *p, uint64_t track, uint64_t process,
			       const char *name)
{
	protobuf_uint(&p->inner, TRACK_UUID, track);
	protobuf_string(&p->inner, TRACK_NAME, name);
	protobuf_uint(&p->inner, TRACK_PARENT, process);
}

static void perfetto_track(struct trace_writer *w, uint64_t track, uint64_t process,
			   const char *name)
{
	struct perfetto *p = (struct perfetto *)w;
	struct open_slices *o = map_get(&p->open, track, 0);

	if (!o) {
		o = memory_zalloc(sizeof(*o));
		o->track = track;
		map_put(&p->open, track, 0, o);
	}
	perfetto_put_track(p, track, process, name);
	protobuf_uint(&p->inner, TRACK_MERGE, MERGE_NONE); /* else its first name stays */
	protobuf_message(&p->packet, PACKET_TRACK_DESCRIPTOR, &p->inner);
	perfetto_write_packet(p, 0);
}

static void perfetto_counter_track(struct trace_writer *w, uint64_t track, uint64_t process,
				   const char *name)
{
	struct perfetto *p = (struct perfetto *)w;

	perfetto_put_track(p, track, process, name);
	protobuf_message(&p->inner, TRACK_COUNTER, &p->entry); /* empty: a count without unit */
	protobuf_message(&p->packet, PACKET_TRACK_DESCRIPTOR, &p->inner);
	perfetto_write_packet(p, 0);
}

/* ---- events ---- */

static void perfetto_write_event(struct perfetto *p, uint64_t time_ns)
{
	protobuf_uint(&p->packet, PACKET_TIMESTAMP, trace_clock_file_ns(&p->clock, time_ns));
	protobuf_message(&p->packet, PACKET_TRACK_EVENT, &p->event);
	perfetto_write_packet(p, STATE_NEEDED);
}

static void perfetto_write_ends(struct perfetto *p, struct open_slices *o, uint64_t until_ns)
{
	while (o->depth > 0 && o->end_ns[o->depth - 1] <= until_ns) {
		protobuf_uint(&p->event, EVENT_KIND, EVENT_SLICE_END);
		protobuf_uint(&p->event, EVENT_TRACK, o->track);
		perfetto_write_event(p, o->end_ns[--o->depth]);
	}
}

static void perfetto_put_arg(struct perfetto *p, const struct trace_arg *arg)
{
	uint64_t name = perfetto_intern(p, &p->arg_names, INTERNED_ANNOTATION_NAME, arg->name);

	protobuf_uint(&p->inner, ANNOTATION_NAME_IID, name);
	if (arg->text)
		protobuf_uint(&p->inner, ANNOTATION_STRING_IID,
			      perfetto_intern(p, &p->texts, INTERNED_STRING, arg->text));
	else
		protobuf_uint(&p->inner, arg->is_unsigned ? ANNOTATION_UINT : ANNOTATION_INT,
			      (uint64_t)arg->number);
	protobuf_message(&p->event, EVENT_ANNOTATION, &p->inner);
}

static void perfetto_put_args(struct perfetto *p, const struct trace_arg *args, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		perfetto_put_arg(p, &args[i]);
}

static void perfetto_put_name(struct perfetto *p, unsigned kind, uint64_t track, const char *name)
{
	protobuf_uint(&p->event, EVENT_KIND, kind);
	protobuf_uint(&p->event, EVENT_TRACK, track);
	protobuf_uint(&p->event, EVENT_NAME_IID,
		      perfetto_intern(p, &p->names, INTERNED_EVENT_NAME, name));
}

static void perfetto_slice(struct trace_writer *w, const struct trace_slice *s)
{
	struct perfetto *p = (struct perfetto *)w;
	struct open_slices *o = map_get(&p->open, s->track, 0);

	perfetto_write_ends(p, o, s->start_ns);
	if (o->depth == DEPTH_MAX)
		return;
	o->end_ns[o->depth++] = s->end_ns;
	perfetto_put_name(p, EVENT_SLICE_BEGIN, s->track, s->name);
	for (unsigned i = 0; i < s->flow_in_nr; i++)
		protobuf_fixed64(&p->event, EVENT_FLOW_END, s->flow_in[i]);
	for (unsigned i = 0; i < s->flow_out_nr; i++)
		protobuf_fixed64(&p->event, EVENT_FLOW, s->flow_out[i]);
	perfetto_put_args(p, s->args, s->arg_nr);
	perfetto_write_event(p, s->start_ns);
}

void perfetto_instant(struct trace_writer *w, uint64_t track, uint64_t time_ns, const char *name,
		      const struct trace_arg *args, unsigned arg_nr)
{
	struct perfetto *p = (struct perfetto *)w;

	perfetto_write_ends(p, map_get(&p->open, track, 0), time_ns);
	perfetto_put_name(p, EVENT_INSTANT, track, name);
	perfetto_put_args(p, args, arg_nr);
	perfetto_write_event(p, time_ns);
}

static void perfetto_counter(struct trace_writer *w, uint64_t track, uint64_t time_ns,
			     int64_t value)
{
	struct perfetto *p = (struct perfetto *)w;

	protobuf_uint(&p->event, EVENT_KIND, EVENT_COUNTER);
	protobuf_uint(&p->event, EVENT_TRACK, track);
	protobuf_uint(&p->event, EVENT_COUNTER_VALUE, (uint64_t)value);
	perfetto_write_event(p, time_ns);
}

/* ---- the end ---- */

static void perfetto_end_track(void *value, void *arg)
{
	perfetto_write_ends(arg, value, TRACE_OPEN - 1);
	free(value);
}

static int perfetto_close(struct trace_writer *w)
{
	struct perfetto *p = (struct perfetto *)w;
	int ret;

	map_each(&p->open, perfetto_end_track, p);
	map_free(&p->open);
	ret = out_close(&p->out);
	text_table_free(&p->names);
	text_table_free(&p->arg_names);
	text_table_free(&p->texts);
	bytes_free(&p->packet);
	bytes_free(&p->event);
	bytes_free(&p->inner);
	bytes_free(&p->interned);
	bytes_free(&p->entry);
	free(p);
	return ret;
}

struct trace_writer *perfetto_writer_new(FILE *file, const struct trace_clock *clock)
{
	static const struct trace_writer_ops ops = {
		.process = perfetto_process,
		.track = perfetto_track,
		.counter_track = perfetto_counter_track,
		.slice = perfetto_slice,
		.counter = perfetto_counter,
		.close = perfetto_close,
	};
	struct perfetto *p = memory_zalloc(sizeof(*p));

	p->writer.ops = &ops;
	p->out.file = file;
	p->clock = *clock;
	perfetto_write_clocks(p);
	return &p->writer;
}
