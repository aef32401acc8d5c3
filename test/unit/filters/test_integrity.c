/*
 * integrity: what becomes of each request at its two children, which keep it until the test
 * answers; the driver is a file whose metadata are where the driver has them.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "storage/metadata.h"
#include "test/rig/tree_rig.h"

enum { DATA, PI };

#define ALL_CAPS                                                                                   \
	(BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES | BACKEND_CAP_FLUSH | BACKEND_CAP_FUA)

static void *config;
static struct config_check check;
static int driver_fd;

static int open_integrity(const char *yaml, uint32_t caps)
{
	const struct backend *ops = &backend_integrity;

	check_good(&check, yaml);
	config = calloc(1, ops->config_bytes);
	option_parse(ops->options, check.doc.root, NULL, config, ops->config_bytes, &check.errors);
	check_errors(&check.errors, "");
	root_spec =
		(struct backend_spec){ .ops = ops, .config = config, .child = &leaf_spec[DATA] };
	leaf_spec[DATA].as = &ops->children[0];
	leaf_spec[PI].as = &ops->children[1];
	leaf_spec[DATA].sibling = &leaf_spec[PI];
	for (unsigned i = DATA; i <= PI; i++)
		leaves[i].caps = caps;
	driver_fd = memfd_create("driver", 0);
	assert_int_equal(ftruncate(driver_fd, (off_t)BACKEND_METADATA_POS + (64 << 20)), 0);
	return open_device();
}

static void start(const char *yaml)
{
	assert_int_equal(open_integrity(yaml, ALL_CAPS), 0);
	open_queue();
}

static int finish(void **state)
{
	close_tree();
	option_free(backend_integrity.options, config);
	free(config);
	check_fini(&check);
	close(driver_fd);
	return teardown(state);
}

static struct backend_io *request(unsigned tag, enum backend_op op, uint64_t offset_bytes,
				  uint32_t length_bytes, uint8_t io_flags)
{
	struct backend_io *io = fill(tag, op, offset_bytes, length_bytes);

	io->flags = io_flags;
	io->driver_fd = driver_fd;
	io->driver_pos = tag * (1u << 20);
	return io;
}

static void submit(unsigned tag, enum backend_op op, uint64_t offset_bytes, uint32_t length_bytes,
		   uint8_t io_flags)
{
	assert_int_equal(backend_io_submit(request(tag, op, offset_bytes, length_bytes, io_flags)),
			 BACKEND_QUEUED);
}

static uint64_t driver_at(unsigned tag)
{
	return BACKEND_METADATA_POS + tag * (1u << 20);
}

static void child_is(unsigned leaf, enum backend_op op, uint64_t offset_bytes,
		     uint32_t length_bytes, uint8_t io_flags)
{
	const struct backend_io *child = leaves[leaf].out[leaves[leaf].out_nr - 1];

	assert_int_equal(child->op, op);
	assert_int_equal(child->offset_bytes, offset_bytes);
	assert_int_equal(child->length_bytes, length_bytes);
	assert_int_equal(child->flags, io_flags);
}

static void out_are(unsigned data_nr, unsigned pi_nr, unsigned done_nr)
{
	assert_int_equal(leaves[DATA].out_nr, data_nr);
	assert_int_equal(leaves[PI].out_nr, pi_nr);
	assert_int_equal(rig.done_nr, done_nr);
}

static void test_write(void **state)
{
	static const uint8_t theirs[24] = "abcdefgh\0\0\0\0\0\0\0\0ijklmnop",
			     stored[24] = "abcdefgh\xff\xff\xff\xff\xff\xff\xff\xffijklmnop";

	(void)state;
	start("interval: 512");
	assert_int_equal(pwrite(driver_fd, theirs, 24, (off_t)driver_at(1)), 24);
	submit(1, BACKEND_WRITE, 1024, 1536, BACKEND_METADATA | BACKEND_FUA);
	out_are(1, 1, 0);
	child_is(DATA, BACKEND_WRITE, 1024, 1536, BACKEND_FUA);
	assert_ptr_equal(leaves[DATA].out[0]->buf, rig.io[1].buf);
	child_is(PI, BACKEND_WRITE, 16, 24, BACKEND_FUA);
	assert_memory_equal(leaves[PI].out[0]->buf, stored, 24);
	leaf_complete(DATA, 0);
	out_are(0, 1, 0); /* not before the metadata are there, too */
	leaf_complete(PI, 0);
	out_are(0, 0, 1);
	assert_int_equal(rig.io[1].result, 0);
}

