/*
 * Locks of the file backend: who else uses the file. Any thread, one per device, at open: each call
 * may block. Owns the list of all files that this process serves (to name the culprit when one is
 * wanted twice), which has a lock of its own.
 *
 * All are open file description locks (F_OFD_SETLK): they conflict with those of other processes
 * and of this one, by whatever path the file was found, and end with the process.
 *
 *   a file that is written           the whole of it, exclusive: against every lock of fcntl(2)
 *   a file that is read              all but the bytes of QEMU, shared; and as an image that is
 * read below an image format            the bytes of QEMU alone, shared
 *
 * QEMU (block/file-posix.c) tells what it does by shared locks on single bytes: 100 + p "I have the
 * permission p", 200 + p "nobody else may have it". After it has taken its own, it asks whether
 * others have the opposite ones, and gives up then. So many may read a base, one may write, and a
 * program that does not look (qemu-img -U) is kept out by nothing. Two that begin in the same
 * moment can both give up.
 *
 * Of an image that is written the fd store keeps another description of the file (struct backend's
 * stored_fd), with the same locks: when this process is killed they hold until the next one serves,
 * as the image may lack what is in memory that is kept. It is not the description of the I/O, whose
 * locks say that I/O of a dead process is under way still. The next process takes the locks on a
 * description of its own first, takes them off the kept one while it looks who else has some, and
 * puts them back. Nothing is kept of a file that a node between keeps for itself, as the store of a
 * cache: it lacks nothing, and ublkctl cache store works on it while the device waits. Nor on a
 * file system whose server could keep the close of a description waiting: the fd store's holders
 * must never wait.
 *
 * Failure modes: the file is in use: words; a file system without locks: logged, and the device is
 * served.
 */
#include "backends/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/node.h"

/* Longer names are cut: they are for a message. */
#define NAME_BYTES 64

/* QEMU's: RAW_LOCK_PERM_BASE, RAW_LOCK_SHARED_BASE. */
#define HAS_BYTE 100
#define KEEPS_BYTE 200
#define BYTES_END 300

/* QEMU's enum BlockPermission: those that matter between programs. */
enum lock_perm { PERM_READ = 0, PERM_WRITE = 1, PERM_RESIZE = 3, PERM_NR };

static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list_node files = LIST_INIT(files);

void file_remember(struct file_device *file)
{
	pthread_mutex_lock(&files_lock);
	list_push_back(&files, &file->opened);
	pthread_mutex_unlock(&files_lock);
}

void file_forget(struct file_device *file)
{
	pthread_mutex_lock(&files_lock);
	list_remove(&file->opened);
	pthread_mutex_unlock(&files_lock);
}

/* The device of this process that has the same file open, by name. True: there is one. */
static bool find_opened(const struct file_device *file, char name[static NAME_BYTES])
{
	bool found = false;

	pthread_mutex_lock(&files_lock);
	list_for_each (node, &files) {
		const struct file_device *other = list_entry(node, struct file_device, opened);

		if (other->stat.st_dev == file->stat.st_dev &&
		    other->stat.st_ino == file->stat.st_ino) {
			snprintf(name, NAME_BYTES, "%s", other->name);
			found = true;
		}
	}
	pthread_mutex_unlock(&files_lock);
	return found;
}

static const char *lock_path(const struct backend_device *device)
{
	const struct file_config *config = device->config;

	return config->path;
}

/* ---- refusals ---- */

static int fail_by(struct backend_device *device, const char *words)
{
	char other[NAME_BYTES];

	if (find_opened(device->priv, other))
		return backend_fail(device, -EBUSY, "%s is in use by device %s of this daemon",
				    lock_path(device), other);
	return backend_fail(device, -EBUSY, "%s %s", lock_path(device), words);
}

/* Only classic locks have an owner that can be named: those of a process, not of a description. */
static int fail_locked(struct backend_device *device, struct flock lock)
{
	const struct file_device *file = device->priv;
	char words[64] = "is in use by another process";

	if (fcntl(file->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid > 0)
		snprintf(words, sizeof(words), "is in use by process %d", (int)lock.l_pid);
	return fail_by(device, words);
}

static int fail_has(struct backend_device *device)
{
	return fail_by(device,
		       "is in use: another program has the image open for writing (a "
		       "virtual machine? qemu-img?), or a device that waits for it (ublkctl "
		       "list): end it first");
}

static int fail_keeps(struct backend_device *device, enum lock_perm perm)
{
	if (perm == PERM_READ)
		return fail_by(device, "is in use: another program (a virtual machine? qemu-img?) "
				       "has the image for itself: end it first");
	return fail_by(device, "is in use: another program (a virtual machine? qemu-img?) has the "
			       "image open, and nobody may write to it meanwhile: end it first, or "
			       "set read_only: true");
}

/* ---- locks ---- */

/* -ENOTSUP: the file system has none; -EBUSY: it is taken, in words. length 0: to the end. */
static int lock_range(struct backend_device *device, int fd, short type, off_t start, off_t length)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length
	};

	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	if (errno == EAGAIN || errno == EACCES)
		return fail_locked(device, lock);
	log_warn("file cannot be locked, nothing prevents its use by others",
		 "device=%s path=\"%s\" error=%s", device->name, lock_path(device), errname(errno));
	return -ENOTSUP;
}

