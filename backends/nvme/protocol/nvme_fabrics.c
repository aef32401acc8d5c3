/*
 * The order in which a queue is brought up: what is sent when, and what answers mean for what is
 * sent next. Owns struct nvme_fabrics; whichever thread the connection belongs to.
 *
 * Happy path: each state is a command under way, or the pause before it; start_* sends the command
 * of a state, take_* takes what it answered and starts the next. Failure modes: FAILED with words;
 * a status that is an error ends the bring-up, but of limits, descriptors and events.
 *
 * As Linux does it: nvmf_connect_admin_queue, nvme_enable_ctrl, nvme_init_ctrl_finish,
 * nvme_set_queue_count, nvme_scan_ns in drivers/nvme/host.
 */
#include "backends/nvme/protocol/nvme_fabrics.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "backends/nvme/protocol/nvme_command.h"
#include "backends/nvme/protocol/nvme_status.h"
#include "base/assert.h"
#include "base/util.h"

enum state {
	CONNECT,
	AUTHENTICATE, /* all of nvme_auth.h */
	CAP,
	VS,
	CC,
	DISABLE,
	DISABLED, /* CSTS until it is not ready */
	ENABLE,
	READY, /* CSTS until it is */
	CONTROLLER,
	LIMITS,
	QUEUES,
	LIST,
	IDS,
	NAMESPACE,
	ANA,
	EVENTS,
	END,
};

static const char *const state_names[] = {
	[CONNECT] = "Connect",
	[AUTHENTICATE] = "Authentication",
	[CAP] = "Property Get CAP",
	[VS] = "Property Get VS",
	[CC] = "Property Get CC",
	[DISABLE] = "Property Set CC (disable)",
	[DISABLED] = "Property Get CSTS",
	[ENABLE] = "Property Set CC (enable)",
	[READY] = "Property Get CSTS",
	[CONTROLLER] = "Identify Controller",
	[LIMITS] = "Identify (limits of commands)",
	[QUEUES] = "Set Features (number of queues)",
	[LIST] = "Identify (active namespaces)",
	[IDS] = "Identify (namespace identification)",
	[NAMESPACE] = "Identify Namespace",
	[ANA] = "Get Log Page (ANA)",
	[EVENTS] = "Set Features (events)",
	[END] = "nothing",
};

/* Words are in f->error already. */
static void fabrics_fail_judged(struct nvme_fabrics *f, int err)
{
	f->err = err;
	f->state = END;
	f->step = NVME_FABRICS_FAILED;
}

__attribute__((format(printf, 3, 4))) static void fabrics_fail(struct nvme_fabrics *f, int err,
							       const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(f->error, sizeof(f->error), fmt, args);
	va_end(args);
	fabrics_fail_judged(f, err);
}

/* f->sqe is written. */
static void fabrics_send(struct nvme_fabrics *f, enum state state, uint32_t out_bytes,
			 uint32_t in_bytes)
{
	f->state = state;
	f->out_bytes = out_bytes;
	f->in_bytes = in_bytes;
	f->short_ok = false;
	f->step = NVME_FABRICS_COMMAND;
	if (in_bytes > 0)
		memset(f->data, 0, in_bytes);
}

static void fabrics_get(struct nvme_fabrics *f, enum state state, enum nvme_property property)
{
	nvme_command_property_get(f->sqe, property);
	fabrics_send(f, state, 0, 0);
}

static void fabrics_set_cc(struct nvme_fabrics *f, enum state state, uint32_t cc)
{
	f->cc = cc;
	nvme_command_property_set(f->sqe, NVME_REG_CC, cc);
	fabrics_send(f, state, 0, 0);
}

static void fabrics_identify(struct nvme_fabrics *f, enum state state, enum nvme_cns cns,
			     uint32_t nsid)
{
	nvme_command_identify(f->sqe, cns, nsid);
	fabrics_send(f, state, 0, NVME_IDENTIFY_BYTES);
}

