/*
 * ublktrace: io_uring, ublk and the block layer on one timeline. Each command is a row of a table.
 *
 * Happy path: a command does its work and prints what it lost. Failure modes: a wrong command line
 * is exit code 2; a missing right, module or kernel feature is exit code 1 with one line and its
 * cure.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ublktrace/command.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *usage;
	bool has_help; /* knows --help itself, and says more */
} commands[] = {
	{ "probes", command_probes,
	  "  probes [--json]       show which points of the kernel can be traced\n", true },
	{ "selftest", command_selftest,
	  "  selftest [--json] [--device /dev/ublkbN]   check that known events are traced\n",
	  true },
	{ "record", command_record,
	  "  record [options] -p PID | --all | -c COMMAND...   record events to files; all words\n"
	  "                        after -c are the command\n"
	  "      --duration S       stop after S seconds\n"
	  "      --sample 1/N       record one of N requests, with all its events\n"
	  "      --rings FD,FD      record only these rings\n"
	  "      --from-boot        timelines start at the boot\n"
	  "      --buffer SIZE      size of the ring buffer (32M)\n"
	  "      -o FILE            output: .csv, .pftrace or .fxt; can be repeated\n",
	  false },
	{ "control", command_control,
	  "  control [-p PID] [--duration S] [--json]   show the control commands of ublk "
	  "servers\n",
	  true },
	{ "latency", command_latency,
	  "  latency [-p PID | -c COMMAND... | --all] [options]   latency histograms, counted "
	  "in the kernel\n"
	  "      --by op|ring|opcode|device   key of a row\n"
	  "      --duration S       stop after S seconds\n"
	  "      --interval S       print a report of every S seconds\n"
	  "      --json             print a report as a line of JSON\n",
	  false },
	{ "stacks", command_stacks,
	  "  stacks [--at queue|dispatch|complete|nvme_queue] [options]   folded kernel stacks\n"
	  "      -d DISK            only this disk\n"
	  "      --duration S       stop after S seconds\n"
	  "      --svg              draw a flame graph\n"
	  "      -o FILE            output file, instead of stdout\n",
	  false },
	{ 0 },
};

static void main_usage(FILE *out)
{
	fputs("usage: ublktrace COMMAND\n\n", out);
	for (const struct command *c = commands; c->name; c++)
		fputs(c->usage, out);
	fputs("  --version, --help\n", out);
}

/* What a command printed is in the buffer of stdout until here. Returns the exit code. */
static int main_finish(int code)
{
	errno = 0;
	if ((!fflush(stdout) && !ferror(stdout)) || code)
		return code;
	fprintf(stderr, "ublktrace: cannot write all output to stdout%s%s\n", errno ? ": " : "",
		errno ? strerror(errno) : "");
	return 1;
}

static int main_run(const struct command *c, int argc, char **argv)
{
	bool help = argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));

	if (!help || c->has_help)
		return c->run(argc, argv);
	printf("usage: ublktrace COMMAND\n\n%s", c->usage);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		main_usage(stderr);
		return 2;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("ublktrace %s\n", UBLKD_VERSION);
		return 0;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		main_usage(stdout);
		return 0;
	}
	for (const struct command *c = commands; c->name; c++)
		if (!strcmp(argv[1], c->name))
			return main_finish(main_run(c, argc - 1, argv + 1));
	fprintf(stderr, "ublktrace: there is no command '%s'\n", argv[1]);
	main_usage(stderr);
	return 2;
}
