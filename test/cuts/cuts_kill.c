/*
 * A process works on the image and dies, at a basic block of the node that chance names
 * (-fsanitize=...trace-pc); then the next one takes over what it has left: the disk, with all
 * writes that had ended, and the memfd of the node's tables.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "test/cuts/cuts_world.h"

#define LIVES_MAX 8u
#define STATUS_KILLED 77
#define STATUS_DONE 78
#define PLACES_NR 512u

static struct world *dying;
static uint32_t values[MODEL_SECTORS_MAX];

void __sanitizer_cov_trace_pc(void);

/* Of PLACES_NR groups of basic blocks the one that the caller is of; the same in each process. */
static unsigned place_of(const void *caller)
{
	uint64_t at = (uint64_t)caller - (uint64_t)&__sanitizer_cov_trace_pc;

	return (unsigned)(at * 0x9e3779b97f4a7c15ull >> 40) % PLACES_NR;
}

void __sanitizer_cov_trace_pc(void)
{
	if (!dying || dying->points_left == 0 || dying->disk->header_nr < dying->place_header_nr)
		return;
	if (dying->place < PLACES_NR && place_of(__builtin_return_address(0)) != dying->place)
		return;
	if (--dying->points_left == 0)
		_exit(STATUS_KILLED);
}

/*
 * At any block, the more often it runs the likelier; or at one of a few, so that rare ones count;
 * or soon after a header was written.
 */
static void choose_points(struct world *w)
{
	w->place = PLACES_NR;
	w->points_left = 1ull << prng_between(&w->prng, 3, 20);
	w->points_left += prng_below(&w->prng, w->points_left);
	if (prng_one_in(&w->prng, 2)) {
		w->place = (unsigned)prng_below(&w->prng, PLACES_NR);
		w->points_left = prng_between(&w->prng, 1, 64);
	}
	w->place_header_nr = 0;
	if (w->changes.one_in && prng_one_in(&w->prng, 2)) {
		w->place = PLACES_NR;
		w->points_left = prng_between(&w->prng, 1, 2048);
		w->place_header_nr = w->disk->header_nr + prng_between(&w->prng, 1, 4);
	}
}

/* In a process of its own. */
static void live(struct world *w, struct rig *rig)
{
	choose_points(w);
	dying = w;
	if (run_guest(w, rig))
		w->points_left = 0;
	_exit(STATUS_DONE);
}

/* A FLUSH that fails fails the open: it is tried again, as the daemon does. Then none fails. */
static int open_life(struct world *w, struct rig *rig, int stored_fd, int owed_fd)
{
	int ret = -EIO;

	for (unsigned nr = 0; nr < 2 && ret < 0; nr++) {
		run_rig_init(w, rig);
		rig->owed_fd = owed_fd;
		ret = rig_open(rig, &w->shape, w->disk, stored_fd);
		disk_fail_flushes(w->disk, 0);
	}
	return ret;
}

/* A process dies while it opens the image, or just after. */
static void die_early(struct world *w, int stored_fd, int owed_fd)
{
	static struct rig rig;
	int status;
	pid_t pid = fork();

	ASSERT(pid >= 0);
	if (pid == 0) {
		w->place = PLACES_NR;
		w->place_header_nr = 0;
		w->points_left = prng_between(&w->prng, 1, 1u << prng_between(&w->prng, 1, 14));
		dying = w;
		open_life(w, &rig, stored_fd, owed_fd);
		w->points_left = 0;
		_exit(STATUS_DONE);
	}
	ASSERT(waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status))
		world_fail(w, "a process that opens ends with status %x", (unsigned)status);
	disk_orphan(w->disk);
}

static bool life(struct world *w, int *stored_fd, int owed_fd)
{
	static struct rig rig;
	unsigned error_one_in = w->disk->error_one_in;
	unsigned flush_error_one_in = w->disk->flush_error_one_in;
	int ret, status, fd;
	pid_t pid;

	/* Not before all has been read. */
	w->disk->error_one_in = 0;
	if (prng_one_in(&w->prng, 4))
		die_early(w, *stored_fd, owed_fd);
	disk_fail_flushes(w->disk, flush_error_one_in);
	ret = open_life(w, &rig, *stored_fd, owed_fd);
	if (ret < 0)
		return world_fail(w, "it cannot be opened: %d %s", ret, rig.words);
	fd = fcntl(backend_stored_fd(rig.device, 0), F_DUPFD_CLOEXEC, 3);
	if (*stored_fd > 0)
		close(*stored_fd);
	*stored_fd = fd;
	if (!world_read_all(w, &rig, false, values) || !change_adopted(w, values))
		return false;
	w->disk->error_one_in = error_one_in;
	disk_fail_flushes(w->disk, flush_error_one_in);
	pid = fork();
	ASSERT(pid >= 0);
	if (pid == 0)
		live(w, &rig);
	ASSERT(waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status) ||
	    (WEXITSTATUS(status) != STATUS_KILLED && WEXITSTATUS(status) != STATUS_DONE))
		return world_fail(w, "a process ends with status %x", (unsigned)status);
	rig_drop(&rig);
	disk_orphan(w->disk);
	model_killed(&w->model);
	w->kill_nr++;
	return !world_failed(w);
}

/*
 * A copy of all that the dead process has left is taken over and closed at once: nothing that comes
 * later can make up for what was lost.
 */
static bool judge_taken_over(struct world *w, int stored_fd, int owed_fd)
{
	static struct rig rig;
	int copy = cuts_copy_memory(stored_fd), ret;
	int owed_copy = cuts_copy_memory(owed_fd);

	disk_copy(w->disk, w->left);
	memset(&rig, 0, sizeof(rig));
	rig.queue_nr = rig.depth = 1;
	rig.home = rig_reactor(1, 0);
	rig.reactor[0] = rig_reactor(1, 1);
	rig.config.cache_bytes = w->cache_bytes;
	rig.owed_fd = owed_copy;
	ret = rig_open(&rig, &w->shape, w->left, copy);
	close(copy);
	close(owed_copy);
	if (ret < 0)
		return world_fail(w, "what was left cannot be taken over: %d %s", ret, rig.words);
	if (rig_close(&rig) < 0)
		return world_fail(w, "what was taken over cannot be closed");
	return judge_image(w, false, false, values);
}

void kill_world(struct world *w)
{
	unsigned lives = (unsigned)prng_between(&w->prng, 1, LIVES_MAX);
	static struct rig rig;
	int stored_fd = 0, owed_fd = memfd_create("owed", MFD_CLOEXEC), ret;

	ASSERT(owed_fd > 0 && ftruncate(owed_fd, BACKEND_OWED_BYTES) == 0);
	for (unsigned i = 0; i < lives; i++) {
		if (!life(w, &stored_fd, owed_fd))
			return;
		if (!judge_taken_over(w, stored_fd, owed_fd))
			return;
		/* And power may be lost too. */
		if (prng_one_in(&w->prng, 2) && !judge_cut(w))
			return;
	}
	w->disk->error_one_in = 0;
	ret = open_life(w, &rig, stored_fd, owed_fd);
	if (ret < 0)
		world_fail(w, "it cannot be opened: %d %s", ret, rig.words);
	else if (world_read_all(w, &rig, false, values) && change_adopted(w, values) &&
		 run_close(w, &rig))
		judge_cut(w);
	close(stored_fd);
	close(owed_fd);
}
