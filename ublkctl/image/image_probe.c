/*
 * Looks at the first bytes of files. Any thread that may block.
 *
 * Happy path: open -> size -> the first bytes -> the format's own parser. Failure modes: errno of
 * open and read; no file and no block device: -EINVAL, before anything is read of it.
 */
#include "ublkctl/image/image_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/big_endian.h"

#define MAGIC_BYTES 4

static int probe_bytes(int fd, uint8_t *buf, size_t *ret_bytes)
{
	ssize_t n;

	*ret_bytes = 0;
	while (*ret_bytes < QCOW2_HEADER_READ_BYTES) {
		n = pread(fd, buf + *ret_bytes, QCOW2_HEADER_READ_BYTES - *ret_bytes,
			  (off_t)*ret_bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		*ret_bytes += (size_t)n;
	}
	return 0;
}

/* The parser's words are for a log: without the format's name before them. */
static void parse_header(struct image_probe *p, const uint8_t *buf, size_t nr_bytes)
{
	char words[QCOW2_WORDS_BYTES];
	const char *colon;

	p->kind = IMAGE_QCOW2;
	/* The end of a file may be the middle of a cluster. */
	if (qcow2_header_parse(&p->header, buf, nr_bytes, UINT64_MAX, words) == 0)
		return;
	p->kind = IMAGE_BROKEN;
	colon = strstr(words, ": ");
	snprintf(p->words, sizeof(p->words), "%s", colon ? colon + 2 : words);
}

static int probe_header(int fd, struct image_probe *p)
{
	uint8_t *buf = malloc(QCOW2_HEADER_READ_BYTES);
	size_t nr_bytes;
	int ret = buf ? probe_bytes(fd, buf, &nr_bytes) : -ENOMEM;

	if (ret == 0 && nr_bytes >= MAGIC_BYTES && be_get32(buf) == QCOW2_MAGIC)
		parse_header(p, buf, nr_bytes);
	free(buf);
	return ret;
}

static int probe_size(int fd, struct image_probe *p)
{
	off_t end;

	if (!S_ISREG(p->stat.st_mode) && !S_ISBLK(p->stat.st_mode))
		return -EINVAL;
	end = lseek(fd, 0, SEEK_END);
	if (end < 0)
		return -errno;
	p->bytes = (uint64_t)end;
	return 0;
}

int image_probe(const char *path, struct image_probe *ret_probe)
{
	/* Not to wait for the other end of a pipe. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), ret;

	memset(ret_probe, 0, sizeof(*ret_probe));
	if (fd < 0)
		return -errno;
	ret = fstat(fd, &ret_probe->stat) < 0 ? -errno : probe_size(fd, ret_probe);
	if (ret == 0)
		ret = probe_header(fd, ret_probe);
	close(fd);
	return ret;
}

int image_path_from(const char *image_path, const char *name, char *ret_path, size_t bytes)
{
	const char *slash = strrchr(image_path, '/');
	int len;

	if (name[0] == '/' || !slash)
		len = snprintf(ret_path, bytes, "%s", name);
	else
		len = snprintf(ret_path, bytes, "%.*s%s", (int)(slash - image_path + 1), image_path,
			       name);
	return (size_t)len < bytes ? 0 : -ENAMETOOLONG;
}
