/*
 * Images that `create: true` makes in files: which are not there, are empty, or what an open that
 * failed has left; and what is refused. Prints TAP. One thread, a folder of its own.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "test/conformance/rig.h"
#include "test/conformance/tap.h"

static char folder[] = "/tmp/ublkd-made.XXXXXX";
static char path[64];
static struct rig rig;

/* Options of the image, and of its file; valid until the next call. */
static struct rig_params made_params(const char *options, const char *of_file)
{
	static char yaml[512];

	snprintf(yaml, sizeof(yaml), "type: qcow2\n%s\ndata: {type: file, path: %s%s}\n", options,
		 path, of_file);
	return (struct rig_params){ .ops = backend_find("qcow2"),
				    .name = "disk",
				    .yaml = yaml,
				    .block_bytes = 4096,
				    .queue_nr = 1,
				    .depth = 4 };
}

/* Writes and reads, so that the file grows. */
static void use(const struct rig_params *params)
{
	uint8_t *buf;

	REQUIRE(rig_open(&rig, params) == 0, "%s", rig.error);
	EXPECT(rig.device->limits.size_bytes == MIB(8), "%llu",
	       (unsigned long long)rig.device->limits.size_bytes);
	buf = rig.queue[0].io[0].io.buf;
	memset(buf, 0x42, 4096);
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, MIB(4), 4096, NULL) == 0, "write");
	memset(buf, 0, 4096);
	EXPECT(rig_do(&rig, BACKEND_READ, 0, MIB(4), 4096, NULL) == 0, "read");
	EXPECT(buf[0] == 0x42 && buf[4095] == 0x42, "other bytes");
	EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "flush");
	rig_close(&rig);
}

static uint64_t made_bytes(void)
{
	struct stat st;

	return stat(path, &st) < 0 ? UINT64_MAX : (uint64_t)st.st_size;
}

static void refused(struct rig_params params, int err, const char *words)
{
	int ret = rig_open(&rig, &params);

	if (ret == 0)
		rig_close(&rig);
	EXPECT(ret == err, "%s, not %s", errname(ret), errname(err));
	EXPECT(strstr(rig.error, words), "no \"%s\" in: %s", words, rig.error);
}

static void case_new_file(void)
{
	struct rig_params params = made_params("create: true\nsize: 8MiB", ", create: true");
	struct stat st;

	use(&params);
	EXPECT(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600, "mode");
	EXPECT(made_bytes() > KIB(256) && made_bytes() < MIB(1), "%llu",
	       (unsigned long long)made_bytes());
	/* It is an image by now, whatever else is said of a new one. */
	params = made_params("create: true\nsize: 1MiB\ncluster_size: 512", ", create: true");
	use(&params);
	params = made_params("", "");
	use(&params);
}

static void case_below_a_filter(void)
{
	struct rig_params params = made_params("", "");
	char yaml[256];

	snprintf(yaml, sizeof(yaml),
		 "type: qcow2\ncreate: true\nsize: 8MiB\ndata: {type: throttle, "
		 "backend: {type: file, path: %s, create: true}}\n",
		 path);
	params.yaml = yaml;
	use(&params);
}

static void make_empty(uint64_t bytes)
{
	FILE *f = fopen(path, "we");

	EXPECT(f && ftruncate(fileno(f), (off_t)bytes) == 0, "%s", path);
	if (f)
		fclose(f);
}

static void case_empty_file(void)
{
	struct rig_params params = made_params("create: true\nsize: 8MiB", "");

	refused(params, -ENOENT, "does not exist: set create: true, or correct path");
	make_empty(0);
	use(&params);
	make_empty(100);
	use(&params);
}

/* The file is there then, and empty: the cure is enough. */
static void case_not_to_be_made(void)
{
	struct rig_params params = made_params("create: true\nsize: 8MiB", ", create: true");

	refused(made_params("", ", create: true"), -EINVAL, "set create: true for a new image");
	EXPECT(made_bytes() == 0, "%llu", (unsigned long long)made_bytes());
	params = made_params("create: true\nsize: 8MiB", ", create: true");
	use(&params);
}

static void case_read_only(void)
{
	struct rig_params params = made_params("create: true\nsize: 8MiB", ", create: true");

	params.read_only = true;
	refused(params, -ENOENT, "a read_only device does not create it");
	EXPECT(access(path, F_OK) < 0, "a read-only device made a file");
	make_empty(0);
	refused(params, -EINVAL, "this is no qcow2 image");
	EXPECT(made_bytes() == 0, "it was written");
}

static void limit_files(rlim_t bytes)
{
	const struct rlimit limit = { .rlim_cur = bytes, .rlim_max = RLIM_INFINITY };

	EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
}

/* All but the first cluster comes first: it fails in the tables, without a header. */
static void case_failed_half_way(void)
{
	struct rig_params params = made_params("create: true\nsize: 8MiB", ", create: true");

	limit_files(KIB(160));
	refused(params, -EIO, "the new image cannot be written");
	limit_files(RLIM_INFINITY);
	EXPECT(made_bytes() > KIB(64) && made_bytes() <= KIB(160), "%llu",
	       (unsigned long long)made_bytes());
	params = made_params("create: true\nsize: 8MiB", ", create: true");
	use(&params);
}

static void case_something_else(void)
{
	FILE *f;

	make_empty(MIB(1));
	f = fopen(path, "r+e");
	EXPECT(f && fseek(f, 1024, SEEK_SET) == 0 && fputs("label", f) > 0, "%s", path);
	if (f)
		fclose(f);
	refused(made_params("create: true\nsize: 8MiB", ""), -EINVAL,
		"begins with zeroes, but is not empty");
}

int main(void)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} cases[] = {
		{ "made: a file that is not there", case_new_file },
		{ "made: below a filter", case_below_a_filter },
		{ "made: in a file that is empty", case_empty_file },
		{ "made: not where the image does not say so", case_not_to_be_made },
		{ "made: not read-only", case_read_only },
		{ "made: after a start that failed half-way", case_failed_half_way },
		{ "made: not over something else", case_something_else },
	};

	log_init(LOG_LEVEL_ERROR);
	signal(SIGXFSZ, SIG_IGN);
	tap_init("qcow2_made", NULL, 0);
	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof(path), "%s/image", folder);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		tap_begin("%s", cases[i].name);
		cases[i].fn();
		tap_end();
		unlink(path);
	}
	rmdir(folder);
	return tap_finish();
}
