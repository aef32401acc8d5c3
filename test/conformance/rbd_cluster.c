/* A Ceph cluster for the variants of rbd: test/ceph/cluster.sh. */
#include "rbd_cluster.h"

#include <stdarg.h>
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

const char *rbd_start(void)
{
	snprintf(variant_path, sizeof(variant_path), "%s/ceph", variant_dir);
	if (rbd_shell("for tool in ceph-mon ceph-osd rbd; do command -v $tool; done") != 0)
		return "ceph-mon, ceph-osd or rbd is missing";
	return rbd_shell(CLUSTER " start $dir") == 0 ? NULL : "the Ceph cluster does not start";
}

static const char *start_with(const char *image)
{
	const char *words = rbd_start();

	if (words || rbd_shell("%s", image) == 0)
		return words;
	rbd_stop();
	return "the image cannot be made";
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

int rbd_make_luks(const char *image)
{
	return rbd_shell("(umask 077; echo secret >$dir/passphrase); rm -f $dir/luks; "
			 "truncate -s 20M $dir/luks; "
			 "cryptsetup luksFormat --batch-mode --type luks2 --sector-size 4096 "
			 "--cipher aes-xts-plain64 --key-size 256 --pbkdf pbkdf2 "
			 "--pbkdf-force-iterations 1000 $dir/luks $dir/passphrase; "
			 "run import --no-progress $dir/luks rbd/%s",
			 image);
}

const char *rbd_image_luks(void)
{
	const char *words;

	if (system("command -v cryptsetup >/dev/null") != 0)
		return "cryptsetup is missing";
	words = rbd_start();
	if (words || rbd_make_luks("disk") == 0)
		return words;
	rbd_stop();
	return "the image cannot be made";
}

void rbd_stop(void)
{
	if (rbd_shell(CLUSTER " stop $dir; rm -rf $dir") != 0)
		fprintf(stderr, "the Ceph cluster does not end\n");
}
