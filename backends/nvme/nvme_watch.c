/*
 * What changes at the target while a queue serves: its namespace (size, presence), and how good the
 * path is (ANA). Owns the watch fields of struct nvme_connection. Reactor thread.
 *
 * Happy path: an asynchronous event -> its log page is read, which lets the controller report the
 * next one (Base 5.2) -> Identify Namespace, or the ANA state -> the size is noted, the rank of the
 * connection set.
 *
 * Failure modes: a namespace that is not there: the path is of no use, and is looked at again every
 * second, for controllers that report no events. A question that is answered by an error that may
 * pass: nothing changes, and it is asked again a second later. Another namespace in its place: the
 * device fails.
 */
#include <errno.h>

#include "backends/nvme/nvme.h"
#include "backends/nvme/protocol/nvme_command.h"
#include "backends/nvme/protocol/nvme_status.h"
#include "base/util.h"

#define LOOK_AGAIN_NS NS_PER_SEC

static void watch_go(struct nvme_connection *conn);

static enum session_rank watch_rank(const struct nvme_connection *conn)
{
	if (conn->absent)
		return SESSION_UNUSABLE;
	if (conn->ana_state == 0)
		return SESSION_PREFERRED;
	switch (nvme_ana_use(conn->ana_state)) {
	case NVME_ANA_USE_BEST:
		return SESSION_PREFERRED;
	case NVME_ANA_USE_ALSO:
		return SESSION_USABLE;
	default:
		return SESSION_UNUSABLE;
	}
}

static void watch_set_rank(struct nvme_connection *conn)
{
	struct nvme_device *nvme = nvme_device_of(conn);
	enum session_rank rank = watch_rank(conn);

	if (conn->c.rank == rank)
		return;
	log_limited_by(&nvme->rank_limit, LOG_LEVEL_INFO,
		       rank == SESSION_UNUSABLE ? "a path cannot be used now"
						: "a path can be used",
		       "device=%s queue=%u connection=%u server=%s namespace=%s ana=%s", nvme->name,
		       nvme_queue_of(&conn->c)->queue->idx, conn->c.idx, conn->c.server,
		       conn->absent ? "absent" : "present",
		       conn->ana_state ? nvme_ana_name(conn->ana_state) : "none");
	session_rank_set(&conn->c, rank);
}

/* ---- questions ---- */

static bool watch_failed(const struct nvme_cqe *cqe)
{
	return (cqe->status & NVME_STATUS_CODE_MASK) != 0;
}

static void watch_on_ana(void *arg, const struct nvme_cqe *cqe, uint32_t bytes)
{
	struct nvme_connection *conn = arg;
	uint32_t groups_nr;
	uint8_t state;

	conn->unsure |= watch_failed(cqe);
	if (!watch_failed(cqe) && bytes >= NVME_ANA_HEAD_BYTES) {
		state = nvme_log_ana_state(conn->page, bytes, conn->ana_group, &groups_nr);
		if (state != 0)
			conn->ana_state = state;
	}
	watch_set_rank(conn);
	watch_go(conn);
}

static void watch_ask_ana(struct nvme_connection *conn)
{
	uint8_t sqe[NVME_SQE_BYTES];
	uint32_t bytes = nvme_fabrics_ana_command(&nvme_admin_found(conn->admin)->controller, sqe);

	nvme_admin_ask(conn->admin, sqe, conn->page, bytes, watch_on_ana);
}

/* Also a namespace that has been there all the time and is found anew: its size may be another. */
static void watch_found(struct nvme_connection *conn, const struct nvme_namespace *ns)
{
	const struct nvme_controller *controller = &nvme_admin_found(conn->admin)->controller;

	conn->ana_dirty |= controller->has_ana && ns->ana_group != conn->ana_group;
	conn->ana_group = ns->ana_group;
	if (nvme_changed_note(nvme_device_of(conn), controller, ns))
		session_drop(&conn->c, NET_END_CHANGED, "the namespace is not what it was");
}

/*
 * An error that may pass says nothing of the namespace, which stays what it was: as in Linux'
 * nvme_validate_ns.
 */
static bool watch_says_nothing(const struct nvme_cqe *cqe)
{
	return watch_failed(cqe) && nvme_status_verdict(cqe->status).retry != NVME_RETRY_NEVER;
}

static void watch_on_namespace(void *arg, const struct nvme_cqe *cqe, uint32_t bytes)
{
	struct nvme_connection *conn = arg;
	const struct nvme_fabrics *found = nvme_admin_found(conn->admin);
	struct nvme_namespace ns = found->namespace;
	char words[200];
	int ret = -ENOENT;

	if (watch_says_nothing(cqe)) {
		conn->unsure = true;
		watch_go(conn);
		return;
	}
	if (!watch_failed(cqe) && bytes == NVME_IDENTIFY_BYTES)
		ret = nvme_namespace_judge(conn->page, ns.nsid, found->controller.id.awupf, &ns,
					   words, sizeof(words));
	conn->absent = ret < 0;
	if (ret == 0)
		watch_found(conn, &ns);
	watch_set_rank(conn);
	watch_go(conn);
}

