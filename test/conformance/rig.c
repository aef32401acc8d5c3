/*
 * Opening, submitting, turning, closing of a device under test. Aborts on what must not happen in
 * any test: a completion for an I/O that is not out. A backend that never completes ends in the
 * alarm set by main.
 */
#include "rig.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/life.h"
#include "storage/spec.h"
#include "base/assert.h"
#include "base/util.h"
#include "config/option.h"

static void on_done(struct backend_io *io)
{
	struct rig_io *rio = container_of(io, struct rig_io, io);

	ASSERT(rio->out && !rio->busy);
	rio->completed_nr++;
	rio->out = false;
	container_of(rio - io->tag, struct rig_queue, io[0])->busy_retry = true;
	if (rio->done)
		rio->done(rio, rio->arg);
}

static void note_errors(struct rig *rig, struct config_errors *errors)
{
	char *text = config_errors_text(errors);

	snprintf(rig->error, sizeof(rig->error), "%s", text);
	free(text);
}

/* One more on top: the options are text itself, or what stands below its one key. */
static int parse_level(struct rig *rig, const struct backend *ops, const char *text)
{
	struct rig_level *level = &rig->level[rig->level_nr++];
	struct config_errors errors;
	const struct yaml_node *map;
	int ret;

	level->spec = (struct backend_spec){ .ops = ops };
	level->spec.child = rig->level_nr > 1 ? &level[-1].spec : NULL;
	level->spec.config = level->config = calloc(1, MAX(ops->config_bytes, (size_t)1));
	config_errors_init(&errors, "<test>");
	ret = yaml_parse(&level->doc, text, strlen(text), &errors);
	map = ops->children ? yaml_get(level->doc.root, ops->name) : level->doc.root;
	if (ret == 0 && ops->options)
		ret = option_parse(ops->options, map, NULL, level->config, ops->config_bytes,
				   &errors);
	if (ret == 0 && ops->check)
		ops->check(level->config, map, &errors);
	if (config_errors_any(&errors))
		note_errors(rig, &errors);
	ret = config_errors_any(&errors) ? -EINVAL : ret;
	config_errors_fini(&errors);
	return ret;
}

/* "throttle: {...}" */
static const struct backend *find_filter(const char *text)
{
	char name[32];

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, ":"), text);
	return backend_find(name);
}

/* The lowest level, which is a tree of its own: "type: stripe\nbackends: [...]". */
static int parse_tree(struct rig *rig, const char *text)
{
	struct rig_level *level = &rig->level[rig->level_nr++];
	struct config_errors errors;
	int ret;

	config_errors_init(&errors, "<test>");
	ret = yaml_parse(&level->doc, text, strlen(text), &errors);
	if (ret == 0)
		ret = backend_spec_parse(&level->tree, level->doc.root, &errors);
	if (config_errors_any(&errors))
		note_errors(rig, &errors);
	config_errors_fini(&errors);
	if (level->tree)
		level->spec = *level->tree;
	return ret;
}

static int parse_config(struct rig *rig, const struct rig_params *params)
{
	int ret = params->ops->children ? parse_tree(rig, params->yaml)
					: parse_level(rig, params->ops, params->yaml);

	for (const char *const *f = params->filters; ret == 0 && f && *f; f++) {
		const struct backend *ops = find_filter(*f);

		ASSERT(ops && ops->children && rig->level_nr < BACKEND_DEPTH_MAX);
		ret = parse_level(rig, ops, *f);
	}
	return ret;
}

static void free_config(struct rig *rig)
{
	for (unsigned i = 0; i < rig->level_nr; i++) {
		struct rig_level *level = &rig->level[i];

		if (level->config && level->spec.ops->options)
			option_free(level->spec.ops->options, level->config);
		free(level->config);
		backend_spec_free(level->tree);
		yaml_doc_free(&level->doc);
	}
	rig->level_nr = 0;
}

static void on_opened(void *arg, const struct backend_life_end *end)
{
	struct rig *rig = arg;

	rig->device = end->device;
	rig->open_ret = end->ret;
	if (end->ret < 0)
		snprintf(rig->error, sizeof(rig->error), "%s", end->words);
}

static struct backend_home rig_home(struct rig *rig)
{
	return (struct backend_home){ .reactor = &rig->home,
				      .data = &rig->data,
				      .data_nr = rig->data != NULL };
}

/* A reactor of its own for as long as a server is asked. */
static int open_tree(struct rig *rig, const struct rig_params *params,
		     const struct backend_open_params *open_params)
{
	struct reactor_params reactor_params = { .sq_entries = 32, .cq_entries = 128 };
	const struct backend_life_owner owner = { .done = on_opened, .arg = rig };
	const struct backend_home home = rig_home(rig);
	struct backend_life *life;
	int ret = reactor_init(&rig->home, &reactor_params);

	rig->open_ret = 1;
	if (ret == 0)
		ret = backend_open_begin(&life, &home, &rig->level[rig->level_nr - 1].spec,
					 params->name, open_params, &owner);
	while (ret == 0 && rig->open_ret > 0)
		reactor_turn(&rig->home, true);
	reactor_fini(&rig->home);
	return ret < 0 ? ret : rig->open_ret;
}

