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
#include "tracefile/out.h"

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
	struct trace_writer writer;
	struct out out;
	struct trace_clock clock;
	struct text_table texts;
	struct map threads; /* by track: struct fxt_thread */
	unsigned thread_nr;
	struct bytes record;
};

/* ---- words ---- */

static void fxt_put_word(struct bytes *b, uint64_t word)
{
	bytes_put(b, &word, sizeof(word)); /* little endian, as are the machines we run on */
}

static void fxt_put_padded(struct bytes *b, const char *text, size_t bytes)
{
	static const char zeros[8];

	bytes_put(b, text, bytes);
	bytes_put(b, zeros, -bytes & 7);
}

/* The first word of what stands at offset gets its size. */
static void fxt_set_size(struct bytes *b, size_t offset)
{
	uint64_t word;

	memcpy(&word, b->data + offset, sizeof(word));
	word |= (uint64_t)(b->nr - offset) / 8 << 4;
	memcpy(b->data + offset, &word, sizeof(word));
}

static void fxt_write_record(struct fxt *f)
{
	fxt_set_size(&f->record, 0);
	out_write(&f->out, f->record.data, f->record.nr);
	f->record.nr = 0;
}

/* ---- texts ---- */

static size_t fxt_text_bytes(const char *text)
{
	return strnlen(text, FXT_TEXT_BYTES_MAX);
}

static void fxt_write_string(struct fxt *f, uint32_t number, const char *text)
{
	struct bytes b = { 0 };
	size_t bytes = fxt_text_bytes(text);

	fxt_put_word(&b, RECORD_STRING | (uint64_t)number << 16 | (uint64_t)bytes << 32);
	fxt_put_padded(&b, text, bytes);
	fxt_set_size(&b, 0);
	out_write(&f->out, b.data, b.nr);
	bytes_free(&b);
}

/* What stands for text in a record: its number, or that it follows inline. Writes its string record
 * before the record that is being made. */
static uint64_t fxt_text_ref(struct fxt *f, const char *text)
{
	bool is_new;
	uint32_t number;

	if (!*text)
		return 0;
	number = text_number(&f->texts, text, FXT_TEXTS_MAX, &is_new);
	if (is_new)
		fxt_write_string(f, number, text);
	return number ? number : FXT_INLINE | fxt_text_bytes(text);
}

static void fxt_put_inline(struct fxt *f, uint64_t ref, const char *text)
{
	if (ref & FXT_INLINE)
		fxt_put_padded(&f->record, text, fxt_text_bytes(text));
}

/* ---- processes and threads ---- */

static void fxt_put_arg_koid(struct fxt *f, const char *name, uint64_t koid)
{
	size_t offset = f->record.nr;
	uint64_t ref = fxt_text_ref(f, name);

	fxt_put_word(&f->record, ARG_KOID | ref << 16);
	fxt_put_inline(f, ref, name);
	fxt_put_word(&f->record, koid);
	fxt_set_size(&f->record, offset);
}

/* process 0: the object is one itself. */
static void fxt_write_object(struct fxt *f, unsigned kind, uint64_t koid, const char *name,
			     uint64_t process)
{
	uint64_t ref = fxt_text_ref(f, name), arg_nr = process ? 1 : 0;

	fxt_put_word(&f->record,
		     RECORD_KERNEL_OBJECT | (uint64_t)kind << 16 | ref << 24 | arg_nr << 40);
	fxt_put_word(&f->record, koid);
	fxt_put_inline(f, ref, name);
	if (process)
		fxt_put_arg_koid(f, "process", process);
	fxt_write_record(f);
}

static void fxt_process(struct trace_writer *w, uint64_t process, const char *name)
{
	fxt_write_object((struct fxt *)w, OBJECT_PROCESS, process, name, 0);
}

static void fxt_write_thread(struct fxt *f, const struct fxt_thread *thread)
{
	fxt_put_word(&f->record, RECORD_THREAD | (uint64_t)thread->ref << 16);
	fxt_put_word(&f->record, thread->process);
	fxt_put_word(&f->record, thread->track);
	fxt_write_record(f);
}

static struct fxt_thread *fxt_thread_new(struct fxt *f, uint64_t track, uint64_t process)
{
	struct fxt_thread *thread = memory_zalloc(sizeof(*thread));

	thread->process = process;
	thread->track = track;
	map_put(&f->threads, track, 0, thread);
	return thread;
}

static void fxt_track(struct trace_writer *w, uint64_t track, uint64_t process, const char *name)
{
	struct fxt *f = (struct fxt *)w;
	struct fxt_thread *thread = map_get(&f->threads, track, 0);
	bool known = thread != NULL;

	fxt_write_object(f, OBJECT_THREAD, track, name, process);
	if (!known)
		thread = fxt_thread_new(f, track, process);
	if (known || f->thread_nr == FXT_THREADS_MAX)
		return;
	thread->ref = ++f->thread_nr;
	fxt_write_thread(f, thread);
}

