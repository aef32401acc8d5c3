/* notify: what the service manager hears, and what happens without one. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/runtime/notify.h"

/* name as in NOTIFY_SOCKET: a path, or @ and an abstract name. */
static int listen_as(const char *name)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	size_t len = strlen(name);

	memcpy(addr.sun_path, name, len);
	if (name[0] == '@')
		addr.sun_path[0] = '\0';
	assert_int_equal(
		bind(fd, (void *)&addr, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)),
		0);
	setenv("NOTIFY_SOCKET", name, 1);
	return fd;
}

static void expect(int fd, const char *start)
{
	char text[256];
	ssize_t bytes = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);

	assert_true(bytes > 0);
	text[bytes] = '\0';
	assert_int_equal(strncmp(text, start, strlen(start)), 0);
}

static void test_path(void **state)
{
	char path[] = "/tmp/test_notify.XXXXXX";
	int fd;

	(void)state;
	close(mkstemp(path));
	unlink(path);
	fd = listen_as(path);
	notify_ready();
	expect(fd, "READY=1");
	notify_reloading();
	expect(fd, "RELOADING=1\nMONOTONIC_USEC=");
	notify_stopping();
	expect(fd, "STOPPING=1");
	close(fd);
	assert_int_equal(notify_send("READY=1"), -ECONNREFUSED);
	unlink(path);
	assert_int_equal(notify_send("READY=1"), -ENOENT);
}

static void test_abstract(void **state)
{
	char name[64];
	int fd;

	(void)state;
	snprintf(name, sizeof(name), "@ublkd-test-%d", (int)getpid());
	fd = listen_as(name);
	assert_int_equal(notify_send("READY=1"), 0);
	expect(fd, "READY=1");
	close(fd);
}

static void test_nobody_to_tell(void **state)
{
	char name[200];

	(void)state;
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(notify_send("READY=1"), 0);
	setenv("NOTIFY_SOCKET", "", 1);
	assert_int_equal(notify_send("READY=1"), 0);
	setenv("NOTIFY_SOCKET", "relative", 1);
	assert_int_equal(notify_send("READY=1"), -EAFNOSUPPORT);
	memset(name, 'x', sizeof(name) - 1);
	name[0] = '/';
	name[sizeof(name) - 1] = '\0';
	setenv("NOTIFY_SOCKET", name, 1);
	assert_int_equal(notify_send("READY=1"), -EAFNOSUPPORT);
}

static uint64_t watchdog_ns(const char *usec, const char *pid)
{
	if (usec)
		setenv("WATCHDOG_USEC", usec, 1);
	else
		unsetenv("WATCHDOG_USEC");
	if (pid)
		setenv("WATCHDOG_PID", pid, 1);
	else
		unsetenv("WATCHDOG_PID");
	return notify_watchdog_ns();
}

static void test_watchdog(void **state)
{
	char name[64], pid[32], other[32];
	int fd;

	(void)state;
	snprintf(name, sizeof(name), "@ublkd-test-%d", (int)getpid());
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	snprintf(other, sizeof(other), "%d", (int)getppid());
	assert_int_equal(watchdog_ns(NULL, NULL), 0);
	assert_int_equal(watchdog_ns("30000000", NULL), 30000000000);
	assert_int_equal(watchdog_ns("30000000", pid), 30000000000);
	/* Another process was meant, and has left us its environment. */
	assert_int_equal(watchdog_ns("30000000", other), 0);
	assert_int_equal(watchdog_ns("30s", pid), 0);
	assert_int_equal(watchdog_ns("-1", pid), 0);
	assert_int_equal(watchdog_ns("", pid), 0);
	assert_int_equal(watchdog_ns("18446744073709551615", pid), 0);
	assert_int_equal(watchdog_ns("99999999999999999999999", pid), 0);
	fd = listen_as(name);
	notify_watchdog();
	expect(fd, "WATCHDOG=1");
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_path),
		cmocka_unit_test(test_abstract),
		cmocka_unit_test(test_nobody_to_tell),
		cmocka_unit_test(test_watchdog),
	};

	return cmocka_run_group_tests_name("notify", tests, NULL, NULL);
}
