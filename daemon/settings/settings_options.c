/* The options of the daemon and of a device, with their words for the manual. Only tables. */
#include "base/log.h"
#include "base/util.h"
#include "daemon/settings/settings.h"
#include "ublk/data_path.h"
#include "ublk/recovery.h"

static const char *const log_level_names[] = { "error", "warn", "info", "debug", NULL };

const struct option settings_daemon_options[] = {
	{ .name = "reactors",
	  .type = OPTION_CPUS,
	  .offset = offsetof(struct daemon_settings, reactors),
	  .def = "auto",
	  .help = "The CPUs that serve devices, with one thread pinned to each. auto: every CPU "
		  "that the daemon may use when it starts. If a CPU is offline or not in the "
		  "daemon's control group, its thread runs on other CPUs until the CPU is "
		  "available again." },
	{ .name = "busy_poll_us",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct daemon_settings, busy_poll_us),
	  .max = 100000,
	  .def = "0",
	  .help = "Microseconds for which a reactor that has just had work polls for more before "
		  "it sleeps. Latency is lower, at the price of CPU time. 0: it sleeps at once." },
	{ .name = "control",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct daemon_settings, control),
	  .min = 1,
	  .max = 107, /* sun_path, unix(7) */
	  .def = SETTINGS_CONTROL_DEFAULT,
	  .help = "Path of the control socket that ublkctl(1) uses. The daemon creates it with "
		  "mode 0600, and its folder if missing (0755). Default of a user who is not "
		  "root: $XDG_RUNTIME_DIR/ublkd/control.sock." },
	{ .name = "state_dir",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct daemon_settings, state_dir),
	  .min = 1,
	  .max = 200,
	  .help = "Folder in which the daemon records its devices, to adopt them after a crash. "
		  "It should be one that a reboot empties. Default: the path of the control "
		  "socket followed by .state; of a user who is not root $XDG_STATE_HOME/ublkd." },
	{ .name = "devices_dir",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct daemon_settings, devices_dir),
	  .min = 1,
	  .max = 200,
	  .help = "Folder of files NAME.yaml with more devices, one or a list in each; an absolute "
		  "path. The daemon reads them in the order of their names after this file, at "
		  "start and at each reload. ublkctl attach --persist writes them. A missing "
		  "folder is as an empty one. Default: none; of a user who is not root "
		  "$XDG_CONFIG_HOME/ublkd/devices.d." },
	{ .name = "stop_timeout",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct daemon_settings, stop_timeout_ns),
	  .min = NS_PER_SEC,
	  .max = 3600 * NS_PER_SEC,
	  .def = "30s",
	  .help = "How long stopping a device, or all of them at exit, may take. Requests that a "
		  "backend has not completed after half of this time are cancelled." },
	{ .name = "open_timeout",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct daemon_settings, open_timeout_ns),
	  .min = NS_PER_SEC,
	  .max = 60 * NS_PER_SEC,
	  .def = "10s",
	  .help = "If opening the backend of a device takes longer than this, the daemon logs the "
		  "device as late and serves it when it opens; up to two seconds longer where a "
		  "timeout of the backend is about to end that with a reason. An upgrade does not "
		  "wait longer: the old daemon takes all devices back. Raise it where opening is "
		  "slow, for example with an encrypted image of a busy cluster." },
	{ .name = "command_timeout",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct daemon_settings, command_timeout_ns),
	  .min = NS_PER_SEC,
	  .max = 3600 * NS_PER_SEC,
	  .def = "30s",
	  .help = "If a command to the kernel driver takes longer than this, the daemon logs it "
		  "with the kernel function in which it waits, and again each time the same "
		  "period has passed. The daemon keeps waiting, because nothing can cancel the "
		  "command; it serves everything else meanwhile." },
	{ .name = "watchdog",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct daemon_settings, watchdog_ns),
	  .max = 3600 * NS_PER_SEC,
	  .def = "10s",
	  .help = "If a reactor has work but has not completed a turn for this long, the daemon "
		  "logs what the reactor is doing, and sends no more watchdog messages to the "
		  "service manager until it continues. At least 1s; 0: off." },
	{ .name = "metrics",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct daemon_settings, metrics),
	  .min = 1,
	  .max = 64,
	  .help = "Address and port of an HTTP server for metrics, such as 127.0.0.1:9740 or "
		  "[::1]:9740: OpenMetrics at /metrics, a page with charts at /. "
		  "Everyone who reaches the address can read them: use a loopback address. "
		  "Default: no server." },
	{ .name = "log_level",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct daemon_settings, log_level),
	  .values = log_level_names,
	  .def = "info",
	  .help = "The lowest level that is logged to stderr. Overridden by the option "
		  "--log-level of ublkd(8)." },
	OPTION_END
};

