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

#include "tracefile/map.h"
#include "tracefile/out.h"
#include "ublktrace/output/sink.h"
#include "tracefile/text_table.h"
#include "ublktrace/timeline/timeline.h"

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

enum { EVENT_SLICE_BEGIN = 1, EVENT_SLICE_END = 2, EVENT_COUNTER = 4 };
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
	struct sink sink;
	struct out out;
	struct sink_clock clock;
	struct timeline *timeline;
	struct map open; /* by track: struct open_slices */
	struct text_table names, arg_names, texts;
	/* Used again and again, so that a packet allocates nothing. */
	struct bytes packet, event, inner, interned, entry;
};

/* ---- protobuf ---- */

static void put_varint(struct bytes *b, uint64_t value)
{
	uint8_t data[10];
	size_t nr = 0;

	do {
		data[nr++] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value);
	bytes_put(b, data, nr);
}

static void put_uint(struct bytes *b, unsigned field, uint64_t value)
{
	put_varint(b, field << 3);
	put_varint(b, value);
}

static void put_fixed64(struct bytes *b, unsigned field, uint64_t value)
{
	put_varint(b, field << 3 | 1);
	bytes_put(b, &value, sizeof(value)); /* little endian, as are the machines we run on */
}

static void put_data(struct bytes *b, unsigned field, const void *data, size_t nr)
{
	put_varint(b, field << 3 | 2);
	put_varint(b, nr);
	bytes_put(b, data, nr);
}

static void put_string(struct bytes *b, unsigned field, const char *text)
{
	put_data(b, field, text, strlen(text));
}

/* Empties inner. */
static void put_message(struct bytes *b, unsigned field, struct bytes *inner)
{
	put_data(b, field, inner->data, inner->nr);
	inner->nr = 0;
}

/* Adds what all packets have, and writes. */
static void write_packet(struct perfetto *p, unsigned flags)
{
	put_uint(&p->packet, PACKET_SEQUENCE_ID, SEQUENCE);
	put_uint(&p->packet, PACKET_SEQUENCE_FLAGS, flags);
	if (p->interned.nr)
		put_message(&p->packet, PACKET_INTERNED_DATA, &p->interned);
	put_message(&p->entry, TRACE_PACKET, &p->packet);
	out_write(&p->out, p->entry.data, p->entry.nr);
	p->entry.nr = 0;
}

/* ---- the clock ---- */

/* Times of the file are BOOTTIME's, or count from the start of the trace. */
static uint64_t file_time(const struct perfetto *p, uint64_t time_ns)
{
	if (p->clock.from_boot)
		return time_ns + (uint64_t)p->clock.boot_offset_ns;
	return time_ns > p->clock.start_ns ? time_ns - p->clock.start_ns : 0;
}

static void put_clock(struct perfetto *p, unsigned id, uint64_t time_ns)
{
	put_uint(&p->entry, CLOCK_ID, id);
	put_uint(&p->entry, CLOCK_TIMESTAMP, time_ns);
	put_message(&p->inner, SNAPSHOT_CLOCK, &p->entry);
}

/* Time stamps without a clock are BOOTTIME's. */
static void write_clocks(struct perfetto *p)
{
	uint64_t start_ns = p->clock.start_ns;

	put_clock(p, CLOCK_IS_BOOTTIME, file_time(p, start_ns));
	put_clock(p, CLOCK_IS_MONOTONIC, start_ns);
	put_clock(p, CLOCK_IS_REALTIME, start_ns + (uint64_t)p->clock.wall_offset_ns);
	put_message(&p->packet, PACKET_CLOCK_SNAPSHOT, &p->inner);
	write_packet(p, STATE_CLEARED);
}

/* ---- texts ---- */

static uint64_t intern(struct perfetto *p, struct text_table *table, unsigned field,
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
	put_uint(&p->entry, INTERNED_IID, number);
	put_string(&p->entry, INTERNED_TEXT, text);
	put_message(&p->interned, field, &p->entry);
	return number;
}

/* ---- tracks ---- */

static void on_process(void *w, uint64_t process, const char *name)
{
	struct perfetto *p = w;

	put_uint(&p->entry, PROCESS_PID, process);
	put_string(&p->entry, PROCESS_NAME, name);
	put_uint(&p->inner, TRACK_UUID, process);
	put_message(&p->inner, TRACK_PROCESS, &p->entry);
	put_message(&p->packet, PACKET_TRACK_DESCRIPTOR, &p->inner);
	write_packet(p, 0);
}

static void put_track(struct perfetto *p, uint64_t track, uint64_t process, const char *name)
{
	put_uint(&p->inner, TRACK_UUID, track);
	put_string(&p->inner, TRACK_NAME, name);
	put_uint(&p->inner, TRACK_PARENT, process);
}

