/*
 * Any bytes as a table of internal snapshots. The first byte says of what image: 2^(9 + n % 13)
 * bytes in a cluster; 64: extended L2 entries. What is taken keeps every limit, and is the same
 * again when it is written and read.
 */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "backends/qcow2/format/qcow2_snapshot.h"
#include "base/assert.h"
#include "base/util.h"

const char *const fuzz_words[] = {
	"\x01",	    "\x05\x01",		"\x10",	    "\x18",	"\x80", "name",
	"\x04\x01", "\xff\xff\xff\xff", "\x02\x01", "\xff\xff", NULL,
};

static void check_snapshot(const struct qcow2_snapshot *s, const struct qcow2_header *h)
{
	ASSERT(s->l1_entries <= QCOW2_L1_BYTES_MAX / 8);
	ASSERT(s->l1_entries >= qcow2_l1_entries_for(&h->g, s->size_bytes));
	ASSERT(s->l1_offset % qcow2_cluster_bytes(&h->g) == 0);
	ASSERT(s->l1_entries == 0 || s->l1_offset + s->l1_entries * 8ull <= 1ull << 56);
	ASSERT(s->entry_bytes >= 40 && s->entry_bytes <= QCOW2_SNAPSHOT_BYTES_MAX);
	ASSERT(s->entry_bytes % 8 == 0);
	ASSERT(memchr(s->id, 0, sizeof(s->id)) && memchr(s->name, 0, sizeof(s->name)));
}

static void check_again(const struct qcow2_snapshot *s, const struct qcow2_header *h)
{
	size_t bytes = qcow2_snapshot_bytes(s);
	uint8_t *at = malloc(bytes);
	char words[QCOW2_WORDS_BYTES];
	struct qcow2_snapshot again;

	ASSERT(at);
	qcow2_snapshot_encode(s, at);
	ASSERT(qcow2_snapshot_parse(&again, h, at, bytes, words) == 0);
	ASSERT(again.entry_bytes == bytes);
	again.entry_bytes = s->entry_bytes;
	ASSERT(again.l1_offset == s->l1_offset && again.l1_entries == s->l1_entries);
	ASSERT(again.size_bytes == s->size_bytes && again.icount == s->icount);
	ASSERT(again.sec == s->sec && again.nsec == s->nsec);
	ASSERT(again.vm_clock_ns == s->vm_clock_ns);
	ASSERT(again.vm_state_bytes == s->vm_state_bytes);
	ASSERT(strcmp(again.id, s->id) == 0 && strcmp(again.name, s->name) == 0);
	free(at);
}

/* Without its last byte an entry is not whole. */
static void check_cut(const struct qcow2_header *h, const uint8_t *at, size_t nr, unsigned entry)
{
	char words[QCOW2_WORDS_BYTES];
	struct qcow2_snapshot s;

	if (entry < 48 || nr < entry)
		return;
	/* its padding has up to 7 */
	ASSERT(qcow2_snapshot_parse(&s, h, at, entry - 8, words) == -EAGAIN);
	ASSERT(qcow2_snapshot_parse(&s, h, at, entry, words) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct qcow2_header h = { .size_bytes = GIB(1) };
	char words[QCOW2_WORDS_BYTES];
	struct qcow2_snapshot s;
	size_t at = 1;
	int err = 0;

	if (bytes == 0)
		return 0;
	qcow2_geometry_init(&h.g, 3, 9 + data[0] % 13, 4, data[0] & 64);
	while (at <= bytes) {
		err = qcow2_snapshot_parse(&s, &h, data + at, bytes - at, words);
		if (err)
			break;
		check_snapshot(&s, &h);
		check_again(&s, &h);
		check_cut(&h, data + at, bytes - at, s.entry_bytes);
		at += s.entry_bytes;
	}
	ASSERT(err == 0 || err == -EINVAL || err == -EAGAIN);
	ASSERT(err != -EAGAIN || bytes - at < QCOW2_SNAPSHOT_BYTES_MAX);
	ASSERT(err != -EINVAL || strncmp(words, "qcow2: ", 7) == 0);
	return 0;
}
