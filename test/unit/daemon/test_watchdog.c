/*
 * watchdog: reactors that get stuck in code and in the kernel, on real threads; what is logged,
 * what the service manager hears, and that nobody wakes for a daemon that has nothing to do. No
 * test measures time: each waits for what has to come.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "daemon/runtime/loop.h"
#include "daemon/runtime/reactors.h"
#include "base/thread.h"
#include "daemon/devices/watchdog.h"

/* A reactor that is well does not take so long for a callback, also on a busy machine. */
#define LIMIT_NS (300 * NS_PER_MS)
#define WAIT_NS (30 * NS_PER_SEC)

struct block {
	struct mail mail, unread;
	sem_t inside, release;
	struct reactor *reactor;
	char fifo[64]; /* or "": waits for the semaphore */
};

static struct loop loop;
static struct reactors reactors;
static struct device_set device_set;
static struct watchdog watchdog;
static int log_fd, notify_fd;
static struct block blocks[2]; /* of the test that runs; its end unblocks them */

/* ---- a reactor that does not turn ---- */

/* The child opens the fifo before it becomes another program, and its parent waits for that in
 * state D: whoever opens the other end lets both go on. */
static void wait_in_state_d(const char *fifo)
{
	char name[] = "true", *argv[] = { name, NULL }, *envp[] = { NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, fifo, O_RDONLY, 0);
	if (posix_spawn(&pid, "/bin/true", &actions, NULL, argv, envp) == 0)
		waitpid(pid, NULL, 0);
	posix_spawn_file_actions_destroy(&actions);
}

static void block_in_code(struct mail *mail)
{
	struct block *b = container_of(mail, struct block, mail);

	sem_post(&b->inside);
	while (sem_wait(&b->release) < 0)
		;
}

/* To those who look it is in io_uring_enter from here on. */
static void block_in_kernel(struct mail *mail)
{
	struct block *b = container_of(mail, struct block, mail);

	__atomic_store_n(&b->reactor->code_since_ns, 0, __ATOMIC_RELAXED);
	sem_post(&b->inside);
	if (b->fifo[0])
		wait_in_state_d(b->fifo);
	else
		while (sem_wait(&b->release) < 0)
			;
}

static void do_nothing(struct mail *mail)
{
	(void)mail;
}

static void block_init(struct block *b, unsigned idx)
{
	b->reactor = reactors.reactor[idx];
	sem_init(&b->inside, 0, 0);
	sem_init(&b->release, 0, 0);
}

static void block(struct block *b, unsigned idx, mail_fn *fn)
{
	block_init(b, idx);
	reactor_post(b->reactor, &b->mail, fn);
	while (sem_wait(&b->inside) < 0)
		;
}

static void unblock(struct block *b)
{
	int fd = -1;

	if (!b->reactor)
		return;
	sem_post(&b->release);
	if (b->fifo[0])
		fd = open(b->fifo, O_WRONLY | O_NONBLOCK);
	if (fd >= 0)
		close(fd);
	if (b->fifo[0])
		unlink(b->fifo);
	b->reactor = NULL;
}

/* ---- what is to be seen ---- */

static bool until(bool (*fn)(void))
{
	uint64_t end_ns = ring_clock_ns() + WAIT_NS;
	bool never = false, done;

	while (!(done = fn()) && ring_clock_ns() < end_ns)
		loop_run_until(&loop, &never, 5 * NS_PER_MS);
	return done;
}

static bool first_is_stuck(void)
{
	return watchdog_stuck_ns(&watchdog, 0) > 0;
}

static bool none_is_stuck(void)
{
	return watchdog.stuck_nr == 0;
}

static bool dozes(void)
{
	return watchdog.dozes;
}

static bool is_awake(void)
{
	return !watchdog.dozes;
}

static char *logged(void)
{
	static char text[65536];
	ssize_t bytes = pread(log_fd, text, sizeof(text) - 1, 0);

	text[bytes > 0 ? bytes : 0] = '\0';
	return text;
}

static unsigned count(const char *words)
{
	unsigned nr = 0;

	for (const char *at = logged(); (at = strstr(at, words)); at++)
		nr++;
	return nr;
}

static void forget_log(void)
{
	assert_int_equal(ftruncate(log_fd, 0), 0);
	assert_int_equal(lseek(log_fd, 0, SEEK_SET), 0);
}

static unsigned heard(void)
{
	unsigned nr = 0;
	char text[64];
	ssize_t bytes;

	while ((bytes = recv(notify_fd, text, sizeof(text), MSG_DONTWAIT)) > 0) {
		assert_int_equal(bytes, strlen("WATCHDOG=1"));
		assert_memory_equal(text, "WATCHDOG=1", strlen("WATCHDOG=1"));
		nr++;
	}
	return nr;
}

