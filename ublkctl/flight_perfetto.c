/*
 * Encodes Perfetto's TracePacket messages (protos/perfetto/trace of the Perfetto project). Owns
 * nothing but buffers on the stack; one thread.
 *
 * Happy path: one packet ties the trace's clock to the wall clock; then, track by track, a
 * TrackDescriptor and the events of its tag. Perfetto sorts packets by time itself. An I/O that was
 * never handed back is a slice without an end. Failure mode: the file cannot be written.
 */
#include "ublkctl/flight_perfetto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/backend.h"
#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"

/* Field numbers. */
enum { TRACE_PACKET = 1 };
enum {
	PACKET_CLOCK_SNAPSHOT = 6,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE_ID = 10,
	PACKET_TRACK_EVENT = 11,
	PACKET_SEQUENCE_FLAGS = 13,
	PACKET_TRACK_DESCRIPTOR = 60,
};
enum { SNAPSHOT_CLOCK = 1, CLOCK_ID = 1, CLOCK_TIMESTAMP = 2 };
enum { TRACK_UUID = 1, TRACK_NAME = 2, TRACK_PARENT = 5 };
enum { EVENT_ANNOTATION = 4, EVENT_TYPE = 9, EVENT_TRACK = 11, EVENT_NAME = 23 };
enum { ANNOTATION_INT = 4, ANNOTATION_STRING = 6, ANNOTATION_NAME = 10 };

enum { EVENT_SLICE_BEGIN = 1, EVENT_SLICE_END = 2, EVENT_INSTANT = 3 };
enum { CLOCK_IS_REALTIME = 1, CLOCK_IS_BOOTTIME = 6 }; /* of BuiltinClock */
enum { SEQUENCE_STATE_CLEARED = 1 };

#define SEQUENCE 1
#define MESSAGE_BYTES 512

struct message {
	size_t bytes;
	uint8_t data[MESSAGE_BYTES];
};

static void put_varint(struct message *m, uint64_t value)
{
	do {
		ASSERT(m->bytes < MESSAGE_BYTES);
		m->data[m->bytes++] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value);
}

static void put_uint(struct message *m, unsigned field, uint64_t value)
{
	put_varint(m, field << 3);
	put_varint(m, value);
}

static void put_bytes(struct message *m, unsigned field, const void *data, size_t bytes)
{
	put_varint(m, field << 3 | 2);
	put_varint(m, bytes);
	ASSERT(bytes <= MESSAGE_BYTES - m->bytes);
	memcpy(m->data + m->bytes, data, bytes);
	m->bytes += bytes;
}

static void put_string(struct message *m, unsigned field, const char *text)
{
	put_bytes(m, field, text, strlen(text));
}

static void put_message(struct message *m, unsigned field, const struct message *inner)
{
	put_bytes(m, field, inner->data, inner->bytes);
}

static void write_packet(FILE *file, const struct message *packet)
{
	struct message head = { 0 };

	put_varint(&head, TRACE_PACKET << 3 | 2);
	put_varint(&head, packet->bytes);
	fwrite(head.data, 1, head.bytes, file);
	fwrite(packet->data, 1, packet->bytes, file);
}

/* ---- the clock ---- */

static void put_clock(struct message *snapshot, unsigned id, uint64_t time_ns)
{
	struct message clock = { 0 };

	put_uint(&clock, CLOCK_ID, id);
	put_uint(&clock, CLOCK_TIMESTAMP, time_ns);
	put_message(snapshot, SNAPSHOT_CLOCK, &clock);
}

/* Timestamps without a clock are BOOTTIME's; ours are MONOTONIC's, the same but for suspends. */
static void write_clocks(FILE *file, const struct flight_line *line)
{
	struct message snapshot = { 0 }, packet = { 0 };

	put_clock(&snapshot, CLOCK_IS_BOOTTIME, line->record.time_ns);
	put_clock(&snapshot, CLOCK_IS_REALTIME, (uint64_t)line->wall_ns);
	put_uint(&packet, PACKET_SEQUENCE_ID, SEQUENCE);
	put_uint(&packet, PACKET_SEQUENCE_FLAGS, SEQUENCE_STATE_CLEARED);
	put_message(&packet, PACKET_CLOCK_SNAPSHOT, &snapshot);
	write_packet(file, &packet);
}

/* ---- tracks ---- */

/* 0 is Perfetto's own. */
static uint64_t device_uuid(const struct flight_record *r)
{
	return 1ull << 62 | r->key.device;
}

