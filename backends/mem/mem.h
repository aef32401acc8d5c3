/* What mem.c (I/O), mem_open.c (the memory) and mem_zero.c share. */
#ifndef BACKENDS_MEM_MEM_H
#define BACKENDS_MEM_MEM_H

#include <stdint.h>

#include "storage/backend.h"
#include "base/log.h"
#include "reactor/op.h"
#include "reactor/reactor.h"

struct mem_config {
	uint64_t size_bytes;
	bool huge_pages;
};

struct mem_device {
	int fd;
	/* Address space for growth is reserved at open: what reactors use never moves. */
	uint8_t *base;
	uint64_t reserved_bytes;
	uint64_t map_bytes; /* size_bytes rounded up to whole pages: of base, what can be used */
	uint8_t *space;	    /* base, and before it what aligned it to pages */
	uint64_t space_bytes;
	uint64_t page_bytes;
	unsigned page_shift;
	bool is_huge;
	struct log_limit full_limit; /* no memory for a write */
	/* A bit per page that may hold data. The one thing that several reactors write. */
	_Atomic uint64_t *present;
	size_t present_bytes;
};

struct mem_queue {
	int file_slot; /* fd in the ring's table, for hole punching */
};

enum mem_zero_state {
	MEM_ZERO_IDLE,
	MEM_ZERO_HEAD,	/* memset from the start to the first whole page, or of all of it */
	MEM_ZERO_PUNCH, /* whole pages go back to the system */
	MEM_ZERO_TAIL,	/* memset from the last whole page to the end */
};

struct mem_io {
	struct backend_io *io;
	struct op op;	  /* the hole punch */
	struct task task; /* the next piece of a long memset */
	enum mem_zero_state state;
	uint64_t pos, end; /* what the memset of this state has to do */
	uint64_t punch_start, punch_end, tail_end;
};

/* mem_open.c */
enum { MEM_OPTION_SIZE, MEM_OPTION_HUGE_PAGES };
extern const struct option mem_options[];
int mem_open(struct backend_device *device);
void mem_close(struct backend_device *device);
void mem_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES]);
int mem_stored_fd(const struct backend_device *device);
uint64_t mem_memory_bytes(const void *config);

/* mem.c: after the bytes are there. */
void mem_mark_present(struct mem_device *mem, uint64_t offset_bytes, uint64_t length_bytes);

/*
 * mem.c: how many bytes from offset on, at most length_bytes, stand in pages that are all present
 * or all absent.
 */
uint64_t mem_run(const struct mem_device *mem, uint64_t offset_bytes, uint64_t length_bytes,
		 bool *ret_present);

static inline uint64_t mem_page(const struct mem_device *mem, uint64_t offset_bytes)
{
	return offset_bytes >> mem->page_shift;
}

/*
 * mem_map.c: address space for map_bytes and for growth, with fd (as long as map_bytes) mapped into
 * its beginning and `present` to go with it. Returns 0 or -errno, and what failed in *ret_what;
 * mem_unmap accepts whatever it left.
 */
int mem_map(struct mem_device *mem, const char **ret_what);
void mem_unmap(struct mem_device *mem);

/* mem_map.c */
extern const struct backend_resize mem_resize;

/* mem_zero.c: DISCARD and WRITE_ZEROES. */
enum backend_submit mem_zero_submit(struct backend_io *io);
void mem_zero_punched(struct op *op, int res, uint32_t cqe_flags);

#endif
