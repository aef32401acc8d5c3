/*
 * Why TLS failed, for people, with the cure. Pure but for the session that it asks; its owner's
 * thread. What comes from the peer (names in its certificate) is cut and made printable.
 */
#include <arpa/inet.h>
#include <gnutls/x509.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/printable.h"
#include "net/tls_internal.h"
#include "base/util.h"

/* Names of a certificate that are told. */
#define NAMES_MAX 6u

struct text {
	char *at;
	size_t bytes, size;
};

/* Adds; what does not fit is cut off. */
__attribute__((format(printf, 2, 3))) static void words_say(struct text *text, const char *fmt, ...)
{
	va_list args;
	int nr;

	va_start(args, fmt);
	nr = vsnprintf(text->at + text->bytes, text->size - text->bytes, fmt, args);
	va_end(args);
	if (nr > 0)
		text->bytes = MIN(text->bytes + (size_t)nr, text->size - 1);
}

/* ---- certificates ---- */

/* The next name, printable; "" for one of a kind that is nobody's host. false: no more. */
static bool next_name(gnutls_x509_crt_t cert, unsigned idx, char *buf, size_t buf_bytes)
{
	char raw[256];
	size_t bytes = sizeof(raw);
	int type = gnutls_x509_crt_get_subject_alt_name(cert, idx, raw, &bytes, NULL);

	buf[0] = '\0';
	if (type == GNUTLS_E_SHORT_MEMORY_BUFFER)
		return true;
	if (type < 0)
		return false;
	if (type == GNUTLS_SAN_DNSNAME)
		printable(buf, buf_bytes, raw, bytes);
	else if (type == GNUTLS_SAN_IPADDRESS && (bytes == 4 || bytes == 16))
		inet_ntop(bytes == 4 ? AF_INET : AF_INET6, raw, buf, (socklen_t)buf_bytes);
	return true;
}

static void say_common_name(struct text *text, gnutls_x509_crt_t cert)
{
	char raw[256], name[80];
	size_t bytes = sizeof(raw);

	if (gnutls_x509_crt_get_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, 0, raw, &bytes) < 0)
		words_say(text, "nobody");
	else
		words_say(text, "\"%s\"", printable(name, sizeof(name), raw, bytes));
}

static void say_names(struct text *text, gnutls_x509_crt_t cert)
{
	char name[80];
	unsigned said_nr = 0;

	for (unsigned i = 0; next_name(cert, i, name, sizeof(name)); i++) {
		if (!name[0])
			continue;
		if (said_nr == NAMES_MAX) {
			words_say(text, ", ...");
			break;
		}
		words_say(text, "%s\"%s\"", said_nr++ ? ", " : "", name);
	}
	if (said_nr == 0)
		say_common_name(text, cert);
}

static void say_issuer(struct text *text, gnutls_x509_crt_t cert)
{
	char raw[512], name[120];
	size_t bytes = sizeof(raw);

	if (gnutls_x509_crt_get_issuer_dn(cert, raw, &bytes) < 0)
		words_say(text, "nobody"); /* UNTESTED: a name of more than 512 bytes */
	else
		words_say(text, "\"%s\"", printable(name, sizeof(name), raw, bytes));
}

static void say_date(struct text *text, time_t time)
{
	char date[32];
	struct tm tm;

	if (gmtime_r(&time, &tm) && strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", &tm))
		words_say(text, "%s", date);
}

/* The parts that GnuTLS knows better than we. */
static void say_status(struct text *text, unsigned status)
{
	gnutls_datum_t out;
	char words[200];

	if (gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &out, 0) < 0)
		return; /* UNTESTED: no memory */
	words_say(text, "; %s",
		  printable(words, sizeof(words), out.data, strlen((char *)out.data)));
	gnutls_free(out.data);
}

static void say_unknown_authority(const struct tls *t, struct text *text, gnutls_x509_crt_t cert)
{
	const char *file = t->credentials->authorities;

	words_say(text, "; it is signed by ");
	say_issuer(text, cert);
	if (file)
		words_say(text, ", which is not in %s", file);
	else
		words_say(text,
			  ", which this system does not know: set tls-certificates to a folder "
			  "with the ca-cert.pem of the server's authority");
}

