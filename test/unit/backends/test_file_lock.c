/*
 * file below a made-up image format, and beside it: which bytes are locked, as QEMU would see it,
 * who is refused and in which words; and what is beyond the end of an image.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/file/file.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/node.h"
#include "storage/registry.h"
#include "storage/resize.h"
#include "test/rig/config_check.h"

static const struct backend_child_option image_children[] = {
	{ .name = "data", .nr_min = 1, .nr_max = 1, .help = "The image." },
	{ .name = NULL },
};

static const struct backend image = {
	.name = "image",
	.is_image_format = true,
	.children = image_children,
	.submit = backend_forward,
};

static const struct backend filter = {
	.name = "filter",
	.children = backend_one_child,
	.submit = backend_forward,
};

/* What a filter below the image keeps for itself: a cache's store, metadata. */
static const struct backend_child_option own_child = { .name = "store", .is_own = true };
static const struct backend_child_option bytewise_child = { .name = "metadata",
							    .is_bytewise = true };

static char path[64];
static char error[BACKEND_ERROR_BYTES];

static int make_disk(void **state)
{
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/test_file_lock.XXXXXX");
	fd = mkstemp(path);
	return fd < 0 || ftruncate(fd, 1 << 20) < 0 || close(fd) < 0 ? -1 : 0;
}

static int remove_disk(void **state)
{
	(void)state;
	return unlink(path);
}

enum kind { RAW, IMAGE, FILTERED_IMAGE, OWN_OF_A_FILTER, METADATA_OF_A_FILTER };

/* What a device is made from; as long as that. */
struct made {
	struct file_config config;
	struct backend_spec file, middle, top;
	struct backend_device *device;
};

static const struct backend_child_option *file_as(enum kind kind)
{
	static const struct backend_child_option *const as[] = {
		[IMAGE] = image_children,
		[OWN_OF_A_FILTER] = &own_child,
		[METADATA_OF_A_FILTER] = &bytewise_child,
	};

	return kind < ARRAY_SIZE(as) ? as[kind] : NULL;
}

static int kept_fd; /* of the next one that is opened: what the fd store has; 0: nothing */

static int open_as(struct made *m, enum kind kind, int lock, bool read_only, const char *name)
{
	const int stored_fds[BACKEND_STORED_MAX] = { kept_fd };
	struct backend_open_params open_params = { .logical_block_bytes = 512,
						   .max_io_bytes = 1 << 20,
						   .queue_nr = 1,
						   .depth = 1,
						   .stored_fds = stored_fds,
						   .read_only = read_only };

	*m = (struct made){ .config = { .path = path, .lock = lock } };
	m->file = (struct backend_spec){ .ops = &backend_file,
					 .config = &m->config,
					 .as = file_as(kind) };
	m->middle =
		(struct backend_spec){ .ops = &filter, .child = &m->file, .as = image_children };
	m->top = (struct backend_spec){ .ops = &image,
					.child = kind >= FILTERED_IMAGE ? &m->middle : &m->file };
	return backend_open(&m->device, kind == RAW ? &m->file : &m->top, name, &open_params, error,
			    sizeof(error));
}

static void opened(struct made *m, enum kind kind, int lock, bool read_only)
{
	if (open_as(m, kind, lock, read_only, "disk") < 0)
		fail_msg("%s", error);
}

static void refused(enum kind kind, bool read_only, const char *words)
{
	struct made m;

	assert_int_equal(open_as(&m, kind, FILE_LOCK_AUTO, read_only, "other"), -EBUSY);
	if (!strstr(error, words))
		fail_msg("no \"%s\" in: %s", words, error);
}

/* ---- what others see ---- */

static bool is_locked(int fd, off_t byte)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1
	};

	assert_int_equal(fcntl(fd, F_OFD_GETLK, &lock), 0);
	return lock.l_type != F_UNLCK;
}

/* Another description, with a shared lock on one byte, as QEMU has. */
static int lock_byte(off_t byte)
{
	struct flock lock = {
		.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1
	};
	int fd = open(path, O_RDWR | O_CLOEXEC);

	assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
	return fd;
}

/* Of some bytes, those that are locked: "100 201 ". */
static const char *locked_bytes(void)
{
	static const int bytes[] = { 0,	  99,  100, 101, 102, 103, 104,	   200,
				     201, 202, 203, 204, 299, 300, 1 << 30 };
	static char text[256];
	int fd = open(path, O_RDWR | O_CLOEXEC);
	size_t len = 0;

	text[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(bytes); i++)
		if (is_locked(fd, bytes[i]))
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%d ", bytes[i]);
	close(fd);
	return text;
}

