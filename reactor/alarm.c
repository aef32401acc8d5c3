/*
 * Owns one op per reactor. Runs on the reactor's thread.
 *
 * Happy path: the next timer is far away; an absolute timeout for it goes to the kernel with the
 * enter that sleeps first, and later sleeps need no limit. Going off early is harmless (the timer
 * was cancelled or moved): that is a turn without work. Failure modes: no room for an SQE, a timer
 * before the one that the alarm is set for, a kernel that refuses (out of memory): each enter has
 * its own limit, as without an alarm.
 */
#include "reactor/alarm.h"

#include <errno.h>

#include "base/util.h"
#include "reactor/reactor.h"

/* Nearer timers are not worth an SQE and a CQE. */
#define ALARM_MIN_NS (50 * NS_PER_MS)
#define NOT_SET UINT64_MAX

static void went_off(struct op *op, int res, uint32_t cqe_flags)
{
	struct alarm *alarm = container_of(op, struct alarm, op);

	(void)cqe_flags;
	alarm->at_ns = NOT_SET;
	alarm->refused = res != -ETIME;
	/* Nobody's work: no reason to poll for more. */
	op->reactor->polled_cqes++;
}

int alarm_init(struct alarm *alarm, struct reactor *r)
{
	struct op_owner owner = { .kind = OP_KIND_ALARM };

	*alarm = (struct alarm){ .at_ns = NOT_SET };
	return op_init(&alarm->op, r, owner, went_off);
}

/* False without an SQE. */
static bool alarm_set_timerfd(struct alarm *alarm, uint64_t at_ns)
{
	struct io_uring_sqe *sqe = op_sqe(&alarm->op);

	if (!sqe)
		return false;
	alarm->at_ns = at_ns;
	alarm->ts.tv_sec = (long long)(at_ns / NS_PER_SEC);
	alarm->ts.tv_nsec = (long long)(at_ns % NS_PER_SEC);
	io_uring_prep_timeout(sqe, &alarm->ts, 0, IORING_TIMEOUT_ABS);
	op_start(&alarm->op, sqe);
	return true;
}

uint64_t alarm_limit_ns(struct alarm *alarm, uint64_t sleep_ns)
{
	uint64_t until_ns;

	if (sleep_ns == 0 || sleep_ns == RING_NO_TIMEOUT)
		return sleep_ns;
	until_ns = alarm->op.reactor->now_ns + sleep_ns;
	if (alarm->at_ns <= until_ns)
		return RING_NO_TIMEOUT;
	if (alarm->at_ns != NOT_SET || alarm->refused || sleep_ns < ALARM_MIN_NS)
		return sleep_ns;
	return alarm_set_timerfd(alarm, until_ns) ? RING_NO_TIMEOUT : sleep_ns;
}