static void test_read(void **state)
{
	static const uint8_t stored[16] = "abcdefgh\0\0\0\0\0\0\0",
			     theirs[16] = "abcdefgh\xff\xff\xff\xff\xff\xff\xff\xff";
	uint8_t found[16];

	(void)state;
	start("interval: 512");
	submit(2, BACKEND_READ, 512, 1024, BACKEND_METADATA);
	out_are(1, 1, 0);
	child_is(DATA, BACKEND_READ, 512, 1024, 0);
	child_is(PI, BACKEND_READ, 8, 16, 0);
	memcpy(leaves[PI].out[0]->buf, stored, 16);
	leaf_complete(PI, 0);
	out_are(1, 0, 0);
	leaf_complete(DATA, 0);
	out_are(0, 0, 1);
	assert_int_equal(pread(driver_fd, found, 16, (off_t)driver_at(2)), 16);
	assert_memory_equal(found, theirs, 16);
	/* Without metadata only the data are read. */
	submit(2, BACKEND_READ, 512, 1024, 0);
	out_are(1, 0, 1);
	leaf_complete(DATA, 0);
	out_are(0, 0, 2);
}

/* First the metadata are forgotten, then the data change. */
static void forgets(enum backend_op op, uint8_t io_flags)
{
	unsigned done_nr = rig.done_nr;

	submit(0, op, 4096, 8192, io_flags);
	out_are(0, 1, done_nr);
	child_is(PI, BACKEND_WRITE_ZEROES, 64, 128, io_flags & BACKEND_FUA);
	leaf_complete(PI, 0);
	out_are(1, 0, done_nr);
	child_is(DATA, op, 4096, 8192, io_flags);
	leaf_complete(DATA, 0);
	out_are(0, 0, done_nr + 1);
	assert_int_equal(rig.io[0].result, 0);
	/* What could not be forgotten is not changed. */
	submit(0, op, 4096, 8192, io_flags);
	leaf_complete(PI, -EIO);
	out_are(0, 0, done_nr + 2);
	assert_int_equal(rig.io[0].result, -EIO);
}

static void test_forgets(void **state)
{
	struct backend_integrity_look look;

	(void)state;
	start("interval: 512");
	forgets(BACKEND_DISCARD, 0);
	forgets(BACKEND_WRITE_ZEROES, BACKEND_NOUNMAP | BACKEND_FUA);
	forgets(BACKEND_WRITE, BACKEND_FUA);
	assert_true(backend_integrity_look(rig.queue, &look));
	assert_int_equal(look.forgotten, 6);
	assert_int_equal(look.reads + look.writes, 0);
}

static void test_flush(void **state)
{
	(void)state;
	start("");
	submit(0, BACKEND_FLUSH, 0, 0, 0);
	out_are(1, 1, 0);
	leaf_complete(PI, 0);
	out_are(1, 0, 0);
	leaf_complete(DATA, 0);
	out_are(0, 0, 1);
	submit(0, BACKEND_FLUSH, 0, 0, 0);
	leaf_complete(DATA, 0);
	leaf_complete(PI, -EIO);
	out_are(0, 0, 2);
	assert_int_equal(rig.io[0].result, -EIO);
}

/* Data and metadata of a READ are of one WRITE. */
static void test_same_bytes_wait(void **state)
{
	struct backend_integrity_look look;
	struct backend_wait wait;

	(void)state;
	start("");
	submit(0, BACKEND_WRITE, 0, 4096, BACKEND_METADATA);
	submit(1, BACKEND_READ, 3584, 1024, BACKEND_METADATA);
	submit(2, BACKEND_READ, 4096, 4096, BACKEND_METADATA);
	out_are(2, 2, 0);
	assert_true(backend_integrity_look(rig.queue, &look));
	assert_int_equal(look.held, 1);
	assert_ptr_equal(backend_io_where(&rig.io[1], &wait), rig.device);
	assert_string_equal(wait.words, "waiting for another request on the same bytes");
	leaf_complete(DATA, 0);
	leaf_complete(PI, 0);
	reactor_turn(&rig.reactor, false);
	out_are(2, 2, 1);
	child_is(DATA, BACKEND_READ, 3584, 1024, 0);
	leaf_complete(DATA, 0);
	leaf_complete(PI, 0);
	leaf_complete(DATA, 0);
	leaf_complete(PI, 0);
	out_are(0, 0, 3);
}

static void test_failures(void **state)
{
	(void)state;
	start("");
	submit(0, BACKEND_WRITE, 0, 4096, BACKEND_METADATA);
	leaf_complete(DATA, -ENOSPC);
	out_are(0, 1, 0);
	leaf_complete(PI, -EIO);
	out_are(0, 0, 1);
	assert_int_equal(rig.io[0].result, -ENOSPC);
	/* The driver does not give the metadata: nothing is written. */
	request(0, BACKEND_WRITE, 0, 4096, BACKEND_METADATA)->driver_fd = -1;
	assert_int_equal(backend_io_submit(&rig.io[0]), BACKEND_DONE);
	out_are(0, 0, 1);
	assert_int_equal(rig.io[0].result, -EIO);
	/* It does not take them. */
	request(0, BACKEND_READ, 0, 4096, BACKEND_METADATA)->driver_fd = -1;
	assert_int_equal(backend_io_submit(&rig.io[0]), BACKEND_QUEUED);
	leaf_complete(DATA, 0);
	leaf_complete(PI, 0);
	out_are(0, 0, 2);
	assert_int_equal(rig.io[0].result, -EIO);
}

