/*
 * A new image. Any thread that may block; owns nothing between calls.
 *
 * Happy path: the backing file is looked at (its size and format) -> what is asked for is checked
 * -> the files are opened and locked -> data file, image -> all of it is durable, and so are the
 * names. Nothing is written before everything has been checked.
 *
 * Failure modes: words; files that were made are removed again. A program that has the file open
 * (a device of ublkd, a virtual machine) has locks on it: refused.
 */
#include "ublkctl/image/image_new.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/printable.h"
#include "base/util.h"

#define WRITE_BYTES (1u << 20)
#define SECTOR_BYTES 512u
/* Images below each other that are looked at. */
#define CHAIN_MAX 256

/* For "%.*s": as much of a name as leaves room for what is said of it, even twice. */
#define NAME_SHOWN(name) utf8_fit(name, 200), name

/* A file that is being made. */
struct new_file {
	char path[PATH_MAX];
	int fd; /* -1: not open */
	bool is_new, is_block;
};

struct making {
	const struct image_new *n;
	struct qcow2_create create;
	uint64_t image_bytes;
	bool is_detected;
	char *error;
	struct new_file image, data;
};

__attribute__((format(printf, 3, 4))) static int new_fail(struct making *m, int err,
							  const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(m->error, IMAGE_ERROR_BYTES, format, args);
	va_end(args);
	utf8_end_whole(m->error);
	return err;
}

/* ---- the backing file ---- */

/* QEMU takes what stands before a colon for a protocol, and this image is to work there too. */
static bool is_protocol(const char *name)
{
	size_t len = strcspn(name, ":/");

	return name[len] == ':';
}

static int find_named(struct making *m, const char *what, const char *name, char path[PATH_MAX])
{
	if (name[0] == '\0')
		return new_fail(m, -EINVAL, "the name of the %s is empty", what);
	if (is_protocol(name))
		return new_fail(m, -EINVAL,
				"\"%.*s\": what stands before the colon would be taken for a "
				"protocol: write ./%.*s for a file",
				NAME_SHOWN(name), NAME_SHOWN(name));
	if (image_path_from(m->n->path, name, path, PATH_MAX) < 0)
		return new_fail(m, -ENAMETOOLONG, "the name of the %s is too long", what);
	return 0;
}

/* What a guest has written into a plain disk must not make an image of it. */
static int detect_format(struct making *m, const struct image_probe *p)
{
	bool is_named = m->n->backing_is_named;

	m->is_detected = true;
	if (is_named && p->kind == IMAGE_QCOW2)
		m->create.backing_format = "qcow2";
	else if (!is_named && p->kind == IMAGE_PLAIN)
		m->create.backing_format = "raw";
	else if (is_named)
		return new_fail(m, -EINVAL,
				"%.*s is named as a qcow2 image, and %s: say what it is by "
				"--backing-format raw, or name another file",
				NAME_SHOWN(m->create.backing_name),
				p->kind == IMAGE_BROKEN ? p->words : "does not begin as one");
	else
		return new_fail(m, -EINVAL,
				"%.*s begins as a qcow2 image, which may have been written "
				"into it from a disk's inside: say what it is by "
				"--backing-format qcow2 or raw",
				NAME_SHOWN(m->create.backing_name));
	return 0;
}

static int check_format(struct making *m, const struct image_probe *p)
{
	const char *format = m->create.backing_format;

	if (!format)
		return detect_format(m, p);
	if (strcmp(format, "qcow2") != 0 && strcmp(format, "raw") != 0)
		return new_fail(m, -EINVAL,
				"--backing-format %.*s: qcow2 and raw are what ublkd serves",
				utf8_fit(format, 32), format);
	if (strcmp(format, "qcow2") == 0 && p->kind != IMAGE_QCOW2)
		return new_fail(m, -EINVAL, "%.*s is no qcow2 image: %s",
				NAME_SHOWN(m->create.backing_name),
				p->kind == IMAGE_BROKEN ? p->words : "it does not begin as one");
	return 0;
}

static bool are_one_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/*
 * Whether the file that would be overwritten is one of those that the new image would stand over.
 * path, p: the first of them; both change.
 */
