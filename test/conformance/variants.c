/* The table of variants with what some of them need from the machine: files, tmpfs, loop devices.
 */
#include "variants.h"

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/util.h"
#include "data_home.h"
#include "rbd_cluster.h"
#include "testdev.h"
#include "variant_peers.h"

#define SIZE_BYTES MIB(4)
#define TAIL_BYTES 107u

char variant_dir[512];
char variant_path[600];

static const char *in_dir(const char *dir)
{
	snprintf(variant_path, sizeof(variant_path), "%s/disk.img", dir);
	unlink(variant_path);
	return NULL;
}

static const char *fresh(void)
{
	return in_dir(variant_dir);
}

static const char *in_shm(void)
{
	struct stat st;

	if (stat("/dev/shm", &st) < 0 || access("/dev/shm", W_OK) < 0)
		return "no writable /dev/shm";
	snprintf(variant_path, sizeof(variant_path), "/dev/shm/ublkd-conformance.%d", getpid());
	unlink(variant_path);
	return NULL;
}

/* A file with a pattern in it, which ends within a block and within a word. */
static const char *existing(void)
{
	FILE *f;

	fresh();
	f = fopen(variant_path, "w");
	if (!f)
		return "cannot write to TMPDIR";
	for (uint64_t i = 0; i < SIZE_BYTES + TAIL_BYTES; i += sizeof(uint64_t)) {
		uint64_t word = htole64(i);

		fwrite(&word, MIN(sizeof(word), SIZE_BYTES + TAIL_BYTES - i), 1, f);
	}
	fclose(f);
	return NULL;
}

static const char *loop(const char *sector_bytes)
{
	char command[1400];
	FILE *out;
	size_t n;

	fresh();
	snprintf(command, sizeof(command),
		 "truncate -s 4M %s && losetup -b %s -f --show %s 2>/dev/null", variant_path,
		 sector_bytes, variant_path);
	out = popen(command, "re");
	n = fread(variant_path, 1, sizeof(variant_path) - 1, out);
	variant_path[n] = '\0';
	variant_path[strcspn(variant_path, "\n")] = '\0';
	if (pclose(out) != 0 || variant_path[0] == '\0')
		return "no loop device to be had (needs root and the loop module)";
	return NULL;
}

static const char *loop_512(void)
{
	return loop("512");
}

static const char *loop_4096(void)
{
	return loop("4096");
}

static void loop_detach(void)
{
	char command[700];

	snprintf(command, sizeof(command), "losetup -d %s", variant_path);
	if (variant_path[0] && system(command) != 0)
		fprintf(stderr, "cannot detach %s\n", variant_path);
}

static const char *huge_pages(void)
{
	unsigned long free_nr = 0;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "HugePages_Free: %lu", &free_nr) == 1)
			break;
	if (f)
		fclose(f);
	return free_nr >= 3 ? NULL : "fewer than 3 free huge pages (sysctl vm.nr_hugepages=3)";
}

static const char *qemu_image(const char *options, const char *then)
{
	char command[4000];

	if (system("command -v qemu-img >/dev/null") != 0)
		return "qemu-img is not installed";
	fresh();
	snprintf(command, sizeof(command), "qemu-img create -q -f qcow2 -o %s %s 4M %s", options,
		 variant_path, then);
	return system(command) == 0 ? NULL : "qemu-img makes no image";
}

/* Its table of reference counts is too small for what it will hold. */
static const char *qcow2_small(void)
{
	return qemu_image("cluster_size=512,refcount_bits=64", "");
}

/* Bit 0 of the incompatible features, and counts that nobody has kept up: all of them 0. */
static const char *qcow2_dirty(void)
{
	char then[2400];

	fresh();
	snprintf(then, sizeof(then),
		 "&& qemu-io -f qcow2 -c 'write -z 64k 1M' -c 'discard 0 4M' %s >/dev/null && "
		 "printf '\\001' | dd of=%s bs=1 seek=79 conv=notrunc status=none && "
		 "dd if=/dev/zero of=%s bs=64k seek=2 count=1 conv=notrunc status=none",
		 variant_path, variant_path, variant_path);
	return qemu_image("lazy_refcounts=on", then);
}

static void remove_file(void)
{
	unlink(variant_path);
}

static const char *shared_setup(void)
{
	fresh();
	return data_home_start();
}

