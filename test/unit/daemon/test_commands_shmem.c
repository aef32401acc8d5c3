/* share and unshare: descriptors that come along with requests, and answers, on fake devices. */
#include <sys/mman.h>
#include <sys/socket.h>

#include "daemon/fdstore/fd_store.h"
#include "daemon/runtime/fd_message.h"
#include "test/rig/commands_rig.h"

#define SHARE(name) "{\"command\":\"share\",\"name\":\"" name "\"}"
#define UNSHARE(name, buffer)                                                                      \
	"{\"command\":\"unshare\",\"name\":\"" name "\",\"buffer\":\"" buffer "\"}"
#define SHARED(name, buffer) "{\"ok\":true,\"data\":{\"name\":\"" name "\",\"buffer\":" buffer "}}"

/* Of this process. */
static unsigned open_nr(void)
{
	unsigned nr = 0;

	for (int fd = 0; fd < 256; fd++)
		nr += fcntl(fd, F_GETFD) >= 0;
	return nr;
}

static void send_with_memory(struct peer *p, const char *text, size_t bytes)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_int_equal(fd_message_send(p->fd, text, bytes, fd, 0), bytes);
	close(fd);
}

static void expect_with_memory(const char *request, const char *answer)
{
	send_with_memory(&peer, request, strlen(request));
	assert_true(peer_send(&peer, "\n"));
	peer_expect(&peer, answer);
}

static void test_share_and_unshare(void **state)
{
	unsigned before_nr;

	(void)state;
	fake_shmem_next = 4;
	add("a");
	before_nr = open_nr();
	expect_with_memory(SHARE("a"), SHARED("a", "4"));
	assert_false(fake_shmem_read_only);
	expect_with_memory("{\"command\":\"share\",\"name\":\"a\",\"read_only\":true}",
			   SHARED("a", "5"));
	assert_true(fake_shmem_read_only);
	expect(UNSHARE("a", "4"), SHARED("a", "4"));
	assert_int_equal(open_nr(), before_nr);
}

static void test_shmem_refusals(void **state)
{
	unsigned before_nr;

	(void)state;
	add("a");
	add("rigid");
	add("tight");
	before_nr = open_nr();
	expect(SHARE("a"),
	       "{\"ok\":false,\"error\":\"the request has no descriptor: send one along "
	       "with it (SCM_RIGHTS, unix(7)), or use ublkctl share\"}");
	expect_with_memory(SHARE("b"), "{\"ok\":false,\"error\":\"there is no device \\\"b\\\"\"}");
	/* What came along with that is not taken for this. */
	expect(SHARE("a"),
	       "{\"ok\":false,\"error\":\"the request has no descriptor: send one along "
	       "with it (SCM_RIGHTS, unix(7)), or use ublkctl share\"}");
	expect_with_memory(SHARE("rigid"), "{\"ok\":false,\"error\":\"it shares nothing\"}");
	expect_with_memory(SHARE("tight"), "{\"ok\":false,\"error\":\"it is too tight\"}");
	expect(UNSHARE("tight", "1"), "{\"ok\":false,\"error\":\"it is too tight\"}");
	expect(UNSHARE("a", "1x"), "{\"ok\":false,\"error\":\"buffer: expected the number of a "
				   "shared buffer, like 0\"}");
	expect("{\"command\":\"unshare\",\"name\":\"a\"}",
	       "{\"ok\":false,\"error\":\"buffer: expected the number of a shared buffer, like "
	       "0\"}");
	assert_int_equal(open_nr(), before_nr);
}

/* Which of both is meant would not be known. */
static void test_two_descriptors(void **state)
{
	struct peer p = peer_connect(path);
	unsigned before_nr;

	(void)state;
	peer_pump_for(0.01);
	before_nr = open_nr();
	send_with_memory(&p, "{\"command\":", 11);
	peer_pump_for(0.01);
	assert_int_equal(open_nr(), before_nr + 1);
	send_with_memory(&p, "\"list\"}\n", 8);
	assert_true(peer_closed(&p));
	assert_int_equal(open_nr(), before_nr - 1); /* the daemon's end, too */
	peer_close(&p);
}

static void test_two_descriptors_at_once(void **state)
{
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr header;
	} room = { .header = { .cmsg_level = SOL_SOCKET,
			       .cmsg_type = SCM_RIGHTS,
			       .cmsg_len = CMSG_LEN(2 * sizeof(int)) } };
	char line[] = "{\"command\":\"list\"}\n";
	struct iovec iov = { .iov_base = line, .iov_len = strlen(line) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &room,
			      .msg_controllen = CMSG_LEN(2 * sizeof(int)) };
	struct peer p = peer_connect(path);
	int fds[2] = { p.fd, p.fd };

	(void)state;
	memcpy(CMSG_DATA(&room.header), fds, sizeof(fds));
	assert_int_equal(sendmsg(p.fd, &msg, 0), iov.iov_len);
	assert_true(peer_closed(&p));
	peer_close(&p);
}

/* It goes on without its client, whose end closes what it has sent. */
static void test_shmem_client_leaves(void **state)
{
	struct peer other = peer_connect(path);
	unsigned before_nr;

	(void)state;
	add("lame");
	before_nr = open_nr();
	send_with_memory(&other, SHARE("lame") "\n", strlen(SHARE("lame")) + 1);
	peer_pump_for(0.02);
	assert_true(device_shmem_busy(fake_find("lame")));
	peer_close(&other);
	peer_pump_for(0.02);
	fake_shmem_ends(peer_loop, &fake_shmem_timer, 0);
	assert_int_equal(open_nr(), before_nr - 1);
}

static void test_show_lists_buffers(void **state)
{
	json_t *data, *buffer;

	(void)state;
	fake_flags |= 1u << 19;
	add("shared");
	data = ask("{\"command\":\"show\",\"name\":\"shared\"}");
	assert_int_equal(json_array_size(json_object_get(data, "shared_memory")), 1);
	buffer = json_array_get(json_object_get(data, "shared_memory"), 0);
	assert_int_equal(json_integer_value(json_object_get(buffer, "buffer")), 3);
	assert_int_equal(json_integer_value(json_object_get(buffer, "bytes")), 8192);
	assert_string_equal(json_string_value(json_object_get(buffer, "file")), "memfd:x");
	assert_true(json_is_true(json_object_get(buffer, "torn")));
	assert_true(json_is_false(json_object_get(buffer, "read_only")));
	json_decref(data);
	fake_flags &= ~(1ull << 19);
	data = ask("{\"command\":\"show\",\"name\":\"shared\"}");
	assert_null(json_object_get(data, "shared_memory"));
	json_decref(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_share_and_unshare),	TEST(test_shmem_refusals),
		TEST(test_two_descriptors),	TEST(test_two_descriptors_at_once),
		TEST(test_shmem_client_leaves), TEST(test_show_lists_buffers),
	};

	return cmocka_run_group_tests_name("commands_shmem", tests, group_setup, group_teardown);
}
