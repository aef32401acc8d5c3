/*
 * Any bytes as the start of a qcow2 image. The first byte says how long the image is: 0, not known;
 * n, 2^(n % 64) bytes. What is taken keeps every limit, and does not change by being written back.
 */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "backends/qcow2/format/qcow2_header.h"
#include "base/assert.h"
#include "base/util.h"

const char *const fuzz_words[] = {
	"QFI\xfb",
	"\x01",
	"\x10",
	"\x70",
	"\x80",
	"\xff\xff\xff\xff",
	"\xff\xff\xff\xff\xff\xff\xff\xff",
	/* types of extensions */
	"\xe2\x79\x2a\xca",
	"\x68\x03\xf8\x57",
	"\x23\x85\x28\x75",
	"\x05\x37\xbe\x77",
	"DATA",
	NULL,
};

static void in_image(const struct qcow2_header *h, uint64_t image_bytes, uint64_t offset,
		     uint64_t bytes)
{
	if (bytes == 0)
		return;
	ASSERT(offset != 0 && offset % qcow2_cluster_bytes(&h->g) == 0);
	ASSERT(offset <= 1ull << 56 && bytes <= (1ull << 56) - offset);
	ASSERT(offset + bytes <= image_bytes);
}

static void check_geometry(const struct qcow2_geometry *g)
{
	ASSERT(g->version == 2 || g->version == 3);
	ASSERT(g->cluster_bits >= QCOW2_CLUSTER_BITS_MIN);
	ASSERT(g->cluster_bits <= QCOW2_CLUSTER_BITS_MAX);
	ASSERT(g->refcount_order <= 6);
	ASSERT((uint64_t)g->l2_entry_bytes << g->l2_bits == qcow2_cluster_bytes(g));
	ASSERT(1ull << (g->refblock_bits + g->refcount_order) == qcow2_cluster_bytes(g) * 8);
	ASSERT(g->subcluster_bits >= 9);
	ASSERT(g->subcluster_bits + (g->l2_entry_bytes == 16 ? 5 : 0) == g->cluster_bits);
}

static void check_header(const struct qcow2_header *h, uint64_t image_bytes)
{
	check_geometry(&h->g);
	ASSERT(!(h->incompatible & ~(uint64_t)QCOW2_INCOMPAT_KNOWN));
	ASSERT(h->crypt == QCOW2_CRYPT_NONE || h->crypt == QCOW2_CRYPT_LUKS);
	ASSERT((h->crypt == QCOW2_CRYPT_LUKS) == (h->crypto_bytes != 0));
	ASSERT(h->compression <= QCOW2_COMPRESSION_ZSTD);
	ASSERT(h->l1_entries <= QCOW2_L1_BYTES_MAX / 8);
	ASSERT(h->l1_entries >= qcow2_l1_entries_for(&h->g, h->size_bytes));
	ASSERT(h->reftable_clusters > 0 && h->snapshot_nr <= QCOW2_SNAPSHOTS_MAX);
	ASSERT((uint64_t)h->reftable_clusters << h->g.cluster_bits <= QCOW2_REFTABLE_BYTES_MAX);
	ASSERT(memchr(h->backing_name, 0, sizeof(h->backing_name)));
	ASSERT(memchr(h->backing_format, 0, sizeof(h->backing_format)));
	ASSERT(memchr(h->data_file_name, 0, sizeof(h->data_file_name)));
	in_image(h, image_bytes, h->l1_offset, (uint64_t)h->l1_entries * 8);
	in_image(h, image_bytes, h->reftable_offset,
		 (uint64_t)h->reftable_clusters << h->g.cluster_bits);
	in_image(h, image_bytes, h->snapshots_offset, (uint64_t)h->snapshot_nr * 40);
	in_image(h, image_bytes, h->crypto_offset, h->crypto_bytes);
	in_image(h, image_bytes, h->bitmaps_offset, h->bitmaps_bytes);
}

/* h was read from these bytes: written, they are the same. */
static void check_update(const struct qcow2_header *h, const uint8_t *at, size_t bytes)
{
	uint8_t *copy = malloc(bytes);

	ASSERT(copy && h->header_bytes <= bytes);
	memcpy(copy, at, bytes);
	qcow2_header_update(copy, h);
	ASSERT(memcmp(copy, at, bytes) == 0);
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char words[QCOW2_WORDS_BYTES];
	struct qcow2_header h;
	uint64_t image_bytes;
	int err;

	if (bytes == 0)
		return 0;
	image_bytes = data[0] == 0 ? UINT64_MAX : 1ull << (data[0] & 63);
	memset(words, 'x', sizeof(words));
	err = qcow2_header_parse(&h, data + 1, bytes - 1, image_bytes, words);
	if (err == 0) {
		check_header(&h, image_bytes);
		check_update(&h, data + 1, bytes - 1);
		return 0;
	}
	ASSERT(err == -EINVAL || err == -EOPNOTSUPP);
	ASSERT(memchr(words, 0, sizeof(words)) && strncmp(words, "qcow2: ", 7) == 0);
	return 0;
}
