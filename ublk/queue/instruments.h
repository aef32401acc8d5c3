/*
 * Everything that is recorded about an I/O on its way, on the queue's reactor: counters, histograms
 * per layer, the flight recorder, static probes. Always on; docs/observability.md says what it
 * costs. A build with -DUBLKD_INSTRUMENTS=OFF has none of it, to measure that.
 */
#ifndef UBLK_QUEUE_INSTRUMENTS_H
#define UBLK_QUEUE_INSTRUMENTS_H

#include "base/flight.h"
#include "base/probes.h"
#include "base/util.h"
#include "ublk/queue/tag_io.h"

#ifdef UBLKD_INSTRUMENTS

static inline void instrument_event(const struct reactor *r, const struct tag_io *io,
				    enum flight_event event, uint64_t now_ns, int32_t value)
{
	flight_write(r->flight, now_ns, event, &io->flight_key, io->request.offset_bytes >> 9,
		     value);
}

/* A request was taken from the driver and decoded. */
static inline void instrument_fetch(struct queue *q, const struct tag_io *io, uint64_t now_ns)
{
	uint64_t sector = io->request.offset_bytes >> 9;
	uint32_t bytes = io->request.length_bytes;

	if (__builtin_expect(q->inflight_nr > q->stats.inflight_max, 0))
		counter_add(&q->stats.inflight_max, 1);
	flight_write(q->setup.reactor->flight, now_ns, FLIGHT_FETCH, &io->flight_key, sector,
		     (int32_t)bytes);
	PROBE5(io__fetch, io->id, io->request.op, sector, bytes, q->inflight_nr);
}

static inline void instrument_submit(const struct tag_io *io)
{
	PROBE1(io__submit, io->id);
	(void)io;
}

static inline void instrument_busy(const struct tag_io *io)
{
	counter_add(&io->queue->stats.busy_retries, 1);
	instrument_event(io->queue->setup.reactor, io, FLIGHT_BUSY, io->submit_ns, 0);
	PROBE1(io__busy, io->id);
}

/* The backend answered a QUEUED request. r: the queue's, here and below. */
static inline void instrument_done(const struct reactor *r, const struct tag_io *io)
{
	instrument_event(r, io, FLIGHT_DONE, r->now_ns, io->request.result);
	PROBE2(io__done, io->id, io->request.result);
}

static inline void instrument_abort(const struct tag_io *io, int res)
{
	const struct reactor *r = io->queue->setup.reactor;

	instrument_event(r, io, FLIGHT_ABORT, r->now_ns, res);
}

/*
 * A layer in which no time was spent is not recorded: the reader knows the number of I/Os and puts
 * the rest into bucket 0 (device.c). A request that the backend answered at once, the fastest kind,
 * costs one bucket search.
 */
static inline void instrument_layers(struct histogram *layer, const struct tag_io *io,
				     uint64_t now_ns, unsigned (*index)(uint64_t ns))
{
	uint64_t total_ns = now_ns - io->start_ns;
	uint64_t throttle_ns = io->request.throttle_ns;
	uint64_t waited_ns = io->done_ns - io->submit_ns;
	uint64_t backend_ns = waited_ns - throttle_ns;
	uint64_t daemon_ns = total_ns - waited_ns;
	unsigned total_idx = index(total_ns);
	unsigned daemon_idx = total_idx;

	if (waited_ns) {
		daemon_idx = index(daemon_ns);
		histogram_record_at(&layer[QUEUE_LAYER_BACKEND], index(backend_ns), backend_ns);
		if (throttle_ns)
			histogram_record_at(&layer[QUEUE_LAYER_THROTTLE], index(throttle_ns),
					    throttle_ns);
	}
	histogram_record_at(&layer[QUEUE_LAYER_TOTAL], total_idx, total_ns);
	histogram_record_at(&layer[QUEUE_LAYER_DAEMON], daemon_idx, daemon_ns);
	PROBE6(io__commit, io->id, io->request.op, io->element.result, total_ns, throttle_ns,
	       backend_ns);
}

static __attribute__((cold, noinline)) void instrument_error(struct queue *q,
							     struct queue_op_stats *s, int err)
{
	counter_add(&s->failed, 1);
	counter_add(&q->stats.errors[MIN(-err, QUEUE_ERRNO_NR - 1)], 1);
}

/* The request goes back to the driver with the next enter; the clock was just read. */
static inline void instrument_commit(struct queue *q, const struct reactor *r,
				     const struct tag_io *io)
{
	struct queue_op_stats *s = &q->stats.op[io->request.op];
	int32_t result = io->element.result;
	uint64_t now_ns = r->now_ns;

	counter_add(&s->done, 1);
	if (__builtin_expect(result < 0, 0))
		instrument_error(q, s, result);
	else
		counter_add(&s->bytes, io->request.length_bytes);
	/* No part is longer than the whole: one compare for all. */
	if (__builtin_expect(now_ns - io->start_ns < HISTOGRAM_END_NS, 1))
		instrument_layers(s->layer, io, now_ns, histogram_index_short);
	else
		instrument_layers(s->layer, io, now_ns, histogram_index);
	instrument_event(r, io, FLIGHT_COMMIT, now_ns, result);
}

#else

static inline void instrument_fetch(struct queue *q, const struct tag_io *io, uint64_t now_ns)
{
	(void)q, (void)io, (void)now_ns;
}

static inline void instrument_submit(const struct tag_io *io)
{
	(void)io;
}

static inline void instrument_busy(const struct tag_io *io)
{
	(void)io;
}

static inline void instrument_done(const struct reactor *r, const struct tag_io *io)
{
	(void)r, (void)io;
}

static inline void instrument_abort(const struct tag_io *io, int res)
{
	(void)io;
	(void)res;
}

static inline void instrument_commit(struct queue *q, const struct reactor *r,
				     const struct tag_io *io)
{
	(void)q, (void)r, (void)io;
}

#endif

/* A tag that is answered is about to be handed back; not again what is only sent again. */
static inline void tag_account_commit(struct queue *q, const struct reactor *r,
				      const struct tag_io *io)
{
	if (io->committing)
		return;
	instrument_commit(q, r, io);
	q->inflight_nr--;
}

#endif
