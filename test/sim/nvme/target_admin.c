/*
 * Controllers: Connect, properties, the commands of an admin queue, Keep Alive, and their end. What
 * fails here is the bring-up of an association, which the host then tries again.
 */
#include <stdlib.h>
#include <string.h>

#include "test/sim/nvme/target.h"

/* A host that is late with Keep Alive has so much more time. */
#define KEEP_ALIVE_GRACE_NS (2 * NS_PER_SEC)
#define EVENT_NS_MAX (20 * NS_PER_SEC)

/* ---- life ---- */

static void end(struct sim_event *event)
{
	struct target_controller *ctl = container_of(event, struct target_controller, end);
	struct target_conn *conn = ctl->admin ? ctl->admin : ctl->io;

	/* The last connection takes the controller with it. */
	net_hang_up(conn->c.sock, 0);
}

struct target_controller *target_controller_create(struct target *target)
{
	struct target_controller *ctl = calloc(1, sizeof(*ctl));

	ctl->target = target;
	ctl->id = ++target->last_id;
	ctl->cc = target->is_enabled ? NVME_CC_EN : 0;
	list_push_back(&target->controllers, &ctl->node);
	return ctl;
}

void target_controller_destroy(struct target_controller *ctl)
{
	sim_event_cancel(&ctl->end);
	sim_event_cancel(&ctl->keep_alive);
	list_remove(&ctl->node);
	free(ctl);
}

void target_controller_left(struct target_conn *conn)
{
	struct target_controller *ctl = conn->controller;

	if (!ctl)
		return;
	if (conn->queue == TARGET_ADMIN)
		ctl->admin = NULL;
	else
		ctl->io = NULL;
	if (!ctl->admin && !ctl->io)
		target_controller_destroy(ctl);
	else if (!ctl->admin || sim_one_in(2))
		sim_event_arm(&ctl->end, sim.now_ns + sim_skewed(NS_PER_US, NS_PER_SEC), end);
}

/* ---- Keep Alive ---- */

/* Nothing is on its way, or with the target, that the host may wait for. */
static bool is_quiet(const struct target_conn *conn)
{
	unsigned nr = 0;

	list_for_each (node, &conn->commands)
		nr++;
	return conn->c.sock->up.nr == 0 && conn->c.sock->down.nr == 0 && conn->c.out.nr == 0 &&
	       nr == conn->controller->has_event &&
	       sim.now_ns >= server_conn_silent_until_ns(&conn->c);
}

static void check_alive(struct sim_event *event)
{
	struct target_controller *ctl = container_of(event, struct target_controller, keep_alive);

	if (!ctl->admin)
		return;
	if (is_quiet(ctl->admin))
		sim_fail("no Keep Alive for %llu ms",
			 (unsigned long long)(sim.now_ns - ctl->alive_ns) / NS_PER_MS);
	target_controller_lives(ctl);
}

void target_controller_lives(struct target_controller *ctl)
{
	ctl->alive_ns = sim.now_ns;
	if (ctl->admin && ctl->target->keep_alive_ns > 0)
		sim_event_arm(&ctl->keep_alive,
			      sim.now_ns + ctl->target->keep_alive_ns + KEEP_ALIVE_GRACE_NS,
			      check_alive);
}

/* ---- Connect ---- */

static struct target_controller *find_controller(const struct target *target, uint16_t id)
{
	list_for_each (node, &target->controllers) {
		struct target_controller *ctl = list_entry(node, struct target_controller, node);

		if (ctl->id == id)
			return ctl;
	}
	return NULL;
}

/* The host has given up the association of before: it is over for the target, too. */
static void check_alone(const struct target_conn *conn)
{
	list_for_each (node, &conn->c.server->conns) {
		const struct target_conn *other = container_of(
			list_entry(node, struct server_conn, node), const struct target_conn, c);

		if (other != conn && other->c.sock && other->queue == conn->queue &&
		    other->path == conn->path && other->c.life == conn->c.life &&
		    other->c.sock->queue == conn->c.sock->queue)
			sim_fail("two connections of queue %d, by the same path",
				 conn->c.sock->queue);
	}
}

