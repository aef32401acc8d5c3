/*
 * Opens and closes the backends of devices without waiting for them, since a backend may wait for
 * another machine, or for a file system that does not answer, without a limit (storage/life.h).
 * Main thread. A backend that is not needed any more is closed when it is open.
 */
#ifndef DAEMON_DEVICES_BACKEND_WORK_H
#define DAEMON_DEVICES_BACKEND_WORK_H

#include <stdbool.h>

#include "daemon/settings/settings.h"
#include "storage/life.h"
#include "ublk/worker.h"

/* Backends that are being opened at a time. */
#define BACKEND_WORK_OPENS_MAX 64u

struct backend_work; /* one backend that is being opened or closed */

/* Outlives its works, unless the helpers are closed before. */
struct backend_work_host {
	struct backend_home home; /* without helpers the work is done inside of the call (tests) */
	void (*ended)(void *arg); /* from a turn of the control reactor: a work has ended */
	void *arg;
	unsigned opens;	      /* under way, also those that are not needed any more */
	unsigned unwanted_nr; /* of them, those */
	uint64_t unwanted_ns; /* when the last of those has ended; 0: none has */
};

/*
 * Begins to open the backend of a device. The work holds settings until it is freed; while the
 * backend is open the caller must, since the backend reads them. Its descriptors
 * in open_params are duplicated. Returns 0; -EAGAIN: too many are under way, try later; or -ENOMEM.
 */
int backend_work_open(struct backend_work **ret_work, struct backend_work_host *host,
		      struct device_settings *settings,
		      const struct backend_open_params *open_params);

/*
 * Begins to close a backend that was opened with these settings; no queue of it is open. Returns 0,
 * or -ENOMEM: then it has been closed by this call.
 */
int backend_work_close(struct backend_work **ret_work, struct backend_work_host *host,
		       struct device_settings *settings, struct backend_device *backend);

bool backend_work_ended(const struct backend_work *work);
bool backend_work_closes(const struct backend_work *work);

/*
 * Of an open that has ended: 0 and the backend, the caller's from now on; or -errno, with words for
 * the user in *ret_words; unanswered: a peer or a child did not answer as it should.
 */
int backend_work_result(struct backend_work *work, struct backend_device **ret_backend,
			const char **ret_words, bool *ret_unanswered);

/*
 * Of a close that has ended: the first last word that could not be said, and why; "": its storage
 * has all that was acknowledged and flushed. Valid until it is freed.
 */
const char *backend_work_loss(const struct backend_work *work);

/*
 * What it does now, in words ("opening its backend", "asking its server"), since when
 * (ring_clock_ns), and where in the kernel its thread waits (worker_thread_where; "" when that
 * cannot be told).
 */
const char *backend_work_doing(const struct backend_work *work, uint64_t *ret_since_ns,
			       char where[static WORKER_TEXT_BYTES]);

/*
 * When it ends by a limit of its own, if not before (ring_clock_ns); 0: unknown. waits_for: what it
 * waits for until then, in more words; "".
 */
uint64_t backend_work_ends_ns(const struct backend_work *work,
			      char waits_for[static BACKEND_LIFE_WAIT_BYTES]);

/* At any time. A backend that it has opened, or will, is closed. Accepts NULL. */
void backend_work_free(struct backend_work *work);

#endif
