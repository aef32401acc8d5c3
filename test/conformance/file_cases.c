/*
 * What only the file backend can meet: paths that are no files, sizes, locks, a file that changes
 * under the device, a full disk. One thread; other processes are forked where one is needed.
 */
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/util.h"
#include "tap.h"
#include "variants.h"
#include "storage/resize.h"

static char disk[600], other[600];

static void make_file(const char *path, uint64_t size_bytes)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);

	EXPECT(fd >= 0 && ftruncate(fd, (off_t)size_bytes) == 0, "%s", path);
	close(fd);
}

static uint64_t file_size(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? 0 : (uint64_t)st.st_size;
}

static uint64_t file_allocated_bytes(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

/* The YAML of a device in path, with whatever follows. */
static struct rig_params on_path(const char *path, const char *more)
{
	static char yaml[8][1024]; /* several are alive at once */
	static unsigned turn;
	char *text = yaml[turn++ % 8];

	snprintf(text, sizeof(yaml[0]), "path: %s\n%s", path, more);
	return (struct rig_params){
		.ops = backend_find("file"),
		.name = "disk",
		.yaml = text,
		.block_bytes = 512,
		.queue_nr = 1,
		.depth = 4,
	};
}

/* The error must hold all of the words: the user is told what and how to cure it. */
static void expect_no_open(struct rig_params params, int err, const char *word, const char *cure)
{
	unsigned fds = rig_count_fds();
	struct rig rig;
	int ret = rig_open(&rig, &params);

	if (ret == 0) {
		EXPECT(ret < 0, "opened: %s", params.yaml);
		rig_close(&rig);
		return;
	}
	EXPECT(ret == err, "%s, not %s: %s", errname(ret), errname(err), rig.error);
	EXPECT(strstr(rig.error, word) && strstr(rig.error, cure), "no \"%s\" or \"%s\" in: %s",
	       word, cure, rig.error);
	EXPECT(rig_count_fds() == fds, "descriptors left open");
}

static void case_missing(void)
{
	char below[700];

	expect_no_open(on_path(disk, ""), -ENOENT, disk, "create: true");
	expect_no_open(on_path(disk, "create: true"), -EINVAL, disk, "needs size");
	snprintf(below, sizeof(below), "%s/none/disk.img", variant_dir);
	expect_no_open(on_path(below, "create: true\nsize: 1MiB"), -ENOENT, below, "directory");
	EXPECT(access(disk, F_OK) < 0, "a refused device left a file");
}

static void case_missing_read_only(void)
{
	struct rig_params params = on_path(disk, "create: true\nsize: 1MiB");

	params.read_only = true;
	expect_no_open(params, -ENOENT, disk, "read_only");
	EXPECT(access(disk, F_OK) < 0, "a read-only device made a file");
}

static void case_not_a_file(void)
{
	expect_no_open(on_path(variant_dir, ""), -EISDIR, variant_dir, "directory");
	/* Must not wait for a writer either. */
	EXPECT(mkfifo(disk, 0600) == 0, "mkfifo");
	expect_no_open(on_path(disk, ""), -EINVAL, disk, "neither");
	struct rig_params params = on_path(disk, "");
	params.read_only = true;
	expect_no_open(params, -EINVAL, disk, "neither");
	expect_no_open(on_path("/dev/null", ""), -EINVAL, "/dev/null", "neither");
}

/* As nobody, in a child: root may open everything. */
static void case_no_permission(void)
{
	int status;
	pid_t pid;

	make_file(disk, MIB(1));
	chmod(disk, 0400);
	chmod(variant_dir, 0755);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (geteuid() == 0 && (chown(disk, 65534, 65534) < 0 || setuid(65534) < 0))
			_exit(77);
		expect_no_open(on_path(disk, ""), -EACCES, disk, "permission denied");
		fflush(stdout);
		_exit(tap_failed());
	}
	waitpid(pid, &status, 0);
	if (WEXITSTATUS(status) == 77)
		tap_skip("cannot become nobody");
	else
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: 0x%x", status);
}