static void check_connect(const struct target_command *cmd)
{
	const uint8_t *sqe = cmd->sqe, *data = cmd->data;
	uint32_t kato_ms = nvme_get32(sqe + 48);
	bool io = nvme_get16(sqe + 42) > 0;

	if (sqe[0] != NVME_FABRICS || sqe[4] != NVME_FCTYPE_CONNECT || nvme_get16(sqe + 40) != 0)
		sim_fail("opcode %u before Connect", sqe[0]);
	if (strcmp((const char *)data + 256, TARGET_NQN) != 0 ||
	    strcmp((const char *)data + 512, TARGET_HOST_NQN) != 0)
		sim_fail("Connect to another subsystem, or from another host");
	if (kato_ms != (io ? 0 : target_of(cmd->conn)->keep_alive_ns / NS_PER_MS))
		sim_fail("Connect with a Keep Alive timeout of %u ms", kato_ms);
	if (!io && nvme_get16(data + 16) != NVME_CNTLID_ANY)
		sim_fail("Connect of an admin queue to controller %u", nvme_get16(data + 16));
}

static void connect_admin(struct target_command *cmd)
{
	struct target_conn *conn = cmd->conn;

	conn->queue = TARGET_ADMIN;
	conn->controller = target_controller_create(target_of(conn));
	conn->controller->admin = conn;
	target_controller_lives(conn->controller);
	cmd->result = conn->controller->id;
}

static void connect_io(struct target_command *cmd)
{
	struct target_conn *conn = cmd->conn;
	struct target_controller *ctl =
		find_controller(target_of(conn), nvme_get16(cmd->data + 16));

	if (!ctl || !ctl->admin) {
		cmd->status = NVME_SC_CONNECT_INVALID_PARAM;
		cmd->result = 1u << 16 | 16;
		return;
	}
	if (nvme_get16(cmd->sqe + 42) != 1 || ctl->io || !(ctl->cc & NVME_CC_EN))
		sim_fail("Connect of queue %u of a controller", nvme_get16(cmd->sqe + 42));
	conn->queue = TARGET_IO;
	conn->controller = ctl;
	ctl->io = conn;
	cmd->result = ctl->id;
}

void target_connect(struct target_command *cmd)
{
	struct target_conn *conn = cmd->conn;

	check_connect(cmd);
	if (sim_fault(FAULT_NVME_REFUSED)) {
		cmd->status = sim_one_in(2) ? NVME_SC_CONNECT_BUSY : 0x006;
		return;
	}
	conn->entries_nr = nvme_get16(cmd->sqe + 44); /* one stays empty */
	conn->has_success = target_of(conn)->has_success && cmd->sqe[46] & NVME_CONNECT_NO_SQ_FLOW;
	if (nvme_get16(cmd->sqe + 42) == 0)
		connect_admin(cmd);
	else
		connect_io(cmd);
	if (conn->controller)
		check_alone(conn);
}

/* ---- properties ---- */

static uint32_t csts(const struct target_controller *ctl)
{
	bool turned = sim.now_ns >= ctl->turned_ns, on = ctl->cc & NVME_CC_EN;

	return (on == turned ? NVME_CSTS_RDY : 0) | (ctl->is_fatal ? NVME_CSTS_CFS : 0) |
	       (ctl->cc & NVME_CC_SHN_MASK ? NVME_CSTS_SHST_DONE : 0);
}

