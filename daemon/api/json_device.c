/*
 * What the daemon knows of a device, as JSON. Main thread; reads live counters of the reactors.
 * Failure mode: out of memory makes parts of the answer null; jansson takes NULL everywhere.
 */
#include "daemon/api/json_device.h"

#include <stdlib.h>
#include <string.h>

#include "storage/sharing.h"
#include "storage/spec.h"
#include "storage/resize.h"
#include "filters/throttle/throttle.h"
#include "base/errname.h"
#include "base/histogram.h"
#include "base/util.h"
#include "daemon/devices/device_notes.h"
#include "daemon/wire/json_histogram.h"
#include "daemon/api/json_image.h"
#include "daemon/api/json_integrity.h"
#include "daemon/api/json_shmem.h"
#include "daemon/api/json_zones.h"
#include "daemon/wire/json_words.h"
#include "net/session_look.h"
#include "ublk/control.h"
#include "ublk/device/inflight.h"

/* The driver answers most commands sooner: where they wait is not worth looking for. */
#define COMMAND_LONG_NS NS_PER_SEC

/* ---- what it is ---- */

/* Of the device's life; or why a backend of it fails all that comes, though it is live. */
static json_t *member_error(const struct member *m)
{
	const struct backend_device *backend = member_backend(m), *node = NULL;
	const char *error = m->device && !m->ended ? device_error(m->device) : m->error;
	const char *failure = backend && error[0] == '\0' ? backend_failure(backend, &node) : NULL;

	if (!failure || node->name == backend->name)
		return json_words(failure ? failure : error);
	return json_words_format("%s: %s", node->name, failure);
}

static json_t *device_path(const struct device_info *info)
{
	return info->id < 0 ? json_null()
			    : json_words_format("/dev/ublkb%lld", (long long)info->id);
}

static void get_info(const struct member *m, struct device_info *ret_info)
{
	const struct device_options *o = &m->settings->options;

	*ret_info = (struct device_info){
		.id = -1,
		.queues = (uint32_t)o->queues,
		.depth = (uint32_t)o->depth,
		.logical_block_bytes = (uint32_t)o->block_bytes,
		.max_io_bytes = (uint32_t)o->max_io_bytes,
		.partition_scan = o->partition_scan,
		.backend = m->settings->stack,
	};
	/* The device exists in the driver before it is adopted: its users wait. */
	if (m->past)
		ret_info->id = (int64_t)m->past->device.info.dev_id;
	if (m->device && !m->ended)
		device_info(m->device, ret_info);
}

json_t *json_device_notes(const struct member *m)
{
	const struct backend_device *backend = member_backend(m);
	char words[BACKEND_NOTE_BYTES];
	json_t *all = NULL;

	for (unsigned i = 0; backend && backend_note(backend, i, words); i++) {
		if (!all)
			all = json_array();
		json_array_append_new(all, json_words(words));
	}
	return all;
}

json_t *json_device_line(const struct member *m)
{
	json_t *notes = json_device_notes(m), *line;
	struct device_info info;

	get_info(m, &info);
	line = json_pack("{s:s, s:s, s:I, s:o, s:s, s:I, s:i, s:i, s:i, s:o}", "name",
			 m->settings->options.name, "state", member_state_name(m), "id",
			 (json_int_t)info.id, "path", device_path(&info), "backend", info.backend,
			 "size_bytes", (json_int_t)info.size_bytes, "queues", (int)info.queues,
			 "depth", (int)info.depth, "block_bytes", (int)info.logical_block_bytes,
			 "error", member_error(m));
	if (notes)
		json_object_set_new(line, "notes", notes);
	return line;
}

/* Bits of caps by name. Without BACKEND_CAP_GROWS, which is for nodes and not for users. */
static json_t *caps(uint32_t bits)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} cap[] = {
		{ BACKEND_CAP_FLUSH, "flush" },
		{ BACKEND_CAP_FUA, "fua" },
		{ BACKEND_CAP_DISCARD, "discard" },
		{ BACKEND_CAP_WRITE_ZEROES, "write_zeroes" },
		{ BACKEND_CAP_READ_ONLY, "read_only" },
		{ BACKEND_CAP_ROTATIONAL, "rotational" },
	};
	json_t *all = json_array();

	for (size_t i = 0; i < ARRAY_SIZE(cap); i++)
		if (bits & cap[i].bit)
			json_array_append_new(all, json_string(cap[i].name));
	return all;
}

