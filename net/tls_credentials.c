/*
 * What a client shows and believes, from files. Owns struct tls_credentials. Any thread that may
 * wait for files, not a reactor's; afterwards read-only.
 *
 * Happy path: the kind's priorities -> its files, read whole -> GnuTLS parses them. Failure modes:
 * -errno with words that name the file, and the cure.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/printable.h"
#include "net/secret_file.h"
#include "net/tls_internal.h"
#include "base/util.h"

/* Of a file: a bundle of all the world's authorities has 220 KiB. */
#define FILE_BYTES_MAX (4u << 20)

/* Without TLS 1.3 where it cannot be: it has no anonymous servers. */
#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.2"
#define KEY_IN_MEMORY "NORMAL:-VERS-ALL:+VERS-TLS1.3:+ECDHE-PSK:+DHE-PSK:+PSK"

struct reading {
	struct tls_credentials *credentials;
	const struct tls_config *config;
	char *error;
	size_t error_bytes;
};

__attribute__((format(printf, 3, 4))) static int credentials_fail(const struct reading *r, int err,
								  const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(r->error, r->error_bytes, fmt, args);
	va_end(args);
	return err;
}

static int fail_nomem(const struct reading *r)
{
	return credentials_fail(r, -ENOMEM, "no memory for TLS"); /* UNTESTED: no memory */
}

/* ---- files ---- */

static int check_file_size(const struct reading *r, const char *path, size_t bytes)
{
	if (bytes == 0)
		return credentials_fail(r, -EINVAL, "%s: is empty", path);
	if (bytes > FILE_BYTES_MAX)
		return credentials_fail(r, -EFBIG, "%s: is larger than %u MiB", path,
					FILE_BYTES_MAX >> 20);
	return 0;
}

static int credentials_read_all(int fd, uint8_t *buf, size_t bytes, size_t *ret_done)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t nr = read(fd, buf + done, bytes - done);

		if (nr < 0 && errno == EINTR)
			continue;
		if (nr < 0)
			return -errno;
		if (nr == 0)
			break;
		done += (size_t)nr;
	}
	*ret_done = done;
	return 0;
}

/* -ENOENT: there is none. For file_free. */
static int file_read(const struct reading *r, const char *path, enum secrecy secrecy,
		     gnutls_datum_t *ret_file)
{
	size_t bytes = 0, done = 0;
	int fd = secret_file_open(path, secrecy, &bytes, r->error, r->error_bytes), ret;
	uint8_t *buf;

	if (fd < 0)
		return fd;
	ret = check_file_size(r, path, bytes);
	if (ret == 0) {
		buf = malloc(bytes);
		ret = buf ? credentials_read_all(fd, buf, bytes, &done) : -ENOMEM;
		if (ret == 0)
			*ret_file = (gnutls_datum_t){ .data = buf, .size = (unsigned)done };
		else
			credentials_fail(r, ret, "%s: %s", path, strerror(-ret)),
				free(buf); /* UNTESTED */
	}
	close(fd);
	return ret;
}

static void file_free(gnutls_datum_t *file)
{
	if (file->data)
		explicit_bzero(file->data, file->size);
	free(file->data);
	*file = (gnutls_datum_t){ 0 };
}

/* ---- PSK ---- */

/* The next line, without white space around it; false behind the last. */
static bool next_line(gnutls_datum_t *rest, gnutls_datum_t *ret_line)
{
	uint8_t *end;
	gnutls_datum_t line = *rest;

	if (rest->size == 0)
		return false;
	end = memchr(line.data, '\n', line.size);
	if (end)
		line.size = (unsigned)(end - line.data);
	rest->data += MIN(line.size + 1, rest->size);
	rest->size -= MIN(line.size + 1, rest->size);
	while (line.size && strchr(" \t\r", line.data[line.size - 1]) && line.data[line.size - 1])
		line.size--;
	*ret_line = line;
	return true;
}

/*
 * Whether what stands before the colon is that user: as it is, or behind a '#' in hexadecimal,
 * which psktool writes for names with a colon or other bytes of a meaning.
 */
static bool is_user(const gnutls_datum_t *name, const char *username)
{
	gnutls_datum_t hex = { .data = name->data + 1, .size = name->size - 1 }, raw;
	bool same;

	if (name->size == 0 || name->data[0] != '#')
		return name->size == strlen(username) &&
		       memcmp(name->data, username, name->size) == 0;
	if (gnutls_hex_decode2(&hex, &raw) < 0)
		return false;
	same = raw.size == strlen(username) && memcmp(raw.data, username, raw.size) == 0;
	gnutls_free(raw.data);
	return same;
}

