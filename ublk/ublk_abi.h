/*
 * The ublk driver's binary interface, as of Linux 7.2 (include/uapi/linux/ublk_cmd.h and
 * Documentation/block/ublk.rst), under the kernel's own names. Defined here because distributions
 * ship headers much older than the kernels they run (Debian 12: 6.1); what the running driver
 * really knows is asked with GET_FEATURES. Do not include <linux/ublk_cmd.h> beside it.
 */
#ifndef UBLK_UBLK_ABI_H
#define UBLK_UBLK_ABI_H

#include <stdint.h>
#include <sys/ioctl.h>

struct ublksrv_ctrl_cmd {
	uint32_t dev_id;
	uint16_t queue_id; /* 0xffff when not for a queue */
	uint16_t len;
	uint64_t addr;
	uint64_t data[1];
	uint16_t dev_path_len;
	uint16_t pad;
	uint32_t reserved;
};

struct ublksrv_ctrl_dev_info {
	uint16_t nr_hw_queues;
	uint16_t queue_depth;
	uint16_t state; /* UBLK_S_DEV_* */
	uint16_t pad0;
	uint32_t max_io_buf_bytes;
	uint32_t dev_id;
	int32_t ublksrv_pid;
	uint32_t pad1;
	uint64_t flags;
	uint64_t ublksrv_flags;
	uint32_t owner_uid, owner_gid;
	uint64_t reserved1, reserved2;
};

struct ublksrv_io_cmd {
	uint16_t q_id;
	uint16_t tag;
	int32_t result; /* COMMIT: bytes or -errno */
	uint64_t addr;	/* of the tag's buffer; of a ZONE_APPEND its sector: zone_append_lba */
};

struct ublksrv_io_desc {
	uint32_t op_flags;     /* op: bits 0-7; UBLK_IO_F_*: bits 8-31, in place */
	uint32_t nr_sectors;   /* REPORT_ZONES: zones */
	uint64_t start_sector; /* always of 512 bytes */
	uint64_t addr;
};

#define UBLK_U_CMD(dir, nr) _IOC(dir, 'u', nr, sizeof(struct ublksrv_ctrl_cmd))
#define UBLK_U_CMD_GET_QUEUE_AFFINITY UBLK_U_CMD(_IOC_READ, 0x01)
#define UBLK_U_CMD_GET_DEV_INFO UBLK_U_CMD(_IOC_READ, 0x02)
#define UBLK_U_CMD_ADD_DEV UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x04)
#define UBLK_U_CMD_DEL_DEV UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x05)
#define UBLK_U_CMD_START_DEV UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x06)
#define UBLK_U_CMD_STOP_DEV UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x07)
#define UBLK_U_CMD_SET_PARAMS UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x08)
#define UBLK_U_CMD_GET_PARAMS UBLK_U_CMD(_IOC_READ, 0x09)
#define UBLK_U_CMD_START_USER_RECOVERY UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x10)
#define UBLK_U_CMD_END_USER_RECOVERY UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x11)
#define UBLK_U_CMD_GET_DEV_INFO2 UBLK_U_CMD(_IOC_READ, 0x12)
#define UBLK_U_CMD_GET_FEATURES UBLK_U_CMD(_IOC_READ, 0x13)
#define UBLK_U_CMD_DEL_DEV_ASYNC UBLK_U_CMD(_IOC_READ, 0x14)
#define UBLK_U_CMD_UPDATE_SIZE UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x15)
#define UBLK_U_CMD_QUIESCE_DEV UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x16)
#define UBLK_U_CMD_TRY_STOP_DEV UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x17)
#define UBLK_U_CMD_REG_BUF                                                                         \
	UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x18)		      /* res: the index, or -errno \
								       */
#define UBLK_U_CMD_UNREG_BUF UBLK_U_CMD(_IOC_READ | _IOC_WRITE, 0x19) /* data[0]: the index */

/* UBLK_F_SHMEM_ZC: at addr of REG_BUF. */
struct ublk_shmem_buf_reg {
	uint64_t addr, len; /* whole pages */
	uint32_t flags;
	uint32_t reserved;
};

#define UBLK_SHMEM_BUF_READ_ONLY (1u << 0) /* it serves WRITE only */

#define UBLK_U_IO(nr, type) _IOC(_IOC_READ | _IOC_WRITE, 'u', nr, sizeof(struct type))
#define UBLK_U_IO_FETCH_REQ UBLK_U_IO(0x20, ublksrv_io_cmd)
#define UBLK_U_IO_COMMIT_AND_FETCH_REQ UBLK_U_IO(0x21, ublksrv_io_cmd)
#define UBLK_U_IO_NEED_GET_DATA UBLK_U_IO(0x22, ublksrv_io_cmd)

/* res of a FETCH or COMMIT_AND_FETCH */
#define UBLK_IO_RES_OK 0
#define UBLK_IO_RES_NEED_GET_DATA 1
#define UBLK_IO_RES_ABORT (-19) /* -ENODEV: no re-fetch */

/* sqe->addr of FETCH and COMMIT_AND_FETCH with UBLK_F_AUTO_BUF_REG (struct ublk_auto_buf_reg). */
#define UBLK_AUTO_BUF_REG_FALLBACK (1u << 0)

