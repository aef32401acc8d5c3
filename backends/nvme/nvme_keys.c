/*
 * The secrets of a device, from the files that the configuration names. Owns struct nvme_keys.
 * Helper thread: reads files. Nothing of a key goes into words.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "backends/nvme/keys/nvme_tls_key.h"
#include "backends/nvme/nvme.h"
#include "net/secret_file.h"
#include "net/tls.h"

/* A key is 80 bytes of text and less. */
#define KEY_TEXT_BYTES 256u

__attribute__((format(printf, 4, 5))) static int keys_fail(int err, char *error, size_t error_bytes,
							   const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(error, error_bytes, fmt, args);
	va_end(args);
	return err;
}

/* The first line. */
static int keys_read_text(const char *path, char text[static KEY_TEXT_BYTES], char *error,
			  size_t error_bytes)
{
	size_t file_bytes;
	int fd = secret_file_open(path, FILE_SECRET, &file_bytes, error, error_bytes);
	ssize_t bytes;

	if (fd < 0)
		return fd;
	bytes = read(fd, text, KEY_TEXT_BYTES - 1);
	close(fd);
	if (bytes < 0)
		return keys_fail(-EIO, error, error_bytes, "%s: cannot be read", path);
	text[bytes] = '\0';
	text[strcspn(text, " \t\r\n")] = '\0';
	return 0;
}

static int keys_read_dhchap(struct nvme_dhchap_key *key, const char *path, char *error,
			    size_t error_bytes)
{
	char text[KEY_TEXT_BYTES], words[160];
	int ret = keys_read_text(path, text, error, error_bytes);

	if (ret == 0 && nvme_dhchap_key_parse(key, text, words, sizeof(words)) < 0)
		ret = keys_fail(-EINVAL, error, error_bytes, "%s: %s", path, words);
	explicit_bzero(text, sizeof(text));
	return ret;
}

static int keys_make_credentials(struct nvme_keys *keys, const struct nvme_tls_key *key,
				 const struct nvme_tls_derivation *how, const char *path,
				 char *error, size_t error_bytes)
{
	struct nvme_tls_psk psk;
	struct tls_config config = { .kind = TLS_KIND_PSK, .username = psk.identity };
	int ret = nvme_tls_psk_derive(&psk, key, how);

	config.psk = psk.psk;
	config.psk_bytes = psk.bytes;
	if (ret == -ENAMETOOLONG)
		return keys_fail(ret, error, error_bytes,
				 "the names of host and subsystem are too long for tls_identity 0");
	if (ret < 0)
		return keys_fail(ret, error, error_bytes, "%s: no key for TLS can be made of it",
				 path);
	if (psk.hash == NVME_HASH_SHA384)
		ret = keys_fail(-EOPNOTSUPP, error, error_bytes,
				"%s: a key for SHA-384, which GnuTLS does not take for TLS: make "
				"one with nvme gen-tls-key --hmac=1, on both sides",
				path);
	else
		ret = tls_credentials_new(&keys->tls, &config, error, error_bytes);
	explicit_bzero(&psk, sizeof(psk));
	return ret;
}

static int keys_read_tls(struct nvme_keys *keys, const struct nvme_config *config,
			 const struct nvme_uri *uri, char *error, size_t error_bytes)
{
	const struct nvme_tls_derivation how = {
		.version = (enum nvme_tls_version)config->tls_identity,
		.host_nqn = uri->host_nqn,
		.subsystem_nqn = uri->subsystem_nqn,
	};
	const char *path = config->tls_key_file;
	char text[KEY_TEXT_BYTES], words[160];
	struct nvme_tls_key key = { 0 };
	int ret = keys_read_text(path, text, error, error_bytes);

	if (ret == 0 && nvme_tls_key_parse(&key, text, words, sizeof(words)) < 0)
		ret = keys_fail(-EINVAL, error, error_bytes, "%s: %s", path, words);
	if (ret == 0)
		ret = keys_make_credentials(keys, &key, &how, path, error, error_bytes);
	explicit_bzero(text, sizeof(text));
	explicit_bzero(&key, sizeof(key));
	return ret;
}

int nvme_keys_read(struct nvme_keys *keys, const struct nvme_config *config,
		   const struct nvme_uri *uri, char *error, size_t error_bytes)
{
	int ret = 0;

	if (config->host_key_file)
		ret = keys_read_dhchap(&keys->host, config->host_key_file, error, error_bytes);
	keys->has_host = config->host_key_file && ret == 0;
	if (ret == 0 && config->ctrl_key_file)
		ret = keys_read_dhchap(&keys->controller, config->ctrl_key_file, error,
				       error_bytes);
	keys->has_controller = config->ctrl_key_file && ret == 0;
	if (ret == 0 && config->tls_key_file)
		ret = keys_read_tls(keys, config, uri, error, error_bytes);
	return ret;
}

void nvme_keys_free(struct nvme_keys *keys)
{
	tls_credentials_free(keys->tls);
	explicit_bzero(keys, sizeof(*keys));
}
