/*
 * One question to an NVMe/TCP target. Owns an admin queue, the data of a log page, and a timer.
 * Reactor thread, but for nvme_examine_wait.
 *
 * Happy path: the first address that answers -> the bring-up -> with DISCOVERY the log page, piece
 * by piece -> fn, freed. Failure modes: nobody there: the next address, then words; refused: the
 * words of the bring-up; time is up: while what.
 */
#include "backends/nvme/nvme_examine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/nvme/nvme_admin.h"
#include "backends/nvme/protocol/nvme_status.h"
#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"

#define WORDS_BYTES (NVME_FABRICS_ERROR_BYTES + 200)

struct nvme_examine {
	struct nvme_admin *admin;
	struct reactor *reactor;
	struct nvme_examine_params params;
	struct net_addresses addresses;
	unsigned address_idx;
	struct timer timer; /* of this address, until it answers; then of all */
	uint64_t end_ns;
	nvme_examine_fn *fn;
	void *arg;
	struct nvme_discovery discovery;
	char words[WORDS_BYTES];
	uint8_t page[NVME_DISCOVERY_PIECE_BYTES];
};

/* ---- the end ---- */

static void question_free(struct nvme_examine *e)
{
	reactor_timer_cancel(e->reactor, &e->timer);
	nvme_admin_forget(e->admin);
	free(e);
}

static void question_end(struct nvme_examine *e, int ret, const struct nvme_fabrics *found)
{
	e->fn(e->arg, ret, found, e->words);
	question_free(e);
}

/* "10.0.0.1:4420: words" */
__attribute__((format(printf, 3, 4))) static void question_fail(struct nvme_examine *e, int err,
								const char *fmt, ...)
{
	int nr = snprintf(e->words, sizeof(e->words), "%s: ", e->params.whom);
	va_list args;

	nr = MIN(nr, (int)sizeof(e->words) - 1);
	va_start(args, fmt);
	vsnprintf(e->words + nr, sizeof(e->words) - (size_t)nr, fmt, args);
	va_end(args);
	question_end(e, err, NULL);
}

/* ---- addresses ---- */

/* One address that does not answer must not take the time of those behind it. */
static void question_try(struct nvme_examine *e)
{
	uint64_t now_ns = e->reactor->now_ns;
	uint64_t left_ns = e->end_ns > now_ns ? e->end_ns - now_ns : 0;
	const struct net_address *address = &e->addresses.address[e->address_idx];

	reactor_timer_arm(e->reactor, &e->timer,
			  now_ns + left_ns / (e->addresses.nr - e->address_idx));
	nvme_admin_begin(e->admin, (const struct sockaddr *)&address->name, address->bytes);
}

static void question_address_failed(struct nvme_examine *e, int err)
{
	if (e->address_idx + 1 < e->addresses.nr) {
		e->address_idx++;
		question_try(e);
		return;
	}
	net_connect_words(NET_TCP, e->params.whom, err, e->words, sizeof(e->words));
	question_end(e, err, NULL);
}

static void question_on_timer(struct timer *timer)
{
	struct nvme_examine *e = container_of(timer, struct nvme_examine, timer);
	const char *doing;
	char buf[100];

	doing = nvme_examine_doing(e, buf, sizeof(buf));
	nvme_admin_close(e->admin);
	if (e->reactor->now_ns < e->end_ns && e->address_idx + 1 < e->addresses.nr)
		question_address_failed(e, -ETIMEDOUT);
	else
		question_fail(e, -ETIMEDOUT, "time is up (%llu ms) while %s",
			      (unsigned long long)(e->params.timeout_ns / NS_PER_MS), doing);
}

/* ---- the discovery log page ---- */

static void question_on_page(void *arg, const struct nvme_cqe *cqe, uint32_t bytes);

static void question_read_page(struct nvme_examine *e)
{
	uint8_t sqe[NVME_SQE_BYTES];

	nvme_command_get_log(sqe, &e->discovery.request);
	nvme_admin_ask(e->admin, sqe, e->page, e->discovery.request.bytes, question_on_page);
}

static void question_on_page(void *arg, const struct nvme_cqe *cqe, uint32_t bytes)
{
	struct nvme_examine *e = arg;
	char words[120];

	if (cqe->status & NVME_STATUS_CODE_MASK) {
		question_fail(e, nvme_status_verdict(cqe->status).err,
			      "the target answers to Get Log Page (discovery): %s",
			      nvme_status_format(cqe->status, words, sizeof(words)));
		return;
	}
	switch (nvme_discovery_feed(&e->discovery, e->page, bytes)) {
	case NVME_DISCOVERY_READ:
		question_read_page(e);
		return;
	case NVME_DISCOVERY_DONE:
		question_end(e, 0, nvme_admin_found(e->admin));
		return;
	case NVME_DISCOVERY_FAILED:
		question_fail(e, e->discovery.err, "%s", e->discovery.error);
		return;
	}
}

