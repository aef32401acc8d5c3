/* file: which version its bytes have (storage/version.h) is asked behind the lock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "backends/file/file.h"
#include "storage/registry.h"
#include "storage/version.h"

static int writer_fd = -1;

int __real_file_lock(struct backend_device *device);
int __wrap_file_lock(struct backend_device *device);
/* A writer that writes its last bytes and lets go just before the lock is taken. */
int __wrap_file_lock(struct backend_device *device)
{
	if (writer_fd >= 0) {
		assert_int_equal(pwrite(writer_fd, "longer", 6, 1 << 20), 6);
		close(writer_fd);
		writer_fd = -1;
	}
	return __real_file_lock(device);
}

static void test_version_is_of_the_locked(void **state)
{
	char now[BACKEND_VERSION_BYTES];
	struct backend_version version;
	char path[] = "/tmp/test_file_version.XXXXXX", error[BACKEND_ERROR_BYTES];
	const struct backend_open_params open_params = { .logical_block_bytes = 512,
							 .max_io_bytes = 1 << 20,
							 .read_only = true };
	struct file_config config = { .path = path, .lock = FILE_LOCK_AUTO };
	const struct backend_spec spec = { .ops = &backend_file, .config = &config };
	struct backend_device *device = NULL;

	(void)state;
	writer_fd = mkstemp(path);
	assert_true(writer_fd >= 0);
	assert_int_equal(ftruncate(writer_fd, 1 << 20), 0);
	assert_int_equal(backend_open(&device, &spec, "disk", &open_params, error, sizeof(error)),
			 0);
	assert_int_equal(writer_fd, -1);
	backend_version(device, &version);
	assert_int_equal(backend_version_now(device, now), 0);
	assert_string_equal(version.found, now);
	backend_close(device);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_version_is_of_the_locked) };

	return cmocka_run_group_tests_name("file_version", tests, NULL, NULL);
}