static bool is_below(char path[PATH_MAX], struct image_probe *p, const struct stat *target)
{
	char next[PATH_MAX];

	for (unsigned i = 0; i < CHAIN_MAX; i++) {
		if (are_one_file(&p->stat, target))
			return true;
		if (p->kind != IMAGE_QCOW2 || !p->header.backing_name[0] ||
		    is_protocol(p->header.backing_name) ||
		    image_path_from(path, p->header.backing_name, next, PATH_MAX) < 0)
			return false;
		strcpy(path, next);
		if (image_probe(path, p) < 0)
			return false;
	}
	return true;
}

static int check_below(struct making *m, char path[PATH_MAX], struct image_probe *p)
{
	struct stat target;

	if (stat(m->n->path, &target) < 0 || !is_below(path, p, &target))
		return 0;
	return new_fail(m, -EINVAL,
			"%s would be overwritten, and the new image would stand "
			"over it: give the new image another name",
			m->n->path);
}

static int look_at_backing(struct making *m)
{
	const char *name = m->create.backing_name;
	struct image_probe p;
	char path[PATH_MAX];
	int ret;

	if (!name)
		return 0;
	ret = find_named(m, "backing file", name, path);
	if (ret < 0)
		return ret;
	ret = image_probe(path, &p);
	if (ret < 0)
		return new_fail(m, ret,
				"the backing file %.*s: %s (its name counts from the folder "
				"of the new image)",
				utf8_fit(path, 256), path,
				ret == -EINVAL ? "neither a file nor a block device"
					       : strerror(-ret));
	ret = check_format(m, &p);
	if (ret < 0)
		return ret;
	if (m->create.size_bytes == 0)
		m->create.size_bytes = strcmp(m->create.backing_format, "qcow2") == 0
					       ? p.header.size_bytes
					       : p.bytes;
	return check_below(m, path, &p);
}

/* ---- what is asked for ---- */

static int check_asked(struct making *m)
{
	char words[QCOW2_WORDS_BYTES];
	int ret;

	if (m->create.size_bytes == 0)
		return new_fail(m, -EINVAL,
				"the size of the disk is missing: --size 10GiB, or --backing "
				"FILE, whose size is the default");
	m->create.size_bytes = round_up(m->create.size_bytes, SECTOR_BYTES);
	ret = qcow2_create_check(&m->create, &m->image_bytes, words);
	return ret < 0 ? new_fail(m, ret, "%s", words) : 0;
}

/* ---- files ---- */

static int fail_new_file(struct making *m, const struct new_file *f, int err)
{
	if (err == -EEXIST)
		return new_fail(m, err,
				"%s is there already: --force overwrites it, and all that is in "
				"it is lost",
				f->path);
	return new_fail(m, err, "%s: %s", f->path, strerror(-err));
}

/* All of it, against every lock of others; kept until the file is closed. */
static int lock_file(struct making *m, const struct new_file *f)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(f->fd, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES))
		return 0; /* or the file system has none */
	return new_fail(m, -EBUSY,
			"%s is in use by another program (ublkd? a virtual machine? qemu-img?): "
			"end it first",
			f->path);
}

static int open_file(struct making *m, struct new_file *f)
{
	struct stat st;

	f->fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	f->is_new = f->fd >= 0;
	if (f->fd < 0 && errno == EEXIST && m->n->force) {
		f->is_block = stat(f->path, &st) == 0 && S_ISBLK(st.st_mode);
		/* Of a block device O_EXCL means: not while it is mounted. */
		f->fd = open(f->path, O_RDWR | O_CLOEXEC | O_NONBLOCK | (f->is_block ? O_EXCL : 0));
	}
	if (f->fd < 0)
		return fail_new_file(m, f, -errno);
	if (fstat(f->fd, &st) < 0 || (!S_ISREG(st.st_mode) && !f->is_block))
		return new_fail(m, -EINVAL, "%s is neither a file nor a block device", f->path);
	return lock_file(m, f);
}

