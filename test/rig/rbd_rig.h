/*
 * Devices of the rbd backend over a cluster in memory (fake_ceph.h): one image or several, each
 * with up to two queues, turned by the thread of the test.
 */
#ifndef TEST_RIG_RBD_RIG_H
#define TEST_RIG_RBD_RIG_H

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "backends/rbd/rbd.h"
#include "storage/resize.h"
#include "storage/registry.h"
#include "test/rig/config_check.h"
#include "test/rig/fake_ceph.h"
#include "test/rig/log_catch.h"

#define RBD_DEPTH 16
#define RBD_QUEUES 2
#define RBD_IO_BYTES 65536u
#define RBD_VOL "uri: rbd:rbd/vol\n"
#define RBD_WAIT_SECONDS 60

struct vol_queue {
	struct reactor reactor;
	struct backend_queue *queue;
	struct backend_io io[RBD_DEPTH];
	bool out[RBD_DEPTH];
	unsigned done_nr; /* answers, wherever they came from */
	uint8_t *buf[RBD_DEPTH];
};

struct vol_rig {
	struct config_check check;
	void *config;
	struct backend_spec spec;
	struct backend_open_params params;
	struct backend_device *device;
	struct vol_queue queue[RBD_QUEUES];
	unsigned queue_nr;
	int stored_fds[BACKEND_STORED_MAX];
	char error[BACKEND_ERROR_BYTES];
	atomic_uint grown_nr;
};

static inline void vol_pause_ms(unsigned ms)
{
	const struct timespec time = { .tv_sec = ms / 1000,
				       .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&time, NULL);
}

/* Another thread is in this call, which fake_block_call keeps it in. */
static inline void vol_wait_blocked(const char *call)
{
	while (fake_blocked_nr(call) == 0)
		vol_pause_ms(1);
}

/* ---- the device ---- */

static inline void vol_configure(struct vol_rig *rig, const char *yaml)
{
	memset(rig, 0, sizeof(*rig));
	rig->config = calloc(1, backend_rbd.config_bytes);
	check_good(&rig->check, yaml);
	option_parse(backend_rbd.options, rig->check.doc.root, NULL, rig->config,
		     backend_rbd.config_bytes, &rig->check.errors);
	backend_rbd.check(rig->config, rig->check.doc.root, &rig->check.errors);
	check_errors(&rig->check.errors, "");
	rig->spec = (struct backend_spec){ .ops = &backend_rbd, .config = rig->config };
	rig->params = (struct backend_open_params){ .logical_block_bytes = 512,
						    .max_io_bytes = RBD_IO_BYTES,
						    .queue_nr = 1,
						    .depth = RBD_DEPTH,
						    .stored_fds = rig->stored_fds };
}

static inline void vol_deconfigure(struct vol_rig *rig)
{
	option_free(backend_rbd.options, rig->config);
	free(rig->config);
	check_fini(&rig->check);
}

/* What is configured. Returns 0, or -errno with words in rig->error. */
static inline int vol_open_device(struct vol_rig *rig)
{
	rig->error[0] = '\0';
	return backend_open(&rig->device, &rig->spec, "disk", &rig->params, rig->error,
			    sizeof(rig->error));
}

/* It is not opened, for this reason. */
static inline void vol_open_fails(const char *yaml, int err, const char *words)
{
	struct vol_rig rig;

	vol_configure(&rig, yaml);
	assert_int_equal(vol_open_device(&rig), err);
	assert_string_equal(rig.error, words);
	vol_deconfigure(&rig);
}

static inline struct ceph_device *vol_device(const struct vol_rig *rig)
{
	return rig->device->priv;
}

/* ---- queues ---- */

static inline void vol_done(struct backend_io *io)
{
	struct vol_queue *q = container_of(io - io->tag, struct vol_queue, io[0]);

	assert_true(q->out[io->tag]);
	q->out[io->tag] = false;
	q->done_nr++;
}

