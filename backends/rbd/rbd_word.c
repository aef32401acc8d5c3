/*
 * "rbd:pool/namespace/image@snapshot", as the tools of Ceph and QEMU write it. Pure; any thread.
 * Failure modes: words for the user.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/rbd/rbd_config.h"

static const char word_form[] = "expected rbd:POOL/IMAGE, rbd:POOL/NAMESPACE/IMAGE, with @SNAPSHOT "
				"behind it as one likes";

static int word_take(char to[static CEPH_NAME_BYTES], const char *from, size_t bytes)
{
	if (bytes == 0 || bytes >= CEPH_NAME_BYTES)
		return -EINVAL;
	memcpy(to, from, bytes);
	to[bytes] = '\0';
	return 0;
}

static int word_split(const char *at, struct ceph_target *t)
{
	size_t all = strcspn(at, "@");
	const char *first = memchr(at, '/', all), *last = memrchr(at, '/', all);

	if (!first || word_take(t->pool, at, (size_t)(first - at)) < 0)
		return -EINVAL;
	if (first != last && (memchr(first + 1, '/', (size_t)(last - first - 1)) ||
			      word_take(t->namespace, first + 1, (size_t)(last - first - 1)) < 0))
		return -EINVAL;
	if (word_take(t->image, last + 1, (size_t)(at + all - last - 1)) < 0)
		return -EINVAL;
	if (at[all] == '\0')
		return 0;
	return strchr(at + all + 1, '@') || strchr(at + all + 1, '/')
		       ? -EINVAL
		       : word_take(t->snapshot, at + all + 1, strlen(at + all + 1));
}

int ceph_word_parse(const char *word, struct ceph_target *ret_target, char *error,
		    size_t error_bytes)
{
	struct ceph_target t = { 0 };

	if (strncasecmp(word, "rbd:", 4) != 0 || word_split(word + 4, &t) < 0) {
		snprintf(error, error_bytes, "%s", word_form);
		return -EINVAL;
	}
	*ret_target = t;
	return 0;
}

const char *ceph_target_format(const struct ceph_target *target, char *buf, size_t buf_bytes)
{
	snprintf(buf, buf_bytes, "%s/%s%s%s%s%s", target->pool, target->namespace,
		 target->namespace[0] ? "/" : "", target->image, target->snapshot[0] ? "@" : "",
		 target->snapshot);
	return buf;
}
