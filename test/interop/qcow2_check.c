/*
 * The oracle of qcow2 images (test/rig/qcow2) on the command line.
 *
 *   qcow2_check check IMAGE                 prints the report; exit codes as of qemu-img check: 0
 * clean, 1 no image that it takes, 2 corrupt, 3 clusters leaked qcow2_check read IMAGE OUT
 * [SNAPSHOT]   what a guest reads, of the snapshot with this index
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/rig/qcow2/qcow2_oracle.h"

#define PIECE_BYTES (1u << 20)
#define CHAIN_MAX 8u

/* An image of the chain, or a file that is none. */
struct image {
	struct qcow2_oracle *oracle; /* NULL: the file is what the guest reads */
	struct qcow2_oracle_file file, data;
	struct image *backing;
	struct qcow2_oracle_file backing_file; /* what backing reads as */
};

static struct image chain[CHAIN_MAX];
static unsigned chain_nr;

static void fail(const char *name, const char *why)
{
	fprintf(stderr, "qcow2_check: %s: %s\n", name, why);
	exit(1);
}

static ssize_t fd_read(void *arg, void *buf, size_t n, uint64_t offset)
{
	ssize_t got = pread((int)(intptr_t)arg, buf, n, (off_t)offset);

	return got < 0 ? -errno : got;
}

static struct qcow2_oracle_file file_open(const char *name)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		fail(name, strerror(errno));
	return (struct qcow2_oracle_file){ .read = fd_read,
					   .arg = (void *)(intptr_t)fd,
					   .bytes = (uint64_t)st.st_size };
}

/* A guest's bytes of another image, as a file. */
static ssize_t image_read(void *arg, void *buf, size_t n, uint64_t offset)
{
	struct image *image = arg;
	int err = qcow2_oracle_read(image->oracle, image->backing ? &image->backing_file : NULL,
				    QCOW2_ORACLE_ACTIVE, offset, buf, n);

	return err ? err : (ssize_t)n;
}

/* name, as it stands in an image: relative to the image's folder. */
static char *beside(const char *image, const char *name)
{
	char *copy = strdup(image), *path;

	if (!copy)
		fail(image, "no memory");
	if (asprintf(&path, "%s/%s", name[0] == '/' ? "" : dirname(copy), name) < 0)
		fail(image, "no memory");
	free(copy);
	return path;
}

static bool is_qcow2(const struct qcow2_oracle_file *file)
{
	uint8_t magic[4];

	return file->read(file->arg, magic, 4, 0) == 4 && !memcmp(magic, "QFI\xfb", 4);
}

static struct image *image_open(const char *name, bool maybe_raw, bool follow);

/* Opens what the image names: its data file, its backing file. */
static void image_follow(struct image *image, const char *name)
{
	const struct qcow2_oracle_info *info = qcow2_oracle_info(image->oracle);
	char *path, words[QCOW2_ORACLE_WORDS_BYTES];

	if (info->data_file_name[0]) {
		path = beside(name, info->data_file_name);
		image->data = file_open(path);
		free(path);
		qcow2_oracle_open(image->oracle, &image->file, &image->data, words);
	}
	if (info->backing_name[0]) {
		path = beside(name, info->backing_name);
		image->backing = image_open(path, strcmp(info->backing_format, "qcow2") != 0, true);
		free(path);
		image->backing_file = image->backing->file;
		if (image->backing->oracle)
			image->backing_file = (struct qcow2_oracle_file){
				.read = image_read,
				.arg = image->backing,
				.bytes = qcow2_oracle_info(image->backing->oracle)->size_bytes
			};
	}
}

static struct image *image_open(const char *name, bool maybe_raw, bool follow)
{
	struct image *image = &chain[chain_nr++];
	char words[QCOW2_ORACLE_WORDS_BYTES];

