/* A Ceph cluster for the variants of rbd: test/ceph/cluster.sh. */
#include "rbd_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "variants.h"

#define CLUSTER UBLKD_SOURCE "/test/ceph/cluster.sh"
#define RBD_TOOL "rbd --conf \"$dir/ceph.conf\" --keyring \"$dir/keyring\" "

/* With dir as the cluster's folder, which is the variant's path. */
static int cluster_do(const char *commands)
{
	char command[2000];
	int bytes = snprintf(command, sizeof(command), "exec >%s/rbd.log 2>&1; dir=%s; %s",
			     variant_dir, variant_path, commands);

	ASSERT(bytes < (int)sizeof(command));
	return system(command);
}

static const char *cluster_start(const char *image)
{
	char commands[1000];

	snprintf(variant_path, sizeof(variant_path), "%s/ceph", variant_dir);
	if (cluster_do("command -v ceph-mon ceph-osd rbd") != 0)
		return "ceph-mon, ceph-osd or rbd is missing";
	if (cluster_do(CLUSTER " start $dir") != 0)
		return "the Ceph cluster does not start";
	snprintf(commands, sizeof(commands), "set -e; %s", image);
	if (cluster_do(commands) == 0)
		return NULL;
	rbd_stop();
	return "the image cannot be made";
}

const char *rbd_image(void)
{
	return cluster_start(RBD_TOOL "create --size 4M rbd/disk");
}

const char *rbd_image_fancy(void)
{
	return cluster_start(RBD_TOOL "namespace create rbd/space; " RBD_TOOL
				      "create --size 4M --object-size 256K --stripe-unit 64K "
				      "--stripe-count 4 rbd/space/disk");
}

/*
 * As rbd encryption format makes it, but for the passphrase's hash: that takes seconds for each
 * opening, here it is a thousand rounds. rbd_cases.c opens what rbd itself has made.
 */
const char *rbd_image_luks(void)
{
	if (system("command -v cryptsetup >/dev/null") != 0)
		return "cryptsetup is missing";
	return cluster_start(
		"(umask 077; echo secret >$dir/passphrase); truncate -s 20M $dir/luks; "
		"cryptsetup luksFormat --batch-mode --type luks2 --sector-size 4096 "
		"--cipher aes-xts-plain64 --key-size 256 --pbkdf pbkdf2 "
		"--pbkdf-force-iterations 1000 $dir/luks $dir/passphrase; " RBD_TOOL
		"import --no-progress $dir/luks rbd/disk");
}

void rbd_stop(void)
{
	if (cluster_do(CLUSTER " stop $dir; rm -rf $dir") != 0)
		fprintf(stderr, "the Ceph cluster does not end\n");
}
