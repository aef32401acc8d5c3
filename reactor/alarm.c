/*
 * Owns an op per timeout. Runs on the reactor's thread.
 *
 * Happy path: the next timer is far away; an absolute timeout for it goes to the kernel with the
 * enter that sleeps first, and later sleeps need no limit. Going off early is harmless (the timer
 * was cancelled or moved): that is a turn without work. Failure modes: no room for an SQE, a timer
 * before all timeouts when each is set, a kernel that refuses (out of memory): each enter has its
 * own limit, as without an alarm.
 */
#include "reactor/alarm.h"

#include <errno.h>

#include "base/util.h"
#include "reactor/reactor.h"

/* Nearer timers are not worth an SQE and a CQE. */
#define ALARM_MIN_NS (50 * NS_PER_MS)
#define NOT_SET UINT64_MAX

static void find_first(struct alarm *alarm)
{
	alarm->at_ns = NOT_SET;
	for (unsigned i = 0; i < ALARM_TIMEOUT_NR; i++)
		alarm->at_ns = MIN(alarm->at_ns, alarm->timeouts[i].at_ns);
}

static void went_off(struct op *op, int res, uint32_t cqe_flags)
{
	struct alarm *alarm = &op->reactor->alarm;

	(void)cqe_flags;
	container_of(op, struct alarm_timeout, op)->at_ns = NOT_SET;
	find_first(alarm);
	alarm->refused = res != -ETIME;
	/* Nobody's work: no reason to poll for more. */
	op->reactor->polled_cqes++;
}

int alarm_init(struct alarm *alarm, struct reactor *r)
{
	int ret = 0;

	*alarm = (struct alarm){ .at_ns = NOT_SET };
	for (unsigned i = 0; i < ALARM_TIMEOUT_NR && ret == 0; i++) {
		struct op_owner owner = { .kind = OP_KIND_ALARM, .leg = i };

		alarm->timeouts[i].at_ns = NOT_SET;
		ret = op_init(&alarm->timeouts[i].op, r, owner, went_off);
	}
	return ret;
}

/* One that is not set, or NULL. */
static struct alarm_timeout *spare_timeout(struct alarm *alarm)
{
	for (unsigned i = 0; i < ALARM_TIMEOUT_NR; i++)
		if (alarm->timeouts[i].at_ns == NOT_SET)
			return &alarm->timeouts[i];
	return NULL;
}

/* False without a timeout to spare, or an SQE. */
static bool alarm_set(struct alarm *alarm, uint64_t at_ns)
{
	struct alarm_timeout *timeout = spare_timeout(alarm);
	struct io_uring_sqe *sqe = timeout ? op_sqe(&timeout->op) : NULL;

	if (!sqe)
		return false;
	timeout->at_ns = alarm->at_ns = at_ns;
	op_start_timeout(&timeout->op, sqe, &timeout->ts, at_ns);
	return true;
}

uint64_t alarm_limit_ns(struct alarm *alarm, uint64_t sleep_ns)
{
	uint64_t until_ns;

	if (sleep_ns == 0 || sleep_ns == RING_NO_TIMEOUT)
		return sleep_ns;
	until_ns = alarm->timeouts[0].op.reactor->now_ns + sleep_ns;
	if (alarm->at_ns <= until_ns)
		return RING_NO_TIMEOUT;
	if (alarm->refused || sleep_ns < ALARM_MIN_NS)
		return sleep_ns;
	return alarm_set(alarm, until_ns) ? RING_NO_TIMEOUT : sleep_ns;
}