static void shared_teardown(void)
{
	data_home_stop();
	remove_file();
}

/* Those of a stripe. */
static void remove_files(void)
{
	char path[sizeof(variant_path) + 2];

	for (unsigned i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s.%u", variant_path, i);
		unlink(path);
	}
}

#define FILE_YAML "path: %s\nsize: 4MiB\ncreate: true\n"
#define FILE_VARIANT(suffix, block, extra)                                                         \
	.name = "file-" suffix, .backend = "file", .yaml = FILE_YAML extra, .block_bytes = block,  \
	.is_persistent = true, .teardown = remove_file

#define NBD_VARIANT(suffix, block, extra)                                                          \
	.name = "nbd-" suffix, .backend = "nbd", .yaml = "uri: nbd+unix:///?socket=%s\n" extra,    \
	.block_bytes = block, .is_persistent = true, .teardown = variant_nbdkit_stop

#define NVME_VARIANT(suffix, block, extra)                                                         \
	.name = "nvme-tcp-" suffix, .backend = "nvme-tcp",                                         \
	.yaml = "uri: nvme+tcp://127.0.0.1:%s/" NVME_SUBSYSTEM "\n"                                \
		"host_nqn: " NVME_HOST "\n" extra,                                                 \
	.block_bytes = block, .is_persistent = true, .teardown = variant_nvme_stop

#define WEB_VARIANT(suffix, block, extra)                                                          \
	.name = "http-" suffix, .backend = "http",                                                 \
	.yaml = "url: http://127.0.0.1:%s/disk.img\n" extra, .block_bytes = block,                 \
	.is_persistent = true, .content = MODEL_PATTERN, .allocates = "libcurl allocates",         \
	.teardown = variant_web_stop

#define S3_VARIANT(suffix, block, extra)                                                           \
	.name = "s3-" suffix, .backend = "s3",                                                     \
	.yaml = "uri: s3://images/disk.img\nendpoint: http://127.0.0.1:%s\n" extra,                \
	.block_bytes = block, .is_persistent = true, .content = MODEL_PATTERN,                     \
	.allocates = "libcurl allocates", .teardown = variant_web_stop

#define S3_DISK_VARIANT(suffix, block, extra)                                                      \
	.name = "s3-disk-" suffix, .backend = "s3-disk",                                           \
	.yaml = "bucket: disks\nprefix: a b/1\nendpoint: http://127.0.0.1:%s\n"                    \
		"create: true\nsize: 4MiB\nobject_size: 64KiB\nlease: 1s\n" extra,                 \
	.block_bytes = block, .is_persistent = true, .allocates = "libcurl allocates",             \
	.teardown = variant_web_stop

#define RBD_VARIANT(suffix, block, extra)                                                          \
	.name = "rbd-" suffix, .backend = "rbd",                                                   \
	.yaml = "conf: %s/ceph.conf\nkeyring: %s/keyring\n" extra, .block_bytes = block,           \
	.is_persistent = true,                                                                     \
	.allocates = "librbd's threads allocate; test_rbd_io checks the backend's own memory"

#define CACHE_PATTERN                                                                              \
	"{type: cache, block: 16KiB, backend: {type: pattern, size: 4MiB}, store: {type: file, "   \
	"path: %s, size: 1MiB, create: true}}"
/* In two queues, whatever is below: its home is a reactor of its own. */
#define SHARED_VARIANT(suffix, below)                                                              \
	.name = "shared-" suffix, .backend = "shared",                                             \
	.yaml = "type: shared\nname: a\nbackend: " below "\n", .content = MODEL_PATTERN,           \
	.is_persistent = true, .setup = shared_setup, .teardown = shared_teardown

#define STRIPE_MEM                                                                                 \
	"type: stripe\nchunk: 16KiB\nbackends: [{type: mem, size: 1MiB}, {type: mem, size: "       \
	"1MiB}, "                                                                                  \
	"{type: mem, size: 1MiB}, {type: mem, size: 1MiB}]\n"
#define STRIPE_FILE(suffix) "{type: file, path: %s" suffix ", size: 1472KiB, create: true}"
#define STRIPE_INNER                                                                               \
	"{type: stripe, chunk: 4KiB, backends: [{type: mem, size: 1MiB}, {type: delay, all: "      \
	"10us, "                                                                                   \
	"backend: {type: mem, size: 1MiB}}]}"
