/* TLS with keys of users (PSK) and without names, bytes in any pieces, and all that follows a
 * handshake. */
#include "test/rig/tls_rig.h"

static struct tls_config psk_config;

static const struct tls_config *psk(const char *username)
{
	psk_config = (struct tls_config){ .kind = TLS_KIND_PSK,
					  .psk_file = in_folder("keys.psk"),
					  .username = username };
	return &psk_config;
}

static const struct server_config servers[] = {
	{ .priorities = V13 PSK, .psk = true },
	{ .priorities = V12 PSK, .psk = true },
	{ .priorities = V12 ":-KX-ALL:+DHE-PSK", .psk = true },
	{ .priorities = V12 ":-KX-ALL:+PSK:-CIPHER-ALL:+AES-256-CBC:-MAC-ALL:+SHA1", .psk = true },
	{ .priorities = "NORMAL" PSK, .psk = true },
};

static void test_psk(void **state)
{
	static const size_t pieces[] = { 1, SIZE_MAX, 7, 300 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(servers) * ARRAY_SIZE(pieces); i++) {
		server_start(&servers[i % ARRAY_SIZE(servers)]);
		client_start(psk("qemu"), NULL);
		assert_int_equal(shake(pieces[i / ARRAY_SIZE(servers)]), TLS_DONE);
		assert_int_equal(server.result, 0);
		assert_int_equal(tls_handshake(tls), TLS_DONE);
		assert_talk();
		client_stop();
		server_stop();
	}
}

/* A key that is not the server's, and a user that it does not know; with alerts and without. */
static void test_psk_wrong(void **state)
{
	static const char *const users[] = { "bad", "eve" };

	(void)state;
	for (size_t i = 0; i < 2 * 2 * 2; i++) {
		struct server_config config = servers[i & 1];
		const char *user = users[i >> 1 & 1];
		char words[80];

		config.mute = i >> 2;
		server_start(&config);
		client_start(psk(user), NULL);
		assert_int_equal(shake(SIZE_MAX), config.mute ? TLS_MORE : TLS_FAILED);
		assert_true(server.result < 0 && server.result != GNUTLS_E_AGAIN);
		tls_eof(tls);
		assert_int_equal(tls_handshake(tls), TLS_FAILED);
		snprintf(words, sizeof(words), "the server does not accept the key of user \"%s\"",
			 user);
		assert_words(words);
		client_stop();
		server_stop();
	}
}

static void test_anonymous(void **state)
{
	static const struct server_config config = { .priorities = "NORMAL:+ANON-ECDH",
						     .anon = true };
	static const struct tls_config anonymous = { .kind = TLS_KIND_ANON };

	(void)state;
	server_start(&config);
	client_start(&anonymous, NULL);
	assert_int_equal(shake(SIZE_MAX), TLS_DONE);
	assert_talk();
	client_stop();
	server_stop();
	/* ... only when that was asked for. */
	server_start(&config);
	client_start(psk("qemu"), NULL);
	assert_int_equal(shake(SIZE_MAX), TLS_FAILED);
	assert_words("no way of TLS in common: is it made for keys of users (PSK)?");
	client_stop();
	server_stop();
}

/* A server that would rather show a certificate than know the key. */
static void test_psk_at_x509(void **state)
{
	static const char *const priorities[] = { V13 PSK, V12 PSK };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(priorities); i++) {
		server_start(
			&(struct server_config){ .priorities = priorities[i], .identity = &good });
		client_start(psk("qemu"), "a.example");
		assert_int_equal(shake(SIZE_MAX), TLS_FAILED);
		assert_true(strlen(tls_error(tls)) > 0);
		assert_words(i ? "is it made for keys" : "");
		client_stop();
		server_stop();
	}
}

static void test_old_server(void **state)
{
	(void)state;
	server_start(&(struct server_config){ .priorities = "NORMAL:-VERS-ALL:+VERS-TLS1.1" PSK,
					      .psk = true });
	client_start(psk("qemu"), NULL);
	assert_int_equal(shake(SIZE_MAX), TLS_FAILED);
	assert_words("the server speaks neither TLS 1.2 nor 1.3");
	client_stop();
	server_stop();
}

static void open_with(const struct server_config *config)
{
	server_start(config);
	client_start(psk("qemu"), NULL);
	assert_int_equal(shake(SIZE_MAX), TLS_DONE);
}

static void stop(void)
{
	client_stop();
	server_stop();
}

#define MUCH (3u << 20)

static uint8_t much[MUCH], heard[MUCH];

static void fill_much(void)
{
	for (size_t i = 0; i < MUCH; i++)
		much[i] = (uint8_t)prng_next(&prng);
	memset(heard, 0, MUCH);
}

/* Pieces of any size, empty ones too, from `from` on; at most nr_max. Returns how many. */
static unsigned cut(struct iovec *iov, unsigned nr_max, size_t from)
{
	static const size_t sizes[] = { 0, 1, 28, 300, 16384, 16385, 200000 };
	unsigned nr = 0;

	while (nr < nr_max && from < MUCH) {
		size_t bytes = MIN(sizes[prng_below(&prng, ARRAY_SIZE(sizes))], MUCH - from);

		iov[nr++] = (struct iovec){ .iov_base = much + from, .iov_len = bytes };
		from += bytes;
	}
	return nr;
}

