/*
 * The NBD protocol: numbers and names. Pure, any thread. The facts are in doc/proto.md of
 * https://github.com/NetworkBlockDevice/nbd, whose names are kept; sections are named in quotes.
 * What belongs to extended headers is in the same file of the branch extension-ext-header.
 */
#ifndef BACKENDS_NBD_NBD_PROTO_H
#define BACKENDS_NBD_NBD_PROTO_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/big_endian.h"

/* "Newstyle negotiation", "Oldstyle negotiation", "Fixed newstyle negotiation" */
#define NBD_MAGIC 0x4e42444d41474943ull		 /* NBDMAGIC */
#define NBD_OPTION_MAGIC 0x49484156454f5054ull	 /* IHAVEOPT */
#define NBD_OLDSTYLE_MAGIC 0x0000420281861253ull /* where IHAVEOPT should be */
#define NBD_OPTION_REPLY_MAGIC 0x0003e889045565a9ull

/* "Transmission" */
#define NBD_REQUEST_MAGIC 0x25609513u
#define NBD_EXTENDED_REQUEST_MAGIC 0x21e41c71u
#define NBD_SIMPLE_REPLY_MAGIC 0x67446698u
#define NBD_STRUCTURED_REPLY_MAGIC 0x668e33efu
#define NBD_EXTENDED_REPLY_MAGIC 0x6e8a278cu

#define NBD_PORT 10809u

/* "Conventions": no string is longer. */
#define NBD_STRING_BYTES_MAX 4096u

/* "Size constraints": what a client assumes that was told nothing. */
#define NBD_MIN_BLOCK_BYTES 512u
#define NBD_PREFERRED_BLOCK_BYTES 4096u
#define NBD_MAX_PAYLOAD_BYTES (32u << 20)

/* "Handshake flags", "Client flags": the same bits. */
enum nbd_handshake_flags {
	NBD_FLAG_FIXED_NEWSTYLE = 1u << 0,
	NBD_FLAG_NO_ZEROES = 1u << 1,
};

/* "Transmission flags" */
enum nbd_transmission_flags {
	NBD_FLAG_HAS_FLAGS = 1u << 0,
	NBD_FLAG_READ_ONLY = 1u << 1,
	NBD_FLAG_SEND_FLUSH = 1u << 2,
	NBD_FLAG_SEND_FUA = 1u << 3,
	NBD_FLAG_ROTATIONAL = 1u << 4,
	NBD_FLAG_SEND_TRIM = 1u << 5,
	NBD_FLAG_SEND_WRITE_ZEROES = 1u << 6,
	NBD_FLAG_SEND_DF = 1u << 7,
	NBD_FLAG_CAN_MULTI_CONN = 1u << 8,
	NBD_FLAG_SEND_RESIZE = 1u << 9,
	NBD_FLAG_SEND_CACHE = 1u << 10,
	NBD_FLAG_SEND_FAST_ZERO = 1u << 11,
	NBD_FLAG_BLOCK_STATUS_PAYLOAD = 1u << 12,
};

/* "Option types" */
enum nbd_opt {
	NBD_OPT_EXPORT_NAME = 1,
	NBD_OPT_ABORT = 2,
	NBD_OPT_LIST = 3,
	NBD_OPT_STARTTLS = 5,
	NBD_OPT_INFO = 6,
	NBD_OPT_GO = 7,
	NBD_OPT_STRUCTURED_REPLY = 8,
	NBD_OPT_LIST_META_CONTEXT = 9,
	NBD_OPT_SET_META_CONTEXT = 10,
	NBD_OPT_EXTENDED_HEADERS = 11,
};

/* "Option reply types" */
#define NBD_REP_ERROR_BIT (1u << 31)
enum nbd_rep {
	NBD_REP_ACK = 1,
	NBD_REP_SERVER = 2,
	NBD_REP_INFO = 3,
	NBD_REP_META_CONTEXT = 4,
};
#define NBD_REP_ERR_UNSUP (NBD_REP_ERROR_BIT + 1)
#define NBD_REP_ERR_POLICY (NBD_REP_ERROR_BIT + 2)
#define NBD_REP_ERR_INVALID (NBD_REP_ERROR_BIT + 3)
#define NBD_REP_ERR_PLATFORM (NBD_REP_ERROR_BIT + 4)
#define NBD_REP_ERR_TLS_REQD (NBD_REP_ERROR_BIT + 5)
#define NBD_REP_ERR_UNKNOWN (NBD_REP_ERROR_BIT + 6)
#define NBD_REP_ERR_SHUTDOWN (NBD_REP_ERROR_BIT + 7)
#define NBD_REP_ERR_BLOCK_SIZE_REQD (NBD_REP_ERROR_BIT + 8)
#define NBD_REP_ERR_TOO_BIG (NBD_REP_ERROR_BIT + 9)
#define NBD_REP_ERR_EXT_HEADER_REQD (NBD_REP_ERROR_BIT + 10)

/* "NBD_REP_INFO" */
enum nbd_info {
	NBD_INFO_EXPORT = 0,
	NBD_INFO_NAME = 1,
	NBD_INFO_DESCRIPTION = 2,
	NBD_INFO_BLOCK_SIZE = 3,
};

/* "Request types" */
enum nbd_cmd {
	NBD_CMD_READ = 0,
	NBD_CMD_WRITE = 1,
	NBD_CMD_DISC = 2,
	NBD_CMD_FLUSH = 3,
	NBD_CMD_TRIM = 4,
	NBD_CMD_CACHE = 5,
	NBD_CMD_WRITE_ZEROES = 6,
	NBD_CMD_BLOCK_STATUS = 7,
	NBD_CMD_NR,
};

/* "Command flags" */
enum nbd_cmd_flags {
	NBD_CMD_FLAG_FUA = 1u << 0,
	NBD_CMD_FLAG_NO_HOLE = 1u << 1,
	NBD_CMD_FLAG_DF = 1u << 2,
	NBD_CMD_FLAG_REQ_ONE = 1u << 3,
	NBD_CMD_FLAG_FAST_ZERO = 1u << 4,
	NBD_CMD_FLAG_PAYLOAD_LEN = 1u << 5, /* nbd_request_encode's own business */
};

/* "Structured reply flags", "Structured reply types" */
#define NBD_REPLY_FLAG_DONE (1u << 0)
#define NBD_REPLY_ERROR_BIT (1u << 15)
enum nbd_reply_type {
	NBD_REPLY_TYPE_NONE = 0,
	NBD_REPLY_TYPE_OFFSET_DATA = 1,
	NBD_REPLY_TYPE_OFFSET_HOLE = 2,
	NBD_REPLY_TYPE_BLOCK_STATUS = 5,
	NBD_REPLY_TYPE_BLOCK_STATUS_EXT = 6,
	NBD_REPLY_TYPE_ERROR = NBD_REPLY_ERROR_BIT + 1,
	NBD_REPLY_TYPE_ERROR_OFFSET = NBD_REPLY_ERROR_BIT + 2,
};

/* "base:allocation metadata context" */
#define NBD_META_ALLOCATION "base:allocation"

/* The protocol's names without their prefix: "WRITE_ZEROES". Unknown numbers: NULL. */
const char *nbd_cmd_name(uint32_t cmd);
const char *nbd_opt_name(uint32_t opt);
const char *nbd_rep_name(uint32_t rep);
const char *nbd_reply_type_name(uint32_t type);

/*
 * "Error values": a number from the wire as -errno of Linux; what the protocol does not know is
 * -EINVAL, as it wants it. error must not be 0.
 */
int nbd_errno(uint32_t error);

#endif
