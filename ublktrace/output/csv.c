/*
 * The CSV of `record -o FILE.csv`: 38 columns, a row for each ENTER, SUBMIT, COMPLETE and WORKER;
 * other records have none, but an OVERFLOW, which is a completion too. Owns the file and its
 * buffer. Main thread.
 *
 * Happy path: csv_open writes the header, each row is formed in the buffer, which goes to the file
 * when it is nearly full and at close. Failure modes: the first write that fails is remembered and
 * told by close; nothing is written after it.
 *
 * Values: times of the day are UTC; nanoseconds are since the boot (CLOCK_BOOTTIME); pointers are
 * hexadecimal; flags are joined by '|'; what does not apply or is not known is empty. docs:
 * include/uapi/linux/io_uring.h for what the fields of an SQE mean to each opcode.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ublktrace/events/names.h"
#include "ublktrace/output/sink.h"

#define BUFFER_BYTES (256u << 10)
#define ROW_BYTES_MAX 2048u /* 38 columns, the longest of NAME_FLAGS_BYTES */
#define NS_PER_SECOND 1000000000ll
#define RINGS_MAX 256u

enum { OP_URING_CMD = 46, OP_URING_CMD128 = 64, OP_UNKNOWN = 0xff };
enum { UBLK_CONTROL = -2 }; /* ublk_id of struct event_sqe */
enum { ENTER_REGISTERED_RING = 1 << 4 };

static const char header[] =
	"Timestamp,Timestamp NS,Event Type,PID,TID,Command,CPU,Ring FD,Ring Ptr,To Submit,"
	"Min Complete,Enter Flags,Req Ptr,User Data,Opcode,FD,Length,Offset,SQE Flags,IO Prio,"
	"Buf Index,Personality,Result,Is Error,Errno,Submit TS,Complete TS,Latency NS,Worker PID,"
	"Worker TID,Worker CPU,Is Async,SQ Head,SQ Tail,CQ Head,CQ Tail,SQ Depth,CQ Depth\n";

/* Which descriptor a ring has, for an ENTER that says only its registered index. */
struct ring_fd {
	uint64_t ring;
	int32_t fd;
};

struct csv {
	struct sink sink;
	struct trace_clock clock;
	int fd;
	int error;
	time_t second; /* date is of this second */
	char date[32];
	struct ring_fd ring[RINGS_MAX]; /* the oldest is overwritten */
	unsigned ring_nr;
	size_t used;
	char buf[BUFFER_BYTES];
};

/* ---- fields: each ends with the comma behind it ---- */

static void csv_put_text(struct csv *c, const char *text)
{
	size_t n = strlen(text);

	memcpy(c->buf + c->used, text, n);
	c->used += n;
}

static void csv_put_comma(struct csv *c)
{
	c->buf[c->used++] = ',';
}

static void csv_put_commas(struct csv *c, unsigned nr)
{
	memset(c->buf + c->used, ',', nr);
	c->used += nr;
}

static void csv_put_digits(struct csv *c, uint64_t value)
{
	char digit[20];
	unsigned n = 0;

	do
		digit[n++] = (char)('0' + value % 10);
	while (value /= 10);
	while (n)
		c->buf[c->used++] = digit[--n];
}

static void csv_put_u64(struct csv *c, uint64_t value)
{
	csv_put_digits(c, value);
	csv_put_comma(c);
}

static void csv_put_s32(struct csv *c, int32_t value)
{
	if (value < 0)
		c->buf[c->used++] = '-';
	csv_put_u64(c, value < 0 ? (uint64_t) - (int64_t)value : (uint64_t)value);
}

/* A kernel address: 0x and 16 digits; empty for none. */
static void csv_put_pointer(struct csv *c, uint64_t value)
{
	static const char digits[] = "0123456789abcdef";

	if (value) {
		csv_put_text(c, "0x");
		for (int shift = 60; shift >= 0; shift -= 4)
			c->buf[c->used++] = digits[value >> shift & 0xf];
	}
	csv_put_comma(c);
}

static void csv_put_word(struct csv *c, const char *word)
{
	csv_put_text(c, word);
	csv_put_comma(c);
}

/* RFC 4180: quoted when it has a comma, a quote or a line's end in it; a quote is doubled. */
static void csv_put_quoted(struct csv *c, const char *text, size_t n)
{
	if (!memchr(text, ',', n) && !memchr(text, '"', n) && !memchr(text, '\n', n) &&
	    !memchr(text, '\r', n)) {
		memcpy(c->buf + c->used, text, n);
		c->used += n;
		csv_put_comma(c);
		return;
	}
	c->buf[c->used++] = '"';
	for (size_t i = 0; i < n; i++) {
		if (text[i] == '"')
			c->buf[c->used++] = '"';
		c->buf[c->used++] = text[i];
	}
	csv_put_text(c, "\",");
}

