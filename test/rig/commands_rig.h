/*
 * The control commands over the real transport, on fake devices, with one client. Definitions: for
 * one program.
 */
#ifndef TEST_RIG_COMMANDS_RIG_H
#define TEST_RIG_COMMANDS_RIG_H

#include <jansson.h>

#include "storage/registry.h"
#include "base/log.h"
#include "daemon/api/commands.h"
#include "test/rig/fake_backends.h"
#include "test/rig/fake_device.h"
#include "test/rig/socket_check.h"

static char dir[] = "/tmp/test_commands.XXXXXX";
static char path[64];
static struct socket_server server;
static struct commands commands;
static struct watchdog watchdog;
static struct device_set device_set;
static struct device_host host;
static struct reactors reactors;
static struct reactor control;
static struct peer peer;

#define ADD(name) "name: " name "\\nbackend: {type: mem, size: 1M}\\n"
#define OK_DEVICES "{\"ok\":true,\"data\":{\"devices\":"

static void expect(const char *request, const char *answer)
{
	assert_true(peer_send(&peer, request));
	assert_true(peer_send(&peer, "\n"));
	peer_expect(&peer, answer);
}

static void add(const char *name)
{
	char request[256], answer[256];

	snprintf(request, sizeof(request), "{\"command\":\"add\",\"yaml\":\"" ADD("%s") "\"}",
		 name);
	snprintf(answer, sizeof(answer), OK_DEVICES "[\"%s\"]}}", name);
	expect(request, answer);
}

/* The answer's data, to be looked into. */
static json_t *ask(const char *request)
{
	json_t *reply, *data;
	char *line;

	assert_true(peer_send(&peer, request));
	assert_true(peer_send(&peer, "\n"));
	line = peer_line(&peer);
	assert_non_null(line);
	reply = json_loads(line, 0, NULL);
	assert_true(json_is_true(json_object_get(reply, "ok")));
	data = json_incref(json_object_get(reply, "data"));
	json_decref(reply);
	free(line);
	return data;
}

static int setup(void **state)
{
	(void)state;
	device_set_init(&device_set, peer_loop, &host, 10 * NS_PER_SEC);
	commands = (struct commands){ .ev = peer_loop,
				      .device_set = &device_set,
				      .reactors = &reactors,
				      .watchdog = &watchdog,
				      .control = &control,
				      .answer_seconds = 60 };
	server = (struct socket_server){ 0 };
	commands_attach(&commands, &server);
	if (socket_bind(&server, peer_loop, path) < 0 || socket_listen(&server) < 0)
		return -1;
	peer = peer_connect(path);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	peer_close(&peer);
	socket_fini(&server);
	device_set_stop_all(&device_set);
	for (unsigned i = 0; i < FAKE_DEVICES_MAX; i++)
		if (fake_devices[i] && fake_is(fake_devices[i], "slow"))
			fake_plan_end(fake_devices[i]);
	peer_pump_for(0.02);
	while (device_set.member_nr && fake_pending())
		peer_pump_for(0.01);
	device_set_fini(&device_set);
	return device_set.member_nr == 0 && fake_nr == 0 ? 0 : -1;
}

static int group_setup(void **state)
{
	(void)state;
	log_init(LOG_LEVEL_ERROR);
	peer_loop = ev_default_loop(0);
	return mkdtemp(dir) && snprintf(path, sizeof(path), "%s/socket", dir) > 0 ? 0 : -1;
}

static int group_teardown(void **state)
{
	(void)state;
	ev_loop_destroy(peer_loop);
	return rmdir(dir);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

#endif
