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

	if (!sqe)
		return false;
	op_start_timeout(&prompt->look, sqe, &prompt->ts,
			 prompt->look.reactor->now_ns + PROMPT_LOOK_NS);
	return true;
}
