/* The control socket's transport and a handler that echoes, holds back or floods. For one program.
 */
#ifndef TEST_RIG_SOCKET_RIG_H
#define TEST_RIG_SOCKET_RIG_H

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "base/log.h"
#include "base/util.h"
#include "daemon/socket/socket.h"
#include "test/rig/socket_check.h"

#define FLOOD_BYTES (8u << 20)
#define WORK_NS (2 * SOCKET_TURN_NS)

static char dir[] = "/tmp/test_socket.XXXXXX";
static char path[64];
static struct socket_server server;
static struct socket_client *held;
static unsigned canceled_nr, worked_nr;

static inline uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
}

/* "hold": answered later; "work": takes its time; "flood": a long answer; "bye": answered and
 * closed; else: echo. */
static inline void on_request(struct socket_client *client, char *line, size_t bytes)
{
	char *flood;

	if (strcmp(line, "hold") == 0) {
		held = client;
	} else if (strcmp(line, "flood") == 0) {
		flood = malloc(FLOOD_BYTES + 1);
		memset(flood, 'x', FLOOD_BYTES);
		flood[FLOOD_BYTES] = '\0';
		socket_reply(client, flood, false);
	} else if (strcmp(line, "work") == 0) {
		for (uint64_t end_ns = cpu_ns() + WORK_NS; cpu_ns() < end_ns;)
			;
		worked_nr++;
		socket_reply(client, strdup("worked"), false);
	} else if (strcmp(line, "bye") == 0) {
		socket_reply(client, strdup("bye"), true);
	} else if (strcmp(line, "nothing") == 0) {
		socket_reply(client, NULL, false);
	} else {
		assert_int_equal(strlen(line), bytes);
		socket_reply(client, strdup(line), false);
	}
}

static inline void on_cancel(struct socket_client *client)
{
	assert_ptr_equal(client, held);
	held = NULL;
	canceled_nr++;
}

static inline int start(void **state)
{
	(void)state;
	server = (struct socket_server){ .request = on_request, .cancel = on_cancel };
	held = NULL;
	canceled_nr = worked_nr = 0;
	if (socket_bind(&server, peer_loop, path) < 0)
		return -1;
	return socket_listen(&server);
}

static inline int stop(void **state)
{
	(void)state;
	socket_fini(&server);
	return server.client_nr == 0 && access(path, F_OK) < 0 ? 0 : -1;
}

static inline int setup(void **state)
{
	(void)state;
	log_init(LOG_LEVEL_ERROR);
	peer_loop = ev_default_loop(0);
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/socket", dir);
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	ev_loop_destroy(peer_loop);
	return rmdir(dir);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, start, stop)

#endif