static int open_files(struct making *m)
{
	struct stat image, data;
	int ret;

	if ((size_t)snprintf(m->image.path, PATH_MAX, "%s", m->n->path) >= PATH_MAX)
		return new_fail(m, -ENAMETOOLONG, "the name of the image is too long");
	ret = m->create.data_file_name
		      ? find_named(m, "data file", m->create.data_file_name, m->data.path)
		      : 0;
	if (ret == 0)
		ret = open_file(m, &m->image);
	if (ret < 0 || !m->create.data_file_name)
		return ret;
	if (stat(m->data.path, &data) == 0 && fstat(m->image.fd, &image) == 0 &&
	    are_one_file(&image, &data))
		return new_fail(m, -EINVAL, "the data file is the image itself: name another");
	ret = open_file(m, &m->data);
	if (ret == 0 && m->data.is_block)
		return new_fail(m, -EINVAL,
				"%s: a data file must begin with nothing in it, and a block "
				"device has something: name a file",
				m->data.path);
	return ret;
}

static void close_file(struct new_file *f, bool keep)
{
	if (f->fd < 0)
		return;
	if (!keep && f->is_new)
		unlink(f->path);
	close(f->fd);
}

/* ---- writing ---- */

static int write_image_bytes(int fd, const uint8_t *buf, size_t bytes, uint64_t at)
{
	while (bytes > 0) {
		ssize_t n = pwrite(fd, buf, bytes, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		buf += n;
		bytes -= (size_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

static int write_image_file(struct making *m)
{
	uint8_t *buf = malloc(WRITE_BYTES);
	int ret = buf ? 0 : -ENOMEM;

	if (ret == 0 && !m->image.is_block && ftruncate(m->image.fd, 0) < 0)
		ret = -errno;
	for (uint64_t at = 0; ret == 0 && at < m->image_bytes; at += WRITE_BYTES) {
		size_t bytes = MIN(m->image_bytes - at, (uint64_t)WRITE_BYTES);

		qcow2_create_fill(&m->create, at, buf, bytes);
		ret = write_image_bytes(m->image.fd, buf, bytes, at);
	}
	free(buf);
	if (ret == 0 && fsync(m->image.fd) < 0)
		ret = -errno;
	return ret < 0 ? new_fail(m, ret, "%s cannot be written: %s", m->image.path, strerror(-ret))
		       : 0;
}

/* As long as the disk, and empty. */
static int write_data_file(struct making *m)
{
	uint64_t cluster = m->create.cluster_bytes ? m->create.cluster_bytes : KIB(64);

	if (m->data.fd < 0)
		return 0;
	if (ftruncate(m->data.fd, 0) < 0 ||
	    ftruncate(m->data.fd, (off_t)round_up(m->create.size_bytes, cluster)) < 0 ||
	    fsync(m->data.fd) < 0)
		return new_fail(m, -errno, "%s cannot be written: %m", m->data.path);
	return 0;
}

/* The name is durable too. */
static int sync_folder_of(struct making *m, const struct new_file *f)
{
	char folder[PATH_MAX];
	char *slash;
	int fd, ret;

	if (f->fd < 0 || !f->is_new)
		return 0;
	strcpy(folder, f->path);
	slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = '\0';
	fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret = fd < 0 || fsync(fd) < 0 ? -errno : 0;
	if (fd >= 0)
		close(fd);
	return ret < 0 ? new_fail(m, ret, "the folder of %s cannot be written: %s", f->path,
				  strerror(-ret))
		       : 0;
}

static int write_files(struct making *m)
{
	int ret = write_data_file(m);

	if (ret == 0)
		ret = write_image_file(m);
	if (ret == 0)
		ret = sync_folder_of(m, &m->data);
	return ret == 0 ? sync_folder_of(m, &m->image) : ret;
}

int image_new_make(const struct image_new *n, struct image_made *ret_made,
		   char error[static IMAGE_ERROR_BYTES])
{
	struct making m = { .n = n,
			    .create = n->create,
			    .error = error,
			    .image = { .fd = -1 },
			    .data = { .fd = -1 } };
	int ret = look_at_backing(&m);

	if (ret == 0)
		ret = check_asked(&m);
	if (ret == 0)
		ret = open_files(&m);
	if (ret == 0)
		ret = write_files(&m);
	close_file(&m.image, ret == 0);
	close_file(&m.data, ret == 0);
	if (ret == 0)
		*ret_made = (struct image_made){ .size_bytes = m.create.size_bytes,
						 .image_bytes = m.image_bytes,
						 .backing_format = m.create.backing_format,
						 .is_detected = m.is_detected };
	return ret;
}
