/*
 * Limits of the block device. Pure functions of the backend's limits and the configuration; the
 * driver checks the result in ublk_validate_params().
 */
#include "ublk/device/params.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"

#define SECTOR_SHIFT 9
/* The driver reads shifts above 256 MiB as an error. */
#define BLOCK_BYTES_MAX MIB(256)
#define PAGE_BYTES 4096u

static uint8_t shift_of(uint64_t bytes, uint32_t at_least)
{
	if (bytes < at_least)
		bytes = at_least;
	return (uint8_t)log2_floor(MIN(bytes, BLOCK_BYTES_MAX));
}

/*
 * File systems gather writes up to this size and then send them (btrfs), so a size that the
 * smallest I/O has anyway must not be said. 0: one byte, which the block layer rounds down to none.
 */
static uint8_t io_opt_shift(const struct backend_limits *limits, uint32_t block)
{
	uint8_t least = shift_of(MAX(limits->physical_block_bytes, block), PAGE_BYTES);
	uint8_t shift = shift_of(limits->io_opt_bytes, 1);

	return shift > least ? shift : 0;
}

static uint32_t attrs_of(const struct device_spec *spec, uint32_t caps)
{
	uint32_t attrs = 0;

	if (spec->read_only || (caps & BACKEND_CAP_READ_ONLY))
		attrs |= UBLK_ATTR_READ_ONLY;
	if (caps & BACKEND_CAP_ROTATIONAL)
		attrs |= UBLK_ATTR_ROTATIONAL;
	/* FUA means nothing to the block layer without a cache to write through. */
	if (caps & BACKEND_CAP_FLUSH)
		attrs |= UBLK_ATTR_VOLATILE_CACHE | (caps & BACKEND_CAP_FUA ? UBLK_ATTR_FUA : 0);
	return attrs;
}

/* Sectors of a range limit: whole blocks, and the byte length must fit in 32 bits. */
static uint32_t range_sectors(uint64_t max_bytes, uint32_t align_bytes)
{
	uint64_t bytes = max_bytes ? MIN(max_bytes, (uint64_t)UINT32_MAX) : UINT32_MAX;

	return (uint32_t)(round_down(bytes, align_bytes) >> SECTOR_SHIFT);
}

static void fill_discard(struct ublk_params *params, const struct device_spec *spec,
			 const struct backend_limits *limits)
{
	uint32_t block = spec->logical_block_bytes;
	uint32_t granularity = MAX(limits->discard_granularity_bytes, block);

	if (!(limits->caps & (BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES)))
		return;
	params->types |= UBLK_PARAM_TYPE_DISCARD;
	params->discard.discard_granularity = granularity;
	if (limits->caps & BACKEND_CAP_DISCARD) {
		params->discard.max_discard_segments = 1;
		params->discard.max_discard_sectors =
			range_sectors(limits->max_discard_bytes, MAX(granularity, PAGE_BYTES));
	}
	if (limits->caps & BACKEND_CAP_WRITE_ZEROES)
		params->discard.max_write_zeroes_sectors =
			range_sectors(limits->max_write_zeroes_bytes, PAGE_BYTES);
}

/*
 * The pages of a request go to what is below as they are: what that cannot take in one piece is
 * better cut where the request is made. A boundary and a size of segments exclude each other
 * (blk_validate_limits).
 */
static void fill_pages(struct ublk_params *params, const struct backend_limits *limits)
{
	if (limits->dma_alignment_bytes > 1 && limits->dma_alignment_bytes <= PAGE_BYTES) {
		params->types |= UBLK_PARAM_TYPE_DMA_ALIGN;
		params->dma.alignment = limits->dma_alignment_bytes - 1;
	}
	params->basic.virt_boundary_mask = limits->virt_boundary_mask;
	if (limits->max_segments == 0 || limits->max_segment_bytes < PAGE_BYTES ||
	    limits->virt_boundary_mask)
		return;
	params->types |= UBLK_PARAM_TYPE_SEGMENT;
	params->seg = (struct ublk_param_segment){
		.seg_boundary_mask = UINT32_MAX,
		.max_segment_size = limits->max_segment_bytes,
		.max_segments = (uint16_t)MIN(limits->max_segments, (uint32_t)UINT16_MAX),
	};
}

/* Whole zones only: the driver counts them by dividing (ublk_get_nr_zones). */
static void fill_zones(struct ublk_params *params, const struct backend_limits *limits)
{
	if (limits->zones.bytes == 0)
		return;
	params->types |= UBLK_PARAM_TYPE_ZONED;
	params->basic.chunk_sectors = (uint32_t)(limits->zones.bytes >> SECTOR_SHIFT);
	params->zoned = (struct ublk_param_zoned){
		.max_open_zones = limits->zones.open_nr_max,
		.max_active_zones = limits->zones.active_nr_max,
		.max_zone_append_sectors =
			MIN(limits->zones.append_bytes >> SECTOR_SHIFT, params->basic.max_sectors),
	};
}

/* NULL: the zones are those that the device was made with. */
static const char *zones_incompatible(const struct ublk_params *params,
				      const struct backend_limits *limits)
{
	const struct backend_zone_limits *zones = &limits->zones;

	if (!(params->types & UBLK_PARAM_TYPE_ZONED))
		return zones->bytes ? "it is zoned now" : NULL;
	if (zones->bytes == 0)
		return "it is not zoned any more";
	if (zones->bytes >> SECTOR_SHIFT != params->basic.chunk_sectors)
		return "its zones have another size";
	if (zones->open_nr_max != params->zoned.max_open_zones ||
	    zones->active_nr_max != params->zoned.max_active_zones)
		return "max_open or max_active have changed";
	return NULL;
}

