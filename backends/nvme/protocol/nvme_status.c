/*
 * The one table of NVMe status codes: Base 4.2.3, NVM 3.2; errno as Linux' nvme_error_status in
 * drivers/nvme/host/core.c and blk_status_to_errno map them. Owns nothing; any thread.
 *
 * A code that is not in the table is -EIO; it may be tried again unless it says DNR, and is one of
 * the path when its type says so.
 */
#include "backends/nvme/protocol/nvme_status.h"

#include <errno.h>
#include <stdio.h>

#include "base/util.h"

#define TYPE(code) ((code) >> 8)
#define TYPE_PATH 3u

#define NEVER NVME_RETRY_NEVER
#define HERE NVME_RETRY_HERE
#define ELSEWHERE NVME_RETRY_ELSEWHERE

static const struct row {
	uint16_t code; /* type << 8 | code; ascending */
	int16_t err;
	uint8_t retry;
	const char *words;
} rows[] = {
	/* generic */
	{ 0x000, 0, NEVER, "Successful Completion" },
	{ 0x001, -EOPNOTSUPP, NEVER, "Invalid Command Opcode" },
	{ 0x002, -EOPNOTSUPP, NEVER, "Invalid Field in Command" },
	{ 0x003, -EIO, HERE, "Command ID Conflict" },
	{ 0x004, -EIO, HERE, "Data Transfer Error" },
	{ 0x005, -EIO, HERE, "Aborted due to Power Loss" },
	{ 0x006, -EIO, HERE, "Internal Error" },
	{ 0x007, -EIO, HERE, "Command Abort Requested" },
	{ 0x008, -EIO, HERE, "Aborted due to SQ Deletion" },
	{ 0x009, -EIO, HERE, "Aborted due to Failed Fused Command" },
	{ 0x00a, -EIO, HERE, "Aborted due to Missing Fused Command" },
	{ 0x00b, -EOPNOTSUPP, NEVER, "Invalid Namespace or Format" },
	{ 0x00c, -EIO, NEVER, "Command Sequence Error" },
	{ 0x00d, -EIO, NEVER, "Invalid SGL Segment Descriptor" },
	{ 0x00e, -EIO, NEVER, "Invalid Number of SGL Descriptors" },
	{ 0x00f, -EIO, NEVER, "Data SGL Length Invalid" },
	{ 0x010, -EIO, NEVER, "Metadata SGL Length Invalid" },
	{ 0x011, -EIO, NEVER, "SGL Descriptor Type Invalid" },
	{ 0x012, -EIO, NEVER, "Invalid Use of Controller Memory Buffer" },
	{ 0x013, -EIO, NEVER, "PRP Offset Invalid" },
	{ 0x014, -EIO, NEVER, "Atomic Write Unit Exceeded" },
	{ 0x015, -EACCES, NEVER, "Operation Denied" },
	{ 0x016, -EIO, NEVER, "SGL Offset Invalid" },
	{ 0x018, -EIO, NEVER, "Host Identifier Inconsistent Format" },
	{ 0x019, -EIO, HERE, "Keep Alive Timer Expired" },
	{ 0x01a, -EINVAL, NEVER, "Keep Alive Timeout Invalid" },
	{ 0x01b, -EIO, HERE, "Aborted due to Preempt and Abort" },
	{ 0x01c, -EIO, HERE, "Sanitize Failed" },
	{ 0x01d, -EIO, HERE, "Sanitize In Progress" },
	{ 0x01e, -EIO, NEVER, "SGL Data Block Granularity Invalid" },
	{ 0x01f, -EOPNOTSUPP, NEVER, "Command Not Supported for Queue in CMB" },
	{ 0x020, -EROFS, NEVER, "Namespace is Write Protected" },
	{ 0x021, -EREMOTEIO, HERE, "Command Interrupted" },
	{ 0x022, -EIO, HERE, "Transient Transport Error" },
	{ 0x023, -EACCES, NEVER, "Command Prohibited by Command and Feature Lockdown" },
	{ 0x024, -EREMOTEIO, HERE, "Admin Command Media Not Ready" },
	{ 0x080, -EREMOTEIO, NEVER, "LBA Out of Range" },
	{ 0x081, -ENOSPC, NEVER, "Capacity Exceeded" },
	{ 0x082, -EREMOTEIO, HERE, "Namespace Not Ready" },
	{ 0x083, -EBADE, NEVER, "Reservation Conflict" },
	{ 0x084, -EIO, HERE, "Format In Progress" },
	/* command specific */
	{ 0x100, -EIO, NEVER, "Completion Queue Invalid" },
	{ 0x101, -EIO, NEVER, "Invalid Queue Identifier" },
	{ 0x102, -EIO, NEVER, "Invalid Queue Size" },
	{ 0x103, -EIO, HERE, "Abort Command Limit Exceeded" },
	{ 0x105, -EIO, NEVER, "Asynchronous Event Request Limit Exceeded" },
	{ 0x109, -EOPNOTSUPP, NEVER, "Invalid Log Page" },
	{ 0x10a, -EIO, NEVER, "Invalid Format" },
	{ 0x10d, -EIO, NEVER, "Feature Identifier Not Saveable" },
	{ 0x10e, -EIO, NEVER, "Feature Not Changeable" },
	{ 0x10f, -EIO, NEVER, "Feature Not Namespace Specific" },
	{ 0x180, -EOPNOTSUPP, NEVER, "Incompatible Format" }, /* Connect: Base 6.3 */
	{ 0x181, -EBUSY, HERE, "Controller Busy" },
	{ 0x182, -EINVAL, NEVER, "Connect Invalid Parameters" },
	{ 0x183, -EAGAIN, NEVER, "Connect Restart Discovery" },
	{ 0x184, -EACCES, NEVER, "Connect Invalid Host" },
	{ 0x185, -EINVAL, NEVER, "Invalid Queue Type" },
	{ 0x190, -EAGAIN, HERE, "Discover Restart" },
	{ 0x191, -EACCES, NEVER, "Authentication Required" },
	/* media and data integrity */
	{ 0x280, -ENODATA, HERE, "Write Fault" },
	{ 0x281, -ENODATA, HERE, "Unrecovered Read Error" },
	{ 0x282, -EILSEQ, HERE, "End-to-end Guard Check Error" },
	{ 0x283, -EILSEQ, HERE, "End-to-end Application Tag Check Error" },
	{ 0x284, -EILSEQ, HERE, "End-to-end Reference Tag Check Error" },
	{ 0x285, -ENODATA, NEVER, "Compare Failure" },
	{ 0x286, -ENODATA, NEVER, "Access Denied" },
	{ 0x287, -ENODATA, NEVER, "Deallocated or Unwritten Logical Block" },
	/* of the path: Base 4.2.3.4 */
	{ 0x300, -ENOLINK, ELSEWHERE, "Internal Path Error" },
	{ 0x301, -ENOLINK, ELSEWHERE, "Asymmetric Access Persistent Loss" },
	{ 0x302, -ENOLINK, ELSEWHERE, "Asymmetric Access Inaccessible" },
	{ 0x303, -ENOLINK, ELSEWHERE, "Asymmetric Access Transition" },
	{ 0x360, -ENOLINK, ELSEWHERE, "Controller Pathing Error" },
	{ 0x370, -ENOLINK, ELSEWHERE, "Host Pathing Error" },
	{ 0x371, -ENOLINK, ELSEWHERE, "Command Aborted By Host" },
};

