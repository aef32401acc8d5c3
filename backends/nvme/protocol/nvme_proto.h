/*
 * NVMe over TCP: numbers and byte order. Pure, any thread. All integers are little endian. Sources,
 * by the names used in comments here and in the other files:
 *	Base	NVM Express Base Specification 2.0 (with NVMe over Fabrics)
 *	NVM	NVM Command Set Specification 1.0
 *	TCP	NVM Express TCP Transport Specification 1.0
 *	Linux	include/linux/nvme.h, include/linux/nvme-tcp.h, drivers/nvme/
 */
#ifndef BACKENDS_NVME_NVME_PROTO_H
#define BACKENDS_NVME_NVME_PROTO_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NVME_SQE_BYTES 64u
#define NVME_CQE_BYTES 16u
#define NVME_CONNECT_BYTES 1024u
#define NVME_IDENTIFY_BYTES 4096u
#define NVME_LIST_NR 1024u /* namespaces in one list */
#define NVME_DISCOVERY_ENTRY_BYTES 1024u
#define NVME_DSM_RANGE_BYTES 16u
#define NVME_DSM_RANGES_MAX 256u

/* A field of 256 bytes, a name of 223 at most: Base 4.5, Linux NVMF_NQN_SIZE. */
#define NVME_NQN_FIELD_BYTES 256u
#define NVME_NQN_BYTES_MAX 223u
#define NVME_DISCOVERY_NQN "nqn.2014-08.org.nvmexpress.discovery"

/* Assigned by IANA: TCP 3.1, Linux NVME_TCP_DISC_PORT. */
#define NVME_TCP_PORT 4420u
#define NVME_TCP_DISCOVERY_PORT 8009u

#define NVME_NSID_ALL 0xffffffffu
#define NVME_CNTLID_ANY 0xffffu /* Connect: the dynamic controller model */

/* ---- PDUs: TCP 3.6 ---- */

enum nvme_pdu_type {
	NVME_PDU_ICREQ = 0x0,
	NVME_PDU_ICRESP = 0x1,
	NVME_PDU_H2C_TERM = 0x2,
	NVME_PDU_C2H_TERM = 0x3,
	NVME_PDU_CAPSULE_CMD = 0x4,
	NVME_PDU_CAPSULE_RESP = 0x5,
	NVME_PDU_H2C_DATA = 0x6,
	NVME_PDU_C2H_DATA = 0x7,
	NVME_PDU_R2T = 0x9,
};

enum nvme_pdu_flags {
	NVME_PDU_FLAG_HDGST = 1u << 0,
	NVME_PDU_FLAG_DDGST = 1u << 1,
	NVME_PDU_FLAG_LAST = 1u << 2,
	NVME_PDU_FLAG_SUCCESS = 1u << 3,
};

#define NVME_PDU_COMMON_BYTES 8u
#define NVME_PDU_IC_BYTES 128u
#define NVME_PDU_CMD_BYTES 72u
#define NVME_PDU_RESP_BYTES 24u
#define NVME_PDU_DATA_BYTES 24u
#define NVME_PDU_R2T_BYTES 24u
#define NVME_PDU_TERM_BYTES 24u
#define NVME_PDU_TERM_BYTES_MAX 152u /* with the header of the PDU in error */
#define NVME_DIGEST_BYTES 4u
#define NVME_PDU_ALIGN_MAX 31u /* HPDA, CPDA: in dwords, from 0 */
#define NVME_MAXH2CDATA_MIN 4096u

#define NVME_DIGEST_HEADER (1u << 0)
#define NVME_DIGEST_DATA (1u << 1)

/* TCP 3.6.2.5, "Fatal Error Status" */
enum nvme_fes {
	NVME_FES_HEADER_FIELD = 0x01,
	NVME_FES_SEQUENCE = 0x02,
	NVME_FES_HEADER_DIGEST = 0x03,
	NVME_FES_OUT_OF_RANGE = 0x04,
	NVME_FES_LIMIT = 0x05, /* of R2Ts, or of data */
	NVME_FES_UNSUPPORTED = 0x06,
};

