/* A Ceph cluster for the variants of rbd: a variant's setup and teardown. */
#ifndef TEST_RBD_CLUSTER_H
#define TEST_RBD_CLUSTER_H

/* A cluster without an image; variant_path is its folder. Returns a reason to skip, or NULL. */
const char *rbd_start(void);
/* With an image of 4 MiB, in rbd or in a namespace of it. */
const char *rbd_image(void);
const char *rbd_image_fancy(void); /* striped over small objects, in the namespace "space" */
const char *rbd_image_luks(void);  /* of rbd_make_luks */
void rbd_stop(void);

/*
 * Makes an image of LUKS2: 16 MiB of its header, and 4 MiB. The passphrase is in $dir/passphrase,
 * with its line's end. As rbd encryption format does, but for the passphrase's hash: that takes
 * seconds for each opening, here it is a thousand rounds. Needs cryptsetup.
 */
int rbd_make_luks(const char *image);

/* Of the shell, with $dir, the cluster's folder, and run, the program rbd. Returns system(3)'s. */
int rbd_shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
