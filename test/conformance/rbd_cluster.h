/*
 * A Ceph cluster for the variants of rbd, from the first one that is set up until rbd_end: a
 * variant's setup and teardown.
 */
#ifndef TEST_RBD_CLUSTER_H
#define TEST_RBD_CLUSTER_H

/* An image of 4 MiB, in rbd or in a namespace of it; variant_path is the cluster's folder. */
const char *rbd_image(void);
void rbd_drop(void);
const char *rbd_image_fancy(void); /* striped over small objects, in the namespace "space" */
void rbd_drop_fancy(void);
/*
 * In LUKS2, behind the 16 MiB of its header. The passphrase is in $dir/passphrase, with its line's
 * end. Goes by rbd_drop.
 */
const char *rbd_image_luks(void);

/* There is no cluster any more, if there was one. */
void rbd_end(void);

/* Of the shell, with $dir, the cluster's folder, and run, which runs rbd. Returns system(3)'s. */
int rbd_shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
