/*
 * Asks the loop devices: any thread, and for each call one thread that asks. A job is shared by the
 * two, under its lock; the last of them frees it.
 *
 * Happy path: no loop device has a file, or all answer in microseconds. Failure modes: one does not
 * answer (its file is on a server that is dead): the thread is left alone with the job until the
 * answer comes; while there is such a thread no other is started, and all loop devices are unknown.
 * One that may not be opened is unknown.
 */
#include "host/block_loops.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/loop.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "base/util.h"
#include "host/sysfs.h"

#define WAIT_NS NS_PER_SEC

struct loops_job {
	pthread_mutex_t lock;
	pthread_cond_t answered;
	unsigned holders;
	size_t nr, asked_nr;
	bool left; /* the caller waits no more */
	struct block_loop loop[];
};

/* Threads that were left alone and have not ended: more of them would wait for the same server. */
static atomic_uint left_nr;

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

/* With the lock, which is gone afterwards. */
static void loops_job_let_go_and_unlock(struct loops_job *job)
{
	bool last = --job->holders == 0;

	pthread_mutex_unlock(&job->lock);
	if (!last)
		return;
	pthread_cond_destroy(&job->answered);
	pthread_mutex_destroy(&job->lock);
	free(job);
}

static void *loops_thread(void *arg)
{
	struct loops_job *job = arg;

	pthread_mutex_lock(&job->lock);
	while (job->asked_nr < job->nr && !job->left) {
		struct block_loop loop = job->loop[job->asked_nr];

		pthread_mutex_unlock(&job->lock);
		ask_loop(&loop);
		pthread_mutex_lock(&job->lock);
		job->loop[job->asked_nr++] = loop;
	}
	if (job->left)
		atomic_fetch_sub(&left_nr, 1);
	pthread_cond_signal(&job->answered);
	loops_job_let_go_and_unlock(job);
	return NULL;
}

/* NULL: no memory. The job has a copy of the loops: its thread may live longer than the caller. */
static struct loops_job *loops_job_create(const struct block_loop *loops, size_t nr)
{
	struct loops_job *job = calloc(1, sizeof(*job) + nr * sizeof(*loops));
	pthread_condattr_t clock;

	if (!job)
		return NULL;
	pthread_mutex_init(&job->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&job->answered, &clock);
	pthread_condattr_destroy(&clock);
	job->holders = 1;
	job->nr = nr;
	memcpy(job->loop, loops, nr * sizeof(*loops));
	return job;
}

/* With the lock. */
static void loops_job_wait(struct loops_job *job)
{
	struct timespec until;
	int ret = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += WAIT_NS / NS_PER_SEC;
	while (job->asked_nr < job->nr && ret == 0)
		ret = pthread_cond_timedwait(&job->answered, &job->lock, &until);
	job->left = job->asked_nr < job->nr;
	if (job->left)
		atomic_fetch_add(&left_nr, 1);
}

static int ask_all(struct block_loop *loops, size_t nr)
{
	struct loops_job *job;
	struct thread_params params = {
		.name = "ask-loops",
		.stack_bytes = THREAD_STACK_BYTES,
		.run = loops_thread,
	};

	if (atomic_load(&left_nr) > 0)
		return 0;
	job = loops_job_create(loops, nr);
	if (!job)
		return -ENOMEM;
	params.arg = job;
	pthread_mutex_lock(&job->lock);
	if (thread_start(NULL, &params) == 0) {
		job->holders++;
		loops_job_wait(job);
	}
	memcpy(loops, job->loop, nr * sizeof(*loops));
	loops_job_let_go_and_unlock(job);
	return 0;
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
