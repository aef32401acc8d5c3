/*
 * What the kernel tells in files about a block device and about the ring that serves it. For
 * programs of people: reading takes its time, and not everybody may.
 */
#ifndef UBLKCTL_CTL_KERNEL_H
#define UBLKCTL_CTL_KERNEL_H

#include <stdbool.h>
#include <stdio.h>

struct kernel_view {
	long inflight;	 /* started, /sys/block; -1: not known */
	long busy;	 /* tags in use, debugfs; -1: not known */
	char state[128]; /* flags of hctx 0, debugfs, or "none"; "": not known */
};

/* id of /dev/ublkbN; -1: there is none. */
void kernel_look(long long id, struct kernel_view *ret_view);

/* The larger of what is known; -1: nothing is. */
long kernel_nr(const struct kernel_view *view);

struct kernel_ring {
	int err;	     /* 0: the rest is known; or -errno */
	unsigned sq_head;    /* submissions taken so far */
	unsigned sq_waiting; /* handed over and not taken */
	unsigned cq_head;    /* completions seen so far */
	unsigned cq_unseen;  /* posted; those being worked on are among them */
	unsigned overflow;   /* completions for which the ring had no room */
};

/* /proc/PID/fdinfo/FD. */
void kernel_look_ring(int pid, int fd, struct kernel_ring *ret_ring);

/* Returns 0; -EAGAIN when the kernel had the ring locked and told nothing; -EBADMSG: half of it. */
int kernel_read_ring(FILE *file, struct kernel_ring *ret_ring);

#endif