static json_t *flags(uint64_t bits)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < 64; i++)
		if (bits >> i & 1)
			json_array_append_new(all, ctl_feature_name(i)
							   ? json_string(ctl_feature_name(i))
							   : json_words_format("bit %u", i));
	return all;
}

static json_t *queue_reactors(const struct device_info *info)
{
	unsigned nr = MIN(info->queue_reactor_nr, (unsigned)sizeof(info->queue_reactor));
	json_t *all = json_array();

	for (unsigned i = 0; i < nr; i++)
		json_array_append_new(all, json_integer(info->queue_reactor[i]));
	return all;
}

static json_t *option_names(const struct option *o, uint64_t set)
{
	json_t *all = json_array();

	for (unsigned i = 0; o->values[i]; i++)
		if (set >> i & 1)
			json_array_append_new(all, json_string(o->values[i]));
	return all;
}

static json_t *options_of(const struct option *table, const void *config);

/* One value of a backend's options. A map has a table of its own, and so on. */
static json_t *option_value(const struct option *o, const void *field)
{
	switch (o->type) {
	case OPTION_STRING:
		return *(char *const *)field ? json_words(*(char *const *)field) : json_null();
	case OPTION_BOOL:
		return json_boolean(*(const bool *)field);
	case OPTION_UINT:
	case OPTION_SIZE:
	case OPTION_DURATION:
		return json_integer((json_int_t) * (const uint64_t *)field);
	case OPTION_OUTAGE_TIMEOUT:
		if (*(const uint64_t *)field == OPTION_FOREVER)
			return json_string("forever");
		return json_integer((json_int_t) * (const uint64_t *)field);
	case OPTION_ENUM:
		return json_string(o->values[*(const int *)field]);
	case OPTION_SET:
		return option_names(o, *(const uint64_t *)field);
	case OPTION_RATIO:
		return json_real(*(const double *)field);
	case OPTION_MAP:
		return *(void *const *)field ? options_of(o->table, *(void *const *)field)
					     : json_null();
	default:
		return json_null();
	}
}

static void add_options(json_t *all, const struct option *table, const void *config)
{
	struct option_walk walk;

	option_for_each (&walk, table)
		json_object_set_new(all, walk.row->name,
				    option_value(walk.row, (const char *)config + walk.offset));
}

static json_t *options_of(const struct option *table, const void *config)
{
	json_t *all = json_object();

	add_options(all, table, config);
	return all;
}

json_t *json_throttle(struct backend_device *throttle)
{
	struct throttle_config config = *(const struct throttle_config *)throttle->config;
	json_t *all = json_object();

	throttle_get(throttle, &config.limits);
	add_options(all, throttle_options, &config);
	return all;
}

static json_t *backend_options(const struct backend_spec *spec, struct backend_device *device);

/* Below the key that the configuration has for this child. */
static void add_child_options(json_t *all, const struct backend_spec *spec,
			      struct backend_device *device)
{
	const char *key = spec->as ? spec->as->name : "backend";
	json_t *options = backend_options(spec, device);

	if (!spec->as || spec->as->nr_max == 1) {
		json_object_set_new(all, key, options);
		return;
	}
	if (!json_object_get(all, key))
		json_object_set_new(all, key, json_array());
	json_array_append_new(json_object_get(all, key), options);
}

/* Below the keys where a word stands in the place of a child. */
static void add_child_words(json_t *all, const struct backend_spec *spec)
{
	for (const struct backend_child_option *as = spec->ops->children; as && as->name; as++)
		if (backend_spec_word(spec, as))
			json_object_set_new(all, as->name, json_words(backend_spec_word(spec, as)));
}

/*
 * As in the configuration. device is NULL, or the one that was opened by spec: then the limits of a
 * throttle are those in force.
 */
static json_t *backend_options(const struct backend_spec *spec, struct backend_device *device)
{
	struct backend_device *below = device ? backend_below(device) : NULL;
	/* What is shared was opened by a copy, in which its nodes have found children. */
	const struct backend_spec *child = spec->ops->shared && below ? below->spec : spec->child;
	json_t *all = json_pack("{s:s}", "type", spec->ops->name), *live = NULL;

	add_options(all, spec->ops->options, spec->config);
	if (device && throttle_is(device))
		live = json_throttle(device);
	json_object_update(all, live);
	json_decref(live);
	add_child_words(all, spec);
	for (; child; child = child->sibling) {
		add_child_options(all, child, below);
		below = below ? below->sibling : NULL;
	}
	return all;
}

