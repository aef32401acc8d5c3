/*
 * What is wanted of a controller, and what refusals of Connect mean. Owns nothing; the thread of
 * the struct nvme_fabrics. Failure modes: words in f->error, with the cure.
 */
#include "backends/nvme/protocol/nvme_fabrics.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "backends/nvme/protocol/nvme_command.h"
#include "backends/nvme/protocol/nvme_status.h"
#include "base/util.h"

/* No controller has larger capsules; it keeps sums within 32 bits. */
#define IOCCSZ_MAX 65536u /* units of 16 bytes */

__attribute__((format(printf, 3, 4))) static int judge_fail(struct nvme_fabrics *f, int err,
							    const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(f->error, sizeof(f->error), fmt, args);
	va_end(args);
	return err;
}

/* ---- Connect: Base 6.3, Linux nvmf_log_connect_error ---- */

/* "Invalid parameter": bit 16: of the data, not the command; bits 15:0: where. */
static int judge_parameter(struct nvme_fabrics *f, uint32_t result)
{
	bool in_data = result >> 16 & 1;
	unsigned at = result & 0xffff;

	if (in_data && at == 256)
		return judge_fail(
			f, -ENOENT,
			"the target has no subsystem %s at this address: look for its NQN "
			"with ublkctl nvme-discover",
			f->config.subsystem_nqn);
	if (in_data && at == 512)
		return judge_fail(
			f, -EACCES,
			"the target does not take the host NQN %s: allow it at the target",
			f->config.host_nqn);
	if (in_data && at == 16)
		return judge_fail(f, -ENOENT,
				  "the target has no controller %u any more: connect again",
				  f->config.cntlid);
	if (in_data && at == 0)
		return judge_fail(f, -EINVAL, "the target does not take the host identifier");
	if (!in_data && at == 42)
		return judge_fail(f, -EINVAL,
				  "the target does not take queue %u: ask for fewer queues",
				  f->config.qid);
	if (!in_data && at == 44)
		return judge_fail(f, -EINVAL,
				  "the target does not take queues of %u entries: ask for smaller "
				  "ones",
				  f->config.entries_nr);
	if (!in_data && at == 48)
		return judge_fail(f, -EINVAL,
				  "the target does not take a keep alive timeout of %u ms: choose "
				  "another",
				  f->config.kato_ms);
	return judge_fail(f, -EINVAL, "the target does not take byte %u of Connect's %s", at,
			  in_data ? "data" : "command");
}

int nvme_fabrics_judge_connect(struct nvme_fabrics *f, const struct nvme_cqe *cqe)
{
	struct nvme_verdict v = nvme_status_verdict(cqe->status);
	char words[120];

	f->may_retry = v.retry != NVME_RETRY_NEVER;
	switch (cqe->status & NVME_STATUS_CODE_MASK) {
	case NVME_SC_SUCCESS:
		f->may_retry = false;
		return 0;
	case NVME_SC_CONNECT_INVALID_PARAM:
		return judge_parameter(f, (uint32_t)cqe->result);
	case NVME_SC_CONNECT_INVALID_HOST:
		return judge_fail(
			f, -EACCES,
			"the subsystem %s does not allow the host %s: add this NQN to its "
			"allowed hosts at the target",
			f->config.subsystem_nqn, f->config.host_nqn);
	case NVME_SC_CONNECT_BUSY:
		return judge_fail(f, -EBUSY, "the controller is busy with another connection");
	case NVME_SC_AUTH_REQUIRED:
		return judge_fail(f, -EACCES,
				  "the target wants authentication: set dhchap_key_file, or remove "
				  "the host's key (dhchap_key) at the target");
	case NVME_SC_CONNECT_RESTART_DISCOVERY:
		return judge_fail(
			f, -EAGAIN,
			"the subsystem is elsewhere now: look for it with ublkctl nvme-discover");
	default:
		return judge_fail(f, v.err, "the target answers to Connect: %s",
				  nvme_status_format(cqe->status, words, sizeof(words)));
	}
}

/* ---- Identify Controller: Linux nvme_check_ctrl_fabric_info, nvme_tcp_setup_ctrl ---- */

static int judge_kind(struct nvme_fabrics *f)
{
	const struct nvme_id_controller *id = &f->controller.id;

	if (id->cntlid != f->controller.cntlid)
		return judge_fail(f, -EPROTO,
				  "Connect gave controller %u, Identify Controller is of %u",
				  f->controller.cntlid, id->cntlid);
	/* TCP 3.4: capsules have their data at offset 0. */
	if (id->icdoff != 0)
		return judge_fail(f, -EOPNOTSUPP,
				  "the controller wants in-capsule data at an offset (ICDOFF %u), "
				  "which NVMe/TCP does not have",
				  id->icdoff);
	if (!(id->sgls & NVME_SGLS_SUPPORTED))
		return judge_fail(f, -EPROTO,
				  "the controller does no SGLs (SGLS 0x%x), which fabrics need",
				  id->sgls);
	return 0;
}

