/* The commands of ublktrace. Each gets the words behind its name (argv[0] is the name) and returns
 * the exit code of the process: 0, 1 for a failure it has told on stderr, 2 for a wrong command
 * line. */
#ifndef UBLKTRACE_COMMAND_H
#define UBLKTRACE_COMMAND_H

int command_probes(int argc, char **argv);
int command_selftest(int argc, char **argv);
int command_record(int argc, char **argv);
int command_latency(int argc, char **argv);
int command_stacks(int argc, char **argv);
int command_control(int argc, char **argv);

/* Says on stderr what is wrong with the command line, and where help is. Returns 2. */
int usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
