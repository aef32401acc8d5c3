/*
 * The admin queue of an association. Owns its stream, its parser, the few commands that can be
 * under way, and its timers. Reactor thread.
 *
 * Happy path: connect -> ICReq, ICResp -> nvme_fabrics says what to send until it is DONE -> ready;
 * Asynchronous Event Request waits at the controller, Keep Alive goes out twice in its timeout.
 * Failure modes: whatever ends the connection is said once, in words, by `ended`: nobody there, an
 * answer that is late, a broken protocol, what nvme_fabrics does not accept, no answer to Keep
 * Alive.
 */
#include "backends/nvme/nvme_admin_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/nvme/protocol/nvme_command.h"
#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"

/* For the controller's answer to the last word. */
#define LEAVE_NS NS_PER_SEC

static struct nvme_admin *admin_of_stream(struct stream *s)
{
	return container_of(s, struct nvme_admin, stream);
}

/* ---- the end ---- */

static void admin_stop_timers(struct nvme_admin *a)
{
	struct reactor *r = a->stream.reactor;

	reactor_timer_cancel(r, &a->limit);
	reactor_timer_cancel(r, &a->pause);
	reactor_timer_cancel(r, &a->keepalive);
}

static void admin_close(struct nvme_admin *a)
{
	admin_stop_timers(a);
	a->state = CLOSING;
	stream_close(&a->stream, 0);
}

/* The first reason that is said counts. */
__attribute__((format(printf, 4, 5))) static void admin_fail(struct nvme_admin *a, enum net_end end,
							     int err, const char *fmt, ...)
{
	va_list args;

	if (a->state == CLOSING || a->state == LEAVING)
		return;
	va_start(args, fmt);
	vsnprintf(a->words, sizeof(a->words), fmt, args);
	va_end(args);
	a->end = end;
	a->err = err;
	admin_close(a);
}

/* ---- the bring-up ---- */

static void admin_found(struct nvme_admin *a)
{
	a->state = READY;
	if (a->fabrics.controller.events && a->params.ops->event)
		nvme_admin_wait_for_event(a);
	nvme_admin_keep_alive_later(a);
	a->params.ops->ready(a->params.arg);
}

static enum net_end admin_fabrics_end(const struct nvme_fabrics *f)
{
	if (f->err == -EPROTO)
		return NET_END_PROTOCOL;
	if (f->err == -ETIMEDOUT)
		return NET_END_SILENT;
	return f->err == -ECONNRESET ? NET_END_CLOSED : NET_END_REFUSED;
}

static void admin_step(struct nvme_admin *a)
{
	struct nvme_fabrics *f = &a->fabrics;
	struct reactor *r = a->stream.reactor;

	switch (f->step) {
	case NVME_FABRICS_COMMAND:
		nvme_admin_send(a, ASK, f->sqe, f->data, f->out_bytes, f->data, f->in_bytes,
				a->params.timeout_ns);
		return;
	case NVME_FABRICS_PAUSE:
		reactor_timer_arm(r, &a->pause, r->now_ns + f->pause_ms * NS_PER_MS);
		return;
	case NVME_FABRICS_DONE:
		admin_found(a);
		return;
	case NVME_FABRICS_FAILED:
		admin_fail(a, admin_fabrics_end(f), f->err, "%s", f->error);
		return;
	}
}

static void admin_on_pause(struct timer *timer)
{
	struct nvme_admin *a = container_of(timer, struct nvme_admin, pause);

	if (a->stream.state != STREAM_OPEN)
		return;
	nvme_fabrics_paused(&a->fabrics);
	admin_step(a);
}

/* ---- what the controller says ---- */

static void admin_answered(struct nvme_admin *a, enum command idx, const struct nvme_cqe *cqe)
{
	nvme_admin_answer *answer = a->answer;
	uint32_t bytes = a->command[idx].slot.came_bytes;

	if (a->state == LEAVING && idx == SHUTDOWN)
		admin_close(a);
	if (a->state == LEAVING || a->state == CLOSING)
		return; /* who asked may be gone */
	if (idx == ASK && a->state == BRINGING_UP) {
		nvme_fabrics_completed(&a->fabrics, cqe, bytes);
		if (a->params.ops->progress)
			a->params.ops->progress(a->params.arg);
		admin_step(a);
	} else if (idx == ASK) {
		a->answer = NULL;
		answer(a->params.arg, cqe, bytes);
	} else if (idx == EVENT && (cqe->status & NVME_STATUS_CODE_MASK) == 0) {
		nvme_admin_wait_for_event(a);
		a->params.ops->event(a->params.arg, (uint32_t)cqe->result);
	}
}

