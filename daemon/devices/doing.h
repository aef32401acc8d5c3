/* What a reactor does, in words: for the log and for people. Main thread. */
#ifndef DAEMON_DEVICES_DOING_H
#define DAEMON_DEVICES_DOING_H

#include "daemon/devices/device_set.h"
#include "daemon/runtime/reactors.h"

struct doing {
	bool in_code;	  /* or in the kernel */
	const char *what; /* kind of the op whose callback runs, or of whatever else does */
	char whom[96]; /* "disk1 queue 0 tag 3", as far as known; what it leaves, in the kernel */
	char thread_state; /* as of thread_state() */
	char function[64]; /* of the kernel; "": in none, or not known */
};

/* look is one at this reactor, just taken. */
void doing_find(const struct device_set *f, const struct reactors *rs, unsigned idx,
		const struct reactor_look *look, struct doing *ret_doing);

/* "runs a callback (tag) of disk1 queue 0 tag 3, in the kernel function hrtimer_nanosleep" */
void doing_text(const struct doing *doing, char *text, size_t bytes);

#endif
