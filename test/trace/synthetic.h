/*
 * Records as a trace of a made-up machine would have them, for tests of what draws them: fio with
 * its ring on a device of ublkd, which has another ring; requests that go inline, by a poll, by
 * io-wq; linked ones; all that a record may say is said at least once. Header only.
 */
#ifndef TEST_TRACE_SYNTHETIC_H
#define TEST_TRACE_SYNTHETIC_H

#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "ublktrace/events/event.h"

#define SYNTHETIC_FETCH 0xc0107520u  /* UBLK_U_IO_FETCH_REQ */
#define SYNTHETIC_COMMIT 0xc0107521u /* UBLK_U_IO_COMMIT_AND_FETCH_REQ */
/* Servers mark kinds of requests by high bits. */
#define SYNTHETIC_COMMAND_DATA (1ull << 63 | 1000)
#define SYNTHETIC_FIO_RING 0xffff888000001000ull
#define SYNTHETIC_DAEMON_RING 0xffff888000002000ull

struct synthetic {
	void (*put)(const struct event *e, void *arg);
	void *arg;
	uint64_t now_ns;
};

static inline struct event synthetic_event(struct synthetic *s, unsigned type, unsigned pid,
					   unsigned tid, const char *comm)
{
	struct event e = { .time_ns = s->now_ns, .type = type, .pid = pid, .tid = tid };

	snprintf(e.comm, sizeof(e.comm), "%s", comm);
	return e;
}

static inline struct event fio_event(struct synthetic *s, unsigned type)
{
	struct event e = synthetic_event(s, type, 100, 101, "fio");

	e.ring = SYNTHETIC_FIO_RING;
	return e;
}

static inline struct event daemon_event(struct synthetic *s, unsigned type)
{
	struct event e = synthetic_event(s, type, 200, 201, "ublkd");

	e.ring = SYNTHETIC_DAEMON_RING;
	e.cpu = 1;
	return e;
}

/* Tells e, and lets time pass. */
static inline void synthetic_put(struct synthetic *s, const struct event *e, unsigned ns)
{
	s->put(e, s->arg);
	s->now_ns += ns;
}

static inline void synthetic_ring(struct synthetic *s, struct event e, int fd, unsigned existed)
{
	e.ring_info = (struct event_ring){
		.fd = fd,
		.sq_entries = 64,
		.cq_entries = 128,
		.existed = existed,
	};
	synthetic_put(s, &e, 100);
}

static inline void synthetic_enter(struct synthetic *s, struct event e, int fd, unsigned nr)
{
	e.type = EVENT_ENTER;
	e.enter = (struct event_enter){
		.fd = fd,
		.to_submit = nr,
		.min_complete = 1,
		.flags = IORING_ENTER_GETEVENTS,
	};
	e.levels = (struct event_levels){ .sq_tail = nr, .have = 1 };
	synthetic_put(s, &e, 200);
}

static inline void synthetic_exit(struct synthetic *s, struct event e, int fd, uint64_t start_ns,
				  int64_t ret)
{
	e.type = EVENT_SYSCALL;
	e.time_ns = s->now_ns;
	e.syscall = (struct event_syscall){
		.start_ns = start_ns,
		.ret = ret,
		.nr = EVENT_SYSCALL_ENTER,
		.fd = fd,
	};
	synthetic_put(s, &e, 100);
}

static inline void synthetic_submit(struct synthetic *s, struct event e, uint64_t req,
				    uint64_t user_data, unsigned opcode, unsigned flags)
{
	e.type = EVENT_SUBMIT;
	e.time_ns = s->now_ns;
	e.req = req;
	e.user_data = user_data;
	e.sqe = (struct event_sqe){
		.opcode = (uint8_t)opcode,
		.flags = (uint8_t)flags,
		.fd = 7,
		.len = 4096,
		.offset = user_data * 4096,
		.ublk_id = -1,
	};
	synthetic_put(s, &e, 150);
}

static inline void synthetic_complete(struct synthetic *s, struct event e, uint64_t req,
				      uint64_t user_data, unsigned opcode, int res, unsigned flags)
{
	e.type = EVENT_COMPLETE;
	e.time_ns = s->now_ns;
	e.req = req;
	e.user_data = user_data;
	e.cqe = (struct event_cqe){
		.res = res,
		.flags = flags,
		.opcode = opcode,
		.fd = 7,
		.ublk_id = -1,
	};
	synthetic_put(s, &e, 150);
}

