/*
 * Descriptors that must outlive this process, by name ("mem-NAME"): the memory of mem devices, the
 * records of rbd devices, by which the next daemon fences this one's clients, files below images,
 * whose locks are to hold until it serves, and connections to servers, by which it learns whether
 * they have gone on (net/witness.h). They are held twice: here, to be found, and by a
 * holder, which gives them to the next daemon.
 *
 * The holder is systemd, when NOTIFY_SOCKET is set and either FDSTORE (systemd 254 and later say so
 * when the unit has FileDescriptorStoreMax) or UBLKD_FDSTORE=1 (for those before). Otherwise it is
 * ublkd-keeper (daemon/fdstore/keeper.h), a process of its own that the first fd_store_put starts.
 *
 * Main thread. No call waits for a holder much longer than FD_STORE_TIMEOUT_MS, except the one that
 * starts a keeper from a slow disk. A holder's failure is logged with its cure: the device serves
 * on, and only what should be stored would not survive this process.
 */
#ifndef DAEMON_FDSTORE_FD_STORE_H
#define DAEMON_FDSTORE_FD_STORE_H

#include <stdbool.h>

#define FD_STORE_TIMEOUT_MS 1000
/* Of a name, without the 0. Printable ASCII without ':'. As systemd takes them. */
#define FD_STORE_NAME_MAX 255

struct fd_store_entry;

struct fd_store {
	char *state_dir;
	bool systemd;		/* is the holder */
	const char *keeper_exe; /* NULL: found by itself; tests say another, after fd_store_open */
	struct fd_store_entry *entries;
	unsigned nr;
};

/*
 * Takes in what outlived the last daemon: the descriptors of sd_listen_fds(3) (LISTEN_PID,
 * LISTEN_FDS, LISTEN_FDNAMES), which systemd gives from its store and an upgrade from the program
 * before, and what a keeper in state_dir (copied; need not exist) holds. The environment of
 * sd_listen_fds is removed, so that no child takes it for its own. A file that came both ways is
 * taken once; of two with one name the first stays. Call it once and early: before anything else
 * could close or reuse the descriptors from 3 on. Returns 0 or -ENOMEM, then only fd_store_close
 * may follow.
 */
int fd_store_open(struct fd_store *fd_store, const char *state_dir);

/* Closes what is held here, not what the holders have. Accepts a zeroed one. */
void fd_store_close(struct fd_store *fd_store);

/* A descriptor that stays the fd store's, until fd_store_put or fd_store_drop of this name; or
 * -ENOENT. */
int fd_store_find(const struct fd_store *fd_store, const char *name);

/*
 * Stores a duplicate of fd, which stays the caller's, in the place of the one that had this name.
 * The keeper takes memory (memfd_create(2)), connected SOCK_STREAM sockets, and files that are open
 * to be read, on a file system of this machine: a holder must never wait. Storing the same again
 * costs little, and repairs a holder that was started anew.
 */
void fd_store_put(struct fd_store *fd_store, const char *name, int fd);

/*
 * Forgets the name, here and at the holder, and ends the locks (F_OFD_SETLK) of its file. Nothing
 * is done when there is none.
 */
void fd_store_drop(struct fd_store *fd_store, const char *name);

/*
 * Drops each name that is not wanted: left by a daemon that died between the removal of a device
 * and its fd_store_drop, it would never be freed.
 */
void fd_store_prune(struct fd_store *fd_store, bool (*wanted)(const char *name, void *arg),
		    void *arg);

/*
 * What is held here, for an upgrade to hand over: nr entries, in no order. The name and the
 * descriptor stay the fd store's.
 */
unsigned fd_store_nr(const struct fd_store *fd_store);
const char *fd_store_at(const struct fd_store *fd_store, unsigned idx, int *ret_fd);

#endif
