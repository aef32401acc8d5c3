/*
 * Any text as a page of a store's list of the objects below "vm 1/a". What is taken are names that
 * can be, into a map, of which the newest stays; the token can stand in an URL. What is refused has
 * words, which are printable.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/s3_disk/s3_disk_page.h"
#include "base/assert.h"
#include "base/util.h"
#include "test/unit/base/printable_check.h"

#define OBJECTS 50u
#define PREFIX "vm 1/a"

const char *const fuzz_words[] = { "<ListBucketResult>",
				   "</ListBucketResult>",
				   "<IsTruncated>false</IsTruncated>",
				   "<IsTruncated> 1 </IsTruncated>",
				   "<KeyCount>1</KeyCount>",
				   "<Contents xmlns=\"x\">",
				   "<![CDATA[",
				   "]]>",
				   "<!DOCTYPE x [<!ENTITY e 'x'>]>",
				   "&e;",
				   "&#37;",
				   "<NextContinuationToken>t&amp;</NextContinuationToken>",
				   "<Contents>",
				   "</Contents>",
				   "<Key>vm%201%2Fa/o/00000001/00000002.00000003</Key>",
				   "<Key>vm+1/a/o/",
				   "<Size>0</Size>",
				   "<Size>65536</Size>",
				   "%2F",
				   NULL };

struct listing {
	struct s3_disk_map map;
	uint32_t nr;
};

static bool on_listed(const struct s3_disk_listed *listed, uint64_t size_bytes, void *arg)
{
	struct listing *l = arg;
	char text[S3_DISK_NAME_BYTES];
	struct s3_disk_name name;
	uint32_t index;

	l->nr++;
	s3_disk_name_text(listed->name, listed->index, text);
	ASSERT(s3_disk_name_parse(text, &name, &index));
	ASSERT(index == listed->index && name.generation == listed->name.generation);
	ASSERT(name.seq == (listed->name.seq & ~S3_DISK_HOLE));
	ASSERT(s3_disk_name_is_hole(listed->name) == (size_bytes == 0));
	s3_disk_map_take(&l->map, listed);
	if (index < OBJECTS) {
		ASSERT(l->map.name[index].generation >= name.generation);
		ASSERT(l->map.name[index].generation > name.generation ||
		       (l->map.name[index].seq & ~S3_DISK_HOLE) >= name.seq);
	}
	return true;
}

static void check_page(const struct s3_disk_page *page, const struct listing *l)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789-._~%";

	ASSERT(page->nr == l->nr);
	ASSERT(memchr(page->token, 0, sizeof(page->token)));
	ASSERT(page->token[strspn(page->token, letters)] == '\0');
	ASSERT(page->is_last == !page->token[0]);
}

static void check_words(const char *words, size_t words_bytes)
{
	const char *end = memchr(words, 0, words_bytes);

	ASSERT(end && end > words);
	check_printable(words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct listing l = { .nr = 0 };
	const struct s3_disk_ask ask = {
		.prefix = PREFIX, .under = "o/", .on_object = on_listed, .arg = &l
	};
	struct s3_disk_page page;
	char words[200];
	int ret;

	ASSERT(s3_disk_map_init(&l.map, OBJECTS) == 0);
	memset(words, '\x01', sizeof(words));
	ret = s3_disk_page_read(&ask, (const char *)data, bytes, &page, words, sizeof(words));
	if (ret == 0) {
		check_page(&page, &l);
	} else {
		ASSERT(ret == -EINVAL);
		check_words(words, sizeof(words));
	}
	s3_disk_map_fini(&l.map);
	return 0;
}
