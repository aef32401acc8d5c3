/*
 * Writes a timeline in the Fuchsia trace format (docs/reference/tracing/trace-format of the Fuchsia
 * project), which Perfetto and magic-trace read. Owns the file. One thread.
 *
 * Happy path: a kernel object record names each process and track (a thread there); a slice is one
 * duration complete event, its arrows follow it as flow events at its start, so that they lie in
 * it. The first 255 tracks have a number, later ones are spelled out in each event. Texts go to the
 * string table, and inline when that is full; long ones are cut. Failure mode: the file cannot be
 * written, which close tells.
 */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tracefile/map.h"
#include "tracefile/out.h"
#include "ublktrace/output/sink.h"
#include "tracefile/text_table.h"
#include "ublktrace/timeline/timeline.h"

enum {
	RECORD_INIT = 1,
	RECORD_STRING = 2,
	RECORD_THREAD = 3,
	RECORD_EVENT = 4,
	RECORD_KERNEL_OBJECT = 7,
};
enum {
	EVENT_KIND_COUNTER = 1,
	EVENT_KIND_COMPLETE = 4,
	EVENT_KIND_FLOW_BEGIN = 8,
	EVENT_KIND_FLOW_END = 10,
};
enum { ARG_INT64 = 3, ARG_UINT64 = 4, ARG_STRING = 6, ARG_KOID = 8 };
enum { OBJECT_PROCESS = 1, OBJECT_THREAD = 2 };

#define FXT_MAGIC 0x0016547846040010ull
#define FXT_TEXTS_MAX 0x7fffu
#define FXT_THREADS_MAX 255u
#define FXT_INLINE 0x8000u
/* 15 arguments with two texts of this length stay below the 4095 words of a record. */
#define FXT_TEXT_BYTES_MAX 1000u

/* A track as the format knows it. */
struct fxt_thread {
	uint64_t process, track;
	unsigned ref;	     /* 0: none was left */
	const char *counter; /* of a counter track: its name, ours */
};

struct fxt {
	struct sink sink;
	struct out out;
	struct sink_clock clock;
	struct timeline *timeline;
	struct text_table texts;
	struct map threads; /* by track: struct fxt_thread */
	unsigned thread_nr;
	struct bytes record;
};

/* ---- words ---- */

static void put_word(struct bytes *b, uint64_t word)
{
	bytes_put(b, &word, sizeof(word)); /* little endian, as are the machines we run on */
}

static void put_padded(struct bytes *b, const char *text, size_t bytes)
{
	static const char zeros[8];

	bytes_put(b, text, bytes);
	bytes_put(b, zeros, -bytes & 7);
}

/* The first word of what stands at offset gets its size. */
static void set_size(struct bytes *b, size_t offset)
{
	uint64_t word;

	memcpy(&word, b->data + offset, sizeof(word));
	word |= (uint64_t)(b->nr - offset) / 8 << 4;
	memcpy(b->data + offset, &word, sizeof(word));
}

static void write_record(struct fxt *f)
{
	set_size(&f->record, 0);
	out_write(&f->out, f->record.data, f->record.nr);
	f->record.nr = 0;
}

/* ---- texts ---- */

static size_t text_bytes(const char *text)
{
	return strnlen(text, FXT_TEXT_BYTES_MAX);
}

static void write_string(struct fxt *f, uint32_t number, const char *text)
{
	struct bytes b = { 0 };
	size_t bytes = text_bytes(text);

	put_word(&b, RECORD_STRING | (uint64_t)number << 16 | (uint64_t)bytes << 32);
	put_padded(&b, text, bytes);
	set_size(&b, 0);
	out_write(&f->out, b.data, b.nr);
	bytes_free(&b);
}

/* What stands for text in a record: its number, or that it follows inline. Writes its string record
 * before the record that is being made. */
static uint64_t text_ref(struct fxt *f, const char *text)
{
	bool is_new;
	uint32_t number;

	if (!*text)
		return 0;
	number = text_number(&f->texts, text, FXT_TEXTS_MAX, &is_new);
	if (is_new)
		write_string(f, number, text);
	return number ? number : FXT_INLINE | text_bytes(text);
}

