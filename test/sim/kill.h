/*
 * kill -9: everything of the product vanishes at a point of chance, in the middle of whatever it
 * does, without one more instruction of its own. What it had in the kernel is the model's to clean
 * up (ring_kill.c, ublk_recover.c), what it left to its successor the slots' (slot_past.c).
 */
#ifndef SIM_KILL_H
#define SIM_KILL_H

#include <setjmp.h>
#include <stdbool.h>

struct slot;

/* Begins a run: whether, how often, and where to kill. The slots may come later. */
void kill_init(const struct slot *slots, const unsigned *slot_nr);

/*
 * Around a turn of a reactor: where a kill within it goes to. Where it is not set, sim_kill_point()
 * does nothing.
 */
extern jmp_buf kill_frame;
void kill_set_frame(bool set);

/* Between two turns: whether this is the moment. */
bool kill_is_due(void);

/* It happens: counts where the devices stood, and chooses the next one. */
void kill_count(void);

/* Nobody is killed any more. */
void kill_end(void);

#endif
