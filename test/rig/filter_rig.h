/*
 * One filter with one queue over a backend that answers at once or keeps everything, in virtual
 * time: nobody turns the reactor, the test sets its clock and runs its timers. One thread.
 */
#ifndef TEST_RIG_FILTER_RIG_H
#define TEST_RIG_FILTER_RIG_H

#include "storage/registry.h"
#include "storage/spec.h"
#include "test/rig/config_check.h"

#define FILTER_DEPTH 16

/* ---- the lowest one ---- */

static unsigned low_nr;	   /* I/Os that came so far */
static bool low_keeps_all; /* and answers nothing */
static unsigned low_cancelled_nr;

static int low_open(struct backend_device *device)
{
	device->limits.size_bytes = 1 << 30;
	device->limits.caps = BACKEND_CAP_FLUSH | BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES |
			      BACKEND_CAP_FUA;
	return 0;
}

static enum backend_submit low_submit(struct backend_io *io)
{
	low_nr++;
	io->result = 0;
	return low_keeps_all ? BACKEND_QUEUED : BACKEND_DONE;
}

static void low_cancel(struct backend_io *io)
{
	low_cancelled_nr++;
	backend_io_complete(io, -ECANCELED);
}

static const struct backend low = {
	.name = "low", .open = low_open, .submit = low_submit, .cancel = low_cancel
};

/* ---- the rig ---- */

static struct filter_rig {
	struct config_check check;
	void *config;
	struct backend_spec low_spec, spec;
	struct reactor reactor;
	struct backend_device *device;
	struct backend_queue *queue;
	struct backend_io io[FILTER_DEPTH];
	bool out[FILTER_DEPTH];
	unsigned done_nr; /* by done, not by submit */
} rig;

static void rig_done(struct backend_io *io)
{
	assert_true(rig.out[io->tag]);
	rig.out[io->tag] = false;
	rig.done_nr++;
}

/* yaml: the filter's options. */
static inline void rig_open(const struct backend *filter, const char *yaml)
{
	static const struct backend_open_params open_params = { .logical_block_bytes = 512 };
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	char error[BACKEND_ERROR_BYTES] = "";

	memset(&rig, 0, sizeof(rig));
	low_nr = low_cancelled_nr = 0;
	low_keeps_all = false;
	check_good(&rig.check, yaml);
	rig.config = calloc(1, filter->config_bytes);
	option_parse(filter->options, rig.check.doc.root, NULL, rig.config, filter->config_bytes,
		     &rig.check.errors);
	filter->check(rig.config, rig.check.doc.root, &rig.check.errors);
	check_errors(&rig.check.errors, "");
	rig.low_spec.ops = &low;
	rig.spec = (struct backend_spec){ .ops = filter,
					  .config = rig.config,
					  .child = &rig.low_spec };
	backend_open(&rig.device, &rig.spec, "t", &open_params, error, sizeof(error));
	assert_string_equal(error, "");
	assert_int_equal(reactor_init(&rig.reactor, &params), 0);
	assert_int_equal(backend_queue_open(&rig.queue, rig.device, &rig.reactor, 0, FILTER_DEPTH),
			 0);
	for (unsigned tag = 0; tag < FILTER_DEPTH; tag++)
		assert_int_equal(backend_io_init(&rig.io[tag], rig.queue, tag, rig_done), 0);
}

static inline void rig_close(void)
{
	for (unsigned tag = 0; tag < FILTER_DEPTH; tag++)
		backend_io_fini(&rig.io[tag]);
	backend_queue_close(rig.queue);
	backend_close(rig.device);
	reactor_fini(&rig.reactor);
	option_free(rig.spec.ops->options, rig.config);
	free(rig.config);
	check_fini(&rig.check);
}

static inline enum backend_submit rig_submit_at(unsigned tag, enum backend_op op,
						uint64_t offset_bytes, uint32_t length_bytes)
{
	static char buf[1 << 16] __attribute__((aligned(4096)));
	struct backend_io *io = &rig.io[tag];
	enum backend_submit answer;

	io->op = op;
	io->flags = 0;
	io->offset_bytes = offset_bytes;
	io->length_bytes = op == BACKEND_FLUSH ? 0 : length_bytes;
	io->buf = buf;
	rig.out[tag] = true;
	answer = backend_io_submit(io);
	if (answer == BACKEND_DONE)
		rig.out[tag] = false;
	return answer;
}

static inline enum backend_submit rig_submit(unsigned tag, enum backend_op op)
{
	return rig_submit_at(tag, op, 0, 512);
}

/* Runs what is due until then. */
static inline void rig_run_until(uint64_t end_ns)
{
	uint64_t next_ns;

	while ((next_ns = timer_heap_next_ns(&rig.reactor.timers)) <= end_ns) {
		rig.reactor.now_ns = next_ns;
		timer_heap_run(&rig.reactor.timers, next_ns);
	}
	rig.reactor.now_ns = end_ns;
}

/* A stack of this filter over mem is refused with these lines; "": it is accepted. */
static inline void rig_check_config(const char *filter, const char *options, const char *errors)
{
	struct backend_spec *spec = NULL;
	struct config_check c;
	char yaml[512];
	int ret;

	snprintf(yaml, sizeof(yaml), "type: %s\nbackend: {type: mem, size: 1M}\n%s", filter,
		 options);
	check_good(&c, yaml);
	ret = backend_spec_parse(&spec, c.doc.root, &c.errors);
	check_errors(&c.errors, errors);
	assert_int_equal(ret, *errors ? -EINVAL : 0);
	backend_spec_free(spec);
	check_fini(&c);
}

#endif
