/*
 * The allocator as the product sees it (the linker leads its calls here, see CMakeLists.txt): now
 * and then there is no memory, and each call is counted, because a reactor whose devices run must
 * not make any. The world's own calls pass.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "test/sim/world.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t nr, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
char *__real_strdup(const char *text);
void *__real_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t nr, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
char *__wrap_strdup(const char *text);
void *__wrap_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset);

static bool refused(enum fault fault)
{
	if (sim.side != SIM_PRODUCT)
		return false;
	sim.alloc_nr++;
	if (!sim_fault(fault))
		return false;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t bytes)
{
	return refused(FAULT_NO_MEMORY) ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t nr, size_t bytes)
{
	return refused(FAULT_NO_MEMORY) ? NULL : __real_calloc(nr, bytes);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
	return refused(FAULT_NO_MEMORY) ? NULL : __real_aligned_alloc(align, bytes);
}

char *__wrap_strdup(const char *text)
{
	return refused(FAULT_NO_MEMORY) ? NULL : __real_strdup(text);
}

void *__wrap_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	return refused(FAULT_NO_MAPPING) ? MAP_FAILED
					 : __real_mmap(addr, bytes, prot, flags, fd, offset);
}