static void expect_size(struct rig_params params, uint64_t size_bytes, uint64_t of_file_bytes)
{
	struct rig rig;

	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	EXPECT(rig.device->limits.size_bytes == size_bytes, "%llu, not %llu: %s",
	       (unsigned long long)rig.device->limits.size_bytes, (unsigned long long)size_bytes,
	       params.yaml);
	rig_close(&rig);
	EXPECT(file_size(disk) == of_file_bytes, "file: %llu", (unsigned long long)file_size(disk));
}

static void case_sizes(void)
{
	make_file(disk, 0);
	expect_no_open(on_path(disk, ""), -EINVAL, disk, "less than a block");
	make_file(disk, MIB(1) + 100);
	expect_size(on_path(disk, ""), MIB(1), MIB(1) + 100);
	expect_size(on_path(disk, "size: 64KiB"), KIB(64), MIB(1) + 100);
	expect_size(on_path(disk, "size: 64KiB\ncreate: true"), KIB(64), MIB(1) + 100);
	expect_no_open(on_path(disk, "size: 1000"), -EINVAL, "size", "block_size");
	expect_no_open(on_path(disk, "size: 2MiB"), -ENOSPC, "2MiB", "create: true");
	expect_size(on_path(disk, "size: 2MiB\ncreate: true"), MIB(2), MIB(2));
	EXPECT(file_allocated_bytes(disk) <= KIB(64), "not sparse");
}

static bool grows(struct rig_params params)
{
	bool has_cap = false;
	struct rig rig;

	if (rig_open(&rig, &params) == 0) {
		has_cap = rig.device->limits.caps & BACKEND_CAP_GROWS;
		rig_close(&rig);
	} else {
		EXPECT(false, "%s", rig.error);
	}
	return has_cap;
}

/* Whoever sets a larger size may write there; without it the end is the end. */
static void case_grows(void)
{
	struct rig_params params = on_path(disk, "");
	struct rig rig;

	make_file(disk, MIB(1));
	EXPECT(grows(params), "a file with no size of its own");
	EXPECT(!grows(on_path(disk, "size: 64KiB")), "a file with a fixed size");
	params.read_only = true;
	EXPECT(!grows(params), "a file that is only read");
	params.read_only = false;
	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, MIB(2), 4096, NULL) == -EIO, "beyond the size");
	backend_set_size(rig.device, MIB(16));
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, MIB(2), 4096, NULL) == 0, "beyond the end");
	EXPECT(file_size(disk) == MIB(2) + 4096, "%llu", (unsigned long long)file_size(disk));
	EXPECT(rig_do(&rig, BACKEND_READ, 0, MIB(2), 4096, NULL) == 0, "what was written");
	EXPECT(rig_do(&rig, BACKEND_READ, 0, MIB(3), 4096, NULL) == -EIO, "beyond the new end");
	rig_close(&rig);
}

static void case_cannot_grow(void)
{
	struct rlimit limit = { .rlim_cur = MIB(2), .rlim_max = RLIM_INFINITY };

	make_file(disk, MIB(1));
	signal(SIGXFSZ, SIG_IGN);
	EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
	expect_no_open(on_path(disk, "size: 3MiB\ncreate: true"), -EFBIG, disk, "cannot grow");
	limit.rlim_cur = RLIM_INFINITY;
	EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
	signal(SIGXFSZ, SIG_DFL);
	EXPECT(file_size(disk) == MIB(1), "changed");
}

static void case_locked_in_process(void)
{
	struct rig_params params = on_path(disk, "");
	struct rig rig;

	make_file(disk, MIB(1));
	EXPECT(link(disk, other) == 0, "link");
	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	expect_no_open(on_path(disk, ""), -EBUSY, disk, "device disk of this daemon");
	expect_no_open(on_path(other, ""), -EBUSY, other, "device disk of this daemon");
	params.read_only = true;
	expect_no_open(params, -EBUSY, disk, "device disk");
	rig_close(&rig);
	params.read_only = false;
	REQUIRE(rig_open(&rig, &params) == 0, "not free after close: %s", rig.error);
	rig_close(&rig);
}