/* POLL, ASYNC, DEFER, WORKER, WORKER_END */
static inline void synthetic_req(struct synthetic *s, struct event e, unsigned type, uint64_t req,
				 uint64_t user_data)
{
	e.type = type;
	e.time_ns = s->now_ns;
	e.req = req;
	e.user_data = user_data;
	synthetic_put(s, &e, 300);
}

static inline void synthetic_reap(struct synthetic *s, struct event e, uint64_t user_data, int res)
{
	e.type = EVENT_REAP;
	e.time_ns = s->now_ns;
	e.ring = 0; /* the program knows no kernel address */
	e.user_data = user_data;
	e.cqe = (struct event_cqe){ .res = res, .opcode = 0xff, .ublk_id = -1 };
	synthetic_put(s, &e, 100);
}

static inline void synthetic_switch(struct synthetic *s, struct event e, unsigned on)
{
	e.type = EVENT_SWITCH;
	e.time_ns = s->now_ns;
	e.ring = 0;
	e.value = on;
	synthetic_put(s, &e, 500);
}

static inline uint64_t synthetic_id(unsigned device, unsigned queue, unsigned tag)
{
	return (uint64_t)device << 32 | queue << 16 | tag;
}

static inline void synthetic_block(struct synthetic *s, struct event e, unsigned type, uint64_t id,
				   int64_t value)
{
	e.type = type;
	e.time_ns = s->now_ns;
	e.ring = 0;
	e.block = (struct event_block){
		.id = id,
		.sector = 8 * (id & 0xffff),
		.value = value,
		.has_op = 1,
	};
	if (type == EVENT_DAEMON_COMMIT)
		e.block.layer_ns[0] = 1500, e.block.layer_ns[2] = 900;
	synthetic_put(s, &e, 400);
}

/* A FETCH or COMMIT of a tag of device 0, queue 0. */
static inline void synthetic_command(struct synthetic *s, unsigned cmd_op, uint64_t req,
				     unsigned tag)
{
	struct event e = daemon_event(s, EVENT_SUBMIT);

	e.req = req;
	e.user_data = SYNTHETIC_COMMAND_DATA + tag;
	e.sqe = (struct event_sqe){
		.opcode = IORING_OP_URING_CMD,
		.fd = 9,
		.cmd_op = cmd_op,
		.cmd = { (uint64_t)tag << 16 },
	};
	synthetic_put(s, &e, 150);
}

static inline void synthetic_answer(struct synthetic *s, unsigned cmd_op, uint64_t req,
				    unsigned tag, int res)
{
	struct event e = daemon_event(s, EVENT_COMPLETE);

	e.req = req;
	e.user_data = SYNTHETIC_COMMAND_DATA + tag;
	e.cqe = (struct event_cqe){
		.res = res,
		.opcode = IORING_OP_URING_CMD,
		.fd = 9,
		.cmd_op = cmd_op,
		.tag = tag,
	};
	synthetic_put(s, &e, 150);
}

/* fio reads by way of ublkd: all that a request goes through. req is that of the tag's command. */
static inline void synthetic_read(struct synthetic *s, uint64_t *req, unsigned *cmd_op,
				  unsigned tag, uint64_t user_data)
{
	struct event fio = fio_event(s, EVENT_ENTER), daemon = daemon_event(s, EVENT_ENTER);
	uint64_t start_ns = s->now_ns, fio_req = 0xffff888000100000ull + user_data % 64 * 256;
	uint64_t id = synthetic_id(0, 0, tag), daemon_start_ns;

	synthetic_enter(s, fio, 5, 1);
	synthetic_submit(s, fio, fio_req, user_data, IORING_OP_READ, 0);
	synthetic_block(s, fio, EVENT_BLOCK_QUEUE, id, 4096);
	synthetic_switch(s, fio, 0);
	synthetic_answer(s, *cmd_op, *req, tag, 0);
	synthetic_reap(s, daemon, SYNTHETIC_COMMAND_DATA + tag, 0);
	synthetic_block(s, daemon, EVENT_DAEMON_FETCH, id, 4096);
	synthetic_block(s, daemon, EVENT_DAEMON_SUBMIT, id, 0);
	synthetic_block(s, daemon, EVENT_DAEMON_DONE, id, 4096);
	synthetic_block(s, daemon, EVENT_DAEMON_COMMIT, id, 4096);
	daemon_start_ns = s->now_ns;
	daemon.time_ns = s->now_ns;
	synthetic_enter(s, daemon, 4, 1);
	*req += 256;
	*cmd_op = SYNTHETIC_COMMIT;
	synthetic_command(s, *cmd_op, *req, tag);
	synthetic_block(s, daemon, EVENT_BLOCK_COMPLETE, id, 0);
	synthetic_exit(s, daemon, 4, daemon_start_ns, 1);
	synthetic_switch(s, fio, 1);
	synthetic_complete(s, fio, fio_req, user_data, IORING_OP_READ, 4096, 0);
	synthetic_exit(s, fio, 5, start_ns, 1);
}

