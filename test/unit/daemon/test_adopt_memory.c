/*
 * adopt: memory that is in the fd store for devices of a dead daemon. It is dropped only where it
 * is known that no device in the driver is to have it back.
 */
#include <sys/mman.h>

#include "daemon/devices/device_notes.h"
#include "daemon/fdstore/fd_store.h"
#include "test/rig/adopt_rig.h"

static struct fd_store fd_store;

static void store_as(const char *name)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	fd_store_put(&fd_store, name, fd);
	close(fd);
}

static void fd_store_memory(const char *device)
{
	char name[NOTE_MEMORY_NAME_BYTES];

	note_memory_name(name, device, 0);
	store_as(name);
}

static bool is_parked(const char *device)
{
	char name[NOTE_MEMORY_NAME_BYTES];

	note_memory_name(name, device, 0);
	return fd_store_find(&fd_store, name) >= 0;
}

/* systemd is the holder, but is not there: what it does not do fails nothing. */
static void with_fd_store(void)
{
	log_init(LOG_LEVEL_ERROR);
	assert_int_equal(fd_store_open(&fd_store, folder), 0);
	fd_store.systemd = true;
	device_set.fd_store = &fd_store;
}

/* What is in the fd store after a start; nothing is adopted, so that nothing is in the fd store
 * anew. */
static void find_with_fd_store(size_t found_nr)
{
	assert_int_equal(find(found_nr), 0);
	adoption_free(&adoption);
	device_set.fd_store = NULL;
}

static void test_memory_that_nobody_wants_is_dropped(void **state)
{
	(void)state;
	with_fd_store();
	note("a", STATE_SERVING, quiesced("a"));
	note("stale", STATE_SERVING, 7);
	fd_store_memory("a");
	fd_store_memory("stale");
	fd_store_memory("removed");
	find_with_fd_store(1);
	assert_true(is_parked("a"));
	assert_false(is_parked("stale"));
	assert_false(is_parked("removed"));
	fd_store_close(&fd_store);
}

/* The device that the note tells of may have memory of any name. */
static void test_memory_stays_while_a_note_cannot_be_read(void **state)
{
	(void)state;
	with_fd_store();
	/* Its device is seen by nobody here, such as one of an id that /dev does not show. */
	note("a", STATE_SERVING, 5);
	assert_int_equal(truncate(note_path("a"), 7), 0);
	note("stale", STATE_SERVING, 7);
	fd_store_memory("a");
	fd_store_memory("unknown");
	fd_store_memory("stale");
	find_with_fd_store(0);
	assert_true(is_parked("a"));
	assert_true(is_parked("unknown"));
	/* Its note can be read: it is over. */
	assert_false(is_parked("stale"));
	fd_store_close(&fd_store);
	unlink(note_path("a"));
}

static void test_memory_stays_while_a_device_has_no_note(void **state)
{
	(void)state;
	with_fd_store();
	quiesced("a");
	fd_store_memory("a");
	fd_store_memory("removed");
	find_with_fd_store(0);
	assert_true(is_parked("a") && is_parked("removed"));
	/* Another daemon's device is none of ours. */
	driver[0].info.ublksrv_flags = mark_of("/run/other.sock", "a");
	device_set.fd_store = &fd_store;
	find_with_fd_store(0);
	assert_false(is_parked("a") || is_parked("removed"));
	fd_store_close(&fd_store);
}

/* Of the noted name, but of another id: which of both the memory is, is not known. */
static void test_memory_stays_while_a_device_has_another_id(void **state)
{
	(void)state;
	with_fd_store();
	quiesced("a");
	note("a", STATE_SERVING, 7);
	fd_store_memory("a");
	find_with_fd_store(0);
	assert_true(has_note("a"));
	assert_true(is_parked("a"));
	/* And no new device takes its place. */
	device_set.fd_store = &fd_store;
	add("a", true);
	run();
	assert_string_equal(state_of("a"), "failed");
	assert_non_null(
		strstr(device_set_find(&device_set, "a")->error, "is still in the fd store"));
	assert_true(is_parked("a"));
	/* Given up, it can start. */
	fd_store_drop(&fd_store, "mem-a");
	reload("a");
	run();
	assert_string_equal(state_of("a"), "live");
	device_set.fd_store = NULL;
	fd_store_close(&fd_store);
}

/* What each node kept, by its index; and all of it is forgotten with the device. */
static void test_memory_of_many_nodes(void **state)
{
	static const char *const names[] = { "mem-a",		"mem-a/3", "mem-a/255",
					     "mem-a/256",	"mem-a/x", "mem-a/0",
					     "mem-ab",		"mem-b/3", "mem-a/1x",
					     "mem-a/4294967298" };
	struct device_settings settings = { .options = { .name = (char[]){ "a" } } };
	const struct member m = { .settings = &settings };
	int fds[BACKEND_STORED_MAX];
	unsigned found = 0;

	(void)state;
	with_fd_store();
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		store_as(names[i]);
	note_find_memory(&device_set, &m, fds);
	for (unsigned i = 0; i < BACKEND_STORED_MAX; i++)
		found += fds[i] >= 0;
	assert_int_equal(found, BACKEND_STORED_MAX > 255 ? 3 : 2);
	assert_int_equal(fds[0], fd_store_find(&fd_store, "mem-a"));
	assert_int_equal(fds[3], fd_store_find(&fd_store, "mem-a/3"));
	note_forget(&device_set, "a");
	assert_int_equal(fd_store_nr(&fd_store), 2);
	assert_true(fd_store_find(&fd_store, "mem-ab") >= 0);
	assert_true(fd_store_find(&fd_store, "mem-b/3") >= 0);
	fd_store_close(&fd_store);
	device_set.fd_store = NULL;
}

/* What clients share with a device comes back under its numbers, once it is adopted. */
static void test_shared_memory_comes_back(void **state)
{
	(void)state;
	with_fd_store();
	note("a", STATE_SERVING, quiesced("a"));
	store_as("shm-a/0");
	store_as("shm-a/5");
	store_as("shm-ab/1");
	fake_shmem_restored = 0;
	start(1, "a");
	assert_int_equal(fd_store_find(&fd_store, "shm-ab/1"), -ENOENT);
	assert_string_equal(state_of("a"), "live");
	assert_int_equal(fake_shmem_restored, 1u << 0 | 1u << 5);
	note_forget(&device_set, "a");
	assert_int_equal(fd_store_nr(&fd_store), 0);
	device_set.fd_store = NULL;
	fd_store_close(&fd_store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ADOPT(test_memory_that_nobody_wants_is_dropped),
		ADOPT(test_memory_stays_while_a_note_cannot_be_read),
		ADOPT(test_memory_stays_while_a_device_has_no_note),
		ADOPT(test_memory_stays_while_a_device_has_another_id),
		ADOPT(test_memory_of_many_nodes),
		ADOPT(test_shared_memory_comes_back),
	};

	return cmocka_run_group_tests_name("adopt_memory", tests, quiet, end);
}