static void case_shared_read_only(void)
{
	struct rig_params params = on_path(disk, "");
	struct rig a, b;

	make_file(disk, MIB(1));
	params.read_only = true;
	REQUIRE(rig_open(&a, &params) == 0, "%s", a.error);
	if (rig_open(&b, &params) == 0)
		rig_close(&b);
	else
		EXPECT(false, "a second reader was refused: %s", b.error);
	expect_no_open(on_path(disk, ""), -EBUSY, disk, "in use");
	rig_close(&a);
}

/* A child takes the lock with cmd (of a process, or of a description) and tries what we hold. */
static pid_t fork_locker(int cmd, int *ret_ready)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int ready[2];
	pid_t pid;
	char c = 1;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		int fd = open(disk, O_RDWR);

		c = fcntl(fd, cmd, &lock) == 0;
		if (write(ready[1], &c, 1) == 1)
			pause();
		_exit(0);
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1 || !c)
		EXPECT(false, "child could not lock");
	*ret_ready = ready[0];
	return pid;
}

static void case_locked_by_process(void)
{
	static const int cmds[] = { F_SETLK, F_OFD_SETLK };

	make_file(disk, MIB(1));
	for (unsigned i = 0; i < ARRAY_SIZE(cmds); i++) {
		int ready = -1;
		pid_t pid = fork_locker(cmds[i], &ready);
		char words[32];

		REQUIRE(pid > 0, "fork");
		snprintf(words, sizeof(words),
			 cmds[i] == F_SETLK ? "by process %d" : "by another process", (int)pid);
		expect_no_open(on_path(disk, ""), -EBUSY, disk, words);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close(ready);
	}
}

static void case_truncated(const char *direct)
{
	struct rig_params params = on_path(disk, direct);
	struct rig rig;

	make_file(disk, MIB(1));
	params.block_bytes = 4096;
	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	EXPECT(truncate(disk, KIB(512) + 2048) == 0, "truncate");
	EXPECT(rig_do(&rig, BACKEND_READ, 0, 0, KIB(512), NULL) == 0, "before the end");
	EXPECT(rig_do(&rig, BACKEND_READ, 0, KIB(512), 4096, NULL) == -EIO, "across the end");
	EXPECT(rig_do(&rig, BACKEND_READ, 0, KIB(256), KIB(512), NULL) == -EIO, "across the end");
	EXPECT(rig_do(&rig, BACKEND_READ, 0, KIB(768), 4096, NULL) == -EIO, "behind the end");
	/* A write makes the file longer again: the device lives on. */
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, MIB(1) - 4096, 4096, NULL) == 0, "write");
	EXPECT(rig_do(&rig, BACKEND_READ, 0, KIB(768), 4096, NULL) == 0, "a hole now");
	EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "flush");
	rig_close(&rig);
}

static void case_truncated_buffered(void)
{
	case_truncated("direct: off");
}

static void case_truncated_direct(void)
{
	case_truncated("direct: auto");
}

