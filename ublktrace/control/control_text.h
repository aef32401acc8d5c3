/* Records of `ublktrace control` in words. Any thread. */
#ifndef UBLKTRACE_CONTROL_CONTROL_TEXT_H
#define UBLKTRACE_CONTROL_CONTROL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "ublktrace/control/control_event.h"

#define CONTROL_TEXT_BYTES 320u

/* "UBLK_CMD_ADD_DEV", or "ublk command 0x..." in buf. Returns one of them. */
const char *control_name(const struct control_event *e, char *buf, size_t bytes);

/*
 * What the driver means by a result of that command: "the device exists already: ..."; "" where the
 * errno says it all, or there is no error. Static.
 */
const char *control_words(const struct control_event *e);

/* Why a command that has not ended may wait; "" when nothing is known. Static. */
const char *control_waits_for(const struct control_event *e);

/* "dev 0", "new dev 3", "ublkc0 queue 1 tag 5" into buf. Returns buf. */
const char *control_device(const struct control_event *e, char *buf, size_t bytes);

/* "in-line", "io-wq (iou-wrk 412)", ... into buf. Returns buf. */
const char *control_where(const struct control_event *e, char *buf, size_t bytes);

/* wall_offset_ns: CLOCK_REALTIME - CLOCK_MONOTONIC. more: so many others like it. */
void control_print(FILE *out, const struct control_event *e, int64_t wall_offset_ns, unsigned more,
		   bool colour);
void control_print_json(FILE *out, const struct control_event *e, int64_t wall_offset_ns,
			unsigned more);

#endif
