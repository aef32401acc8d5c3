/*
 * Decodes Identify data and log pages. Owns nothing; any thread. Every index into a page is bounded
 * by the page, whatever it says of itself.
 */
#include "backends/nvme/protocol/nvme_identify.h"

#include <errno.h>

#include "base/printable.h"
#include "base/util.h"

/* Padded with spaces at the end, not terminated: Base 1.4.2, "ASCII string". */
static void identify_text(char *buf, size_t buf_bytes, const uint8_t *at, size_t bytes)
{
	size_t nr = strnlen((const char *)at, bytes);

	while (nr > 0 && at[nr - 1] == ' ')
		nr--;
	printable(buf, buf_bytes, at, nr);
}

void nvme_identify_controller(const uint8_t data[static NVME_IDENTIFY_BYTES],
			      struct nvme_id_controller *ret)
{
	*ret = (struct nvme_id_controller){
		.cmic = data[76],
		.mdts = data[77],
		.cntlid = nvme_get16(data + 78),
		.ver = nvme_get32(data + 80),
		.oaes = nvme_get32(data + 92),
		.ctratt = nvme_get32(data + 96),
		.cntrltype = data[111],
		.crdt = { nvme_get16(data + 128), nvme_get16(data + 130), nvme_get16(data + 132) },
		.aerl = data[259],
		.lpa = data[261],
		.kas = nvme_get16(data + 320),
		.anatt = data[342],
		.anacap = data[343],
		.anagrpmax = nvme_get32(data + 344),
		.nanagrpid = nvme_get32(data + 348),
		.maxcmd = nvme_get16(data + 514),
		.nn = nvme_get32(data + 516),
		.oncs = nvme_get16(data + 520),
		.fna = data[524],
		.vwc = data[525],
		.awun = nvme_get16(data + 526),
		.awupf = nvme_get16(data + 528),
		.sgls = nvme_get32(data + 536),
		.ioccsz = nvme_get32(data + 1792),
		.iorcsz = nvme_get32(data + 1796),
		.icdoff = nvme_get16(data + 1800),
	};
	identify_text(ret->serial, sizeof(ret->serial), data + 4, 20);
	identify_text(ret->model, sizeof(ret->model), data + 24, 40);
	identify_text(ret->firmware, sizeof(ret->firmware), data + 64, 8);
	identify_text(ret->subnqn, sizeof(ret->subnqn), data + 768, NVME_NQN_FIELD_BYTES);
}

void nvme_identify_limits(const uint8_t data[static NVME_IDENTIFY_BYTES],
			  struct nvme_id_limits *ret)
{
	*ret = (struct nvme_id_limits){
		.wzsl = data[1],
		.dmrl = data[3],
		.dmrsl = nvme_get32(data + 4),
		.dmsl = nvme_get64(data + 8),
	};
}

void nvme_identify_namespace(const uint8_t data[static NVME_IDENTIFY_BYTES],
			     struct nvme_id_namespace *ret)
{
	/* Bits 6:5 are the upper ones: NVM 4.1.5.1. */
	uint8_t flbas = data[26], idx = (uint8_t)((flbas & 0xf) | (flbas & 0x60) >> 1);
	const uint8_t *format = data + 128 + 4 * idx;

	*ret = (struct nvme_id_namespace){
		.nsze = nvme_get64(data),
		.ncap = nvme_get64(data + 8),
		.nsfeat = data[24],
		.nlbaf = data[25],
		.flbas = flbas,
		.dps = data[29],
		.nmic = data[30],
		.dlfeat = data[33],
		.nawupf = nvme_get16(data + 36),
		.noiob = nvme_get16(data + 46),
		.npwg = nvme_get16(data + 64),
		.npwa = nvme_get16(data + 66),
		.npdg = nvme_get16(data + 68),
		.npda = nvme_get16(data + 70),
		.nows = nvme_get16(data + 72),
		.anagrpid = nvme_get32(data + 92),
		.nsattr = data[99],
		.format_idx = idx,
	};
	memcpy(ret->nguid, data + 104, sizeof(ret->nguid));
	memcpy(ret->eui64, data + 120, sizeof(ret->eui64));
	if (idx <= ret->nlbaf) {
		ret->ms = nvme_get16(format);
		ret->lbads = format[2];
	}
}

