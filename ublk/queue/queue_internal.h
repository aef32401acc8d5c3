/*
 * Between queue.c (life of a queue), tag.c (a request from the driver to the backend and back) and
 * batch.c (commands for many tags at once). All on the queue's reactor.
 */
#ifndef UBLK_QUEUE_QUEUE_INTERNAL_H
#define UBLK_QUEUE_QUEUE_INTERNAL_H

#include "ublk/queue/queue.h"
#include "ublk/queue/tag_io.h"

/* The command's payload stands at byte 48 of the SQE. */
#define SQE_CMD_OFFSET 48

/* No registered buffer: the driver fails to fill it, and tells so by UBLK_IO_F_NEED_REG_BUF. */
#define BUFFER_INDEX_NONE 0xffff

/* ---- queue.c ---- */

/*
 * Buffers of a queue that had no request for a while go back to the system; call this when it has
 * one and the timer is not armed.
 */
void queue_trim_arm(struct queue *q);

/* Says whether it wants this care. */
static inline void queue_care_set(struct queue *q, enum queue_care care, bool on)
{
	q->care = (uint8_t)(on ? q->care | care : q->care & ~care);
}

/* What was kept, in the order in which it came. */
void queue_serve_kept(struct queue *q);

/* The reactor has lost a tag for good: when it was the last one, the queue is drained. */
void queue_tag_gone(struct queue *q);

/* Memory of a tag, q->setup.max_io_bytes of it. */
static inline void *queue_buffer(const struct queue *q, unsigned tag)
{
	return (uint8_t *)q->buffers + (uint64_t)tag * q->setup.max_io_bytes;
}

/* The registered buffer of a tag, with zero copy. */
static inline uint16_t queue_buffer_index(const struct queue *q, unsigned tag)
{
	return q->first_buffer < 0 ? BUFFER_INDEX_NONE
				   : (uint16_t)((unsigned)q->first_buffer + tag);
}

/* ---- queue_fence.c ---- */

/* Is everything before the fence at its end? */
void queue_fence_look(struct timer *timer);

/* ---- queue_flush.c ---- */

/* Begins the FLUSH, when a tag is free for it. */
void queue_flush_look(struct timer *timer);

/* Whether this tag has the FLUSH: what the driver has put into it waits for its end. */
static inline bool queue_flush_keeps(const struct queue *q, const struct tag_io *io)
{
	return io == q->flush_io;
}

/* QUEUE_CANCELLING is set: it is to end soon. */
void queue_flush_cancel(struct queue *q);

/* ---- tag.c ---- */

/* Fills the SQE that all commands of the queue begin with. */
void tag_sqe_init(struct queue *q);

/* Arms a tag for the first time; not with batches. */
void tag_fetch(struct op *op);

/* backend_done_fn of the tags. */
void tag_backend_done(struct backend_io *request);

/* op_fn of FETCH and COMMIT_AND_FETCH. */
void tag_event(struct op *op, int res, uint32_t cqe_flags);

/* The driver has put a request into the tag's descriptor. */
void tag_serve(struct tag_io *io);

/* The tag will not come back from the driver: an abort, or refused with another errno. */
void tag_down(struct tag_io *io, int res);

/* Ends the request with an errno by our own word. */
void tag_refuse(struct tag_io *io, int err);

/* Commits what is done at the end of this turn. */
void tag_commits_wanted(struct queue *q);

/* Tries those again that their backend was too busy for. */
void tag_busy_timeout(struct timer *timer);

/* ---- shmem_request.c: of a queue whose device has shared memory ---- */

/*
 * Says where the bytes of a READ or WRITE are, as the driver says: op_flags and addr of its
 * descriptor. request.op and request.length_bytes are set.
 */
void tag_place_shmem(struct queue *q, struct tag_io *io, uint32_t op_flags, uint64_t addr);

/*
 * Of one in shared memory that the backend has done. Returns 0, or -EIO: pages of the memory are
 * missing, so nothing may be assumed of what was read or written.
 */
int tag_shmem_result(const struct queue *q, const struct tag_io *io);

/* Where the bytes of a request are that is not in shared memory: DATA_PATH_USER_COPY. */
void tag_place_user_copy(const struct queue *q, struct tag_io *io);

/* ---- zone_requests.c: of a queue whose device is zoned ---- */

/* Whether UBLK_IO_OP_* is of zones alone. */
bool zone_request_is(unsigned ublk_op);

/*
 * The rest of decoding one: offset_bytes and length_bytes are set. length_bytes: as the descriptor
 * says. Returns 0 or -errno for a malformed request.
 */
int zone_request_decode(struct tag_io *io, unsigned ublk_op, uint64_t length_bytes);

/*
 * Turn end, before the COMMITs of q->commits, which may have been here in a turn before: what they
 * say beside a result.
 */
void zone_requests_answer(struct queue *q);

/* ---- batch.c ---- */

/* Memory and ops of a queue with batches. Returns 0 or -errno; batch_fini accepts what is left. */
int batch_init(struct queue *q);
void batch_fini(struct queue *q);

/* Arms all tags. */
void batch_fetch(struct queue *q);

/* Any thread, while the queue is attached: whether this slot's op is one of the queue's batches. */
bool batch_owns(const struct queue *q, unsigned slot);

/* Turn end: one COMMIT for all tags that are done. */
void batch_commit(struct queue *q);

#endif