#define WRITER "100 101 103 201 203 "
#define READER "100 201 203 "

static void test_bytes(void **state)
{
	static const struct {
		enum kind kind;
		int lock;
		bool read_only;
		const char *bytes;
	} cases[] = {
		{ IMAGE, FILE_LOCK_AUTO, false, WRITER },
		{ IMAGE, FILE_LOCK_AUTO, true, READER },
		{ FILTERED_IMAGE, FILE_LOCK_AUTO, false, WRITER },
		{ IMAGE, FILE_LOCK_OFF, false, "" },
		{ RAW, FILE_LOCK_ON, false, WRITER },
		{ RAW, FILE_LOCK_ON, true, READER },
		{ RAW, FILE_LOCK_OFF, false, "" },
		{ RAW, FILE_LOCK_AUTO, false,
		  "0 99 100 101 102 103 104 200 201 202 203 204 299 300 1073741824 " },
		{ RAW, FILE_LOCK_AUTO, true, "0 99 " READER "300 1073741824 " },
	};
	struct made m;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		opened(&m, cases[i].kind, cases[i].lock, cases[i].read_only);
		assert_string_equal(locked_bytes(), cases[i].bytes);
		backend_close(m.device);
		assert_string_equal(locked_bytes(), "");
	}
}

/* An upgrade: the next process opens it while this one still has it. */
static void test_abandoned(void **state)
{
	struct made m, next;

	(void)state;
	opened(&m, IMAGE, FILE_LOCK_AUTO, false);
	backend_abandon(m.device);
	assert_string_equal(locked_bytes(), "");
	opened(&next, IMAGE, FILE_LOCK_AUTO, false);
	backend_close(next.device);
	/* Nothing follows, not even a close: its memory is the process's. */
	free(m.device->child);
	free(m.device);
}

/* ---- an image that waits for the next process ---- */

/* As the fd store has it, when its process was killed: without the description of the I/O. */
static void left(enum kind kind)
{
	struct made m;

	opened(&m, kind, FILE_LOCK_AUTO, false);
	kept_fd = dup(backend_stored_fd(m.device, 0));
	assert_true(kept_fd > 0);
	backend_close(m.device);
	assert_string_equal(locked_bytes(), WRITER);
}

static void let_go(void)
{
	close(kept_fd);
	kept_fd = 0;
	assert_string_equal(locked_bytes(), "");
}

static void test_kept(void **state)
{
	struct made m;

	(void)state;
	left(FILTERED_IMAGE);
	opened(&m, FILTERED_IMAGE, FILE_LOCK_AUTO, false);
	assert_string_equal(locked_bytes(), WRITER);
	backend_close(m.device);
	assert_string_equal(locked_bytes(), WRITER);
	let_go();
}

/* Who does not take over is kept out, as by QEMU. */
static void test_kept_keeps_out(void **state)
{
	int fd;

	(void)state;
	left(IMAGE);
	fd = kept_fd;
	kept_fd = 0;
	refused(IMAGE, false, "a device that waits for it");
	refused(IMAGE, true, "a device that waits for it");
	kept_fd = fd;
	let_go();
}

/* Another one got in, or I/O of the dead process is under way: what is kept holds. */
static void test_kept_is_refused(void **state)
{
	int fd;

	(void)state;
	left(IMAGE);
	fd = lock_byte(101);
	refused(IMAGE, false, "another program has the image open for writing");
	assert_string_equal(locked_bytes(), WRITER);
	close(fd);
	assert_string_equal(locked_bytes(), WRITER);
	let_go();
}

/* The file is another one now: its locks are its own. */
static void test_kept_of_another_file(void **state)
{
	struct made m;
	char old[80];

	(void)state;
	left(IMAGE);
	snprintf(old, sizeof(old), "%s.old", path);
	assert_int_equal(rename(path, old), 0);
	close(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
	opened(&m, IMAGE, FILE_LOCK_AUTO, false);
	assert_true(backend_stored_fd(m.device, 0) > 0);
	close(kept_fd);
	kept_fd = dup(backend_stored_fd(m.device, 0));
	backend_close(m.device);
	assert_string_equal(locked_bytes(), WRITER);
	let_go();
	unlink(old);
}

static void test_not_kept(void **state)
{
	static const struct {
		enum kind kind;
		int lock;
		bool read_only;
	} cases[] = {
		{ IMAGE, FILE_LOCK_AUTO, true },
		{ IMAGE, FILE_LOCK_OFF, false },
		{ RAW, FILE_LOCK_AUTO, false },
		{ RAW, FILE_LOCK_ON, false },
		{ OWN_OF_A_FILTER, FILE_LOCK_AUTO, false },
		{ METADATA_OF_A_FILTER, FILE_LOCK_AUTO, false },
	};
	struct made m;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		opened(&m, cases[i].kind, cases[i].lock, cases[i].read_only);
		assert_int_equal(backend_stored_fd(m.device, 0), -1);
		backend_close(m.device);
	}
}

