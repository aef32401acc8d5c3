/*
 * Bugs on purpose, to test what finds them: only in the program ublkd-faults, and there only when
 * asked for by an environment variable.
 *
 *   UBLKD_FAULT_NO_FETCH=QUEUE:TAG     that tag is never armed, of each device
 *   UBLKD_FAULT_BLOCK=SECTOR:SECONDS   a request at this sector blocks its reactor
 *   UBLKD_FAULT_LOSE=SECTOR            a request at this sector is forgotten when it comes
 *   UBLKD_FAULT_NO_FLUSH=1             flushes are answered and not done
 *   UBLKD_FAULT_NO_FUA=1               FUA is forgotten
 */
#ifndef UBLK_QUEUE_FAULTS_H
#define UBLK_QUEUE_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef UBLKD_FAULTS

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline bool fault_no_fetch(unsigned queue, unsigned tag)
{
	const char *text = getenv("UBLKD_FAULT_NO_FETCH");
	unsigned fault_queue, fault_tag;

	return text && sscanf(text, "%u:%u", &fault_queue, &fault_tag) == 2 &&
	       fault_queue == queue && fault_tag == tag;
}

static inline void fault_block(uint64_t sector)
{
	const char *text = getenv("UBLKD_FAULT_BLOCK");
	unsigned long long fault_sector;
	unsigned seconds;

	if (text && sscanf(text, "%llu:%u", &fault_sector, &seconds) == 2 && fault_sector == sector)
		sleep(seconds);
}

static inline bool fault_lose(uint64_t sector)
{
	const char *text = getenv("UBLKD_FAULT_LOSE");

	return text && strtoull(text, NULL, 10) == sector;
}

static inline bool fault_no_flush(void)
{
	return getenv("UBLKD_FAULT_NO_FLUSH");
}

static inline bool fault_no_fua(void)
{
	return getenv("UBLKD_FAULT_NO_FUA");
}

#else

static inline bool fault_no_fetch(unsigned queue, unsigned tag)
{
	(void)queue, (void)tag;
	return false;
}

static inline void fault_block(uint64_t sector)
{
	(void)sector;
}

static inline bool fault_lose(uint64_t sector)
{
	(void)sector;
	return false;
}

static inline bool fault_no_flush(void)
{
	return false;
}

static inline bool fault_no_fua(void)
{
	return false;
}

#endif
#endif