static bool heard_something(void)
{
	return heard() > 0;
}

/* ---- up and down ---- */

static void start(uint64_t limit_ns)
{
	struct watchdog_params params = {
		.ev = loop.ev,
		.device_set = &device_set,
		.reactors = &reactors,
		.home = &loop.control,
		.limit_ns = limit_ns,
	};

	assert_int_equal(watchdog_start(&watchdog, &params), 0);
}

static int setup(void **state)
{
	static unsigned cpu[] = { 0, 0 };
	static const struct option_cpus cpus = { .nr = 2, .cpu = cpu };
	struct reactors_params params = { .cpus = &cpus };
	char error[REACTORS_ERROR_BYTES];

	(void)state;
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	list_init(&device_set.members);
	forget_log();
	memset(blocks, 0, sizeof(blocks));
	assert_int_equal(reactors_start(&reactors, &params, error, sizeof(error)), 0);
	assert_int_equal(loop_init(&loop), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(blocks); i++)
		unblock(&blocks[i]);
	reactors_stop(&reactors);
	watchdog_stop(&watchdog);
	loop_fini(&loop);
	watchdog_stop(&watchdog); /* again is harmless */
	return 0;
}

static void test_stuck_in_code(void **state)
{
	struct block *b = &blocks[0];

	(void)state;
	start(LIMIT_NS);
	block(b, 0, block_in_code);
	assert_true(until(first_is_stuck));
	assert_int_equal(watchdog_stuck_ns(&watchdog, 1), 0);
	assert_int_equal(watchdog_stuck_count(&watchdog, 0), 1);
	assert_int_equal(count("msg=\"reactor is stuck\" reactor=0 cpu=0 for_ms="), 1);
	assert_int_equal(count(" where=code what=mail whom=\"\" thread=S function="), 1);
	unblock(b);
	assert_true(until(none_is_stuck));
	assert_int_equal(count("msg=\"reactor turns again\" reactor=0 after_ms="), 1);
	assert_int_equal(count("reactor is stuck"), 1);
}

static void test_stuck_again(void **state)
{
	struct block *b = blocks;

	(void)state;
	start(LIMIT_NS);
	for (int i = 0; i < 2; i++) {
		block(&b[i], 0, block_in_code);
		assert_true(until(first_is_stuck));
		unblock(&b[i]);
		assert_true(until(none_is_stuck));
	}
	assert_int_equal(watchdog_stuck_count(&watchdog, 0), 2);
	assert_int_equal(count("reactor is stuck"), 2);
	assert_int_equal(count("reactor turns again"), 2);
}

static void test_mail_unread_in_kernel(void **state)
{
	struct block *b = &blocks[0];

	(void)state;
	start(LIMIT_NS);
	block(b, 0, block_in_kernel);
	reactor_post(b->reactor, &b->unread, do_nothing);
	assert_true(until(first_is_stuck));
	assert_int_equal(count(" where=kernel what=io_uring_enter whom=\"unread mail\""), 1);
	unblock(b);
	assert_true(until(none_is_stuck));
}

/* Nothing waits for it, and it cannot be interrupted. */
static void test_state_d(void **state)
{
	struct block *b = &blocks[0];

	(void)state;
	start(LIMIT_NS);
	snprintf(b->fifo, sizeof(b->fifo), "/tmp/test_watchdog.%d", (int)getpid());
	assert_int_equal(mkfifo(b->fifo, 0600), 0);
	block(b, 0, block_in_kernel);
	while (thread_state(reactors_tid(&reactors, 0)) != 'D')
		usleep(1000);
	assert_true(until(first_is_stuck));
	assert_int_equal(
		count(" where=kernel what=io_uring_enter whom=\"uninterruptible sleep\" thread=D "),
		1);
	unblock(b);
	assert_true(until(none_is_stuck));
}

static void *block_later(void *arg)
{
	/* The main thread has gone to sleep by then; when not, the test is just not as sharp. */
	usleep(100000);
	reactor_post(reactors.reactor[0], arg, block_in_code);
	return NULL;
}

static void on_outage_over(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	(void)ev, (void)events;
	*(bool *)timer->data = true;
}