/* ---- devices of this process ---- */

static void test_many_readers(void **state)
{
	struct made m[4];

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		opened(&m[i], i == 3 ? RAW : IMAGE, FILE_LOCK_AUTO, true);
	refused(IMAGE, false, "is in use by device disk");
	refused(RAW, false, "is in use by device disk");
	for (unsigned i = 0; i < 4; i++)
		backend_close(m[i].device);
}

static void test_one_writer(void **state)
{
	struct made m;

	(void)state;
	opened(&m, IMAGE, FILE_LOCK_AUTO, false);
	refused(IMAGE, false, "is in use by device disk/data of this daemon");
	refused(IMAGE, true, "is in use by device disk/data of this daemon");
	refused(RAW, false, "is in use by device disk/data of this daemon");
	refused(RAW, true, "is in use by device disk/data of this daemon");
	backend_close(m.device);
	opened(&m, RAW, FILE_LOCK_AUTO, false);
	refused(IMAGE, false, "is in use by device disk of this daemon");
	refused(IMAGE, true, "is in use by device disk of this daemon");
	backend_close(m.device);
}

/* ---- other programs ---- */

static void check_byte(off_t byte, const char *to_writer, const char *to_reader)
{
	int fd = lock_byte(byte);
	struct made m;

	if (to_writer) {
		refused(IMAGE, false, to_writer);
	} else {
		opened(&m, IMAGE, FILE_LOCK_AUTO, false);
		backend_close(m.device);
	}
	if (to_reader) {
		refused(IMAGE, true, to_reader);
		refused(RAW, true, to_reader);
	} else {
		opened(&m, IMAGE, FILE_LOCK_AUTO, true);
		backend_close(m.device);
	}
	refused(RAW, false, "is in use by another process");
	close(fd);
}

static void test_other_programs(void **state)
{
	static const char writes[] = "another program has the image open for writing (a virtual "
				     "machine? qemu-img?)";
	static const char keeps[] = "nobody may write to it meanwhile: end it first, or set "
				    "read_only: true";
	static const char alone[] = "has the image for itself";

	(void)state;
	check_byte(101, writes, writes);
	check_byte(103, writes, writes);
	check_byte(201, keeps, NULL);
	check_byte(203, keeps, NULL);
	check_byte(200, alone, alone);
	/* It reads, and lets others do what they want. */
	check_byte(100, NULL, NULL);
	check_byte(102, NULL, NULL);
}

/* The locks end with the process, however that ends. */
static void test_killed(void **state)
{
	struct made m;
	int ready[2];
	pid_t pid;
	char c = 0;

	(void)state;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		c = open_as(&m, IMAGE, FILE_LOCK_AUTO, false, "disk") == 0;
		if (write(ready[1], &c, 1) == 1)
			pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(c, 1);
	refused(IMAGE, false, "another program has the image open for writing");
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	opened(&m, IMAGE, FILE_LOCK_AUTO, false);
	backend_close(m.device);
	close(ready[0]);
	close(ready[1]);
}

/* ---- the end of an image ---- */

static int result;
static unsigned done_nr;

static void read_done(struct backend_io *io)
{
	result = io->result;
	done_nr++;
}

/* The bytes behind content_bytes must be zeroes, those before 0x5a. */
static void check_read(struct reactor *r, struct backend_io *io, uint64_t offset_bytes,
		       uint32_t length_bytes, uint32_t content_bytes)
{
	static uint8_t buf[64 * 1024] __attribute__((aligned(4096)));

	memset(buf, 0xee, sizeof(buf));
	io->op = BACKEND_READ;
	io->flags = 0;
	io->offset_bytes = offset_bytes;
	io->length_bytes = length_bytes;
	io->buf = buf;
	io->buf_index = -1;
	done_nr = 0;
	assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
	while (done_nr == 0)
		reactor_turn(r, true);
	assert_int_equal(result, 0);
	for (uint32_t i = 0; i < length_bytes; i++)
		assert_int_equal(buf[i], i < content_bytes ? 0x5a : 0);
	assert_int_equal(buf[length_bytes], 0xee);
}

static void write_content(size_t bytes)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	char content[20000];

	memset(content, 0x5a, sizeof(content));
	assert_int_equal(write(fd, content, bytes), bytes);
	close(fd);
}

