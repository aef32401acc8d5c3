/*
 * Chooses the format of a trace by the ending of its file's name. No state; main thread.
 *
 * Happy path: the opener of a row of the table. Failure mode: -EINVAL for an ending that no format
 * has.
 */
#include "ublktrace/output/sink.h"

#include <errno.h>
#include <string.h>

static const struct format {
	const char *ending;
	int (*open)(const char *path, const struct sink_clock *clock, struct sink **ret_sink);
} formats[] = {
	{ ".csv", csv_open },
	{ ".pftrace", perfetto_open },
	{ ".fxt", fxt_open },
};

static int ends_with(const char *text, const char *ending)
{
	size_t n = strlen(text), m = strlen(ending);

	return n > m && !strcmp(text + n - m, ending);
}

int sink_open(const char *path, const struct sink_clock *clock, struct sink **ret_sink)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (ends_with(path, formats[i].ending))
			return formats[i].open(path, clock, ret_sink);
	return -EINVAL;
}
