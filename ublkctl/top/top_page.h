/* From the model to a frame: the list of devices, the page of one, the help. Pure. */
#ifndef UBLKCTL_TOP_TOP_PAGE_H
#define UBLKCTL_TOP_TOP_PAGE_H

#include "ublkctl/top/top_frame.h"
#include "ublkctl/top/top_model.h"

/* Clears the frame and fills it; clock: the time of day as text, or "". */
void top_page(struct top_frame *f, struct top_model *m, const char *clock);

/* The page of one device, below the head. In top_page_device.c. */
void top_page_device(struct top_frame *f, const struct top_model *m);

/* For both: "-" when there is nothing to say. */
void top_page_latency(struct top_frame *f, int width, uint64_t ns);
enum top_color top_page_state_color(const char *state);

#endif
