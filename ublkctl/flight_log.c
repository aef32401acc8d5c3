/*
 * Reads flight recorder files. Owns the lines of a log; one thread.
 *
 * Happy path: the file is copied to memory (not mapped: a file that is cut short meanwhile would
 * kill us), its records are checked one by one, those of all reactors sorted by time, and each
 * COMMIT finds its FETCH by (device, queue, tag). Failure modes: no recorder file (refused),
 * records that make no sense (counted, left out), a running writer that overtakes the reader
 * (records that it may have overwritten are left out and counted).
 */
#include "ublkctl/flight_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/backend.h"
#include "base/util.h"

/* Returns 0, -errno, or -EBADMSG at an early end. */
static int read_at(int fd, void *buf, size_t bytes, off_t at)
{
	char *to = buf;

	while (bytes > 0) {
		ssize_t ret = pread(fd, to, bytes, at);

		if (ret < 0 && errno == EINTR)
			continue;
		if (ret <= 0)
			return ret < 0 ? -errno : -EBADMSG;
		to += ret;
		at += ret;
		bytes -= (size_t)ret;
	}
	return 0;
}

/* The head before the records and again behind them: what lies between was there all the time. */
static int read_recorder(int fd, struct flight_file *file, uint64_t *ret_head_after)
{
	size_t header_bytes = offsetof(struct flight_file, record);
	int ret = read_at(fd, file, header_bytes, 0);

	if (ret == 0)
		ret = read_at(fd, file->record, sizeof(file->record), (off_t)header_bytes);
	if (ret == 0)
		ret = read_at(fd, ret_head_after, sizeof(*ret_head_after),
			      offsetof(struct flight_file, head));
	if (ret < 0)
		return ret;
	if (memcmp(file->magic, FLIGHT_MAGIC, sizeof(file->magic)) != 0 ||
	    file->version != FLIGHT_VERSION || file->record_nr != FLIGHT_RECORD_NR)
		return -EBADMSG;
	return 0;
}

static int load_fd(int fd, struct flight_file **ret_file, uint64_t *ret_head_after)
{
	struct flight_file *file;
	struct stat st;
	int ret;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size != sizeof(*file))
		return -EBADMSG;
	file = malloc(sizeof(*file));
	if (!file)
		return -ENOMEM;
	ret = read_recorder(fd, file, ret_head_after);
	if (ret < 0)
		free(file);
	else
		*ret_file = file;
	return ret;
}

int flight_log_load(const char *path, struct flight_file **ret_file, uint64_t *ret_head_after)
{
	/* NONBLOCK: the path may be a pipe. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int ret;

	if (fd < 0)
		return -errno;
	ret = load_fd(fd, ret_file, ret_head_after);
	close(fd);
	return ret;
}

static bool is_sane(const struct flight_record *r)
{
	return r->time_ns != 0 && r->key.event != FLIGHT_NONE && r->key.event < FLIGHT_EVENT_NR &&
	       r->key.op < BACKEND_OP_NR;
}

/* Names end up on terminals: nothing but plain characters. */
static void set_name(struct flight_line *line, const struct flight_file *file)
{
	const char *name = file->name[line->record.key.device % FLIGHT_NAME_NR];
	size_t len = strnlen(name, FLIGHT_NAME_BYTES - 1);

	if (len == 0) {
		snprintf(line->name, sizeof(line->name), "ublkb%u", line->record.key.device);
		return;
	}
	for (size_t i = 0; i < len; i++)
		line->name[i] = name[i] > ' ' && name[i] <= '~' ? name[i] : '?';
	line->name[len] = '\0';
}

static int reserve_lines(struct flight_log *log, size_t more)
{
	struct flight_line *lines;

	if (log->max - log->nr >= more)
		return 0;
	lines = reallocarray(log->lines, log->nr + more, sizeof(*lines));
	if (!lines)
		return -ENOMEM;
	log->lines = lines;
	log->max = log->nr + more;
	return 0;
}

static void add_record(struct flight_log *log, const struct flight_file *file, uint64_t seq)
{
	const struct flight_record *r = &file->record[seq % FLIGHT_RECORD_NR];
	struct flight_line *line = &log->lines[log->nr];

	if (!is_sane(r)) {
		log->torn++;
		return;
	}
	*line = (struct flight_line){
		.record = *r,
		/* Unsigned, so that nonsense in a file overflows without harm. */
		.wall_ns = (int64_t)(r->time_ns + (uint64_t)file->realtime_offset_ns),
		.reactor = file->reactor,
		.seq = seq,
	};
	set_name(line, file);
	log->nr++;
}

int flight_log_add(struct flight_log *log, const struct flight_file *file, uint64_t head_after)
{
	uint64_t head = file->head, from = head > FLIGHT_RECORD_NR ? head - FLIGHT_RECORD_NR : 0;
	/* The writer may be at head_after now: that record replaces the one a round before. */
	uint64_t safe = head_after >= FLIGHT_RECORD_NR ? head_after - FLIGHT_RECORD_NR + 1 : 0;
	int ret = reserve_lines(log, MIN(head, (uint64_t)FLIGHT_RECORD_NR));

	if (ret < 0)
		return ret;
	/* Only the writer's own full round counts as lost; the oldest one just may be. */
	if (safe > from + 1)
		log->overwritten += MIN(safe, head) - from - 1;
	for (uint64_t seq = MAX(from, safe); seq < head; seq++)
		add_record(log, file, seq);
	return 0;
}

static int compare_numbers(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_time(const void *a, const void *b)
{
	const struct flight_line *x = a, *y = b;
	int diff = x->wall_ns < y->wall_ns ? -1 : x->wall_ns > y->wall_ns;

	if (diff == 0)
		diff = compare_numbers(x->reactor, y->reactor);
	return diff ? diff : compare_numbers(x->seq, y->seq);
}

static uint64_t tag_key(const struct flight_record *r)
{
	return (uint64_t)r->key.device << 32 | (uint64_t)r->key.queue << 16 | r->key.tag;
}

int flight_line_compare_tag(const void *a, const void *b)
{
	const struct flight_line *x = a, *y = b;
	int diff = compare_numbers(tag_key(&x->record), tag_key(&y->record));

	return diff ? diff : compare_time(a, b);
}

static void find_latencies(struct flight_log *log)
{
	const struct flight_line *fetch = NULL;

	for (size_t i = 0; i < log->nr; i++) {
		struct flight_line *line = &log->lines[i];

		if (fetch && tag_key(&fetch->record) != tag_key(&line->record))
			fetch = NULL;
		if (line->record.key.event == FLIGHT_FETCH)
			fetch = line;
		if (line->record.key.event != FLIGHT_COMMIT || !fetch)
			continue;
		line->latency_ns = (uint64_t)(line->wall_ns - fetch->wall_ns);
		fetch = NULL;
	}
}

void flight_log_finish(struct flight_log *log)
{
	if (log->nr == 0)
		return;
	qsort(log->lines, log->nr, sizeof(*log->lines), flight_line_compare_tag);
	find_latencies(log);
	qsort(log->lines, log->nr, sizeof(*log->lines), compare_time);
}

void flight_log_fini(struct flight_log *log)
{
	free(log->lines);
	*log = (struct flight_log){ 0 };
}