/* The output fills; some of it is sent; writing goes on where it stopped. */
static void write_much(size_t max)
{
	size_t done = 0, got = 0;
	bool was_full = false;

	while (done < MUCH) {
		struct iovec iov[9];
		unsigned nr = cut(iov, ARRAY_SIZE(iov), done);
		size_t bytes = 0;
		const uint8_t *out;
		ssize_t taken;

		for (unsigned i = 0; i < nr; i++)
			bytes += iov[i].iov_len;
		taken = tls_write(tls, iov, nr);
		assert_in_range(taken, 0, bytes);
		was_full |= (size_t)taken < bytes;
		done += (size_t)taken;
		bytes = MIN(tls_output(tls, &out), piece(max));
		wire_put(&server.in, out, bytes);
		tls_sent(tls, bytes);
		taken = server_hear(heard + got, MUCH - got);
		got += taken > 0 ? (size_t)taken : 0;
	}
	move_out(max);
	assert_int_equal(server_hear(heard + got, MUCH - got), MUCH - got);
	assert_true(was_full);
	assert_memory_equal(heard, much, MUCH);
}

static void test_write_much(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(servers); i++) {
		open_with(&servers[i]);
		fill_much();
		write_much(i ? SIZE_MAX : 50000);
		assert_talk();
		stop();
	}
}

/* What waits stays where it is while more is added behind it. */
static void test_output_stays(void **state)
{
	const uint8_t *first, *later;
	uint8_t copy[4096];
	size_t bytes;

	(void)state;
	open_with(&servers[0]);
	assert_int_equal(client_say(much, 1000), 1000);
	bytes = tls_output(tls, &first);
	assert_in_range(bytes, 1000, sizeof(copy));
	memcpy(copy, first, bytes);
	while (client_say(much, 60000) > 0)
		;
	assert_int_equal(client_say(much, 60000), 0);
	assert_int_equal(client_say(much, 0), 0);
	assert_true(tls_output(tls, &later) > (200u << 10));
	assert_ptr_equal(first, later);
	assert_memory_equal(first, copy, bytes);
	/* No room for a word of farewell: nothing is cut in two. */
	bytes = tls_output(tls, &later);
	while (client_say(much, 1) > 0)
		;
	/* Nor is a record. */
	assert_int_equal(client_say(much, 1), 0);
	tls_bye(tls);
	stop();
}

/* One record for a header and its payload, as few as can be for large ones. */
static void test_records(void **state)
{
	uint8_t header[28] = "a header, somewhere else";
	struct iovec iov[] = { { header, 28 }, { much, 0 }, { much + 999, 4096 } };
	const uint8_t *out;
	size_t bytes;

	(void)state;
	open_with(&servers[0]);
	fill_much();
	assert_int_equal(tls_write(tls, iov, 3), 28 + 4096);
	bytes = tls_output(tls, &out);
	assert_int_equal(bytes, 5 + (out[3] << 8 | out[4]));
	move_out(SIZE_MAX);
	assert_int_equal(server_hear(heard, MUCH), 28 + 4096);
	assert_memory_equal(heard, header, 28);
	assert_memory_equal(heard + 28, much + 999, 4096);
	iov[2].iov_len = 16384 * 3 - 28;
	assert_int_equal(tls_write(tls, iov, 3), 16384 * 3);
	assert_in_range(tls_output(tls, &out), 16384 * 3, 16384 * 3 + 3 * 64);
	stop();
}

/* A server may want records smaller than ours. */
static void test_small_records(void **state)
{
	struct server_config config = servers[0];
	const uint8_t *out;

	(void)state;
	server_start(&config);
	TRY(gnutls_record_set_max_recv_size(server.session, 1024));
	client_start(psk("qemu"), NULL);
	assert_int_equal(shake(SIZE_MAX), TLS_DONE);
	fill_much();
	assert_int_equal(client_say(much, 10000), 10000);
	tls_output(tls, &out);
	assert_in_range(out[3] << 8 | out[4], 512, 1200);
	move_out(SIZE_MAX);
	assert_int_equal(server_hear(heard, MUCH), 10000);
	assert_memory_equal(heard, much, 10000);
	stop();
}

static void test_read_much(void **state)
{
	static const size_t pieces[] = { SIZE_MAX, 40000, 700 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		size_t done = 0;

		open_with(&servers[i & 1]);
		fill_much();
		server_say(much, 600000);
		assert_int_equal(client_hear(heard, MUCH, pieces[i], &done), -EAGAIN);
		assert_int_equal(done, 600000);
		assert_memory_equal(heard, much, done);
		stop();
	}
}