static void put_inline(struct fxt *f, uint64_t ref, const char *text)
{
	if (ref & FXT_INLINE)
		put_padded(&f->record, text, text_bytes(text));
}

/* ---- processes and threads ---- */

static void put_arg_koid(struct fxt *f, const char *name, uint64_t koid)
{
	size_t offset = f->record.nr;
	uint64_t ref = text_ref(f, name);

	put_word(&f->record, ARG_KOID | ref << 16);
	put_inline(f, ref, name);
	put_word(&f->record, koid);
	set_size(&f->record, offset);
}

/* process 0: the object is one itself. */
static void write_object(struct fxt *f, unsigned kind, uint64_t koid, const char *name,
			 uint64_t process)
{
	uint64_t ref = text_ref(f, name), arg_nr = process ? 1 : 0;

	put_word(&f->record,
		 RECORD_KERNEL_OBJECT | (uint64_t)kind << 16 | ref << 24 | arg_nr << 40);
	put_word(&f->record, koid);
	put_inline(f, ref, name);
	if (process)
		put_arg_koid(f, "process", process);
	write_record(f);
}

static void on_process(void *w, uint64_t process, const char *name)
{
	write_object(w, OBJECT_PROCESS, process, name, 0);
}

static void write_thread(struct fxt *f, const struct fxt_thread *thread)
{
	put_word(&f->record, RECORD_THREAD | (uint64_t)thread->ref << 16);
	put_word(&f->record, thread->process);
	put_word(&f->record, thread->track);
	write_record(f);
}

static struct fxt_thread *thread_new(struct fxt *f, uint64_t track, uint64_t process)
{
	struct fxt_thread *thread = memory_zalloc(sizeof(*thread));

	thread->process = process;
	thread->track = track;
	map_put(&f->threads, track, 0, thread);
	return thread;
}

static void on_track(void *w, uint64_t track, uint64_t process, const char *name)
{
	struct fxt *f = w;
	struct fxt_thread *thread = map_get(&f->threads, track, 0);
	bool known = thread != NULL;

	write_object(f, OBJECT_THREAD, track, name, process);
	if (!known)
		thread = thread_new(f, track, process);
	if (known || f->thread_nr == FXT_THREADS_MAX)
		return;
	thread->ref = ++f->thread_nr;
	write_thread(f, thread);
}

/* Counters belong to a process there and have a name in each event. */
static void on_counter_track(void *w, uint64_t track, uint64_t process, const char *name)
{
	struct fxt_thread *thread = thread_new(w, track, process);

	thread->counter = strdup(name);
}

/* ---- events ---- */

static uint64_t file_time(const struct fxt *f, uint64_t time_ns)
{
	if (f->clock.from_boot)
		return time_ns + (uint64_t)f->clock.boot_offset_ns;
	return time_ns > f->clock.start_ns ? time_ns - f->clock.start_ns : 0;
}

static void put_event(struct fxt *f, unsigned kind, const struct fxt_thread *thread,
		      uint64_t time_ns, const char *name, unsigned arg_nr)
{
	uint64_t category_ref = text_ref(f, "io_uring"), name_ref = text_ref(f, name);

	put_word(&f->record, RECORD_EVENT | (uint64_t)kind << 16 | (uint64_t)arg_nr << 20 |
				     (uint64_t)thread->ref << 24 | category_ref << 32 |
				     name_ref << 48);
	put_word(&f->record, file_time(f, time_ns));
	if (!thread->ref) {
		put_word(&f->record, thread->process);
		put_word(&f->record, thread->track);
	}
	put_inline(f, category_ref, "io_uring");
	put_inline(f, name_ref, name);
}

