/*
 * UBLK_F_ZONED of the modelled driver: what it checks of a device's parameters
 * (ublk_dev_param_zoned_validate, and the block layer's blk_validate_limits and
 * blk_revalidate_disk_zones), and the sector of an append in the place of a buffer's address
 * (ublk_check_commit_and_fetch).
 */
#include <errno.h>

#include "test/sim/client.h"
#include "test/sim/ublk_model.h"

static bool is_zoned(const struct model_dev *dev)
{
	return dev->info.flags & UBLK_F_ZONED;
}

/* Where the block layer would not, or not as is wanted. */
static void check_block_layer(const struct model_dev *dev, const struct ublk_params *params)
{
	const struct ublk_param_zoned *p = &params->zoned;

	if (params->basic.dev_sectors % params->basic.chunk_sectors != 0)
		sim_fail("dev %u: its last zone is smaller", dev->id);
	if (p->max_active_zones && p->max_open_zones > p->max_active_zones)
		sim_fail("dev %u: more zones can be open than active", dev->id);
	if (p->max_zone_append_sectors > params->basic.max_sectors)
		sim_fail("dev %u: an append is longer than a request", dev->id);
	/* Two of them would hand writes of a zone over in any order. */
	if (dev->info.nr_hw_queues != 1)
		sim_fail("dev %u: zones, and %u queues", dev->id, dev->info.nr_hw_queues);
}

int model_zones_validate(const struct model_dev *dev, const struct ublk_params *params)
{
	const struct ublk_param_zoned *p = &params->zoned;
	uint32_t chunk = params->basic.chunk_sectors;
	uint64_t nr;

	if (!is_zoned(dev))
		return params->types & UBLK_PARAM_TYPE_ZONED ? -EINVAL : 0;
	if (!(params->types & UBLK_PARAM_TYPE_ZONED) || chunk == 0 || (chunk & (chunk - 1)) != 0)
		return -EINVAL;
	nr = params->basic.dev_sectors / chunk;
	if (!p->max_zone_append_sectors || p->max_active_zones > nr || p->max_open_zones > nr)
		return -EINVAL;
	check_block_layer(dev, params);
	return 0;
}

static bool is_append(const struct client_rq *rq)
{
	return client_rq_op(rq) == UBLK_IO_OP_ZONE_APPEND;
}

bool model_takes_sector(const struct model_dev *dev, const struct ublksrv_io_cmd *cmd)
{
	const struct client_rq *rq = model_rq(dev, cmd->q_id, cmd->tag);

	return is_zoned(dev) && rq && is_append(rq) && model_tag(dev, cmd->q_id, cmd->tag)->owned;
}

uint64_t model_zones_take_sector(const struct model_dev *dev, struct client_rq *rq,
				 const struct ublksrv_io_cmd *cmd)
{
	if (!is_zoned(dev) || !is_append(rq))
		return cmd->addr;
	rq->zone.sector = cmd->addr;
	return 0;
}

/* __ublk_complete_rq(): what is left of a report is asked for again, from no zone's place. */
bool model_zones_check_result(const struct client_rq *rq, int32_t result)
{
	if (!rq->zone.life || (!is_append(rq) && client_rq_op(rq) != UBLK_IO_OP_REPORT_ZONES))
		return false;
	if (result >= 0 && !is_append(rq) && (uint32_t)result < client_rq_data_bytes(rq))
		sim_fail("tag %u: a report of %d bytes, %u were asked for", rq->tag, result,
			 client_rq_data_bytes(rq));
	return true;
}