int rig_open_device(struct rig *rig, const struct rig_params *params)
{
	int stored_fds[BACKEND_STORED_MAX] = { 0 };
	struct backend_open_params open_params = {
		.logical_block_bytes = params->block_bytes,
		.max_io_bytes = RIG_IO_BYTES,
		.queue_nr = params->queue_nr,
		.depth = params->depth,
		.read_only = params->read_only,
		.stored_fds = stored_fds,
		.size_bytes = params->size_bytes,
		.owed_fd = params->owed_fd,
	};
	int ret;

	memcpy(stored_fds, params->stored_fds, sizeof(params->stored_fds));
	memset(rig, 0, sizeof(*rig));
	rig->ops = params->ops;
	rig->data = params->data;
	rig->queue_nr = params->queue_nr;
	rig->depth = params->depth;
	ret = parse_config(rig, params);
	if (ret == 0)
		ret = open_tree(rig, params, &open_params);
	if (ret < 0)
		free_config(rig);
	/* The last zone is written in order, by tests of its own; all others are conventional. */
	else
		rig->device->limits.size_bytes -= rig->device->limits.zones.bytes;
	return ret;
}

static int open_queue(struct rig *rig, unsigned idx)
{
	struct reactor_params params = { .idx = idx, .sq_entries = 32, .cq_entries = 128 };
	struct rig_queue *q = &rig->queue[idx];
	int ret = reactor_init(&q->reactor, &params);

	if (ret == 0)
		ret = backend_queue_open(&q->queue, rig->device, &q->reactor, idx, rig->depth);
	for (unsigned tag = 0; ret == 0 && tag < rig->depth; tag++) {
		ret = backend_io_init(&q->io[tag].io, q->queue, tag, on_done);
		if (ret == 0)
			q->io[tag].io.buf = aligned_alloc(4096, RIG_IO_BYTES);
	}
	return ret;
}

int rig_open_queues(struct rig *rig)
{
	for (unsigned i = 0; i < rig->queue_nr; i++) {
		int ret = open_queue(rig, i);

		if (ret < 0)
			return ret;
	}
	return 0;
}

void rig_close_queues(struct rig *rig)
{
	for (unsigned i = 0; i < rig->queue_nr; i++) {
		struct rig_queue *q = &rig->queue[i];

		for (unsigned tag = 0; tag < rig->depth; tag++) {
			free(q->io[tag].io.buf);
			backend_io_fini(&q->io[tag].io);
		}
		/* Another reactor says nothing when what is there rests. */
		while (!backend_queue_rest(q->queue))
			reactor_turn(&q->reactor, !rig->data);
		backend_queue_close(q->queue);
		reactor_fini(&q->reactor);
		memset(q, 0, sizeof(*q));
	}
}

static void on_closed(void *arg, const struct backend_life_end *end)
{
	(void)end;
	*(bool *)arg = true;
}

/* With its last words. */
void rig_close_device(struct rig *rig)
{
	struct reactor_params reactor_params = { .sq_entries = 32, .cq_entries = 128 };
	const struct backend_home home = rig_home(rig);
	struct backend_life *life;
	bool is_closed = false;
	const struct backend_life_owner owner = { .done = on_closed, .arg = &is_closed };

	ASSERT(reactor_init(&rig->home, &reactor_params) == 0);
	ASSERT(backend_close_begin(&life, &home, rig->device, &owner) == 0);
	while (!is_closed)
		reactor_turn(&rig->home, true);
	reactor_fini(&rig->home);
	free_config(rig);
}

void rig_crash(struct rig *rig)
{
	rig_close_queues(rig);
	backend_close(rig->device);
	free_config(rig);
}

void rig_stored_dup(const struct rig *rig, int ret_fds[static RIG_STORED_MAX])
{
	for (unsigned i = 0; i < RIG_STORED_MAX; i++) {
		int fd = backend_stored_fd(rig->device, i);

		ret_fds[i] = fd > 0 ? dup(fd) : fd;
	}
}

void rig_stored_close(const int fds[static RIG_STORED_MAX])
{
	for (unsigned i = 0; i < RIG_STORED_MAX; i++)
		if (fds[i] > 0)
			close(fds[i]);
}

void rig_close(struct rig *rig)
{
	rig_close_queues(rig);
	rig_close_device(rig);
}

int rig_open(struct rig *rig, const struct rig_params *params)
{
	int ret = rig_open_device(rig, params);

	if (ret < 0)
		return ret;
	ret = rig_open_queues(rig);
	if (ret < 0) {
		snprintf(rig->error, sizeof(rig->error), "queues: %s", strerror(-ret));
		rig_close(rig);
	}
	return ret;
}

