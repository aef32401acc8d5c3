/*
 * The daemon's own mount namespace: what it must not hold, and how it follows the host. Main
 * thread, and a thread for umounts, which can take long.
 */
#ifndef DAEMON_RUNTIME_MOUNT_NAMESPACE_H
#define DAEMON_RUNTIME_MOUNT_NAMESPACE_H

#include <ev.h>

/*
 * Before other threads exist. A namespace that is a slave of the one we came from, without any file
 * system that stands on a ublk device (host/block_tree.h). 0, or -errno, logged with the cure.
 */
int mount_namespace_make(void);

/*
 * Mounts that no umount of the host would reach (they are private there) go as soon as process 1
 * has them no more. Does nothing where there are none.
 */
void mount_namespace_follow(struct ev_loop *ev);
void mount_namespace_unfollow(struct ev_loop *ev);

#endif
