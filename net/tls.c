/*
 * One TLS connection of a client over memory. Owns struct tls: the session of GnuTLS, a ring of
 * wire bytes in each direction. Its owner's thread; no call blocks. Allocates in tls_new and
 * tls_reset; GnuTLS allocates for each record, and frees.
 *
 * Happy path: tls_new -> tls_handshake until DONE, during which GnuTLS verifies the certificate,
 * before anything of ours is said -> tls_write makes records of up to 16 KiB, small pieces
 * gathered, large ones from where they lie -> tls_read.
 *
 * `push` and `pull` are the wire that GnuTLS sees. A pull from an empty ring is EAGAIN; a push into
 * a full one too, but only a handshake comes to that: tls_write begins no record without room.
 * GnuTLS answers EAGAIN also where it took a message that is not for us (a new ticket, a new key),
 * so it is called again until it has really asked for what is not there.
 *
 * Failure modes: BROKEN with words (tls_words.c), for ever; an alert for the server is left in the
 * output. The end of the connection is not seen here: an owner that reads the end of its socket
 * before tls_read said -ENODATA was cut off, perhaps by somebody in between (tls_eof has words).
 */
#include "net/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/x509.h>
#include <stdio.h>

#include "net/tls_internal.h"
#include "base/assert.h"
#include "base/util.h"

/* RFC 5246, 6.2.3: what a record may add to its plain bytes; then its header; then a new key. */
#define RECORD_EXTRA_BYTES (2048u + 5 + 64)

_Static_assert(TLS_INPUT_BYTES >= TLS_RECORD_PLAIN_BYTES + RECORD_EXTRA_BYTES, "a whole record");
_Static_assert(TLS_OUTPUT_BYTES >= TLS_RECORD_PLAIN_BYTES + RECORD_EXTRA_BYTES, "a whole record");

/* ---- rings ---- */

static size_t ring_room(const struct tls_ring *r)
{
	return r->size - r->used;
}

/* As many as lie in one piece. */
static size_t ring_first(const struct tls_ring *r, const uint8_t **ret_data)
{
	*ret_data = r->mem + r->begin;
	return MIN(r->used, r->size - r->begin);
}

static void ring_drop(struct tls_ring *r, size_t bytes)
{
	ASSERT(bytes <= r->used);
	r->used -= bytes;
	r->begin = r->used == 0 ? 0 : (r->begin + bytes) % r->size;
}

static size_t ring_put(struct tls_ring *r, const uint8_t *data, size_t bytes)
{
	size_t end = (r->begin + r->used) % r->size, first;

	bytes = MIN(bytes, ring_room(r));
	first = MIN(bytes, r->size - end);
	memcpy(r->mem + end, data, first);
	memcpy(r->mem, data + first, bytes - first);
	r->used += bytes;
	return bytes;
}

static size_t ring_get(struct tls_ring *r, uint8_t *buf, size_t bytes)
{
	size_t done = 0;

	while (done < bytes && r->used) {
		const uint8_t *data;
		size_t nr = MIN(ring_first(r, &data), bytes - done);

		memcpy(buf + done, data, nr);
		ring_drop(r, nr);
		done += nr;
	}
	return done;
}

/* ---- the wire as GnuTLS sees it ---- */

static ssize_t wait_for_owner(struct tls *t)
{
	t->waits = true;
	gnutls_transport_set_errno(t->session, EAGAIN);
	return -1;
}

static ssize_t tls_push(gnutls_transport_ptr_t ctx, const void *data, size_t bytes)
{
	struct tls *t = ctx;
	size_t done = ring_put(&t->out, data, bytes);

	return done ? (ssize_t)done : wait_for_owner(t);
}

static ssize_t tls_pull(gnutls_transport_ptr_t ctx, void *buf, size_t bytes)
{
	struct tls *t = ctx;
	size_t done = ring_get(&t->in, buf, bytes);

	t->silent_bytes += done;
	return done ? (ssize_t)done : wait_for_owner(t);
}

/* GnuTLS's own would ask the kernel about a descriptor. */
static int pull_timeout(gnutls_transport_ptr_t ctx, unsigned timeout_ms)
{
	(void)timeout_ms;
	return ((struct tls *)ctx)->in.used > 0;
}

/* ---- life ---- */

static bool is_address(const char *hostname)
{
	uint8_t address[16];

	return inet_pton(AF_INET, hostname, address) == 1 ||
	       inet_pton(AF_INET6, hostname, address) == 1;
}

