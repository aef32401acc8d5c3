/* Checks and makes NQNs. Owns nothing; any thread. Failure modes: words. */
#include "backends/nvme/protocol/nvme_nqn.h"

#include <errno.h>
#include <stdio.h>

#include "backends/nvme/protocol/nvme_namespace.h"
#include "base/printable.h"
#include "base/util.h"

#define UUID_PREFIX "nqn.2014-08.org.nvmexpress:uuid:"

static int nqn_fail(char *error, size_t error_bytes, const char *words)
{
	snprintf(error, error_bytes, "%s", words);
	return -EINVAL;
}

static bool nqn_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* "YYYY-MM." */
static bool nqn_has_date(const char *at)
{
	for (unsigned i = 0; i < 7; i++)
		if (i == 4 ? at[i] != '-' : !nqn_is_digit(at[i]))
			return false;
	return at[7] == '.' && at[8] != '\0' && at[8] != ':';
}

int nvme_nqn_check(const char *nqn, char *error, size_t error_bytes)
{
	size_t bytes = strnlen(nqn, NVME_NQN_BYTES_MAX + 1);
	uint32_t code;
	unsigned nr;

	if (bytes == 0)
		return nqn_fail(error, error_bytes, "an NQN is not empty");
	if (bytes > NVME_NQN_BYTES_MAX)
		return nqn_fail(error, error_bytes, "an NQN has at most 223 bytes");
	for (size_t at = 0; at < bytes; at += nr) {
		nr = utf8_letter(nqn + at, bytes - at, &code);
		if (nr == 0)
			return nqn_fail(error, error_bytes, "an NQN is UTF-8");
		if (code < ' ' || (code >= 0x7f && code < 0xa0))
			return nqn_fail(error, error_bytes, "an NQN has no control characters");
	}
	return 0;
}

const char *nvme_nqn_strange(const char *nqn)
{
	uint8_t uuid[16];

	if (strncmp(nqn, "nqn.", 4) != 0 || !nqn_has_date(nqn + 4) || strchr(nqn, ' '))
		return "has not the form of an NQN, nqn.2024-01.com.example:disk, and not every "
		       "target takes that";
	if (strncmp(nqn, UUID_PREFIX, strlen(UUID_PREFIX)) == 0 && nvme_nqn_uuid(nqn, uuid) < 0)
		return "has no UUID of the form 8-4-4-4-12 behind " UUID_PREFIX
		       ", and not every target takes that";
	return NULL;
}

bool nvme_nqn_is_discovery(const char *nqn)
{
	return strcmp(nqn, NVME_DISCOVERY_NQN) == 0;
}

char *nvme_nqn_of_uuid(const uint8_t uuid[16], char buf[static NVME_NQN_OF_UUID_BYTES])
{
	int nr = snprintf(buf, NVME_NQN_OF_UUID_BYTES, UUID_PREFIX);

	for (unsigned i = 0; i < 16; i++)
		nr += snprintf(buf + nr, NVME_NQN_OF_UUID_BYTES - (size_t)nr, "%s%02x",
			       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	return buf;
}

int nvme_nqn_uuid(const char *nqn, uint8_t ret_uuid[16])
{
	if (strncmp(nqn, UUID_PREFIX, strlen(UUID_PREFIX)) != 0 ||
	    nvme_uuid_parse(nqn + strlen(UUID_PREFIX), ret_uuid) < 0)
		return -ENOENT;
	return 0;
}