static void write_all(struct rig *rig)
{
	for (uint64_t pos = 0; pos < MIB(1); pos += KIB(64)) {
		memset(rig->queue[0].io[0].io.buf, 1, KIB(64));
		EXPECT(rig_do(rig, BACKEND_WRITE, 0, pos, KIB(64), NULL) == 0, "write");
	}
	EXPECT(rig_do(rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "flush");
}

/* DISCARD and WRITE_ZEROES free space, NOUNMAP keeps it. */
static void case_gives_space_back(void)
{
	struct rig_params params = on_path(disk, "");
	struct rig rig;

	make_file(disk, MIB(1));
	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	write_all(&rig);
	EXPECT(file_allocated_bytes(disk) >= MIB(1), "not allocated");
	EXPECT(rig_do(&rig, BACKEND_WRITE_ZEROES, BACKEND_NOUNMAP, 0, MIB(1), NULL) == 0, "keep");
	EXPECT(file_allocated_bytes(disk) >= MIB(1), "NOUNMAP gave space back");
	EXPECT(rig_do(&rig, BACKEND_WRITE_ZEROES, 0, 0, KIB(512), NULL) == 0, "zeroes");
	EXPECT(file_allocated_bytes(disk) <= KIB(520), "zeroes kept the space");
	EXPECT(rig_do(&rig, BACKEND_DISCARD, 0, KIB(512), KIB(512), NULL) == 0, "discard");
	EXPECT(file_allocated_bytes(disk) <= KIB(8), "discard kept the space");
	rig_close(&rig);
}

static bool mount_small_tmpfs(const char *dir)
{
	if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) < 0)
		return false;
	mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	return mount("small", dir, "tmpfs", 0, "size=1m") == 0;
}

static void use_full_disk(void)
{
	struct rig_params params = on_path(disk, "size: 4MiB\ncreate: true");
	struct rig rig;
	uint64_t pos;
	int ret = 0;

	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	for (pos = 0; ret == 0 && pos < MIB(4); pos += KIB(64)) {
		memset(rig.queue[0].io[0].io.buf, 0x42, KIB(64));
		ret = rig_do(&rig, BACKEND_WRITE, 0, pos, KIB(64), NULL);
	}
	EXPECT(ret == -ENOSPC, "%s after %llu KiB", errname(ret), (unsigned long long)pos >> 10);
	EXPECT(pos > KIB(512) && pos <= MIB(1) + KIB(64), "%llu", (unsigned long long)pos);
	ret = rig_do(&rig, BACKEND_WRITE_ZEROES, BACKEND_NOUNMAP, MIB(2), MIB(1), NULL);
	EXPECT(ret == -ENOSPC, "NOUNMAP: %s", errname(ret));
	/* What was there is there, and with space comes life. */
	EXPECT(rig_do(&rig, BACKEND_READ, 0, 0, 4096, NULL) == 0, "read");
	EXPECT(((uint8_t *)rig.queue[0].io[0].io.buf)[4095] == 0x42, "lost data");
	EXPECT(rig_do(&rig, BACKEND_DISCARD, 0, 0, KIB(512), NULL) == 0, "discard");
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, KIB(128), KIB(64), NULL) == 0, "write");
	rig_close(&rig);
}

/* In a child with a mount namespace of its own. */
static void case_full_disk(void)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (!mount_small_tmpfs(variant_dir))
			_exit(77);
		use_full_disk();
		fflush(stdout);
		_exit(tap_failed());
	}
	waitpid(pid, &status, 0);
	if (WEXITSTATUS(status) == 77)
		tap_skip("no tmpfs of our own: needs root or user namespaces");
	else
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: 0x%x", status);
}

/* The loop device of a variant, borrowed. */
static bool with_loop(const char *variant)
{
	const char *reason = "no such variant";

	for (unsigned i = 0; i < variant_nr; i++)
		if (strcmp(variants[i].name, variant) == 0)
			reason = variants[i].setup();
	if (reason)
		tap_skip("%s", reason);
	return reason == NULL;
}

static void without_loop(void)
{
	char command[700];

	snprintf(command, sizeof(command), "losetup -d %s", variant_path);
	EXPECT(system(command) == 0, "%s", command);
}

static void case_block_sector(void)
{
	if (!with_loop("file-block-4096"))
		return;
	expect_no_open(on_path(variant_path, ""), -EINVAL, "512", "block_size: 4096");
	expect_no_open(on_path(variant_path, "direct: on"), -EINVAL, variant_path,
		       "block_size: 4096");
	without_loop();
}

