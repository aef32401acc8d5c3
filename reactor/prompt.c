/*
 * The look at what was slept over: a timeout that is set with the first prompt op and, when it went
 * off, with the next one. Its CQE by itself ends a sleep, and the turn that this begins runs every
 * CQE.
 */
#include "reactor/prompt.h"

#include "reactor/reactor.h"

static void looked(struct op *op, int res, uint32_t cqe_flags)
{
	(void)res, (void)cqe_flags;
	/* Nobody's work: no reason to poll for more. */
	op->reactor->polled_cqes++;
}

int prompt_init(struct prompt *prompt, struct reactor *r)
{
	struct op_owner owner = { .kind = OP_KIND_ALARM, .leg = ALARM_TIMEOUT_NR };

	*prompt = (struct prompt){ 0 };
	return op_init(&prompt->look, r, owner, looked);
}

bool prompt_look_set(struct prompt *prompt)
{
	struct io_uring_sqe *sqe = op_sqe(&prompt->look);
	uint64_t at_ns = prompt->look.reactor->now_ns + PROMPT_LOOK_NS;

	if (!sqe)
		return false;
	prompt->ts.tv_sec = (long long)(at_ns / NS_PER_SEC);
	prompt->ts.tv_nsec = (long long)(at_ns % NS_PER_SEC);
	io_uring_prep_timeout(sqe, &prompt->ts, 0, IORING_TIMEOUT_ABS);
	op_start(&prompt->look, sqe);
	return true;
}
