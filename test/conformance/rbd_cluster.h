/* A Ceph cluster for the variants of rbd: a variant's setup and teardown. */
#ifndef TEST_RBD_CLUSTER_H
#define TEST_RBD_CLUSTER_H

/* A cluster with an image of 4 MiB, in rbd or in a namespace of it; variant_path is its folder. */
const char *rbd_image(void);
const char *rbd_image_fancy(void); /* striped over small objects, in the namespace "space" */
void rbd_stop(void);

#endif