static inline void vol_open_queue_at(struct vol_rig *rig, unsigned idx)
{
	struct reactor_params params = { .idx = idx, .sq_entries = 8, .cq_entries = 16 };
	struct vol_queue *q = &rig->queue[idx];

	assert_int_equal(reactor_init(&q->reactor, &params), 0);
	assert_int_equal(backend_queue_open(&q->queue, rig->device, &q->reactor, idx, RBD_DEPTH),
			 0);
	for (unsigned tag = 0; tag < RBD_DEPTH; tag++) {
		assert_int_equal(backend_io_init(&q->io[tag], q->queue, tag, vol_done), 0);
		q->buf[tag] = aligned_alloc(4096, RBD_IO_BYTES);
		memset(q->buf[tag], 0, RBD_IO_BYTES);
	}
}

static inline void vol_close_queue_at(struct vol_rig *rig, unsigned idx)
{
	struct vol_queue *q = &rig->queue[idx];

	for (unsigned tag = 0; tag < RBD_DEPTH; tag++) {
		assert_false(q->out[tag]);
		backend_io_fini(&q->io[tag]);
		free(q->buf[tag]);
	}
	backend_queue_close(q->queue);
	fake_wait_called();
	reactor_fini(&q->reactor);
}

/* One more, on a reactor of this thread. */
static inline void vol_open_queue(struct vol_rig *rig)
{
	vol_open_queue_at(rig, rig->queue_nr++);
}

static inline void vol_close_queues(struct vol_rig *rig)
{
	while (rig->queue_nr > 0)
		vol_close_queue_at(rig, --rig->queue_nr);
}

static inline void vol_open_rig(struct vol_rig *rig, const char *yaml)
{
	vol_configure(rig, yaml);
	assert_int_equal(vol_open_device(rig), 0);
	vol_open_queue(rig);
}

/* The record of its client, for who takes the image over. */
static inline int vol_record_copy(const struct vol_rig *rig)
{
	int fd = fcntl(backend_stored_fd(rig->device, 0), F_DUPFD_CLOEXEC, 3);

	assert_true(fd >= 0);
	return fd;
}

/* Taken over from the one whose record it is. */
static inline void vol_open_over(struct vol_rig *rig, const char *yaml, int fd)
{
	vol_configure(rig, yaml);
	rig->stored_fds[0] = fd;
	rig->params.size_bytes = 4u << 20;
	assert_int_equal(vol_open_device(rig), 0);
	vol_open_queue(rig);
}

static inline void vol_close_rig(struct vol_rig *rig)
{
	vol_close_queues(rig);
	backend_close(rig->device);
	vol_deconfigure(rig);
}

static inline void vol_turn(struct vol_rig *rig)
{
	for (unsigned i = 0; i < rig->queue_nr; i++)
		reactor_turn(&rig->queue[i].reactor, false);
	vol_pause_ms(1);
}