/* It takes a while, as long as CAP.TO allows. */
static void set_cc(struct target_controller *ctl, uint32_t cc)
{
	uint64_t limit_ns = NVME_CAP_TIMEOUT(ctl->target->cap) * 500 * NS_PER_MS + 10 * NS_PER_MS;

	if ((cc ^ ctl->cc) & NVME_CC_EN)
		ctl->turned_ns = sim.now_ns + (sim_one_in(2) ? 0 : sim_skewed(0, limit_ns));
	if (cc & NVME_CC_EN &&
	    (cc & (NVME_CC_IOSQES | NVME_CC_IOCQES)) != (NVME_CC_IOSQES | NVME_CC_IOCQES))
		sim_fail("CC is %x", cc);
	ctl->is_fatal = cc & NVME_CC_EN && ctl->admin && sim_fault(FAULT_NVME_REFUSED);
	ctl->cc = cc;
}

static void property_get(const struct target_controller *ctl, const uint8_t *sqe,
			 struct target_answer *ret)
{
	switch (nvme_get32(sqe + 44)) {
	case NVME_REG_CAP:
		ret->result = ctl->target->cap;
		break;
	case NVME_REG_VS:
		ret->result = ctl->target->vs;
		break;
	case NVME_REG_CC:
		ret->result = ctl->cc;
		break;
	case NVME_REG_CSTS:
		ret->result = csts(ctl);
		break;
	default:
		sim_fail("Property Get of %x", nvme_get32(sqe + 44));
	}
}

static void fabrics(struct target_controller *ctl, const uint8_t *sqe, struct target_answer *ret)
{
	if (sqe[4] == NVME_FCTYPE_PROPERTY_GET)
		property_get(ctl, sqe, ret);
	else if (sqe[4] == NVME_FCTYPE_PROPERTY_SET && nvme_get32(sqe + 44) == NVME_REG_CC)
		set_cc(ctl, nvme_get32(sqe + 48));
	else
		sim_fail("a command of fabrics, type %u", sqe[4]);
}

/* ---- the others ---- */

static void identify(const struct target_controller *ctl, const uint8_t *sqe,
		     struct target_answer *ret)
{
	const struct target *target = ctl->target;
	uint32_t cns = nvme_get32(sqe + 40), nsid = nvme_get32(sqe + 4);

	if ((cns == NVME_CNS_NAMESPACE || cns == NVME_CNS_NAMESPACE_IDS) && nsid != TARGET_NSID)
		sim_fail("Identify of namespace %u", nsid);
	if (target->is_away && nsid == TARGET_NSID) {
		ret->status = NVME_SC_INVALID_NAMESPACE | NVME_STATUS_DNR;
		if (ctl->io)
			judge_useless(&ctl->io->c, true);
		return;
	}
	ret->bytes = NVME_IDENTIFY_BYTES;
	switch (cns) {
	case NVME_CNS_CONTROLLER:
		target_page_controller(target, ctl->id, ret->page);
		break;
	case NVME_CNS_COMMAND_SET_CONTROLLER:
		target_page_limits(ret->page);
		break;
	case NVME_CNS_NAMESPACE_LIST:
		if (!target->is_away)
			target_page_list(nsid, ret->page);
		break;
	case NVME_CNS_NAMESPACE_IDS:
		target_page_ids(target, ret->page);
		break;
	case NVME_CNS_NAMESPACE:
		target_page_namespace(target, ret->page);
		break;
	default:
		sim_fail("Identify %u", cns);
	}
}

static void set_feature(struct target_controller *ctl, const uint8_t *sqe,
			struct target_answer *ret)
{
	switch (nvme_get32(sqe + 40)) {
	case NVME_FEAT_NUM_QUEUES:
		ret->result = 0; /* one and one */
		break;
	case NVME_FEAT_ASYNC_EVENT:
		ctl->events = nvme_get32(sqe + 44);
		break;
	default:
		sim_fail("Set Features %x", nvme_get32(sqe + 40));
	}
}