/* What an admin queue's capsule always has room for: TCP 3.4, Linux NVME_TCP_ADMIN_CCSZ. */
#define NVME_ADMIN_IN_CAPSULE_BYTES 8192u

/* ---- commands ---- */

/* Base 4.1: PSDT 01b: SGLs, which fabrics always use. */
#define NVME_SQE_FLAG_SGL 0x40u
/* Base 4.1.2.1, TCP 3.2: a data block in the capsule; the transport's own data block. */
#define NVME_SGL_IN_CAPSULE 0x01u
#define NVME_SGL_TRANSPORT 0x5au

enum nvme_opcode {
	NVME_CMD_FLUSH = 0x00,
	NVME_CMD_WRITE = 0x01,
	NVME_CMD_READ = 0x02,
	NVME_CMD_WRITE_ZEROES = 0x08,
	NVME_CMD_DSM = 0x09,
};

enum nvme_admin_opcode {
	NVME_ADMIN_GET_LOG_PAGE = 0x02,
	NVME_ADMIN_IDENTIFY = 0x06,
	NVME_ADMIN_ABORT = 0x08,
	NVME_ADMIN_SET_FEATURES = 0x09,
	NVME_ADMIN_GET_FEATURES = 0x0a,
	NVME_ADMIN_ASYNC_EVENT = 0x0c,
	NVME_ADMIN_KEEP_ALIVE = 0x18,
	NVME_FABRICS = 0x7f,
};

/* Base 6, "Fabrics Command Type" */
enum nvme_fctype {
	NVME_FCTYPE_PROPERTY_SET = 0x00,
	NVME_FCTYPE_CONNECT = 0x01,
	NVME_FCTYPE_PROPERTY_GET = 0x04,
	NVME_FCTYPE_AUTH_SEND = 0x05,
	NVME_FCTYPE_AUTH_RECEIVE = 0x06,
	NVME_FCTYPE_DISCONNECT = 0x08,
};

/* NVM 3.2: of READ, WRITE, WRITE_ZEROES, in the upper half of dword 12. */
#define NVME_CONTROL_LIMITED_RETRY (1u << 15)
#define NVME_CONTROL_FUA (1u << 14)
#define NVME_CONTROL_DEALLOCATE (1u << 9) /* WRITE_ZEROES */
#define NVME_DSM_DEALLOCATE (1u << 2)

/* Base 6.3, Connect: CATTR; of the completion: AUTHREQ, in dword 0 (Linux NVME_CONNECT_AUTHREQ_*)
 */
#define NVME_CONNECT_NO_SQ_FLOW (1u << 2)
#define NVME_CONNECT_AUTHREQ_ATR (1u << 17)
#define NVME_CONNECT_AUTHREQ_ASCR (1u << 18)
/* Base 6.1, Authentication Send and Receive: SECP, SPSP0 and SPSP1 of NVMe's own protocols */
#define NVME_AUTH_SECP 0xe9u
#define NVME_AUTH_SPSP 1u
/* In SQHD of the completion of Connect: no SQ flow control. */
#define NVME_SQHD_NO_FLOW 0xffffu

/* ---- properties: Base 3.1.3 ---- */

enum nvme_property {
	NVME_REG_CAP = 0x00, /* of 8 bytes, the others 4 */
	NVME_REG_VS = 0x08,
	NVME_REG_CC = 0x14,
	NVME_REG_CSTS = 0x1c,
};

#define NVME_CAP_MQES(cap) ((uint32_t)(cap)&0xffffu)		/* from 0 */
#define NVME_CAP_TIMEOUT(cap) ((uint32_t)((cap) >> 24) & 0xffu) /* in 500 ms */
#define NVME_CAP_CSS(cap) ((uint32_t)((cap) >> 37) & 0xffu)
#define NVME_CAP_MPSMIN(cap) ((uint32_t)((cap) >> 48) & 0xfu) /* 2 ^ (12 + it) bytes */
#define NVME_CAP_CSS_NVM (1u << 0)
#define NVME_CAP_CSS_CSI (1u << 6)

