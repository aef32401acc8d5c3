/* Where in the kernel a command to the ublk driver waits. Any thread; reads /proc/self. */
#ifndef UBLK_WORKER_H
#define UBLK_WORKER_H

#include <stdint.h>
#include <stdio.h>

#define WORKER_TEXT_BYTES 192

/*
 * Looks for the worker of this process's rings that runs cmd_op, and says in words what it waits
 * in: "wait_for_completion_interruptible, called by ublk_ctrl_start_dev". With several commands of
 * one kind under way it may be the worker of another one. Returns 0, -ENOENT when no worker runs
 * it, or the -errno of what cannot be read (root is needed); text is "" then.
 */
int worker_where(uint32_t cmd_op, char text[static WORKER_TEXT_BYTES]);

/*
 * The same of a thread of this process: its innermost function, and who called that. text is "" and
 * the -errno is returned where that cannot be read; tid 0: -ESRCH.
 */
int worker_thread_where(int tid, char text[static WORKER_TEXT_BYTES]);

/*
 * The same from the text of one /proc/PID/stack. Returns 0; 1 when it runs some command of the
 * driver, perhaps this one; or -ENOENT.
 */
int worker_read_stack(FILE *stack, uint32_t cmd_op, char text[static WORKER_TEXT_BYTES]);

#endif
