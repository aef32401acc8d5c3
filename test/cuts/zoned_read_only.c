/* A process dies, and the next one opens its zones read-only: it can write no table of zones. */
#include <unistd.h>

#include "base/assert.h"
#include "test/conformance/tap.h"
#include "test/cuts/zoned_rig.h"

static void io(struct zcuts_rig *rig, enum backend_op op, uint32_t bytes, int result)
{
	struct zcuts_io *zio = &rig->io[0];
	int ret;

	zcuts_fill(zio, 0, bytes, 1);
	zcuts_rig_submit(rig, zio, op, 0,
			 bytes ? (uint64_t)ZCUTS_CONVENTIONAL * ZCUTS_ZONE_BYTES : 0, bytes);
	ret = zcuts_rig_wait(rig, zio);
	EXPECT(ret == result, "%s: %d, not %d", backend_op_name(op), ret, result);
}

/* The memory that a process leaves which has written, and what is on the disk then. */
static int dead_writer(struct zcuts_rig *rig, struct disk *left, bool flushes)
{
	int fd;

	ASSERT(zcuts_rig_open(rig, 0) == 0);
	io(rig, BACKEND_WRITE, 4096, 0);
	if (flushes)
		io(rig, BACKEND_FLUSH, 0, 0);
	fd = cuts_copy_memory(backend_stored_fd(rig->device, 0));
	disk_copy(rig->disk, left);
	ASSERT(zcuts_rig_close(rig) == 0);
	return fd;
}

void zcuts_read_only(struct disk *disk, struct disk *left, bool flushes, int result)
{
	static struct zcuts_rig rig;
	int fd;

	zcuts_rig_init(&rig, 0, disk, false);
	fd = dead_writer(&rig, left, flushes);
	zcuts_rig_init(&rig, 0, left, false);
	rig.is_read_only = true;
	EXPECT(zcuts_rig_open(&rig, fd) == 0, "%s", rig.words);
	io(&rig, BACKEND_FLUSH, 0, result);
	EXPECT(zcuts_rig_close(&rig) == 0, "it cannot be closed");
	close(fd);
}