/* ---- the admin queue's events ---- */

static void question_on_ready(void *arg)
{
	struct nvme_examine *e = arg;
	const struct nvme_fabrics *found = nvme_admin_found(e->admin);

	if (e->params.fabrics.mode != NVME_FABRICS_DISCOVERY) {
		question_end(e, 0, found);
		return;
	}
	nvme_discovery_init(&e->discovery,
			    MIN(found->controller.max_transfer_bytes, (uint32_t)sizeof(e->page)),
			    e->params.on_entry, e->arg);
	question_read_page(e);
}

static void question_on_ended(void *arg, enum net_end end, int err, const char *words)
{
	struct nvme_examine *e = arg;

	if (end == NET_END_UNREACHABLE)
		question_address_failed(e, err);
	else
		question_fail(e, err, "%s", words);
}

/* ---- the owner's ---- */

int nvme_examine_begin(struct nvme_examine **ret_examine, struct reactor *reactor,
		       const struct nvme_examine_params *params, nvme_examine_fn *fn, void *arg)
{
	static const struct nvme_admin_ops ops = { .ready = question_on_ready,
						   .ended = question_on_ended };
	struct nvme_examine *e = calloc(1, sizeof(*e));
	struct nvme_admin_params admin = {
		.ops = &ops,
		.arg = e,
		.fabrics = params->fabrics,
		.header_digest = params->header_digest,
		.data_digest = params->data_digest,
		.tls = params->tls,
		.timeout_ns = params->timeout_ns,
	};
	int ret = e ? nvme_admin_new(&e->admin, reactor, &admin) : -ENOMEM;

	if (ret < 0) {
		free(e);
		return ret;
	}
	ASSERT(params->addresses->nr > 0);
	e->reactor = reactor;
	e->params = *params;
	e->addresses = *params->addresses;
	e->fn = fn;
	e->arg = arg;
	e->end_ns = reactor->now_ns + params->timeout_ns;
	timer_init(&e->timer, question_on_timer);
	question_try(e);
	*ret_examine = e;
	return 0;
}

void nvme_examine_forget(struct nvme_examine *e)
{
	if (e)
		question_free(e);
}

const char *nvme_examine_doing(const struct nvme_examine *e, char *buf, size_t bytes)
{
	return nvme_admin_is_ready(e->admin) ? "reading the discovery log page"
					     : nvme_admin_doing(e->admin, buf, bytes);
}

/* ---- for those who wait ---- */

struct examine_waiter {
	struct reactor reactor;
	struct net_addresses addresses;
	const struct nvme_examine_params *params;
	void *arg;
	bool over;
	int ret;
	char whom[300];
	char *error;
	size_t error_bytes;
};

static void waiter_on_entry(void *arg, uint32_t idx, const struct nvme_discovery_entry *entry)
{
	struct examine_waiter *w = arg;

	w->params->on_entry(w->arg, idx, entry);
}

static void waiter_done(void *arg, int ret, const struct nvme_fabrics *found, const char *words)
{
	struct examine_waiter *w = arg;

	(void)found;
	w->over = true;
	w->ret = ret;
	if (ret < 0)
		snprintf(w->error, w->error_bytes, "%s", words);
}

static int waiter_ask(struct examine_waiter *w)
{
	const struct reactor_params small = { .sq_entries = 8, .cq_entries = 16, .op_nr = 16 };
	struct nvme_examine_params params = *w->params;
	struct nvme_examine *examine;
	int ret = reactor_init(&w->reactor, &small);

	if (ret < 0) {
		snprintf(w->error, w->error_bytes,
			 "io_uring cannot be used (%s): ublkctl doctor may say why", errname(ret));
		return ret;
	}
	params.whom = w->whom;
	params.addresses = &w->addresses;
	params.on_entry = waiter_on_entry;
	ret = nvme_examine_begin(&examine, &w->reactor, &params, waiter_done, w);
	if (ret < 0)
		snprintf(w->error, w->error_bytes, "out of memory");
	while (ret == 0 && !w->over)
		reactor_turn(&w->reactor, true);
	reactor_fini(&w->reactor);
	return ret < 0 ? ret : w->ret;
}

int nvme_examine_wait(const struct net_host *host, const struct nvme_examine_params *params,
		      void *arg, char *error, size_t error_bytes)
{
	struct examine_waiter *w = calloc(1, sizeof(*w));
	int ret;

	if (!w) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	w->params = params;
	w->arg = arg;
	w->error = error;
	w->error_bytes = error_bytes;
	net_host_format(host, w->whom, sizeof(w->whom));
	ret = net_host_find(host, &w->addresses, error, error_bytes);
	if (ret == 0)
		ret = waiter_ask(w);
	free(w);
	return ret;
}
