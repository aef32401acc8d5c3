/*
 * A GnuTLS server in the same process, and a client of net/tls.h, joined by memory. Keys and
 * certificates are made for each run, in a temporary folder, from the present time.
 */
#ifndef TEST_RIG_TLS_RIG_H
#define TEST_RIG_TLS_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "net/tls.h"
#include "base/assert.h"
#include "base/prng.h"
#include "base/util.h"
#include "test/unit/base/printable_check.h"

#define TRY(call) ASSERT((call) >= 0)
#define DAY (24 * 3600L)
#define V12 "NORMAL:-VERS-ALL:+VERS-TLS1.2"
#define V13 "NORMAL:-VERS-ALL:+VERS-TLS1.3"
#define PSK ":+ECDHE-PSK:+DHE-PSK:+PSK"

/* ---- certificates ---- */

struct identity {
	gnutls_x509_privkey_t key;
	gnutls_x509_crt_t cert;
};

/* Who signs; those for 127.0.0.1, ::1, a.example and *.b.example; two without a name in the way. */
static struct identity authority, stranger, good, expired, future, for_clients, client, foreign,
	stale;
static gnutls_datum_t psk_key;
static char folder[] = "/tmp/test_tls.XXXXXX";

static inline const char *in_folder(const char *fmt, ...)
{
	static char paths[8][256];
	static unsigned next;
	char *path = paths[next++ % ARRAY_SIZE(paths)];
	int at = snprintf(path, sizeof(paths[0]), "%s/", folder);
	va_list args;

	va_start(args, fmt);
	vsnprintf(path + at, sizeof(paths[0]) - (size_t)at, fmt, args);
	va_end(args);
	return path;
}