static int set_psk_key(const struct reading *r, gnutls_datum_t key, unsigned line_nr)
{
	struct tls_credentials *c = r->credentials;
	gnutls_datum_t user = { .data = (uint8_t *)c->username,
				.size = (unsigned)strlen(c->username) };
	int ret;

	if (key.size == 0)
		return credentials_fail(r, -EINVAL, "%s:%u: user \"%s\" has no key",
					r->config->psk_file, line_nr, c->username);
	ret = gnutls_psk_set_client_credentials2(c->psk, &user, &key, GNUTLS_PSK_KEY_HEX);
	if (ret == GNUTLS_E_MEMORY_ERROR)
		return fail_nomem(r); /* UNTESTED: no memory */
	if (ret < 0)
		return credentials_fail(
			r, -EINVAL,
			"%s:%u: the key of user \"%s\" is not hexadecimal, as psktool makes it",
			r->config->psk_file, line_nr, c->username);
	return 0;
}

static int find_psk_key(const struct reading *r, gnutls_datum_t rest)
{
	gnutls_datum_t line;

	for (unsigned nr = 1; next_line(&rest, &line); nr++) {
		uint8_t *colon = line.size ? memchr(line.data, ':', line.size) : NULL;
		gnutls_datum_t name = { .data = line.data }, key;

		if (!colon)
			continue;
		name.size = (unsigned)(colon - line.data);
		if (!is_user(&name, r->credentials->username))
			continue;
		key.data = colon + 1;
		key.size = line.size - name.size - 1;
		return set_psk_key(r, key, nr);
	}
	return credentials_fail(
		r, -ENOENT,
		"%s: has no key of user \"%s\": make one with psktool -u %s -p %s, for the "
		"server too",
		r->config->psk_file, r->credentials->username, r->credentials->username,
		r->config->psk_file);
}

static int set_psk_of_memory(const struct reading *r)
{
	struct tls_credentials *c = r->credentials;
	gnutls_datum_t key = { .data = (uint8_t *)r->config->psk,
			       .size = (unsigned)r->config->psk_bytes };

	c->username = strdup(r->config->username);
	if (!c->username || gnutls_psk_allocate_client_credentials(&c->psk) < 0 ||
	    gnutls_psk_set_client_credentials(c->psk, c->username, &key, GNUTLS_PSK_KEY_RAW) < 0)
		return fail_nomem(r); /* UNTESTED: no memory */
	return 0;
}

static int read_psk(const struct reading *r)
{
	const struct tls_config *config = r->config;
	gnutls_datum_t file = { 0 };
	int ret;

	if (config->psk)
		return set_psk_of_memory(r);
	if (!config->psk_file || !*config->psk_file)
		return credentials_fail(r, -EINVAL, "there is no file of keys: set tls-psk-file");
	if (!config->username || !*config->username)
		return credentials_fail(r, -EINVAL, "%s: whose key of it? set tls-username",
					config->psk_file);
	r->credentials->username = strdup(config->username);
	if (!r->credentials->username ||
	    gnutls_psk_allocate_client_credentials(&r->credentials->psk) < 0)
		return fail_nomem(r); /* UNTESTED: no memory */
	ret = file_read(r, config->psk_file, FILE_SECRET, &file);
	if (ret == 0)
		ret = find_psk_key(r, file);
	file_free(&file);
	return ret;
}

/* ---- X509 ---- */

/* In the folder of certificates; NULL without memory. For free. */
static char *credentials_path(const struct reading *r, const char *name)
{
	char *path;

	return asprintf(&path, "%s/%s", r->config->certificates, name) < 0 ? NULL : path;
}

/* What GnuTLS says of a file that it does not like. */
static int fail_file(const struct reading *r, const char *path, int code)
{
	char words[128];
	const char *text = gnutls_strerror(code);

	if (code == GNUTLS_E_MEMORY_ERROR)
		return fail_nomem(r); /* UNTESTED: no memory */
	return credentials_fail(r, -EINVAL, "%s: %s", path,
				printable(words, sizeof(words), text, strlen(text)));
}

static int read_authorities(const struct reading *r)
{
	char *path = credentials_path(r, "ca-cert.pem");
	gnutls_datum_t file = { 0 };
	int ret;

	if (!path)
		return fail_nomem(r); /* UNTESTED: no memory */
	r->credentials->authorities = path;
	ret = file_read(r, path, FILE_PUBLIC, &file);
	if (ret == -ENOENT && r->config->no_verify)
		return 0;
	if (ret < 0)
		return ret;
	ret = gnutls_certificate_set_x509_trust_mem(r->credentials->x509, &file,
						    GNUTLS_X509_FMT_PEM);
	file_free(&file);
	if (ret < 0)
		return fail_file(r, path, ret);
	return ret ? 0 : credentials_fail(r, -EINVAL, "%s: has no certificate", path);
}

/* A link to nothing is a list that is lost. */
static bool is_absent(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 && errno == ENOENT;
}

/* Which certificates their authorities have taken back; there need not be such a list. */
static int read_revoked(const struct reading *r)
{
	char *path = credentials_path(r, "ca-crl.pem");
	gnutls_datum_t file = { 0 };
	int ret;

	if (!path)
		return fail_nomem(r); /* UNTESTED: no memory */
	ret = file_read(r, path, FILE_PUBLIC, &file);
	if (ret == 0) {
		ret = gnutls_certificate_set_x509_crl_mem(r->credentials->x509, &file,
							  GNUTLS_X509_FMT_PEM);
		ret = ret < 0 ? fail_file(r, path, ret) : 0;
	} else if (ret == -ENOENT && is_absent(path)) {
		ret = 0;
	}
	file_free(&file);
	free(path);
	return ret;
}