static void fabrics_done(struct nvme_fabrics *f)
{
	f->state = END;
	f->step = NVME_FABRICS_DONE;
}

/* ---- Connect ---- */

static void start_connect(struct nvme_fabrics *f)
{
	const struct nvme_fabrics_config *c = &f->config;
	bool io = c->mode == NVME_FABRICS_IO;
	struct nvme_connect connect = {
		.qid = io ? c->qid : 0,
		.entries_nr = io ? c->entries_nr : NVME_FABRICS_ADMIN_ENTRIES,
		.no_sq_flow = !c->sq_flow,
		.kato_ms = io ? 0 : c->kato_ms,
		.cntlid = io ? c->cntlid : NVME_CNTLID_ANY,
		.subsystem_nqn = c->subsystem_nqn,
		.host_nqn = c->host_nqn,
	};

	memcpy(connect.host_id, c->host_id, sizeof(connect.host_id));
	nvme_command_connect(f->sqe, f->data, &connect);
	fabrics_send(f, CONNECT, NVME_CONNECT_BYTES, 0);
}

static void take_connected(struct nvme_fabrics *f)
{
	if (f->config.mode == NVME_FABRICS_IO)
		return fabrics_done(f);
	fabrics_get(f, CAP, NVME_REG_CAP);
}

/* ret: of nvme_fabrics_auth_*. */
static void take_auth(struct nvme_fabrics *f, int ret)
{
	if (ret < 0)
		return fabrics_fail_judged(f, ret);
	if (ret == 0)
		return take_connected(f);
	fabrics_send(f, AUTHENTICATE, f->auth.out_bytes, f->auth.in_bytes);
	f->short_ok = true;
}

static void take_connect(struct nvme_fabrics *f, const struct nvme_cqe *cqe)
{
	int err = nvme_fabrics_judge_connect(f, cqe);

	if (err < 0)
		return fabrics_fail_judged(f, err);
	f->controller.cntlid = (uint16_t)cqe->result;
	f->controller.no_sq_flow = !f->config.sq_flow && cqe->sq_head == NVME_SQHD_NO_FLOW;
	take_auth(f, nvme_fabrics_auth_start(f, (uint32_t)cqe->result));
}

/* ---- properties ---- */

static void take_cap(struct nvme_fabrics *f, uint64_t cap)
{
	uint32_t css = NVME_CAP_CSS(cap);

	if (f->config.mode == NVME_FABRICS_ADMIN && !(css & (NVME_CAP_CSS_NVM | NVME_CAP_CSS_CSI)))
		return fabrics_fail(f, -EOPNOTSUPP,
				    "the controller does not do the NVM command set (CAP.CSS "
				    "0x%02x): it is of another kind than a disk",
				    css);
	if (f->config.mode == NVME_FABRICS_ADMIN && NVME_CAP_MQES(cap) == 0)
		return fabrics_fail(f, -EPROTO,
				    "the controller's queues have one entry (CAP.MQES "
				    "0): two are the least");
	f->controller.cap = cap;
	/* 0: Linux waits half a second then too (nvme_wait_ready: TO + 1). */
	f->ready_ms = (NVME_CAP_TIMEOUT(cap) + 1) * 500;
	fabrics_get(f, VS, NVME_REG_VS);
}

/* CC for a controller that is to be enabled: Linux' nvme_enable_ctrl. */
static void start_enable(struct nvme_fabrics *f)
{
	uint64_t cap = f->controller.cap;
	uint32_t cc = NVME_CC_IOSQES | NVME_CC_IOCQES | NVME_CC_EN;

	/* A discovery controller may have no command set at all: then what was always there. */
	if ((NVME_CAP_CSS(cap) & (NVME_CAP_CSS_NVM | NVME_CAP_CSS_CSI)) == NVME_CAP_CSS_CSI)
		cc |= NVME_CC_CSS_CSI;
	cc |= NVME_CAP_MPSMIN(cap) << NVME_CC_MPS_SHIFT;
	fabrics_set_cc(f, ENABLE, cc);
}