static void test_integrity_cancel(void **state)
{
	(void)state;
	start("");
	submit(0, BACKEND_WRITE, 0, 4096, BACKEND_METADATA);
	submit(1, BACKEND_DISCARD, 0, 8192, 0);
	submit(2, BACKEND_READ, 4096, 4096, BACKEND_METADATA);
	out_are(1, 1, 0);
	backend_io_cancel(&rig.io[1]); /* waits for 0 */
	out_are(1, 1, 1);
	assert_int_equal(rig.io[1].result, -EIO);
	reactor_turn(&rig.reactor, false); /* 2 has waited for 1 */
	out_are(2, 2, 1);
	backend_io_cancel(&rig.io[0]);
	out_are(1, 1, 2);
	assert_int_equal(leaves[DATA].cancelled + leaves[PI].cancelled, 2);
	leaf_complete(DATA, 0);
	leaf_complete(PI, 0);
	out_are(0, 0, 3);
	/* Cancelled while its metadata are being forgotten: the data stay. */
	submit(0, BACKEND_DISCARD, 0, 8192, 0);
	backend_io_cancel(&rig.io[0]);
	out_are(0, 0, 4);
}

static void test_limits(void **state)
{
	char text[BACKEND_IDENTITY_BYTES];

	(void)state;
	start("{checksum: nvme, metadata_size: 32, pi_offset: 16, interval: 512, reftag: no}");
	assert_int_equal(rig.device->limits.queue_nr_max, 1);
	assert_int_equal(rig.device->limits.size_bytes, 1 << 20);
	assert_int_equal(rig.device->limits.caps, ALL_CAPS);
	assert_int_equal(rig.device->limits.integrity.metadata_bytes, 32);
	assert_int_equal(rig.device->limits.integrity.tuple_at, 16);
	assert_false(rig.device->limits.integrity.has_reftag);
	assert_int_equal(rig.device->child->open_params.logical_block_bytes, 512);
	assert_int_equal(rig.device->child->sibling->open_params.logical_block_bytes, 1);
	backend_identity(rig.device, text);
	/* 2048 intervals of 32 bytes. */
	assert_int_equal(backend_spec_metadata_bytes(&root_spec, 1 << 20, 512), 65536);
	assert_int_equal(backend_spec_metadata_bytes(&root_spec, 4096, 4096), 4096);
	assert_int_equal(backend_spec_metadata_bytes(&leaf_spec[0], 1 << 20, 512), 0);
	assert_string_equal(text, "integrity 32/512/nvme/16[leaf 0,leaf 1]");
}

/* Nothing could be forgotten, so nothing is offered that would have to be. */
static void test_metadata_that_cannot_be_zeroed(void **state)
{
	(void)state;
	assert_int_equal(open_integrity("", BACKEND_CAP_DISCARD | BACKEND_CAP_FLUSH), 0);
	assert_int_equal(rig.device->limits.caps & (BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES),
			 0);
}

static void test_too_little_room(void **state)
{
	(void)state;
	leaves[PI].size_bytes = 16383;
	assert_int_equal(open_integrity("", ALL_CAPS), -ENOSPC);
	assert_non_null(strstr(error, "metadata: has 16383, and 16KiB are needed: set its size to "
				      "that, or leave the size of a file out"));
}

/* The data have grown by themselves while nobody served them; the device has not. */
static void test_taken_over_as_it_was(void **state)
{
	(void)state;
	had_bytes = 1 << 20;
	leaves[DATA].size_bytes = 4 << 20;
	leaves[PI].size_bytes = 16384;
	assert_int_equal(open_integrity("", ALL_CAPS), 0);
	assert_int_equal(backend_size(rig.device), 1 << 20);
}

static void test_interval_is_too_long(void **state)
{
	(void)state;
	assert_int_equal(open_integrity("interval: 4096", ALL_CAPS), -EINVAL);
	assert_non_null(strstr(error, "interval: 4096 is more than block_size: 512"));
}

/* What has no place in its buffer, where the core names no limit. */
static void test_request_too_long(void **state)
{
	(void)state;
	leaves[DATA].size_bytes = 4 << 20;
	start("");
	rig.device->open_params.max_io_bytes = 0;
	request(0, BACKEND_READ, 0, (1 << 20) + 512, BACKEND_METADATA);
	assert_int_equal(backend_io_submit(&rig.io[0]), BACKEND_DONE);
	assert_int_equal(rig.io[0].result, -EIO);
	out_are(0, 0, 0);
}

int main(void)
{
#define RIG(fn) cmocka_unit_test_setup_teardown(fn, setup, finish)
	const struct CMUnitTest tests[] = {
		RIG(test_write),
		RIG(test_read),
		RIG(test_forgets),
		RIG(test_flush),
		RIG(test_same_bytes_wait),
		RIG(test_failures),
		RIG(test_integrity_cancel),
		RIG(test_limits),
		RIG(test_metadata_that_cannot_be_zeroed),
		RIG(test_too_little_room),
		RIG(test_taken_over_as_it_was),
		RIG(test_interval_is_too_long),
		RIG(test_request_too_long),
	};

	return cmocka_run_group_tests_name("integrity", tests, NULL, NULL);
}