static void say_reasons(const struct tls *t, struct text *text, unsigned status,
			gnutls_x509_crt_t cert)
{
	const unsigned told = GNUTLS_CERT_INVALID | GNUTLS_CERT_UNEXPECTED_OWNER |
			      GNUTLS_CERT_SIGNER_NOT_FOUND | GNUTLS_CERT_EXPIRED |
			      GNUTLS_CERT_NOT_ACTIVATED | GNUTLS_CERT_PURPOSE_MISMATCH;

	if (status & GNUTLS_CERT_UNEXPECTED_OWNER) {
		words_say(text, "; it is for ");
		say_names(text, cert);
		words_say(text, ", not for \"%s\": set tls-hostname", t->hostname);
	}
	if (status & GNUTLS_CERT_SIGNER_NOT_FOUND)
		say_unknown_authority(t, text, cert);
	if (status & GNUTLS_CERT_EXPIRED) {
		words_say(text, "; it, or one that signed it, has expired (its own end: ");
		say_date(text, gnutls_x509_crt_get_expiration_time(cert));
		words_say(text, "); or this machine's clock is wrong");
	}
	if (status & GNUTLS_CERT_NOT_ACTIVATED) {
		words_say(text, "; it, or one that signed it, begins later (its own beginning: ");
		say_date(text, gnutls_x509_crt_get_activation_time(cert));
		words_say(text, "); or this machine's clock is wrong");
	}
	if (status & GNUTLS_CERT_PURPOSE_MISMATCH)
		words_say(text, "; it is not one for servers");
	if (status & ~told)
		say_status(text, status & ~(told & ~(unsigned)GNUTLS_CERT_INVALID));
}

static void say_certificate(const struct tls *t, struct text *text)
{
	unsigned nr = 0, status = gnutls_session_get_verify_cert_status(t->session);
	const gnutls_datum_t *chain = gnutls_certificate_get_peers(t->session, &nr);
	gnutls_x509_crt_t cert;

	words_say(text, "the server's certificate is not accepted");
	if (!nr || gnutls_x509_crt_init(&cert) < 0)
		return; /* UNTESTED: no memory */
	if (gnutls_x509_crt_import(cert, &chain[0], GNUTLS_X509_FMT_DER) == 0)
		say_reasons(t, text, status, cert);
	gnutls_x509_crt_deinit(cert);
}

/* ---- alerts ---- */

static void say_psk_alert(const struct tls *t, struct text *text)
{
	words_say(
		text,
		"the server does not accept the key of user \"%s\": its file of keys must have the "
		"same line",
		t->credentials->username);
}

/* Whether the one that we showed has ended: then nothing else is worth a word. */
static bool say_own_expired(const struct tls *t, struct text *text)
{
	const gnutls_datum_t *own = gnutls_certificate_get_ours(t->session);
	gnutls_x509_crt_t cert;
	time_t end = -1;

	if (!own || gnutls_x509_crt_init(&cert) < 0)
		return false;
	if (gnutls_x509_crt_import(cert, own, GNUTLS_X509_FMT_DER) == 0)
		end = gnutls_x509_crt_get_expiration_time(cert);
	gnutls_x509_crt_deinit(cert);
	if (end == -1 || end >= time(NULL))
		return false;
	words_say(text, "our certificate has expired (its end: ");
	say_date(text, end);
	words_say(text, "): renew client-cert.pem, and start the device anew");
	return true;
}

/* GnuTLS does not even show one that another authority signed than the server asked for. */
static void say_own_certificate(const struct tls *t, struct text *text)
{
	if (say_own_expired(t, text))
		return;
	words_say(text,
		  "the server wants a certificate of ours, signed by an authority it knows: put "
		  "client-cert.pem and client-key.pem into the folder of tls-certificates");
}

/* ... and nothing was heard since. */
static bool has_asked_certificate(const struct tls *t)
{
	return t->credentials->kind == TLS_KIND_X509 && !t->heard &&
	       gnutls_certificate_client_get_request_status(t->session);
}