static void take_cc(struct nvme_fabrics *f, uint32_t cc)
{
	if (!(cc & NVME_CC_EN))
		return start_enable(f);
	fabrics_set_cc(f, DISABLE, cc & ~(NVME_CC_EN | NVME_CC_SHN_MASK));
}

static void start_wait(struct nvme_fabrics *f, enum state state)
{
	f->left_ms = f->ready_ms;
	fabrics_get(f, state, NVME_REG_CSTS);
}

static void take_csts(struct nvme_fabrics *f, uint32_t csts)
{
	bool want = f->state == READY, ready = csts & NVME_CSTS_RDY;

	if (csts & NVME_CSTS_CFS)
		return fabrics_fail(f, -EIO,
				    "the controller reports a fatal error of its own (CSTS.CFS): "
				    "look into the log of the target");
	if (ready == want && want)
		return fabrics_identify(f, CONTROLLER, NVME_CNS_CONTROLLER, 0);
	if (ready == want)
		return start_enable(f);
	if (f->left_ms < NVME_FABRICS_PAUSE_MS) {
		fabrics_fail(f, -ETIMEDOUT,
			     "the controller did not become %s within %u ms, as long as it says "
			     "that it takes (CAP.TO)",
			     want ? "ready" : "disabled", f->ready_ms);
		f->may_retry = true;
		return;
	}
	f->left_ms -= NVME_FABRICS_PAUSE_MS;
	f->pause_ms = NVME_FABRICS_PAUSE_MS;
	f->step = NVME_FABRICS_PAUSE;
}

enum nvme_fabrics_step nvme_fabrics_paused(struct nvme_fabrics *f)
{
	ASSERT(f->step == NVME_FABRICS_PAUSE);
	fabrics_get(f, (enum state)f->state, NVME_REG_CSTS);
	return f->step;
}

/* ---- controller ---- */

static void start_events(struct nvme_fabrics *f)
{
	uint32_t wanted = f->config.mode == NVME_FABRICS_DISCOVERY
				  ? NVME_AEN_DISCOVERY
				  : NVME_AEN_NAMESPACE | NVME_AEN_ANA;

	f->controller.events = f->controller.id.oaes & wanted;
	if (f->controller.events == 0)
		return fabrics_done(f);
	nvme_command_set_feature(f->sqe, NVME_FEAT_ASYNC_EVENT, f->controller.events);
	fabrics_send(f, EVENTS, 0, 0);
}

static void take_limits(struct nvme_fabrics *f)
{
	nvme_fabrics_judge_limits(f);
	nvme_command_set_feature(f->sqe, NVME_FEAT_NUM_QUEUES,
				 nvme_queues_value(f->config.queues_nr));
	fabrics_send(f, QUEUES, 0, 0);
}

static void take_controller(struct nvme_fabrics *f)
{
	int err;

	nvme_identify_controller(f->data, &f->controller.id);
	err = nvme_fabrics_judge_controller(f);
	if (err < 0)
		return fabrics_fail_judged(f, err);
	if (f->config.mode == NVME_FABRICS_DISCOVERY)
		return start_events(f);
	/* It came with 2.0. */
	if (f->controller.vs >= NVME_VS(2, 0))
		return fabrics_identify(f, LIMITS, NVME_CNS_COMMAND_SET_CONTROLLER, 0);
	memset(f->data, 0, NVME_IDENTIFY_BYTES);
	take_limits(f);
}

/* ---- namespace ---- */

/* Identification descriptors came with 1.3 (Linux' nvme_identify_ns_descs). */
static void start_candidate(struct nvme_fabrics *f, uint32_t nsid)
{
	f->namespace = (struct nvme_namespace){ .nsid = nsid };
	if (f->controller.vs >= NVME_VS(1, 3))
		fabrics_identify(f, IDS, NVME_CNS_NAMESPACE_IDS, nsid);
	else
		fabrics_identify(f, NAMESPACE, NVME_CNS_NAMESPACE, nsid);
}

