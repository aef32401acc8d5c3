/*
 * Entries of the table of internal snapshots. Pure, any thread.
 *
 * An entry is 40 bytes, extra data, ID, name, padding to 8 bytes; the last one in the table may end
 * without its padding, as QEMU writes it.
 */
#include "backends/qcow2/format/qcow2_snapshot.h"

#include <errno.h>
#include <inttypes.h>

#include "backends/qcow2/format/qcow2_text.h"
#include "base/big_endian.h"
#include "base/util.h"

#define AT_L1_OFFSET 0
#define AT_L1_ENTRIES 8
#define AT_ID_BYTES 12
#define AT_NAME_BYTES 14
#define AT_SEC 16
#define AT_NSEC 20
#define AT_VM_CLOCK 24
#define AT_VM_STATE_32 32
#define AT_EXTRA_BYTES 36
#define AT_EXTRA 40
/* In the extra data. */
#define EXTRA_VM_STATE 0u
#define EXTRA_SIZE 8u
#define EXTRA_ICOUNT 16u
#define EXTRA_BYTES 24u

#define OFFSET_MAX (1ull << 56)

/* extra_bytes of them are there. */
static void snapshot_extra(struct qcow2_snapshot *s, const uint8_t *extra, uint32_t extra_bytes)
{
	if (extra_bytes >= EXTRA_VM_STATE + 8)
		s->vm_state_bytes = be_get64(extra + EXTRA_VM_STATE);
	if (extra_bytes >= EXTRA_SIZE + 8)
		s->size_bytes = be_get64(extra + EXTRA_SIZE);
	if (extra_bytes >= EXTRA_ICOUNT + 8)
		s->icount = be_get64(extra + EXTRA_ICOUNT);
}

static void snapshot_fixed(struct qcow2_snapshot *s, const struct qcow2_header *h,
			   const uint8_t *at)
{
	*s = (struct qcow2_snapshot){
		.l1_offset = be_get64(at + AT_L1_OFFSET),
		.l1_entries = be_get32(at + AT_L1_ENTRIES),
		.size_bytes = h->size_bytes,
		.sec = be_get32(at + AT_SEC),
		.nsec = be_get32(at + AT_NSEC),
		.vm_clock_ns = be_get64(at + AT_VM_CLOCK),
		.vm_state_bytes = be_get32(at + AT_VM_STATE_32),
		.icount = QCOW2_SNAPSHOT_NO_ICOUNT,
	};
}

static int snapshot_l1_check(const struct qcow2_snapshot *s, const struct qcow2_header *h,
			     char words[static QCOW2_WORDS_BYTES])
{
	const char *why = NULL;

	if (s->l1_entries > QCOW2_L1_BYTES_MAX / 8)
		why = "is larger than can be";
	else if (s->l1_entries < qcow2_l1_entries_for(&h->g, s->size_bytes))
		why = "is too small for its disk";
	else if (s->l1_offset % qcow2_cluster_bytes(&h->g) != 0)
		why = "is not on the border of a cluster";
	else if (s->l1_entries != 0 &&
		 (s->l1_offset == 0 || s->l1_offset > OFFSET_MAX - (uint64_t)s->l1_entries * 8))
		why = "is where no table can be";
	if (!why)
		return 0;
	return qcow2_fail(words, -EINVAL,
			  "the L1 table of an internal snapshot, %" PRIu32
			  " entries at offset %" PRIu64 ", %s",
			  s->l1_entries, s->l1_offset, why);
}

int qcow2_snapshot_parse(struct qcow2_snapshot *ret_s, const struct qcow2_header *h,
			 const void *bytes, size_t nr_bytes, char words[static QCOW2_WORDS_BYTES])
{
	const uint8_t *at = bytes;
	uint32_t extra_bytes, id_bytes, name_bytes, all;

	if (nr_bytes < AT_EXTRA)
		return -EAGAIN;
	extra_bytes = be_get32(at + AT_EXTRA_BYTES);
	id_bytes = be_get16(at + AT_ID_BYTES);
	name_bytes = be_get16(at + AT_NAME_BYTES);
	if (extra_bytes > QCOW2_SNAPSHOT_EXTRA_MAX || id_bytes > QCOW2_SNAPSHOT_NAME_MAX ||
	    name_bytes > QCOW2_SNAPSHOT_NAME_MAX)
		return qcow2_fail(words, -EINVAL,
				  "an internal snapshot has an ID of %" PRIu32
				  " bytes, a name of %" PRIu32 " and extra data of %" PRIu32
				  "; %u, %u and %u can be",
				  id_bytes, name_bytes, extra_bytes, QCOW2_SNAPSHOT_NAME_MAX,
				  QCOW2_SNAPSHOT_NAME_MAX, QCOW2_SNAPSHOT_EXTRA_MAX);
	all = AT_EXTRA + extra_bytes + id_bytes + name_bytes;
	if (all > nr_bytes)
		return -EAGAIN;
	snapshot_fixed(ret_s, h, at);
	snapshot_extra(ret_s, at + AT_EXTRA, extra_bytes);
	qcow2_text(ret_s->id, at + AT_EXTRA + extra_bytes, id_bytes);
	qcow2_text(ret_s->name, at + AT_EXTRA + extra_bytes + id_bytes, name_bytes);
	ret_s->entry_bytes = (uint32_t)round_up(all, 8);
	return snapshot_l1_check(ret_s, h, words);
}

size_t qcow2_snapshot_bytes(const struct qcow2_snapshot *s)
{
	return round_up(AT_EXTRA + EXTRA_BYTES + strlen(s->id) + strlen(s->name), 8);
}

void qcow2_snapshot_encode(const struct qcow2_snapshot *s, void *ret_bytes)
{
	size_t id_bytes = strlen(s->id), name_bytes = strlen(s->name);
	uint8_t *at = ret_bytes, *extra = at + AT_EXTRA;

	memset(at, 0, qcow2_snapshot_bytes(s));
	be_put64(at + AT_L1_OFFSET, s->l1_offset);
	be_put32(at + AT_L1_ENTRIES, s->l1_entries);
	be_put16(at + AT_ID_BYTES, (uint16_t)id_bytes);
	be_put16(at + AT_NAME_BYTES, (uint16_t)name_bytes);
	be_put32(at + AT_SEC, s->sec);
	be_put32(at + AT_NSEC, s->nsec);
	be_put64(at + AT_VM_CLOCK, s->vm_clock_ns);
	/* Who does not know the wide field shall see no state rather than a part of it. */
	if (s->vm_state_bytes <= UINT32_MAX)
		be_put32(at + AT_VM_STATE_32, (uint32_t)s->vm_state_bytes);
	be_put32(at + AT_EXTRA_BYTES, EXTRA_BYTES);
	be_put64(extra + EXTRA_VM_STATE, s->vm_state_bytes);
	be_put64(extra + EXTRA_SIZE, s->size_bytes);
	be_put64(extra + EXTRA_ICOUNT, s->icount);
	memcpy(extra + EXTRA_BYTES, s->id, id_bytes);
	memcpy(extra + EXTRA_BYTES + id_bytes, s->name, name_bytes);
}
