/* See queue_rig.h. */
#include "test/steps/queue_rig.h"

#include <stdlib.h>
#include <string.h>

#include "test/conformance/ring_script.h"
#include "test/conformance/tap.h"

struct queue_rig qrig;

/* ---- the driver ---- */

static int on_batch_cmd(const struct io_uring_sqe *sqe, const struct ublk_batch_io *cmd)
{
	int bytes = cmd->nr_elem * cmd->elem_bytes;

	switch (sqe->cmd_op) {
	case UBLK_U_IO_FETCH_IO_CMDS:
		qrig.fetch_nr++;
		qrig.batch_fetch_data = sqe->user_data;
		return SCRIPT_LATER;
	case UBLK_U_IO_COMMIT_IO_CMDS:
		qrig.commit_nr++;
		qrig.batch_commit_data = sqe->user_data;
		return qrig.commit_res ? qrig.commit_res : bytes;
	default:
		return 0;
	}
}

static int on_sqe(const struct io_uring_sqe *sqe)
{
	const void *cmd = (const char *)sqe + 48;
	unsigned tag = ((const struct ublksrv_io_cmd *)cmd)->tag;

	ring_script.log_nr = 0;
	if (sqe->cmd_op != UBLK_U_IO_FETCH_REQ && sqe->cmd_op != UBLK_U_IO_COMMIT_AND_FETCH_REQ)
		return on_batch_cmd(sqe, cmd);
	if (sqe->cmd_op == UBLK_U_IO_COMMIT_AND_FETCH_REQ)
		qrig.commit_nr++;
	if (sqe->cmd_op == UBLK_U_IO_COMMIT_AND_FETCH_REQ && qrig.commit_res)
		return qrig.commit_res;
	qrig.fetches[tag] = sqe->user_data;
	return SCRIPT_LATER;
}

/* ---- the queue ---- */

static void on_attached(struct queue *q, int err)
{
	(void)q;
	EXPECT(err == 0, "%d", err);
	qrig.attached = true;
}

static void on_drained(struct queue *q)
{
	(void)q;
	qrig.drained = true;
}

static void on_fenced(struct queue *q)
{
	(void)q;
	qrig.fenced = true;
}

static void on_flushed(struct queue *q, int result)
{
	(void)q;
	qrig.flushed = result;
}

static void on_released(struct queue *q)
{
	(void)q;
	qrig.released = true;
}

void qrig_turn(void)
{
	ring_script.mail = true;
	reactor_turn(&qrig.reactor, false);
}

void qrig_turns(unsigned nr)
{
	while (nr-- > 0)
		qrig_turn();
}

void qrig_open(bool batch)
{
	static const struct backend_spec spec = { .ops = &holding_backend };
	static const struct backend_open_params open_params = { .logical_block_bytes = 512,
								.max_io_bytes = IO_BYTES };
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	struct queue_setup setup = {
		.reactor = &qrig.reactor,
		.home = &qrig.reactor,
		.device_name = "t",
		.descs = qrig.descs,
		.cdev_fd = -1,
		.depth = DEPTH,
		.max_io_bytes = IO_BYTES,
		.data = { .path = DATA_PATH_COPY, .batch = batch },
		.attached = on_attached,
		.drained = on_drained,
		.released = on_released,
		.fenced = on_fenced,
		.flushed = on_flushed,
	};
	char error[BACKEND_ERROR_BYTES];

	ring_script = (struct ring_script){ .answer = on_sqe, .now_ns = NS_PER_SEC };
	memset(qrig.fetches, 0, sizeof(qrig.fetches));
	for (unsigned tag = 0; tag < DEPTH; tag++)
		qrig.descs[tag] = (struct ublksrv_io_desc){ .nr_sectors = SECTORS };
	qrig.attached = qrig.drained = qrig.released = keeps = false;
	qrig.fetch_nr = qrig.commit_nr = submitted_nr = out_nr = 0;
	room = DEPTH;
	qrig.commit_res = 0;
	qrig.flushed = 1;
	if (reactor_init(&qrig.reactor, &params) < 0 ||
	    backend_open(&qrig.device, &spec, "t", &open_params, error, sizeof(error)) < 0)
		abort();
	qrig.io_errors = io_errors_create(backend_node_nr(qrig.device));
	if (!qrig.io_errors)
		abort();
	setup.backend = qrig.device;
	setup.errors = qrig.io_errors;
	queue_attach(&qrig.queue, &setup);
	qrig_turns(4);
	EXPECT(qrig.attached, "the queue is not attached");
}

void qrig_release(void)
{
	EXPECT(qrig.drained, "the queue is not drained");
	queue_release(&qrig.queue);
	qrig_turns(4);
	EXPECT(qrig.released, "the queue is not released");
	backend_close(qrig.device);
	free(qrig.io_errors);
	reactor_fini(&qrig.reactor);
}

void qrig_close(bool batch)
{
	if (batch)
		ring_script_post(qrig.batch_fetch_data, UBLK_IO_RES_ABORT, 0);
	for (unsigned tag = 0; !batch && tag < DEPTH; tag++)
		ring_script_post(qrig.fetches[tag], UBLK_IO_RES_ABORT, 0);
	qrig_turns(4);
	qrig_release();
}

void qrig_bring(unsigned tag, uint32_t op)
{
	qrig.descs[tag].op_flags = op;
	ring_script_post(qrig.fetches[tag], UBLK_IO_RES_OK, 0);
	qrig.fetches[tag] = 0;
	qrig_turn();
}

void qrig_answer_with(unsigned tag, int result)
{
	out_nr--;
	backend_io_complete(kept_of[tag], result);
}

void qrig_answer(unsigned tag)
{
	qrig_answer_with(tag, 0);
}