/* The certificate is compared with the name and must be one for servers (if it says for what). */
static int set_x509(struct tls *t)
{
	const struct tls_credentials *c = t->credentials;
	int ret = gnutls_credentials_set(t->session, GNUTLS_CRD_CERTIFICATE, c->x509);

	if (ret == 0 && *t->hostname && !is_address(t->hostname))
		ret = gnutls_server_name_set(t->session, GNUTLS_NAME_DNS, t->hostname,
					     strlen(t->hostname));
	if (ret < 0 || c->no_verify)
		return ret;
	t->expected[0] = (gnutls_typed_vdata_st){ .type = GNUTLS_DT_DNS_HOSTNAME,
						  .data = (unsigned char *)t->hostname };
	t->expected[1] =
		(gnutls_typed_vdata_st){ .type = GNUTLS_DT_KEY_PURPOSE_OID,
					 .data = (unsigned char *)GNUTLS_KP_TLS_WWW_SERVER };
	gnutls_session_set_verify_cert2(t->session, t->expected, ARRAY_SIZE(t->expected), 0);
	return 0;
}

static int set_credentials(struct tls *t)
{
	const struct tls_credentials *c = t->credentials;

	switch (c->kind) {
	case TLS_KIND_PSK:
		return gnutls_credentials_set(t->session, GNUTLS_CRD_PSK, c->psk);
	case TLS_KIND_ANON:
		return gnutls_credentials_set(t->session, GNUTLS_CRD_ANON, c->anon);
	case TLS_KIND_X509:
		break;
	}
	return set_x509(t);
}

