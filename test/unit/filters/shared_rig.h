/*
 * Devices that share trees, over leaves that do as the test says: each keeps its walks and its
 * requests until the test ends them. One thread, which turns two reactors: the control reactor, and
 * one more that can be the home of what is shared.
 */
#ifndef TEST_UNIT_FILTERS_SHARED_RIG_H
#define TEST_UNIT_FILTERS_SHARED_RIG_H

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "base/util.h"
#include "filters/shared/shared.h"
#include "storage/node.h"
#include "storage/registry.h"
#include "storage/sharing.h"
#include "storage/spec.h"
#include "test/rig/config_check.h"

#define USERS 4
#define GATES 2
#define USER_DEPTH 100
#define GATE_ROOM (2 * SHARED_DEPTH)
#define READ_BYTES 4096u

/* ---- leaves ---- */

struct gate {
	uint64_t idx; /* its only option: trees over different leaves differ */
	struct backend_limits limits;
	int open_err;
	bool holds_open, holds_close; /* until gate_answer */
	bool ignores_cancel;	      /* of the same */
	bool is_busy;		      /* its queue does not rest */
	bool answers_at_once;
	struct backend_visit *visit; /* under way */
	unsigned opened_nr, closed_nr, cancelled_nr, abandoned_nr, settled_nr;
	const char *failure;
	unsigned room, out_nr, io_cancelled_nr;
	struct backend_io *out[GATE_ROOM];
};

static struct gate gates[GATES];

static struct gate *gate_of(const struct backend_device *device)
{
	return (struct gate *)(uintptr_t)device->config;
}

static int gate_open(struct backend_device *device)
{
	struct gate *gate = gate_of(device);

	if (gate->open_err)
		return backend_fail(device, gate->open_err, "is not there");
	gate->opened_nr++;
	device->limits = gate->limits;
	return 0;
}

static void gate_close(struct backend_device *device)
{
	gate_of(device)->closed_nr += device->limits.size_bytes > 0;
}

static void gate_hold(struct backend_visit *visit, bool holds)
{
	struct gate *gate = gate_of(visit->device);

	assert_null(gate->visit);
	if (!holds) {
		backend_visit_done(visit, 0);
		return;
	}
	gate->visit = visit;
	visit->timeout_ns = BACKEND_VISIT_OWN_DEADLINE;
}

static void gate_open_async(struct backend_visit *visit)
{
	gate_hold(visit, gate_of(visit->device)->holds_open);
}

static void gate_close_async(struct backend_visit *visit)
{
	gate_hold(visit, gate_of(visit->device)->holds_close);
}

static inline void gate_answer(struct gate *gate, int ret)
{
	struct backend_visit *visit = gate->visit;

	assert_non_null(visit);
	gate->visit = NULL;
	if (ret < 0)
		backend_fail(visit->device, ret, "does not answer");
	backend_visit_done(visit, ret);
}

static void gate_cancel_async(struct backend_visit *visit)
{
	struct gate *gate = gate_of(visit->device);

	gate->cancelled_nr++;
	if (!gate->ignores_cancel)
		gate_answer(gate, -ECANCELED);
}

static enum backend_submit gate_submit(struct backend_io *io)
{
	struct gate *gate = gate_of(io->queue->device);

	if (gate->answers_at_once) {
		io->result = io->offset_bytes ? -EIO : 0;
		if (io->op == BACKEND_READ && io->result == 0)
			memset(io->buf, 0, io->length_bytes);
		io->throttle_ns = 7;
		return BACKEND_DONE;
	}
	if (gate->out_nr == gate->room)
		return BACKEND_BUSY;
	gate->out[gate->out_nr++] = io;
	return BACKEND_QUEUED;
}

static void gate_complete_at(struct gate *gate, unsigned idx, int result)
{
	struct backend_io *io = gate->out[idx];

	assert_true(idx < gate->out_nr);
	gate->out_nr--;
	memmove(&gate->out[idx], &gate->out[idx + 1], (gate->out_nr - idx) * sizeof(gate->out[0]));
	io->throttle_ns = 7;
	backend_io_complete(io, result);
}

/* The one that it has had longest. */
static inline void gate_complete(struct gate *gate, int result)
{
	gate_complete_at(gate, 0, result);
}

static void gate_cancel(struct backend_io *io)
{
	struct gate *gate = gate_of(io->queue->device);

	gate->io_cancelled_nr++;
	for (unsigned i = 0; i < gate->out_nr; i++)
		if (gate->out[i] == io) {
			gate_complete_at(gate, i, -ECANCELED);
			return;
		}
	fail_msg("it does not have this one");
}