static void take_queues(struct nvme_fabrics *f, uint64_t result)
{
	f->controller.queues_nr = MIN(nvme_queues_granted(result), f->config.queues_nr);
	if (f->config.want.by == NVME_WANT_NSID)
		return start_candidate(f, f->config.want.nsid);
	fabrics_identify(f, LIST, NVME_CNS_NAMESPACE_LIST, 0);
}

static void fail_not_found(struct nvme_fabrics *f)
{
	char want[NVME_WANT_TEXT_BYTES];

	fabrics_fail(f, -ENOENT,
		     "none of the %u namespaces of the subsystem is the one with %s: look with "
		     "nvme list-ns and nvme ns-descs at the target%s",
		     f->looked_nr, nvme_want_format(&f->config.want, want, sizeof(want)),
		     f->controller.vs < NVME_VS(1, 3) ? " (a controller before version 1.3 has no "
							"uuid)"
						      : "");
}

/* "1, 2, 7" and perhaps "...". */
static void list_candidates(const struct nvme_fabrics *f, char *buf, size_t buf_bytes)
{
	size_t nr = 0;

	for (uint32_t i = 0; i < f->candidates_nr && nr + 20 < buf_bytes; i++)
		nr += (size_t)snprintf(buf + nr, buf_bytes - nr, "%s%u", i ? ", " : "",
				       f->candidates[i]);
	if (nr + 20 >= buf_bytes)
		snprintf(buf + nr, buf_bytes - nr, ", ...");
}

static void take_only(struct nvme_fabrics *f)
{
	char list[100];

	if (f->candidates_nr == 1)
		return start_candidate(f, f->candidates[0]);
	if (f->candidates_nr == 0)
		return fabrics_fail(f, -ENOENT,
				    "the subsystem has no namespace for this host: enable one at "
				    "the target");
	list_candidates(f, list, sizeof(list));
	fabrics_fail(f, -EINVAL,
		     "the subsystem has several namespaces (%s): say which one, by "
		     "nsid, uuid or nguid",
		     list);
}

static void next_candidate(struct nvme_fabrics *f)
{
	if (f->candidate_idx < f->candidates_nr) {
		if (f->looked_nr == NVME_FABRICS_NAMESPACES_MAX)
			return fabrics_fail(f, -EOPNOTSUPP,
					    "the subsystem has more than %u namespaces: say which "
					    "one by nsid",
					    NVME_FABRICS_NAMESPACES_MAX);
		f->looked_nr++;
		return start_candidate(f, f->candidates[f->candidate_idx++]);
	}
	if (f->candidates_nr < NVME_LIST_NR)
		return fail_not_found(f);
	fabrics_identify(f, LIST, NVME_CNS_NAMESPACE_LIST, f->candidates[NVME_LIST_NR - 1]);
}

static void take_list(struct nvme_fabrics *f)
{
	uint32_t after = f->candidates_nr ? f->candidates[f->candidates_nr - 1] : 0;
	int nr = nvme_identify_list(f->data, after, f->candidates);

	if (nr < 0)
		return fabrics_fail(f, nr, "the controller's list of namespaces does not ascend");
	f->candidates_nr = (uint32_t)nr;
	f->candidate_idx = 0;
	if (f->config.want.by == NVME_WANT_ONLY)
		return take_only(f);
	next_candidate(f);
}

