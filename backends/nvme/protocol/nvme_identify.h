/*
 * Reads what a controller says about itself and its namespaces: Identify data and log pages. Pure,
 * any thread. Texts come out printable, numbers as they are: judging them is for nvme_fabrics.
 */
#ifndef BACKENDS_NVME_NVME_IDENTIFY_H
#define BACKENDS_NVME_NVME_IDENTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/nvme/protocol/nvme_proto.h"

/* Base 5.17.2.1, "Identify Controller": the fields by their names there. */
struct nvme_id_controller {
	char serial[21], model[41], firmware[9], subnqn[NVME_NQN_FIELD_BYTES];
	uint8_t cmic, mdts, cntrltype, anatt, anacap, lpa, aerl, vwc, fna;
	uint16_t cntlid, kas, maxcmd, oncs, awun, awupf, icdoff, crdt[3];
	uint32_t ver, oaes, ctratt, anagrpmax, nanagrpid, nn, sgls, ioccsz, iorcsz;
};
void nvme_identify_controller(const uint8_t data[static NVME_IDENTIFY_BYTES],
			      struct nvme_id_controller *ret);

/* NVM 4.1.5.4, "I/O Command Set specific Identify Controller"; Linux nvme_id_ctrl_nvm */
struct nvme_id_limits {
	uint8_t wzsl, dmrl;
	uint32_t dmrsl;
	uint64_t dmsl;
};
void nvme_identify_limits(const uint8_t data[static NVME_IDENTIFY_BYTES],
			  struct nvme_id_limits *ret);

/* NVM 4.1.5.1, "Identify Namespace": the format in use among its fields. */
struct nvme_id_namespace {
	uint64_t nsze, ncap;
	uint8_t nsfeat, nlbaf, flbas, dps, nmic, dlfeat, nsattr;
	uint16_t nawupf, noiob, npwg, npwa, npdg, npda, nows;
	uint32_t anagrpid;
	uint8_t nguid[16], eui64[8];
	uint8_t format_idx; /* of FLBAS; above NLBAF: there is no such format, lbads and ms are 0 */
	uint8_t lbads;
	uint16_t ms;
};
void nvme_identify_namespace(const uint8_t data[static NVME_IDENTIFY_BYTES],
			     struct nvme_id_namespace *ret);

/* Base 5.17.2.3, what identification descriptors say. */
struct nvme_ids {
	bool has_eui64, has_nguid, has_uuid, has_csi;
	uint8_t eui64[8], nguid[16], uuid[16], csi;
};
/* Returns 0, or -EPROTO: a descriptor does not lie in its page, or has a wrong length. */
int nvme_identify_ids(const uint8_t data[static NVME_IDENTIFY_BYTES], struct nvme_ids *ret);

/*
 * Base 5.17.2.2: a list of active namespaces, ascending, above `after`. Returns how many (at most
 * NVME_LIST_NR: then more may follow), or -EPROTO: not ascending.
 */
int nvme_identify_list(const uint8_t data[static NVME_IDENTIFY_BYTES], uint32_t after,
		       uint32_t ret_nsids[static NVME_LIST_NR]);

/*
 * Base 5.16.1.5, the log page of changed namespaces: whether nsid is among them; true if there were
 * too many to list.
 */
bool nvme_log_has_changed(const uint8_t data[static NVME_IDENTIFY_BYTES], uint32_t nsid);

/*
 * The ANA log page (Base 5.16.1.13) with groups only (NVME_LOG_ANA_GROUPS_ONLY): 16 bytes, then 32
 * for each group. `bytes` of its beginning, at least 16, were read. Returns the state of a group;
 * 0: it is not among them. *ret_groups_nr: in the whole page.
 */
#define NVME_ANA_HEAD_BYTES 16u
#define NVME_ANA_GROUP_BYTES 32u
uint8_t nvme_log_ana_state(const uint8_t *data, uint32_t bytes, uint32_t group,
			   uint32_t *ret_groups_nr);

#endif