static inline uint64_t ublk_auto_buf_reg_addr(uint16_t index, uint8_t flags)
{
	return index | (uint64_t)flags << 16;
}

/* Where pread and pwrite find the bytes of a request, with UBLK_F_USER_COPY. */
#define UBLKSRV_IO_BUF_OFFSET 0x80000000ull
/* And so much behind that, its metadata. */
#define UBLKSRV_IO_INTEGRITY_FLAG (1ull << 62)
#define UBLK_TAG_OFF 25
#define UBLK_QID_OFF 41

static inline uint64_t ublk_user_copy_pos(uint16_t queue, uint16_t tag)
{
	return UBLKSRV_IO_BUF_OFFSET + ((uint64_t)queue << UBLK_QID_OFF) +
	       ((uint64_t)tag << UBLK_TAG_OFF);
}

/* UBLK_F_BATCH_IO: the payload of the commands; PREP and COMMIT have elements at sqe->addr. */
struct ublk_elem_header {
	uint16_t tag;
	uint16_t buf_index; /* with UBLK_F_AUTO_BUF_REG */
	int32_t result;	    /* COMMIT */
};

struct ublk_batch_io {
	uint16_t q_id;
	uint16_t flags; /* UBLK_BATCH_F_* */
	uint16_t nr_elem;
	uint8_t elem_bytes; /* FETCH: of a tag's number */
	uint8_t reserved;
	uint64_t reserved2;
};

#define UBLK_BATCH_F_HAS_BUF_ADDR (1u << 1) /* a uint64_t behind each header */
#define UBLK_BATCH_F_AUTO_BUF_REG_FALLBACK (1u << 2)

#define UBLK_U_IO_PREP_IO_CMDS UBLK_U_IO(0x25, ublk_batch_io)
#define UBLK_U_IO_COMMIT_IO_CMDS UBLK_U_IO(0x26, ublk_batch_io) /* res: bytes of elements taken */
#define UBLK_U_IO_FETCH_IO_CMDS UBLK_U_IO(0x27, ublk_batch_io)

#define UBLK_MAX_QUEUE_DEPTH 4096
#define UBLK_MAX_NR_QUEUES 4096
#define UBLK_FEATURES_LEN 8

#define UBLK_F_SUPPORT_ZERO_COPY (1ull << 0)
#define UBLK_F_URING_CMD_COMP_IN_TASK (1ull << 1)
#define UBLK_F_NEED_GET_DATA (1ull << 2)
#define UBLK_F_USER_RECOVERY (1ull << 3)
#define UBLK_F_USER_RECOVERY_REISSUE (1ull << 4)
#define UBLK_F_UNPRIVILEGED_DEV (1ull << 5)
#define UBLK_F_CMD_IOCTL_ENCODE (1ull << 6)
#define UBLK_F_USER_COPY (1ull << 7)
#define UBLK_F_ZONED (1ull << 8)
#define UBLK_F_USER_RECOVERY_FAIL_IO (1ull << 9)
#define UBLK_F_UPDATE_SIZE (1ull << 10)
#define UBLK_F_AUTO_BUF_REG (1ull << 11)
#define UBLK_F_QUIESCE (1ull << 12)
#define UBLK_F_PER_IO_DAEMON (1ull << 13)
#define UBLK_F_BUF_REG_OFF_DAEMON (1ull << 14)
#define UBLK_F_BATCH_IO (1ull << 15)
#define UBLK_F_INTEGRITY (1ull << 16)
#define UBLK_F_SAFE_STOP_DEV (1ull << 17)
#define UBLK_F_NO_AUTO_PART_SCAN (1ull << 18)
#define UBLK_F_SHMEM_ZC (1ull << 19)
#define UBLK_F_IO_DESC_SIZE (1ull << 20)

#define UBLK_S_DEV_DEAD 0
#define UBLK_S_DEV_LIVE 1
#define UBLK_S_DEV_QUIESCED 2
#define UBLK_S_DEV_FAIL_IO 3

#define UBLK_IO_OP_READ 0
#define UBLK_IO_OP_WRITE 1
#define UBLK_IO_OP_FLUSH 2
#define UBLK_IO_OP_DISCARD 3
#define UBLK_IO_OP_WRITE_SAME 4
#define UBLK_IO_OP_WRITE_ZEROES 5
/* Of zones: UBLK_F_ZONED. */
#define UBLK_IO_OP_ZONE_OPEN 10
#define UBLK_IO_OP_ZONE_CLOSE 11
#define UBLK_IO_OP_ZONE_FINISH 12
#define UBLK_IO_OP_ZONE_APPEND 13
#define UBLK_IO_OP_ZONE_RESET_ALL 14
#define UBLK_IO_OP_ZONE_RESET 15
#define UBLK_IO_OP_REPORT_ZONES 18

