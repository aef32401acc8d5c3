/* Memory that clients share: which devices and descriptors can, where a request's bytes are, and a
 * page that goes missing. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "base/util.h"
#include "storage/backend.h"
#include "storage/registry.h"
#include "ublk/shmem.h"

#define PAGE 4096u
#define LINUX_7_2 (UBLK_F_USER_COPY | UBLK_F_SHMEM_ZC)

static char error[SHMEM_ERROR_BYTES];

/* ---- which devices ---- */

static int check(enum data_path wish, uint8_t data, uint64_t features)
{
	const struct backend ops = { .name = "it", .data = data };
	const struct backend_spec low = { .ops = &ops },
				  spec = { .ops = &backend_throttle, .child = &low };

	error[0] = '\0';
	return shmem_check(wish, &spec, features, error);
}

static void test_which_devices(void **state)
{
	(void)state;
	assert_int_equal(check(DATA_PATH_AUTO, BACKEND_DATA_SHMEM, LINUX_7_2), 0);
	assert_int_equal(check(DATA_PATH_USER_COPY, BACKEND_DATA_SHMEM, ~0ull), 0);
	assert_int_equal(check(DATA_PATH_AUTO, BACKEND_DATA_SEALED, ~0ull), 0);
	assert_int_equal(check(DATA_PATH_COPY, BACKEND_DATA_SHMEM, ~0ull), -EINVAL);
	assert_non_null(strstr(error, "data_path: copy"));
	assert_int_equal(check(DATA_PATH_ZERO_COPY, BACKEND_DATA_SHMEM, ~0ull), -EINVAL);
	assert_non_null(strstr(error, "zero_copy copies nothing anyway"));
	assert_int_equal(check(DATA_PATH_AUTO, BACKEND_DATA_ANY, ~0ull), -EINVAL);
	assert_non_null(strstr(error, "the backend throttle > it"));
	assert_int_equal(check(DATA_PATH_AUTO, BACKEND_DATA_SHMEM, UBLK_F_USER_COPY), -EOPNOTSUPP);
	assert_non_null(strstr(error, "Linux 7.1"));
}

/* ---- which descriptors ---- */