static void admin_broken(struct nvme_admin *a)
{
	uint8_t term[NVME_PDU_TERM_BYTES_MAX];
	uint32_t bytes = nvme_receive_term(&a->receive, term);

	stream_last_word(&a->stream, term, bytes);
	admin_fail(a, NET_END_PROTOCOL, a->receive.err, "%s", a->receive.error);
}

/* Whether all of it was there. */
static bool admin_take_payload(struct nvme_admin *a, struct nvme_input *in)
{
	struct admin_command *c = container_of(a->receive.slot, struct admin_command, slot);

	/* Of who asked nothing may be left. */
	return nvme_receive_copy(&a->receive, in, a->state == LEAVING ? NULL : c->buf) == 0;
}

/* False: there is no more in these bytes. */
static bool admin_take(struct nvme_admin *a, struct nvme_input *in)
{
	struct nvme_receive *r = &a->receive;

	switch (nvme_receive_next(r, in)) {
	case NVME_RECEIVE_READY:
		a->state = BRINGING_UP;
		reactor_timer_cancel(a->stream.reactor, &a->limit);
		admin_step(a);
		return true;
	case NVME_RECEIVE_PAYLOAD:
		return admin_take_payload(a, in);
	case NVME_RECEIVE_DONE:
		admin_answered(a,
			       (enum command)(container_of(r->slot, struct admin_command, slot) -
					      a->command),
			       &r->cqe);
		return true;
	case NVME_RECEIVE_TERMINATED:
		admin_fail(a, NET_END_PROTOCOL, r->err, "%s", r->error);
		return false;
	case NVME_RECEIVE_BROKEN:
		admin_broken(a);
		return false;
	default: /* MORE; R2T: all data is in capsules, so that the parser refuses it */
		return false;
	}
}

static void admin_say_icreq(struct nvme_admin *a)
{
	struct reactor *r = a->stream.reactor;

	a->state = ICREQ;
	reactor_timer_arm(r, &a->limit, r->now_ns + a->params.timeout_ns);
	nvme_pdu_icreq(a->command[ASK].head, &a->receive.wire);
	stream_send(&a->stream, a->command[ASK].head, NVME_PDU_IC_BYTES);
}

/* What came of a step of the TLS handshake: tls_start.h. */
static void admin_secure(struct nvme_admin *a, int ret)
{
	if (ret > 0)
		admin_say_icreq(a);
	else if (ret < 0)
		admin_fail(a, NET_END_REFUSED, -EPROTO, "TLS: %s", tls_error(a->tls.tls));
}

static void admin_on_received(struct stream *s, const uint8_t *data, size_t bytes)
{
	struct nvme_admin *a = admin_of_stream(s);
	struct nvme_input in = { data, data + bytes };
	size_t used;

	if (a->state == SECURING)
		admin_secure(a, tls_start_received(&a->tls, data, bytes, &used));
	else
		while (s->state == STREAM_OPEN && admin_take(a, &in))
			;
}

/* ---- the stream's other events, the timers ---- */

static void admin_on_connected(struct stream *s)
{
	struct nvme_admin *a = admin_of_stream(s);
	const struct nvme_wire wire = { .header_digest = a->params.header_digest,
					.data_digest = a->params.data_digest,
					.r2t_nr = 1 };

	nvme_receive_init(&a->receive, &wire, nvme_admin_lookup, a);
	nvme_fabrics_init(&a->fabrics, &a->params.fabrics);
	for (unsigned i = 0; i < COMMAND_NR; i++)
		a->command[i].slot.waiting = false;
	a->answer = NULL;
	if (!a->params.tls) {
		admin_say_icreq(a);
		return;
	}
	a->state = SECURING;
	reactor_timer_arm(s->reactor, &a->limit, s->reactor->now_ns + a->params.timeout_ns);
	a->tls.said_bytes = 0;
	admin_secure(a, tls_start_begin(&a->tls));
}

static void admin_on_sent(struct stream *s)
{
	struct nvme_admin *a = admin_of_stream(s);

	if (a->state == SECURING && s->sent_bytes == s->queued_bytes)
		admin_secure(a, tls_start_sent(&a->tls));
}