/* Where the identifier of this type goes, how long it must be; NULL: of no interest. */
static uint8_t *identify_place(struct nvme_ids *ids, uint8_t type, bool **ret_has, unsigned *ret_nr)
{
	switch (type) {
	case NVME_NIDT_EUI64:
		*ret_has = &ids->has_eui64;
		*ret_nr = sizeof(ids->eui64);
		return ids->eui64;
	case NVME_NIDT_NGUID:
		*ret_has = &ids->has_nguid;
		*ret_nr = sizeof(ids->nguid);
		return ids->nguid;
	case NVME_NIDT_UUID:
		*ret_has = &ids->has_uuid;
		*ret_nr = sizeof(ids->uuid);
		return ids->uuid;
	case NVME_NIDT_CSI:
		*ret_has = &ids->has_csi;
		*ret_nr = sizeof(ids->csi);
		return &ids->csi;
	default:
		return NULL;
	}
}

int nvme_identify_ids(const uint8_t data[static NVME_IDENTIFY_BYTES], struct nvme_ids *ret)
{
	struct nvme_ids ids = { 0 };

	/* Length 0 ends the list: Linux' nvme_identify_ns_descs. */
	for (uint32_t at = 0; at + 4 <= NVME_IDENTIFY_BYTES && data[at + 1] != 0;) {
		uint32_t bytes = data[at + 1];
		bool *has = NULL;
		unsigned want = 0;
		uint8_t *place = identify_place(&ids, data[at], &has, &want);

		if (bytes > NVME_IDENTIFY_BYTES - at - 4 || (place && bytes != want))
			return -EPROTO;
		if (place) {
			memcpy(place, data + at + 4, bytes);
			*has = true;
		}
		at += 4 + bytes;
	}
	*ret = ids;
	return 0;
}

int nvme_identify_list(const uint8_t data[static NVME_IDENTIFY_BYTES], uint32_t after,
		       uint32_t ret_nsids[static NVME_LIST_NR])
{
	int nr = 0;

	for (uint32_t i = 0; i < NVME_LIST_NR; i++) {
		uint32_t nsid = nvme_get32(data + 4 * (size_t)i);

		if (nsid == 0)
			break;
		if (nsid <= after || nsid == NVME_NSID_ALL)
			return -EPROTO;
		ret_nsids[nr++] = nsid;
		after = nsid;
	}
	return nr;
}

bool nvme_log_has_changed(const uint8_t data[static NVME_IDENTIFY_BYTES], uint32_t nsid)
{
	if (nvme_get32(data) == NVME_NSID_ALL)
		return true;
	for (uint32_t i = 0; i < NVME_LIST_NR; i++) {
		uint32_t changed = nvme_get32(data + 4 * (size_t)i);

		if (changed == 0)
			break;
		if (changed == nsid)
			return true;
	}
	return false;
}

uint8_t nvme_log_ana_state(const uint8_t *data, uint32_t bytes, uint32_t group,
			   uint32_t *ret_groups_nr)
{
	uint32_t nr = nvme_get16(data + 8);
	uint32_t came = (bytes - NVME_ANA_HEAD_BYTES) / NVME_ANA_GROUP_BYTES;

	*ret_groups_nr = nr;
	for (uint32_t i = 0; i < MIN(nr, came); i++) {
		const uint8_t *at = data + NVME_ANA_HEAD_BYTES + (size_t)i * NVME_ANA_GROUP_BYTES;

		if (nvme_get32(at) == group)
			return at[16] & 0xf;
	}
	return 0;
}
