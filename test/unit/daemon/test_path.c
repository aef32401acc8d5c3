/*
 * path: which folders and files are trusted. What another user could have put there is made by this
 * test as root; as another user, what only root can make is left out.
 */
#include <errno.h>
#include <fcntl.h>
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

#include "base/log.h"
#include "base/util.h"
#include "daemon/runtime/path.h"
#include "daemon/runtime/process.h"
#include "daemon/devices/state.h"

#define SOMEBODY 65534

static char folder[64], words[PATH_WORDS_BYTES];

static const char *in(const char *name)
{
	static char path[4][PATH_MAX];
	static unsigned next;

	next = (next + 1) % ARRAY_SIZE(path);
	snprintf(path[next], sizeof(path[next]), "%s/%s", folder, name);
	return path[next];
}

static void make_folder(const char *name, mode_t mode)
{
	assert_int_equal(mkdir(in(name), 0700), 0);
	assert_int_equal(chmod(in(name), mode), 0);
}

static int parent_of(const char *name)
{
	words[0] = '\0';
	return path_make_parent(in(name), 0755, words);
}

static int own(const char *name)
{
	int fd;

	words[0] = '\0';
	fd = path_open_own_folder(in(name), O_RDONLY, words);
	if (fd < 0)
		return fd;
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	return 0;
}

static void said(const char *what)
{
	if (!strstr(words, what))
		print_error("\"%s\" is not in: %s\n", what, words);
	assert_non_null(strstr(words, what));
}

