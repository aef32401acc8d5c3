/* Pages of Identify, by the offsets of the specifications (nvme_proto.h). */
#include <string.h>

#include "test/sim/nvme/target.h"

/* The same namespace for ever, but for one that has changed. */
static void write_id(const struct target *target, uint8_t id[16])
{
	memset(id, 0x5a, 16);
	id[0] = (uint8_t)(target->server.idx + 1);
	id[15] = target->server.changed;
}

void target_page_controller(const struct target *target, uint16_t id, uint8_t *page)
{
	memcpy(page + 4, "SIM                 ", 20);
	memcpy(page + 24, "simulated target                        ", 40);
	memcpy(page + 64, "1       ", 8);
	page[77] = target->mdts;
	nvme_put16(page + 78, id);
	nvme_put32(page + 80, target->vs);
	nvme_put32(page + 92, target->events);
	page[111] = NVME_CNTRLTYPE_IO;
	for (unsigned i = 0; i < 3; i++)
		nvme_put16(page + 128 + 2 * i, target->crdt[i]);
	nvme_put16(page + 320, 1); /* KAS */
	nvme_put16(page + 514, target->maxcmd);
	nvme_put32(page + 516, TARGET_NSID); /* NN */
	nvme_put16(page + 520, NVME_ONCS_DSM | NVME_ONCS_WRITE_ZEROES);
	page[525] = target->server.st->has_cache ? NVME_VWC_PRESENT : 0;
	nvme_put32(page + 536, 1); /* SGLS */
	strcpy((char *)page + 768, TARGET_NQN);
	nvme_put32(page + 1792, (NVME_SQE_BYTES + target->capsule_data_bytes) / 16);
	nvme_put32(page + 1796, NVME_CQE_BYTES / 16);
}

void target_page_limits(uint8_t *page)
{
	page[1] = 4; /* WZSL: 64 KiB */
	page[3] = 1; /* DMRL */
}

void target_page_list(uint32_t after, uint8_t *page)
{
	if (after < TARGET_NSID)
		nvme_put32(page, TARGET_NSID);
}

void target_page_ids(const struct target *target, uint8_t *page)
{
	page[0] = NVME_NIDT_UUID;
	page[1] = 16;
	write_id(target, page + 4);
	page[20] = NVME_NIDT_CSI;
	page[21] = 1;
}

void target_page_namespace(const struct target *target, uint8_t *page)
{
	uint64_t blocks = target->size_bytes / target->block_bytes;

	nvme_put64(page, blocks);
	nvme_put64(page + 8, blocks);
	nvme_put64(page + 16, blocks);
	page[33] = NVME_DLFEAT_WRITE_ZEROES_DEALLOCATES;
	write_id(target, page + 104);
	page[128 + 2] = target->block_bytes == 512 ? 9 : 12;
}
