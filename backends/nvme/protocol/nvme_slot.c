/* Starts commands. Owns nothing; the thread of the connection. What makes no sense is a bug. */
#include "backends/nvme/protocol/nvme_slot.h"

#include "base/assert.h"

void nvme_slot_start(struct nvme_slot *slot, enum nvme_direction direction, uint32_t data_bytes,
		     bool in_capsule)
{
	ASSERT((direction == NVME_NO_DATA) == (data_bytes == 0));
	ASSERT(!in_capsule || direction == NVME_DATA_OUT);
	*slot = (struct nvme_slot){
		.data_bytes = data_bytes,
		.direction = direction,
		.waiting = true,
		.asked_bytes = in_capsule ? data_bytes : 0,
	};
}

void nvme_slot_r2t_answered(struct nvme_slot *slot)
{
	ASSERT(slot->r2t_nr > 0);
	slot->r2t_nr--;
}
