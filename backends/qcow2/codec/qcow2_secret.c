/* Pages for keys. Owns nothing; any thread. Failure modes: without a lock they may be swapped out.
 */
#include "backends/qcow2/codec/qcow2_secret.h"

#include <string.h>
#include <sys/mman.h>

void *qcow2_secret_alloc(size_t bytes)
{
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		return NULL;
	madvise(mem, bytes, MADV_DONTDUMP);
	(void)mlock(mem, bytes);
	return mem;
}

void qcow2_secret_free(void *mem, size_t bytes)
{
	if (!mem)
		return;
	explicit_bzero(mem, bytes);
	munmap(mem, bytes);
}
