/*
 * What becomes of a command that the target has ended with an error. Owns the retry fields of
 * struct nvme_io. Reactor thread.
 *
 *	the namespace is not there   as if the target were gone: on_disconnect decides
 *	the path is not accessible   another path, or this one when its ANA state is a better one
 *	it may be better later       here again, after the delay that the target wants, within
 *	                             what on_disconnect grants (net_outage_grant_ns)
 *	all else                     the error
 *
 * As Linux' nvme_decide_disposition, but for the first, which there ends the device.
 */
#include <errno.h>

#include "backends/nvme/nvme.h"
#include "backends/nvme/protocol/nvme_command.h"
#include "backends/nvme/protocol/nvme_status.h"
#include "base/util.h"

/* Linux: nvme_max_retries */
#define TRIES_MAX 5u
/* Of an error of the path, where nothing is known of paths. */
#define PATH_RETRY_MS 100u

/* CRDT has up to 1 h 49 min. */
static uint32_t nvme_retry_delay_ms(const struct nvme_connection *conn, uint16_t status)
{
	uint64_t ms =
		nvme_status_delay_ms(status, nvme_admin_found(conn->admin)->controller.id.crdt);

	return (uint32_t)(net_outage_grant_ns(&nvme_device_of(conn)->config->outage,
					      ms * NS_PER_MS) /
			  NS_PER_MS);
}

static void nvme_retry_tell(struct nvme_connection *conn, const struct nvme_io *n, uint16_t status,
			    struct log_limit *limit, const char *what)
{
	const struct nvme_device *nvme = nvme_device_of(conn);
	char words[120];

	log_limited_by(limit, LOG_LEVEL_WARN, what, "device=%s server=%s command=%s status=\"%s\"",
		       nvme->name, conn->c.server, backend_op_name((enum backend_op)n->io->op),
		       nvme_status_format(status, words, sizeof(words)));
}

/* It is with the session again, as if it had been lost with the connection. */
static void nvme_retry_elsewhere(struct nvme_connection *conn, struct nvme_io *n, uint16_t status)
{
	nvme_retry_tell(conn, n, status, &nvme_device_of(conn)->path_limit,
			"a path cannot be used now");
	session_refuse(&conn->c, &nvme_protocol, &n->request);
}

void nvme_retry_judge(struct nvme_connection *conn, struct nvme_io *n, uint16_t status)
{
	struct nvme_verdict v = nvme_status_verdict(status);
	const struct nvme_controller *controller = &nvme_admin_found(conn->admin)->controller;

	if ((status & NVME_STATUS_CODE_MASK) == NVME_SC_INVALID_NAMESPACE) {
		nvme_watch_lost_namespace(conn);
		nvme_retry_elsewhere(conn, n, status);
	} else if (v.retry == NVME_RETRY_ELSEWHERE && controller->has_ana) {
		nvme_watch_lost_path(conn);
		nvme_retry_elsewhere(conn, n, status);
	} else if (v.retry != NVME_RETRY_NEVER && n->tries < TRIES_MAX) {
		n->tries++;
		n->again = true;
		n->retry_ms = v.retry == NVME_RETRY_ELSEWHERE ? PATH_RETRY_MS
							      : nvme_retry_delay_ms(conn, status);
		session_answer(&conn->c, &nvme_protocol, &n->request, v.err);
	} else {
		nvme_retry_tell(conn, n, status, &nvme_device_of(conn)->error_limit,
				"the target reports an error");
		session_answer(&conn->c, &nvme_protocol, &n->request, v.err);
	}
}

static void nvme_retry_set_waits(struct nvme_io *n, bool waits)
{
	__atomic_store_n(&n->waits, waits, __ATOMIC_RELAXED);
}

bool nvme_retry_takes(struct nvme_io *n, int *result)
{
	struct nvme_queue *q = n->io->queue->priv;
	struct reactor *r = q->session.reactor;
	bool again = n->again && *result != -ECANCELED;

	n->again = false;
	if (!again)
		return false;
	if (n->retry_ms > 0) {
		nvme_retry_set_waits(n, true);
		reactor_timer_arm(r, &n->retry, r->now_ns + n->retry_ms * NS_PER_MS);
		return true;
	}
	*result = nvme_connection_submit(q, n);
	return *result == 0;
}

void nvme_retry_on_timer(struct timer *timer)
{
	struct nvme_io *n = container_of(timer, struct nvme_io, retry);
	struct nvme_queue *q = n->io->queue->priv;
	int ret;

	nvme_retry_set_waits(n, false);
	ret = net_has_changed(&q->nvme->changed) ? -EIO : nvme_connection_submit(q, n);
	if (ret < 0)
		nvme_end(n, ret);
}

bool nvme_retry_cancel(struct nvme_io *n)
{
	struct nvme_queue *q = n->io->queue->priv;

	if (!n->waits)
		return false;
	reactor_timer_cancel(q->session.reactor, &n->retry);
	nvme_retry_set_waits(n, false);
	nvme_end(n, -ECANCELED);
	return true;
}
