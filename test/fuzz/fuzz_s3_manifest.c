/*
 * Any bytes as the manifest of a disk of objects. The first byte says what: 0, a manifest as it is;
 * else the value of one field of a good one. What is taken keeps every limit, and is the same when
 * it was written and read again.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/s3_disk/s3_disk_manifest.h"
#include "backends/s3_disk/s3_disk_map.h"
#include "base/assert.h"
#include "base/util.h"

const char *const fuzz_words[] = { "\"format\":\"ublkd-s3-disk\",",
				   "\"version\":1,",
				   "\"snapshots\":[",
				   "{\"name\":\"a\",\"map\":\"\",\"generation\":1,\"time\":0}",
				   "\"object_size\":65536",
				   "\"map/00000001.0\"",
				   "9223372036854775807",
				   "4294967295",
				   "\\u0000",
				   NULL };

static void check_snapshot(const struct s3_disk_manifest *m, const struct s3_disk_snapshot *s)
{
	ASSERT(memchr(s->name, 0, sizeof(s->name)) && memchr(s->map, 0, sizeof(s->map)));
	ASSERT(s3_disk_snapshot_name_is_good(s->name));
	ASSERT(s->generation > 0 && s->generation <= m->generation && s->sec <= UINT32_MAX);
}

static void check_manifest(const struct s3_disk_manifest *m)
{
	ASSERT(memchr(m->id, 0, sizeof(m->id)) && m->id[0]);
	ASSERT(memchr(m->owner, 0, sizeof(m->owner)) && memchr(m->host, 0, sizeof(m->host)));
	ASSERT(memchr(m->map, 0, sizeof(m->map)));
	ASSERT(is_power_of_two(m->object_bytes) && m->object_bytes >= S3_DISK_OBJECT_BYTES_MIN);
	ASSERT(m->object_bytes <= S3_DISK_OBJECT_BYTES_MAX && m->size_bytes >= 4096);
	ASSERT(m->size_bytes % 4096 == 0);
	ASSERT((m->size_bytes - 1) / m->object_bytes < S3_DISK_OBJECTS_MAX);
	ASSERT(m->generation > 0 && m->generation <= S3_DISK_GENERATION_MAX);
	ASSERT(m->stored.objects <= S3_DISK_OBJECTS_MAX && m->stored.seq <= S3_DISK_SEQ_MAX);
	ASSERT(m->snapshot_nr <= S3_DISK_SNAPSHOTS_MAX);
	for (unsigned i = 0; i < m->snapshot_nr; i++)
		check_snapshot(m, &m->snapshot[i]);
}

static void fuzz_manifest(const char *data, size_t bytes)
{
	static char text[S3_DISK_MANIFEST_BYTES], again[S3_DISK_MANIFEST_BYTES];
	static struct s3_disk_manifest m;
	char words[200];
	int ret, text_bytes, again_bytes;

	memset(words, 'x', sizeof(words));
	ret = s3_disk_manifest_read(&m, data, bytes, words, sizeof(words));
	if (ret < 0) {
		ASSERT(ret == -EINVAL && memchr(words, 0, sizeof(words)));
		return;
	}
	check_manifest(&m);
	text_bytes = s3_disk_manifest_write(&m, text);
	ASSERT(text_bytes > 0);
	ASSERT(s3_disk_manifest_read(&m, text, (size_t)text_bytes, words, sizeof(words)) == 0);
	again_bytes = s3_disk_manifest_write(&m, again);
	ASSERT(again_bytes == text_bytes && memcmp(text, again, (size_t)text_bytes) == 0);
}

static const struct {
	const char *key, *value;
} fields[] = {
	{ "version", "1" },
	{ "id", "\"0a\"" },
	{ "size", "65536" },
	{ "object_size", "65536" },
	{ "generation", "9" },
	{ "map", "\"\"" },
	{ "owner", "\"\"" },
	{ "host", "\"\"" },
	{ "beat", "1" },
	{ "snapshots", "[]" },
	{ "stored", "{\"generation\":9,\"objects\":3,\"seq\":7}" },
};

static void fuzz_field(size_t field, const char *data, size_t bytes)
{
	size_t text_bytes = 1000 + bytes, n;
	char *text = malloc(text_bytes);

	ASSERT(text);
	n = (size_t)snprintf(text, text_bytes, "{\"format\":\"ublkd-s3-disk\"");
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		const char *value = i == field ? data : fields[i].value;
		int value_bytes = i == field ? (int)bytes : (int)strlen(value);

		n += (size_t)snprintf(text + n, text_bytes - n, ",\"%s\":%.*s", fields[i].key,
				      value_bytes, value);
	}
	n += (size_t)snprintf(text + n, text_bytes - n, "}");
	fuzz_manifest(text, n);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (bytes == 0)
		return 0;
	if (data[0] == 0)
		fuzz_manifest((const char *)data + 1, bytes - 1);
	else
		fuzz_field(data[0] % ARRAY_SIZE(fields), (const char *)data + 1, bytes - 1);
	return 0;
}