/* Of changed namespaces; it does not say which, so that they are all looked at. */
static void get_log(const uint8_t *sqe, struct target_answer *ret)
{
	uint32_t bytes = ((uint32_t)nvme_get16(sqe + 42) + 1) * 4;

	if (sqe[40] != NVME_LOG_CHANGED_NAMESPACES || bytes > TARGET_PAGE_BYTES)
		sim_fail("Get Log Page %x of %u bytes", sqe[40], bytes);
	ret->bytes = bytes;
	nvme_put32(ret->page, NVME_NSID_ALL);
}

static void abort_command(const struct target_controller *ctl, const uint8_t *sqe,
			  struct target_answer *ret)
{
	struct target_command *cmd =
		ctl->io ? target_command_find(ctl->io, nvme_get16(sqe + 42)) : NULL;

	if (nvme_get16(sqe + 40) != 1)
		sim_fail("Abort of queue %u", nvme_get16(sqe + 40));
	ret->result = 1; /* it was not aborted */
	if (!cmd || cmd->done || sim_one_in(2))
		return;
	sim_saw(FAULT_NVME_ABORTED);
	ret->result = 0;
	cmd->aborted = true;
	target_io_note(ctl->io, target_cid(cmd), 0x007);
	target_command_end(cmd, 0x007);
}

void target_admin_execute(struct target_controller *ctl, const uint8_t *sqe,
			  struct target_answer *ret)
{
	*ret = (struct target_answer){ 0 };
	switch (sqe[0]) {
	case NVME_FABRICS:
		fabrics(ctl, sqe, ret);
		break;
	case NVME_ADMIN_IDENTIFY:
		identify(ctl, sqe, ret);
		break;
	case NVME_ADMIN_SET_FEATURES:
		set_feature(ctl, sqe, ret);
		break;
	case NVME_ADMIN_GET_LOG_PAGE:
		get_log(sqe, ret);
		break;
	case NVME_ADMIN_ABORT:
		abort_command(ctl, sqe, ret);
		break;
	case NVME_ADMIN_KEEP_ALIVE:
		break;
	case NVME_ADMIN_ASYNC_EVENT:
		ctl->has_event = false;
		ret->result = NVME_EVENT_NOTICE | NVME_NOTICE_NAMESPACE << 8 |
			      NVME_LOG_CHANGED_NAMESPACES << 16;
		break;
	default:
		sim_fail("an unknown admin command: opcode %x", sqe[0]);
	}
}

bool target_admin_takes(struct target_command *cmd)
{
	struct target_controller *ctl = cmd->conn->controller;

	if (cmd->sqe[0] != NVME_ADMIN_ASYNC_EVENT)
		return false;
	if (ctl->has_event)
		sim_fail("a second Asynchronous Event Request");
	ctl->has_event = true;
	/* There is something to tell, although nothing has changed. */
	if (ctl->events & NVME_AEN_NAMESPACE && sim_fault(FAULT_NVME_EVENT))
		target_command_later(cmd, EVENT_NS_MAX);
	return true;
}

void target_tell(const struct target *target)
{
	list_for_each (node, &target->controllers) {
		const struct target_controller *ctl =
			list_entry(node, struct target_controller, node);

		if (!ctl->admin || !ctl->has_event || !(ctl->events & NVME_AEN_NAMESPACE))
			continue;
		list_for_each (at, &ctl->admin->commands) {
			struct target_command *cmd = list_entry(at, struct target_command, node);

			if (cmd->sqe[0] == NVME_ADMIN_ASYNC_EVENT && cmd->event.pos == 0)
				target_command_later(cmd, NS_PER_MS);
		}
	}
}

bool target_admin_refuses(struct target_command *cmd)
{
	if (cmd->sqe[0] != NVME_ADMIN_IDENTIFY && cmd->sqe[0] != NVME_ADMIN_SET_FEATURES &&
	    cmd->sqe[0] != NVME_ADMIN_GET_LOG_PAGE)
		return false;
	if (!sim_fault(FAULT_NVME_REFUSED))
		return false;
	cmd->status = 0x006;
	return true;
}
