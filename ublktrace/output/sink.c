/*
 * Chooses the format of a trace by the ending of its file's name; a timeline is written by a writer
 * of tracefile. Main thread.
 *
 * Happy path: the row of the table that has the ending opens the file. Failure modes: -EINVAL for
 * an ending that no format has; a file that cannot be made.
 */
#include "ublktrace/output/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"
#include "tracefile/map.h"
#include "ublktrace/timeline/timeline.h"

struct timeline_sink {
	struct sink sink;
	struct trace_writer *writer;
	struct timeline *timeline;
};

static void timeline_sink_event(struct sink *s, const struct event *e)
{
	timeline_event(((struct timeline_sink *)s)->timeline, e);
}

static int timeline_sink_close(struct sink *s, const struct losses *l)
{
	struct timeline_sink *t = (struct timeline_sink *)s;
	int ret;

	timeline_end(t->timeline, l);
	ret = t->writer->ops->close(t->writer);
	free(t);
	return ret;
}

/* For its owner only, as perf's: kernel addresses are nobody else's. */
static int sink_create(const char *path, FILE **ret_file)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), ret;

	if (fd < 0)
		return -errno;
	*ret_file = fdopen(fd, "w");
	if (*ret_file)
		return 0;
	ret = -errno;
	close(fd);
	return ret;
}

int sink_open(const char *path, const struct trace_clock *clock, struct sink **ret_sink)
{
	static const struct sink_ops ops = { .event = timeline_sink_event,
					     .close = timeline_sink_close };
	static const struct {
		const char *ending;
		struct trace_writer *(*writer_new)(FILE *file, const struct trace_clock *clock);
	} formats[] = {
		{ ".csv", NULL },
		{ ".pftrace", perfetto_writer_new },
		{ ".fxt", fxt_writer_new },
	};
	size_t bytes = strlen(path), i;
	struct timeline_sink *t;
	FILE *file = NULL;
	int ret;

	for (i = 0; i < ARRAY_SIZE(formats); i++) {
		size_t ending = strlen(formats[i].ending);

		if (bytes > ending && !strcmp(path + bytes - ending, formats[i].ending))
			break;
	}
	if (i == ARRAY_SIZE(formats))
		return -EINVAL;
	if (!formats[i].writer_new)
		return csv_open(path, clock, ret_sink);
	ret = sink_create(path, &file);
	if (ret < 0)
		return ret;
	t = memory_zalloc(sizeof(*t));
	t->sink.ops = &ops;
	t->writer = formats[i].writer_new(file, clock);
	t->timeline = timeline_new(t->writer);
	*ret_sink = &t->sink;
	return 0;
}
