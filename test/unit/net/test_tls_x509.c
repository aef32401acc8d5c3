/* TLS with certificates: which are believed, and what is said about the others. */
#include "test/rig/tls_rig.h"

static const char *const versions[] = { V13, V12 };

static enum tls_step run(const struct server_config *config, const char *certificates,
			 const char *hostname, bool no_verify)
{
	struct tls_config client_config = {
		.kind = TLS_KIND_X509,
		.certificates = certificates ? in_folder("%s", certificates) : NULL,
		.no_verify = no_verify,
	};

	server_start(config);
	client_start(&client_config, hostname);
	return shake(SIZE_MAX);
}

static void stop(void)
{
	client_stop();
	server_stop();
}

static void accepted(const struct identity *identity, const char *certificates,
		     const char *hostname, bool no_verify)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		struct server_config config = { .priorities = versions[i], .identity = identity };

		assert_int_equal(run(&config, certificates, hostname, no_verify), TLS_DONE);
		assert_talk();
		stop();
	}
}

/* ... and the server hears that it was refused, and nothing of ours. */
static void refused(const struct identity *identity, const char *certificates, const char *hostname,
		    const char *words)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		struct server_config config = { .priorities = versions[i], .identity = identity };

		assert_int_equal(run(&config, certificates, hostname, false), TLS_FAILED);
		assert_words("the server's certificate is not accepted");
		assert_words(words);
		assert_int_equal(server.result, GNUTLS_E_FATAL_ALERT_RECEIVED);
		assert_int_equal(tls_handshake(tls), TLS_FAILED);
		stop();
	}
}

static void test_names(void **state)
{
	(void)state;
	accepted(&good, "ca", "a.example", false);
	accepted(&good, "ca", "A.Example", false);
	accepted(&good, "ca", "x.b.example", false);
	accepted(&good, "ca", "127.0.0.1", false);
	accepted(&good, "ca", "::1", false);
	accepted(&good, "ca", "::1%lo", false);
	refused(&good, "ca", "b.example",
		"it is for \"a.example\", \"*.b.example\", \"127.0.0.1\", \"::1\", not for "
		"\"b.example\": set tls-hostname");
	refused(&good, "ca", "127.0.0.2", "not for \"127.0.0.2\"");
	refused(&good, "ca", "::2", "not for \"::2\"");
	/* A common name counts only where there is no other. */
	refused(&good, "ca", "server", "not for \"server\"");
}

static void test_no_name(void **state)
{
	struct server_config config = { .priorities = V13, .identity = &good };
	const uint8_t *out;

	(void)state;
	assert_int_equal(run(&config, "ca", "", false), TLS_FAILED);
	assert_words("set tls-hostname");
	assert_int_equal(tls_output(tls, &out), 0);
	assert_int_equal(tls_reset(tls), 0);
	assert_int_equal(tls_handshake(tls), TLS_FAILED);
	stop();
	accepted(&good, "ca", NULL, true);
}

static void test_authority(void **state)
{
	char words[300];

	(void)state;
	snprintf(words, sizeof(words), "it is signed by \"CN=The Authority\", which is not in %s",
		 in_folder("stranger/ca-cert.pem"));
	refused(&good, "stranger", "a.example", words);
	accepted(&good, "stranger", "a.example", true);
	accepted(&good, "stranger", "elsewhere", true);
}

/* Nobody has put our authority into this system's. */
static void test_system(void **state)
{
	char error[400];
	struct tls_config config = { .kind = TLS_KIND_X509 };
	int ret = tls_credentials_new(&credentials, &config, error, sizeof(error));

	(void)state;
	if (ret == -ENOENT) {
		assert_non_null(strstr(error, "install ca-certificates"));
		skip();
	}
	tls_credentials_free(credentials);
	refused(&good, NULL, "a.example", "which this system does not know: set tls-certificates");
}

static void test_dates(void **state)
{
	(void)state;
	refused(&expired, "ca", "a.example", "has expired (its own end: 20");
	refused(&future, "ca", "a.example", "begins later (its own beginning: 20");
	accepted(&expired, "ca", "a.example", true);
}

static void test_revoked(void **state)
{
	(void)state;
	refused(&good, "crl", "a.example", "revoked");
}

/* A client's certificate must not pass for the server; its name is somebody else's text. */
static void test_purpose(void **state)
{
	(void)state;
	refused(&for_clients, "ca", "a.example", "it is not one for servers");
	refused(&for_clients, "ca", "a.example", "it is for \"\\x1b[2Jclient\", not for");
}

static void test_client_certificate(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		struct server_config config = { .priorities = versions[i],
						.identity = &good,
						.wants_client = true };

		assert_int_equal(run(&config, "client", "a.example", false), TLS_DONE);
		assert_talk();
		stop();
	}
}

