/* Servers, or somebody on the way, that break TLS: cut off and changed at every byte. */
#include "test/rig/tls_rig.h"

static const struct server_config configs[] = {
	{ .priorities = V13, .identity = &good },
	{ .priorities = V12, .identity = &good },
	{ .priorities = V13 PSK, .psk = true },
	{ .priorities = V12 PSK, .psk = true },
};

static void start(const struct server_config *config)
{
	struct tls_config client_config = {
		.kind = config->psk ? TLS_KIND_PSK : TLS_KIND_X509,
		.psk_file = in_folder("keys.psk"),
		.username = "qemu",
		.certificates = in_folder("ca"),
	};

	server_start(config);
	client_start(&client_config, "a.example");
}

static void stop(void)
{
	client_stop();
	server_stop();
}

/* The next handshake of the same client. */
static void again(const struct server_config *config)
{
	server_stop();
	server_start(config);
	assert_int_equal(tls_reset(tls), 0);
}

/* What the server sent in the last shake_changed, as it was: all flights. */
static uint8_t transcript[1u << 16];
static size_t transcript_bytes;

/*
 * A handshake in which only so many bytes arrive from the server, and the one at `at`, if there are
 * so many, with the bits of `mask` turned.
 */
static enum tls_step shake_changed(size_t bytes, size_t at, uint8_t mask)
{
	struct wire *out = &server.out;

	transcript_bytes = 0;
	for (;;) {
		enum tls_step step = tls_handshake(tls);
		size_t nr, first = transcript_bytes;

		move_out(SIZE_MAX);
		server_step();
		nr = MIN(out->end - out->begin, bytes - first);
		if (step != TLS_MORE || nr == 0)
			return step;
		assert_true(first + nr <= sizeof(transcript));
		memcpy(transcript + first, out->at + out->begin, nr);
		transcript_bytes += nr;
		if (at >= first && at < first + nr)
			out->at[out->begin + at - first] ^= mask;
		assert_int_equal(tls_feed(tls, out->at + out->begin, nr), nr);
		out->begin += nr;
		if (out->begin == out->end)
			out->begin = out->end = 0;
	}
}

/* A handshake as it should be; returns the bytes of the server, which are a few more or less the
 * next time: signatures have no fixed length. */
static size_t shake_well(const struct server_config *config)
{
	start(config);
	assert_int_equal(shake_changed(SIZE_MAX, SIZE_MAX, 0), TLS_DONE);
	assert_true(transcript_bytes > 100);
	return transcript_bytes;
}

static void test_cut_off_anywhere(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
		size_t bytes = shake_well(&configs[i]);

		for (size_t nr = 0; nr < bytes;
		     nr += 1 + prng_below(&prng, configs[i].psk ? 3 : 9)) {
			enum tls_step step;

			again(&configs[i]);
			step = shake_changed(nr, SIZE_MAX, 0);
			assert_true(step == TLS_MORE || (step == TLS_DONE && server.out.end == 0));
			tls_eof(tls);
			assert_int_equal(tls_handshake(tls), TLS_FAILED);
			assert_words("closed the connection");
		}
		stop();
	}
}

/* Byte after byte to a client that is asked after each: never done too early, never stuck. */
static void test_slow_server(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
		start(&configs[i]);
		assert_int_equal(shake(1), TLS_DONE);
		assert_talk();
		stop();
	}
}

/*
 * Whether the byte at `at` of these records can be changed without harm: GnuTLS does not compare
 * the type and version in the header of an encrypted record with what is protected inside, and
 * nobody looks into the record that TLS 1.3 sends for old machines on the way (20).
 */
static bool is_harmless(const uint8_t *wire, size_t bytes, size_t at)
{
	size_t begin = 0;

	while (begin + 5 <= bytes) {
		size_t end = begin + 5 + (wire[begin + 3] << 8 | wire[begin + 4]);

		if (at < end)
			return wire[begin] == 20 || at < begin + 3;
		begin = end;
	}
	return false;
}

