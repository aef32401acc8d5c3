/*
 * throttle and resize: they change a device that serves. Main thread.
 *
 * throttle. Happy path: the limits in force, with those of the request over them, pass the same
 * checks as a configuration and are handed to the filter; the answer is what is in force then. The
 * configuration file does not change: the next start of the device has the limits of the file.
 * Failure modes: no throttle; a value that is wrong by itself or with the others: nothing changes.
 *
 * resize. Happy path: the size is read ("20GiB", "+1GiB", none for the backend's own growth) ->
 * device_set_resize -> the device has its new size: that is the answer. Failure modes: a refusal is
 * answered at once, also when the new size cannot be noted, before anything has changed; a backend
 * that delays a shrink: after the deadline the answer says so, and the resize goes on; the client
 * disconnects: it is forgotten.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>

#include "base/util.h"
#include "config/option.h"
#include "daemon/api/device_wait.h"
#include "daemon/api/json_device.h"
#include "daemon/devices/device_notes.h"
#include "filters/throttle/throttle.h"

/* ---- throttle ---- */

static int set_limit(struct throttle_config *config, const char *key, const json_t *value,
		     struct config_errors *e)
{
	char number[32];
	const char *text = json_string_value(value);

	if (!text) {
		snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
		text = number;
	}
	return option_set(throttle_options, key, text, (struct config_pos){ 0 }, config, e);
}

/* Returns -ENOMEM, or 0; what is wrong is in e. */
static int set_limits(struct throttle_config *config, json_t *values, struct config_errors *e)
{
	const char *key;
	json_t *value;
	int ret = 0;

	json_object_foreach(values, key, value)
	{
		if (ret != -ENOMEM)
			ret = set_limit(config, key, value, e);
	}
	if (config->group)
		config_errors_add(e, (struct config_pos){ 0 },
				  "group: cannot be changed while the device serves");
	if (!config_errors_any(e))
		throttle_check(config, NULL, e);
	return ret == -ENOMEM ? ret : 0;
}

static void change_limits(struct socket_client *client, struct backend_device *throttle,
			  json_t *values)
{
	struct throttle_config config = { .group = NULL };
	struct config_errors e;
	int ret;

	throttle_get(throttle, &config.limits);
	config_errors_init(&e, "throttle");
	ret = set_limits(&config, values, &e);
	if (ret < 0)
		socket_refuse(client, "out of memory", NULL);
	else if (config_errors_any(&e))
		socket_refuse_errors(client, "the limits stay as they are", &e);
	else
		throttle_update(throttle, &config.limits);
	if (ret == 0 && !config_errors_any(&e))
		socket_answer(client, json_throttle(throttle));
	option_free(throttle_options, &config);
	config_errors_fini(&e);
}

void commands_throttle(struct commands *c, struct socket_client *client, const json_t *request)
{
	struct member *m = commands_named(c, client, request);
	json_t *values = json_object_get(request, "set");
	struct backend_device *throttle;

	if (!m)
		return;
	if (!m->device || m->ended) {
		socket_refuse(client, "the device does not run", NULL);
		return;
	}
	throttle = throttle_find(device_backend(m->device));
	if (!throttle)
		socket_refuse(client, "the device has no throttle among its backends", NULL);
	else if (values)
		change_limits(client, throttle, values);
	else
		socket_answer(client, json_throttle(throttle));
}

/* ---- resize ---- */

static json_t *resize_answer(const char *name, uint64_t from_bytes, uint64_t to_bytes,
			     const char *words)
{
	return json_pack("{s:s, s:I, s:I, s:s}", "name", name, "old_size_bytes",
			 (json_int_t)from_bytes, "size_bytes", (json_int_t)to_bytes, "note", words);
}

/* It is no success, and it is not undone either: users may have seen the new size. */
static void refuse_unnoted(struct device_wait *w, uint64_t bytes)
{
	char words[DEVICE_ERROR_BYTES];

	snprintf(words, sizeof(words),
		 "has its new size, %llu bytes, but that cannot be noted in %s (see the log); it "
		 "is tried again",
		 (unsigned long long)bytes, w->commands->device_set->state->path);
	socket_refuse(w->client, words, NULL);
}

static void resize_ended(struct device_wait *w, enum device_set_outcome outcome, const char *words)
{
	struct device_resized r;

	device_resized(w->member->device, &r);
	if (outcome == DEVICE_SET_RESIZED && w->member->note_owed)
		refuse_unnoted(w, r.to_bytes);
	else if (outcome == DEVICE_SET_RESIZED)
		socket_answer(w->client, resize_answer(w->member->settings->options.name,
						       r.from_bytes, r.to_bytes, words));
	else
		socket_refuse(w->client, words, NULL);
}

static bool resize_late(struct device_wait *w)
{
	socket_refuse(w->client, "is not done yet; it goes on", NULL);
	return true;
}

static const struct device_wait_kind resize_wait = {
	.watch = device_set_watch_resize,
	.ended = resize_ended,
	.timer = resize_late,
};

static uint64_t member_size(const struct member *m)
{
	struct device_info info = { 0 };

	if (m->device && !m->ended)
		device_info(m->device, &info);
	return info.size_bytes;
}

/* text NULL: 0, the backend's own. False: it is no size. */
static bool read_new_size(const struct member *m, const char *text, uint64_t *ret_bytes)
{
	bool relative = text && text[0] == '+';

	*ret_bytes = 0;
	if (!text)
		return true;
	if (option_parse_size(text + relative, ret_bytes) < 0 || *ret_bytes == 0)
		return false;
	return !relative || !__builtin_add_overflow(*ret_bytes, member_size(m), ret_bytes);
}

static void begin_resize(struct device_wait *w, uint64_t size_bytes, bool force)
{
	char error[DEVICE_ERROR_BYTES] = "";
	uint64_t is_bytes = member_size(w->member);
	int ret = 0;

	/* While nothing has changed yet. */
	if (w->member->state == MEMBER_LIVE)
		ret = note_before_change(w->commands->device_set, w->member, error, sizeof(error));
	if (ret == 0)
		ret = device_set_resize(w->member, size_bytes, force, error, sizeof(error));
	if (ret == 0) {
		device_wait_begin(w);
		return;
	}
	if (ret == -EALREADY)
		socket_answer(w->client, resize_answer(w->member->settings->options.name, is_bytes,
						       is_bytes, ""));
	else
		socket_refuse(w->client, error, NULL);
	device_wait_drop(w);
}

void commands_resize(struct commands *c, struct socket_client *client, const json_t *request)
{
	struct member *m = commands_named(c, client, request);
	struct device_wait *w;
	uint64_t size_bytes;

	if (!m)
		return;
	if (!read_new_size(m, json_string_value(json_object_get(request, "size")), &size_bytes)) {
		socket_refuse(client, "size: expected a number of bytes, like 20GiB or +512MiB",
			      NULL);
		return;
	}
	w = device_wait_new(c, client, m, &resize_wait);
	if (w)
		begin_resize(w, size_bytes, json_is_true(json_object_get(request, "force")));
}