static void on_track(void *w, uint64_t track, uint64_t process, const char *name)
{
	struct perfetto *p = w;
	struct open_slices *o = map_get(&p->open, track, 0);

	if (!o) {
		o = memory_zalloc(sizeof(*o));
		o->track = track;
		map_put(&p->open, track, 0, o);
	}
	put_track(p, track, process, name);
	put_uint(&p->inner, TRACK_MERGE, MERGE_NONE); /* else its first name stays */
	put_message(&p->packet, PACKET_TRACK_DESCRIPTOR, &p->inner);
	write_packet(p, 0);
}

static void on_counter_track(void *w, uint64_t track, uint64_t process, const char *name)
{
	struct perfetto *p = w;

	put_track(p, track, process, name);
	put_message(&p->inner, TRACK_COUNTER, &p->entry); /* empty: a count without unit */
	put_message(&p->packet, PACKET_TRACK_DESCRIPTOR, &p->inner);
	write_packet(p, 0);
}

/* ---- events ---- */

static void write_event(struct perfetto *p, uint64_t time_ns)
{
	put_uint(&p->packet, PACKET_TIMESTAMP, file_time(p, time_ns));
	put_message(&p->packet, PACKET_TRACK_EVENT, &p->event);
	write_packet(p, STATE_NEEDED);
}

static void write_ends(struct perfetto *p, struct open_slices *o, uint64_t until_ns)
{
	while (o->depth > 0 && o->end_ns[o->depth - 1] <= until_ns) {
		put_uint(&p->event, EVENT_KIND, EVENT_SLICE_END);
		put_uint(&p->event, EVENT_TRACK, o->track);
		write_event(p, o->end_ns[--o->depth]);
	}
}

static void put_arg(struct perfetto *p, const struct timeline_arg *arg)
{
	uint64_t name = intern(p, &p->arg_names, INTERNED_ANNOTATION_NAME, arg->name);

	put_uint(&p->inner, ANNOTATION_NAME_IID, name);
	if (arg->text)
		put_uint(&p->inner, ANNOTATION_STRING_IID,
			 intern(p, &p->texts, INTERNED_STRING, arg->text));
	else
		put_uint(&p->inner, arg->is_unsigned ? ANNOTATION_UINT : ANNOTATION_INT,
			 (uint64_t)arg->number);
	put_message(&p->event, EVENT_ANNOTATION, &p->inner);
}

static void on_slice(void *w, uint64_t track, uint64_t start_ns, uint64_t end_ns, const char *name,
		     const uint64_t *flow_in, unsigned flow_in_nr, const uint64_t *flow_out,
		     unsigned flow_out_nr, const struct timeline_arg *args, unsigned arg_nr)
{
	struct perfetto *p = w;
	struct open_slices *o = map_get(&p->open, track, 0);

	write_ends(p, o, start_ns);
	if (o->depth == DEPTH_MAX)
		return;
	o->end_ns[o->depth++] = end_ns;
	put_uint(&p->event, EVENT_KIND, EVENT_SLICE_BEGIN);
	put_uint(&p->event, EVENT_TRACK, track);
	put_uint(&p->event, EVENT_NAME_IID, intern(p, &p->names, INTERNED_EVENT_NAME, name));
	for (unsigned i = 0; i < flow_in_nr; i++)
		put_fixed64(&p->event, EVENT_FLOW_END, flow_in[i]);
	for (unsigned i = 0; i < flow_out_nr; i++)
		put_fixed64(&p->event, EVENT_FLOW, flow_out[i]);
	for (unsigned i = 0; i < arg_nr; i++)
		put_arg(p, &args[i]);
	write_event(p, start_ns);
}

static void on_counter(void *w, uint64_t track, uint64_t time_ns, int64_t value)
{
	struct perfetto *p = w;

	put_uint(&p->event, EVENT_KIND, EVENT_COUNTER);
	put_uint(&p->event, EVENT_TRACK, track);
	put_uint(&p->event, EVENT_COUNTER_VALUE, (uint64_t)value);
	write_event(p, time_ns);
}

static const struct timeline_writer perfetto_writer = {
	.process = on_process,
	.track = on_track,
	.counter_track = on_counter_track,
	.slice = on_slice,
	.counter = on_counter,
};

/* ---- the sink ---- */

static void perfetto_event(struct sink *s, const struct event *e)
{
	timeline_event(((struct perfetto *)s)->timeline, e);
}

static void end_track(void *value, void *arg)
{
	write_ends(arg, value, UINT64_MAX);
	free(value);
}

static int perfetto_close(struct sink *s, const struct losses *l)
{
	struct perfetto *p = (struct perfetto *)s;
	int ret;

	timeline_end(p->timeline, l);
	map_each(&p->open, end_track, p);
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

int perfetto_open(const char *path, const struct sink_clock *clock, struct sink **ret_sink)
{
	static const struct sink_ops ops = { .event = perfetto_event, .close = perfetto_close };
	struct perfetto *p = memory_zalloc(sizeof(*p));
	int ret = out_open(&p->out, path);

	if (ret < 0) {
		free(p);
		return ret;
	}
	p->sink.ops = &ops;
	p->clock = *clock;
	p->timeline = timeline_new(&perfetto_writer, p);
	write_clocks(p);
	*ret_sink = &p->sink;
	return 0;
}