static void watch_ask_namespace(struct nvme_connection *conn)
{
	uint8_t sqe[NVME_SQE_BYTES];

	nvme_command_identify(sqe, NVME_CNS_NAMESPACE, conn->nsid);
	nvme_admin_ask(conn->admin, sqe, conn->page, NVME_IDENTIFY_BYTES, watch_on_namespace);
}

/* What it lists does not matter: ours is looked at in any case. */
static void watch_on_changed_list(void *arg, const struct nvme_cqe *cqe, uint32_t bytes)
{
	(void)cqe;
	(void)bytes;
	watch_ask_namespace(arg);
}

static void watch_ask_changed_list(struct nvme_connection *conn)
{
	uint8_t sqe[NVME_SQE_BYTES];
	struct nvme_log_request log = { .log = NVME_LOG_CHANGED_NAMESPACES,
					.bytes = NVME_IDENTIFY_BYTES };

	nvme_command_get_log(sqe, &log);
	nvme_admin_ask(conn->admin, sqe, conn->page, log.bytes, watch_on_changed_list);
}

static void watch_look_later(struct nvme_connection *conn)
{
	struct reactor *r = conn->c.stream.reactor;

	if (!conn->look_again.armed)
		reactor_timer_arm(r, &conn->look_again, r->now_ns + LOOK_AGAIN_NS);
}

/* The next question, if there is one. */
static void watch_go(struct nvme_connection *conn)
{
	const struct nvme_controller *controller = &nvme_admin_found(conn->admin)->controller;

	if (!nvme_admin_is_ready(conn->admin) || nvme_admin_is_asking(conn->admin) ||
	    !session_serves(&conn->c))
		return;
	if (conn->namespace_dirty) {
		conn->namespace_dirty = false;
		if (controller->events & NVME_AEN_NAMESPACE)
			watch_ask_changed_list(conn);
		else
			watch_ask_namespace(conn);
	} else if (conn->ana_dirty) {
		conn->ana_dirty = false;
		watch_ask_ana(conn);
	} else if (conn->unsure || watch_rank(conn) == SESSION_UNUSABLE) {
		watch_look_later(conn);
	}
}

static void watch_on_look_again(struct timer *timer)
{
	struct nvme_connection *conn = container_of(timer, struct nvme_connection, look_again);

	conn->namespace_dirty |= conn->absent || conn->unsure;
	conn->ana_dirty |= conn->ana_state != 0;
	conn->unsure = false;
	watch_go(conn);
}

/* ---- called from outside ---- */

void nvme_watch_init(struct nvme_connection *conn)
{
	timer_init(&conn->look_again, watch_on_look_again);
}

void nvme_watch_begin(struct nvme_connection *conn)
{
	const struct nvme_namespace *ns = &nvme_admin_found(conn->admin)->namespace;

	conn->absent = conn->unsure = conn->namespace_dirty = conn->ana_dirty = false;
	conn->ana_group = ns->ana_group;
	conn->ana_state = ns->ana_state;
	session_rank_set(&conn->c, watch_rank(conn));
	if (conn->c.rank == SESSION_UNUSABLE)
		watch_look_later(conn);
}

void nvme_watch_end(struct nvme_connection *conn)
{
	reactor_timer_cancel(conn->c.stream.reactor, &conn->look_again);
}

void nvme_watch_event(struct nvme_connection *conn, uint32_t result)
{
	if (NVME_EVENT_TYPE(result) != NVME_EVENT_NOTICE || !session_serves(&conn->c))
		return;
	if (NVME_EVENT_INFO(result) == NVME_NOTICE_NAMESPACE)
		conn->namespace_dirty = true;
	else if (NVME_EVENT_INFO(result) == NVME_NOTICE_ANA)
		conn->ana_dirty = true;
	watch_go(conn);
}

void nvme_watch_lost_namespace(struct nvme_connection *conn)
{
	conn->absent = conn->namespace_dirty = true;
	watch_set_rank(conn);
	watch_go(conn);
}

void nvme_watch_lost_path(struct nvme_connection *conn)
{
	/* Until the log says better; Base 8.1.4. */
	if (watch_rank(conn) != SESSION_UNUSABLE)
		conn->ana_state = NVME_ANA_INACCESSIBLE;
	/* Linux' target says so of a namespace that is switched off, too. */
	conn->namespace_dirty = true;
	conn->ana_dirty = true;
	watch_set_rank(conn);
	watch_go(conn);
}
