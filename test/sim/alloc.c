/*
 * The allocator as the product sees it (the linker leads its calls here, see CMakeLists.txt): now
 * and then there is no memory, and each call is counted, because a reactor whose devices run must
 * not make any. The world's own calls pass.
 *
 * What the product takes is written down until it gives it back, so that a server that is killed
 * can be made to vanish, and that nothing is left of one that ends. The addresses are kept in a way
 * that LeakSanitizer does not take for references.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "test/sim/world.h"

#define OWNED_MAX 16384u /* a power of two, far more than there are */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t nr, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
char *__real_strdup(const char *text);
void __real_free(void *ptr);
void *__real_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *addr, size_t bytes);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t nr, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
char *__wrap_strdup(const char *text);
void __wrap_free(void *ptr);
void *__wrap_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset);
int __wrap_munmap(void *addr, size_t bytes);

/* Open addressing: an entry stands at its place or behind others without a gap. */
static struct owned {
	uintptr_t hidden; /* ~address; 0: free */
	size_t map_bytes; /* 0: not a mapping */
} owned[OWNED_MAX];
static unsigned owned_nr;

static unsigned place_of(uintptr_t hidden)
{
	return (unsigned)(hidden * 0x9e3779b97f4a7c15ull >> 40) % OWNED_MAX;
}

static unsigned find(uintptr_t hidden)
{
	unsigned i = place_of(hidden);

	while (owned[i].hidden && owned[i].hidden != hidden)
		i = (i + 1) % OWNED_MAX;
	return i;
}

static void *note(void *ptr, size_t map_bytes)
{
	if (!ptr || sim.side == SIM_WORLD)
		return ptr;
	if (++owned_nr > OWNED_MAX / 2)
		sim_fail("the product takes memory again and again");
	owned[find(~(uintptr_t)ptr)] = (struct owned){ ~(uintptr_t)ptr, map_bytes };
	return ptr;
}

static void forget(const void *ptr)
{
	unsigned gap = find(~(uintptr_t)ptr);

	if (!owned[gap].hidden)
		return;
	owned_nr--;
	owned[gap].hidden = 0;
	/* Those behind it move up, unless that would be before their place. */
	for (unsigned i = (gap + 1) % OWNED_MAX; owned[i].hidden; i = (i + 1) % OWNED_MAX) {
		unsigned place = place_of(owned[i].hidden);

		if ((i - place) % OWNED_MAX < (i - gap) % OWNED_MAX)
			continue;
		owned[gap] = owned[i];
		owned[i].hidden = 0;
		gap = i;
	}
}

unsigned sim_owned_nr(void)
{
	return owned_nr;
}

void sim_owned_drop(void)
{
	for (unsigned i = 0; i < OWNED_MAX; i++) {
		void *ptr = (void *)~owned[i].hidden; // NOLINT(performance-no-int-to-ptr)

		if (!owned[i].hidden)
			continue;
		if (owned[i].map_bytes)
			__real_munmap(ptr, owned[i].map_bytes);
		else
			__real_free(ptr);
		owned[i].hidden = 0;
	}
	owned_nr = 0;
}

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
	return refused(FAULT_NO_MEMORY) ? NULL : note(__real_malloc(bytes), 0);
}

void *__wrap_calloc(size_t nr, size_t bytes)
{
	return refused(FAULT_NO_MEMORY) ? NULL : note(__real_calloc(nr, bytes), 0);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
	return refused(FAULT_NO_MEMORY) ? NULL : note(__real_aligned_alloc(align, bytes), 0);
}

char *__wrap_strdup(const char *text)
{
	return refused(FAULT_NO_MEMORY) ? NULL : note(__real_strdup(text), 0);
}

void __wrap_free(void *ptr)
{
	if (ptr)
		forget(ptr);
	__real_free(ptr);
}

void *__wrap_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	void *ptr;

	if (refused(FAULT_NO_MAPPING))
		return MAP_FAILED;
	ptr = __real_mmap(addr, bytes, prot, flags, fd, offset);
	/* What is fixed stands in a space that was taken before. */
	return ptr == MAP_FAILED || flags & MAP_FIXED ? ptr : note(ptr, bytes);
}

int __wrap_munmap(void *addr, size_t bytes)
{
	forget(addr);
	return __real_munmap(addr, bytes);
}
