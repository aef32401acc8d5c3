/*
 * Owns a FILE. One thread.
 *
 * Happy path: open, write, close. Failure mode: a full disk, which out_close tells; what comes
 * after is not written.
 */
#include "tracefile/out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tracefile/map.h"

int out_open(struct out *o, const char *path)
{
	/* for its owner only, as perf's: kernel addresses are nobody else's */
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), ret;

	if (fd < 0)
		return -errno;
	*o = (struct out){ .file = fdopen(fd, "w") };
	if (o->file)
		return 0;
	ret = -errno;
	close(fd);
	return ret;
}

void out_write(struct out *o, const void *data, size_t bytes)
{
	if (!o->err && fwrite(data, 1, bytes, o->file) != bytes)
		o->err = errno ? -errno : -EIO;
}

int out_close(struct out *o)
{
	if (fclose(o->file) != 0 && !o->err)
		o->err = -errno;
	return o->err;
}

void bytes_put(struct bytes *b, const void *data, size_t nr)
{
	if (nr == 0)
		return;
	if (b->room - b->nr < nr) {
		b->room = (b->nr + nr) * 2;
		b->data = memory_resize(b->data, b->room, 1);
	}
	memcpy(b->data + b->nr, data, nr);
	b->nr += nr;
}

void bytes_free(struct bytes *b)
{
	free(b->data);
	*b = (struct bytes){ 0 };
}