/* Whether another description has a lock there, of any kind. */
static bool is_locked(const struct file_device *file, off_t byte)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1
	};

	return fcntl(file->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Sets of permissions, bits of enum lock_perm. */
static int lock_bytes(struct backend_device *device, int fd, unsigned has, unsigned keeps)
{
	int ret = 0;

	for (int perm = 0; perm < PERM_NR && ret == 0; perm++) {
		if (has & 1u << perm)
			ret = lock_range(device, fd, F_RDLCK, HAS_BYTE + perm, 1);
		if (ret == 0 && (keeps & 1u << perm))
			ret = lock_range(device, fd, F_RDLCK, KEEPS_BYTE + perm, 1);
	}
	return ret;
}

static int check_bytes(struct backend_device *device, unsigned has, unsigned keeps)
{
	for (int perm = 0; perm < PERM_NR; perm++) {
		if ((keeps & 1u << perm) && is_locked(device->priv, HAS_BYTE + perm))
			return fail_has(device);
		if ((has & 1u << perm) && is_locked(device->priv, KEEPS_BYTE + perm))
			return fail_keeps(device, (enum lock_perm)perm);
	}
	return 0;
}

/* ---- a second description, which is kept ---- */

static bool waits_for_a_server(const struct file_device *file)
{
	static const unsigned long types[] = {
		NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC,  CIFS_SUPER_MAGIC, SMB2_SUPER_MAGIC,
		FUSE_SUPER_MAGIC, V9FS_MAGIC,	    CEPH_SUPER_MAGIC, AFS_SUPER_MAGIC,
		AFS_FS_MAGIC,	  CODA_SUPER_MAGIC,
	};
	struct statfs fs;

	if (fstatfs(file->fd, &fs) < 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if ((unsigned long)fs.f_type == types[i])
			return true;
	return false;
}

/* The one that the process before has left, of this file; -1: none. */
static int kept_before(const struct backend_device *device)
{
	const struct file_device *file = device->priv;
	int fd = device->open_params.stored_fd;
	struct stat stat;

	if (fd <= 0 || fstat(fd, &stat) < 0 || stat.st_dev != file->stat.st_dev ||
	    stat.st_ino != file->stat.st_ino)
		return -1;
	return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static int kept_new(const struct backend_device *device)
{
	const struct file_device *file = device->priv;
	char link[32];

	if (!backend_holds_image(device) || device->open_params.read_only ||
	    waits_for_a_server(file))
		return -1;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", file->fd);
	return open(link, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

static void unlock_all(int fd)
{
	struct flock lock = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	fcntl(fd, F_OFD_SETLK, &lock);
}

/* As QEMU does for an image and for the base of one. */
static int lock_as_image(struct backend_device *device)
{
	const unsigned writes = 1u << PERM_WRITE | 1u << PERM_RESIZE;
	struct file_device *file = device->priv;
	unsigned has = 1u << PERM_READ;
	int ret;

	if (!device->open_params.read_only)
		has |= writes;
	ret = lock_bytes(device, file->fd, has, writes);
	if (ret < 0)
		return ret;
	file->kept_fd = kept_before(device);
	if (file->kept_fd >= 0)
		unlock_all(file->kept_fd);
	ret = check_bytes(device, has, writes);
	if (file->kept_fd < 0 && ret == 0)
		file->kept_fd = kept_new(device);
	if (file->kept_fd >= 0 && lock_bytes(device, file->kept_fd, has, writes) < 0) {
		close(file->kept_fd);
		file->kept_fd = -1;
	}
	return ret;
}

static int lock_as_whole(struct backend_device *device)
{
	const struct file_device *file = device->priv;
	int ret;

	if (!device->open_params.read_only)
		return lock_range(device, file->fd, F_WRLCK, 0, 0);
	ret = lock_range(device, file->fd, F_RDLCK, 0, HAS_BYTE);
	if (ret == 0)
		ret = lock_range(device, file->fd, F_RDLCK, BYTES_END, 0);
	return ret < 0 ? ret : lock_as_image(device);
}

int file_lock(struct backend_device *device)
{
	const struct file_config *config = device->config;
	const struct file_device *file = device->priv;
	int ret;

	if (config->lock == FILE_LOCK_OFF)
		return 0;
	ret = file->in_image || config->lock == FILE_LOCK_ON ? lock_as_image(device)
							     : lock_as_whole(device);
	return ret == -ENOTSUP ? 0 : ret;
}

/*
 * By hand, because the last reference to the file can be that of a ring, which the kernel drops
 * only after its close: the device could not be opened again at once.
 */
void file_unlock(struct file_device *file)
{
	unlock_all(file->fd);
}

int file_stored_fd(const struct backend_device *device)
{
	const struct file_device *file = device->priv;

	return file->kept_fd;
}
