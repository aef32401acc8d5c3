/*
 * Asks the loop devices. Main thread, and one thread that asks.
 *
 * Happy path: no loop device has a file, or all answer in microseconds. Failure modes: one does not
 * answer (its file is on a server that is dead): the thread is left alone with what it has, and
 * frees it when the answer comes; until then no other thread is started, and no loop device that
 * has not been asked is known. One that may not be opened is not known.
 */
#include "host/block_loops.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/loop.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "host/sysfs.h"

#define PATIENCE_NS NS_PER_SEC

struct loops_job {
	size_t nr, asked_nr;
	bool left; /* nobody waits any more: the thread frees it */
	struct block_loop loop[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered;
static bool thread_lives;

/* A number as stat(2) of the kernel has it: not that of glibc. */
static dev_t from_kernel(uint64_t dev)
{
	return makedev((dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & 0xfff00));
}

static void ask_loop(struct block_loop *loop)
{
	struct loop_info64 info;
	struct stat st;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/%s", loop->name);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && S_ISBLK(st.st_mode) && st.st_rdev == loop->dev) {
		if (ioctl(fd, LOOP_GET_STATUS64, &info) == 0) {
			loop->below_block = from_kernel(info.lo_rdevice);
			loop->below_file_system = from_kernel(info.lo_device);
			loop->known = true;
		} else if (errno == ENXIO) {
			loop->known = true; /* its file has gone meanwhile */
		}
	}
	close(fd);
}

static void *loops_thread(void *arg)
{
	struct loops_job *job = arg;
	size_t nr = job->nr;
	bool left = false;

	/* After the last answer the job is no longer ours. */
	for (size_t i = 0; i < nr && !left; i++) {
		struct block_loop loop = job->loop[i];

		ask_loop(&loop);
		pthread_mutex_lock(&lock);
		job->loop[i] = loop;
		job->asked_nr++;
		left = job->left;
		if (left || job->asked_nr == nr)
			thread_lives = false;
		pthread_cond_signal(&answered);
		pthread_mutex_unlock(&lock);
	}
	if (left)
		free(job);
	return NULL;
}

/* False: no thread; nothing is asked. */
static bool start_thread(struct loops_job *job)
{
	pthread_condattr_t clock;
	pthread_attr_t attr;
	sigset_t all;
	pthread_t thread;
	bool started;

	if (thread_lives)
		return false;
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&answered, &clock);
	pthread_condattr_destroy(&clock);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_attr_setsigmask_np(&attr, &all);
	thread_lives = true;
	started = pthread_create(&thread, &attr, loops_thread, job) == 0;
	thread_lives = started;
	pthread_attr_destroy(&attr);
	return started;
}

/* Copies what is known; true: the thread is done with the job. */
static bool wait_for_thread(struct loops_job *job, struct block_loop *ret_loops)
{
	struct timespec until;
	int ret = 0;
	bool done;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += PATIENCE_NS / NS_PER_SEC;
	pthread_mutex_lock(&lock);
	while (job->asked_nr < job->nr && ret == 0)
		ret = pthread_cond_timedwait(&answered, &lock, &until);
	done = job->asked_nr == job->nr;
	job->left = !done;
	memcpy(ret_loops, job->loop, job->nr * sizeof(*ret_loops));
	pthread_mutex_unlock(&lock);
	return done;
}

static size_t list_loops(const glob_t *found, struct block_loop *loops)
{
	size_t nr = 0;

	for (size_t i = 0; i < found->gl_pathc; i++) {
		struct block_loop *loop = &loops[nr];

		*loop = (struct block_loop){ .known = false };
		if (sscanf(found->gl_pathv[i], "/sys/block/%31[^/]", loop->name) == 1 &&
		    sysfs_dev_of(loop->name, &loop->dev))
			nr++;
	}
	return nr;
}

/* The thread has a copy of its own: it may live longer than whoever asked. */
static int ask_all(struct block_loop *loops, size_t nr)
{
	struct loops_job *job = calloc(1, sizeof(*job) + nr * sizeof(*loops));
	bool started;

	if (!job)
		return -ENOMEM;
	job->nr = nr;
	memcpy(job->loop, loops, nr * sizeof(*loops));
	pthread_mutex_lock(&lock);
	started = start_thread(job);
	pthread_mutex_unlock(&lock);
	if (!started || wait_for_thread(job, loops))
		free(job);
	return 0;
}

int block_loops_find(struct block_loop **ret_loops, size_t *ret_nr)
{
	struct block_loop *loops;
	glob_t found;
	size_t nr;
	int ret = 0;

	if (glob("/sys/block/loop*/loop/backing_file", GLOB_NOSORT, NULL, &found) != 0)
		found.gl_pathc = 0;
	loops = calloc(found.gl_pathc + 1, sizeof(*loops));
	nr = loops ? list_loops(&found, loops) : 0;
	if (found.gl_pathc > 0)
		globfree(&found);
	if (!loops)
		return -ENOMEM;
	if (nr > 0)
		ret = ask_all(loops, nr);
	if (ret < 0) {
		free(loops);
		return ret;
	}
	*ret_loops = loops;
	*ret_nr = nr;
	return 0;
}