const struct option settings_device_options[] = {
	{ .name = "name",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct device_options, name),
	  .min = 1,
	  .max = SETTINGS_NAME_MAX,
	  .flags = OPTION_REQUIRED,
	  .help = "Name of the device in commands and logs: letters, digits, dot, underscore and "
		  "dash, not beginning with a dot. Names are unique." },
	{ .name = "id",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct device_options, id),
	  .max = (1u << 20) - 1,
	  .help = "Number of the block device: 3 makes /dev/ublkb3. Default: the first number "
		  "that is free in the kernel." },
	{ .name = "queues",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct device_options, queues),
	  .min = 1,
	  .max = 4096,
	  .def = "1",
	  .help = "Hardware queues, at most one per CPU. They are spread over the reactors." },
	{ .name = "depth",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct device_options, depth),
	  .min = 1,
	  .max = 4096,
	  .def = "128",
	  .help = "Queue depth: the number of requests that each queue can have in flight." },
	{ .name = "block_size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct device_options, block_bytes),
	  .min = 512,
	  .max = BACKEND_BLOCK_BYTES_MAX,
	  .def = "512",
	  .flags = OPTION_POWER_OF_TWO,
	  .help = "Logical block size: the smallest unit of a request." },
	{ .name = "max_io",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct device_options, max_io_bytes),
	  .min = 4096,
	  .max = MIB(32),
	  .def = "512KiB",
	  .help = "Largest request; the kernel splits longer ones. A multiple of 4096. Memory "
		  "for data is at most queues times depth times max_io." },
	{ .name = "read_only",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct device_options, read_only),
	  .def = "false",
	  .help = "Refuse writes." },
	{ .name = "partition_scan",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct device_options, partition_scan),
	  .def = "true",
	  .help = "Whether the kernel looks for partitions when the device starts. no (Linux 7.0): "
		  "the host reads no partition table and makes no nodes of it, for an image "
		  "that is somebody else's; partprobe(8) still does." },
	{ .name = "data_path",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct device_options, data_path),
	  .values = data_path_names,
	  .def = "auto",
	  .help = "How data moves between kernel and backend. copy: the driver copies (any "
		  "kernel). user_copy: the backend copies, without an intermediate buffer "
		  "(backends in memory; Linux 6.5). zero_copy: no copy (files; Linux 6.16). "
		  "auto: the best that backend and kernel support; without CAP_SYS_ADMIN only "
		  "copy." },
	{ .name = "shared_memory",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct device_options, shmem_bytes),
	  .def = "0",
	  .max = 1ull << 40,
	  .help = "How much memory clients may share with the device (Linux 7.1): their direct I/O "
		  "in it is not copied. They hand it over with ublkctl share. 0: none. For the "
		  "backends mem, file, null, pattern and nbd, and stripe, throttle, delay and "
		  "fault over them." },
	{ .name = "batch",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct device_options, batch),
	  .values = batch_choice_names,
	  .def = "auto",
	  .help = "Whether the daemon fetches and commits many requests with one command (Linux "
		  "7.0). auto: on for nbd if the kernel supports it, else off. For other "
		  "backends on gains a little if queues are always deep, and loses if they are "
		  "not." },
	{ .name = "recovery",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct device_options, recovery),
	  .values = recovery_names,
	  .def = "reissue",
	  .help = "What happens to requests when the daemon dies. reissue: all wait for the next "
		  "daemon, and those in flight are sent again (a write may reach the storage "
		  "twice, which is harmless). hold: those in flight fail, new ones wait. fail: "
		  "all fail until the next daemon serves (Linux 6.13). none: all fail, and the "
		  "device must be started again; it is the default, and the only choice, of a "
		  "daemon without CAP_SYS_ADMIN." },
	{ .name = "backend",
	  .type = OPTION_NODE,
	  .offset = offsetof(struct device_options, backend),
	  .flags = OPTION_REQUIRED,
	  .help = "The storage of the device: a map with the key type and the options of that "
		  "type. A filter has the backend below it as its own key backend." },
	OPTION_END
};
