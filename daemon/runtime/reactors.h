/*
 * The data reactors: one thread each, pinned to its CPU, with its own io_uring. Started before any
 * device, stopped when no device is left. Main thread.
 */
#ifndef DAEMON_RUNTIME_REACTORS_H
#define DAEMON_RUNTIME_REACTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/option.h"
#include "reactor/reactor.h"

struct reactor_thread;

struct reactors {
	unsigned nr;
	struct reactor_thread *thread; /* nr of them */
	struct reactor **reactor;      /* the same reactors, as struct device_host wants them */
	int *cpu;
	bool *away; /* it cannot be on its CPU: see pins.h */
};

#define REACTORS_ERROR_BYTES 256

struct reactors_params {
	const struct option_cpus *cpus; /* auto: each CPU this process may run on */
	const char *flight_folder;	/* for their flight recorders; NULL: in memory only */
	uint64_t busy_poll_ns;		/* see struct reactor_params */
};

/*
 * Starts a thread for each CPU of the set. Where a CPU is offline, or not ours to use, its reactor
 * runs on others, and is away; a CPU that this machine cannot have is an error. params are not used
 * afterwards. Returns 0, or -errno with words in error; then none is left running.
 */
int reactors_start(struct reactors *rs, const struct reactors_params *params, char *error,
		   size_t error_bytes);

/*
 * Ends all threads as they are and closes their rings: for the driver that is the death of the
 * server. What the threads had stays in memory, to be looked at only; the process is to end.
 */
void reactors_abandon(struct reactors *rs);

/* Ends and joins all threads. No device may use them any more. Accepts a zeroed struct. */
void reactors_stop(struct reactors *rs);

/* The kernel's number of its thread. */
pid_t reactors_tid(const struct reactors *rs, unsigned idx);

/*
 * Main thread: asks every reactor for a sign of life, those that still owe one not again; later,
 * reactors_silent_ns says for how long one has owed it: 0 for one that turns.
 */
void reactors_ping(struct reactors *rs, uint64_t now_ns);
uint64_t reactors_silent_ns(const struct reactors *rs, unsigned idx, uint64_t now_ns);

/* Any thread, also from the assertion hook: every op in flight, as lines on fd. */
void reactors_dump(const struct reactors *rs, int fd);

/* Bytes that one reactor may come to use. */
size_t reactors_memory_each(void);

#endif
