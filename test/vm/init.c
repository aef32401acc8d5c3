/*
 * The first process of the test guest: makes the machine usable, runs one command, reports, ends.
 *
 * vm.sh leaves the orders in the share (argv, env, cwd, binds: strings that end in NUL), and finds
 * the answers there (exit, dmesg). The command writes into pipes, and this process carries them to
 * two consoles (virtio, or serial lines of User-mode Linux): pipes can be opened again
 * (/dev/stderr) and are no terminals. A third console brings vm.sh's only order, "stop": say who is
 * blocked, and end.
 *
 * Failure: anything that makes a run pointless is printed to the kernel's console and ends the
 * guest without an exit file, which vm.sh reports. One thread; nothing is freed, the machine ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define SHARE "/.vm"
#define EXIT_PORT 0xf4		/* isa-debug-exit, as machine_qemu.sh configures it */
#define HOSTFS_MAGIC 0x00c0ffee /* fs/hostfs/hostfs_kern.c */

/* Set by mount_all: User-mode Linux, whose root is a hostfs that has the share and /out mounted in
 * it. */
static int is_uml;

static void write_all(int fd, const char *data, size_t bytes);

static void sysrq(const char *key)
{
	write_all(open("/proc/sysrq-trigger", O_WRONLY), key, 1);
}

static void power_off(void)
{
	/* At once: a shutdown would wait for the hung devices that some tests leave behind. */
	if (is_uml)
		sysrq("b"); /* an end, with "noreboot" */
	else if (ioperm(EXIT_PORT, 4, 1) == 0)
		outl(0, EXIT_PORT);
	reboot(RB_POWER_OFF);
	_exit(1); /* the kernel panics, and vm.sh sees that */
}

__attribute__((format(printf, 1, 2))) static void die(const char *format, ...)
{
	int saved_errno = errno;
	va_list args;

	va_start(args, format);
	fprintf(stderr, "init: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, ": %s\n", strerror(saved_errno));
	power_off();
	_exit(1);
}

/* --- orders and answers -------------------------------------------------------------------- */

/* Reads strings that end in NUL; returns an array that ends in NULL. */
static char **order_read(const char *path)
{
	static const size_t size_max = 4 << 20;
	char *text = calloc(1, size_max + 1), **strings, *end;
	int fd = open(path, O_RDONLY), nr = 0;
	ssize_t bytes, total = 0;

	if (fd < 0 || !text)
		die("%s", path);
	while ((bytes = read(fd, text + total, size_max - total)) > 0)
		total += bytes;
	close(fd);
	end = text + total;
	strings = calloc(total + 1, sizeof(*strings));
	if (!strings)
		die("%s", path);
	for (char *s = text; s < end; s += strlen(s) + 1)
		strings[nr++] = s;
	return strings;
}

static void write_all(int fd, const char *data, size_t bytes)
{
	while (bytes > 0) {
		ssize_t done = write(fd, data, bytes);

		if (done < 0 && errno != EINTR)
			return; /* nobody is left to tell */
		if (done > 0) {
			data += done;
			bytes -= done;
		}
	}
}

static void answer_write(const char *path, const char *data, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd < 0)
		die("%s", path);
	write_all(fd, data, bytes);
	close(fd);
}

/* Drops the "<level>" that the kernel puts before each line, as dmesg(1) does. */
static size_t dmesg_strip(char *text, size_t bytes)
{
	size_t kept = 0;
	int at_start = 1;

	for (size_t i = 0; i < bytes; i++) {
		if (at_start && text[i] == '<') {
			while (i < bytes && text[i] != '>')
				i++;
			at_start = 0;
			continue;
		}
		at_start = text[i] == '\n';
		text[kept++] = text[i];
	}
	return kept;
}

static void dmesg_save(void)
{
	int size = klogctl(10 /* size of the buffer */, NULL, 0);
	char *text = malloc(size > 0 ? size : 1);
	int bytes = text ? klogctl(3 /* read all */, text, size) : 0;

	if (bytes > 0)
		answer_write(SHARE "/dmesg", text, dmesg_strip(text, bytes));
}

/* --- the machine ---------------------------------------------------------------------------- */

struct mount_row {
	const char *type, *target, *options;
	int if_known; /* not every kernel has it */
};

