/*
 * For tests with a real ublkd-keeper. The test adopts it (it is nobody's child otherwise), to know
 * its pid and how it ended: with a sanitizer a keeper that leaks or errs ends with another code
 * than 0.
 */
#ifndef TEST_RIG_FD_STORE_CHECK_H
#define TEST_RIG_FD_STORE_CHECK_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "daemon/fdstore/fd_store.h"

static char fd_store_dir[64], state_dir[128], socket_path[160];

static inline void clear_env(void)
{
	unsetenv("NOTIFY_SOCKET");
	unsetenv("FDSTORE");
	unsetenv("UBLKD_FDSTORE");
}

static inline int fd_store_setup(void **state)
{
	(void)state;
	clear_env();
	strcpy(fd_store_dir, "/tmp/test_park.XXXXXX");
	if (!mkdtemp(fd_store_dir) || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return -1;
	snprintf(state_dir, sizeof(state_dir), "%s/state", fd_store_dir);
	snprintf(socket_path, sizeof(socket_path), "%s/keeper.sock", state_dir);
	return 0;
}

/* The one child that this process has, or 0. */
static inline pid_t keeper_pid(void)
{
	char path[64];
	int pid = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	file = fopen(path, "re");
	if (file && fscanf(file, "%d", &pid) != 1)
		pid = 0;
	if (file)
		fclose(file);
	return pid;
}

/* Returns the keeper's status as waitpid does, or -1 when it did not end within a minute. */
static inline int keeper_ended(void)
{
	int status;

	for (int i = 0; i < 6000; i++) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid > 0)
			return status;
		if (pid < 0)
			return -1;
		usleep(10000);
	}
	return -1;
}

/* A test leaves no keeper behind; one that failed may have. */
static inline int fd_store_teardown(void **state)
{
	char command[128];
	bool clean = true;
	pid_t pid;

	(void)state;
	while ((pid = keeper_pid()) > 0) {
		clean = false;
		kill(pid, SIGKILL);
		keeper_ended();
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", fd_store_dir);
	return system(command) == 0 && clean ? 0 : -1;
}

static inline int memory(const char *word)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd > 0);
	assert_int_equal(pwrite(fd, word, strlen(word), 0), strlen(word));
	return fd;
}

static inline bool holds(int fd, const char *word)
{
	char text[64];
	ssize_t bytes = fd < 0 ? -1 : pread(fd, text, sizeof(text), 0);

	return bytes == (ssize_t)strlen(word) && memcmp(text, word, (size_t)bytes) == 0;
}

static inline void put_word(struct fd_store *fd_store, const char *name, const char *word)
{
	int fd = memory(word);

	fd_store_put(fd_store, name, fd);
	close(fd);
}

static inline void open_fd_store(struct fd_store *fd_store)
{
	assert_int_equal(fd_store_open(fd_store, state_dir), 0);
	fd_store->keeper_exe = UBLKD_KEEPER;
}

/* The last one is dropped: the keeper ends in good health, and its socket is gone. */
static inline void drop_and_end(struct fd_store *fd_store, const char *name)
{
	fd_store_drop(fd_store, name);
	assert_int_equal(keeper_ended(), 0);
	assert_int_equal(access(socket_path, F_OK), -1);
}

static inline unsigned count_fds(pid_t pid)
{
	char path[64];
	unsigned nr = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		nr++;
	closedir(dir);
	return nr;
}

static inline double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#endif
