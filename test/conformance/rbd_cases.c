/*
 * Encrypted images of a real cluster: what rbd encryption format makes is opened, the cluster has
 * nothing of it in clear, and what is refused is so in words. One cluster for all of them.
 */
#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "rbd_cluster.h"
#include "rig.h"
#include "tap.h"
#include "variants.h"
#include "storage/resize.h"

#define PLAIN "what nobody but us may read"
#define BLOCK_BYTES 4096u

static struct rig rig;

/* encryption: "luks2", or NULL; with the passphrase in this file of the cluster's folder. */
static int open_image(const char *image, const char *encryption, const char *passphrase)
{
	char yaml[4000];
	struct rig_params params = {
		.ops = backend_find("rbd"),
		.name = "disk",
		.yaml = yaml,
		.block_bytes = BLOCK_BYTES,
		.queue_nr = 1,
		.depth = 2,
	};
	int bytes = snprintf(yaml, sizeof(yaml),
			     "conf: %s/ceph.conf\nkeyring: %s/keyring\nuri: rbd:rbd/%s\n",
			     variant_path, variant_path, image);

	if (encryption)
		snprintf(yaml + bytes, sizeof(yaml) - (size_t)bytes,
			 "encryption: %s\npassphrase_file: %s/%s\n", encryption, variant_path,
			 passphrase);
	return rig_open(&rig, &params);
}

static uint64_t last_block(void)
{
	return backend_size(rig.device) - BLOCK_BYTES;
}

static void put(uint64_t offset_bytes, const char *text)
{
	char *buf = rig.queue[0].io[0].io.buf;

	memset(buf, 0, BLOCK_BYTES);
	snprintf(buf, BLOCK_BYTES, "%s", text);
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, offset_bytes, BLOCK_BYTES, NULL) == 0, "write");
}

static bool holds(uint64_t offset_bytes, const char *text)
{
	const char *buf = rig.queue[0].io[0].io.buf;

	memset(rig.queue[0].io[0].io.buf, 0xa5, BLOCK_BYTES);
	return rig_do(&rig, BACKEND_READ, 0, offset_bytes, BLOCK_BYTES, NULL) == 0 &&
	       strncmp(buf, text, BLOCK_BYTES) == 0;
}

/* What the cluster has, as $dir/all. */
static void export_image(const char *image)
{
	int ret = rbd_shell("rm -f $dir/all; run export --no-progress rbd/%s $dir/all", image);

	EXPECT(ret == 0, "%s", image);
}

static bool is_in_clear(void)
{
	return rbd_shell("grep -qaF '" PLAIN "' $dir/all") == 0;
}

static bool is_zero_at(uint64_t offset_bytes)
{
	return rbd_shell("cmp -n %u -i %llu:0 $dir/all /dev/zero", BLOCK_BYTES,
			 (unsigned long long)offset_bytes) == 0;
}

static void refused(const char *image, const char *encryption, const char *passphrase, int err,
		    const char *words)
{
	int ret = open_image(image, encryption, passphrase);

	EXPECT(ret == err, "%s: %d (%s)", image, ret, ret < 0 ? rig.error : "open");
	if (ret == 0)
		rig_close(&rig);
	EXPECT(ret == 0 || strstr(rig.error, words), "%s: %s", image, rig.error);
}

/* ---- cases ---- */

/* Without it the others could not fail. */
static void plain_is_in_clear(void)
{
	REQUIRE(rbd_shell("run create --size 4M rbd/plain") == 0, "create");
	REQUIRE(open_image("plain", NULL, NULL) == 0, "%s", rig.error);
	EXPECT(rig.device->limits.caps & BACKEND_CAP_DISCARD, "no discard");
	put(0, PLAIN);
	rig_close(&rig);
	export_image("plain");
	EXPECT(is_in_clear(), "not found");
	EXPECT(!is_zero_at(0) && is_zero_at(BLOCK_BYTES), "not at its place");
}

/* With the key as strong as rbd makes it: that takes seconds. */
static void made_by_rbd(const char *format, unsigned header_mib)
{
	int ret = rbd_shell("run create --size %uM rbd/%s; "
			    "run encryption format --cipher-alg aes-128 rbd/%s %s $dir/passphrase",
			    header_mib + 8, format, format, format);

	REQUIRE(ret == 0, "%d", ret);
	REQUIRE(open_image(format, format, "passphrase") == 0, "%s", rig.error);
	EXPECT(backend_size(rig.device) == MIB(8), "%llu",
	       (unsigned long long)backend_size(rig.device));
	EXPECT(!(rig.device->limits.caps & BACKEND_CAP_DISCARD), "discard");
	put(0, PLAIN);
	put(last_block(), PLAIN);
	EXPECT(holds(0, PLAIN) && holds(last_block(), PLAIN), "not what was written");
	rig_close(&rig);
	export_image(format);
	EXPECT(!is_in_clear(), "in clear");
	EXPECT(!is_zero_at(MIB(header_mib)) && is_zero_at(MIB(header_mib) + BLOCK_BYTES),
	       "not behind the header");
}