	if (chain_nr == CHAIN_MAX)
		fail(name, "too long a chain");
	image->file = file_open(name);
	if (maybe_raw && !is_qcow2(&image->file))
		return image;
	image->oracle = qcow2_oracle_create();
	if (!image->oracle)
		fail(name, "no memory");
	if (qcow2_oracle_open(image->oracle, &image->file, NULL, words))
		fail(name, words);
	if (follow)
		image_follow(image, name);
	return image;
}

static int check(const char *name)
{
	static const char *const faults[QCOW2_ORACLE_FAULT_NR] = {
		[QCOW2_ORACLE_LOW] = "low",	  [QCOW2_ORACLE_COPIED] = "copied",
		[QCOW2_ORACLE_ENTRY] = "entry",	  [QCOW2_ORACLE_OVERLAP] = "overlap",
		[QCOW2_ORACLE_TABLE] = "table",	  [QCOW2_ORACLE_IO] = "io",
		[QCOW2_ORACLE_LEAK] = "leak",	  [QCOW2_ORACLE_PAST_END] = "past_end",
		[QCOW2_ORACLE_SHARED] = "shared",
	};
	struct image *image = image_open(name, false, false);
	const struct qcow2_oracle_info *info = qcow2_oracle_info(image->oracle);
	struct qcow2_oracle_report r;

	if (qcow2_oracle_check(image->oracle, &r))
		fail(name, "no memory");
	printf("corruptions %lu repairable %lu leaks %lu dirty %d corrupt %d\n", r.corruptions,
	       r.repairable, r.leaks, info->dirty, info->corrupt);
	printf("clusters %lu referenced %lu data %lu zero %lu compressed %lu\n", r.clusters,
	       r.referenced, r.data, r.zero, r.compressed);
	for (unsigned i = 0; i < QCOW2_ORACLE_FAULT_NR; i++)
		printf("%s %lu%c", faults[i], r.nr[i], i + 1 < QCOW2_ORACLE_FAULT_NR ? ' ' : '\n');
	for (unsigned i = 0; i < r.words_nr; i++)
		printf("- %s\n", r.words[i]);
	return r.corruptions || r.repairable ? 2 : r.leaks ? 3 : 0;
}

static int read_all(const char *name, const char *out_name, int snapshot)
{
	struct image *image = image_open(name, false, true);
	uint64_t bytes = 0;
	static uint8_t buf[PIECE_BYTES];
	FILE *out = fopen(out_name, "we");

	if (!out)
		fail(out_name, strerror(errno));
	if (qcow2_oracle_snapshot_bytes(image->oracle, snapshot, &bytes))
		fail(name, "there is no such snapshot");
	for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
		size_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;

		if (qcow2_oracle_read(image->oracle, image->backing ? &image->backing_file : NULL,
				      snapshot, at, buf, n))
			fail(name, "a cluster cannot be read");
		if (fwrite(buf, 1, n, out) != n)
			fail(out_name, strerror(errno));
	}
	if (fclose(out))
		fail(out_name, strerror(errno));
	/* whatever the last cluster holds */
	if (qcow2_oracle_read(image->oracle, NULL, snapshot, bytes, buf, PIECE_BYTES) ||
	    qcow2_oracle_read(image->oracle, NULL, snapshot, bytes - 1, buf, PIECE_BYTES))
		fail(name, "the end of the disk cannot be read");
	for (unsigned i = 1; i < PIECE_BYTES; i++) {
		if (buf[i])
			fail(name, "no zeroes behind the end of the disk");
	}
	return 0;
}

int main(int argc, char **argv)
{
	int code = 1;

	if (argc == 3 && !strcmp(argv[1], "check"))
		code = check(argv[2]);
	else if ((argc == 4 || argc == 5) && !strcmp(argv[1], "read"))
		code = read_all(argv[2], argv[3], argc == 5 ? atoi(argv[4]) : QCOW2_ORACLE_ACTIVE);
	else
		fprintf(stderr, "usage: qcow2_check check IMAGE | read IMAGE OUT [SNAPSHOT]\n");
	for (unsigned i = 0; i < chain_nr; i++)
		qcow2_oracle_destroy(chain[i].oracle);
	return code;
}
