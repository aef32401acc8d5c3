/* What a storage can, how large it is, and how its requests must look. */
#ifndef STORAGE_LIMITS_H
#define STORAGE_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

/* Of a block device: the driver takes no larger blocks (ublk_validate_params), on any machine. */
#define BACKEND_BLOCK_BYTES_MAX 4096u

/* What open found; the core makes the block device's limits from it. */
enum backend_caps {
	BACKEND_CAP_FLUSH = 1u << 0, /* has a volatile cache: completed writes need a FLUSH */
	BACKEND_CAP_FUA = 1u << 1,
	BACKEND_CAP_DISCARD = 1u << 2,
	BACKEND_CAP_WRITE_ZEROES = 1u << 3,
	BACKEND_CAP_READ_ONLY = 1u << 4,
	BACKEND_CAP_ROTATIONAL = 1u << 5,
	/*
	 * A WRITE beyond the end makes the storage longer: a node over it may set a larger size
	 * (backend_set_size) and write there. What was never written there cannot be read, but for
	 * the file of an image (file.c). Says nothing about the block device, which has the size
	 * that it has.
	 */
	BACKEND_CAP_GROWS = 1u << 6,
};

/* Of what is zoned: zones of one size from the first byte to the last (zones.h). */
struct backend_zone_limits {
	uint64_t bytes;		/* a power of two; 0: it is not zoned */
	uint32_t open_nr_max;	/* 0: no limit */
	uint32_t active_nr_max; /* open or closed; 0: no limit */
	uint32_t append_bytes;	/* of a ZONE_APPEND, at most */
};

/* How the checksum of an interval is made: storage/metadata.h. */
enum backend_checksum {
	BACKEND_CHECKSUM_NONE,
	BACKEND_CHECKSUM_IP,
	BACKEND_CHECKSUM_CRC,
	BACKEND_CHECKSUM_NVME,
	BACKEND_CHECKSUM_NR,
};

/* Of what keeps metadata beside its bytes: metadata.h. */
struct backend_integrity_limits {
	uint8_t metadata_bytes; /* of each interval; 0: it keeps none */
	uint8_t interval_shift; /* log2 of the interval in bytes: from 9 to that of the block */
	uint8_t checksum;	/* enum backend_checksum */
	uint8_t tuple_at;	/* where in the metadata the tuple of checksum and tags begins */
	uint8_t tag_bytes;	/* of the tuple, that an application may use */
	bool has_reftag;	/* the tuple names the place of the interval */
	bool is_capable;	/* the block layer shows that the device keeps what it is given */
};

struct backend_limits {
	/* A multiple of the logical block. It may change while queues serve: backend_size(). */
	uint64_t size_bytes;
	uint32_t caps;		       /* enum backend_caps */
	uint32_t logical_block_bytes;  /* smallest it can serve; 0: any from 512 */
	uint32_t physical_block_bytes; /* 0: as the logical block */
	uint32_t io_opt_bytes;	       /* 0: nothing special */
	uint32_t max_io_bytes;	       /* 0: no limit of its own */
	uint32_t discard_granularity_bytes;
	uint64_t max_discard_bytes;	 /* 0: no limit of its own */
	uint64_t max_write_zeroes_bytes; /* 0: no limit of its own */
	/* 0: none. A READ or WRITE across a multiple of it costs more: the block layer cuts there.
	 */
	uint32_t boundary_bytes;
	uint32_t queue_nr_max;	   /* 0: any number of queues */
	const char *queue_nr_cure; /* with queue_nr_max: how to allow more, in words */
	/* Of the device below, for requests whose pages go there as they are; 0: unknown. */
	uint32_t max_segments, max_segment_bytes;
	uint64_t virt_boundary_mask;
	uint32_t dma_alignment_bytes; /* buffers are at least page aligned anyway */
	struct backend_zone_limits zones;
	struct backend_integrity_limits integrity;
};

/* Where the storage of a node ends: resize.h. */
struct backend_tail {
	uint64_t found_bytes; /* may change while queues serve; 0: nothing was found */
	bool is_padded;	      /* the last block of the device is longer than the storage */
};

/*
 * What to do where storage has blocks of so many bytes and the device smaller ones: words, which
 * name block_size only where it can have this value. Returns buf.
 */
#define BACKEND_BLOCK_CURE_BYTES 80u
const char *backend_block_cure(uint32_t block_bytes, char buf[static BACKEND_BLOCK_CURE_BYTES]);

#endif
