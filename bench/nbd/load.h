/*
 * Shared by the clients of the comparison: the load, 4 KiB I/Os at random offsets of the whole
 * export, and the line that they print. Each client is one thread.
 */
#ifndef BENCH_NBD_LOAD_H
#define BENCH_NBD_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOAD_IO_BYTES 4096u
#define LOAD_DEPTH_MAX 128u

struct load {
	const char *uri;
	double seconds;
	unsigned depth;
	bool write;
	uint64_t seed; /* of the offsets */
	uint64_t io_nr;
	uint64_t start_ns, start_cpu_ns, end_ns; /* CLOCK_MONOTONIC, the process's CPU clock */
};

static inline uint64_t load_clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Parses CLIENT URI SECONDS DEPTH read|write; exits when they are wrong. */
static inline void load_parse(struct load *load, int argc, char **argv)
{
	*load = (struct load){ .seed = 88172645463325252ull };
	if (argc == 5) {
		load->uri = argv[1];
		load->seconds = strtod(argv[2], NULL);
		load->depth = (unsigned)strtoul(argv[3], NULL, 10);
		load->write = strcmp(argv[4], "write") == 0;
	}
	if (load->seconds > 0 && load->depth > 0 && load->depth <= LOAD_DEPTH_MAX)
		return;
	fprintf(stderr, "usage: %s URI SECONDS DEPTH read|write\n", argv[0]);
	exit(2);
}

static inline void load_start(struct load *load)
{
	load->io_nr = 0;
	load->start_ns = load_clock_ns(CLOCK_MONOTONIC);
	load->start_cpu_ns = load_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	load->end_ns = load->start_ns + (uint64_t)(load->seconds * 1e9);
}

static inline uint64_t load_offset(struct load *load, uint64_t size_bytes)
{
	load->seed ^= load->seed << 13;
	load->seed ^= load->seed >> 7;
	load->seed ^= load->seed << 17;
	return load->seed % (size_bytes / LOAD_IO_BYTES) * LOAD_IO_BYTES;
}

/* Called after each I/O; reads the clock at every 64th. */
static inline bool load_is_over(struct load *load)
{
	return ++load->io_nr % 64 == 0 && load_clock_ns(CLOCK_MONOTONIC) >= load->end_ns;
}

/* Prints I/Os, ns of CPU (user and system, all threads of the process), ns of time. */
static inline void load_print(const struct load *load)
{
	printf("%llu %llu %llu\n", (unsigned long long)load->io_nr,
	       (unsigned long long)(load_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - load->start_cpu_ns),
	       (unsigned long long)(load_clock_ns(CLOCK_MONOTONIC) - load->start_ns));
}

#endif