/* Somebody else gives work to a reactor: only its nudge wakes this thread. */
static void test_a_nudge_ends_the_doze(void **state)
{
	struct block *b = &blocks[0];
	bool over = false;
	struct ev_timer timer;
	pthread_t thread;

	(void)state;
	start(LIMIT_NS);
	assert_true(until(dozes));
	ev_timer_init(&timer, on_outage_over, (double)WAIT_NS / NS_PER_SEC, 0.);
	timer.data = &over;
	ev_timer_start(loop.ev, &timer);
	block_init(b, 0);
	assert_int_equal(pthread_create(&thread, NULL, block_later, &b->mail), 0);
	while (!over && watchdog.dozes)
		ev_run(loop.ev, EVRUN_ONCE);
	ev_timer_stop(loop.ev, &timer);
	pthread_join(thread, NULL);
	assert_false(over);
}

static void test_dozes_and_wakes(void **state)
{
	struct block *b = &blocks[0];
	uint64_t turns;

	(void)state;
	start(LIMIT_NS);
	assert_true(until(dozes));
	assert_false(ev_is_active(&watchdog.look));
	turns = __atomic_load_n(&reactors.reactor[1]->stats.turns, __ATOMIC_RELAXED);
	block(b, 0, block_in_code);
	assert_true(until(is_awake));
	assert_true(until(first_is_stuck));
	unblock(b);
	assert_true(until(none_is_stuck));
	assert_true(until(dozes));
	assert_int_equal(__atomic_load_n(&reactors.reactor[1]->stats.turns, __ATOMIC_RELAXED),
			 turns);
	assert_int_equal(count("reactor is stuck"), 1);
}

/* Asleep, as far as can be seen; then a mail of this thread does not wake it, and it sends no
 * nudge. */
static void test_doze_ends_with_unread_mail(void **state)
{
	struct block *b = &blocks[0];

	(void)state;
	start(LIMIT_NS);
	block(b, 0, block_in_kernel);
	assert_true(until(dozes));
	reactor_post(b->reactor, &b->unread, do_nothing);
	assert_true(until(first_is_stuck));
	unblock(b);
	assert_true(until(none_is_stuck));
}

static void listen_as_manager(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int len = snprintf(addr.sun_path + 1, sizeof(addr.sun_path) - 1, "ublkd-watchdog-%d",
			   (int)getpid());

	notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(
		bind(notify_fd, (void *)&addr,
		     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)),
		0);
	addr.sun_path[0] = '@';
	setenv("NOTIFY_SOCKET", addr.sun_path, 1);
	setenv("WATCHDOG_USEC", "20000", 1);
}

static void test_service_manager(void **state)
{
	struct block *b = &blocks[0];
	bool never = false;

	(void)state;
	listen_as_manager();
	start(LIMIT_NS);
	assert_true(until(heard_something));
	block(b, 0, block_in_code);
	assert_true(until(first_is_stuck));
	heard();
	loop_run_until(&loop, &never, 100 * NS_PER_MS);
	assert_int_equal(heard(), 0);
	unblock(b);
	assert_true(until(heard_something));
	/* Also while it dozes. */
	assert_true(until(dozes));
	heard();
	assert_true(until(heard_something));
	close(notify_fd);
}

static void test_off(void **state)
{
	struct block *b = &blocks[0];

	(void)state;
	listen_as_manager();
	start(0);
	block(b, 0, block_in_code);
	heard();
	assert_true(until(heard_something));
	assert_false(first_is_stuck());
	assert_false(ev_is_active(&watchdog.look));
	unblock(b);
	close(notify_fd);
}

static void test_thread(void **state)
{
	char function[64] = "x";

	(void)state;
	assert_int_equal(thread_state(gettid()), 'R');
	assert_int_equal(thread_state(0), '?');
	thread_function(0, function, sizeof(function));
	assert_string_equal(function, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_stuck_in_code, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stuck_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mail_unread_in_kernel, setup, teardown),
		cmocka_unit_test_setup_teardown(test_state_d, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_nudge_ends_the_doze, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dozes_and_wakes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_doze_ends_with_unread_mail, setup, teardown),
		cmocka_unit_test_setup_teardown(test_service_manager, setup, teardown),
		cmocka_unit_test_setup_teardown(test_off, setup, teardown),
		cmocka_unit_test(test_thread),
	};
	int kept = dup(STDERR_FILENO), ret;

	log_fd = memfd_create("log", MFD_CLOEXEC);
	dup2(log_fd, STDERR_FILENO);
	log_init(LOG_LEVEL_INFO);
	ret = cmocka_run_group_tests_name("watchdog", tests, NULL, NULL);
	dup2(kept, STDERR_FILENO);
	if (ret)
		fputs(logged(), stderr);
	return ret;
}