static inline void write_file(const char *path, const void *data, size_t bytes, mode_t mode)
{
	FILE *f = fopen(path, "we");

	ASSERT(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
	ASSERT(chmod(path, mode) == 0);
}

static inline void write_text(const char *path, const char *text, mode_t mode)
{
	write_file(path, text, strlen(text), mode);
}

/* name: the common name. From `begin` to `end`, in seconds from now. */
static inline void identity_begin(struct identity *id, const char *name, long begin, long end)
{
	static uint8_t serial[4] = { 1 };

	TRY(gnutls_x509_privkey_init(&id->key));
	TRY(gnutls_x509_privkey_generate(id->key, GNUTLS_PK_ECDSA,
					 GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0));
	TRY(gnutls_x509_crt_init(&id->cert));
	serial[3]++;
	TRY(gnutls_x509_crt_set_version(id->cert, 3));
	TRY(gnutls_x509_crt_set_serial(id->cert, serial, sizeof(serial)));
	TRY(gnutls_x509_crt_set_activation_time(id->cert, time(NULL) + begin));
	TRY(gnutls_x509_crt_set_expiration_time(id->cert, time(NULL) + end));
	TRY(gnutls_x509_crt_set_key(id->cert, id->key));
	TRY(gnutls_x509_crt_set_dn_by_oid(id->cert, GNUTLS_OID_X520_COMMON_NAME, 0, name,
					  (unsigned)strlen(name)));
}

static inline void identity_sign(struct identity *id, const struct identity *by)
{
	TRY(gnutls_x509_crt_sign2(id->cert, by->cert, by->key, GNUTLS_DIG_SHA256, 0));
}

static inline void add_san(struct identity *id, int type, const char *name, unsigned bytes)
{
	TRY(gnutls_x509_crt_set_subject_alt_name(id->cert, type, name, bytes, GNUTLS_FSAN_APPEND));
}

static inline void make_authority(struct identity *id, const char *name)
{
	identity_begin(id, name, -20 * DAY, 20 * DAY);
	TRY(gnutls_x509_crt_set_basic_constraints(id->cert, 1, -1));
	TRY(gnutls_x509_crt_set_key_usage(id->cert,
					  GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN));
	identity_sign(id, id);
}

/* purpose: GNUTLS_KP_*; names only for servers. */
static inline void make_identity(struct identity *id, const struct identity *by,
				 const char *purpose, long begin, long end)
{
	bool server = strcmp(purpose, GNUTLS_KP_TLS_WWW_SERVER) == 0;

	identity_begin(id, server ? "server" : "\x1b[2Jclient", begin, end);
	TRY(gnutls_x509_crt_set_key_purpose_oid(id->cert, purpose, 0));
	if (server) {
		add_san(id, GNUTLS_SAN_DNSNAME, "a.example", 9);
		add_san(id, GNUTLS_SAN_DNSNAME, "*.b.example", 11);
		add_san(id, GNUTLS_SAN_IPADDRESS, "\x7f\0\0\1", 4);
		add_san(id, GNUTLS_SAN_IPADDRESS, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
		add_san(id, GNUTLS_SAN_URI, "nbds://a", 8);
	}
	identity_sign(id, by);
}

static inline void identity_free(struct identity *id)
{
	gnutls_x509_privkey_deinit(id->key);
	gnutls_x509_crt_deinit(id->cert);
}

static inline void write_cert(const char *path, const struct identity *id)
{
	gnutls_datum_t pem;

	TRY(gnutls_x509_crt_export2(id->cert, GNUTLS_X509_FMT_PEM, &pem));
	write_file(path, pem.data, pem.size, 0644);
	gnutls_free(pem.data);
}

static inline void write_key(const char *path, const struct identity *id)
{
	gnutls_datum_t pem;

	TRY(gnutls_x509_privkey_export2(id->key, GNUTLS_X509_FMT_PEM, &pem));
	write_file(path, pem.data, pem.size, 0600);
	gnutls_free(pem.data);
}

/* A list of `by` that takes back `id`. */
static inline void write_crl(const char *path, const struct identity *by, const struct identity *id)
{
	gnutls_x509_crl_t crl;
	gnutls_datum_t pem;

	TRY(gnutls_x509_crl_init(&crl));
	TRY(gnutls_x509_crl_set_version(crl, 2));
	TRY(gnutls_x509_crl_set_crt(crl, id->cert, time(NULL)));
	TRY(gnutls_x509_crl_set_this_update(crl, time(NULL) - DAY));
	TRY(gnutls_x509_crl_set_next_update(crl, time(NULL) + DAY));
	TRY(gnutls_x509_crl_sign2(crl, by->cert, by->key, GNUTLS_DIG_SHA256, 0));
	TRY(gnutls_x509_crl_export2(crl, GNUTLS_X509_FMT_PEM, &pem));
	write_file(path, pem.data, pem.size, 0644);
	gnutls_free(pem.data);
	gnutls_x509_crl_deinit(crl);
}

/* A folder for tls_config.certificates; own: NULL for none. */
static inline const char *make_folder(const char *name, const struct identity *ca,
				      const struct identity *own)
{
	const char *path = in_folder("%s", name);

	ASSERT(mkdir(path, 0700) == 0);
	write_cert(in_folder("%s/ca-cert.pem", name), ca);
	if (own) {
		write_cert(in_folder("%s/client-cert.pem", name), own);
		write_key(in_folder("%s/client-key.pem", name), own);
	}
	return path;
}

#define HEX_KEY "00112233445566778899aabbccddeeff"

static inline int rig_setup(void **state)
{
	static uint8_t key[] = { 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
				 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff };

	(void)state;
	psk_key = (gnutls_datum_t){ .data = key, .size = sizeof(key) };
	ASSERT(mkdtemp(folder));
	make_authority(&authority, "The Authority");
	make_authority(&stranger, "A Stranger");
	make_identity(&good, &authority, GNUTLS_KP_TLS_WWW_SERVER, -DAY, DAY);
	make_identity(&expired, &authority, GNUTLS_KP_TLS_WWW_SERVER, -2 * DAY, -DAY);
	make_identity(&future, &authority, GNUTLS_KP_TLS_WWW_SERVER, DAY, 2 * DAY);
	make_identity(&for_clients, &authority, GNUTLS_KP_TLS_WWW_CLIENT, -DAY, DAY);
	make_identity(&client, &authority, GNUTLS_KP_TLS_WWW_CLIENT, -DAY, DAY);
	make_identity(&stale, &authority, GNUTLS_KP_TLS_WWW_CLIENT, -2 * DAY, -DAY);
	make_identity(&foreign, &stranger, GNUTLS_KP_TLS_WWW_CLIENT, -DAY, DAY);
	make_folder("ca", &authority, NULL);
	make_folder("stranger", &stranger, NULL);
	make_folder("client", &authority, &client);
	make_folder("stale", &authority, &stale);
	make_folder("foreign", &authority, &foreign);
	make_folder("crl", &authority, NULL);
	write_crl(in_folder("crl/ca-crl.pem"), &authority, &good);
	write_text(in_folder("keys.psk"),
		   "eve:ff00ff00ff00ff00ff00ff00ff00ff00\nqemu:" HEX_KEY "\nbad:" HEX_KEY "00\n",
		   0600);
	return 0;
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)st, (void)type, (void)walk;
	return remove(path);
}

static inline int rig_teardown(void **state)
{
	struct identity *all[] = { &authority,	 &stranger, &good,    &expired, &future,
				   &for_clients, &client,   &foreign, &stale };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		identity_free(all[i]);
	return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- the server ---- */

struct wire {
	size_t begin, end;
	uint8_t at[1u << 20];
};

struct server_config {
	const char *priorities;
	const struct identity *identity; /* NULL: no certificate */
	bool psk, anon;
	bool wants_client;
	bool mute; /* no alerts: closes the connection, as servers of NBD do */
	unsigned flags;
};

static struct server {
	struct server_config config;
	gnutls_session_t session;
	gnutls_certificate_credentials_t x509;
	gnutls_psk_server_credentials_t psk;
	gnutls_anon_server_credentials_t anon;
	int result; /* of the handshake: GNUTLS_E_AGAIN, 0, an error */
	struct wire in, out;
} server;

static inline ssize_t server_pull(gnutls_transport_ptr_t ctx, void *buf, size_t bytes)
{
	struct wire *w = &server.in;
	size_t nr = MIN(bytes, w->end - w->begin);

	(void)ctx;
	memcpy(buf, w->at + w->begin, nr);
	w->begin += nr;
	if (nr)
		return (ssize_t)nr;
	w->begin = w->end = 0;
	gnutls_transport_set_errno(server.session, EAGAIN);
	return -1;
}

static inline int server_pull_timeout(gnutls_transport_ptr_t ctx, unsigned ms)
{
	(void)ctx, (void)ms;
	return server.in.end > server.in.begin;
}

static inline void wire_put(struct wire *w, const void *data, size_t bytes)
{
	ASSERT(bytes <= sizeof(w->at) - w->end);
	memcpy(w->at + w->end, data, bytes);
	w->end += bytes;
}

static inline ssize_t server_push(gnutls_transport_ptr_t ctx, const void *data, size_t bytes)
{
	(void)ctx;
	wire_put(&server.out, data, bytes);
	return (ssize_t)bytes;
}

static inline int server_psk(gnutls_session_t session, const char *user, gnutls_datum_t *key)
{
	(void)session;
	if (strcmp(user, "qemu") != 0 && strcmp(user, "bad") != 0)
		return -1;
	key->data = gnutls_malloc(psk_key.size);
	memcpy(key->data, psk_key.data, psk_key.size);
	key->size = psk_key.size;
	return 0;
}

static inline void server_identity(const struct server_config *config)
{
	gnutls_x509_crt_t cert = config->identity->cert;

	TRY(gnutls_certificate_allocate_credentials(&server.x509));
	TRY(gnutls_certificate_set_x509_key(server.x509, &cert, 1, config->identity->key));
	TRY(gnutls_certificate_set_x509_trust(server.x509, &authority.cert, 1));
	TRY(gnutls_credentials_set(server.session, GNUTLS_CRD_CERTIFICATE, server.x509));
	if (config->wants_client) {
		gnutls_certificate_server_set_request(server.session, GNUTLS_CERT_REQUIRE);
		gnutls_session_set_verify_cert(server.session, NULL, 0);
	}
}

static inline void server_start(const struct server_config *config)
{
	server.config = *config;
	server.result = GNUTLS_E_AGAIN;
	server.in.begin = server.in.end = server.out.begin = server.out.end = 0;
	TRY(gnutls_init(&server.session, GNUTLS_SERVER | GNUTLS_NONBLOCK | config->flags));
	TRY(gnutls_priority_set_direct(server.session, config->priorities, NULL));
	if (config->identity)
		server_identity(config);
	if (config->psk) {
		TRY(gnutls_psk_allocate_server_credentials(&server.psk));
		gnutls_psk_set_server_credentials_function(server.psk, server_psk);
		TRY(gnutls_credentials_set(server.session, GNUTLS_CRD_PSK, server.psk));
	}
	if (config->anon) {
		TRY(gnutls_anon_allocate_server_credentials(&server.anon));
		TRY(gnutls_credentials_set(server.session, GNUTLS_CRD_ANON, server.anon));
	}
	gnutls_transport_set_push_function(server.session, server_push);
	gnutls_transport_set_pull_function(server.session, server_pull);
	gnutls_transport_set_pull_timeout_function(server.session, server_pull_timeout);
}

static inline void server_stop(void)
{
	gnutls_deinit(server.session);
	if (server.x509)
		gnutls_certificate_free_credentials(server.x509);
	if (server.psk)
		gnutls_psk_free_server_credentials(server.psk);
	if (server.anon)
		gnutls_anon_free_server_credentials(server.anon);
	server.x509 = NULL;
	server.psk = NULL;
	server.anon = NULL;
}

static inline void server_step(void)
{
	if (server.result != GNUTLS_E_AGAIN)
		return;
	do
		server.result = gnutls_handshake(server.session);
	while (server.result == GNUTLS_E_INTERRUPTED ||
	       server.result == GNUTLS_E_WARNING_ALERT_RECEIVED);
	if (server.result < 0 && server.result != GNUTLS_E_AGAIN && !server.config.mute)
		gnutls_alert_send_appropriate(server.session, server.result);
}

/* ---- both ---- */

static struct tls_credentials *credentials;
static struct tls *tls;
static struct prng prng;

/* Bytes of one movement: 1, SIZE_MAX for all, or up to so many at random. */
static inline size_t piece(size_t max)
{
	return max == 1 || max == SIZE_MAX ? max : 1 + prng_below(&prng, max);
}

static inline void move_out(size_t max)
{
	const uint8_t *data;
	size_t nr;

	while ((nr = tls_output(tls, &data))) {
		nr = MIN(nr, piece(max));
		wire_put(&server.in, data, nr);
		tls_sent(tls, nr);
	}
}

/* One piece; false: there is none, or no room for it. */
static inline bool move_in(size_t max)
{
	struct wire *w = &server.out;
	size_t nr = MIN(w->end - w->begin, piece(max));

	nr = tls_feed(tls, w->at + w->begin, nr);
	w->begin += nr;
	if (w->begin == w->end)
		w->begin = w->end = 0;
	return nr > 0;
}

static inline void client_start(const struct tls_config *config, const char *hostname)
{
	char error[400] = "";
	int ret = tls_credentials_new(&credentials, config, error, sizeof(error));

	if (ret < 0)
		fail_msg("%s", error);
	assert_int_equal(tls_new(&tls, credentials, hostname), 0);
	prng_init(&prng, 1);
}

static inline void client_stop(void)
{
	tls_free(tls);
	tls_credentials_free(credentials);
	tls = NULL;
	credentials = NULL;
}

/* Until it is decided, or nothing moves any more. */
static inline enum tls_step shake(size_t max)
{
	enum tls_step step;

	while ((step = tls_handshake(tls)) == TLS_MORE) {
		move_out(max);
		server_step();
		if (!move_in(max))
			break;
	}
	move_out(max);
	server_step();
	return step;
}

/* All of it, in records as the server likes them. */
static inline void server_say(const void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t nr = gnutls_record_send(server.session, (const uint8_t *)data + done,
						bytes - done);

		ASSERT(nr > 0);
		done += (size_t)nr;
	}
}

/* What there is, or an error as GnuTLS says it. */
static inline ssize_t server_hear(void *buf, size_t bytes)
{
	size_t done = 0;
	ssize_t nr = 0;

	while (done < bytes) {
		nr = gnutls_record_recv(server.session, (uint8_t *)buf + done, bytes - done);
		if (nr == GNUTLS_E_INTERRUPTED ||
		    (nr == GNUTLS_E_AGAIN && server.in.begin < server.in.end))
			continue;
		if (nr <= 0)
			break;
		done += (size_t)nr;
	}
	return done ? (ssize_t)done : nr;
}

/* Reads all that comes, in pieces of up to max; the last error. Bytes are added to *ret_done. */
static inline ssize_t client_hear(void *buf, size_t bytes, size_t max, size_t *ret_done)
{
	uint8_t beyond;
	ssize_t nr;

	for (;;) {
		bool full = *ret_done == bytes;

		nr = tls_read(tls, full ? &beyond : (uint8_t *)buf + *ret_done,
			      full ? 1 : MIN(bytes - *ret_done, piece(max)));
		ASSERT(nr < 0 || !full);
		if (nr > 0)
			*ret_done += (size_t)nr;
		else if (nr != -EAGAIN || !move_in(max))
			return nr;
	}
}

static inline ssize_t client_say(const void *data, size_t bytes)
{
	struct iovec iov = { .iov_base = (void *)data, .iov_len = bytes };

	return tls_write(tls, &iov, 1);
}

/* A word in each direction. */
static inline void assert_talk(void)
{
	char buf[16] = "";
	size_t done = 0;

	assert_int_equal(client_say("question", 9), 9);
	move_out(SIZE_MAX);
	assert_int_equal(server_hear(buf, sizeof(buf)), 9);
	assert_string_equal(buf, "question");
	server_say("answer", 7);
	assert_int_equal(client_hear(buf, sizeof(buf), 3, &done), -EAGAIN);
	assert_int_equal(done, 7);
	assert_string_equal(buf, "answer");
	assert_string_equal(tls_error(tls), "");
}

static inline void assert_words(const char *part)
{
	const char *words = tls_error(tls);

	if (!words || !strstr(words, part))
		fail_msg("\"%s\" is not in: %s", part, words ? words : "nothing");
	check_printable(words);
}

#endif
