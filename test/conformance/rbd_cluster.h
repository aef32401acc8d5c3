/* A Ceph cluster for the variants of rbd: a variant's setup and teardown. */
#ifndef TEST_RBD_CLUSTER_H
#define TEST_RBD_CLUSTER_H

/* A cluster with an image of 4 MiB, in rbd or in a namespace of it; variant_path is its folder. */
const char *rbd_image(void);
const char *rbd_image_fancy(void); /* striped over small objects, in the namespace "space" */
const char *rbd_image_luks(void);  /* in LUKS2, with the 16 MiB of its header in front */
void rbd_stop(void);

#endif
