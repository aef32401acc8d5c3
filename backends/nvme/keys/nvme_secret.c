/*
 * Takes secrets out of their text. Owns nothing; any thread. Failure modes: words, which say what
 * is wrong with the text and never what it is.
 */
#include "backends/nvme/keys/nvme_secret.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/util.h"

#define CRC_BYTES 4u

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

__attribute__((format(printf, 3, 4))) static int secret_fail(char *error, size_t error_bytes,
							     const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(error, error_bytes, fmt, args);
	va_end(args);
	return -EINVAL;
}

char *nvme_secret_base64(char *ret_text, const uint8_t *data, size_t bytes)
{
	char *at = ret_text;

	for (size_t i = 0; i < bytes; i += 3) {
		size_t nr = MIN(bytes - i, (size_t)3);
		uint32_t group = (uint32_t)data[i] << 16;

		group |= nr > 1 ? (uint32_t)data[i + 1] << 8 : 0;
		group |= nr > 2 ? data[i + 2] : 0;
		for (unsigned k = 0; k < 4; k++)
			*at++ = k <= nr ? digits[group >> (18 - 6 * k) & 63] : '=';
	}
	*at = '\0';
	return ret_text;
}

static int base64_value(char c)
{
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/*
 * As strict as RFC 4648 allows: whole groups, '=' at the end only, and no bits behind the last
 * byte. Returns the bytes, or -EINVAL.
 */
static int base64_decode(const char *text, size_t chars, uint8_t *ret_data, size_t room)
{
	size_t padding = 0, nr = 0;
	uint32_t bits = 0;

	if (chars % 4 != 0 || chars / 4 * 3 > room)
		return -EINVAL;
	while (padding < 2 && padding < chars && text[chars - 1 - padding] == '=')
		padding++;
	for (size_t i = 0; i < chars - padding; i++) {
		int value = base64_value(text[i]);

		if (value < 0)
			return -EINVAL;
		bits = bits << 6 | (uint32_t)value;
		if (i % 4 > 0)
			ret_data[nr++] = (uint8_t)(bits >> (6 - i % 4 * 2));
	}
	return padding > 0 && (bits & ((1u << 2 * padding) - 1)) ? -EINVAL : (int)nr;
}

/* IEEE 802.3, as zlib's crc32. */
static uint32_t secret_crc(const uint8_t *at, size_t bytes)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < bytes; i++) {
		crc ^= at[i];
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

/* The hash's two digits and the colon behind them; -EINVAL. */
static int secret_hash(const char *at)
{
	if (at[0] != '0' || at[1] < '0' || at[1] > '9' || at[2] != ':')
		return -EINVAL;
	return at[1] - '0';
}

/* raw: the key and its CRC. */
static int secret_check(struct nvme_secret *secret, const uint8_t *raw, int raw_bytes, char *error,
			size_t error_bytes)
{
	uint32_t bytes = (uint32_t)raw_bytes - CRC_BYTES;
	const uint8_t *crc = raw + bytes;

	if (bytes != 32 && bytes != 48 && bytes != 64)
		return secret_fail(error, error_bytes,
				   "has a key of %u bytes: it has 32, 48 or 64, so characters are "
				   "missing, or too many",
				   bytes);
	if (secret_crc(raw, bytes) != ((uint32_t)crc[0] | (uint32_t)crc[1] << 8 |
				       (uint32_t)crc[2] << 16 | (uint32_t)crc[3] << 24))
		return secret_fail(error, error_bytes,
				   "has a checksum that is wrong: a character was changed");
	secret->bytes = bytes;
	memcpy(secret->key, raw, bytes);
	return 0;
}

int nvme_secret_parse(struct nvme_secret *ret_secret, const char *prefix, const char *text,
		      char *error, size_t error_bytes)
{
	/* Room for whole groups of base64. */
	uint8_t raw[(NVME_SECRET_BYTES_MAX + CRC_BYTES + 2) / 3 * 3];
	size_t chars = strlen(text), head = strlen(prefix);
	int hash, nr, ret;

	*ret_secret = (struct nvme_secret){ 0 };
	if (strncmp(text, prefix, head) != 0)
		return secret_fail(error, error_bytes, "does not begin with %s", prefix);
	hash = secret_hash(text + head);
	if (hash < 0)
		return secret_fail(error, error_bytes,
				   "has no two digits and colon behind %s, which name a hash",
				   prefix);
	head += 3;
	if (text[chars - 1] != ':' || chars == head)
		return secret_fail(error, error_bytes, "does not end with a colon: it is cut off");
	nr = base64_decode(text + head, chars - head - 1, raw, sizeof(raw));
	if (nr < (int)CRC_BYTES)
		return secret_fail(error, error_bytes,
				   "is not base64 between its last two colons, or too long");
	ret_secret->hash = (uint8_t)hash;
	ret = secret_check(ret_secret, raw, nr, error, error_bytes);
	explicit_bzero(raw, sizeof(raw));
	return ret;
}