static bool gate_rest(struct backend_queue *queue)
{
	return !gate_of(queue->device)->is_busy;
}

static void gate_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	snprintf(text, BACKEND_IDENTITY_BYTES, "gate %u", (unsigned)gate_of(device)->idx);
}

static bool gate_settle(struct backend_device *device)
{
	return gate_of(device)->settled_nr++ > 0;
}

static void gate_abandon(struct backend_device *device)
{
	gate_of(device)->abandoned_nr++;
}

static const char *gate_failure(const struct backend_device *device)
{
	return gate_of(device)->failure;
}

static const struct option gate_options[] = {
	{ .name = "idx", .type = OPTION_SIZE, .offset = offsetof(struct gate, idx) }, OPTION_END
};

static const struct backend backend_gate = {
	.name = "gate",
	.options = gate_options,
	.open = gate_open,
	.open_async = gate_open_async,
	.close_async = gate_close_async,
	.cancel_async = gate_cancel_async,
	.close = gate_close,
	.submit = gate_submit,
	.cancel = gate_cancel,
	.rest = gate_rest,
	.identity = gate_identity,
	.settle = gate_settle,
	.abandon = gate_abandon,
	.failure = gate_failure,
};

/* ---- users ---- */

struct user {
	struct backend_spec below, spec;
	struct backend_open_params params;
	struct backend_life *life; /* under way, or NULL */
	struct backend_device *device;
	unsigned ended_nr; /* walks */
	int ret;
	bool waited;
	char words[BACKEND_LIFE_WORDS_BYTES];
	struct backend_queue *queue;
	struct backend_io io[USER_DEPTH];
	unsigned done_nr; /* requests, by done */
	uint16_t done[2 * USER_DEPTH];
	unsigned again_nr; /* requests to be submitted again by done, as soon as they end */
};

static struct shared_rig {
	struct reactor control, other;
	struct reactor *data[1]; /* the home of trees; NULL: control */
} rig;

static struct user users[USERS];
static char shared_name[] = "s";
static const struct shared_config shared_config = { .name = shared_name };

static void user_ended(void *arg, const struct backend_life_end *end)
{
	struct user *u = arg;

	u->life = NULL;
	u->ended_nr++;
	u->ret = end->ret;
	u->waited = end->waited;
	u->device = end->device;
	snprintf(u->words, sizeof(u->words), "%s", end->ret < 0 ? end->words : "");
}

static void user_dropped(void *arg)
{
	(void)arg;
}

static struct backend_life_owner user_owner(struct user *u)
{
	return (struct backend_life_owner){ .done = user_ended, .drop = user_dropped, .arg = u };
}

static struct backend_home rig_home(void)
{
	return (struct backend_home){ .reactor = &rig.control,
				      .data = rig.data[0] ? rig.data : NULL,
				      .data_nr = rig.data[0] ? 1 : 0 };
}

static inline void turns(unsigned nr)
{
	while (nr--) {
		reactor_turn(&rig.control, false);
		reactor_turn(&rig.other, false);
	}
}

#define TURN_UNTIL(condition)                                                                      \
	do {                                                                                       \
		uint64_t until_ns_ = ring_clock_ns() + 20 * NS_PER_SEC;                            \
		while (!(condition)) {                                                             \
			assert_true(ring_clock_ns() < until_ns_);                                  \
			turns(1);                                                                  \
		}                                                                                  \
	} while (0)

static inline void begin_open(struct user *u)
{
	const struct backend_home where = rig_home();
	const struct backend_life_owner owner = user_owner(u);
	struct backend_life *life = NULL;

	u->ended_nr = 0;
	assert_int_equal(backend_open_begin(&life, &where, &u->spec, "disk", &u->params, &owner),
			 0);
	u->life = life;
}

static inline void begin_close(struct user *u)
{
	const struct backend_home where = rig_home();
	const struct backend_life_owner owner = user_owner(u);
	struct backend_device *device = u->device;
	struct backend_life *life = NULL;

	u->ended_nr = 0;
	u->device = NULL;
	assert_int_equal(backend_close_begin(&life, &where, device, &owner), 0);
	u->life = life;
}

/* What the walk of this one has come to. */
static inline int end_of(struct user *u)
{
	TURN_UNTIL(u->ended_nr > 0);
	return u->ret;
}