/* Nobody on this side has said why. */
static void admin_ended_by_itself(struct nvme_admin *a, int err)
{
	a->err = err;
	a->end = a->state == CONNECTING ? NET_END_UNREACHABLE : NET_END_CLOSED;
	if (a->state == CONNECTING) {
		snprintf(a->words, sizeof(a->words), "%s", errname(err));
	} else if (a->state == SECURING) {
		tls_eof(a->tls.tls);
		a->end = NET_END_REFUSED;
		snprintf(a->words, sizeof(a->words), "TLS: %s", tls_error(a->tls.tls));
	} else if (a->state == BRINGING_UP) {
		nvme_fabrics_gone(&a->fabrics, err);
		snprintf(a->words, sizeof(a->words), "%s", a->fabrics.error);
	} else {
		snprintf(a->words, sizeof(a->words), "the target closed the %s: %s",
			 a->state == ICREQ ? "connection instead of an answer to ICReq: is it an "
					     "NVMe/TCP target, or does it want TLS?"
					   : "admin connection",
			 errname(err));
	}
}

static void admin_connect(struct nvme_admin *a)
{
	struct stream *s = &a->stream;
	int ret = a->tls.tls ? tls_reset(a->tls.tls) : 0;

	if (ret == 0)
		ret = stream_connect(s, (const struct sockaddr *)&a->address, a->address_bytes);
	a->told = a->begins_again = false;
	a->words[0] = '\0';
	a->err = ret;
	a->state = CONNECTING;
	/* What socket(2) says is told from a turn, too. */
	reactor_timer_arm(s->reactor, &a->limit,
			  s->reactor->now_ns + (ret < 0 ? 0 : a->params.timeout_ns));
}

static void admin_is_idle(struct nvme_admin *a)
{
	struct reactor *r = a->stream.reactor;

	a->state = IDLE;
	nvme_fabrics_gone(&a->fabrics, -ECONNRESET);
	if (a->leaves) {
		stream_fini(&a->stream);
		tls_free(a->tls.tls);
		free(a);
		reactor_leave_end(r);
	} else if (a->begins_again) {
		admin_connect(a);
	} else if (!a->told) {
		a->told = true;
		a->params.ops->ended(a->params.arg, a->end, a->err, a->words);
	}
}

static void admin_on_closed(struct stream *s, int err)
{
	struct nvme_admin *a = admin_of_stream(s);

	admin_stop_timers(a);
	if (a->state != CLOSING && a->state != LEAVING)
		admin_ended_by_itself(a, err);
	admin_is_idle(a);
}

static void admin_late(struct nvme_admin *a)
{
	unsigned long long ms = (unsigned long long)(a->params.timeout_ns / NS_PER_MS);

	if (a->state == BRINGING_UP) {
		nvme_fabrics_gone(&a->fabrics, -ETIMEDOUT);
		admin_fail(a, NET_END_SILENT, -ETIMEDOUT, "%s", a->fabrics.error);
	} else if (a->command[KEEP_ALIVE].slot.waiting &&
		   a->command[KEEP_ALIVE].deadline_ns <= a->stream.reactor->now_ns) {
		admin_fail(a, NET_END_SILENT, -ETIMEDOUT, "no answer to Keep Alive for %u ms",
			   a->params.fabrics.kato_ms);
	} else {
		admin_fail(a, NET_END_SILENT, -ETIMEDOUT,
			   "no answer to an admin command for %llu ms", ms);
	}
}

static void admin_on_limit(struct timer *timer)
{
	struct nvme_admin *a = container_of(timer, struct nvme_admin, limit);
	struct reactor *r = a->stream.reactor;
	uint64_t next_ns;

	if (a->state == CONNECTING && a->stream.state == STREAM_IDLE) {
		a->end = NET_END_UNREACHABLE;
		snprintf(a->words, sizeof(a->words), "%s", errname(a->err));
		admin_is_idle(a);
	} else if (a->state == CONNECTING) {
		admin_fail(a, NET_END_UNREACHABLE, -ETIMEDOUT, "connecting took too long");
	} else if (a->state == SECURING || a->state == ICREQ) {
		admin_fail(a, NET_END_SILENT, -ETIMEDOUT, "the target does not answer to %s",
			   a->state == ICREQ ? "ICReq" : "the TLS handshake");
	} else if (a->state == LEAVING) {
		admin_close(a);
	} else {
		next_ns = nvme_admin_next_deadline_ns(a);
		if (next_ns <= r->now_ns)
			admin_late(a);
		else if (next_ns != UINT64_MAX)
			reactor_timer_arm(r, &a->limit, next_ns);
	}
}

/* ---- the owner's ---- */

