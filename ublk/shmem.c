/*
 * What can be shared with a device. Pure functions, and a look at a descriptor; any thread.
 *
 * Failure modes: words with the cure.
 */
#include "ublk/shmem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/errname.h"
#include "storage/backend.h"
#include "storage/spec.h"

/* linux/magic.h; linux/fcntl.h since 5.1. */
#define HUGETLBFS 0x958458f6
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SHMEM_FLAGS (UBLK_F_SHMEM_ZC | UBLK_F_USER_COPY)

int shmem_check(enum data_path wish, const struct backend_spec *spec, uint64_t features,
		char error[static SHMEM_ERROR_BYTES])
{
	char backend[BACKEND_SPEC_TEXT_BYTES];

	if (wish != DATA_PATH_AUTO && wish != DATA_PATH_USER_COPY) {
		snprintf(error, SHMEM_ERROR_BYTES,
			 "shared_memory is impossible with data_path: %s: what is not in shared "
			 "memory goes by user_copy; set data_path: auto, or leave shared_memory "
			 "out%s",
			 data_path_names[wish],
			 wish == DATA_PATH_ZERO_COPY ? ": zero_copy copies nothing anyway" : "");
		return -EINVAL;
	}
	if (!(backend_spec_data(spec) & BACKEND_DATA_SEALED)) {
		snprintf(error, SHMEM_ERROR_BYTES,
			 "shared_memory is impossible with the backend %s: a client can change "
			 "shared memory while a request is served; mem, file, null, pattern and "
			 "nbd, and stripe, throttle, delay and fault over them, can do with that",
			 backend_spec_text(spec, backend));
		return -EINVAL;
	}
	if ((features & SHMEM_FLAGS) == SHMEM_FLAGS)
		return 0;
	snprintf(error, SHMEM_ERROR_BYTES,
		 "shared_memory needs a kernel whose ublk driver has SHMEM_ZC (Linux 7.1); leave "
		 "shared_memory out");
	return -EOPNOTSUPP;
}

static int refuse_file(char error[static SHMEM_ERROR_BYTES], const char *words)
{
	snprintf(error, SHMEM_ERROR_BYTES, "%s", words);
	return -EINVAL;
}

/*
 * A descriptor of a memfd that lacks the seal is refused, as its owner can have one that has it;
 * files with a name cannot (mm/memfd.c gives them F_SEAL_SEAL), and have shmem_map.h alone.
 */
static bool may_be_sealed(const struct stat *st)
{
	return st->st_nlink == 0;
}

static int shmem_check_size(const struct stat *st, const struct shmem_file *file,
			    char error[static SHMEM_ERROR_BYTES])
{
	if (file->bytes == 0 || file->bytes % file->page_bytes != 0) {
		snprintf(
			error, SHMEM_ERROR_BYTES,
			"the memory has %llu bytes: expected a multiple of its pages of %zu bytes, "
			"set by ftruncate(2) or fallocate(1)",
			(unsigned long long)st->st_size, file->page_bytes);
		return -EINVAL;
	}
	if (file->bytes <= SHMEM_BUFFER_BYTES_MAX)
		return 0;
	return refuse_file(error, "the memory is larger than 4 GiB, which is the driver's limit: "
				  "share it as several files");
}

bool shmem_wants_sealed(const struct backend_spec *spec)
{
	return (backend_spec_data(spec) & BACKEND_DATA_SHMEM) != BACKEND_DATA_SHMEM;
}

int shmem_file_check(int fd, bool wants_sealed, struct shmem_file *ret_file,
		     char error[static SHMEM_ERROR_BYTES])
{
	int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
	struct statfs fs;
	struct stat st;

	if (seals < 0 || flags < 0)
		return refuse_file(error,
				   "the descriptor is no memory: expected one of memfd_create(2), "
				   "or of a file in tmpfs or hugetlbfs");
	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0) {
		snprintf(error, SHMEM_ERROR_BYTES, "the descriptor cannot be looked at: %s",
			 errname(errno));
		return -EINVAL;
	}
	if ((flags & O_ACCMODE) == O_WRONLY)
		return refuse_file(error, "the descriptor is open for writing alone: open it for "
					  "reading and writing");
	/* Huge pages can be taken away from a sealed file, too: shmem_map.h. */
	if (wants_sealed && (!(seals & F_SEAL_SHRINK) || (unsigned long)fs.f_type == HUGETLBFS))
		return refuse_file(error,
				   "the backend takes only memory whose pages nobody can take "
				   "away, or its connection could be lost: a memfd without huge "
				   "pages, made with MFD_ALLOW_SEALING, and sealed by fcntl(fd, "
				   "F_ADD_SEALS, F_SEAL_SHRINK)");
	if (!(seals & F_SEAL_SHRINK) && may_be_sealed(&st))
		return refuse_file(error, "the memory is not sealed against shrinking: make it by "
					  "memfd_create(2) with MFD_ALLOW_SEALING, and seal it by "
					  "fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)");
	*ret_file = (struct shmem_file){
		.bytes = (uint64_t)st.st_size,
		.page_bytes = (unsigned long)fs.f_type == HUGETLBFS ? (size_t)fs.f_bsize
								    : (size_t)sysconf(_SC_PAGESIZE),
		.read_only = (flags & O_ACCMODE) == O_RDONLY ||
			     (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)),
	};
	return shmem_check_size(&st, ret_file, error);
}