static inline void open_user(struct user *u)
{
	begin_open(u);
	assert_int_equal(end_of(u), 0);
}

static inline void close_user(struct user *u)
{
	begin_close(u);
	assert_int_equal(end_of(u), 0);
}

static inline struct shared_tree *tree_of_user(const struct user *u)
{
	return ((const struct shared_device *)u->device->priv)->tree;
}

/* ---- their requests ---- */

static void request_done(struct backend_io *io)
{
	struct user *u = &users[0];

	while (u->queue != io->queue)
		u++;
	assert_true(u->done_nr < ARRAY_SIZE(u->done));
	u->done[u->done_nr++] = io->tag;
	if (u->again_nr > 0 && u->again_nr--)
		assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
}

static inline void open_queue(struct user *u, struct reactor *reactor)
{
	assert_int_equal(backend_queue_open(&u->queue, u->device, reactor, 0, USER_DEPTH), 0);
	for (unsigned i = 0; i < USER_DEPTH; i++)
		assert_int_equal(backend_io_init(&u->io[i], u->queue, i, request_done), 0);
	u->done_nr = 0;
}

static inline void close_queue(struct user *u)
{
	for (unsigned i = 0; i < USER_DEPTH; i++)
		backend_io_fini(&u->io[i]);
	backend_queue_close(u->queue);
	u->queue = NULL;
}

static uint8_t read_buf[USERS][USER_DEPTH][READ_BYTES] __attribute__((aligned(4096)));

static inline void *buf_of(const struct user *u, unsigned tag)
{
	return read_buf[u - users][tag];
}

static inline enum backend_submit submit(struct user *u, unsigned tag, enum backend_op op,
					 uint64_t offset_bytes)
{
	struct backend_io *io = &u->io[tag];

	io->op = op;
	io->flags = 0;
	io->offset_bytes = offset_bytes;
	io->length_bytes = op == BACKEND_FLUSH ? 0 : READ_BYTES;
	io->buf = buf_of(u, tag);
	io->buf_index = -1;
	return backend_io_submit(io);
}

static inline void submit_read(struct user *u, unsigned tag, uint64_t offset_bytes)
{
	assert_int_equal(submit(u, tag, BACKEND_READ, offset_bytes), BACKEND_QUEUED);
}

/* ---- the rig ---- */

static void user_init(struct user *u)
{
	memset(u, 0, sizeof(*u));
	u->below = (struct backend_spec){ .ops = &backend_gate,
					  .config = &gates[0],
					  .as = backend_one_child };
	u->spec = (struct backend_spec){ .ops = &backend_shared,
					 .config = &shared_config,
					 .child = &u->below };
	u->params = (struct backend_open_params){ .logical_block_bytes = 512,
						  .max_io_bytes = 1 << 20,
						  .queue_nr = 1,
						  .depth = USER_DEPTH };
}

static int setup(void **state)
{
	const struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	int ret;

	(void)state;
	memset(&rig, 0, sizeof(rig));
	memset(gates, 0, sizeof(gates));
	for (unsigned i = 0; i < GATES; i++) {
		gates[i].idx = i;
		gates[i].limits.size_bytes = 1 << 20;
		gates[i].room = GATE_ROOM;
	}
	for (unsigned i = 0; i < USERS; i++)
		user_init(&users[i]);
	ret = reactor_init(&rig.control, &params);
	return ret < 0 ? ret : reactor_init(&rig.other, &params);
}

/* Trees are one list of the whole program: none may be left for the next test. */
static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < USERS; i++) {
		if (users[i].queue)
			close_queue(&users[i]);
		if (users[i].device)
			close_user(&users[i]);
	}
	for (unsigned i = 0; i < GATES; i++)
		assert_int_equal(gates[i].opened_nr, gates[i].closed_nr);
	reactor_fini(&rig.control);
	reactor_fini(&rig.other);
	return 0;
}

static int setup_other_home(void **state)
{
	int ret = setup(state);

	rig.data[0] = &rig.other;
	return ret;
}

static int log_errors_only(void **state)
{
	(void)state;
	log_init(LOG_LEVEL_ERROR);
	return 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
/* With a name of its own. */
#define TEST_OTHER_HOME(fn)                                                                        \
	(struct CMUnitTest)                                                                        \
	{                                                                                          \
		.name = #fn "_other_home", .test_func = fn, .setup_func = setup_other_home,        \
		.teardown_func = teardown                                                          \
	}

#endif