static void case_block_in_use(void)
{
	struct rig_params params;
	struct rig rig;
	int fd;

	if (!with_loop("file-block"))
		return;
	fd = open(variant_path, O_RDWR | O_EXCL | O_CLOEXEC);
	EXPECT(fd >= 0, "%s", variant_path);
	expect_no_open(on_path(variant_path, ""), -EBUSY, variant_path, "in use");
	close(fd);
	expect_no_open(on_path(variant_path, "size: 8MiB\ncreate: true"), -ENOSPC, "4MiB", "8MiB");
	params = on_path(variant_path, "size: 1MiB");
	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	EXPECT(rig.device->limits.size_bytes == MIB(1), "size");
	expect_no_open(on_path(variant_path, ""), -EBUSY, variant_path, "in use");
	rig_close(&rig);
	without_loop();
}

static void identity_of(const char *path, char text[BACKEND_IDENTITY_BYTES])
{
	struct rig_params params = on_path(path, "");
	struct rig rig;

	text[0] = '\0';
	REQUIRE(rig_open(&rig, &params) == 0, "%s", rig.error);
	backend_identity(rig.device, text);
	EXPECT(backend_stored_fd(rig.device, 0) == -1, "a file needs nobody to hold it");
	rig_close(&rig);
}

/* The file itself, not its name. A new one may well have the inode of the one before. */
static void case_identity(void)
{
	char a[BACKEND_IDENTITY_BYTES], b[BACKEND_IDENTITY_BYTES], c[BACKEND_IDENTITY_BYTES];

	make_file(disk, MIB(1));
	EXPECT(link(disk, other) == 0, "link");
	identity_of(disk, a);
	make_file(disk, MIB(2)); /* the same one, with another size and content */
	identity_of(disk, b);
	identity_of(other, c);
	EXPECT(strncmp(a, "file ", 5) == 0, "%s", a);
	EXPECT(strcmp(a, b) == 0 && strcmp(a, c) == 0, "%s, %s, %s", a, b, c);
	unlink(other);
	unlink(disk);
	make_file(disk, MIB(2));
	identity_of(disk, b);
	EXPECT(strcmp(a, b) != 0, "%s is another file", b);
}

/* Another disk may get the same number. */
static void case_block_identity(void)
{
	char a[BACKEND_IDENTITY_BYTES], b[BACKEND_IDENTITY_BYTES];
	char path[sizeof(variant_path)];

	if (!with_loop("file-block"))
		return;
	strcpy(path, variant_path);
	identity_of(variant_path, a);
	identity_of(variant_path, b);
	EXPECT(strncmp(a, "block ", 6) == 0, "%s", a);
	EXPECT(strcmp(a, b) == 0, "%s, %s", a, b);
	without_loop();
	if (!with_loop("file-block"))
		return;
	identity_of(variant_path, b);
	EXPECT(strcmp(a, b) != 0, "%s at %s is %s at %s", a, path, b, variant_path);
	without_loop();
}

static void run_case(const char *name, void (*run)(void))
{
	if (!tap_begin("file: %s", name))
		return;
	snprintf(disk, sizeof(disk), "%s/disk.img", variant_dir);
	snprintf(other, sizeof(other), "%s/other.img", variant_dir);
	unlink(disk);
	run();
	unlink(disk);
	unlink(other);
	tap_end();
}

void file_cases_run(void)
{
	run_case("a missing file", case_missing);
	run_case("a missing file, read_only", case_missing_read_only);
	run_case("a directory, a fifo, a character device", case_not_a_file);
	run_case("no permission", case_no_permission);
	run_case("sizes", case_sizes);
	run_case("a file that grows by being written", case_grows);
	run_case("a file that cannot grow", case_cannot_grow);
	run_case("locked by this process", case_locked_in_process);
	run_case("shared by readers", case_shared_read_only);
	run_case("locked by another process", case_locked_by_process);
	run_case("truncated under the device, buffered", case_truncated_buffered);
	run_case("truncated under the device, direct", case_truncated_direct);
	run_case("space is given back", case_gives_space_back);
	run_case("full disk", case_full_disk);
	run_case("block device with large sectors", case_block_sector);
	run_case("block device in use", case_block_in_use);
	run_case("identity", case_identity);
	run_case("identity of a block device", case_block_identity);
}