/* In this order: later ones lie on earlier ones. The root comes from the host and is read-only. */
static const struct mount_row mounts[] = {
	{ "devtmpfs", "/dev", "mode=755", 0 },
	{ "proc", "/proc", NULL, 0 },
	{ "sysfs", "/sys", NULL, 0 },
	{ "tmpfs", "/run", "mode=755", 0 },
	{ "tmpfs", "/tmp", "mode=1777", 0 },
	{ "tmpfs", "/var/tmp", "mode=1777", 0 },
	{ "tmpfs", "/mnt", "mode=755", 0 },
	{ "tmpfs", "/root", "mode=700", 0 },
	{ "tmpfs", "/dev/shm", "mode=1777", 0 },
	{ "devpts", "/dev/pts", "ptmxmode=666", 0 },
	{ "debugfs", "/sys/kernel/debug", NULL, 1 },
	{ "tracefs", "/sys/kernel/tracing", NULL, 1 },
	{ "bpf", "/sys/fs/bpf", NULL, 1 },
	{ "cgroup2", "/sys/fs/cgroup", NULL, 0 },
};

static void mount_all(void)
{
	struct statfs root;

	if (statfs("/", &root))
		die("statfs");
	is_uml = root.f_type == HOSTFS_MAGIC;
	for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
		const struct mount_row *row = &mounts[i];

		mkdir(row->target, 0755); /* only in /dev is this ever needed */
		/* EBUSY: the kernel has mounted /dev itself. */
		if (mount(row->type, row->target, row->type, 0, row->options) && errno != EBUSY &&
		    !row->if_known)
			die("mount %s on %s", row->type, row->target);
	}
	if (is_uml)
		return;
	if (mount("share", SHARE, "virtiofs", 0, NULL) ||
	    mount(SHARE "/out", "/out", NULL, MS_BIND, NULL))
		die("mount " SHARE);
}

static void make_folders(const char *path)
{
	char copy[4096];

	snprintf(copy, sizeof(copy), "%s/", path);
	for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(copy, 0755);
		*slash = '/';
	}
}

/* What lies below a place that has a tmpfs here (a tree in /tmp) is served as /.bind/N. */
static void mount_binds(void)
{
	char **paths = order_read(SHARE "/binds");
	char source[64];

	for (int i = 0; paths[i]; i++) {
		snprintf(source, sizeof(source), "/.bind/%d", i);
		make_folders(paths[i]);
		if (mount(source, paths[i], NULL, MS_BIND, NULL))
			die("mount %s", paths[i]);
	}
}

static void make_dev_links(void)
{
	static const char *const links[][2] = {
		{ "/proc/self/fd", "/dev/fd" },
		{ "/proc/self/fd/0", "/dev/stdin" },
		{ "/proc/self/fd/1", "/dev/stdout" },
		{ "/proc/self/fd/2", "/dev/stderr" },
	};

	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (symlink(links[i][0], links[i][1]) && errno != EEXIST)
			die("%s", links[i][1]);
}

static void loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request))
		die("bring lo up");
	close(fd);
}

/* The kernel starts with one (maxcpus=1); guest.sh says why. */
static void cpus_online(void)
{
	char path[64];
	int fd;

	for (int cpu = 1;; cpu++) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
		fd = open(path, O_WRONLY);
		if (fd < 0)
			return;
		if (write(fd, "1", 1) != 1)
			die("%s", path);
		close(fd);
	}
}

static void load_module(const char *name)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execl("/sbin/modprobe", "modprobe", name, (char *)NULL);
		die("/sbin/modprobe");
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		fprintf(stderr, "init: modprobe %s failed\n", name); /* the tests will say more */
}

/* The kernel brings the consoles up in its own time, in the order of guest.sh's command line. */
static int console_open(const char *path)
{
	struct termios mode;
	int fd;

	for (int tries = 0; (fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0; tries++) {
		if (tries == 5000)
			die("%s", path);
		usleep(1000);
	}
	if (tcgetattr(fd, &mode))
		die("%s", path);
	cfmakeraw(&mode);
	tcsetattr(fd, TCSANOW, &mode);
	return fd;
}

/* --- the command ---------------------------------------------------------------------------- */

struct stream {
	int pipe, console;
};

static void stream_open(struct stream *stream, const char *console, int *ret_write_end)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		die("pipe");
	/* Only the reading end: non-blocking belongs to the open file, and each end is its own. */
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	stream->pipe = fds[0];
	stream->console = console_open(console);
	*ret_write_end = fds[1];
}