/* A namespace without descriptors may still have an NGUID or EUI64 in Identify Namespace. */
static void take_ids(struct nvme_fabrics *f)
{
	struct nvme_ids *ids = &f->namespace.ids;
	int err = nvme_identify_ids(f->data, ids);

	if (err < 0)
		return fabrics_fail(f, err,
				    "the identification descriptors of namespace %u are malformed",
				    f->namespace.nsid);
	if (f->config.want.by == NVME_WANT_UUID &&
	    !nvme_want_matches(&f->config.want, f->namespace.nsid, ids))
		return next_candidate(f);
	err = f->config.want.by <= NVME_WANT_UUID ? nvme_fabrics_judge_command_set(f) : 0;
	if (err < 0)
		return fabrics_fail_judged(f, err);
	fabrics_identify(f, NAMESPACE, NVME_CNS_NAMESPACE, f->namespace.nsid);
}

static void start_ana(struct nvme_fabrics *f)
{
	fabrics_send(f, ANA, 0, nvme_fabrics_ana_command(&f->controller, f->sqe));
}

static void take_namespace(struct nvme_fabrics *f)
{
	struct nvme_namespace *ns = &f->namespace;
	struct nvme_id_namespace id;
	int err;

	nvme_identify_namespace(f->data, &id);
	if (!ns->ids.has_nguid) {
		memcpy(ns->ids.nguid, id.nguid, sizeof(id.nguid));
		ns->ids.has_nguid = true;
	}
	if (!ns->ids.has_eui64) {
		memcpy(ns->ids.eui64, id.eui64, sizeof(id.eui64));
		ns->ids.has_eui64 = true;
	}
	if (!nvme_want_matches(&f->config.want, ns->nsid, &ns->ids))
		return next_candidate(f);
	err = nvme_fabrics_judge_command_set(f);
	if (err < 0)
		return fabrics_fail_judged(f, err);
	err = nvme_namespace_judge(f->data, ns->nsid, f->controller.id.awupf, ns, f->error,
				   sizeof(f->error));
	if (err < 0)
		return fabrics_fail_judged(f, err);
	if (f->controller.has_ana)
		return start_ana(f);
	start_events(f);
}

static void take_ana(struct nvme_fabrics *f)
{
	uint32_t groups_nr;
	uint8_t state =
		nvme_log_ana_state(f->data, f->in_bytes, f->namespace.ana_group, &groups_nr);

	if (state == 0 && groups_nr > NVME_FABRICS_ANA_GROUPS_MAX)
		return fabrics_fail(f, -EOPNOTSUPP,
				    "the controller has %u ANA groups, above the "
				    "limit of %u",
				    groups_nr, NVME_FABRICS_ANA_GROUPS_MAX);
	if (state == 0)
		return fabrics_fail(f, -EPROTO,
				    "the controller's ANA log says nothing of group %u, that of "
				    "namespace %u",
				    f->namespace.ana_group, f->namespace.nsid);
	f->namespace.ana_state = state;
	start_events(f);
}

/* ---- all of it ---- */

static void fabrics_fail_status(struct nvme_fabrics *f, uint16_t status)
{
	struct nvme_verdict v = nvme_status_verdict(status);
	uint16_t code = status & NVME_STATUS_CODE_MASK;
	char words[120];

	if (code == NVME_SC_INVALID_NAMESPACE && f->namespace.nsid)
		return fabrics_fail(f, -ENOENT,
				    "namespace %u does not exist, is not enabled, or is not "
				    "attached to this controller: look with nvme list-ns at the "
				    "target",
				    f->namespace.nsid);
	fabrics_fail(f, v.err, "the controller answers to %s: %s", state_names[f->state],
		     nvme_status_format(status, words, sizeof(words)));
	f->may_retry = v.retry != NVME_RETRY_NEVER;
}