static void check_end(int direct, size_t bytes, size_t size_bytes)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	struct backend_queue *queue = NULL;
	struct backend_io io = { 0 };
	struct reactor r;
	struct made m;

	write_content(bytes);
	opened(&m, IMAGE, FILE_LOCK_AUTO, true);
	((struct file_device *)m.device->child->priv)->direct &= direct;
	assert_int_equal(m.device->limits.size_bytes, size_bytes);
	assert_int_equal(reactor_init(&r, &params), 0);
	backend_set_size(m.device, 1 << 20);
	assert_int_equal(backend_queue_open(&queue, m.device, &r, 0, 1), 0);
	assert_int_equal(backend_io_init(&io, queue, 0, read_done), 0);
	check_read(&r, &io, 0, (uint32_t)size_bytes, (uint32_t)bytes);
	check_read(&r, &io, 0, 32768, (uint32_t)bytes);
	check_read(&r, &io, size_bytes - 512, 4096, (uint32_t)(bytes - (size_bytes - 512)));
	check_read(&r, &io, 512 * 1024, 4096, 0);
	backend_io_fini(&io);
	backend_queue_close(queue);
	backend_close(m.device);
	reactor_fini(&r);
}

/* A device that only reads it: zeroes up to the end of the block, and nothing where it was cut. */
static void check_end_read_only(int direct, size_t bytes, size_t size_bytes)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	struct backend_queue *queue = NULL;
	struct backend_io io = { 0 };
	struct reactor r;
	struct made m;

	write_content(bytes);
	opened(&m, RAW, FILE_LOCK_AUTO, true);
	((struct file_device *)m.device->priv)->direct &= direct;
	assert_int_equal(backend_size(m.device), size_bytes);
	assert_int_equal(backend_left_out(m.device), 0);
	assert_int_equal(reactor_init(&r, &params), 0);
	assert_int_equal(backend_queue_open(&queue, m.device, &r, 0, 1), 0);
	assert_int_equal(backend_io_init(&io, queue, 0, read_done), 0);
	check_read(&r, &io, 0, (uint32_t)size_bytes, (uint32_t)bytes);
	check_read(&r, &io, size_bytes - 512, 512, (uint32_t)(bytes - (size_bytes - 512)));
	assert_int_equal(truncate(path, (off_t)bytes - 1), 0);
	io.offset_bytes = size_bytes - 512;
	io.length_bytes = 512;
	done_nr = 0;
	assert_int_equal(backend_io_submit(&io), BACKEND_QUEUED);
	while (done_nr == 0)
		reactor_turn(&r, true);
	assert_int_equal(result, -EIO);
	backend_io_fini(&io);
	backend_queue_close(queue);
	backend_close(m.device);
	reactor_fini(&r);
}

/* storage/resize.h's rule. */
static void test_end_within_a_block(void **state)
{
	struct made m;

	(void)state;
	for (int direct = 0; direct < 2; direct++) {
		check_end_read_only(direct, 100, 512);
		check_end_read_only(direct, 1000, 1024);
		check_end_read_only(direct, 16384 + 8, 16384 + 512);
	}
	write_content(1000);
	opened(&m, RAW, FILE_LOCK_AUTO, false);
	assert_int_equal(backend_size(m.device), 512);
	assert_int_equal(backend_left_out(m.device), 488);
	backend_close(m.device);
	write_content(100);
	assert_true(open_as(&m, RAW, FILE_LOCK_AUTO, false, "disk") < 0);
	assert_non_null(strstr(error, "has 100 bytes, less than a block"));
}

static void test_end_of_an_image(void **state)
{
	(void)state;
	for (int direct = 0; direct < 2; direct++) {
		check_end(direct, 1000, 1024);
		check_end(direct, 1024, 1024);
		check_end(direct, 5 * 512 + 1, 6 * 512);
		check_end(direct, 16384 + 8, 16384 + 512);
	}
}

int main(void)
{
#define DISK(fn) cmocka_unit_test_setup_teardown(fn, make_disk, remove_disk)
	const struct CMUnitTest tests[] = {
		DISK(test_bytes),
		DISK(test_abandoned),
		DISK(test_many_readers),
		DISK(test_kept),
		DISK(test_kept_keeps_out),
		DISK(test_kept_is_refused),
		DISK(test_kept_of_another_file),
		DISK(test_not_kept),
		DISK(test_one_writer),
		DISK(test_other_programs),
		DISK(test_killed),
		DISK(test_end_of_an_image),
		DISK(test_end_within_a_block),
	};

	log_init(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