/* What the server's alert is about; false: about nothing that the user can change. */
static bool say_alert_cause(const struct tls *t, struct text *text,
			    gnutls_alert_description_t alert)
{
	switch (alert) {
	case GNUTLS_A_PROTOCOL_VERSION:
		words_say(text, "the server speaks neither TLS 1.2 nor 1.3");
		return true;
	case GNUTLS_A_HANDSHAKE_FAILURE:
	case GNUTLS_A_INSUFFICIENT_SECURITY:
		words_say(text,
			  "the server and we have no way of TLS in common: is it made for %s?",
			  t->credentials->kind == TLS_KIND_PSK	  ? "keys of users (PSK)"
			  : t->credentials->kind == TLS_KIND_ANON ? "anonymous TLS"
								  : "certificates");
		return true;
	case GNUTLS_A_CERTIFICATE_REQUIRED:
		say_own_certificate(t, text);
		return true;
	case GNUTLS_A_BAD_CERTIFICATE:
	case GNUTLS_A_UNSUPPORTED_CERTIFICATE:
	case GNUTLS_A_CERTIFICATE_REVOKED:
	case GNUTLS_A_CERTIFICATE_EXPIRED:
	case GNUTLS_A_CERTIFICATE_UNKNOWN:
	case GNUTLS_A_UNKNOWN_CA:
	case GNUTLS_A_ACCESS_DENIED:
		if (!say_own_expired(t, text))
			words_say(text,
				  "the server does not accept our certificate, client-cert.pem");
		return true;
	default:
		return false;
	}
}

/* What servers answer to a wrong key: the protocol leaves them the choice. */
static bool is_psk_alert(gnutls_alert_description_t alert)
{
	return alert == GNUTLS_A_BAD_RECORD_MAC || alert == GNUTLS_A_DECRYPT_ERROR ||
	       alert == GNUTLS_A_DECRYPTION_FAILED || alert == GNUTLS_A_ILLEGAL_PARAMETER ||
	       alert == GNUTLS_A_UNKNOWN_PSK_IDENTITY;
}

static void say_alert(const struct tls *t, struct text *text)
{
	gnutls_alert_description_t alert = gnutls_alert_get(t->session);
	const char *name = gnutls_alert_get_name(alert);
	bool by_key = t->credentials->kind == TLS_KIND_PSK && !t->heard;

	if (by_key && is_psk_alert(alert)) {
		say_psk_alert(t, text);
	} else if (by_key && alert == GNUTLS_A_INTERNAL_ERROR) {
		/* GnuTLS's, where its user does not know the client's. */
		words_say(text, "the server ended TLS: mostly ");
		say_psk_alert(t, text);
	} else if (!say_alert_cause(t, text, alert)) {
		words_say(text, "the server ended TLS");
		if (has_asked_certificate(t)) {
			words_say(text, ": mostly ");
			say_own_certificate(t, text);
		}
	}
	words_say(text, " (alert %u: %s)", (unsigned)alert, name ? name : "unknown");
}

/* ---- all of them ---- */

void tls_words(struct tls *t, int code)
{
	struct text text = { .at = t->error, .size = sizeof(t->error) };

	switch (code) {
	case GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR:
		say_certificate(t, &text);
		break;
	case GNUTLS_E_FATAL_ALERT_RECEIVED:
		say_alert(t, &text);
		break;
	case GNUTLS_E_REHANDSHAKE:
		words_say(&text, "the server wants to renegotiate TLS, which is not done");
		break;
	case GNUTLS_E_UNSUPPORTED_VERSION_PACKET:
		words_say(&text, "the server speaks neither TLS 1.2 nor 1.3");
		break;
	case GNUTLS_E_UNEXPECTED_PACKET:
	case GNUTLS_E_UNEXPECTED_PACKET_LENGTH:
	case GNUTLS_E_RECORD_OVERFLOW:
		words_say(&text, "what the server sends is not TLS, or broken: %s",
			  gnutls_strerror(code));
		break;
	case GNUTLS_E_HANDSHAKE_TOO_LARGE:
		words_say(&text, "the server sends TLS without end, but no data");
		break;
	default:
		words_say(&text, "TLS with the server failed: %s", gnutls_strerror(code));
	}
}

void tls_words_eof(struct tls *t)
{
	struct text text = { .at = t->error, .size = sizeof(t->error) };

	if (t->heard) {
		words_say(&text, "the server closed the connection without ending TLS");
		return;
	}
	words_say(&text, "the server closed the connection instead of TLS, and did not say why");
	switch (t->credentials->kind) {
	case TLS_KIND_PSK:
		words_say(&text, ": mostly ");
		say_psk_alert(t, &text);
		break;
	case TLS_KIND_X509:
		words_say(&text, ": ");
		if (has_asked_certificate(t))
			say_own_certificate(t, &text);
		else
			words_say(&text, "is it made for certificates?");
		break;
	case TLS_KIND_ANON:
		words_say(&text, ": mostly it wants certificates or keys (PSK)");
		break;
	}
}