/* One turn: an endless writer must not keep us from the end. The buffer is as large as a pipe. */
static void stream_carry(struct stream *stream)
{
	static char buffer[65536];
	ssize_t bytes = read(stream->pipe, buffer, sizeof(buffer));

	if (bytes > 0)
		write_all(stream->console, buffer, bytes);
	if (bytes == 0) { /* all writers have gone: poll would report it for ever */
		close(stream->pipe);
		stream->pipe = -1;
	}
}

static void command_exec(int out, int err)
{
	char **argv = order_read(SHARE "/argv"), **env = order_read(SHARE "/env");
	char **cwd = order_read(SHARE "/cwd");
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	dup2(open("/dev/null", O_RDONLY), 0);
	dup2(out, 1);
	dup2(err, 2);
	clearenv();
	for (int i = 0; env[i]; i++)
		putenv(env[i]);
	if (chdir(cwd[0])) {
		fprintf(stderr, "vm: no folder %s in the guest\n", cwd[0]);
		_exit(126);
	}
	execvp(argv[0], argv);
	fprintf(stderr, "vm: %s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static pid_t command_start(struct stream *streams)
{
	int out, err;
	pid_t pid;

	stream_open(&streams[0], is_uml ? "/dev/ttyS0" : "/dev/hvc0", &out);
	stream_open(&streams[1], is_uml ? "/dev/ttyS1" : "/dev/hvc1", &err);
	pid = fork();
	if (pid == 0)
		command_exec(out, err);
	if (pid < 0)
		die("fork");
	close(out);
	close(err);
	return pid;
}

static int reap(pid_t command, int *ret_status)
{
	pid_t pid;
	int status, found = 0;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == command) {
			*ret_status = status;
			found = 1;
		}
	}
	return found;
}

/* Carries output until the command has ended (returns 1) or vm.sh says stop (returns 0). */
static int command_wait(pid_t command, struct stream *streams, int orders, int signals,
			int *ret_status)
{
	struct signalfd_siginfo info;

	for (;;) {
		struct pollfd fds[] = {
			{ .fd = streams[0].pipe, .events = POLLIN },
			{ .fd = streams[1].pipe, .events = POLLIN },
			{ .fd = signals, .events = POLLIN },
			{ .fd = orders, .events = POLLIN },
		};

		if (poll(fds, 4, -1) < 0)
			continue;
		for (int i = 0; i < 2; i++)
			if (fds[i].revents)
				stream_carry(&streams[i]);
		if (fds[2].revents && read(signals, &info, sizeof(info)) > 0 &&
		    reap(command, ret_status))
			return 1;
		if (fds[3].revents)
			return 0;
	}
}

static void streams_finish(struct stream *streams)
{
	for (int i = 0; i < 2; i++) {
		if (streams[i].pipe >= 0)
			stream_carry(&streams[i]);
		tcdrain(streams[i].console);
	}
}

static void report_blocked(void)
{
	klogctl(8 /* console level */, NULL, 7);
	sysrq("w");
}

static void report_exit(int ended, int status)
{
	char text[16] = "stopped\n";

	if (ended)
		snprintf(text, sizeof(text), "%d\n",
			 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	else
		report_blocked();
	dmesg_save();
	/* Only /out: a sync of everything would wait for hung devices. */
	syncfs(open("/out", O_RDONLY));
	answer_write(SHARE "/exit", text, strlen(text));
}

int main(void)
{
	struct stream streams[2];
	int orders, signals, ended, status = 0;
	sigset_t child;
	pid_t pid;

	mount_all();
	mount_binds();
	make_dev_links();
	loopback_up();
	sethostname("guest", 5);
	load_module("ublk_drv");
	cpus_online();
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	signals = signalfd(-1, &child, SFD_CLOEXEC);
	pid = command_start(streams);
	orders = console_open(is_uml ? "/dev/ttyS2" : "/dev/hvc2");
	ended = command_wait(pid, streams, orders, signals, &status);
	streams_finish(streams);
	report_exit(ended, status);
	power_off();
}