/* Bits of op_flags as it stands. */
#define UBLK_IO_F_FAILFAST_TRANSPORT (1u << 9)
#define UBLK_IO_F_FUA (1u << 13)
#define UBLK_IO_F_NOUNMAP (1u << 15)
#define UBLK_IO_F_NEED_REG_BUF (1u << 17) /* AUTO_BUF_REG failed: it is not registered */
#define UBLK_IO_F_INTEGRITY (1u << 18)	  /* it has metadata: UBLKSRV_IO_INTEGRITY_FLAG */

#define UBLK_IO_F_SHMEM_ZC (1u << 19) /* addr is a place in a buffer of REG_BUF: */

#define UBLK_SHMEM_ZC_OFF_MASK 0xffffffffull
#define UBLK_SHMEM_ZC_IDX_OFF 32
#define UBLK_SHMEM_ZC_IDX_MASK 0xffffull

static inline uint16_t ublk_shmem_zc_index(uint64_t addr)
{
	return (addr >> UBLK_SHMEM_ZC_IDX_OFF) & UBLK_SHMEM_ZC_IDX_MASK;
}

static inline uint32_t ublk_shmem_zc_offset(uint64_t addr)
{
	return (uint32_t)(addr & UBLK_SHMEM_ZC_OFF_MASK);
}

static inline unsigned ublksrv_get_op(const struct ublksrv_io_desc *iod)
{
	return iod->op_flags & 0xff;
}

#define UBLK_ATTR_READ_ONLY (1u << 0)
#define UBLK_ATTR_ROTATIONAL (1u << 1)
#define UBLK_ATTR_VOLATILE_CACHE (1u << 2)
#define UBLK_ATTR_FUA (1u << 3)

struct ublk_param_basic {
	uint32_t attrs;
	uint8_t logical_bs_shift;
	uint8_t physical_bs_shift;
	uint8_t io_opt_shift;
	uint8_t io_min_shift;
	uint32_t max_sectors;
	uint32_t chunk_sectors;
	uint64_t dev_sectors;
	uint64_t virt_boundary_mask;
};

struct ublk_param_discard {
	uint32_t discard_alignment;
	uint32_t discard_granularity;
	uint32_t max_discard_sectors;
	uint32_t max_write_zeroes_sectors;
	uint16_t max_discard_segments;
	uint16_t reserved0;
};

struct ublk_param_devt {
	uint32_t char_major, char_minor, disk_major, disk_minor;
};

struct ublk_param_zoned {
	uint32_t max_open_zones, max_active_zones, max_zone_append_sectors;
	uint8_t reserved[20];
};

struct ublk_param_dma_align {
	uint32_t alignment; /* mask */
	uint8_t pad[4];
};

struct ublk_param_segment {
	uint64_t seg_boundary_mask;
	uint32_t max_segment_size;
	uint16_t max_segments;
	uint8_t pad[2];
};

/* As in linux/fs.h since 6.17. */
#define LBMD_PI_CAP_INTEGRITY (1 << 0)
#define LBMD_PI_CAP_REFTAG (1 << 1)
#define LBMD_PI_CSUM_NONE 0
#define LBMD_PI_CSUM_IP 1
#define LBMD_PI_CSUM_CRC16_T10DIF 2
#define LBMD_PI_CSUM_CRC64_NVME 4

struct ublk_param_integrity {
	uint32_t flags;			 /* LBMD_PI_CAP_* */
	uint16_t max_integrity_segments; /* 0: no limit */
	uint8_t interval_exp;
	uint8_t metadata_size;
	uint8_t pi_offset;
	uint8_t csum_type; /* LBMD_PI_CSUM_* */
	uint8_t tag_size;
	uint8_t pad[5];
};

#define UBLK_PARAM_TYPE_BASIC (1u << 0)
#define UBLK_PARAM_TYPE_DISCARD (1u << 1)
#define UBLK_PARAM_TYPE_DEVT (1u << 2)
#define UBLK_PARAM_TYPE_ZONED (1u << 3)
#define UBLK_PARAM_TYPE_DMA_ALIGN (1u << 4)
#define UBLK_PARAM_TYPE_SEGMENT (1u << 5)
#define UBLK_PARAM_TYPE_INTEGRITY (1u << 6)

/* An older driver takes a longer struct and ignores the tail (len). */
struct ublk_params {
	uint32_t len;
	uint32_t types;
	struct ublk_param_basic basic;
	struct ublk_param_discard discard;
	struct ublk_param_devt devt;
	struct ublk_param_zoned zoned;
	struct ublk_param_dma_align dma;
	struct ublk_param_segment seg;
	struct ublk_param_integrity integrity;
};

_Static_assert(sizeof(struct ublksrv_ctrl_cmd) == 32, "ABI");
_Static_assert(sizeof(struct ublk_param_integrity) == 16, "ABI");
_Static_assert(sizeof(struct ublksrv_ctrl_dev_info) == 64, "ABI");
_Static_assert(sizeof(struct ublksrv_io_cmd) == 16, "ABI");
_Static_assert(sizeof(struct ublksrv_io_desc) == 24, "ABI");
_Static_assert(sizeof(struct ublk_elem_header) == 8, "ABI");
_Static_assert(sizeof(struct ublk_batch_io) == 16, "ABI");
_Static_assert(sizeof(struct ublk_shmem_buf_reg) == 24, "ABI");

#endif