#define NVME_CC_EN (1u << 0)
#define NVME_CC_CSS_NVM (0u << 4)
#define NVME_CC_CSS_CSI (6u << 4)
#define NVME_CC_MPS_SHIFT 7u
#define NVME_CC_SHN_NORMAL (1u << 14)
#define NVME_CC_SHN_MASK (3u << 14)
#define NVME_CC_IOSQES (6u << 16)
#define NVME_CC_IOCQES (4u << 20)

#define NVME_CSTS_RDY (1u << 0)
#define NVME_CSTS_CFS (1u << 1)
#define NVME_CSTS_SHST_MASK (3u << 2)
#define NVME_CSTS_SHST_DONE (2u << 2)

#define NVME_VS(major, minor) ((uint32_t)(major) << 16 | (uint32_t)(minor) << 8)

/* ---- Identify, features, log pages, events ---- */

enum nvme_cns {
	NVME_CNS_NAMESPACE = 0x00,
	NVME_CNS_CONTROLLER = 0x01,
	NVME_CNS_NAMESPACE_LIST = 0x02,
	NVME_CNS_NAMESPACE_IDS = 0x03,
	NVME_CNS_COMMAND_SET_CONTROLLER = 0x06, /* of the NVM command set, CSI 0 */
};

/* Base 5.17.2.3: namespace identification descriptors */
enum nvme_nidt {
	NVME_NIDT_EUI64 = 1,
	NVME_NIDT_NGUID = 2,
	NVME_NIDT_UUID = 3,
	NVME_NIDT_CSI = 4,
};

enum nvme_csi { NVME_CSI_NVM = 0, NVME_CSI_KV = 1, NVME_CSI_ZNS = 2 };

enum nvme_cntrltype {
	NVME_CNTRLTYPE_IO = 1,
	NVME_CNTRLTYPE_DISCOVERY = 2,
	NVME_CNTRLTYPE_ADMIN = 3
};

enum nvme_oncs {
	NVME_ONCS_DSM = 1u << 2,
	NVME_ONCS_WRITE_ZEROES = 1u << 3,
};

#define NVME_VWC_PRESENT (1u << 0)
#define NVME_CMIC_ANA (1u << 3)
#define NVME_CTRATT_TBKAS (1u << 6)
#define NVME_LPA_EXTENDED (1u << 2) /* Get Log Page knows offsets */
#define NVME_SGLS_SUPPORTED 3u

#define NVME_NSFEAT_ATOMICS (1u << 1) /* NAWUPF is the namespace's own */
#define NVME_NSFEAT_OPTPERF (1u << 4) /* NPWG, NPWA, NPDG, NPDA, NOWS are there */
#define NVME_NMIC_SHARED (1u << 0)
#define NVME_NSATTR_WRITE_PROTECTED (1u << 0)
#define NVME_DLFEAT_READ_MASK 7u
#define NVME_DLFEAT_READ_ZEROES 1u
#define NVME_DLFEAT_WRITE_ZEROES_DEALLOCATES (1u << 3)

enum nvme_feature {
	NVME_FEAT_NUM_QUEUES = 0x07,
	NVME_FEAT_ASYNC_EVENT = 0x0b,
	NVME_FEAT_KATO = 0x0f,
};

enum nvme_log {
	NVME_LOG_CHANGED_NAMESPACES = 0x04,
	NVME_LOG_ANA = 0x0c,
	NVME_LOG_DISCOVERY = 0x70,
};

#define NVME_LOG_ANA_GROUPS_ONLY 1u /* LSP, "Return Groups Only" */

/* Base 5.27.1.8: of OAES and of the feature, the same bits. */
#define NVME_AEN_NAMESPACE (1u << 8)
#define NVME_AEN_ANA (1u << 11)
#define NVME_AEN_DISCOVERY (1u << 31)