/* Opening or closing a backend is reported in the same form as a command to the driver. */
static void get_backend_work(const struct member *m, struct device_command *ret_command)
{
	uint64_t since_ns, now_ns = ring_clock_ns();

	ret_command->name = backend_work_doing(m->work, &since_ns, ret_command->where);
	ret_command->waited_ns = now_ns - MIN(since_ns, now_ns);
}

void json_set_command(json_t *object, const struct member *m)
{
	struct device_command c = { 0 };

	if (m->device && !m->ended)
		device_command(m->device, COMMAND_LONG_NS, &c);
	else if (m->work)
		get_backend_work(m, &c);
	if (!c.name)
		return;
	json_object_set_new(object, "command", json_string(c.name));
	json_object_set_new(object, "command_waited_ns", json_integer((json_int_t)c.waited_ns));
	json_object_set_new(object, "command_waits_in", json_words(c.where));
}

/* ---- its connections ---- */

static json_t *connection_ends(const struct net_connection_look *c)
{
	json_t *all = json_object();

	for (unsigned end = 0; end < NET_END_NR; end++)
		if (c->ends[end])
			json_object_set_new(all, net_end_name((enum net_end)end),
					    json_integer((json_int_t)c->ends[end]));
	return all;
}

static void set_connection_counters(json_t *object, const struct net_connection_look *c)
{
	const struct {
		const char *key;
		uint64_t value;
	} field[] = {
		{ "connects", c->connects },
		{ "lost", c->lost },
		{ "failed_tries", c->failed_tries },
		{ "resent", c->resent },
		{ "answered", c->answered },
		{ "sends", c->sends },
		{ "sent_bytes", c->sent_bytes },
		{ "receives", c->receives },
		{ "received_bytes", c->received_bytes },
	};

	for (size_t i = 0; i < ARRAY_SIZE(field); i++)
		json_object_set_new(object, field[i].key, json_integer((json_int_t)field[i].value));
}

/* The reactor may be a moment ahead of now. */
static json_t *ns_between(uint64_t from_ns, uint64_t to_ns)
{
	return json_integer((json_int_t)(to_ns > from_ns ? to_ns - from_ns : 0));
}

static json_t *json_connection(unsigned queue, unsigned idx, const struct net_connection_look *c,
			       uint64_t now_ns)
{
	json_t *wait = json_object(), *answer = json_object();
	json_t *o = json_pack("{s:i, s:i, s:s, s:o, s:s, s:o}", "queue", (int)queue, "connection",
			      (int)idx, "node", c->node, "server", json_words(c->server), "state",
			      c->state, "state_ns", ns_between(c->since_ns, now_ns));

	if (c->next_try_ns)
		json_object_set_new(o, "next_try_in_ns", ns_between(now_ns, c->next_try_ns));
	if (c->is_repeated)
		json_object_set_new(o, "repeated", json_true());
	set_connection_counters(o, c);
	json_object_set_new(o, "ends", connection_ends(c));
	json_object_set_new(o, "last_end",
			    c->last_end < 0 ? json_null()
					    : json_string(net_end_name((enum net_end)c->last_end)));
	json_set_summary(wait, c->wait);
	json_set_summary(answer, c->answer);
	json_object_set_new(o, "wait", wait);
	json_object_set_new(o, "answer", answer);
	return o;
}

/* In the order of queues; NULL: it has none. */
static json_t *json_connections(const struct device *device, uint64_t now_ns)
{
	struct net_connection_look c;
	json_t *all = NULL;

	DEVICE_FOR_EACH_CONNECTION(device, queue, i, &c)
	{
		if (!all)
			all = json_array();
		json_array_append_new(all, json_connection(queue, i, &c, now_ns));
	}
	return all;
}

/* Of the whole process: threads that it has besides ours. */
static void set_library(json_t *object, const struct member *m)
{
	const struct backend_device *backend = member_backend(m);
	struct backend_library_look look;

	if (!backend || !backend_library(backend, &look))
		return;
	json_object_set_new(object, "library",
			    json_pack("{s:s, s:i, s:i, s:i}", "name", look.name, "threads",
				      (int)look.thread_nr, "clients", (int)look.client_nr, "images",
				      (int)look.image_nr));
}

/* ---- all of it ---- */

/* With the children that its nodes have found by themselves, when it is open. */
static json_t *member_options(const struct member *m)
{
	struct backend_device *device = member_backend(m);

	return backend_options(device && device->resolved ? device->resolved : m->settings->backend,
			       device);
}