static int judge_io_controller(struct nvme_fabrics *f)
{
	const struct nvme_id_controller *id = &f->controller.id;

	if (id->cntrltype == NVME_CNTRLTYPE_DISCOVERY)
		return judge_fail(f, -EINVAL,
				  "%s is a discovery controller: it tells of subsystems and has no "
				  "namespaces; choose one with ublkctl nvme-discover",
				  f->config.subsystem_nqn);
	if (id->cntrltype == NVME_CNTRLTYPE_ADMIN)
		return judge_fail(f, -EINVAL,
				  "the controller is an administrative one and has no namespaces");
	if (id->kas == 0 && f->config.kato_ms > 0)
		return judge_fail(f, -EOPNOTSUPP,
				  "the controller does no keep alive (KAS 0): switch it off");
	/* In units of 16 bytes: a command, a completion. */
	if (id->ioccsz < 4 || id->iorcsz < 1)
		return judge_fail(f, -EPROTO,
				  "the controller's capsules are too small for a command and a "
				  "completion (IOCCSZ %u, IORCSZ %u)",
				  id->ioccsz, id->iorcsz);
	return 0;
}

/* MDTS: in units of the smallest page, 0 for no limit. */
static uint32_t judge_transfer(const struct nvme_controller *c, uint8_t mdts)
{
	unsigned shift = 12 + NVME_CAP_MPSMIN(c->cap) + mdts;

	return mdts == 0 || shift > 31 ? UINT32_MAX : 1u << shift;
}

/* f->data; all zeroes where the controller does not say. Linux nvme_init_non_mdts_limits */
void nvme_fabrics_judge_limits(struct nvme_fabrics *f)
{
	struct nvme_controller *c = &f->controller;
	struct nvme_id_limits id;

	nvme_identify_limits(f->data, &id);
	c->max_zeroes_bytes = id.wzsl ? judge_transfer(c, id.wzsl) : c->max_transfer_bytes;
	c->max_ranges_nr = id.dmrl ? id.dmrl : NVME_DSM_RANGES_MAX;
	c->max_range_blocks = id.dmrsl ? id.dmrsl : UINT32_MAX;
	c->max_discard_blocks = id.dmsl ? id.dmsl : UINT64_MAX;
}

int nvme_fabrics_judge_controller(struct nvme_fabrics *f)
{
	struct nvme_controller *c = &f->controller;
	const struct nvme_id_controller *id = &c->id;
	uint32_t maxcmd = id->maxcmd ? id->maxcmd : UINT32_MAX;
	int err = judge_kind(f);

	if (err < 0)
		return err;
	c->max_transfer_bytes = judge_transfer(c, id->mdts);
	if (f->config.mode == NVME_FABRICS_DISCOVERY)
		return 0;
	err = judge_io_controller(f);
	if (err < 0)
		return err;
	c->capsule_data_bytes = (MIN(id->ioccsz, IOCCSZ_MAX) - 4) * 16;
	c->entries_nr = MIN(f->config.entries_nr, NVME_CAP_MQES(c->cap) + 1);
	c->entries_nr = MIN(c->entries_nr, MAX(maxcmd, 2u));
	/* One entry of a full queue stays empty: Base 3.3.1.4. */
	c->commands_nr = MIN(c->entries_nr - 1, maxcmd);
	c->has_write_cache = id->vwc & NVME_VWC_PRESENT;
	c->has_deallocate = id->oncs & NVME_ONCS_DSM;
	c->has_write_zeroes = id->oncs & NVME_ONCS_WRITE_ZEROES;
	c->has_ana = id->cmic & NVME_CMIC_ANA;
	return 0;
}

int nvme_fabrics_judge_command_set(struct nvme_fabrics *f)
{
	const struct nvme_ids *ids = &f->namespace.ids;
	const char *kind = "of an unknown kind";

	if (!ids->has_csi || ids->csi == NVME_CSI_NVM)
		return 0;
	if (ids->csi == NVME_CSI_ZNS)
		kind = "zoned";
	else if (ids->csi == NVME_CSI_KV)
		kind = "a key value store";
	return judge_fail(f, -EOPNOTSUPP,
			  "namespace %u is %s (command set %u), not an ordinary disk",
			  f->namespace.nsid, kind, ids->csi);
}

uint32_t nvme_fabrics_ana_command(const struct nvme_controller *controller,
				  uint8_t sqe[static NVME_SQE_BYTES])
{
	uint32_t groups = MIN(controller->id.nanagrpid, NVME_FABRICS_ANA_GROUPS_MAX);
	struct nvme_log_request log = {
		.log = NVME_LOG_ANA,
		.specific = NVME_LOG_ANA_GROUPS_ONLY,
		.bytes = NVME_ANA_HEAD_BYTES + MAX(groups, 1u) * NVME_ANA_GROUP_BYTES,
	};

	nvme_command_get_log(sqe, &log);
	return log.bytes;
}