/* Both files are there, or none of them. */
static int read_own_files(const struct reading *r, const char *cert_path, const char *key_path)
{
	gnutls_datum_t cert = { 0 }, key = { 0 };
	int ret = file_read(r, cert_path, FILE_PUBLIC, &cert);

	if (ret == -ENOENT && access(key_path, F_OK) < 0)
		return 0;
	if (ret == 0)
		ret = file_read(r, key_path, FILE_SECRET, &key);
	if (ret == 0) {
		ret = gnutls_certificate_set_x509_key_mem(r->credentials->x509, &cert, &key,
							  GNUTLS_X509_FMT_PEM);
		ret = ret < 0 ? fail_file(r,
					  ret == GNUTLS_E_DECRYPTION_FAILED ? key_path : cert_path,
					  ret)
			      : 0;
	}
	file_free(&cert);
	file_free(&key);
	return ret;
}

static int read_own(const struct reading *r)
{
	char *cert = credentials_path(r, "client-cert.pem"),
	     *key = credentials_path(r, "client-key.pem");
	int ret = cert && key ? read_own_files(r, cert, key) : fail_nomem(r);

	free(cert);
	free(key);
	return ret;
}

static int read_x509(const struct reading *r)
{
	struct tls_credentials *c = r->credentials;
	int ret;

	if (gnutls_certificate_allocate_credentials(&c->x509) < 0)
		return fail_nomem(r); /* UNTESTED: no memory */
	if (!r->config->certificates || !*r->config->certificates) {
		if (!c->no_verify && gnutls_certificate_set_x509_system_trust(c->x509) <= 0)
			/* UNTESTED: the path is compiled into GnuTLS */
			return credentials_fail(r, -ENOENT,
						"this system has no list of authorities: install "
						"ca-certificates, or set tls-certificates");
		return 0;
	}
	ret = read_authorities(r);
	if (ret == 0)
		ret = read_revoked(r);
	return ret < 0 ? ret : read_own(r);
}

/* ---- all of them ---- */

static int set_priorities(const struct reading *r)
{
	static const char *const of_kind[] = {
		[TLS_KIND_X509] = PRIORITIES ":+VERS-TLS1.3",
		[TLS_KIND_PSK] = PRIORITIES ":+VERS-TLS1.3:+ECDHE-PSK:+DHE-PSK:+PSK",
		[TLS_KIND_ANON] = PRIORITIES ":+ANON-ECDH:+ANON-DH",
	};
	const char *words = r->config->psk ? KEY_IN_MEMORY : of_kind[r->config->kind];
	int ret = gnutls_priority_init2(&r->credentials->priority, words, NULL, 0);

	/* UNTESTED: no memory, or an administrator who forbids all of it to all programs */
	return ret < 0 ? credentials_fail(r, -EINVAL, "GnuTLS does not know %s: %s", words,
					  gnutls_strerror(ret))
		       : 0;
}

static int read_kind(const struct reading *r)
{
	switch (r->config->kind) {
	case TLS_KIND_PSK:
		return read_psk(r);
	case TLS_KIND_ANON:
		return gnutls_anon_allocate_client_credentials(&r->credentials->anon) < 0
			       ? fail_nomem(r)
			       : 0;
	case TLS_KIND_X509:
		break;
	}
	return read_x509(r);
}

int tls_credentials_new(struct tls_credentials **ret_credentials, const struct tls_config *config,
			char *error, size_t error_bytes)
{
	struct tls_credentials *c = calloc(1, sizeof(*c));
	struct reading r = {
		.credentials = c, .config = config, .error = error, .error_bytes = error_bytes
	};
	int ret;

	if (!c)
		return fail_nomem(&r); /* UNTESTED: no memory */
	atomic_init(&c->holders, 1);
	c->kind = config->kind;
	c->no_verify = config->no_verify;
	ret = set_priorities(&r);
	if (ret == 0)
		ret = read_kind(&r);
	if (ret < 0) {
		tls_credentials_free(c);
		return ret;
	}
	credentials_fail(&r, 0, "%s", ""); /* of files that need not be there */
	*ret_credentials = c;
	return 0;
}

void tls_credentials_free(struct tls_credentials *c)
{
	if (!c || atomic_fetch_sub(&c->holders, 1) > 1)
		return;
	if (c->x509)
		gnutls_certificate_free_credentials(c->x509);
	if (c->psk)
		gnutls_psk_free_client_credentials(c->psk);
	if (c->anon)
		gnutls_anon_free_client_credentials(c->anon);
	if (c->priority)
		gnutls_priority_deinit(c->priority);
	free(c->username);
	free(c->authorities);
	free(c);
}