/* Counters belong to a process there and have a name in each event. */
static void fxt_counter_track(struct trace_writer *w, uint64_t track, uint64_t process,
			      const char *name)
{
	struct fxt_thread *thread = fxt_thread_new((struct fxt *)w, track, process);

	thread->counter = strdup(name);
}

/* ---- events ---- */

static void fxt_put_event(struct fxt *f, unsigned kind, const struct fxt_thread *thread,
			  uint64_t time_ns, const char *name, unsigned arg_nr)
{
	uint64_t category_ref = fxt_text_ref(f, "io_uring"), name_ref = fxt_text_ref(f, name);

	fxt_put_word(&f->record, RECORD_EVENT | (uint64_t)kind << 16 | (uint64_t)arg_nr << 20 |
					 (uint64_t)thread->ref << 24 | category_ref << 32 |
					 name_ref << 48);
	fxt_put_word(&f->record, trace_clock_file_ns(&f->clock, time_ns));
	if (!thread->ref) {
		fxt_put_word(&f->record, thread->process);
		fxt_put_word(&f->record, thread->track);
	}
	fxt_put_inline(f, category_ref, "io_uring");
	fxt_put_inline(f, name_ref, name);
}

static void fxt_put_arg(struct fxt *f, const struct trace_arg *arg)
{
	size_t offset = f->record.nr;
	uint64_t ref = fxt_text_ref(f, arg->name),
		 text = arg->text ? fxt_text_ref(f, arg->text) : 0;

	if (arg->text) {
		fxt_put_word(&f->record, ARG_STRING | ref << 16 | text << 32);
		fxt_put_inline(f, ref, arg->name);
		fxt_put_inline(f, text, arg->text);
	} else {
		fxt_put_word(&f->record, (arg->is_unsigned ? ARG_UINT64 : ARG_INT64) | ref << 16);
		fxt_put_inline(f, ref, arg->name);
		fxt_put_word(&f->record, (uint64_t)arg->number);
	}
	fxt_set_size(&f->record, offset);
}

static void fxt_write_flow(struct fxt *f, unsigned kind, const struct fxt_thread *thread,
			   uint64_t time_ns, uint64_t id)
{
	fxt_put_event(f, kind, thread, time_ns, "request", 0);
	fxt_put_word(&f->record, id);
	fxt_write_record(f);
}

static void fxt_slice(struct trace_writer *w, const struct trace_slice *s)
{
	struct fxt *f = (struct fxt *)w;
	const struct fxt_thread *thread = map_get(&f->threads, s->track, 0);

	fxt_put_event(f, EVENT_KIND_COMPLETE, thread, s->start_ns, s->name, s->arg_nr);
	for (unsigned i = 0; i < s->arg_nr; i++)
		fxt_put_arg(f, &s->args[i]);
	fxt_put_word(&f->record, trace_clock_file_ns(&f->clock, s->end_ns));
	fxt_write_record(f);
	for (unsigned i = 0; i < s->flow_in_nr; i++)
		fxt_write_flow(f, EVENT_KIND_FLOW_END, thread, s->start_ns, s->flow_in[i]);
	for (unsigned i = 0; i < s->flow_out_nr; i++)
		fxt_write_flow(f, EVENT_KIND_FLOW_BEGIN, thread, s->start_ns, s->flow_out[i]);
}

static void fxt_counter(struct trace_writer *w, uint64_t track, uint64_t time_ns, int64_t value)
{
	struct fxt *f = (struct fxt *)w;
	const struct fxt_thread *thread = map_get(&f->threads, track, 0);
	const struct trace_arg arg = { .name = "value", .number = value };

	fxt_put_event(f, EVENT_KIND_COUNTER, thread, time_ns, thread->counter, 1);
	fxt_put_arg(f, &arg);
	fxt_put_word(&f->record, track);
	fxt_write_record(f);
}

/* ---- the end ---- */

static void fxt_free_thread(void *value, void *arg)
{
	struct fxt_thread *thread = value;

	(void)arg;
	free((char *)thread->counter);
	free(thread);
}

static int fxt_close(struct trace_writer *w)
{
	struct fxt *f = (struct fxt *)w;
	int ret = out_close(&f->out);

	map_each(&f->threads, fxt_free_thread, NULL);
	map_free(&f->threads);
	text_table_free(&f->texts);
	bytes_free(&f->record);
	free(f);
	return ret;
}

struct trace_writer *fxt_writer_new(FILE *file, const struct trace_clock *clock)
{
	static const struct trace_writer_ops ops = {
		.process = fxt_process,
		.track = fxt_track,
		.counter_track = fxt_counter_track,
		.slice = fxt_slice,
		.counter = fxt_counter,
		.close = fxt_close,
	};
	static const uint64_t magic = FXT_MAGIC;
	struct fxt *f = memory_zalloc(sizeof(*f));

	f->writer.ops = &ops;
	f->out.file = file;
	f->clock = *clock;
	out_write(&f->out, &magic, sizeof(magic));
	fxt_put_word(&f->record, RECORD_INIT);
	fxt_put_word(&f->record, NS_PER_SEC);
	fxt_write_record(f);
	return &f->writer;
}