/* What is one of these two is the other. */
static uint8_t checksum_type(uint8_t checksum)
{
	static const uint8_t types[BACKEND_CHECKSUM_NR] = {
		[BACKEND_CHECKSUM_NONE] = LBMD_PI_CSUM_NONE,
		[BACKEND_CHECKSUM_IP] = LBMD_PI_CSUM_IP,
		[BACKEND_CHECKSUM_CRC] = LBMD_PI_CSUM_CRC16_T10DIF,
		[BACKEND_CHECKSUM_NVME] = LBMD_PI_CSUM_CRC64_NVME,
	};

	return types[checksum];
}

static struct ublk_param_integrity
integrity_params(const struct backend_integrity_limits *integrity)
{
	return (struct ublk_param_integrity){
		.flags = (uint32_t)(integrity->is_capable ? LBMD_PI_CAP_INTEGRITY : 0) |
			 (uint32_t)(integrity->has_reftag ? LBMD_PI_CAP_REFTAG : 0),
		.interval_exp = integrity->interval_shift,
		.metadata_size = integrity->metadata_bytes,
		.pi_offset = integrity->tuple_at,
		.csum_type = checksum_type(integrity->checksum),
		.tag_size = integrity->tag_bytes,
	};
}

static void fill_integrity(struct ublk_params *params, const struct backend_limits *limits)
{
	if (limits->integrity.metadata_bytes == 0)
		return;
	params->types |= UBLK_PARAM_TYPE_INTEGRITY;
	params->integrity = integrity_params(&limits->integrity);
}

/* NULL: what the block layer makes of the metadata is what it made before. */
static const char *integrity_incompatible(const struct ublk_params *params,
					  const struct backend_limits *limits)
{
	struct ublk_param_integrity now = integrity_params(&limits->integrity);
	bool keeps = limits->integrity.metadata_bytes > 0;

	if (!(params->types & UBLK_PARAM_TYPE_INTEGRITY))
		return keeps ? "it keeps metadata now" : NULL;
	if (!keeps)
		return "it keeps no metadata any more";
	return memcmp(&now, &params->integrity, offsetof(struct ublk_param_integrity, pad)) == 0
		       ? NULL
		       : "its metadata have another form";
}

uint32_t params_queues(uint32_t wanted, const struct backend_limits *limits)
{
	return limits->queue_nr_max ? MIN(wanted, limits->queue_nr_max) : wanted;
}

void params_fill(struct ublk_params *params, const struct device_spec *spec,
		 const struct backend_limits *limits, enum data_path path)
{
	uint32_t block = spec->logical_block_bytes;
	uint32_t max_io = limits->max_io_bytes ? MIN(limits->max_io_bytes, spec->max_io_bytes)
					       : spec->max_io_bytes;

	*params = (struct ublk_params){
		.len = sizeof(*params),
		.types = UBLK_PARAM_TYPE_BASIC,
		.basic = {
			.attrs = attrs_of(spec, limits->caps),
			.logical_bs_shift = shift_of(block, 512),
			.physical_bs_shift = shift_of(limits->physical_block_bytes, block),
			.io_min_shift = shift_of(limits->physical_block_bytes, block),
			.io_opt_shift = io_opt_shift(limits, block),
			.max_sectors = MAX(max_io, PAGE_BYTES) >> SECTOR_SHIFT,
			.chunk_sectors = limits->boundary_bytes >> SECTOR_SHIFT,
			.dev_sectors = limits->size_bytes >> SECTOR_SHIFT,
		},
	};
	fill_discard(params, spec, limits);
	fill_zones(params, limits);
	fill_integrity(params, limits);
	if (path == DATA_PATH_ZERO_COPY)
		fill_pages(params, limits);
}

const char *params_incompatible(const struct ublk_params *params, const struct device_spec *spec,
				const struct backend_limits *limits,
				char buf[static PARAMS_WORDS_BYTES])
{
	const struct ublk_param_basic *basic = &params->basic;
	bool writes = !(basic->attrs & UBLK_ATTR_READ_ONLY);
	uint32_t attrs = attrs_of(spec, limits->caps);
	const char *words;

	if (basic->dev_sectors << SECTOR_SHIFT > limits->size_bytes)
		return "it is smaller";
	if (limits->logical_block_bytes > 1u << basic->logical_bs_shift)
		return "its blocks are larger";
	if (writes && (limits->caps & BACKEND_CAP_READ_ONLY))
		return "it cannot be written";
	/* Nobody would ever send the FLUSH that makes its writes durable. */
	if (writes && (attrs & UBLK_ATTR_VOLATILE_CACHE) &&
	    !(basic->attrs & UBLK_ATTR_VOLATILE_CACHE))
		return "it has a volatile cache now";
	if ((basic->attrs & UBLK_ATTR_FUA) && !(attrs & UBLK_ATTR_FUA))
		return "it cannot write through its cache any more";
	words = zones_incompatible(params, limits);
	if (!words)
		words = integrity_incompatible(params, limits);
	if (words)
		return words;
	if (spec->queues <= params_queues(spec->queues, limits))
		return NULL;
	snprintf(buf, PARAMS_WORDS_BYTES,
		 "it serves fewer queues than the device has: %s, or give the device up with "
		 "ublkctl del",
		 limits->queue_nr_cure ? limits->queue_nr_cure : "let it serve more");
	return buf;
}
