/* The terminal of `ublkctl top`: ncurses and nothing else. One per process. */
#ifndef UBLKCTL_TOP_TOP_SCREEN_H
#define UBLKCTL_TOP_TOP_SCREEN_H

#include <stdbool.h>

#include "ublkctl/top/top_frame.h"
#include "ublkctl/top/top_model.h"

/* Takes the terminal. Returns false, and touches nothing, when it can move no cursor. */
bool top_screen_open(void);

/* Gives it back as it was; also when not open. */
void top_screen_close(void);

/* The size of now, into the frame. */
void top_screen_resize(struct top_frame *f);

void top_screen_paint(const struct top_frame *f);

/* The next key that was pressed; NONE: no more, or one without a meaning. */
enum top_key top_screen_key(bool *ret_more);

#endif