static uint64_t tag_uuid(const struct flight_record *r)
{
	return 1ull << 61 | (uint64_t)r->key.device << 32 | (uint64_t)r->key.queue << 16 |
	       r->key.tag;
}

static void write_track(FILE *file, uint64_t uuid, uint64_t parent, const char *name)
{
	struct message track = { 0 }, packet = { 0 };

	put_uint(&track, TRACK_UUID, uuid);
	put_string(&track, TRACK_NAME, name);
	if (parent)
		put_uint(&track, TRACK_PARENT, parent);
	put_uint(&packet, PACKET_SEQUENCE_ID, SEQUENCE);
	put_message(&packet, PACKET_TRACK_DESCRIPTOR, &track);
	write_packet(file, &packet);
}

static void write_tracks(FILE *file, const struct flight_line *line, const struct flight_line *last)
{
	const struct flight_record *r = &line->record;
	char name[64];

	if (!last || last->record.key.device != r->key.device)
		write_track(file, device_uuid(r), 0, line->name);
	if (last && tag_uuid(&last->record) == tag_uuid(r))
		return;
	snprintf(name, sizeof(name), "queue %u tag %u", r->key.queue, r->key.tag);
	write_track(file, tag_uuid(r), device_uuid(r), name);
}

/* ---- events ---- */

static void put_annotation(struct message *event, const char *name, int64_t value)
{
	struct message annotation = { 0 };

	put_string(&annotation, ANNOTATION_NAME, name);
	put_uint(&annotation, ANNOTATION_INT, (uint64_t)value);
	put_message(event, EVENT_ANNOTATION, &annotation);
}

static void put_result(struct message *event, int32_t value)
{
	struct message annotation = { 0 };

	put_string(&annotation, ANNOTATION_NAME, "result");
	if (value < 0)
		put_string(&annotation, ANNOTATION_STRING, errname(value));
	else
		put_uint(&annotation, ANNOTATION_INT, (uint64_t)value);
	put_message(event, EVENT_ANNOTATION, &annotation);
}

static void write_event(FILE *file, const struct flight_record *r, unsigned type)
{
	struct message event = { 0 }, packet = { 0 };

	put_uint(&event, EVENT_TYPE, type);
	put_uint(&event, EVENT_TRACK, tag_uuid(r));
	if (type == EVENT_SLICE_BEGIN) {
		put_string(&event, EVENT_NAME, backend_op_name(r->key.op));
		put_annotation(&event, "sector", (int64_t)r->sector);
		put_annotation(&event, "bytes", (uint32_t)r->value);
	} else if (type == EVENT_INSTANT) {
		put_string(&event, EVENT_NAME, flight_event_name(r->key.event));
	}
	if (type != EVENT_SLICE_BEGIN)
		put_result(&event, r->value);
	put_uint(&packet, PACKET_TIMESTAMP, r->time_ns);
	put_uint(&packet, PACKET_SEQUENCE_ID, SEQUENCE);
	put_message(&packet, PACKET_TRACK_EVENT, &event);
	write_packet(file, &packet);
}

/* A COMMIT whose FETCH is no longer there would end a slice that never began. */
static void write_line(FILE *file, const struct flight_line *line, bool *is_open)
{
	switch (line->record.key.event) {
	case FLIGHT_FETCH:
		if (*is_open)
			write_event(file, &line->record, EVENT_SLICE_END);
		write_event(file, &line->record, EVENT_SLICE_BEGIN);
		*is_open = true;
		break;
	case FLIGHT_COMMIT:
		if (*is_open)
			write_event(file, &line->record, EVENT_SLICE_END);
		*is_open = false;
		break;
	default:
		write_event(file, &line->record, EVENT_INSTANT);
	}
}

int perfetto_write(FILE *file, struct flight_log *log)
{
	const struct flight_line *last = NULL;
	bool is_open = false;

	if (log->nr > 0) {
		qsort(log->lines, log->nr, sizeof(*log->lines), flight_line_compare_tag);
		write_clocks(file, &log->lines[0]);
	}
	for (size_t i = 0; i < log->nr; i++) {
		const struct flight_line *line = &log->lines[i];

		write_tracks(file, line, last);
		if (!last || tag_uuid(&last->record) != tag_uuid(&line->record))
			is_open = false;
		write_line(file, line, &is_open);
		last = line;
	}
	if (fflush(file) != 0 || ferror(file))
		return errno ? -errno : -EIO;
	return 0;
}
