/* The first cluster of an image that is as it should be, for tests to bend. */
#ifndef TEST_RIG_QCOW2_QCOW2_HEADER_CASE_H
#define TEST_RIG_QCOW2_QCOW2_HEADER_CASE_H

#include <stdlib.h>

#include "base/big_endian.h"
#include "backends/qcow2/format/qcow2_header.h"

#define CASE_CLUSTER 65536u
#define CASE_HEADER_BYTES 112u

struct header_case {
	uint8_t at[CASE_CLUSTER];
	size_t nr_bytes;
	uint64_t image_bytes;
	size_t extensions; /* where the next one goes */
	struct qcow2_header h;
	char words[QCOW2_WORDS_BYTES];
};

/* 1 GiB in clusters of 64 KiB: reference count table, block, L1 table, each a cluster. */
static inline void case_init(struct header_case *c)
{
	memset(c, 0, sizeof(*c));
	c->nr_bytes = sizeof(c->at);
	c->image_bytes = 4 * CASE_CLUSTER;
	c->extensions = CASE_HEADER_BYTES;
	be_put32(c->at, QCOW2_MAGIC);
	be_put32(c->at + QCOW2_AT_VERSION, 3);
	be_put32(c->at + QCOW2_AT_CLUSTER_BITS, 16);
	be_put64(c->at + QCOW2_AT_SIZE, 1ull << 30);
	be_put32(c->at + QCOW2_AT_L1_ENTRIES, 2);
	be_put64(c->at + QCOW2_AT_L1_OFFSET, 3 * CASE_CLUSTER);
	be_put64(c->at + QCOW2_AT_REFTABLE_OFFSET, CASE_CLUSTER);
	be_put32(c->at + QCOW2_AT_REFTABLE_CLUSTERS, 1);
	be_put32(c->at + QCOW2_AT_REFCOUNT_ORDER, 4);
	be_put32(c->at + QCOW2_AT_HEADER_BYTES, CASE_HEADER_BYTES);
}

/* length_bytes: what the extension says of itself. */
static inline void case_extension(struct header_case *c, uint32_t type, const void *data,
				  uint32_t bytes, uint32_t length_bytes)
{
	be_put32(c->at + c->extensions, type);
	be_put32(c->at + c->extensions + 4, length_bytes);
	memcpy(c->at + c->extensions + 8, data, bytes);
	c->extensions += 8 + ((bytes + 7) & ~7u);
}

/* At its exact size: ASan sees a read past the end. */
static inline int case_parse(struct header_case *c)
{
	uint8_t *exact = malloc(c->nr_bytes ? c->nr_bytes : 1);
	int err;

	memcpy(exact, c->at, c->nr_bytes);
	memset(c->words, 0, sizeof(c->words));
	err = qcow2_header_parse(&c->h, exact, c->nr_bytes, c->image_bytes, c->words);
	free(exact);
	return err;
}

#endif