int tls_reset(struct tls *t)
{
	if (t->session)
		gnutls_deinit(t->session);
	t->session = NULL;
	t->state = TLS_SHAKING;
	t->heard = t->ended = false;
	t->silent_bytes = 0;
	t->in = (struct tls_ring){ .mem = t->in_mem, .size = sizeof(t->in_mem) };
	t->out = (struct tls_ring){ .mem = t->out_mem, .size = sizeof(t->out_mem) };
	t->error[0] = '\0';
	if (gnutls_init(&t->session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
		t->session = NULL; /* UNTESTED: no memory */
	} else if (gnutls_priority_set(t->session, t->credentials->priority) < 0 ||
		   set_credentials(t) < 0) {
		gnutls_deinit(t->session); /* UNTESTED: no memory */
		t->session = NULL;
	}
	if (!t->session) {
		t->state = TLS_BROKEN; /* UNTESTED: no memory */
		snprintf(t->error, sizeof(t->error), "no memory for TLS");
		return -ENOMEM;
	}
	gnutls_transport_set_ptr(t->session, t);
	gnutls_transport_set_push_function(t->session, tls_push);
	gnutls_transport_set_pull_function(t->session, tls_pull);
	gnutls_transport_set_pull_timeout_function(t->session, pull_timeout);
	return 0;
}

/* The interface behind a link-local address, fe80::1%eth0, is no business of the certificate. */
static char *copy_hostname(const char *hostname)
{
	if (!hostname)
		hostname = "";
	return strndup(hostname, strchr(hostname, ':') ? strcspn(hostname, "%") : strlen(hostname));
}

int tls_new(struct tls **ret_tls, const struct tls_credentials *credentials, const char *hostname)
{
	struct tls *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	/* But for the number of those who have them they never change. */
	t->credentials = (struct tls_credentials *)(uintptr_t)credentials;
	atomic_fetch_add(&t->credentials->holders, 1);
	t->hostname = copy_hostname(hostname);
	if (!t->hostname || tls_reset(t) < 0) {
		tls_free(t);
		return -ENOMEM;
	}
	*ret_tls = t;
	return 0;
}

void tls_free(struct tls *t)
{
	if (!t)
		return;
	if (t->session)
		gnutls_deinit(t->session);
	tls_credentials_free(t->credentials);
	free(t->hostname);
	free(t);
}

/* ---- the handshake ---- */

/* Nothing of it is an error: call again, with more input if it asked for that. */
static bool is_normal(int code)
{
	return code == GNUTLS_E_AGAIN || code == GNUTLS_E_INTERRUPTED ||
	       code == GNUTLS_E_WARNING_ALERT_RECEIVED;
}

static void tls_give_up(struct tls *t, int code)
{
	t->state = TLS_BROKEN;
	tls_words(t, code);
	/* The server has said its last word with an alert. */
	if (code != GNUTLS_E_FATAL_ALERT_RECEIVED && ring_room(&t->out) >= RECORD_EXTRA_BYTES)
		gnutls_alert_send_appropriate(t->session, code);
}

/* Whether it is who it must be was part of the handshake; this is that it was asked at all. */
static bool is_authenticated(const struct tls *t)
{
	gnutls_credentials_type_t type = gnutls_auth_server_get_type(t->session);

	switch (t->credentials->kind) {
	case TLS_KIND_PSK:
		return type == GNUTLS_CRD_PSK;
	case TLS_KIND_X509:
		return type == GNUTLS_CRD_CERTIFICATE;
	case TLS_KIND_ANON:
		break;
	}
	return true;
}

static bool has_name(const struct tls *t)
{
	return t->credentials->kind != TLS_KIND_X509 || t->credentials->no_verify || *t->hostname;
}

enum tls_step tls_handshake(struct tls *t)
{
	int ret;

	if (t->state == TLS_BROKEN)
		return TLS_FAILED;
	if (t->state == TLS_OPEN)
		return TLS_DONE;
	if (!has_name(t)) {
		t->state = TLS_BROKEN;
		snprintf(t->error, sizeof(t->error),
			 "there is no name to compare the server's certificate with: set "
			 "tls-hostname");
		return TLS_FAILED;
	}
	do {
		t->waits = false;
		ret = gnutls_handshake(t->session);
	} while (is_normal(ret) && !t->waits);
	if (is_normal(ret) && t->silent_bytes > TLS_SILENT_BYTES_MAX)
		ret = GNUTLS_E_HANDSHAKE_TOO_LARGE;
	if (is_normal(ret))
		return TLS_MORE;
	if (ret == 0 && !is_authenticated(t))
		ret = GNUTLS_E_INSUFFICIENT_CREDENTIALS; /* UNTESTED: GnuTLS says so before */
	if (ret < 0) {
		tls_give_up(t, ret);
		return TLS_FAILED;
	}
	t->state = TLS_OPEN;
	t->silent_bytes = 0;
	return TLS_DONE;
}

/* ---- wire ---- */

size_t tls_feed(struct tls *t, const uint8_t *wire, size_t bytes)
{
	return ring_put(&t->in, wire, bytes);
}

size_t tls_output(const struct tls *t, const uint8_t **ret_data)
{
	return ring_first(&t->out, ret_data);
}

void tls_sent(struct tls *t, size_t bytes)
{
	ring_drop(&t->out, bytes);
}

/* ---- plain ---- */

ssize_t tls_read(struct tls *t, void *buf, size_t bytes)
{
	ssize_t ret;

	ASSERT(t->state != TLS_SHAKING && bytes > 0);
	if (t->state == TLS_BROKEN)
		return -EPROTO;
	if (t->ended)
		return -ENODATA;
	do {
		t->waits = false;
		ret = gnutls_record_recv(t->session, buf, bytes);
	} while (is_normal((int)ret) && !t->waits);
	if (is_normal((int)ret) && t->silent_bytes > TLS_SILENT_BYTES_MAX)
		ret = GNUTLS_E_HANDSHAKE_TOO_LARGE;
	if (is_normal((int)ret))
		return -EAGAIN;
	if (ret < 0) {
		tls_give_up(t, (int)ret);
		return -EPROTO;
	}
	t->silent_bytes = 0;
	t->heard |= ret > 0;
	t->ended = ret == 0;
	return ret ? ret : -ENODATA;
}

/* The plain bytes of a tls_write that are not taken yet. */
struct rest {
	const struct iovec *iov;
	size_t at;	  /* in the first of them */
	size_t all_bytes; /* of all of them */
};

static void rest_drop(struct rest *r, size_t bytes)
{
	r->all_bytes -= bytes;
	r->at += bytes;
	while (r->all_bytes && r->at >= r->iov->iov_len) {
		r->at -= r->iov->iov_len;
		r->iov++;
	}
}

/* The next `bytes` of them in one piece: where they are, or gathered in `plain`. */
static const uint8_t *rest_piece(struct rest r, uint8_t *plain, size_t bytes)
{
	if (r.iov->iov_len - r.at >= bytes)
		return (const uint8_t *)r.iov->iov_base + r.at;
	for (size_t done = 0; done < bytes;) {
		size_t nr = MIN(r.iov->iov_len - r.at, bytes - done);

		memcpy(plain + done, (const uint8_t *)r.iov->iov_base + r.at, nr);
		rest_drop(&r, nr);
		done += nr;
	}
	return plain;
}

ssize_t tls_write(struct tls *t, const struct iovec *iov, unsigned nr)
{
	struct rest r = { .iov = iov };
	ssize_t taken = 0, ret;

	ASSERT(t->state != TLS_SHAKING);
	if (t->state == TLS_BROKEN)
		return -EPROTO;
	for (unsigned i = 0; i < nr; i++)
		r.all_bytes += iov[i].iov_len;
	rest_drop(&r, 0);
	while (r.all_bytes) {
		size_t bytes = MIN(r.all_bytes, TLS_RECORD_PLAIN_BYTES);

		if (ring_room(&t->out) < bytes + RECORD_EXTRA_BYTES)
			break;
		/* Less than that where the server wants smaller records. */
		ret = gnutls_record_send(t->session, rest_piece(r, t->plain, bytes), bytes);
		if (ret <= 0) {
			tls_give_up(t, (int)ret);
			return -EPROTO;
		}
		rest_drop(&r, (size_t)ret);
		taken += ret;
	}
	return taken;
}

void tls_bye(struct tls *t)
{
	if (t->state == TLS_OPEN && ring_room(&t->out) >= RECORD_EXTRA_BYTES)
		gnutls_bye(t->session, GNUTLS_SHUT_WR);
}

void tls_eof(struct tls *t)
{
	if (t->state == TLS_BROKEN || t->ended)
		return;
	t->state = TLS_BROKEN;
	tls_words_eof(t);
}

const char *tls_error(const struct tls *t)
{
	return t->error;
}