static void test_changed_anywhere(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
		size_t bytes = shake_well(&configs[i]), failed_nr = 0, tried_nr = 0;

		for (size_t at = 0; at < bytes;
		     at += 1 + prng_below(&prng, configs[i].psk ? 3 : 9)) {
			uint8_t mask = (uint8_t)(1u << prng_below(&prng, 8));
			enum tls_step step;

			again(&configs[i]);
			step = shake_changed(SIZE_MAX, at, mask);
			if (step == TLS_DONE && at < transcript_bytes &&
			    !is_harmless(transcript, transcript_bytes, at))
				fail_msg("server %zu: byte %zu of %zu with %#x", i, at, bytes,
					 mask);
			tried_nr++;
			if (step == TLS_FAILED) {
				failed_nr++;
				assert_words("");
				assert_true(*tls_error(tls));
			}
		}
		/* The rest are lengths, which wait for more. */
		assert_true(failed_nr > tried_nr * 8 / 10);
		stop();
	}
}

/* Data, and the word that ends it: both are believed as they were said, or not at all. */
static void test_data_changed(void **state)
{
	static const char words[] = "the bytes of somebody's disk";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
		start(&configs[i]);
		for (size_t at = 0;; at++) {
			char buf[64];
			size_t done = 0, begin;
			bool harmless;
			ssize_t ret;

			again(&configs[i]);
			assert_int_equal(shake(SIZE_MAX), TLS_DONE);
			assert_int_equal(client_hear(buf, sizeof(buf), SIZE_MAX, &done), -EAGAIN);
			begin = server.out.begin;
			server_say(words, sizeof(words));
			TRY(gnutls_bye(server.session, GNUTLS_SHUT_WR));
			if (begin + at >= server.out.end)
				break;
			harmless = is_harmless(server.out.at + begin, server.out.end - begin, at);
			server.out.at[begin + at] ^= (uint8_t)(1u << prng_below(&prng, 8));
			ret = client_hear(buf, sizeof(buf), SIZE_MAX, &done);
			assert_true(done == 0 || done == sizeof(words));
			assert_memory_equal(buf, words, done);
			/* -EAGAIN: a length that waits for more. */
			assert_true(ret == -EPROTO || ret == -EAGAIN ||
				    (harmless && ret == -ENODATA));
			assert_int_equal(*tls_error(tls) != 0, ret == -EPROTO);
		}
		stop();
	}
}

/* Whole records again, or in another order. */
static void test_records_moved(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
		for (unsigned twice = 0; twice < 2; twice++) {
			struct wire *w = &server.out;
			size_t done = 0, middle;
			uint8_t first[256];
			char buf[64];

			start(&configs[i]);
			assert_int_equal(shake(SIZE_MAX), TLS_DONE);
			assert_int_equal(client_hear(buf, sizeof(buf), SIZE_MAX, &done), -EAGAIN);
			server_say("one", 3);
			middle = w->end;
			assert_in_range(middle, 20, sizeof(first));
			memcpy(first, w->at, middle);
			if (twice) {
				wire_put(w, first, middle);
			} else {
				server_say("two", 3);
				memmove(w->at, w->at + middle, w->end - middle);
				w->end -= middle;
				wire_put(w, first, middle);
			}
			assert_int_equal(client_hear(buf, sizeof(buf), SIZE_MAX, &done), -EPROTO);
			assert_int_equal(done, twice ? 3 : 0);
			stop();
		}
	}
}

static void fails_with(const void *wire, size_t bytes, const char *words)
{
	start(&configs[0]);
	assert_int_equal(tls_handshake(tls), TLS_MORE);
	move_out(SIZE_MAX);
	tls_feed(tls, wire, bytes);
	assert_int_equal(tls_handshake(tls), TLS_FAILED);
	assert_words(words);
	assert_int_equal(tls_reset(tls), 0);
	assert_int_equal(tls_handshake(tls), TLS_MORE);
	stop();
}

static void test_not_tls(void **state)
{
	static const uint8_t old[] = {
		22, 3, 2, 0, 44, 2, 0,	0,  40, 3,  2, /* ServerHello of TLS 1.1 */
		1,  2, 3, 4, 5,	 6, 7,	8,  9,	10, 11, 12, 13, 14, 15, 16,   1, 2, 3,
		4,  5, 6, 7, 8,	 9, 10, 11, 12, 13, 14, 15, 16, 0,  0,	0x2f, 0, 0, 0,
	};
	static const uint8_t alert[] = { 21, 3, 3, 0, 2, 2, 254 };
	uint8_t noise[4096];

	(void)state;
	fails_with("HTTP/1.1 400 Bad Request\r\n\r\n", 28, "not TLS");
	fails_with("\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0", 20, "not TLS");
	fails_with(old, sizeof(old), "the server speaks neither TLS 1.2 nor 1.3");
	fails_with(alert, sizeof(alert), "alert 254: unknown");
	prng_init(&prng, 7);
	for (unsigned i = 0; i < 200; i++) {
		for (size_t at = 0; at < sizeof(noise); at++)
			noise[at] = (uint8_t)prng_next(&prng);
		noise[0] = 0x80;
		fails_with(noise, sizeof(noise), "");
	}
}