/* Enough for some I/Os to wait, and not long. */
#define THROTTLE "throttle: {total_iops_sec: 20000, size_iops_sec: 16k, write_bytes_sec: 1G}"
#define DELAY "delay: {all: 50us, distribution: exponential, max: 1ms}"
/* Errors have no place here: it must be as if it were not there. */
#define ERROR "error: {trigger: /nonexistent, hang: true}"
#define STACK(n, ...)                                                                              \
	.name = n, .filters = (const char *const[]){ __VA_ARGS__, NULL }, .block_bytes = 512

const struct variant variants[] = {
	{ .name = "null",
	  .backend = "null",
	  .yaml = "size: 1TiB",
	  .block_bytes = 512,
	  .content = MODEL_UNDEFINED },
	{ .name = "pattern",
	  .backend = "pattern",
	  .yaml = "size: 4MiB",
	  .block_bytes = 512,
	  .is_persistent = true,
	  .content = MODEL_PATTERN },
	{ .name = "mem", .backend = "mem", .yaml = "size: 4MiB", .block_bytes = 4096 },
	{ .name = "mem-tail", .backend = "mem", .yaml = "size: 4194816", .block_bytes = 512 },
	{ .name = "mem-tiny", .backend = "mem", .yaml = "size: 4096", .block_bytes = 4096 },
	{ .name = "mem-read-only",
	  .backend = "mem",
	  .yaml = "size: 4MiB",
	  .block_bytes = 512,
	  .read_only = true },
	{ .name = "mem-huge",
	  .backend = "mem",
	  .yaml = "size: 5MiB\nhuge_pages: true",
	  .block_bytes = 512,
	  .setup = huge_pages },
	{ FILE_VARIANT("auto", 4096, ""), .setup = fresh },
	{ FILE_VARIANT("buffered", 512, "direct: off"), .setup = fresh },
	{ FILE_VARIANT("direct", 4096, "direct: on"), .setup = fresh, .direct = true },
	{ FILE_VARIANT("direct-512", 512, "direct: auto"), .setup = fresh },
	{ FILE_VARIANT("tmpfs", 512, ""), .setup = in_shm },
	{ .name = "file-existing",
	  .backend = "file",
	  .yaml = "path: %s\n",
	  .block_bytes = 512,
	  .is_persistent = true,
	  .content = MODEL_PATTERN,
	  .setup = existing,
	  .teardown = remove_file },
	{ .name = "file-read-only",
	  .backend = "file",
	  .yaml = "path: %s\n",
	  .block_bytes = 4096,
	  .read_only = true,
	  .is_persistent = true,
	  .content = MODEL_PATTERN,
	  .setup = existing,
	  .teardown = remove_file },
	{ .name = "file-block",
	  .backend = "file",
	  .yaml = "path: %s\n",
	  .block_bytes = 512,
	  .is_persistent = true,
	  .direct = true,
	  .setup = loop_512,
	  .teardown = loop_detach },
	{ .name = "file-block-4096",
	  .backend = "file",
	  .yaml = "path: %s\ndirect: off\n",
	  .block_bytes = 4096,
	  .is_persistent = true,
	  .setup = loop_4096,
	  .teardown = loop_detach },
	{ NBD_VARIANT("memory", 512, ""), .setup = variant_nbdkit_memory },
	{ NBD_VARIANT("connections", 4096, "connections: 3\nreplies: structured"),
	  .setup = variant_nbdkit_memory },
	{ NBD_VARIANT("simple-replies", 512, "cache: kept"), .setup = variant_nbdkit_old },
	{ NBD_VARIANT("delay", 4096, "on_disconnect: forever"), .setup = variant_nbdkit_delay },
	{ NVME_VARIANT("plain", 512, ""), .setup = variant_nvme_plain },
	{ NVME_VARIANT("tls", 512, "data_digest: true\ntls_key_file: " NVME_KEY_PATH),
	  .setup = variant_nvme_tls },
	{ NVME_VARIANT("pieces-digests", 4096, "header_digest: true\ndata_digest: true"),
	  .setup = variant_nvme_pieces },
	{ RBD_VARIANT("plain", 512, "pool: rbd\nimage: disk\nexclusive: hold"), .setup = rbd_image,
	  .teardown = rbd_drop },
	{ RBD_VARIANT("fancy", 4096, "uri: rbd:rbd/space/disk\nimages_per_client: 1"),
	  .setup = rbd_image_fancy, .teardown = rbd_drop_fancy },
	{ RBD_VARIANT("luks", 4096,
		      "uri: rbd:rbd/disk\nencryption: luks2\npassphrase_file: %s/passphrase"),
	  .content = MODEL_UNKNOWN, .setup = rbd_image_luks, .teardown = rbd_drop },
	{ WEB_VARIANT("plain", 512, ""), .setup = variant_web_plain },
	{ S3_VARIANT("anonymous", 512, ""), .setup = variant_web_bucket },
	{ S3_DISK_VARIANT("plain", 512, ""), .setup = variant_store_plain },
	{ S3_DISK_VARIANT("bad", 4096, "buffers: 2\nconnections: 2\n"),
	  .setup = variant_store_bad },
	{ WEB_VARIANT("slow", 4096, "connections: 3\nrequest_max: 64KiB\n"),
	  .setup = variant_web_slow },
	{ .name = "testdev", .backend = "testdev", .yaml = "size: 4MiB", .block_bytes = 512 },
	{ STACK("delay-testdev", DELAY), .backend = "testdev", .yaml = "size: 4MiB" },
	{ STACK("throttle-delay-error-testdev", ERROR, DELAY, THROTTLE), .backend = "testdev",
	  .yaml = "size: 4MiB" },
	{ STACK("throttle-delay-error-file", ERROR, DELAY, THROTTLE), .backend = "file",
	  .yaml = FILE_YAML, .is_persistent = true, .setup = fresh, .teardown = remove_file },
	{ STACK("throttle-null", THROTTLE), .backend = "null", .yaml = "size: 1TiB",
	  .content = MODEL_UNDEFINED },
	{ STACK("delay-pattern", DELAY), .backend = "pattern", .yaml = "size: 4MiB",
	  .is_persistent = true, .content = MODEL_PATTERN },
	{ .name = "stripe-small",
	  .backend = "stripe",
	  .yaml = "type: stripe\nchunk: 4KiB\nbackends: [{type: mem, size: 1404928}, {type: mem, "
		  "size: "
		  "2MiB}, {type: delay, all: 20us, backend: {type: mem, size: 2MiB}}]\n",
	  .block_bytes = 4096 },
	{ .name = "stripe-file",
	  .backend = "stripe",
	  .yaml = "type: stripe\nbackends: [" STRIPE_FILE(".0") ", " STRIPE_FILE(
		  ".1") ", " STRIPE_FILE(".2") "]\n",
	  .block_bytes = 4096,
	  .is_persistent = true,
	  .setup = fresh,
	  .teardown = remove_files },
	{ .name = "stripe-of-stripes",
	  .backend = "stripe",
	  .yaml = "type: stripe\nchunk: 8KiB\nbackends: [" STRIPE_INNER ", " STRIPE_INNER "]\n",
	  .block_bytes = 512 },
	{ STACK("throttle-delay-stripe", DELAY, THROTTLE), .backend = "stripe",
	  .yaml = STRIPE_MEM },
	{ STACK("throttle-testdev", THROTTLE), .backend = "testdev", .yaml = "size: 4MiB" },
	{ .name = "qcow2-mem",
	  .backend = "qcow2",
	  .yaml = "type: qcow2\ncreate: true\nsize: 4MiB\ndata: {type: mem, size: 8MiB}\n",
	  .block_bytes = 4096 },
	{ .name = "qcow2-512",
	  .backend = "qcow2",
	  .yaml = "type: qcow2\ncreate: true\nsize: 2MiB\ncluster_size: 512\ncache: 64KiB\n"
		  "data: {type: mem, size: 4MiB}\n",
	  .block_bytes = 512 },
	{ .name = "qcow2-backing",
	  .backend = "qcow2",
	  .yaml = "type: qcow2\ncreate: true\ncluster_size: 16KiB\n"
		  "data: {type: mem, size: 8MiB}\nbacking: {type: pattern, size: 4MiB}\n",
	  .block_bytes = 512,
	  .content = MODEL_PATTERN },
	{ .name = "qcow2-subclusters",
	  .backend = "qcow2",
	  .yaml = "type: qcow2\ncreate: true\ncluster_size: 64KiB\nextended_l2: true\n"
		  "data: {type: mem, size: 8MiB}\nbacking: {type: pattern, size: 4MiB}\n",
	  .block_bytes = 512,
	  .content = MODEL_PATTERN },
	{ .name = "qcow2-subclusters-mem",
	  .backend = "qcow2",
	  .yaml = "type: qcow2\ncreate: true\nsize: 4MiB\ncluster_size: 64KiB\n"
		  "extended_l2: true\ndata: {type: mem, size: 8MiB}\n",
	  .block_bytes = 512 },
	{ .name = "qcow2-2M",
	  .backend = "qcow2",
	  .yaml = "type: qcow2\ncreate: true\ncluster_size: 2MiB\n"
		  "data: {type: mem, size: 32MiB}\nbacking: {type: pattern, size: 7MiB}\n",
	  .block_bytes = 512,
	  .content = MODEL_PATTERN },
	{ .name = "qcow2-file",
	  .backend = "qcow2",
	  .yaml = "type: qcow2\ncreate: true\nsize: 4MiB\ncluster_size: 16KiB\n"
		  "data: {type: file, path: %s, create: true}\n",
	  .block_bytes = 4096,
	  .is_persistent = true,
	  .setup = fresh,
	  .teardown = remove_file },
	{ .name = "qcow2-small",
	  .backend = "qcow2",
	  .yaml = "type: qcow2\ndata: {type: file, path: %s}\n",
	  .block_bytes = 512,
	  .is_persistent = true,
	  .setup = qcow2_small,
	  .teardown = remove_file },
	{ .name = "qcow2-dirty",
	  .backend = "qcow2",
	  .yaml = "type: qcow2\ndata: {type: file, path: %s}\n",
	  .block_bytes = 512,
	  .is_persistent = true,
	  .setup = qcow2_dirty,
	  .teardown = remove_file },
	{ .name = "cache-small",
	  .backend = "cache",
	  .yaml = "type: cache\nmode: writethrough\nblock: 4KiB\n"
		  "backend: {type: delay, all: 30us, backend: {type: mem, size: 4MiB}}\n"
		  "store: {type: mem, size: 1MiB}\n",
	  .block_bytes = 512 },
	{ .name = "cache-readthrough",
	  .backend = "cache",
	  .yaml = "type: cache\nmode: readthrough\nblock: 256KiB\nprefetch: 2\n"
		  "backend: {type: mem, size: 4194816}\nstore: {type: mem, size: 3MiB}\n",
	  .block_bytes = 512 },
	{ .name = "cache-pattern",
	  .backend = "cache",
	  .yaml = "type: cache\nblock: 16KiB\nbackend: {type: pattern, size: 4MiB}\n"
		  "store: {type: mem, size: 1MiB}\n",
	  .block_bytes = 512,
	  .content = MODEL_PATTERN },
	{ .name = "cache-writeback",
	  .backend = "cache",
	  .yaml = "type: cache\nmode: writeback\nblock: 8KiB\ndirty_time: 2ms\n"
		  "backend: {type: delay, all: 30us, backend: {type: mem, size: 4MiB}}\n"
		  "store: {type: mem, size: 1MiB}\n",
	  .block_bytes = 512 },
	{ .name = "cache-file",
	  .backend = "cache",
	  .yaml = "type: cache\nmode: writeback\nbackend: " STRIPE_FILE(
		  ".0") "\nstore: " STRIPE_FILE(".1") "\n",
	  .block_bytes = 4096,
	  .is_persistent = true,
	  .setup = fresh,
	  .teardown = remove_files },
	{ .name = "cache-through-file",
	  .backend = "cache",
	  .yaml = "type: cache\nmode: writethrough\nblock: 16KiB\nbackend: " STRIPE_FILE(
		  ".0") "\nstore: " STRIPE_FILE(".1") "\n",
	  .block_bytes = 4096,
	  .is_persistent = true,
	  .setup = fresh,
	  .teardown = remove_files },
	{ .name = "integrity-file",
	  .backend = "integrity",
	  .yaml = "type: integrity\ninterval: 512\nchecksum: nvme\ndata: " STRIPE_FILE(
		  ".0") "\nmetadata: {type: file, path: %s.1, create: true}\n",
	  .block_bytes = 4096,
	  .is_persistent = true,
	  .setup = fresh,
	  .teardown = remove_files },
	{ .name = "integrity-qcow2",
	  .backend = "integrity",
	  .yaml = "type: integrity\ndata: {type: qcow2, create: true, size: 4MiB, data: {type: "
		  "mem, "
		  "size: 8MiB}}\nmetadata: {type: mem, size: 64KiB}\n",
	  .block_bytes = 512 },
	{ SHARED_VARIANT("pattern", "{type: pattern, size: 4MiB}"), .block_bytes = 512 },
	{ SHARED_VARIANT("cache", "{type: delay, all: 30us, backend: " CACHE_PATTERN "}"),
	  .block_bytes = 4096 },
	{ SHARED_VARIANT("shared", "{type: shared, name: b, backend: " CACHE_PATTERN "}"),
	  .block_bytes = 512, .filters = (const char *const[]){ DELAY, NULL } },
	{ STACK("delay-cache", DELAY), .backend = "cache",
	  .yaml = "type: cache\nbackend: {type: qcow2, create: true, size: 4MiB, data: {type: mem, "
		  "size: 8MiB}}\nstore: {type: delay, all: 30us, backend: {type: mem, size: "
		  "2MiB}}\n" },
	{ STACK("delay-qcow2", DELAY), .backend = "qcow2",
	  .yaml = "type: qcow2\ncreate: true\nsize: 4MiB\ndata: {type: delay, all: 30us, "
		  "backend: {type: mem, size: 8MiB}}\n" },
};

