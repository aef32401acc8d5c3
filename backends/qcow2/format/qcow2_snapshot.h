/* The table of internal snapshots. Pure; any thread. */
#ifndef BACKENDS_QCOW2_FORMAT_QCOW2_SNAPSHOT_H
#define BACKENDS_QCOW2_FORMAT_QCOW2_SNAPSHOT_H

#include "backends/qcow2/format/qcow2_header.h"

#define QCOW2_SNAPSHOT_NAME_MAX 255u
#define QCOW2_SNAPSHOT_EXTRA_MAX 1024u /* what QEMU takes */
/* No entry is longer, its padding included. */
#define QCOW2_SNAPSHOT_BYTES_MAX 1576u
/* The guest did not count its instructions. */
#define QCOW2_SNAPSHOT_NO_ICOUNT UINT64_MAX

struct qcow2_snapshot {
	uint64_t l1_offset;
	uint32_t l1_entries;
	uint64_t size_bytes; /* of the disk then; of the image now when the entry does not say */
	uint32_t sec, nsec;  /* since 1970 */
	uint64_t vm_clock_ns, vm_state_bytes;
	uint64_t icount; /* instructions of the guest until then; of a disk only: any */
	char id[QCOW2_SNAPSHOT_NAME_MAX + 1], name[QCOW2_SNAPSHOT_NAME_MAX + 1];
	uint32_t entry_bytes; /* of its entry in the table, rounded up to 8 */
};

/*
 * One entry, from bytes that nobody has checked. Returns 0; -EAGAIN: it does not end within
 * nr_bytes, and it does within QCOW2_SNAPSHOT_BYTES_MAX; or -EINVAL with words. The padding of the
 * last entry need not be there: entry_bytes may be larger than nr_bytes. Checked: the L1 table is
 * aligned, below 2^56, covers the disk of then. Not checked: that it is within the image.
 */
int qcow2_snapshot_parse(struct qcow2_snapshot *ret_s, const struct qcow2_header *h,
			 const void *bytes, size_t nr_bytes, char words[static QCOW2_WORDS_BYTES]);

/*
 * How long its entry is, and the entry itself, with extra data of 24 bytes as QEMU has written it
 * since 5.2. Extra data behind that, which nobody defines yet, is lost: to keep entries as they
 * are, copy their bytes.
 */
size_t qcow2_snapshot_bytes(const struct qcow2_snapshot *s);
void qcow2_snapshot_encode(const struct qcow2_snapshot *s, void *ret_bytes);

#endif
