/*
 * Owns nothing; a clock belongs to one thread. Failure modes: a counter that jumps (a virtual
 * machine that was moved, a machine that slept) or runs at another rate: the rate is measured anew,
 * and the real clock is read meanwhile.
 */
#include "reactor/tsc_clock.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* The rate is measured over at least this, and from a new start after that. */
#define MEASURE_MIN_NS (10 * NS_PER_MS)
#define MEASURE_MAX_NS NS_PER_SEC

static void measure_anew(struct tsc_clock *c, uint64_t tsc, uint64_t ns)
{
	c->base_tsc = tsc;
	c->base_ns = ns;
}

/* More than a percent away from what it was is no drift but a jump. */
static bool is_other_rate(uint64_t rate, uint64_t before)
{
	uint64_t difference = rate > before ? rate - before : before - rate;

	return before != 0 && difference > before / 100;
}

static void tsc_measure(struct tsc_clock *c, uint64_t tsc, uint64_t ns)
{
	uint64_t cycles = tsc - c->base_tsc, elapsed_ns = ns - c->base_ns;
	uint64_t rate;

	if (elapsed_ns < MEASURE_MIN_NS && tsc >= c->base_tsc)
		return;
	/* A sleep longer than the measure can hold, or a counter that went back. */
	if (elapsed_ns > 2 * MEASURE_MAX_NS || tsc < c->base_tsc || cycles == 0) {
		measure_anew(c, tsc, ns);
		return;
	}
	rate = (elapsed_ns << 32) / cycles;
	if (rate == 0 || is_other_rate(rate, c->ns_per_cycle_32)) {
		c->ns_per_cycle_32 = c->window_cycles = 0;
		measure_anew(c, tsc, ns);
		return;
	}
	c->ns_per_cycle_32 = rate;
	c->window_cycles = (TSC_CLOCK_WINDOW_NS << 32) / rate;
	if (elapsed_ns > MEASURE_MAX_NS)
		measure_anew(c, tsc, ns);
}

static __attribute__((noinline)) uint64_t set_right(struct tsc_clock *c, uint64_t tsc,
						    uint64_t (*real_ns)(uint64_t *tsc))
{
	uint64_t said_ns = c->ns + (c->window_cycles * c->ns_per_cycle_32 >> 32);
	uint64_t ns = real_ns(&tsc);

	if (c->base_ns == 0)
		measure_anew(c, tsc, ns);
	tsc_measure(c, tsc, ns);
	c->tsc = tsc;
	/* The most that was ever said since: never less than that. */
	c->ns = MAX(ns, said_ns);
	return c->ns;
}

uint64_t tsc_clock_at(struct tsc_clock *c, uint64_t tsc, uint64_t (*real_ns)(uint64_t *tsc))
{
	return tsc_clock_knows(c, tsc) ? tsc_clock_count(c, tsc) : set_right(c, tsc, real_ns);
}

static bool ask_kernel(void)
{
	FILE *f = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
	char name[16] = "";
	bool is_tsc;

	if (!f)
		return false;
	is_tsc = fgets(name, sizeof(name), f) && strncmp(name, "tsc", 3) == 0; /* also tsc-early */
	fclose(f);
	return is_tsc;
}

bool tsc_clock_usable(void)
{
	enum { UNKNOWN, NO, YES };
	static int answer;
	int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);

	if (known == UNKNOWN) {
		known = ask_kernel() ? YES : NO;
		__atomic_store_n(&answer, known, __ATOMIC_RELAXED);
	}
	return known == YES;
}