int rig_open_disk(struct rig *rig, const char *type, const char *yaml,
		  const int stored_fds[RIG_STORED_MAX])
{
	struct rig_params params = { .ops = backend_find(type),
				     .name = "disk",
				     .yaml = yaml,
				     .block_bytes = 512,
				     .queue_nr = 1,
				     .depth = 4 };

	if (stored_fds)
		memcpy(params.stored_fds, stored_fds, sizeof(params.stored_fds));
	return rig_open(rig, &params);
}

void rig_submit(struct rig *rig, struct rig_io *rio)
{
	struct rig_queue *q = container_of(rio - rio->io.tag, struct rig_queue, io[0]);

	(void)rig;
	rio->out = true;
	rio->busy = false;
	switch (backend_io_submit(&rio->io)) {
	case BACKEND_DONE:
		on_done(&rio->io);
		break;
	case BACKEND_QUEUED:
		break;
	case BACKEND_BUSY:
		rio->busy = true;
		q->busy_retry = false;
		break;
	}
}

static void retry_busy(struct rig *rig, struct rig_queue *q)
{
	for (unsigned tag = 0; q->busy_retry && tag < rig->depth; tag++)
		if (q->io[tag].busy)
			rig_submit(rig, &q->io[tag]);
}

void rig_turn(struct rig *rig)
{
	for (unsigned i = 0; i < rig->queue_nr; i++) {
		struct rig_queue *q = &rig->queue[i];

		reactor_turn(&q->reactor, rig->queue_nr == 1 && q->queue->inflight > 0);
		retry_busy(rig, q);
	}
}

unsigned rig_out_nr(const struct rig *rig)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < rig->queue_nr; i++)
		for (unsigned tag = 0; tag < rig->depth; tag++)
			nr += rig->queue[i].io[tag].out;
	return nr;
}

void rig_drain(struct rig *rig)
{
	while (rig_out_nr(rig) > 0)
		rig_turn(rig);
}

int rig_do(struct rig *rig, enum backend_op op, unsigned flags, uint64_t offset_bytes,
	   uint32_t length_bytes, void *buf)
{
	struct rig_io *rio = &rig->queue[0].io[0];
	void *own_buf = rio->io.buf;

	rio->done = NULL;
	rio->io.op = op;
	rio->io.flags = (uint8_t)flags;
	rio->io.offset_bytes = offset_bytes;
	rio->io.length_bytes = length_bytes;
	if (buf)
		rio->io.buf = buf;
	rig_submit(rig, rio);
	while (rio->out)
		rig_turn(rig);
	rio->io.buf = own_buf;
	return rio->io.result;
}

/* ---- leaves that fail ---- */

#define LEAVES_MAX 32

/* What stands in the place of a leaf's row. */
struct failing_leaf {
	struct backend ops;
	const struct backend *real;
};

static struct failing_leaf failing_leaves[LEAVES_MAX];
static unsigned failing_nr, failed_flush_nr;

static enum backend_submit failing_submit(struct backend_io *io)
{
	const struct failing_leaf *leaf =
		container_of(io->queue->device->ops, struct failing_leaf, ops);

	if (io->op != BACKEND_FLUSH)
		return leaf->real->submit(io);
	failed_flush_nr++;
	io->result = -EIO;
	return BACKEND_DONE;
}

/* Calls fn for each; returns how many there are. Recurses at most BACKEND_DEPTH_MAX deep. */
static unsigned each_leaf(struct backend_device *device, void (*fn)(struct backend_device *leaf))
{
	unsigned nr = 0;

	if (device->has_copies)
		return 0;
	for (struct backend_device *c = device->child; c; c = c->sibling)
		nr += each_leaf(c, fn);
	if (device->child || !(device->limits.caps & BACKEND_CAP_FLUSH))
		return nr;
	fn(device);
	return 1;
}

static void leaf_fails(struct backend_device *leaf)
{
	struct failing_leaf *f = &failing_leaves[failing_nr++];

	ASSERT(failing_nr <= LEAVES_MAX);
	*f = (struct failing_leaf){ .ops = *leaf->ops, .real = leaf->ops };
	f->ops.submit = failing_submit;
	leaf->ops = &f->ops;
}

static void leaf_works(struct backend_device *leaf)
{
	if (leaf->ops->submit == failing_submit)
		leaf->ops = container_of(leaf->ops, struct failing_leaf, ops)->real;
}

static void leaf_loses(struct backend_device *leaf)
{
	backend_owe(leaf);
}

unsigned rig_fail_flushes(struct rig *rig, bool do_fail)
{
	unsigned nr = failed_flush_nr;

	each_leaf(rig->device, leaf_works);
	failing_nr = failed_flush_nr = 0;
	if (do_fail)
		each_leaf(rig->device, leaf_fails);
	return nr;
}

unsigned rig_lose(struct rig *rig)
{
	return each_leaf(rig->device, leaf_loses);
}

unsigned rig_count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned nr = 0;

	while (readdir(dir))
		nr++;
	closedir(dir);
	return nr;
}
