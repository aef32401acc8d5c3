/*
 * Bugs on purpose, to test what finds them: only in a build with -DUBLKD_FAULTS=ON, and there only
 * when asked for by an environment variable.
 *
 *   UBLKD_FAULT_NO_FETCH=QUEUE:TAG   that tag is never armed, of each device
 */
#ifndef UBLK_FAULTS_H
#define UBLK_FAULTS_H

#include <stdbool.h>

#ifdef UBLKD_FAULTS

#include <stdio.h>
#include <stdlib.h>

static inline bool fault_no_fetch(unsigned queue, unsigned tag)
{
	const char *text = getenv("UBLKD_FAULT_NO_FETCH");
	unsigned fault_queue, fault_tag;

	return text && sscanf(text, "%u:%u", &fault_queue, &fault_tag) == 2 &&
	       fault_queue == queue && fault_tag == tag;
}

#else

static inline bool fault_no_fetch(unsigned queue, unsigned tag)
{
	(void)queue, (void)tag;
	return false;
}

#endif
#endif