static const struct row *status_find(uint16_t code)
{
	size_t low = 0, high = ARRAY_SIZE(rows);

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (rows[mid].code == code)
			return &rows[mid];
		if (rows[mid].code < code)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

struct nvme_verdict nvme_status_verdict(uint16_t status)
{
	uint16_t code = status & NVME_STATUS_CODE_MASK;
	const struct row *row = status_find(code);
	struct nvme_verdict v = { .err = -EIO, .retry = HERE, .words = "an unknown status" };

	if (row)
		v = (struct nvme_verdict){ row->err, (enum nvme_retry)row->retry, row->words };
	else if (TYPE(code) == TYPE_PATH)
		v = (struct nvme_verdict){ -ENOLINK, ELSEWHERE, "an unknown error of the path" };
	if (status & NVME_STATUS_DNR)
		v.retry = NEVER;
	return v;
}

uint32_t nvme_status_delay_ms(uint16_t status, const uint16_t crdt[3])
{
	unsigned crd = NVME_STATUS_CRD(status);

	return crd == 0 ? 0 : crdt[crd - 1] * 100u;
}

const char *nvme_status_format(uint16_t status, char *buf, size_t buf_bytes)
{
	uint16_t code = status & NVME_STATUS_CODE_MASK;

	snprintf(buf, buf_bytes, "%s (type %u, code 0x%02x%s)", nvme_status_verdict(status).words,
		 TYPE(code), code & 0xffu, status & NVME_STATUS_DNR ? ", do not retry" : "");
	return buf;
}

/* Base 8.1.3, "Asymmetric Namespace Access states" */
enum nvme_ana_use nvme_ana_use(uint8_t state)
{
	switch (state) {
	case NVME_ANA_OPTIMIZED:
		return NVME_ANA_USE_BEST;
	case NVME_ANA_NONOPTIMIZED:
		return NVME_ANA_USE_ALSO;
	case NVME_ANA_PERSISTENT_LOSS:
		return NVME_ANA_USE_NEVER;
	default:
		return NVME_ANA_USE_LATER;
	}
}

const char *nvme_ana_name(uint8_t state)
{
	switch (state) {
	case NVME_ANA_OPTIMIZED:
		return "optimized";
	case NVME_ANA_NONOPTIMIZED:
		return "non-optimized";
	case NVME_ANA_INACCESSIBLE:
		return "inaccessible";
	case NVME_ANA_PERSISTENT_LOSS:
		return "persistent loss";
	case NVME_ANA_CHANGE:
		return "change";
	default:
		return "unknown";
	}
}