/*
 * None, or one of an authority that the server does not know. With TLS 1.3 our handshake is over
 * before the server says so; with or without an alert.
 */
static void client_refused(const char *certificates)
{
	for (size_t i = 0; i < 2 * ARRAY_SIZE(versions); i++) {
		struct server_config config = { .priorities = versions[i / 2],
						.identity = &good,
						.wants_client = true,
						.mute = i & 1 };
		size_t done = 0;
		enum tls_step step = run(&config, certificates, "a.example", false);
		char byte;

		assert_true(server.result < 0 && server.result != GNUTLS_E_AGAIN);
		assert_int_equal(step, i < 2 ? TLS_DONE : config.mute ? TLS_MORE : TLS_FAILED);
		if (step == TLS_DONE)
			assert_int_equal(client_hear(&byte, 1, SIZE_MAX, &done),
					 config.mute ? -EAGAIN : -EPROTO);
		if (config.mute)
			tls_eof(tls);
		assert_words("the server wants a certificate of ours");
		stop();
	}
}

static void test_client_certificate_refused(void **state)
{
	(void)state;
	client_refused("foreign");
	client_refused("ca");
}

static long ahead_seconds;

static time_t clock_ahead(time_t *ret_now)
{
	time_t now = time(NULL) + ahead_seconds;

	if (ret_now)
		*ret_now = now;
	return now;
}

/*
 * The certificates end while a session lives: it goes on. The next connection, with the same
 * credentials, is refused, and says why.
 */
static void test_expires_while_connected(void **state)
{
	(void)state;
	gnutls_global_set_time_function(clock_ahead);
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		struct server_config config = { .priorities = versions[i], .identity = &good };

		ahead_seconds = 0;
		assert_int_equal(run(&config, "ca", "a.example", false), TLS_DONE);
		assert_talk();
		ahead_seconds = 3 * DAY;
		assert_talk();
		server_stop();
		server_start(&config);
		assert_int_equal(tls_reset(tls), 0);
		assert_int_equal(shake(SIZE_MAX), TLS_FAILED);
		assert_words("the server's certificate is not accepted; it, or one that signed it, "
			     "has expired (its own end: 20");
		assert_words("or this machine's clock is wrong");
		assert_int_equal(server.result, GNUTLS_E_FATAL_ALERT_RECEIVED);
		/* The clock is set right, or the server has another certificate. */
		ahead_seconds = 0;
		server_stop();
		server_start(&config);
		assert_int_equal(tls_reset(tls), 0);
		assert_int_equal(shake(SIZE_MAX), TLS_DONE);
		assert_talk();
		stop();
	}
	ahead_seconds = 0;
}

/* Ours has ended: the server refuses it, with an alert or without; the words say which and when. */
static void test_own_certificate_expired(void **state)
{
	char byte;

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(versions); i++) {
		struct server_config config = { .priorities = versions[i / 2],
						.identity = &good,
						.wants_client = true,
						.mute = i & 1 };
		size_t done = 0;

		/* With TLS 1.3 the handshake is over before the server says so. */
		if (run(&config, "stale", "a.example", false) == TLS_DONE)
			assert_int_equal(client_hear(&byte, 1, SIZE_MAX, &done),
					 config.mute ? -EAGAIN : -EPROTO);
		assert_true(server.result < 0 && server.result != GNUTLS_E_AGAIN);
		if (config.mute)
			tls_eof(tls);
		assert_words("our certificate has expired (its end: 20");
		assert_words("renew client-cert.pem, and start the device anew");
		stop();
	}
}

/* The server speaks of keys only. */
static void test_x509_at_psk(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		struct server_config config = { .priorities = i ? V12 PSK : V13 PSK, .psk = true };

		assert_int_equal(run(&config, "ca", "a.example", false), TLS_FAILED);
		assert_true(*tls_error(tls));
		stop();
	}
}

static void test_old_server(void **state)
{
	struct server_config config = { .priorities = "NORMAL:-VERS-ALL:+VERS-TLS1.1:%COMPAT",
					.identity = &good };

	(void)state;
	assert_int_equal(run(&config, "ca", "a.example", false), TLS_FAILED);
	assert_words("the server speaks neither TLS 1.2 nor 1.3");
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_no_name),
		cmocka_unit_test(test_authority),
		cmocka_unit_test(test_system),
		cmocka_unit_test(test_dates),
		cmocka_unit_test(test_revoked),
		cmocka_unit_test(test_purpose),
		cmocka_unit_test(test_client_certificate),
		cmocka_unit_test(test_client_certificate_refused),
		cmocka_unit_test(test_expires_while_connected),
		cmocka_unit_test(test_own_certificate_expired),
		cmocka_unit_test(test_x509_at_psk),
		cmocka_unit_test(test_old_server),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