/* "YYYY-MM-DD HH:MM:SS.ffffff" in UTC. The date is made anew once a second only. */
static void put_date(struct csv *c, int64_t wall_ns)
{
	time_t second = (time_t)(wall_ns / NS_PER_SECOND);
	uint32_t us = (uint32_t)(wall_ns % NS_PER_SECOND / 1000);
	struct tm tm;

	if (second != c->second) {
		c->second = second;
		gmtime_r(&second, &tm);
		strftime(c->date, sizeof(c->date), "%Y-%m-%d %H:%M:%S.", &tm);
	}
	csv_put_text(c, c->date);
	for (uint32_t unit = 100000; unit; unit /= 10)
		c->buf[c->used++] = (char)('0' + us / unit % 10);
	csv_put_comma(c);
}

/* ---- groups of columns ---- */

static uint64_t boot_ns(const struct csv *c, uint64_t monotonic_ns)
{
	return monotonic_ns + (uint64_t)c->clock.boot_offset_ns;
}

/* 1-7 */
static void put_origin(struct csv *c, const struct event *e, const char *type)
{
	put_date(c, (int64_t)e->time_ns + c->clock.wall_offset_ns);
	csv_put_u64(c, boot_ns(c, e->time_ns));
	csv_put_word(c, type);
	csv_put_u64(c, e->pid);
	csv_put_u64(c, e->tid);
	csv_put_quoted(c, e->comm, strnlen(e->comm, sizeof(e->comm)));
	csv_put_u64(c, e->cpu);
}

static const char *csv_opcode_name(uint32_t opcode, int32_t ublk_id, uint32_t cmd_op)
{
	const char *name = NULL;

	if (opcode == OP_URING_CMD || opcode == OP_URING_CMD128) {
		if (ublk_id >= 0)
			name = name_ublk_io(cmd_op);
		else if (ublk_id == UBLK_CONTROL)
			name = name_ublk_ctrl(cmd_op);
	}
	return name ? name : name_opcode(opcode);
}

/* 15; the number of an opcode that has no name yet */
static void put_opcode(struct csv *c, uint32_t opcode, int32_t ublk_id, uint32_t cmd_op)
{
	const char *name = csv_opcode_name(opcode, ublk_id, cmd_op);

	if (name)
		csv_put_word(c, name);
	else
		csv_put_u64(c, opcode);
}

/* 33-38 and the end of the row */
static void put_levels(struct csv *c, const struct event_levels *l)
{
	if (l->have) {
		csv_put_u64(c, l->sq_head);
		csv_put_u64(c, l->sq_tail);
		csv_put_u64(c, l->cq_head);
		csv_put_u64(c, l->cq_tail);
		csv_put_u64(c, l->sq_tail - l->sq_head);
		csv_put_digits(c, l->cq_tail - l->cq_head);
	} else {
		csv_put_commas(c, 5);
	}
	c->buf[c->used++] = '\n';
}

/* ---- rows ---- */

static void know_ring(struct csv *c, const struct event *e)
{
	unsigned i;

	for (i = 0; i < c->ring_nr && i < RINGS_MAX; i++)
		if (c->ring[i].ring == e->ring)
			break;
	if (i == c->ring_nr || i == RINGS_MAX)
		i = c->ring_nr++ % RINGS_MAX;
	c->ring[i] = (struct ring_fd){ .ring = e->ring, .fd = e->ring_info.fd };
}

/* The descriptor of an ENTER, -1 when it named a registered ring of which no more is known. */
static int32_t enter_fd(const struct csv *c, const struct event *e)
{
	if (!(e->enter.flags & ENTER_REGISTERED_RING))
		return e->enter.fd;
	for (unsigned i = 0; e->ring && i < c->ring_nr && i < RINGS_MAX; i++)
		if (c->ring[i].ring == e->ring)
			return c->ring[i].fd;
	return -1;
}

static void row_enter(struct csv *c, const struct event *e)
{
	char flags[NAME_FLAGS_BYTES];
	int32_t fd = enter_fd(c, e);

	put_origin(c, e, "ENTER");
	if (fd < 0 && e->enter.flags & ENTER_REGISTERED_RING)
		csv_put_comma(c);
	else
		csv_put_s32(c, fd);
	csv_put_pointer(c, e->ring);
	csv_put_u64(c, e->enter.to_submit);
	csv_put_u64(c, e->enter.min_complete);
	csv_put_word(c, name_enter_flags(e->enter.flags, flags, sizeof(flags)));
	csv_put_commas(c, 32 - 12);
	put_levels(c, &e->levels);
}

/* 13-14, behind the empty columns of ENTER */
static void put_request(struct csv *c, const struct event *e)
{
	csv_put_comma(c);
	csv_put_pointer(c, e->ring);
	csv_put_commas(c, 12 - 9);
	csv_put_pointer(c, e->req);
	csv_put_u64(c, e->user_data);
}