static void put_arg(struct fxt *f, const struct timeline_arg *arg)
{
	size_t offset = f->record.nr;
	uint64_t ref = text_ref(f, arg->name), text = arg->text ? text_ref(f, arg->text) : 0;

	if (arg->text) {
		put_word(&f->record, ARG_STRING | ref << 16 | text << 32);
		put_inline(f, ref, arg->name);
		put_inline(f, text, arg->text);
	} else {
		put_word(&f->record, (arg->is_unsigned ? ARG_UINT64 : ARG_INT64) | ref << 16);
		put_inline(f, ref, arg->name);
		put_word(&f->record, (uint64_t)arg->number);
	}
	set_size(&f->record, offset);
}

static void write_flow(struct fxt *f, unsigned kind, const struct fxt_thread *thread,
		       uint64_t time_ns, uint64_t id)
{
	put_event(f, kind, thread, time_ns, "request", 0);
	put_word(&f->record, id);
	write_record(f);
}

static void on_slice(void *w, uint64_t track, uint64_t start_ns, uint64_t end_ns, const char *name,
		     const uint64_t *flow_in, unsigned flow_in_nr, const uint64_t *flow_out,
		     unsigned flow_out_nr, const struct timeline_arg *args, unsigned arg_nr)
{
	struct fxt *f = w;
	const struct fxt_thread *thread = map_get(&f->threads, track, 0);

	put_event(f, EVENT_KIND_COMPLETE, thread, start_ns, name, arg_nr);
	for (unsigned i = 0; i < arg_nr; i++)
		put_arg(f, &args[i]);
	put_word(&f->record, file_time(f, end_ns));
	write_record(f);
	for (unsigned i = 0; i < flow_in_nr; i++)
		write_flow(f, EVENT_KIND_FLOW_END, thread, start_ns, flow_in[i]);
	for (unsigned i = 0; i < flow_out_nr; i++)
		write_flow(f, EVENT_KIND_FLOW_BEGIN, thread, start_ns, flow_out[i]);
}

static void on_counter(void *w, uint64_t track, uint64_t time_ns, int64_t value)
{
	struct fxt *f = w;
	const struct fxt_thread *thread = map_get(&f->threads, track, 0);
	const struct timeline_arg arg = { .name = "value", .number = value };

	put_event(f, EVENT_KIND_COUNTER, thread, time_ns, thread->counter, 1);
	put_arg(f, &arg);
	put_word(&f->record, track);
	write_record(f);
}

static const struct timeline_writer fxt_writer = {
	.process = on_process,
	.track = on_track,
	.counter_track = on_counter_track,
	.slice = on_slice,
	.counter = on_counter,
};

/* ---- the sink ---- */

static void fxt_event(struct sink *s, const struct event *e)
{
	timeline_event(((struct fxt *)s)->timeline, e);
}

static void free_thread(void *value, void *arg)
{
	struct fxt_thread *thread = value;

	(void)arg;
	free((char *)thread->counter);
	free(thread);
}

static int fxt_close(struct sink *s, const struct losses *l)
{
	struct fxt *f = (struct fxt *)s;
	int ret;

	timeline_end(f->timeline, l);
	ret = out_close(&f->out);
	map_each(&f->threads, free_thread, NULL);
	map_free(&f->threads);
	text_table_free(&f->texts);
	bytes_free(&f->record);
	free(f);
	return ret;
}

int fxt_open(const char *path, const struct sink_clock *clock, struct sink **ret_sink)
{
	static const struct sink_ops ops = { .event = fxt_event, .close = fxt_close };
	static const uint64_t magic = FXT_MAGIC;
	struct fxt *f = memory_zalloc(sizeof(*f));
	int ret = out_open(&f->out, path);

	if (ret < 0) {
		free(f);
		return ret;
	}
	f->sink.ops = &ops;
	f->clock = *clock;
	f->timeline = timeline_new(&fxt_writer, f);
	out_write(&f->out, &magic, sizeof(magic));
	put_word(&f->record, RECORD_INIT);
	put_word(&f->record, NS_PER_SEC);
	write_record(f);
	*ret_sink = &f->sink;
	return 0;
}
