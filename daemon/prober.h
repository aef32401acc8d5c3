/*
 * Asks what a backend must know before it can be opened (struct backend's probe) on threads of
 * their own, for it may wait for another machine as long as it likes. Main thread, but for the
 * threads. Nobody ever waits for a thread: what it finds when nobody wants to know it any more is
 * thrown away.
 */
#ifndef DAEMON_PROBER_H
#define DAEMON_PROBER_H

#include <stdbool.h>

#include "daemon/settings.h"
#include "reactor/reactor.h"

/* At a time. */
#define PROBER_THREADS_MAX 64u

struct prober;
struct probe; /* one question */

/*
 * home: the control reactor; ended is called from a turn of it, some time after a probe has ended,
 * for one or for several. Returns 0 or -ENOMEM.
 */
int prober_new(struct prober **ret_prober, struct reactor *home, void (*ended)(void *arg),
	       void *arg);

/*
 * All its questions are freed. Threads may still run: they end by themselves, whatever else is gone
 * by then. Accepts NULL.
 */
void prober_free(struct prober *prober);

/*
 * Begins to ask for a device of these settings, which may change or go meanwhile. Returns 0, or
 * -EAGAIN: not now, too many are being asked; or -ENOMEM.
 */
int probe_begin(struct probe **ret_probe, struct prober *prober,
		const struct device_settings *settings);

bool probe_ended(const struct probe *probe);

/* Once it has ended: 0, or -errno and *ret_words why; what was found, as wishes.found wants it. */
int probe_result(const struct probe *probe, const char **ret_words);
void *probe_found(const struct probe *probe);

/* At any time before the prober is. Accepts NULL. */
void probe_free(struct probe *probe);

#endif