/* True: an error, but one that can be done without. */
static bool is_passed_over(struct nvme_fabrics *f, uint16_t code)
{
	bool searching = f->config.want.by >= NVME_WANT_UUID;

	if (f->state == EVENTS) {
		f->controller.events = 0;
		fabrics_done(f);
		return true;
	}
	if (f->state == LIMITS) {
		memset(f->data, 0, NVME_IDENTIFY_BYTES);
		take_limits(f);
		return true;
	}
	/* It went between the list and this. */
	if (searching && code == NVME_SC_INVALID_NAMESPACE &&
	    (f->state == IDS || f->state == NAMESPACE)) {
		next_candidate(f);
		return true;
	}
	/* Linux: descriptors are looked for where the version says so, and may be missing. */
	if (f->state == IDS && f->config.want.by != NVME_WANT_UUID) {
		fabrics_identify(f, NAMESPACE, NVME_CNS_NAMESPACE, f->namespace.nsid);
		return true;
	}
	return false;
}

static void fabrics_take(struct nvme_fabrics *f, const struct nvme_cqe *cqe)
{
	switch ((enum state)f->state) {
	case CAP:
		return take_cap(f, cqe->result);
	case VS:
		f->controller.vs = (uint32_t)cqe->result;
		return fabrics_get(f, CC, NVME_REG_CC);
	case CC:
		return take_cc(f, (uint32_t)cqe->result);
	case DISABLE:
		return start_wait(f, DISABLED);
	case ENABLE:
		return start_wait(f, READY);
	case DISABLED:
	case READY:
		return take_csts(f, (uint32_t)cqe->result);
	case CONTROLLER:
		return take_controller(f);
	case LIMITS:
		return take_limits(f);
	case QUEUES:
		return take_queues(f, cqe->result);
	case LIST:
		return take_list(f);
	case IDS:
		return take_ids(f);
	case NAMESPACE:
		return take_namespace(f);
	case ANA:
		return take_ana(f);
	case EVENTS:
		return fabrics_done(f);
	default:
		ASSERT(!"a completion of nothing");
	}
}

enum nvme_fabrics_step nvme_fabrics_completed(struct nvme_fabrics *f, const struct nvme_cqe *cqe,
					      uint32_t in_bytes)
{
	ASSERT(f->step == NVME_FABRICS_COMMAND && in_bytes <= f->in_bytes);
	if (f->state == CONNECT)
		take_connect(f, cqe);
	else if (f->state == AUTHENTICATE)
		take_auth(f, nvme_fabrics_auth_completed(f, cqe, in_bytes));
	else if (cqe->status & NVME_STATUS_CODE_MASK) {
		if (!is_passed_over(f, cqe->status & NVME_STATUS_CODE_MASK))
			fabrics_fail_status(f, cqe->status);
	} else if (in_bytes < f->in_bytes)
		fabrics_fail(f, -EPROTO, "the controller answers to %s with %u bytes of %u",
			     state_names[f->state], in_bytes, f->in_bytes);
	else
		fabrics_take(f, cqe);
	return f->step;
}

enum nvme_fabrics_step nvme_fabrics_gone(struct nvme_fabrics *f, int err)
{
	if (f->step == NVME_FABRICS_DONE || f->step == NVME_FABRICS_FAILED)
		return f->step;
	if (f->state == AUTHENTICATE && nvme_auth_gone(&f->auth, err)) {
		snprintf(f->error, sizeof(f->error), "%s", f->auth.error);
		f->may_retry = f->auth.may_retry;
		fabrics_fail_judged(f, f->auth.err);
		return f->step;
	}
	if (err == -ETIMEDOUT)
		fabrics_fail(f, err, "the target does not answer to %s in time",
			     state_names[f->state]);
	else if (f->state == CONNECT)
		fabrics_fail(f, err,
			     "the target closed the connection instead of an answer to Connect: it "
			     "wants TLS, or its log says why");
	else
		fabrics_fail(f, err, "the connection ended while the target was asked for %s",
			     state_names[f->state]);
	f->may_retry = true;
	return f->step;
}

void nvme_fabrics_init(struct nvme_fabrics *f, const struct nvme_fabrics_config *config)
{
	memset(f, 0, sizeof(*f));
	f->config = *config;
	start_connect(f);
}