static void luks1(void)
{
	made_by_rbd("luks1", 4);
}

static void luks2(void)
{
	made_by_rbd("luks2", 16);
}

static void wrong_passphrase(void)
{
	char words[700];

	REQUIRE(rbd_shell("umask 077; echo wrong >$dir/wrong") == 0, "file");
	snprintf(words, sizeof(words),
		 "passphrase_file: the passphrase in %s/wrong does not open rbd/disk",
		 variant_path);
	refused("disk", "luks2", "wrong", -EPERM, words);
}

static void wrong_format(void)
{
	REQUIRE(rbd_shell("run create --size 20M rbd/empty") == 0, "create");
	refused("disk", "luks1", "passphrase", -EINVAL,
		"encryption: rbd/disk has no header of LUKS1: see rbd encryption format");
	refused("empty", "luks2", "passphrase", -EINVAL,
		"encryption: rbd/empty has no header of LUKS2: see rbd encryption format");
}

/* The header is read from the parent. */
static void cloned(void)
{
	REQUIRE(open_image("disk", "luks2", "passphrase") == 0, "%s", rig.error);
	put(0, PLAIN);
	put(last_block(), "of the parent");
	rig_close(&rig);
	REQUIRE(rbd_shell("run snap create --no-progress rbd/disk@s; run snap protect rbd/disk@s; "
			  "run clone rbd/disk@s rbd/clone") == 0,
		"clone");
	REQUIRE(open_image("clone", "luks2", "passphrase") == 0, "%s", rig.error);
	EXPECT(backend_size(rig.device) == MIB(4), "%llu",
	       (unsigned long long)backend_size(rig.device));
	EXPECT(holds(0, PLAIN) && holds(last_block(), "of the parent"), "not the parent's");
	put(last_block(), PLAIN);
	EXPECT(holds(0, PLAIN) && holds(last_block(), PLAIN), "not what was written");
	rig_close(&rig);
	export_image("clone");
	EXPECT(!is_in_clear(), "in clear");
	/* As it was before. */
	REQUIRE(open_image("disk@s", "luks2", "passphrase") == 0, "%s", rig.error);
	EXPECT(rig.device->limits.caps == BACKEND_CAP_READ_ONLY, "writable");
	EXPECT(holds(0, PLAIN) && holds(last_block(), "of the parent"), "not the snapshot's");
	rig_close(&rig);
}

static void resized(void)
{
	uint64_t bytes = 0;

	REQUIRE(open_image("disk", "luks2", "passphrase") == 0, "%s", rig.error);
	EXPECT(rbd_shell("run resize --no-progress --size 24M rbd/disk") == 0, "resize");
	/* rbd resize returns when those who watch have been told. */
	EXPECT(backend_size_now(rig.device, &bytes, rig.error, sizeof(rig.error)) == 0, "%s",
	       rig.error);
	EXPECT(bytes == MIB(8), "%llu", (unsigned long long)bytes);
	rig_close(&rig);
}

/* In this order: resized last, for what it does to the image. */
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "a plain image is in clear", plain_is_in_clear },
	{ "luks1, made by rbd", luks1 },
	{ "luks2, made by rbd", luks2 },
	{ "a wrong passphrase", wrong_passphrase },
	{ "another format, and none", wrong_format },
	{ "a clone, a snapshot", cloned },
	{ "the image is resized", resized },
};

static void run_case(unsigned idx)
{
	if (!tap_begin("rbd-luks: %s", cases[idx].name))
		return;
	cases[idx].run();
	tap_end();
}

static bool is_wanted(void)
{
	bool wanted = false;

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		wanted |= tap_is_wanted("rbd-luks: %s", cases[i].name);
	return wanted;
}

void rbd_cases_run(void)
{
	const char *words;

	if (!is_wanted())
		return;
	words = rbd_image_luks();
	if (words && tap_begin("rbd-luks: all cases")) {
		tap_skip("%s", words);
		tap_end();
	}
	if (words)
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		run_case(i);
	/* With all the images and clones. */
	rbd_end();
}
