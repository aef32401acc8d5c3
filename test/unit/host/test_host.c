/* What is read of /proc and /sys: lines of mountinfo, and a look at a disk of this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/util.h"
#include "host/block_tree.h"
#include "host/block_users.h"
#include "host/mounts.h"
#include "host/proc_fds.h"

static const char lines[] =
	"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
	"36 22 98:3 /sub\\040dir /mnt/a\\040b\\134c rw master:7 - xfs /dev/odd\\040node "
	"rw,logdev=/dev/sdb\n"
	"37 22 0:44 / /net rw,noatime shared:3 master:9 propagate_from:2 - nfs4 server:/x rw\n"
	"nonsense\n"
	"38 22 0:45 / /none rw - tmpfs  rw\n";

struct seen {
	unsigned nr, max;
};

static bool check_line(const struct mount_info *m, void *arg)
{
	struct seen *seen = arg;

	switch (seen->nr++) {
	case 0:
		assert_int_equal(m->dev, makedev(8, 1));
		assert_string_equal(m->point, "/");
		assert_true(m->shared && !m->slave);
		break;
	case 1:
		assert_int_equal(m->id, 36);
		assert_int_equal(m->parent, 22);
		assert_string_equal(m->root, "/sub dir");
		assert_string_equal(m->point, "/mnt/a b\\c");
		assert_string_equal(m->source, "/dev/odd node");
		assert_string_equal(m->options, "rw,logdev=/dev/sdb");
		assert_true(!m->shared && m->slave);
		break;
	case 2:
		assert_string_equal(m->type, "nfs4");
		assert_string_equal(m->source, "server:/x");
		assert_true(m->shared && m->slave);
		break;
	case 3: /* an empty source */
		assert_string_equal(m->source, "");
		assert_string_equal(m->point, "/none");
		break;
	default:
		fail_msg("a line too many");
	}
	return seen->nr < seen->max;
}

static void write_lines(char path[static 32])
{
	int fd;

	snprintf(path, 32, "/tmp/test_host.XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, lines, sizeof(lines) - 1), sizeof(lines) - 1);
	close(fd);
}

static void reads_mounts(void **state)
{
	struct seen all = { .max = 99 }, two = { .max = 2 };
	char path[32];

	(void)state;
	write_lines(path);
	assert_int_equal(mounts_read(path, check_line, &all), 0);
	assert_int_equal(all.nr, 4);
	assert_int_equal(mounts_read(path, check_line, &two), 0);
	assert_int_equal(two.nr, 2);
	unlink(path);
	assert_int_equal(mounts_read(path, check_line, &two), -ENOENT);
}

static void no_disk_has_no_users(void **state)
{
	char text[64] = "x";

	(void)state;
	assert_int_equal(block_users_find("nosuchdisk", text, sizeof(text)), BLOCK_USERS_NONE);
	assert_string_equal(text, "");
}

static void a_tree_without_roots_is_empty(void **state)
{
	struct block_tree tree;

	(void)state;
	block_tree_init(&tree);
	assert_int_equal(block_tree_add_root(&tree, "nosuchdisk"), 0);
	assert_int_equal(block_tree_grow(&tree), 0);
	assert_int_equal(tree.nr, 0);
	assert_null(block_tree_find(&tree, makedev(8, 1)));
	assert_null(block_tree_find(&tree, 0));
	block_tree_fini(&tree);
}

struct wanted {
	char path[64];
	bool seen;
};

static bool is_wanted(const char *pid, const char *path, void *arg)
{
	struct wanted *w = arg;

	assert_int_equal(atoi(pid), getpid());
	w->seen |= strcmp(path, w->path) == 0;
	return w->seen;
}

static void sees_our_descriptors(void **state)
{
	/* A number that the look itself does not take. */
	int fd = fcntl(0, F_DUPFD_CLOEXEC, 100);
	struct wanted w = { .seen = false };
	char pid[16];

	(void)state;
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	snprintf(w.path, sizeof(w.path), "/proc/%s/fd/%d", pid, fd);
	assert_int_equal(proc_fds_of(pid, is_wanted, &w), 0);
	assert_true(w.seen);
	close(fd);
	w.seen = false;
	assert_int_equal(proc_fds_of(pid, is_wanted, &w), 0);
	assert_false(w.seen);
	assert_int_equal(proc_fds_of("999999999", is_wanted, &w), 0);
}

/* ---- two threads look at once ---- */

#define DISKS_MAX 4
#define LOOKS 20

struct looker {
	const char (*disk)[32];
	size_t disk_nr;
	pthread_barrier_t *begin;
	unsigned wrong_nr;
};

/* Disks of this machine and, where there are any, loop devices with a file. */
static size_t find_disks(char disk[DISKS_MAX][32])
{
	glob_t found;
	size_t nr = 0;

	if (glob("/sys/block/[!r]*", 0, NULL, &found) != 0)
		return 0;
	for (size_t i = 0; i < found.gl_pathc && nr < DISKS_MAX; i++)
		if (sscanf(found.gl_pathv[i], "/sys/block/%31s", disk[nr]) == 1)
			nr++;
	globfree(&found);
	return nr;
}

/* A look of a call alone ends its own text, and frees its own tree, once. */
static void *look_again_and_again(void *arg)
{
	struct looker *l = arg;
	char text[512];

	pthread_barrier_wait(l->begin);
	for (unsigned i = 0; i < LOOKS; i++) {
		enum block_users found =
			block_users_find(l->disk[i % l->disk_nr], text, sizeof(text));

		if ((found == BLOCK_USERS_NONE) != (text[0] == '\0'))
			l->wrong_nr++;
		/* What another look at the same time asks is no reason not to know. */
		if (strstr(text, "does not tell what it stands on"))
			l->wrong_nr++;
	}
	return NULL;
}

static void two_threads_look_at_once(void **state)
{
	char disk[DISKS_MAX][32], text[512];
	pthread_barrier_t begin;
	struct looker looker[2];
	pthread_t thread[2];
	size_t nr = find_disks(disk);

	(void)state;
	if (nr == 0) {
		print_message("# this machine shows no disk\n");
		skip();
	}
	for (size_t i = 0; i < nr; i++) {
		block_users_find(disk[i], text, sizeof(text));
		if (strstr(text, "does not tell what it stands on")) {
			print_message("# a loop device may not be asked here\n");
			skip();
		}
	}
	pthread_barrier_init(&begin, NULL, 2);
	for (size_t i = 0; i < 2; i++) {
		looker[i] = (struct looker){ disk, nr, &begin, 0 };
		assert_int_equal(pthread_create(&thread[i], NULL, look_again_and_again, &looker[i]),
				 0);
	}
	for (size_t i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	pthread_barrier_destroy(&begin);
	assert_int_equal(looker[0].wrong_nr, 0);
	assert_int_equal(looker[1].wrong_nr, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_mounts),
		cmocka_unit_test(no_disk_has_no_users),
		cmocka_unit_test(a_tree_without_roots_is_empty),
		cmocka_unit_test(sees_our_descriptors),
		cmocka_unit_test(two_threads_look_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