/* "I know no a.example", before the answer and in one piece with it: only a warning. */
static void test_warning(void **state)
{
	static const uint8_t warning[] = { 21, 3, 3, 0, 2, 1, 112 };

	(void)state;
	start(&configs[1]);
	wire_put(&server.out, warning, sizeof(warning));
	assert_int_equal(shake(SIZE_MAX), TLS_DONE);
	assert_talk();
	stop();
}

/* A server that never ends its handshake: what is kept of it has a limit. */
static void test_endless_handshake(void **state)
{
	static const uint8_t begin[] = { 22, 3, 3, 0x40, 0, 2, 0xff, 0xff, 0xff };
	static uint8_t fill[16384 + 5] = { 22, 3, 3, 0x40, 0 };
	unsigned records_nr = 0;

	(void)state;
	start(&configs[0]);
	assert_int_equal(tls_handshake(tls), TLS_MORE);
	tls_feed(tls, begin, sizeof(begin));
	tls_feed(tls, fill, 16384 - 4);
	while (tls_handshake(tls) == TLS_MORE) {
		assert_int_equal(tls_feed(tls, fill, sizeof(fill)), sizeof(fill));
		assert_true(records_nr++ < 64);
	}
	assert_words("without end");
	stop();
}

/* Tickets without data, or any other message: the same. */
static void test_endless_tickets(void **state)
{
	struct server_config config = configs[2];
	unsigned tries_nr = 0;
	gnutls_datum_t key;
	ssize_t ret;
	char byte;

	(void)state;
	start(&config);
	TRY(gnutls_session_ticket_key_generate(&key));
	TRY(gnutls_session_ticket_enable_server(server.session, &key));
	assert_int_equal(shake(SIZE_MAX), TLS_DONE);
	while ((ret = tls_read(tls, &byte, 1)) == -EAGAIN) {
		if (!move_in(SIZE_MAX))
			TRY(gnutls_session_ticket_send(server.session, 8, 0));
		assert_true(tries_nr++ < 10000);
	}
	assert_int_equal(ret, -EPROTO);
	assert_words("without end");
	gnutls_free(key.data);
	stop();
}

/* More new keys than anybody needs: each costs us work. */
static void test_key_update_flood(void **state)
{
	ssize_t ret;
	char byte;

	(void)state;
	start(&configs[2]);
	assert_int_equal(shake(SIZE_MAX), TLS_DONE);
	for (unsigned i = 0; i < 2000; i++)
		TRY(gnutls_session_key_update(server.session, 0));
	while ((ret = tls_read(tls, &byte, 1)) == -EAGAIN && move_in(SIZE_MAX))
		;
	assert_int_equal(ret, -EPROTO);
	stop();
}

/* The window takes what it holds, and no more, until it is read. */
static void test_input_full(void **state)
{
	static uint8_t zeroes[1u << 18], heard[1u << 18];
	size_t done = 0;

	(void)state;
	start(&configs[2]);
	assert_int_equal(shake(SIZE_MAX), TLS_DONE);
	server_say(zeroes, sizeof(zeroes));
	while (move_in(SIZE_MAX))
		;
	assert_int_equal(tls_feed(tls, zeroes, 1), 0);
	memset(heard, 1, sizeof(heard));
	assert_int_equal(client_hear(heard, sizeof(heard), SIZE_MAX, &done), -EAGAIN);
	assert_int_equal(done, sizeof(heard));
	assert_memory_equal(heard, zeroes, sizeof(heard));
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_off_anywhere), cmocka_unit_test(test_slow_server),
		cmocka_unit_test(test_changed_anywhere), cmocka_unit_test(test_data_changed),
		cmocka_unit_test(test_records_moved),	 cmocka_unit_test(test_not_tls),
		cmocka_unit_test(test_warning),		 cmocka_unit_test(test_endless_handshake),
		cmocka_unit_test(test_endless_tickets),	 cmocka_unit_test(test_key_update_flood),
		cmocka_unit_test(test_input_full),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
