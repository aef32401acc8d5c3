/*
 * A backend that holds the requests that it gets, or answers them at once: for tests that look at a
 * queue of ublk step by step. One queue at a time; one thread.
 */
#ifndef TEST_HOLDING_BACKEND_H
#define TEST_HOLDING_BACKEND_H

#include "storage/backend.h"

#define DEPTH 4u
#define IO_BYTES 8192u

extern const struct backend holding_backend;

extern bool keeps; /* false: answers at once */
extern struct backend_io *kept, *kept_of[DEPTH];
extern unsigned room; /* more than those are too many */
extern unsigned out_nr;
extern uint8_t last_flags;
extern unsigned submitted_nr;
extern uint8_t written[IO_BYTES]; /* what the last WRITE had when it came */

#endif
