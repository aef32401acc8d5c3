/* memory: what /proc/meminfo and control groups say, as files in a folder of the test's own. */
#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/mem/mem_available.h"
#include "base/util.h"

static char root[] = "/tmp/test_memory.XXXXXX";

static void put(const char *name, const char *text)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *slash = strchr(path + strlen(root) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void put_machine(unsigned total_mib, unsigned available_mib, unsigned dirty_mib)
{
	char text[256];

	snprintf(text, sizeof(text),
		 "MemTotal:       %u kB\nMemFree:        1 kB\nMemAvailable:   %u kB\n"
		 "Dirty:   %u kB\nWriteback:   0 kB\nWritebackTmp:   77777777 kB\n",
		 total_mib << 10, available_mib << 10, dirty_mib << 10);
	put("proc/meminfo", text);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int setup(void **state)
{
	(void)state;
	memcpy(root + strlen(root) - 6, "XXXXXX", 6);
	if (!mkdtemp(root))
		return -1;
	memory_set_root(root);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	memory_set_root("");
	return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void test_nothing_known(void **state)
{
	struct memory_look look;

	(void)state;
	memory_look(&look, root, 1);
	assert_true(look.limit_bytes == UINT64_MAX);
	assert_true(look.left_bytes == UINT64_MAX);
	assert_int_equal(memory_take(GIB(1000)), 0);
}

static void test_margin(void **state)
{
	(void)state;
	assert_int_equal(memory_margin(MIB(10)), MIB(8));
	assert_int_equal(memory_margin(GIB(1)), MIB(64));
	assert_int_equal(memory_margin(GIB(1024)), MIB(512));
}

static void test_machine(void **state)
{
	struct memory_look look;

	(void)state;
	put_machine(1024, 600, 100);
	memory_look(&look, root, 1);
	assert_int_equal(look.limit_bytes, MIB(1024));
	assert_int_equal(look.left_bytes, MIB(600 - 100 - 64));
	assert_string_equal(look.whose, "this machine");
	put_machine(1024, 60, 0);
	memory_look(&look, root, 1);
	assert_int_equal(look.left_bytes, 0);
}

/* The limit of a group above ours counts, and file pages are the group's to give. */
static void test_groups(void **state)
{
	struct memory_look look;

	(void)state;
	put_machine(4096, 4000, 0);
	put("proc/self/cgroup", "1:name=systemd:/x\n0::/a.slice/b.service\n");
	put("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
	put("sys/fs/cgroup/a.slice/b.service/memory.high", "max\n");
	put("sys/fs/cgroup/a.slice/memory.max", "268435456\n");
	put("sys/fs/cgroup/a.slice/memory.high", "max\n");
	put("sys/fs/cgroup/a.slice/memory.current", "104857600\n");
	put("sys/fs/cgroup/a.slice/memory.stat",
	    "anon 1\nactive_file 1048576\ninactive_file 4194304\nfile_dirty 1048576\n"
	    "file_writeback 0\n");
	memory_look(&look, root, 1);
	assert_int_equal(look.limit_bytes, MIB(256));
	assert_int_equal(look.left_bytes, MIB(256 - 100 - 16));
	assert_string_equal(look.whose, "the control group /a.slice");
	memory_look(&look, root, GIB(1));
	assert_int_equal(look.left_bytes, MIB(256 - 100 - 16 + 4));
	put("sys/fs/cgroup/a.slice/b.service/memory.high", "134217728\n");
	put("sys/fs/cgroup/a.slice/b.service/memory.current", "134217729\n");
	memory_look(&look, root, 1);
	assert_int_equal(look.limit_bytes, MIB(128));
	assert_int_equal(look.left_bytes, 0);
	assert_string_equal(look.whose, "the control group /a.slice/b.service");
}

/* In a container the group is called "/", and has the container's limit. */
static void test_container(void **state)
{
	struct memory_look look;

	(void)state;
	put("proc/self/cgroup", "0::/\n");
	put("sys/fs/cgroup/memory.max", "67108864\n");
	put("sys/fs/cgroup/memory.current", "1048576\n");
	memory_look(&look, root, 1);
	assert_int_equal(look.limit_bytes, MIB(64));
	assert_int_equal(look.left_bytes, MIB(64 - 1 - 8));
	assert_string_equal(look.whose, "the control group /");
}

/* Takes pages until it is told no; in the meantime nothing is given back. */
static uint64_t take_all(uint64_t available_mib)
{
	uint64_t taken = 0;

	while (memory_take(KIB(4)) == 0) {
		taken += KIB(4);
		if (taken % MIB(1) == 0)
			put_machine(1024, (unsigned)(available_mib - taken / MIB(1)), 0);
		assert_true(taken < MIB(available_mib));
	}
	return taken;
}

static void test_take_until_none_is_left(void **state)
{
	(void)state;
	put_machine(1024, 264, 0);
	/* The margin is 64 MiB; a page more or less may be on its way. */
	assert_in_range(take_all(264), MIB(199), MIB(201));
	assert_int_equal(memory_take(KIB(4)), -ENOSPC);
	/* Others give some back: that is seen after a while. */
	put_machine(1024, 80, 0);
	usleep(50000);
	assert_int_equal(memory_take(KIB(4)), 0);
	assert_int_equal(memory_take(MIB(17)), -ENOSPC);
}

/* What was granted long ago may have gone to others. */
static void test_a_grant_ends(void **state)
{
	(void)state;
	put_machine(1024, 1000, 0);
	assert_int_equal(memory_take(KIB(4)), 0);
	put_machine(1024, 50, 0);
	usleep(150000);
	assert_int_equal(memory_take(KIB(4)), -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing_known, setup, teardown),
		cmocka_unit_test_setup_teardown(test_margin, setup, teardown),
		cmocka_unit_test_setup_teardown(test_machine, setup, teardown),
		cmocka_unit_test_setup_teardown(test_groups, setup, teardown),
		cmocka_unit_test_setup_teardown(test_container, setup, teardown),
		cmocka_unit_test_setup_teardown(test_take_until_none_is_left, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_grant_ends, setup, teardown),
	};

	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