/* Turns until it is so. */
#define RBD_TURN_UNTIL(rig, condition)                                                             \
	do {                                                                                       \
		time_t end_ = time(NULL) + RBD_WAIT_SECONDS;                                       \
		while (!(condition)) {                                                             \
			if (time(NULL) > end_)                                                     \
				fail_msg("not in time: %s", #condition);                           \
			vol_turn(rig);                                                             \
		}                                                                                  \
	} while (0)

#define RBD_TURN_FOR_MS(rig, ms)                                                                   \
	do {                                                                                       \
		for (unsigned turn_ = 0; turn_ < (ms); turn_++)                                    \
			vol_turn(rig);                                                             \
	} while (0)

/* ---- requests ---- */

static inline struct backend_io *vol_submit_on(struct vol_rig *rig, unsigned queue, unsigned tag,
					       enum backend_op op, unsigned flags,
					       uint64_t offset_bytes, uint32_t length_bytes)
{
	struct vol_queue *q = &rig->queue[queue];
	struct backend_io *io = &q->io[tag];

	assert_false(q->out[tag]);
	io->op = op;
	io->flags = (uint8_t)flags;
	io->offset_bytes = offset_bytes;
	io->length_bytes = length_bytes;
	io->buf = (void *)q->buf[tag];
	q->out[tag] = true;
	if (backend_io_submit(io) == BACKEND_DONE)
		vol_done(io);
	return io;
}

static inline struct backend_io *vol_submit(struct vol_rig *rig, unsigned tag, enum backend_op op,
					    uint64_t offset_bytes, uint32_t length_bytes)
{
	return vol_submit_on(rig, 0, tag, op, 0, offset_bytes, length_bytes);
}

/* Of the first nr tags each a WRITE of a block of its own, full of its number from 1 on. */
static inline void vol_submit_writes(struct vol_rig *rig, unsigned nr)
{
	for (unsigned tag = 0; tag < nr; tag++) {
		memset(rig->queue[0].buf[tag], (int)tag + 1, 512);
		vol_submit(rig, tag, BACKEND_WRITE, 512u * tag, 512);
	}
}

static inline unsigned vol_out_nr(const struct vol_rig *rig)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < rig->queue_nr; i++)
		for (unsigned tag = 0; tag < RBD_DEPTH; tag++)
			nr += rig->queue[i].out[tag];
	return nr;
}

static inline int vol_wait(struct vol_rig *rig, unsigned tag)
{
	RBD_TURN_UNTIL(rig, !rig->queue[0].out[tag]);
	return rig->queue[0].io[tag].result;
}

/* One request of tag 0, waited for: its result. */
static inline int vol_do_flags(struct vol_rig *rig, enum backend_op op, unsigned flags,
			       uint64_t offset_bytes, uint32_t length_bytes)
{
	vol_submit_on(rig, 0, 0, op, flags, offset_bytes, length_bytes);
	return vol_wait(rig, 0);
}

static inline int vol_do(struct vol_rig *rig, enum backend_op op, uint64_t offset_bytes,
			 uint32_t length_bytes)
{
	return vol_do_flags(rig, op, 0, offset_bytes, length_bytes);
}

/* A WRITE of this byte, or a READ that finds nothing else. */
static inline int vol_write(struct vol_rig *rig, uint64_t offset_bytes, uint32_t length_bytes,
			    int byte)
{
	memset(rig->queue[0].buf[0], byte, length_bytes);
	return vol_do(rig, BACKEND_WRITE, offset_bytes, length_bytes);
}

static inline void vol_reads(struct vol_rig *rig, uint64_t offset_bytes, uint32_t length_bytes,
			     int byte)
{
	memset(rig->queue[0].buf[0], ~byte, length_bytes);
	assert_int_equal(vol_do(rig, BACKEND_READ, offset_bytes, length_bytes), 0);
	for (uint32_t i = 0; i < length_bytes; i++)
		assert_int_equal(rig->queue[0].buf[0][i], byte & 0xff);
}

/* ---- threads ---- */

/* proc_pid_stat(5): it waits for something. */
static inline bool vol_is_asleep(int tid)
{
	char path[64], text[256] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strstr(text, ") S ") != NULL;
}

/* For good: several looks find it so. The thread sets its tid when it is about to wait. */
static inline void vol_wait_asleep(atomic_int *tid)
{
	unsigned nr = 0;

	while (nr < 5) {
		nr = atomic_load(tid) && vol_is_asleep(atomic_load(tid)) ? nr + 1 : 0;
		vol_pause_ms(5);
	}
}

/* ---- setup of a test ---- */

static inline int vol_setup(void **state)
{
	(void)state;
	fake_start();
	return 0;
}

static inline int vol_teardown(void **state)
{
	(void)state;
	fake_stop();
	return 0;
}

#define RBD_TEST(fn) cmocka_unit_test_setup_teardown(fn, vol_setup, vol_teardown)

#endif
