/*
 * The connections of a device, as JSON. Main thread; reads live counters of the reactors. Failure
 * mode: out of memory makes parts of the answer null; jansson takes NULL everywhere.
 */
#include "daemon/api/json_connection.h"

#include "base/util.h"
#include "daemon/api/json_device.h"
#include "ublk/device/inflight.h"

static json_t *ends_of(const struct backend_connection *c)
{
	json_t *all = json_object();

	for (unsigned end = 0; end < BACKEND_END_NR; end++)
		if (c->ends[end])
			json_object_set_new(all, backend_end_name((enum backend_end)end),
					    json_integer((json_int_t)c->ends[end]));
	return all;
}

static json_t *times_of(const struct histogram *h)
{
	json_t *all = json_object();

	json_set_summary(all, h);
	return all;
}

static void set_counters(json_t *object, const struct backend_connection *c)
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

static json_t *one(unsigned queue, unsigned idx, const struct backend_connection *c,
		   uint64_t now_ns)
{
	json_t *o = json_pack("{s:i, s:i, s:s, s:o}", "queue", (int)queue, "connection", (int)idx,
			      "state", c->state, "state_ns", ns_between(c->since_ns, now_ns));

	if (c->next_try_ns)
		json_object_set_new(o, "next_try_in_ns", ns_between(now_ns, c->next_try_ns));
	set_counters(o, c);
	json_object_set_new(o, "ends", ends_of(c));
	json_object_set_new(o, "last_end",
			    c->last_end < 0
				    ? json_null()
				    : json_string(backend_end_name((enum backend_end)c->last_end)));
	json_object_set_new(o, "wait", times_of(c->wait));
	json_object_set_new(o, "answer", times_of(c->answer));
	return o;
}

json_t *json_connections(const struct device *device, uint64_t now_ns)
{
	struct backend_connection c;
	json_t *all = NULL;

	DEVICE_FOR_EACH_CONNECTION(device, queue, i, &c)
	{
		if (!all)
			all = json_array();
		json_array_append_new(all, one(queue, i, &c, now_ns));
	}
	return all;
}
