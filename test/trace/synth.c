/*
 * Makes a trace of a made-up machine, for the readers of test/trace/timeline.sh.
 * Usage: synth FILE IOS TAGS [huge]: the last also has what is at the limits of the formats.
 */
#include <stdlib.h>

#include "test/trace/synthetic.h"
#include "ublktrace/output/sink.h"

static void put(const struct event *e, void *arg)
{
	struct sink *sink = arg;

	sink->ops->event(sink, e);
}

/* A thread that gets its name when it is known already. */
static void put_renamed(struct synthetic *s)
{
	static const char *const names[] = { "ublktrace", "env", "prog" };

	for (unsigned i = 0; i < 3; i++) {
		struct event e = synthetic_event(s, EVENT_SWITCH, 400, 400, names[i]);

		e.value = i & 1;
		synthetic_put(s, &e, 10);
	}
}

/* More threads than FXT has numbers for, names of bytes that are no text. */
static void put_limits(struct synthetic *s)
{
	for (unsigned i = 0; i < 300; i++) {
		struct event e =
			synthetic_event(s, EVENT_TASK_WORK, 5000, 5000 + i, "t\xff\x01\n%s\"");

		e.value = UINT64_MAX - i;
		synthetic_put(s, &e, 10);
	}
}

int main(int argc, char **argv)
{
	const struct trace_clock clock = { .start_ns = 5000000000ull,
					   .wall_offset_ns = 1700000000ll << 30 };
	const struct losses losses = { .ring_full = 3, .unmatched = 2 };
	struct synthetic s = { .put = put, .now_ns = 5000000000ull };
	struct sink *sink;
	int ret;

	if (argc < 4 || sink_open(argv[1], &clock, &sink) < 0) {
		fprintf(stderr, "usage: synth FILE.pftrace|FILE.fxt IOS TAGS [huge]\n");
		return 2;
	}
	s.arg = sink;
	synthetic_run(&s, (unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
	put_renamed(&s);
	if (argc > 4)
		put_limits(&s);
	ret = sink->ops->close(sink, &losses);
	if (ret < 0)
		fprintf(stderr, "synth: %s\n", strerror(-ret));
	return ret < 0;
}