/* Base 5.2.1: dword 0 of an asynchronous event */
#define NVME_EVENT_TYPE(result) ((uint32_t)(result)&7u)
#define NVME_EVENT_INFO(result) ((uint32_t)((result) >> 8) & 0xffu)
#define NVME_EVENT_LOG(result) ((uint32_t)((result) >> 16) & 0xffu)
enum nvme_event_type { NVME_EVENT_ERROR = 0, NVME_EVENT_HEALTH = 1, NVME_EVENT_NOTICE = 2 };
enum nvme_event_notice {
	NVME_NOTICE_NAMESPACE = 0x00,
	NVME_NOTICE_ANA = 0x03,
	NVME_NOTICE_DISCOVERY = 0xf0,
};

/* Base 8.1.4: 0 is no state, none has been said. */
enum nvme_ana_state {
	NVME_ANA_OPTIMIZED = 0x1,
	NVME_ANA_NONOPTIMIZED = 0x2,
	NVME_ANA_INACCESSIBLE = 0x3,
	NVME_ANA_PERSISTENT_LOSS = 0x4,
	NVME_ANA_CHANGE = 0xf,
};

/* ---- status field: Base 4.2.3, without the phase tag (Linux: req->status) ---- */

#define NVME_STATUS_CODE_MASK 0x7ffu /* type << 8 | code */
#define NVME_STATUS_CRD(status) ((unsigned)(status) >> 11 & 3u)
#define NVME_STATUS_MORE (1u << 13)
#define NVME_STATUS_DNR (1u << 14)

enum nvme_status_code {
	NVME_SC_SUCCESS = 0x000,
	NVME_SC_INVALID_OPCODE = 0x001,
	NVME_SC_INVALID_FIELD = 0x002,
	NVME_SC_INVALID_NAMESPACE = 0x00b,
	NVME_SC_TRANSIENT_TRANSPORT = 0x022,
	NVME_SC_CONNECT_FORMAT = 0x180,
	NVME_SC_CONNECT_BUSY = 0x181,
	NVME_SC_CONNECT_INVALID_PARAM = 0x182,
	NVME_SC_CONNECT_RESTART_DISCOVERY = 0x183,
	NVME_SC_CONNECT_INVALID_HOST = 0x184,
	NVME_SC_AUTH_REQUIRED = 0x191,
	NVME_SC_ANA_PERSISTENT_LOSS = 0x301,
	NVME_SC_ANA_INACCESSIBLE = 0x302,
	NVME_SC_ANA_TRANSITION = 0x303,
	NVME_SC_HOST_ABORTED = 0x371,
};

/* ---- byte order ---- */

static inline uint16_t nvme_get16(const uint8_t *at)
{
	uint16_t n;

	memcpy(&n, at, sizeof(n));
	return le16toh(n);
}

static inline uint32_t nvme_get32(const uint8_t *at)
{
	uint32_t n;

	memcpy(&n, at, sizeof(n));
	return le32toh(n);
}

static inline uint64_t nvme_get64(const uint8_t *at)
{
	uint64_t n;

	memcpy(&n, at, sizeof(n));
	return le64toh(n);
}

static inline void nvme_put16(uint8_t *at, uint16_t n)
{
	n = htole16(n);
	memcpy(at, &n, sizeof(n));
}

static inline void nvme_put32(uint8_t *at, uint32_t n)
{
	n = htole32(n);
	memcpy(at, &n, sizeof(n));
}

static inline void nvme_put64(uint8_t *at, uint64_t n)
{
	n = htole64(n);
	memcpy(at, &n, sizeof(n));
}

/* A completion. With the SUCCESS flag of C2HData all but cid is 0. Base 4.2 */
struct nvme_cqe {
	uint64_t result; /* dwords 0 and 1 */
	uint16_t sq_head, sq_id, cid;
	uint16_t status; /* without the phase tag */
};

static inline struct nvme_cqe nvme_cqe_decode(const uint8_t at[NVME_CQE_BYTES])
{
	return (struct nvme_cqe){
		.result = nvme_get64(at),
		.sq_head = nvme_get16(at + 8),
		.sq_id = nvme_get16(at + 10),
		.cid = nvme_get16(at + 12),
		.status = nvme_get16(at + 14) >> 1,
	};
}

#endif
