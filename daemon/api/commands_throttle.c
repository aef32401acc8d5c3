/*
 * throttle: reads and changes the limits of a device that serves. Main thread.
 *
 * Happy path: the limits in force, with what the request sets of them, pass the same checks as a
 * configuration and are handed to the backend; the answer is what is in force then. The
 * configuration file knows nothing of it: the next start of the device has the file's limits again.
 * Failure modes: no throttle, a value that is wrong by itself or with the others: nothing changes.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>

#include "filters/throttle/throttle.h"
#include "daemon/api/commands_internal.h"
#include "daemon/api/json_device.h"

static int set_one(struct throttle_config *config, const char *key, const json_t *value,
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
static int set_all(struct throttle_config *config, json_t *values, struct config_errors *e)
{
	const char *key;
	json_t *value;
	int ret = 0;

	json_object_foreach(values, key, value)
	{
		if (ret != -ENOMEM)
			ret = set_one(config, key, value, e);
	}
	if (config->group)
		config_errors_add(e, (struct config_pos){ 0 },
				  "group: cannot be changed while the device serves");
	if (!config_errors_any(e))
		throttle_check(config, NULL, e);
	return ret == -ENOMEM ? ret : 0;
}

static void change(struct socket_client *client, struct backend_device *throttle, json_t *values)
{
	struct throttle_config config = { .group = NULL };
	struct config_errors e;
	int ret;

	throttle_get(throttle, &config.limits);
	config_errors_init(&e, "throttle");
	ret = set_all(&config, values, &e);
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
		change(client, throttle, values);
	else
		socket_answer(client, json_throttle(throttle));
}