static void test_parents_are_made(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(parent_of("a/b/c.sock"), 0);
	assert_int_equal(stat(in("a/b"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(access(in("a/b/c.sock"), F_OK), -1);
	assert_int_equal(parent_of("a/b/c.sock"), 0);
}

/* Sticky, each has his own; else anybody's file can take the place of ours. */
static void test_parents_that_others_may_write(void **state)
{
	(void)state;
	make_folder("sticky", 01777);
	make_folder("open", 0777);
	make_folder("open/ours", 0700);
	assert_int_equal(parent_of("sticky/c.sock"), 0);
	assert_int_equal(parent_of("open/c.sock"), -EPERM);
	said("others may replace what is in ");
	said("/open (its mode is 0777)");
	assert_int_equal(parent_of("open/ours/c.sock"), -EPERM);
	assert_int_equal(parent_of("open/new/c.sock"), -EPERM);
	assert_int_equal(access(in("open/new"), F_OK), -1);
	/* By way of .. and of a symlink of ours. */
	assert_int_equal(parent_of("sticky/../open/c.sock"), -EPERM);
	assert_int_equal(symlink("open/ours", in("way")), 0);
	assert_int_equal(parent_of("way/c.sock"), -EPERM);
	assert_int_equal(chmod(in("open"), 0775), 0);
	assert_int_equal(parent_of("open/c.sock"), 0); /* our own group */
	if (geteuid() != 0)
		return;
	assert_int_equal(chown(in("open"), 0, SOMEBODY), 0);
	assert_int_equal(parent_of("open/c.sock"), -EPERM);
}

static void test_symlinks_of_ours_are_followed(void **state)
{
	(void)state;
	make_folder("real", 0755);
	assert_int_equal(symlink("real", in("link")), 0);
	assert_int_equal(parent_of("link/c.sock"), 0);
	assert_int_equal(parent_of("link/more/c.sock"), 0);
	assert_int_equal(access(in("real/more"), F_OK), 0);
	assert_int_equal(symlink("nowhere", in("dangling")), 0);
	assert_int_equal(parent_of("dangling/c.sock"), -ENOENT);
	assert_int_equal(access(in("nowhere"), F_OK), -1);
	assert_int_equal(symlink("loop", in("loop")), 0);
	assert_int_equal(parent_of("loop/c.sock"), -ELOOP);
}

static void test_parents_of_somebody(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	make_folder("his", 0755);
	make_folder("his/ours", 0700);
	make_folder("real", 0755);
	assert_int_equal(chown(in("his"), SOMEBODY, 0), 0);
	assert_int_equal(parent_of("his/c.sock"), -EPERM);
	said("belongs to user 65534");
	assert_int_equal(parent_of("his/ours/c.sock"), -EPERM);
	assert_int_equal(symlink("real", in("link")), 0);
	assert_int_equal(lchown(in("link"), SOMEBODY, 0), 0);
	assert_int_equal(parent_of("link/c.sock"), -EPERM);
	assert_int_equal(parent_of("link/new/c.sock"), -EPERM);
	assert_int_equal(access(in("real/new"), F_OK), -1);
	/* A symlink of ours that leads by way of his. */
	assert_int_equal(symlink("his/ours", in("way")), 0);
	assert_int_equal(parent_of("way/c.sock"), -EPERM);
}

static void test_paths_that_are_none(void **state)
{
	char *longer = malloc(PATH_MAX + 2);
	int fd = open(in("file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	(void)state;
	close(fd);
	assert_int_equal(parent_of("file/c.sock"), -ENOTDIR);
	assert_int_equal(parent_of("file/more/c.sock"), -ENOTDIR);
	memset(longer, 'a', PATH_MAX + 1);
	longer[PATH_MAX + 1] = '\0';
	assert_int_equal(path_make_parent(longer, 0755, words), -ENAMETOOLONG);
	free(longer);
	assert_int_equal(chdir(folder), 0);
	assert_int_equal(path_make_parent("c.sock", 0755, words), 0);
	assert_int_equal(chmod(folder, 0777), 0);
	assert_int_equal(path_make_parent("c.sock", 0755, words), -EPERM);
	assert_int_equal(chdir("/"), 0);
}

static void test_folders_of_our_own(void **state)
{
	static const mode_t open_modes[] = { 0770, 0702, 01777, 0777 };
	struct state notes;

	(void)state;
	make_folder("own", 0755);
	assert_int_equal(own("own"), 0);
	assert_int_equal(own("absent"), -ENOENT);
	for (size_t i = 0; i < ARRAY_SIZE(open_modes); i++) {
		assert_int_equal(chmod(in("own"), open_modes[i]), 0);
		assert_int_equal(own("own"), -EPERM);
		said("others may write in ");
	}
	assert_int_equal(chmod(in("own"), 0700), 0);
	assert_int_equal(symlink("own", in("link")), 0);
	assert_int_equal(own("link"), -EPERM);
	said("is a symlink");
	assert_int_equal(state_open(&notes, in("link/"), words), -EPERM);
	said("is a symlink");
	assert_int_equal(state_open(&notes, in("own//"), words), 0);
	assert_string_equal(notes.path, in("own"));
	state_close(&notes);
	if (geteuid() != 0)
		return;
	assert_int_equal(chown(in("own"), SOMEBODY, 0), 0);
	assert_int_equal(own("own"), -EPERM);
	said("belongs to user 65534");
}

/* ---- the lock ---- */

static int lock(void)
{
	int fd = process_lock(in("c.sock"));

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static void put(const char *name, const char *text)
{
	FILE *f = fopen(in(name), "we");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* What was there before is what it was. */
static void still(const char *name, const char *text)
{
	char found[64] = "";
	FILE *f = fopen(in(name), "re");

	assert_non_null(f);
	assert_non_null(fgets(found, sizeof(found), f));
	fclose(f);
	assert_string_equal(found, text);
}

static void test_a_lock(void **state)
{
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(lock(), 0);
	assert_int_equal(stat(in("c.sock.lock"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(lock(), 0);
	fd = process_lock(in("c.sock"));
	assert_true(fd >= 0);
	assert_int_equal(lock(), -EAGAIN);
	close(fd);
}

static void test_locks_that_are_none(void **state)
{
	(void)state;
	put("precious", "precious");
	assert_int_equal(symlink("precious", in("c.sock.lock")), 0);
	assert_int_equal(lock(), -ELOOP);
	still("precious", "precious");
	unlink(in("c.sock.lock"));
	/* As somebody can make one of root's files where links are not protected. */
	assert_int_equal(link(in("precious"), in("c.sock.lock")), 0);
	assert_int_equal(lock(), -EPERM);
	still("precious", "precious");
	unlink(in("c.sock.lock"));
	assert_int_equal(mkfifo(in("c.sock.lock"), 0600), 0);
	assert_int_equal(lock(), -EPERM);
	unlink(in("c.sock.lock"));
	assert_int_equal(mkdir(in("c.sock.lock"), 0700), 0);
	assert_int_equal(lock(), -EISDIR);
	rmdir(in("c.sock.lock"));
	put("c.sock.lock", "1");
	assert_int_equal(chmod(in("c.sock.lock"), 0666), 0);
	assert_int_equal(lock(), -EPERM);
	still("c.sock.lock", "1");
	if (geteuid() == 0) {
		assert_int_equal(chmod(in("c.sock.lock"), 0600), 0);
		assert_int_equal(chown(in("c.sock.lock"), SOMEBODY, 0), 0);
		assert_int_equal(lock(), -EPERM);
	}
	unlink(in("c.sock.lock"));
	assert_int_equal(lock(), 0);
}

static int setup(void **state)
{
	(void)state;
	umask(022);
	strcpy(folder, "/tmp/test_path.XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static int quiet(void **state)
{
	(void)state;
	/* The lock tells of what it refuses. */
	return freopen("/dev/null", "w", stderr) ? 0 : -1;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_parents_are_made),
		TEST(test_parents_that_others_may_write),
		TEST(test_symlinks_of_ours_are_followed),
		TEST(test_parents_of_somebody),
		TEST(test_paths_that_are_none),
		TEST(test_folders_of_our_own),
		TEST(test_a_lock),
		TEST(test_locks_that_are_none),
	};

	return cmocka_run_group_tests_name("path", tests, quiet, NULL);
}