static void row_submit(struct csv *c, const struct event *e)
{
	const struct event_sqe *sqe = &e->sqe;
	char flags[NAME_FLAGS_BYTES];

	put_origin(c, e, "SUBMIT");
	put_request(c, e);
	put_opcode(c, sqe->opcode, sqe->ublk_id, sqe->cmd_op);
	csv_put_s32(c, sqe->fd);
	csv_put_u64(c, sqe->len);
	/* there URING_CMD has its cmd_op */
	if (sqe->opcode == OP_URING_CMD || sqe->opcode == OP_URING_CMD128)
		csv_put_comma(c);
	else
		csv_put_u64(c, sqe->offset);
	csv_put_word(c, name_sqe_flags(sqe->flags, flags, sizeof(flags)));
	csv_put_u64(c, sqe->ioprio);
	csv_put_u64(c, sqe->buf_index);
	csv_put_u64(c, sqe->personality);
	csv_put_commas(c, 25 - 22);
	csv_put_u64(c, boot_ns(c, e->time_ns));
	csv_put_commas(c, 32 - 26);
	put_levels(c, &e->levels);
}

/* 23-25 */
static void csv_put_result(struct csv *c, int32_t res)
{
	csv_put_s32(c, res);
	if (res < 0) {
		csv_put_text(c, "1,");
		csv_put_u64(c, (uint64_t) - (int64_t)res);
	} else {
		csv_put_commas(c, 2);
	}
}

/* 26-28 */
static void put_times(struct csv *c, uint64_t submit_ns, uint64_t complete_ns)
{
	if (submit_ns)
		csv_put_u64(c, boot_ns(c, submit_ns));
	else
		csv_put_comma(c);
	csv_put_u64(c, boot_ns(c, complete_ns));
	if (submit_ns && submit_ns <= complete_ns)
		csv_put_u64(c, complete_ns - submit_ns);
	else
		csv_put_comma(c);
}

/* 15-16 of a request that may have begun before the trace */
static void put_known_opcode(struct csv *c, const struct event_cqe *cqe)
{
	if (cqe->opcode == OP_UNKNOWN) {
		csv_put_commas(c, 2);
		return;
	}
	put_opcode(c, cqe->opcode, cqe->ublk_id, cqe->cmd_op);
	csv_put_s32(c, cqe->fd);
}

static void row_complete(struct csv *c, const struct event *e)
{
	put_origin(c, e, "COMPLETE");
	put_request(c, e);
	put_known_opcode(c, &e->cqe);
	csv_put_commas(c, 22 - 16);
	csv_put_result(c, e->cqe.res);
	put_times(c, e->cqe.submit_ns, e->time_ns);
	csv_put_commas(c, 31 - 28);
	csv_put_word(c, e->cqe.async ? "1" : "");
	put_levels(c, &e->levels);
}

static void row_worker(struct csv *c, const struct event *e)
{
	put_origin(c, e, "WORKER");
	put_request(c, e);
	put_known_opcode(c, &e->cqe);
	csv_put_commas(c, 25 - 16);
	if (e->cqe.submit_ns)
		csv_put_u64(c, boot_ns(c, e->cqe.submit_ns));
	else
		csv_put_comma(c);
	csv_put_commas(c, 28 - 26);
	csv_put_u64(c, e->pid);
	csv_put_u64(c, e->tid);
	csv_put_u64(c, e->cpu);
	csv_put_word(c, "1");
	put_levels(c, &e->levels);
}

/* ---- the file ---- */

static void csv_flush(struct csv *c)
{
	size_t done = 0;
	ssize_t n;

	while (done < c->used && !c->error) {
		n = write(c->fd, c->buf + done, c->used - done);
		if (n >= 0)
			done += (size_t)n;
		else if (errno != EINTR)
			c->error = -errno;
	}
	c->used = 0;
}

static void csv_event(struct sink *s, const struct event *e)
{
	struct csv *c = (struct csv *)s;

	switch (e->type) {
	case EVENT_RING:
		know_ring(c, e);
		break;
	case EVENT_ENTER:
		row_enter(c, e);
		break;
	case EVENT_SUBMIT:
		row_submit(c, e);
		break;
	case EVENT_COMPLETE:
	case EVENT_OVERFLOW: /* its request has no other */
		row_complete(c, e);
		break;
	case EVENT_WORKER:
		row_worker(c, e);
		break;
	default:
		break;
	}
	if (c->used > BUFFER_BYTES - ROW_BYTES_MAX)
		csv_flush(c);
}

/* The losses have no place among the columns: `record` prints them. */
static int csv_close(struct sink *s, const struct losses *l)
{
	struct csv *c = (struct csv *)s;
	int error;

	(void)l;
	csv_flush(c);
	error = c->error;
	if (close(c->fd) && !error)
		error = -errno;
	free(c);
	return error;
}

static const struct sink_ops csv_ops = { .event = csv_event, .close = csv_close };

int csv_open(const char *path, const struct trace_clock *clock, struct sink **ret_sink)
{
	struct csv *c = malloc(sizeof(*c));
	int error;

	if (!c)
		return -ENOMEM;
	memset(c, 0, offsetof(struct csv, buf));
	c->sink.ops = &csv_ops;
	c->clock = *clock;
	c->second = (time_t)-1;
	/* for its owner only, as perf's: kernel addresses are nobody else's */
	c->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (c->fd < 0) {
		error = -errno;
		free(c);
		return error;
	}
	csv_put_text(c, header);
	*ret_sink = &c->sink;
	return 0;
}
