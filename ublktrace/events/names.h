/*
 * Names of what io_uring, ublk and the block layer know by number. Every function returns a static
 * string, or NULL for a number it does not know, unless it says otherwise. Any thread.
 */
#ifndef UBLKTRACE_EVENTS_NAMES_H
#define UBLKTRACE_EVENTS_NAMES_H

#include <stddef.h>
#include <stdint.h>

/* "READV" for IORING_OP_READV; all of enum io_uring_op up to Linux 7.2
 * (include/uapi/linux/io_uring.h). */
const char *name_opcode(unsigned opcode);
unsigned name_opcode_nr(void);

/* "UBLK_IO_COMMIT_AND_FETCH_REQ" for a cmd_op of /dev/ublkcN, "UBLK_CMD_ADD_DEV" for one of
 * /dev/ublk-control; with and without ioctl encoding (include/uapi/linux/ublk_cmd.h). */
const char *name_ublk_io(uint32_t cmd_op);
const char *name_ublk_ctrl(uint32_t cmd_op);

/* "GETEVENTS|EXT_ARG" into buf; bits without a name as 0x...; "" for 0. Return buf. What has no
 * room is cut; NAME_FLAGS_BYTES has room for all. */
#define NAME_FLAGS_BYTES 320u
const char *name_enter_flags(uint32_t flags, char *buf, size_t bytes);
const char *name_sqe_flags(uint32_t flags, char *buf, size_t bytes);
const char *name_setup_flags(uint32_t flags, char *buf, size_t bytes);

/* "read" for REQ_OP_READ (include/linux/blk_types.h). */
const char *name_block_op(unsigned op);

#endif
