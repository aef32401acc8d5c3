/*
 * file, its open: which version the bytes have (storage/version.h) is asked behind the lock. What a
 * refusal says is enough: a user who follows the words has a device, or was not told to try.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/file/file.h"
#include "storage/registry.h"
#include "storage/version.h"

static char folder[] = "/tmp/test_file_open.XXXXXX", path[64];
static char error[BACKEND_ERROR_BYTES];
static int writer_fd = -1;
static bool is_block; /* the path is shown as a block device of its length */

int __real_file_lock(struct backend_device *device);
int __wrap_file_lock(struct backend_device *device);
int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);

/*
 * A writer that writes its last bytes and lets go just before the lock is taken. There is no block
 * device that a test may have without privileges.
 */
int __wrap_file_lock(struct backend_device *device)
{
	struct file_device *file = device->priv;
	int ret;

	if (writer_fd >= 0) {
		assert_int_equal(pwrite(writer_fd, "longer", 6, 1 << 20), 6);
		close(writer_fd);
		writer_fd = -1;
	}
	ret = __real_file_lock(device);
	file->is_block = is_block;
	return ret;
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	struct stat st;
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (!is_block || request != BLKGETSIZE64)
		return __real_ioctl(fd, request, arg);
	assert_int_equal(fstat(fd, &st), 0);
	*(uint64_t *)arg = (uint64_t)st.st_size;
	return 0;
}

static int try_open(const struct file_config *config, bool read_only)
{
	const struct backend_open_params params = { .logical_block_bytes = 4096,
						    .max_io_bytes = 1 << 20,
						    .read_only = read_only };
	const struct backend_spec spec = { .ops = &backend_file, .config = config };
	struct backend_device *device = NULL;
	int ret = backend_open(&device, &spec, "disk", &params, error, sizeof(error));

	if (ret == 0)
		backend_close(device);
	return ret;
}

static void expect_words(const struct file_config *config, bool read_only, const char *text)
{
	assert_true(try_open(config, read_only) < 0);
	if (!strstr(error, text))
		fail_msg("\"%s\" does not say \"%s\"", error, text);
}

static void make(off_t bytes)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, bytes), 0);
	close(fd);
}

static void test_missing(void **state)
{
	struct file_config config = { .path = path, .lock = FILE_LOCK_AUTO };
	char below[sizeof(path) + 8], in_dev[] = "/dev/ublkd-none";

	(void)state;
	unlink(path);
	expect_words(&config, true, "a read_only device does not create it: correct path");
	expect_words(&config, false, "set create: true and size, or correct path");
	config.create = true;
	expect_words(&config, true, "a read_only device does not create it: correct path");
	config.size_bytes = 1 << 20;
	assert_int_equal(try_open(&config, false), 0);
	snprintf(below, sizeof(below), "%s.d/x", path);
	config = (struct file_config){ .path = below, .lock = FILE_LOCK_AUTO };
	expect_words(&config, false, "x does not exist: correct path");
	config.path = in_dev;
	expect_words(&config, false, "/dev/ublkd-none does not exist: correct path");
}

static void test_too_short(void **state)
{
	struct file_config config = { .path = path, .lock = FILE_LOCK_AUTO };

	(void)state;
	make(0);
	expect_words(&config, true,
		     "has 0 bytes, less than a block of 4096: there is nothing to "
		     "read; a device that is not read_only can let it grow");
	expect_words(&config, false, "less than a block of 4096: set size and create: true");
	config.size_bytes = 1 << 20;
	expect_words(&config, false, "set create: true to let it grow");
	config.create = true;
	expect_words(&config, true,
		     "has 0, size wants 1MiB, and a read_only device does not let "
		     "it grow");
	assert_null(strstr(error, "leave size out"));
	assert_int_equal(try_open(&config, false), 0);
	make(8192);
	expect_words(&config, true, "leave size out to take what is there");
	config.size_bytes = 0;
	assert_int_equal(try_open(&config, true), 0);
}

static void test_block_device(void **state)
{
	struct file_config config = { .path = path, .lock = FILE_LOCK_AUTO };

	(void)state;
	is_block = true;
	make(0);
	for (unsigned read_only = 0; read_only < 2; read_only++) {
		expect_words(&config, read_only, "nothing is in this block device");
		assert_null(strstr(error, "create"));
	}
	make(512);
	expect_words(&config, false, "less than a block of 4096: a block device does not grow");
	config.create = true;
	config.size_bytes = 1 << 20;
	expect_words(&config, false, "size wants 1MiB, and a block device does not grow");
	assert_null(strstr(error, "leave size out"));
	make(8192);
	expect_words(&config, false, "does not grow: leave size out to take what is there");
	is_block = false;
}

static void test_version_is_of_the_locked(void **state)
{
	char now[BACKEND_VERSION_BYTES];
	struct backend_version version;
	const struct backend_open_params open_params = { .logical_block_bytes = 512,
							 .max_io_bytes = 1 << 20,
							 .read_only = true };
	struct file_config config = { .path = path, .lock = FILE_LOCK_AUTO };
	const struct backend_spec spec = { .ops = &backend_file, .config = &config };
	struct backend_device *device = NULL;

	(void)state;
	unlink(path);
	writer_fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	assert_true(writer_fd >= 0);
	assert_int_equal(ftruncate(writer_fd, 1 << 20), 0);
	assert_int_equal(backend_open(&device, &spec, "disk", &open_params, error, sizeof(error)),
			 0);
	assert_int_equal(writer_fd, -1);
	backend_version(device, &version);
	assert_int_equal(backend_version_now(device, now), 0);
	assert_string_equal(version.found, now);
	backend_close(device);
}

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/disk", folder);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_version_is_of_the_locked),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_too_short),
		cmocka_unit_test(test_block_device),
	};

	return cmocka_run_group_tests_name("file_open", tests, setup, teardown);
}
