/*
 * See zone_memory.h. Owns the memfd and its mapping.
 *
 *   | head | zones ... | writes | writes of daemons before |
 *
 * Failure modes: no memory; a memfd of other zones.
 */
#include "filters/zoned/zone_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

#define ZONE_MEMORY_MAGIC 0x7a6f6e656d656d31ull /* raised with the layout: test/kept.py */
#define ZONE_MEMORY_HEAD_BYTES 4096u

/* At the start of the memfd. */
struct zone_memory_head {
	uint64_t magic;
	uint32_t is_filled, depth;
	struct zone_header header;
};

static size_t zones_bytes(const struct zone_header *h)
{
	return round_up(h->zone_nr * sizeof(struct zone_kept), 4096);
}

static size_t writes_bytes(uint32_t depth)
{
	return round_up(depth * sizeof(struct zone_write), 4096);
}

static int zone_memory_map(struct zone_memory *m, const struct zone_header *h)
{
	uint8_t *area = mmap(NULL, m->area_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			     m->fd, 0);

	if (area == MAP_FAILED)
		return -errno;
	m->area = area;
	m->zone = (struct zone_kept *)(area + ZONE_MEMORY_HEAD_BYTES);
	m->write = (struct zone_write *)((uint8_t *)m->zone + zones_bytes(h));
	m->old = (struct zone_write *)((uint8_t *)m->write + writes_bytes(m->depth));
	return 0;
}

static void zone_memory_measure(struct zone_memory *m, const struct zone_header *h, uint32_t depth)
{
	*m = (struct zone_memory){ .fd = -1, .depth = depth };
	m->area_bytes = ZONE_MEMORY_HEAD_BYTES + zones_bytes(h) + writes_bytes(depth) +
			writes_bytes(depth * ZONE_OLD_FACTOR);
}

int zone_memory_new(struct zone_memory *m, const struct zone_header *h, uint32_t depth)
{
	zone_memory_measure(m, h, depth);
	m->fd = memfd_create("ublkd-zones", MFD_CLOEXEC);
	if (m->fd < 0 || ftruncate(m->fd, (off_t)m->area_bytes) < 0)
		return -errno;
	return zone_memory_map(m, h);
}

void zone_memory_set_filled(struct zone_memory *m, const struct zone_header *h)
{
	struct zone_memory_head *head = m->area;

	head->magic = ZONE_MEMORY_MAGIC;
	head->depth = m->depth;
	head->header = *h;
	__atomic_store_n(&head->is_filled, 1, __ATOMIC_RELEASE);
}

void zone_memory_set_lost(struct zone_memory *m)
{
	struct zone_memory_head *head = m->area;

	__atomic_store_n(&head->is_filled, 0, __ATOMIC_RELEASE);
}

int zone_memory_adopt(struct zone_memory *m, const struct zone_header *h, uint32_t depth, int fd)
{
	struct zone_memory_head head;
	struct stat st;

	*m = (struct zone_memory){ .fd = -1 };
	if (fstat(fd, &st) < 0 || pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
	    head.magic != ZONE_MEMORY_MAGIC || !head.is_filled)
		return -ENODATA;
	if (memcmp(&head.header, h, sizeof(*h)) != 0 || head.depth < depth)
		return -EBUSY;
	zone_memory_measure(m, h, head.depth);
	if ((uint64_t)st.st_size != m->area_bytes)
		return -EBUSY;
	m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return m->fd < 0 ? -errno : zone_memory_map(m, h);
}

void zone_memory_free(struct zone_memory *m)
{
	if (m->area)
		munmap(m->area, m->area_bytes);
	if (m->fd >= 0)
		close(m->fd);
	*m = (struct zone_memory){ .fd = -1 };
}
