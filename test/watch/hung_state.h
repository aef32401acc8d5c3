/*
 * What a hung program waits for, as TAP comments on stdout; for tap_watch.
 *
 * Of each process: its command line; of each thread its state, system call, file and stack in the
 * kernel, and by gdb that in user space. Nothing is changed, but gdb stops a process for a moment.
 * TAP_WATCH_GDB: another program instead.
 *
 * Failure modes: what /proc or gdb does not tell is left out; gdb has 20 seconds for a process.
 */
#pragma once

/* Of all that find_tree finds. */
void hung_state_print(void);