json_t *json_device_full(const struct member *m)
{
	const char *step = m->device && !m->ended ? device_state_name(device_state(m->device))
						  : member_state_name(m);
	json_t *all = json_device_line(m), *more, *connections = NULL, *images, *caches, *zones,
	       *integrity, *shmem;
	struct device_info info;

	get_info(m, &info);
	more = json_pack("{s:s, s:b, s:b, s:b, s:i, s:I, s:o, s:o, s:o, s:s, s:b, s:I, s:o}",
			 "step", step, "from_file", m->from_file, "read_only",
			 m->settings->options.read_only, "partition_scan", info.partition_scan,
			 "physical_block_bytes", (int)info.physical_block_bytes, "max_io_bytes",
			 (json_int_t)info.max_io_bytes, "caps", caps(info.caps), "ublk_flags",
			 flags(info.flags), "queue_reactors", queue_reactors(&info), "data_path",
			 info.data_path ? info.data_path : "", "batch", info.batch,
			 "buffer_bytes_max", (json_int_t)info.buffer_bytes_max, "options",
			 member_options(m));
	json_object_update(all, more);
	json_decref(more);
	if (m->device && !m->ended)
		connections = json_connections(m->device, ring_clock_ns());
	if (connections)
		json_object_set_new(all, "connections", connections);
	images = m->device && !m->ended ? json_images(m->device) : NULL;
	if (images)
		json_object_set_new(all, "images", images);
	caches = m->device && !m->ended ? json_caches(m->device) : NULL;
	if (caches)
		json_object_set_new(all, "caches", caches);
	zones = m->device && !m->ended ? json_zones(m->device) : NULL;
	if (zones)
		json_object_set_new(all, "zones", zones);
	integrity = m->device && !m->ended ? json_integrity(m->device) : NULL;
	if (integrity)
		json_object_set_new(all, "integrity", integrity);
	shmem = m->device && !m->ended ? json_shmem(m->device) : NULL;
	if (shmem)
		json_object_set_new(all, "shared_memory", shmem);
	set_library(all, m);
	json_set_command(all, m);
	return all;
}

/* ---- what it did ---- */

static json_t *layer_stats(const struct device_op_stats *op, bool buckets)
{
	json_t *all = json_object();

	for (unsigned layer = 0; layer < QUEUE_LAYER_NR; layer++) {
		json_t *one = json_object();

		json_set_summary(one, &op->layer[layer]);
		if (buckets)
			json_set_buckets(one, &op->layer[layer]);
		json_object_set_new(all, queue_layer_name(layer), one);
	}
	return all;
}

static json_t *op_stats(const struct device_op_stats *op, bool buckets, bool layer_buckets)
{
	const struct histogram *h = &op->layer[QUEUE_LAYER_TOTAL];
	json_t *all = json_pack("{s:I, s:I, s:I, s:I}", "done", (json_int_t)op->done, "failed",
				(json_int_t)op->failed, "bytes", (json_int_t)op->bytes, "sum_ns",
				(json_int_t)h->sum_ns);

	json_set_summary(all, h);
	json_object_set_new(all, "layers", layer_stats(op, layer_buckets));
	if (buckets)
		json_set_buckets(all, h);
	return all;
}

static json_t *error_counts(const struct device_stats *stats)
{
	json_t *all = json_object();

	for (int err = 1; err < QUEUE_ERRNO_NR; err++)
		if (stats->errors[err])
			json_object_set_new(all, errname(err),
					    json_integer((json_int_t)stats->errors[err]));
	return all;
}

void json_read_stats(const struct member *m, struct device_stats *ret_stats)
{
	memset(ret_stats, 0, sizeof(*ret_stats));
	if (m->device && !m->ended)
		device_stats(m->device, ret_stats);
}

json_t *json_device_stats(const struct member *m, bool buckets, bool layer_buckets)
{
	/* Too large for the stack to like; one main thread. */
	static struct device_stats stats;
	json_t *ops = json_object();

	json_read_stats(m, &stats);
	for (unsigned op = 0; op < BACKEND_OP_NR; op++)
		if (device_op_is_told(&stats, op))
			json_object_set_new(ops, backend_op_name(op),
					    op_stats(&stats.op[op], buckets, layer_buckets));
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "name",
			 m->settings->options.name, "state", member_state_name(m), "inflight",
			 (json_int_t)stats.inflight, "inflight_max", (json_int_t)stats.inflight_max,
			 "busy_retries", (json_int_t)stats.busy_retries, "fallbacks",
			 (json_int_t)stats.fallbacks, "in_shared_memory", (json_int_t)stats.shmem,
			 "lost_tags", (json_int_t)stats.lost_tags, "errors", error_counts(&stats),
			 "ops", ops);
}
