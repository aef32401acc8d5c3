/* Names of the NBD protocol's numbers, its errors as Linux has them. Pure functions, any thread. */
#include "backends/nbd/nbd_proto.h"

#include <errno.h>

#include "base/util.h"

#define NAME(prefix, name) [prefix##name] = #name

static const char *pick(const char *const *names, size_t nr, uint32_t idx)
{
	return idx < nr ? names[idx] : NULL;
}

const char *nbd_cmd_name(uint32_t cmd)
{
	static const char *const names[] = {
		NAME(NBD_CMD_, READ),	      NAME(NBD_CMD_, WRITE),	    NAME(NBD_CMD_, DISC),
		NAME(NBD_CMD_, FLUSH),	      NAME(NBD_CMD_, TRIM),	    NAME(NBD_CMD_, CACHE),
		NAME(NBD_CMD_, WRITE_ZEROES), NAME(NBD_CMD_, BLOCK_STATUS),
	};

	return pick(names, ARRAY_SIZE(names), cmd);
}

const char *nbd_opt_name(uint32_t opt)
{
	static const char *const names[] = {
		NAME(NBD_OPT_, EXPORT_NAME),
		NAME(NBD_OPT_, ABORT),
		NAME(NBD_OPT_, LIST),
		NAME(NBD_OPT_, STARTTLS),
		NAME(NBD_OPT_, INFO),
		NAME(NBD_OPT_, GO),
		NAME(NBD_OPT_, STRUCTURED_REPLY),
		NAME(NBD_OPT_, LIST_META_CONTEXT),
		NAME(NBD_OPT_, SET_META_CONTEXT),
		NAME(NBD_OPT_, EXTENDED_HEADERS),
	};

	return pick(names, ARRAY_SIZE(names), opt);
}

const char *nbd_rep_name(uint32_t rep)
{
	static const char *const names[] = {
		NAME(NBD_REP_, ACK),
		NAME(NBD_REP_, SERVER),
		NAME(NBD_REP_, INFO),
		NAME(NBD_REP_, META_CONTEXT),
	};
	static const char *const errors[] = {
		[1] = "ERR_UNSUP",    [2] = "ERR_POLICY",
		[3] = "ERR_INVALID",  [4] = "ERR_PLATFORM",
		[5] = "ERR_TLS_REQD", [6] = "ERR_UNKNOWN",
		[7] = "ERR_SHUTDOWN", [8] = "ERR_BLOCK_SIZE_REQD",
		[9] = "ERR_TOO_BIG",  [10] = "ERR_EXT_HEADER_REQD",
	};

	if (rep & NBD_REP_ERROR_BIT)
		return pick(errors, ARRAY_SIZE(errors), rep & ~NBD_REP_ERROR_BIT);
	return pick(names, ARRAY_SIZE(names), rep);
}

const char *nbd_reply_type_name(uint32_t type)
{
	static const char *const names[] = {
		NAME(NBD_REPLY_TYPE_, NONE),
		NAME(NBD_REPLY_TYPE_, OFFSET_DATA),
		NAME(NBD_REPLY_TYPE_, OFFSET_HOLE),
		NAME(NBD_REPLY_TYPE_, BLOCK_STATUS),
		NAME(NBD_REPLY_TYPE_, BLOCK_STATUS_EXT),
	};

	if (type == NBD_REPLY_TYPE_ERROR)
		return "ERROR";
	if (type == NBD_REPLY_TYPE_ERROR_OFFSET)
		return "ERROR_OFFSET";
	return pick(names, ARRAY_SIZE(names), type);
}

int nbd_errno(uint32_t error)
{
	switch (error) {
	case 1:
		return -EPERM;
	case 5:
		return -EIO;
	case 12:
		return -ENOMEM;
	case 28:
		return -ENOSPC;
	case 75:
		return -EOVERFLOW;
	case 95:
		return -EOPNOTSUPP;
	case 108:
		return -ESHUTDOWN;
	default:
		return -EINVAL;
	}
}