/* The other ways of a request of fio's ring; req and user_data from base on. */
static inline void synthetic_ways(struct synthetic *s, uint64_t base)
{
	struct event fio = fio_event(s, EVENT_LINK);
	struct event worker = synthetic_event(s, EVENT_WORKER, 100, 150, "iou-wrk-101");
	uint64_t req = 0xffff888000200000ull + base % 64 * 1024;

	worker.ring = SYNTHETIC_FIO_RING;
	/* by a poll */
	synthetic_submit(s, fio, req, base, IORING_OP_RECV, 0);
	synthetic_req(s, fio, EVENT_POLL, req, base);
	synthetic_complete(s, fio, req, base, IORING_OP_RECV, 100, 0);
	/* by io-wq */
	synthetic_submit(s, fio, req + 1, base + 1, IORING_OP_FSYNC, IOSQE_ASYNC);
	synthetic_req(s, fio, EVENT_ASYNC, req + 1, base + 1);
	synthetic_req(s, worker, EVENT_WORKER, req + 1, base + 1);
	synthetic_complete(s, worker, req + 1, base + 1, IORING_OP_FSYNC, 0, 0);
	synthetic_req(s, worker, EVENT_WORKER_END, req + 1, base + 1);
	/* a link, whose head fails */
	synthetic_submit(s, fio, req + 2, base + 2, IORING_OP_OPENAT, IOSQE_IO_LINK);
	synthetic_submit(s, fio, req + 3, base + 3, IORING_OP_CLOSE, 0);
	fio.time_ns = s->now_ns;
	fio.req = req + 3;
	fio.other = req + 2;
	synthetic_put(s, &fio, 50);
	synthetic_complete(s, fio, req + 2, base + 2, IORING_OP_OPENAT, -2, 0);
	synthetic_complete(s, fio, req + 3, base + 3, IORING_OP_CLOSE, -125, 0);
	/* one of many completions */
	synthetic_submit(s, fio, req + 4, base + 4, IORING_OP_POLL_ADD, 0);
	synthetic_complete(s, fio, req + 4, base + 4, IORING_OP_POLL_ADD, 1, IORING_CQE_F_MORE);
	synthetic_complete(s, fio, req + 4, base + 4, IORING_OP_POLL_ADD, 1, 0);
}

/* ios reads on tags tags, now and then the other ways; ends with requests in flight. */
static inline void synthetic_run(struct synthetic *s, unsigned ios, unsigned tags)
{
	uint64_t req[256];
	unsigned cmd_op[256];

	synthetic_ring(s, fio_event(s, EVENT_RING), 5, 0);
	synthetic_ring(s, daemon_event(s, EVENT_RING), 4, 1);
	for (unsigned tag = 0; tag < tags; tag++) {
		req[tag] = 0xffff888001000000ull + tag * 0x100000ull;
		cmd_op[tag] = SYNTHETIC_FETCH;
		synthetic_command(s, cmd_op[tag], req[tag], tag);
	}
	for (unsigned i = 0; i < ios; i++) {
		synthetic_read(s, &req[i % tags], &cmd_op[i % tags], i % tags, i);
		if (i % 8 == 3)
			synthetic_ways(s, 1u << 20 | i * 8);
	}
}

#endif