static int make_memory(size_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 &&
		    fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static void refused_as(int fd, bool wants_sealed, const char *words)
{
	struct shmem_file file;

	error[0] = '\0';
	assert_int_equal(shmem_file_check(fd, wants_sealed, &file, error), -EINVAL);
	if (!strstr(error, words))
		fail_msg("\"%s\" is not in \"%s\"", words, error);
	close(fd);
}

static void refused(int fd, const char *words)
{
	refused_as(fd, false, words);
}

static void test_which_descriptors(void **state)
{
	struct shmem_file file;
	char path[] = "/tmp/test_shmem.XXXXXX";
	int pipes[2], fd = make_memory(3 * PAGE, F_SEAL_SHRINK);

	(void)state;
	assert_int_equal(shmem_file_check(fd, false, &file, error), 0);
	assert_int_equal(file.bytes, 3 * PAGE);
	assert_int_equal(file.page_bytes, PAGE);
	assert_false(file.read_only);
	assert_int_equal(shmem_file_check(fd, true, &file, error), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_int_equal(shmem_file_check(fd, false, &file, error), 0);
	assert_true(file.read_only);
	close(fd);
	refused(make_memory(3 * PAGE, 0), "not sealed against shrinking");
	refused(memfd_create("test", MFD_CLOEXEC), "not sealed against shrinking");
	refused(make_memory(0, F_SEAL_SHRINK), "multiple of its pages of 4096");
	refused(make_memory(PAGE + 512, F_SEAL_SHRINK), "multiple of its pages of 4096");
	refused(make_memory((1ull << 32) + PAGE, F_SEAL_SHRINK), "larger than 4 GiB");
	assert_int_equal(pipe(pipes), 0);
	close(pipes[1]);
	refused(pipes[0], "is no memory");
	refused(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "is no memory");
	refused(open("/dev/zero", O_RDWR | O_CLOEXEC), "is no memory");
	refused(-1, "is no memory");
	fd = mkstemp(path);
	unlink(path);
	/* Of a disk, or of tmpfs, but without a name: neither is taken. */
	refused(fd, fcntl(fd, F_GET_SEALS) < 0 ? "is no memory" : "not sealed against shrinking");
}

/* A file with a name cannot be sealed by anybody. */
static void test_files_in_tmpfs(void **state)
{
	char path[] = "/dev/shm/test_shmem.XXXXXX";
	int fd = mkstemp(path);
	struct shmem_file file;

	(void)state;
	if (fd < 0 || fcntl(fd, F_GET_SEALS) < 0)
		skip();
	assert_int_equal(ftruncate(fd, PAGE), 0);
	assert_int_equal(shmem_file_check(fd, false, &file, error), 0);
	assert_false(file.read_only);
	close(fd);
	refused_as(open(path, O_RDWR | O_CLOEXEC), true, "whose pages nobody can take away");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(shmem_file_check(fd, false, &file, error), 0);
	assert_true(file.read_only);
	close(fd);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	unlink(path);
	refused(fd, "for writing alone");
}

/* ---- where the bytes are ---- */

static void test_where_the_bytes_are(void **state)
{
	static struct shmem_buffers all;
	struct shmem_map map = { .bytes = 4 * PAGE };
	uint8_t memory[4 * PAGE];
	unsigned idx = 99;

	(void)state;
	all.align_mask = 511;
	all.buffer[3] = (struct shmem_buffer){ .base = memory, .map = &map };
	assert_null(shmem_find(&all, 3ull << 32, 512, false, &idx)); /* not yet, or no more */
	atomic_store(&all.buffer[3].usable_bytes, sizeof(memory));
	assert_ptr_equal(shmem_find(&all, 3ull << 32 | PAGE, 3 * PAGE, true, &idx), memory + PAGE);
	assert_int_equal(idx, 3);
	assert_null(shmem_find(&all, 3ull << 32 | PAGE, 3 * PAGE + 512, false, &idx));
	assert_null(shmem_find(&all, 3ull << 32 | 0xfffffe00, 1024, false, &idx));
	assert_null(shmem_find(&all, 3ull << 32 | 256, 512, false, &idx));
	assert_null(shmem_find(&all, 2ull << 32, 512, false, &idx));
	assert_null(shmem_find(&all, 16ull << 32, 512, false, &idx));
	assert_null(shmem_find(&all, 0xffffull << 32, 512, false, &idx));
	all.buffer[3].read_only = true;
	assert_null(shmem_find(&all, 3ull << 32, 512, true, &idx));
	assert_non_null(shmem_find(&all, 3ull << 32, 512, false, &idx));
	atomic_store(&map.torn, true);
	assert_null(shmem_find(&all, 3ull << 32, 512, false, &idx));
}

/* ---- pages that go missing ---- */

static void *touch(void *arg)
{
	volatile uint8_t *at = arg;
	uint8_t was = *at;

	*at = 7;
	return (void *)(uintptr_t)(was + 1);
}

/* On a thread of the kind that serves: all other signals are blocked there. */
static uintptr_t touched_by_a_thread(uint8_t *at)
{
	const struct thread_params params = { .name = "touch", .run = touch, .arg = at };
	pthread_t thread;
	void *ret;

	assert_int_equal(thread_start(&thread, &params), 0);
	pthread_join(thread, &ret);
	return (uintptr_t)ret;
}

static void test_a_page_goes_missing(void **state)
{
	int fd = make_memory(4 * PAGE, 0), other = make_memory(PAGE, 0);
	struct shmem_map *map, *beside;

	(void)state;
	assert_int_equal(shmem_map_open(&map, fd, 4 * PAGE, PAGE, false), 0);
	assert_int_equal(shmem_map_open(&beside, other, PAGE, PAGE, false), 0);
	memset(map->base, 1, 4 * PAGE);
	assert_int_equal(touched_by_a_thread(map->base + 2 * PAGE), 2);
	assert_false(shmem_map_torn(map));
	assert_int_equal(ftruncate(fd, PAGE), 0);
	assert_int_equal(touched_by_a_thread(map->base + 2 * PAGE), 1);
	assert_true(shmem_map_torn(map));
	assert_int_equal(map->base[2 * PAGE], 7);
	assert_int_equal(map->base[0], 1);
	assert_false(shmem_map_torn(beside));
	shmem_map_close(map);
	shmem_map_close(beside);
	shmem_map_close(NULL);
	close(other);
	close(fd);
}

/* What is not ours ends the process, as it should. */
static void bad_access(bool sent)
{
	int fd = make_memory(PAGE, 0);
	volatile uint8_t *alien = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	struct shmem_map *map;

	signal(SIGBUS, SIG_DFL);
	if (shmem_map_open(&map, fd, PAGE, PAGE, false) < 0 || ftruncate(fd, 0) < 0)
		_exit(1);
	if (sent)
		raise(SIGBUS);
	else
		_exit(*alien);
	_exit(2);
}

static void test_other_bad_accesses(void **state)
{
	(void)state;
	for (int sent = 0; sent < 2; sent++) {
		pid_t pid = fork();
		int status;

		if (pid == 0)
			bad_access(sent);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	}
}

static void test_maps_end(void **state)
{
	struct shmem_map *maps[SHMEM_MAPS_MAX], *more;
	int fd = make_memory(PAGE, 0);

	(void)state;
	for (unsigned i = 0; i < SHMEM_MAPS_MAX; i++)
		assert_int_equal(shmem_map_open(&maps[i], fd, PAGE, PAGE, true), 0);
	assert_int_equal(shmem_map_open(&more, fd, PAGE, PAGE, true), -ENOSPC);
	shmem_map_close(maps[0]);
	assert_int_equal(shmem_map_open(&maps[0], fd, PAGE, PAGE, true), 0);
	for (unsigned i = 0; i < SHMEM_MAPS_MAX; i++)
		shmem_map_close(maps[i]);
	assert_int_equal(shmem_map_open(&more, -1, PAGE, PAGE, true), -EBADF);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_which_devices),
		cmocka_unit_test(test_which_descriptors),
		cmocka_unit_test(test_files_in_tmpfs),
		cmocka_unit_test(test_where_the_bytes_are),
		/* Before there is a handler: a child has the default of before. */
		cmocka_unit_test(test_other_bad_accesses),
		cmocka_unit_test(test_a_page_goes_missing),
		cmocka_unit_test(test_maps_end),
	};

	return cmocka_run_group_tests_name("shmem", tests, NULL, NULL);
}
