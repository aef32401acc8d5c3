/* A Ceph cluster for the variants of rbd: test/ceph/cluster.sh. */
#include "rbd_cluster.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "variants.h"

#define CLUSTER UBLKD_SOURCE "/test/ceph/cluster.sh"
/* Without a cluster it would wait for ever. */
#define RBD_TOOL                                                                                   \
	"run() { timeout 60 rbd --conf \"$dir/ceph.conf\" --keyring \"$dir/keyring\" \"$@\"; }"

int rbd_shell(const char *fmt, ...)
{
	char command[2000];
	va_list ap;
	int bytes =
		snprintf(command, sizeof(command), "exec >>%s/rbd.log 2>&1; set -e; dir=%s; %s; ",
			 variant_dir, variant_path, RBD_TOOL);

	va_start(ap, fmt);
	bytes += vsnprintf(command + bytes, sizeof(command) - (size_t)bytes, fmt, ap);
	va_end(ap);
	ASSERT(bytes < (int)sizeof(command));
	return system(command);
}

/* ---- the cluster ---- */

static bool runs;

static const char *start(void)
{
	snprintf(variant_path, sizeof(variant_path), "%s/ceph", variant_dir);
	if (runs)
		return NULL;
	if (rbd_shell("for tool in ceph-mon ceph-osd rbd; do command -v $tool; done") != 0)
		return "ceph-mon, ceph-osd or rbd is missing";
	if (rbd_shell(CLUSTER " start $dir") != 0)
		return "the Ceph cluster does not start";
	runs = true;
	return NULL;
}

void rbd_end(void)
{
	if (!runs)
		return;
	runs = false;
	snprintf(variant_path, sizeof(variant_path), "%s/ceph", variant_dir);
	if (rbd_shell(CLUSTER " stop $dir; rm -rf $dir") != 0)
		fprintf(stderr, "the Ceph cluster does not end\n");
}

/* ---- images ---- */

static const char *start_with(const char *image)
{
	const char *words = start();

	if (words || rbd_shell("%s", image) == 0)
		return words;
	rbd_end();
	return "the image cannot be made";
}

/* One that a check has left open stays: the next check begins anew. */
static void drop(const char *image)
{
	if (runs && rbd_shell("%s", image) != 0)
		rbd_end();
}

const char *rbd_image(void)
{
	return start_with("run create --size 4M rbd/disk");
}

const char *rbd_image_fancy(void)
{
	return start_with("run namespace create rbd/space; "
			  "run create --size 4M --object-size 256K --stripe-unit 64K "
			  "--stripe-count 4 rbd/space/disk");
}

/*
 * As rbd encryption format does it, but for the passphrase's hash: that takes seconds for each
 * opening, here it is a thousand rounds.
 */
const char *rbd_image_luks(void)
{
	if (system("command -v cryptsetup >/dev/null") != 0)
		return "cryptsetup is missing";
	return start_with("(umask 077; echo secret >$dir/passphrase); rm -f $dir/luks; "
			  "truncate -s 20M $dir/luks; "
			  "cryptsetup luksFormat --batch-mode --type luks2 --sector-size 4096 "
			  "--cipher aes-xts-plain64 --key-size 256 --pbkdf pbkdf2 "
			  "--pbkdf-force-iterations 1000 $dir/luks $dir/passphrase; "
			  "run import --no-progress $dir/luks rbd/disk");
}

void rbd_drop(void)
{
	drop("run rm --no-progress rbd/disk");
}

void rbd_drop_fancy(void)
{
	drop("run rm --no-progress rbd/space/disk; run namespace remove rbd/space");
}
