/*
 * What images say of themselves while they serve (storage/look.h), of an overlay and its base in
 * files of a folder of its own. Prints TAP. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "storage/look.h"
#include "test/conformance/rig.h"
#include "test/conformance/tap.h"

#define CLUSTER_BYTES KIB(64)

static char folder[] = "/tmp/ublkd-look.XXXXXX";
static const char *const names[] = { "base", "top" };
static struct rig rig;

/* Valid until the next call. */
static const char *path_of(const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static bool open_chain(void)
{
	char yaml[1024];
	struct rig_params params = {
		.ops = backend_find("qcow2"),
		.name = "disk",
		.yaml = yaml,
		.block_bytes = 512,
		.queue_nr = 2,
		.depth = 4,
	};
	int ret;

	snprintf(yaml, sizeof(yaml),
		 "type: qcow2\ncreate: true\nsize: 8MiB\n"
		 "data: {type: throttle, backend: {type: file, path: %s/top, create: true}}\n"
		 "backing: {type: qcow2, create: true, size: 8MiB,\n"
		 "          data: {type: file, path: %s/base}}\n",
		 folder, folder);
	ret = rig_open(&rig, &params);
	EXPECT(ret == 0, "%s", rig.error);
	return ret == 0;
}

/* Of all queues, as the core asks. */
static bool look(unsigned idx, struct backend_image_look *ret_look)
{
	bool found = true;

	memset(ret_look, 0, sizeof(*ret_look));
	for (unsigned q = 0; q < rig.queue_nr && found; q++)
		found = backend_image(rig.queue[q].queue, idx, ret_look);
	return found;
}

static int look_write(unsigned queue, uint64_t offset, uint32_t bytes)
{
	struct rig_io *rio = &rig.queue[queue].io[0];

	rio->io.op = BACKEND_WRITE;
	rio->io.flags = 0;
	rio->io.offset_bytes = offset;
	rio->io.length_bytes = bytes;
	rig_submit(&rig, rio);
	rig_drain(&rig);
	return rio->io.result;
}

static void check_place(void)
{
	struct backend_image_look top, base, none;

	REQUIRE(look(0, &top) && look(1, &base), "two images");
	EXPECT(!look(2, &none), "a third one");
	EXPECT(strcmp(top.format, "qcow2") == 0 && strcmp(top.node, "disk") == 0, "%s", top.node);
	EXPECT(strcmp(base.node, "disk/backing") == 0, "%s", base.node);
	EXPECT(top.depth == 0 && base.depth == 1, "%u %u", top.depth, base.depth);
	EXPECT(!top.is_read_only && base.is_read_only, "the base is only read");
	EXPECT(top.file && strcmp(top.file, path_of("top")) == 0, "below a filter");
	EXPECT(base.file && strcmp(base.file, path_of("base")) == 0, "its own file");
	EXPECT(top.size_bytes == MIB(8) && top.cluster_bytes == CLUSTER_BYTES, "geometry");
}

static void check_counts(void)
{
	struct backend_image_look before, l;

	REQUIRE(look(0, &before), "an image");
	EXPECT(!before.is_dirty, "nothing was written");
	EXPECT(before.allocations == 0 && before.copies == 0, "nothing was written");
	/* A whole cluster, by the other queue a part of one, and again in place. */
	EXPECT(look_write(0, 0, CLUSTER_BYTES) == 0, "a cluster");
	EXPECT(look_write(1, MIB(1), 4096) == 0, "a part");
	REQUIRE(look(0, &l), "an image");
	EXPECT(l.is_dirty, "tables are in memory alone");
	EXPECT(l.allocations == 3, "%llu: two of data, a table of L2",
	       (unsigned long long)l.allocations);
	EXPECT(l.end_bytes > before.end_bytes, "the image has grown");
	EXPECT(l.slice_nr > 0 && l.slice_nr <= l.slice_max, "%llu of %llu",
	       (unsigned long long)l.slice_nr, (unsigned long long)l.slice_max);
	before = l;
	for (unsigned i = 0; i < 10; i++)
		EXPECT(look_write(i & 1, MIB(1), 4096) == 0, "in place");
	REQUIRE(look(0, &l), "an image");
	EXPECT(l.misses == before.misses && l.allocations == before.allocations, "in place");
	EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "flush");
	REQUIRE(look(0, &l), "an image");
	EXPECT(!l.is_dirty, "all is on the disk");
	EXPECT(l.has_stored && l.stored_bytes >= CLUSTER_BYTES, "%llu",
	       (unsigned long long)l.stored_bytes);
}

/* The base has data where the overlay is written: what surrounds that is copied. */
static void check_copies(void)
{
	struct backend_image_look before, l;

	REQUIRE(look(0, &before), "an image");
	EXPECT(look_write(1, MIB(2), 4096) == 0, "a part");
	EXPECT(look_write(0, MIB(4), 4096) == 0, "a part, by the other queue");
	REQUIRE(look(0, &l), "an image");
	EXPECT(l.copies == before.copies + 2, "%llu", (unsigned long long)l.copies);
	EXPECT(look_write(1, MIB(3), CLUSTER_BYTES) == 0, "a cluster");
	REQUIRE(look(0, &l), "an image");
	EXPECT(l.copies == before.copies + 2, "%llu", (unsigned long long)l.copies);
	REQUIRE(look(1, &l), "the base");
	EXPECT(l.allocations == 0 && l.copies == 0, "the base is only read");
	EXPECT(l.misses > 0, "its table was read");
}

/* An image of its own, with something in it, for the base. */
static bool make_base(void)
{
	char yaml[256];
	struct rig_params params = { .ops = backend_find("qcow2"),
				     .name = "base",
				     .yaml = yaml,
				     .block_bytes = 512,
				     .queue_nr = 1,
				     .depth = 1 };
	int ret;

	snprintf(yaml, sizeof(yaml),
		 "type: qcow2\ncreate: true\nsize: 8MiB\n"
		 "data: {type: file, path: %s/base, create: true}\n",
		 folder);
	ret = rig_open(&rig, &params);
	EXPECT(ret == 0, "%s", rig.error);
	if (ret < 0)
		return false;
	EXPECT(look_write(0, MIB(2), CLUSTER_BYTES) == 0, "the base's data");
	rig_close(&rig);
	return true;
}

static void remove_files(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unlink(path_of(names[i]));
	rmdir(folder);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} checks[] = {
		{ "images: which there are, and where", check_place },
		{ "images: allocations, the cache, dirty tables", check_counts },
		{ "images: copies of what is below", check_copies },
	};
	bool is_open;

	log_init(LOG_LEVEL_ERROR);
	tap_init("qcow2_look", NULL, 0);
	is_open = mkdtemp(folder) && make_base() && open_chain();
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		tap_begin("%s", checks[i].name);
		EXPECT(is_open, "%s", rig.error);
		if (is_open)
			checks[i].fn();
		tap_end();
	}
	if (is_open)
		rig_close(&rig);
	remove_files();
	return tap_finish();
}