const unsigned variant_nr = ARRAY_SIZE(variants);

/* The children that it must have, two where it can have several. */
static void add_children(char *yaml, size_t bytes, const struct backend *ops)
{
	static const char child[] = "{type: mem, size: 4MiB}";

	for (const struct backend_child_option *c = ops->children; c && c->name; c++) {
		size_t len = strlen(yaml);

		if (c->nr_max > 1)
			snprintf(yaml + len, bytes - len, "%s: [%s, %s]\n", c->name, child, child);
		else if (c->nr_min > 0)
			snprintf(yaml + len, bytes - len, "%s: %s\n", c->name, child);
	}
}

bool variant_of_row(const struct backend *ops, struct variant *ret_variant)
{
	static char name[64], yaml[512];

	if (!ops->test_options)
		return false;
	snprintf(name, sizeof(name), "row-%s", ops->name);
	snprintf(yaml, sizeof(yaml), "type: %s\n%s\n", ops->name, ops->test_options);
	add_children(yaml, sizeof(yaml), ops);
	*ret_variant = (struct variant){
		.name = name,
		.backend = ops->name,
		.yaml = ops->children ? yaml : ops->test_options,
		.block_bytes = 512,
	};
	return true;
}

const struct backend *variant_backend(const struct variant *variant)
{
	const struct backend *ops = backend_find(variant->backend);

	if (!ops && strcmp(variant->backend, "testdev") == 0)
		ops = &backend_testdev;
	ASSERT(ops != NULL);
	return ops;
}

bool variant_has(const struct variant *variant, const char *backend)
{
	size_t len = strlen(backend);

	for (const char *const *f = variant->filters; f && *f; f++)
		if (strncmp(*f, backend, len) == 0 && (*f)[len] == ':')
			return true;
	return strcmp(variant->backend, backend) == 0;
}

struct rig_params variant_params(const struct variant *variant, unsigned queue_nr, unsigned depth)
{
	static char yaml[4096];
	const char *from = variant->yaml, *arg;
	size_t len = 0;

	while ((arg = strstr(from, "%s"))) {
		len += (size_t)snprintf(yaml + len, sizeof(yaml) - len, "%.*s%s", (int)(arg - from),
					from, variant_path);
		from = arg + 2;
		ASSERT(len < sizeof(yaml));
	}
	snprintf(yaml + len, sizeof(yaml) - len, "%s", from);
	return (struct rig_params){
		.ops = variant_backend(variant),
		.name = variant->name,
		.yaml = yaml,
		.filters = variant->filters,
		.block_bytes = variant->block_bytes,
		.read_only = variant->read_only,
		.queue_nr = queue_nr,
		.depth = depth,
		.data = data_home(),
	};
}
