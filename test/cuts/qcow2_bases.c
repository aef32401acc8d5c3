/*
 * An overlay whose base is another one, or says no version any more, when the next process opens
 * it. Over a base of the test's own, which says what the test sets. Prints TAP. One thread, a
 * folder of its own.
 */
#include "test/cuts/qcow2_bases.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/version.h"
#include "test/conformance/rig.h"
#include "test/conformance/tap.h"

/* ---- the base ---- */

static struct {
	enum backend_version_kind kind;
	char words[BACKEND_VERSION_BYTES];
	uint64_t size_bytes;
} said;

static int base_open(struct backend_device *device)
{
	device->limits.size_bytes = said.size_bytes;
	device->limits.caps = BACKEND_CAP_READ_ONLY;
	return 0;
}

static enum backend_submit base_submit(struct backend_io *io)
{
	memset(io->buf, 0x42, io->length_bytes);
	io->result = 0;
	return BACKEND_DONE;
}

static void base_found(const struct backend_device *device, struct backend_version *ret)
{
	(void)device;
	ret->kind = said.kind;
	snprintf(ret->found, sizeof(ret->found), "%s", said.words);
}

static const struct backend_version_ops base_version = { .found = base_found };
static const struct option base_options[] = { OPTION_END };

const struct backend backend_said_base = {
	.name = "said-base",
	.summary = "for tests: what it says of its version is set by the test",
	.options = base_options,
	.is_bytewise = true,
	.open = base_open,
	.submit = base_submit,
	.version = &base_version,
};

static void say(const char *words)
{
	said.kind = words[0] ? BACKEND_VERSION_LASTING : BACKEND_VERSION_NONE;
	snprintf(said.words, sizeof(said.words), "%s", words);
}

/* ---- the overlay ---- */

static char folder[] = "/tmp/ublkd-bases.XXXXXX";
static struct rig rig;

/* The next process. backing: of its configuration; accept: the token of accept_base, or "". */
static int open_over(const char *backing, const char *accept)
{
	static char yaml[1024];

	snprintf(yaml, sizeof(yaml),
		 "type: qcow2\ncreate: true\n%s%s%sdata: {type: file, path: %s/top, create: "
		 "true}\nbacking: %s\n",
		 accept[0] ? "accept_base: " : "", accept, accept[0] ? "\n" : "", folder, backing);
	return rig_open_disk(&rig, "qcow2", yaml, NULL);
}

static void expect_live(const char *backing, const char *accept)
{
	REQUIRE(open_over(backing, accept) == 0, "%s", rig.error);
	rig_close(&rig);
}

/* token: filled in. */
static void expect_refused(const char *backing, const char *was, const char *is, char token[17])
{
	int ret = open_over(backing, "");
	const char *at = strstr(rig.error, "accept_base: ");

	if (ret == 0)
		rig_close(&rig);
	REQUIRE(ret == -ESTALE, "%s", errname(ret));
	EXPECT(strstr(rig.error, was) && strstr(rig.error, is), "%s", rig.error);
	REQUIRE(at, "%s", rig.error);
	snprintf(token, 17, "%s", at + strlen("accept_base: "));
}

static void begin(const char *backing)
{
	said.size_bytes = MIB(1);
	say("ETag \"A\" 1048576");
	expect_live(backing, "");
	expect_live(backing, "");
}

/* ---- the cases ---- */

static void case_silent(void)
{
	static const char over[] = "{type: said-base}";
	char token[17], other[17];

	begin(over);
	say("");
	expect_refused(over, "fits what it was: ETag \"A\" 1048576", "not size 1048576", token);
	/* Of this size alone. */
	said.size_bytes = MIB(1) / 2;
	expect_refused(over, "ETag \"A\" 1048576", "not size 524288", other);
	EXPECT(open_over(over, token) == -ESTALE, "%s", rig.error);
	said.size_bytes = MIB(1);
	expect_live(over, token);
	/* It is noted. */
	expect_live(over, "");
	said.size_bytes = MIB(2);
	expect_refused(over, "size 1048576", "not size 2097152", other);
	said.size_bytes = MIB(1);
	say("ETag \"A\" 1048576");
	expect_refused(over, "size 1048576", "not ETag \"A\" 1048576", token);
}

/* Such versions are of this machine alone, and nothing that is noted can be compared with them. */
static void case_local(void)
{
	static const char over[] = "{type: said-base}";
	char token[17];

	begin(over);
	said.kind = BACKEND_VERSION_NOW;
	expect_refused(over, "ETag \"A\" 1048576", "not size 1048576", token);
}

/* It has never said one: nothing is noted, and it may grow. */
static void case_never(void)
{
	static const char over[] = "{type: said-base}";

	said.size_bytes = MIB(1);
	say("");
	expect_live(over, "");
	said.size_bytes = MIB(2);
	expect_live(over, "");
	say("ETag \"A\" 2097152");
	expect_live(over, "");
}

/* An image between that no device of ours has written, and so has no note. */
static void chain(const char *options)
{
	char over[300], command[400], token[17];

	snprintf(command, sizeof(command),
		 "cd %s && qemu-img create -q -f qcow2 mid 1M && qemu-img snapshot -c one mid",
		 folder);
	REQUIRE(system(command) == 0, "qemu-img fails");
	snprintf(over, sizeof(over),
		 "{type: qcow2, %sdata: {type: file, path: %s/mid}, backing: {type: said-base}}",
		 options, folder);
	begin(over);
	say("ETag \"B\" 1048576");
	expect_refused(over, "fits what it was: ", ", not ", token);
	say("");
	expect_refused(over, "fits what it was: ", ", not size 1048576", token);
	say("ETag \"A\" 1048576");
	expect_live(over, "");
}

static void case_chain(void)
{
	chain("");
}

static void case_chain_snapshot(void)
{
	chain("snapshot: one, ");
}

int main(void)
{
	static const struct {
		const char *name;
		void (*fn)(void);
		bool needs_qemu;
	} cases[] = {
		{ "bases: it says no version any more", case_silent, false },
		{ "bases: it says a version of this machine", case_local, false },
		{ "bases: it has never said one", case_never, false },
		{ "bases: through a local image", case_chain, true },
		{ "bases: through a snapshot of one", case_chain_snapshot, true },
	};
	bool has_qemu = system("qemu-img --version >/dev/null 2>&1") == 0;
	char command[64];

	log_init(LOG_LEVEL_ERROR);
	tap_init("qcow2_bases", NULL, 0);
	if (!mkdtemp(folder))
		return 1;
	snprintf(command, sizeof(command), "rm -rf %s/*", folder);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		tap_begin("%s", cases[i].name);
		if (cases[i].needs_qemu && !has_qemu)
			tap_skip("no qemu-img");
		else
			cases[i].fn();
		tap_end();
		if (system(command) != 0)
			return 1;
	}
	rmdir(folder);
	return tap_finish();
}