static void test_key_update(void **state)
{
	(void)state;
	open_with(&servers[0]);
	for (unsigned i = 0; i < 4; i++) {
		TRY(gnutls_session_key_update(server.session, i & 1 ? GNUTLS_KU_PEER : 0));
		assert_talk();
	}
	/* Two of them with nothing between, and nothing behind. */
	TRY(gnutls_session_key_update(server.session, GNUTLS_KU_PEER));
	TRY(gnutls_session_key_update(server.session, 0));
	move_in(SIZE_MAX);
	assert_int_equal(tls_read(tls, heard, 1), -EAGAIN);
	/* What stands behind one is read at once. */
	TRY(gnutls_session_key_update(server.session, 0));
	server_say("x", 1);
	move_in(SIZE_MAX);
	assert_int_equal(tls_read(tls, heard, 1), 1);
	assert_talk();
	stop();
}

/* Tickets that nobody needs, in the middle of data; one in each record, one fed byte by byte. */
static void test_tickets(void **state)
{
	struct server_config config = servers[0];
	gnutls_datum_t key;
	size_t done = 0;

	(void)state;
	server_start(&config);
	TRY(gnutls_session_ticket_key_generate(&key));
	TRY(gnutls_session_ticket_enable_server(server.session, &key));
	client_start(psk("qemu"), NULL);
	assert_int_equal(shake(1), TLS_DONE);
	TRY(gnutls_session_ticket_send(server.session, 3, 0));
	server_say("a", 1);
	TRY(gnutls_session_ticket_send(server.session, 1, 0));
	server_say("b", 1);
	assert_int_equal(client_hear(heard, MUCH, 1, &done), -EAGAIN);
	assert_int_equal(done, 2);
	assert_memory_equal(heard, "ab", 2);
	assert_talk();
	gnutls_free(key.data);
	stop();
}

static void test_renegotiation(void **state)
{
	(void)state;
	open_with(&servers[1]);
	TRY(gnutls_rehandshake(server.session));
	move_in(SIZE_MAX);
	assert_int_equal(tls_read(tls, heard, 1), -EPROTO);
	assert_words("renegotiate");
	/* For ever. */
	server_say("a", 1);
	move_in(SIZE_MAX);
	assert_int_equal(tls_read(tls, heard, 1), -EPROTO);
	assert_int_equal(client_say("a", 1), -EPROTO);
	assert_int_equal(tls_handshake(tls), TLS_FAILED);
	stop();
}

static void test_end(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		size_t done = 0;

		open_with(&servers[i]);
		server_say("last", 4);
		TRY(gnutls_bye(server.session, GNUTLS_SHUT_WR));
		assert_int_equal(client_hear(heard, MUCH, 1, &done), -ENODATA);
		assert_int_equal(done, 4);
		assert_int_equal(tls_read(tls, heard, 1), -ENODATA);
		tls_eof(tls);
		assert_string_equal(tls_error(tls), "");
		/* The other direction is still open. */
		assert_int_equal(client_say("more", 4), 4);
		tls_bye(tls);
		move_out(SIZE_MAX);
		assert_int_equal(server_hear(heard, 4), 4);
		assert_int_equal(server_hear(heard, 4), 0);
		stop();
	}
}

/* Cut off: after what was heard it is only that, before it the reason may be the key. */
static void test_cut_off(void **state)
{
	(void)state;
	open_with(&servers[0]);
	tls_eof(tls);
	assert_words("the key of user \"qemu\"");
	assert_int_equal(tls_read(tls, heard, 1), -EPROTO);
	stop();
	open_with(&servers[0]);
	assert_talk();
	tls_eof(tls);
	assert_words("without ending TLS");
	assert_null(strstr(tls_error(tls), "qemu"));
	assert_int_equal(client_say("a", 1), -EPROTO);
	stop();
}

/* In the middle of a handshake, open with bytes in both directions, broken: always as new. */
static void test_reset(void **state)
{
	const uint8_t *out;

	(void)state;
	server_start(&servers[0]);
	client_start(psk("qemu"), NULL);
	for (unsigned i = 0; i < 6; i++) {
		if (i % 3 == 0) {
			tls_handshake(tls);
			tls_feed(tls, (const uint8_t *)"\x16\x03", 2);
		} else if (i % 3 == 1) {
			assert_int_equal(shake(7), TLS_DONE);
			assert_talk();
			client_say("unsent", 6);
			server_say("unread", 6);
			move_in(5);
		} else {
			assert_int_equal(shake(7), TLS_DONE);
			tls_eof(tls);
		}
		assert_int_equal(tls_reset(tls), 0);
		assert_string_equal(tls_error(tls), "");
		assert_int_equal(tls_output(tls, &out), 0);
		server_stop();
		server_start(&servers[i & 1]);
	}
	assert_int_equal(shake(SIZE_MAX), TLS_DONE);
	assert_talk();
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_psk),	   cmocka_unit_test(test_psk_wrong),
		cmocka_unit_test(test_anonymous),  cmocka_unit_test(test_psk_at_x509),
		cmocka_unit_test(test_write_much), cmocka_unit_test(test_output_stays),
		cmocka_unit_test(test_records),	   cmocka_unit_test(test_small_records),
		cmocka_unit_test(test_read_much),  cmocka_unit_test(test_key_update),
		cmocka_unit_test(test_tickets),	   cmocka_unit_test(test_renegotiation),
		cmocka_unit_test(test_end),	   cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_reset),	   cmocka_unit_test(test_old_server),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
