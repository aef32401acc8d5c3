/*
 * Any bytes as a compressed cluster. The first byte says by which library, and how large the
 * cluster is. What must hold: the answer is 0 or -EIO, nothing is written behind the cluster, and
 * the same comes of the same bytes whatever was decompressed before.
 */
#include <errno.h>
#include <string.h>

#include "backends/qcow2/codec/qcow2_decompress.h"
#include "base/assert.h"
#include "base/util.h"
#include "fuzz.h"

#define CLUSTER_BYTES_MAX 65536u
#define GUARD_BYTES 64u

const char *const fuzz_words[] = {
	"\x28\xb5\x2f\xfd",
	"\x50\x2a\x4d\x18\x01",
	"\x27\xb5\x2f\xfd",
	"\x26\xb5\x2f\xfd",
	"\x25\xb5\x2f\xfd",
	"\xff",
	"\x20",
	"\x04",
	NULL,
};

static const size_t sizes[] = { 1, 512, 4096, CLUSTER_BYTES_MAX };

static int decompress(struct qcow2_decompress *d, uint8_t *out, size_t out_bytes,
		      const uint8_t *data, size_t bytes)
{
	int ret;

	memset(out, 0x5a, out_bytes + GUARD_BYTES);
	ret = qcow2_decompress(d, out, out_bytes, data, bytes);
	ASSERT(ret == 0 || ret == -EIO);
	for (size_t i = 0; i < GUARD_BYTES; i++)
		ASSERT(out[out_bytes + i] == 0x5a);
	return ret;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static uint8_t used_out[CLUSTER_BYTES_MAX + GUARD_BYTES];
	static uint8_t fresh_out[CLUSTER_BYTES_MAX + GUARD_BYTES];
	static struct qcow2_decompress *used[2];
	struct qcow2_decompress *fresh;
	size_t out_bytes;
	unsigned type;
	int ret;

	if (bytes < 1)
		return 0;
	type = data[0] & 1;
	out_bytes = sizes[data[0] >> 1 & 3];
	if (!used[type])
		used[type] = qcow2_decompress_new(type);
	fresh = qcow2_decompress_new(type);
	ASSERT(used[type] && fresh);
	ret = decompress(used[type], used_out, out_bytes, data + 1, bytes - 1);
	ASSERT(decompress(fresh, fresh_out, out_bytes, data + 1, bytes - 1) == ret);
	ASSERT(ret < 0 || memcmp(used_out, fresh_out, out_bytes) == 0);
	qcow2_decompress_free(fresh);
	return 0;
}