int nvme_admin_new(struct nvme_admin **ret_admin, struct reactor *reactor,
		   const struct nvme_admin_params *params)
{
	static const struct stream_ops ops = {
		.connected = admin_on_connected,
		.received = admin_on_received,
		.sent = admin_on_sent,
		.closed = admin_on_closed,
	};
	struct nvme_admin *a = calloc(1, sizeof(*a));
	int ret;

	if (!a)
		return -ENOMEM;
	a->params = *params;
	a->tls.stream = &a->stream;
	a->fabrics.step = NVME_FABRICS_FAILED; /* nothing is under way */
	timer_init(&a->limit, admin_on_limit);
	timer_init(&a->pause, admin_on_pause);
	timer_init(&a->keepalive, nvme_admin_on_keepalive);
	ret = stream_init(&a->stream, reactor,
			  &(struct stream_params){ .ops = &ops,
						   .queue_idx = params->queue_idx,
						   .leg = params->leg,
						   .send = a->pieces,
						   .send_nr = PIECES,
						   .receive = a->received,
						   .receive_bytes = ADMIN_RECEIVE_BYTES,
						   .plain = a->plain,
						   .hear_out = true });
	if (ret == 0 && params->tls && tls_new(&a->tls.tls, params->tls, NULL) < 0) {
		stream_fini(&a->stream);
		ret = -ENOMEM;
	}
	if (ret < 0)
		free(a);
	else
		*ret_admin = a;
	return ret;
}

void nvme_admin_begin(struct nvme_admin *a, const struct sockaddr *address, socklen_t address_bytes)
{
	ASSERT(a->state == IDLE || a->state == LEAVING || a->state == CLOSING);
	memcpy(&a->address, address, address_bytes);
	a->address_bytes = address_bytes;
	if (a->state == IDLE) {
		admin_connect(a);
		return;
	}
	a->begins_again = true;
	if (a->state == LEAVING)
		admin_close(a);
}

static void admin_say_shutdown(struct nvme_admin *a)
{
	struct reactor *r = a->stream.reactor;
	uint8_t sqe[NVME_SQE_BYTES];

	admin_stop_timers(a);
	a->state = LEAVING;
	nvme_command_property_set(sqe, NVME_REG_CC, a->fabrics.cc | NVME_CC_SHN_NORMAL);
	nvme_admin_send(a, SHUTDOWN, sqe, NULL, 0, NULL, 0, LEAVE_NS);
	reactor_timer_arm(r, &a->limit, r->now_ns + LEAVE_NS);
}

void nvme_admin_close(struct nvme_admin *a)
{
	a->told = true;
	a->begins_again = false;
	if (a->state == READY && a->stream.state == STREAM_OPEN)
		admin_say_shutdown(a);
	else if (a->state == CONNECTING && a->stream.state == STREAM_IDLE)
		a->state = IDLE;
	else if (a->state != IDLE && a->state != LEAVING)
		admin_close(a);
	if (a->state == IDLE)
		admin_stop_timers(a);
}

void nvme_admin_forget(struct nvme_admin *a)
{
	struct reactor *r;

	if (!a)
		return;
	r = a->stream.reactor;
	reactor_leave_begin(r);
	a->leaves = true;
	nvme_admin_close(a);
	if (a->state == IDLE)
		admin_is_idle(a);
}

bool nvme_admin_is_ready(const struct nvme_admin *a)
{
	return a->state == READY && a->stream.state == STREAM_OPEN;
}

const char *nvme_admin_doing(const struct nvme_admin *a, char *buf, size_t bytes)
{
	const char *name = nvme_command_name(a->fabrics.sqe[0], true);

	if (a->state == BRINGING_UP) {
		snprintf(buf, bytes, "waiting for the target's answer to %s",
			 name ? name : "a command");
		return buf;
	}
	if (a->state == SECURING)
		return "waiting for the target's TLS handshake";
	return a->state == ICREQ ? "waiting for the target's answer to ICReq"
				 : "connecting to the target";
}

const struct nvme_fabrics *nvme_admin_found(const struct nvme_admin *a)
{
	return &a->fabrics;
}

void nvme_admin_ask(struct nvme_admin *a, uint8_t *sqe, void *buf, uint32_t bytes,
		    nvme_admin_answer *fn)
{
	ASSERT(a->state == READY && !a->answer);
	a->answer = fn;
	nvme_admin_send(a, ASK, sqe, NULL, 0, buf, bytes, a->params.timeout_ns);
}

bool nvme_admin_is_asking(const struct nvme_admin *a)
{
	return a->answer != NULL;
}

void nvme_admin_abort(struct nvme_admin *a, uint16_t qid, uint16_t cid)
{
	uint8_t sqe[NVME_SQE_BYTES];

	if (a->command[ABORT].slot.waiting)
		return;
	nvme_command_abort(sqe, qid, cid);
	nvme_admin_send(a, ABORT, sqe, NULL, 0, NULL, 0, a->params.timeout_ns);
}
