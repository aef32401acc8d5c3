/* Reads keys; owns nothing. Pure. */
#include "backends/http/s3_keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* A range of the text. */
struct s3_part {
	const char *at, *end;
};

static struct s3_part part_trim(struct s3_part p)
{
	while (p.at < p.end && strchr(" \t\r", *p.at))
		p.at++;
	while (p.end > p.at && strchr(" \t\r", p.end[-1]))
		p.end--;
	return p;
}

static bool part_is(struct s3_part p, const char *text)
{
	return (size_t)(p.end - p.at) == strlen(text) &&
	       memcmp(p.at, text, (size_t)(p.end - p.at)) == 0;
}

/* They go into headers, where nothing else has a place. */
static bool value_is_good(const char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] <= ' ' || at[i] >= 0x7f)
			return false;
	return bytes > 0;
}

/* The field of that name; NULL: none is called so. */
static char *keys_field(struct s3_keys *keys, struct s3_part name, size_t *ret_bytes)
{
	*ret_bytes = S3_KEY_BYTES;
	if (part_is(name, "aws_access_key_id"))
		return keys->access;
	if (part_is(name, "aws_secret_access_key"))
		return keys->secret;
	*ret_bytes = S3_TOKEN_BYTES;
	return part_is(name, "aws_session_token") ? keys->session_token : NULL;
}

static int keys_take(struct s3_keys *keys, struct s3_part name, struct s3_part value, char *error,
		     size_t error_bytes)
{
	size_t to_bytes, bytes = (size_t)(value.end - value.at);
	char *to = keys_field(keys, name, &to_bytes);

	if (!to)
		return 0;
	if (bytes >= to_bytes || !value_is_good(value.at, bytes)) {
		snprintf(error, error_bytes,
			 "%.*s is empty, too long, or has other characters "
			 "than letters, digits and signs",
			 (int)(name.end - name.at), name.at);
		return -EINVAL;
	}
	memcpy(to, value.at, bytes);
	to[bytes] = '\0';
	return 0;
}

static int keys_judge(const struct s3_keys *keys, char *error, size_t error_bytes)
{
	const char *missing = !keys->access[0]	 ? "aws_access_key_id"
			      : !keys->secret[0] ? "aws_secret_access_key"
						 : NULL;

	if (!missing)
		return 0;
	snprintf(error, error_bytes, "%s is missing", missing);
	return -EINVAL;
}

/* One line, which is not empty. *mine: we are in the profile. */
static int line_take(struct s3_part line, const char *profile, bool *mine, bool *found,
		     struct s3_keys *keys, char *error, size_t error_bytes)
{
	const char *equals = memchr(line.at, '=', (size_t)(line.end - line.at));
	struct s3_part name, value;

	if (*line.at == '#' || *line.at == ';')
		return 0;
	if (*line.at == '[' && line.end[-1] == ']') {
		*mine = part_is(part_trim((struct s3_part){ line.at + 1, line.end - 1 }), profile);
		*found |= *mine;
		return 0;
	}
	if (!equals) {
		snprintf(error, error_bytes, "expected [PROFILE] or NAME = VALUE");
		return -EINVAL;
	}
	name = part_trim((struct s3_part){ line.at, equals });
	value = part_trim((struct s3_part){ equals + 1, line.end });
	return *mine ? keys_take(keys, name, value, error, error_bytes) : 0;
}

int s3_keys_parse(const char *text, const char *profile, struct s3_keys *ret_keys, char *error,
		  size_t error_bytes)
{
	struct s3_keys keys = { 0 };
	bool mine = false, found = false;
	unsigned nr = 0;
	int ret = 0;

	for (const char *at = text; *at && ret == 0;) {
		const char *end = strchrnul(at, '\n');
		struct s3_part line = part_trim((struct s3_part){ at, end });
		char words[160];

		nr++;
		if (line.at < line.end)
			ret = line_take(line, profile, &mine, &found, &keys, words, sizeof(words));
		if (ret < 0)
			snprintf(error, error_bytes, "line %u: %s", nr, words);
		at = *end ? end + 1 : end;
	}
	if (ret == 0 && !found) {
		snprintf(error, error_bytes, "has no profile [%s]", profile);
		ret = -EINVAL;
	}
	if (ret == 0)
		ret = keys_judge(&keys, error, error_bytes);
	if (ret == 0)
		*ret_keys = keys;
	explicit_bzero(&keys, sizeof(keys));
	return ret;
}

static struct s3_part part_of(const char *text)
{
	return (struct s3_part){ text, text + strlen(text) };
}

int s3_keys_from(const char *access, const char *secret, const char *session_token,
		 struct s3_keys *ret_keys, char *error, size_t error_bytes)
{
	const char *const value[] = { access, secret, session_token };
	static const char *const name[] = { "aws_access_key_id", "aws_secret_access_key",
					    "aws_session_token" };
	struct s3_keys keys = { 0 };
	int ret = 0;

	for (size_t i = 0; i < ARRAY_SIZE(value) && ret == 0; i++)
		if (value[i] && value[i][0])
			ret = keys_take(&keys, part_of(name[i]), part_of(value[i]), error,
					error_bytes);
	if (ret == 0 && (keys.access[0] || keys.secret[0]))
		ret = keys_judge(&keys, error, error_bytes);
	if (ret == 0)
		*ret_keys = keys;
	explicit_bzero(&keys, sizeof(keys));
	return ret;
}
