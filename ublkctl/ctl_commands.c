/*
 * The commands that ask one question and print its answer.
 *
 * Happy path: a request is made of the command line, ublkd answers, the answer is printed.
 * Failure modes: a word of the command line that makes no request: EXIT_USAGE; a refusal, or no
 * answer: client.c prints the reason, EXIT_REFUSED. A command that waits for a device has no
 * timeout here: the daemon has its own deadline. share opens the file as whoever runs this may open
 * it, and sends its descriptor along; nothing is sent of what is no memory.
 */
#include "ublkctl/ctl_commands.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "ublkctl/client.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/print/say.h"

const char ublkctl_usage_text[] =
	"usage: ublkctl [--socket PATH] [--json] COMMAND\n"
	"\n"
	"  list                     list all devices\n"
	"  show NAME                show everything about one device\n"
	"  add -f FILE              start the device or devices of a YAML file; - is stdin\n"
	"  del NAME [--force]       stop and remove a device; --force: even when it is in use\n"
	"  attach FILE|DEVICE|URI   make a block device of a file, a block device, a URI (NBD,\n"
	"                           NVMe/TCP, rbd:), or what is in an image: FILE.qcow2,\n"
	"                           qcow2:FILE\n"
	"        [--read-only] [--name NAME] [--queues N]\n"
	"        [--raw]            the bytes of FILE.qcow2 as they are\n"
	"        [--size SIZE] [--backing FILE]   make the image first\n"
	"        [--backing-folder DIR]   where the images below it may be\n"
	"        [--persist]        keep it when ublkd starts again\n"
	"        [--show]           print nothing but its path, /dev/ublkbN\n"
	"  detach NAME|NODE [--force]   stop and remove a device by its name or its path, and "
	"keep\n"
	"                           it no more\n"
	"  create-image FILE --size SIZE   make a qcow2 image (needs no ublkd)\n"
	"        [--backing FILE [--backing-format qcow2|raw]]   over another image; --size has\n"
	"                           the default of its size\n"
	"        [--cluster-size SIZE] [--extended-l2] [--refcount-bits N] [--lazy-refcounts]\n"
	"        [--compat 0.10|1.1] [--data-file FILE [--data-file-raw]]\n"
	"        [--force]          overwrite what is there\n"
	"  s3-gc FILE [--device NAME]   delete the objects of an s3-disk that nothing refers to "
	"any\n"
	"                           more; FILE: as for add, or of ublkd (needs no ublkd)\n"
	"        [--dry-run]        only say what there is\n"
	"  resize NAME [SIZE] [--force]   change the size of a live device: 20GiB, or +1GiB;\n"
	"                           without SIZE: the size of its storage; --force: shrink a\n"
	"                           device that is in use or has data beyond the new end\n"
	"  snapshot list NAME       internal snapshots of a device (qcow2)\n"
	"  snapshot create|delete|apply NAME SNAPSHOT   change them while the device serves;\n"
	"                           delete and apply take an ID too\n"
	"        [--force]          apply: even when the device is in use\n"
	"        [--node PATH]      of this node of the device, as disk/backends/1\n"
	"  cache stats NAME         the caches of a device, and what is under way with them\n"
	"  cache warm NAME          fetch what is not in the cache yet, as long as there is room;\n"
	"                           requests go first, ^C ends it\n"
	"        [--offset BYTES] [--length BYTES]   of this range alone: 1GiB\n"
	"  cache drop NAME          forget all that the storage behind the cache has too\n"
	"        [--node PATH]      warm, drop: of this cache of the device, as disk/backends/1\n"
	"  cache store FILE         what the store of a cache has that its origin lacks (needs no\n"
	"                           ublkd); --discard: forget it; --force: write it over the\n"
	"                           origin, though that was changed without the cache\n"
	"  share NAME FILE          memory of a client, a file in tmpfs or hugetlbfs: direct I/O\n"
	"                           in it is not copied; prints the number of the buffer\n"
	"        [--read-only]      for writes to the device only\n"
	"  unshare NAME BUFFER      take it back\n"
	"  gc [ID ...] [--remove]   list devices in the kernel that no process serves; --remove\n"
	"                           removes them\n"
	"  throttle NAME [KEY=VALUE ...]   show or change the limits of a device\n"
	"  stats [NAME]             I/O counters of devices since their start\n"
	"        [--watch SECONDS [--count N]]   rates per second of each interval\n"
	"        [--layers]         latency by layer: throttle, daemon, backend\n"
	"  top [NAME]               live view of devices, layers and reactors; ? is help, q quits\n"
	"        [--interval SECONDS] [--count N]\n"
	"        [--batch]          print text reports\n"
	"  inflight [NAME]          list every I/O in the daemon, the oldest first\n"
	"  why-stuck [NAME]         where the oldest I/O of each device waits, and what to do\n"
	"  flight [FILE] [--count N] the last events of all I/Os; FILE: the file of one reactor\n"
	"        [--perfetto OUT]   write a trace for ui.perfetto.dev (needs no ublkd)\n"
	"  histogram get NAME       show latencies; [--layer total|throttle|daemon|backend]\n"
	"        [--op read|write|flush|discard|write_zeroes] [--qmp-json]\n"
	"  histogram set NAME [--boundaries 10us,100us,...] [--boundaries-read ...]\n"
	"        [--boundaries-write ...] [--boundaries-flush ...] [--op OP]\n"
	"                           reset and use these bins; without a list: remove the bins\n"
	"  histogram reset NAME [--op OP]   reset the histogram\n"
	"  upgrade [PATH]           let a new program take over all devices while they are in use\n"
	"  reactors                 statistics of the reactor threads\n"
	"  nbd-info URI             exports of an NBD server, their features, and the device that\n"
	"        [--list]           ublkd would create; --list: all exports, even if URI names\n"
	"                           one (needs no ublkd)\n"
	"  nvme-discover HOST[:PORT]|URI   subsystems of an NVMe/TCP target, and the command that\n"
	"        [--host-nqn NQN]   attaches each (needs no ublkd)\n"
	"        [--timeout SECONDS]\n"
	"  doctor                   check whether this machine can run ublkd (needs no ublkd)\n"
	"  udev-name NODE [--state-dir DIR]   the device name of ublkbN (needs no ublkd)\n"
	"  udev-owner NODE [--set]  whose device ublkbN or ublkcN is, if a user's; --set: give\n"
	"                           the node to that user (needs no ublkd)\n"
	"  version                  versions of ublkd and ublkctl\n"
	"\n"
	"  -s, --socket PATH        control socket of ublkd (default " UBLKCTL_SOCKET_DEFAULT ",\n"
	"                           of users $XDG_RUNTIME_DIR/ublkd/control.sock)\n"
	"  -j, --json               print the answer as JSON\n"
	"  -V, --version            print the version of ublkctl\n"
	"  -h, --help               print this help\n";

void ublkctl_usage_error(const char *what, const char *value)
{
	say_to(stderr, "ublkctl: %s%s\n", what, value);
	fputs(ublkctl_usage_text, stderr);
	exit(EXIT_USAGE);
}

/* ---- list, show ---- */

enum exit_code ublkctl_list(const struct ublkctl_args *a)
{
	return client_ask_and_print(a, client_request("list", NULL), CLIENT_SECONDS, print_list);
}

enum exit_code ublkctl_show(const struct ublkctl_args *a)
{
	return client_ask_and_print(a, client_request("show", a->name), CLIENT_SECONDS,
				    print_device);
}

/* ---- add, del ---- */

long ctl_yaml_read(const char *path, char text[CTL_YAML_BYTES_MAX + 1])
{
	const size_t max = CTL_YAML_BYTES_MAX;
	bool is_stdin = strcmp(path, "-") == 0;
	FILE *file = is_stdin ? stdin : fopen(path, "re");
	size_t bytes;

	if (!file) {
		say_to(stderr, "ublkctl: %s: %m\n", path);
		return -1;
	}
	bytes = fread(text, 1, max + 1, file);
	if (ferror(file))
		say_to(stderr, "ublkctl: %s: %m\n", path);
	else if (bytes > max)
		say_to(stderr, "ublkctl: %s: longer than 1 MiB\n", path);
	if (ferror(file))
		bytes = max + 1;
	if (!is_stdin)
		fclose(file);
	return bytes > max ? -1 : (long)bytes;
}

static void print_added(const json_t *data)
{
	client_say_notes(stderr, "ublkctl", data);
}

enum exit_code ublkctl_add(const struct ublkctl_args *a)
{
	static char text[CTL_YAML_BYTES_MAX + 1];
	const char *file = strcmp(a->file, "-") == 0 ? "<stdin>" : a->file;
	long bytes = ctl_yaml_read(a->file, text);
	json_t *request = client_request("add", NULL), *yaml;

	yaml = bytes < 0 ? NULL : json_stringn(text, (size_t)bytes);
	if (bytes >= 0 && !yaml)
		say_to(stderr, "ublkctl: %s: not valid UTF-8\n", file);
	if (!yaml) {
		json_decref(request);
		return EXIT_REFUSED;
	}
	client_set_text(&request, "file", file);
	json_object_set_new(request, "yaml", yaml);
	return client_ask_and_print(a, request, 0, print_added);
}

enum exit_code ublkctl_del(const struct ublkctl_args *a)
{
	json_t *request = client_request("del", a->name);

	json_object_set_new(request, "force", json_boolean(a->force));
	return client_ask_and_print(a, request, 0, NULL);
}

/* ---- resize ---- */

enum exit_code ublkctl_resize(const struct ublkctl_args *a)
{
	json_t *request = client_request("resize", a->name);

	if (a->words[0] && a->words[1])
		ublkctl_usage_error("resize takes one size, unexpected: ", a->words[1]);
	json_object_set_new(request, "force", json_boolean(a->force));
	client_set_text(&request, "size", a->words[0]);
	return client_ask_and_print(a, request, 0, print_resize);
}

/* ---- share, unshare ---- */

static void print_shared(const json_t *data)
{
	say_to(stdout, "%llu\n", client_number(data, "buffer"));
}

/* Opening a device or a pipe could do something, or wait: O_NONBLOCK. */
static int open_memory(const char *path, bool read_only)
{
	int flags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK, fd;

	fd = open(path, flags | (read_only ? O_RDONLY : O_RDWR));
	if (fd < 0) {
		say_to(stderr, "ublkctl: %s: %s\n", path, strerror(errno));
		return -1;
	}
	if (fcntl(fd, F_GET_SEALS) >= 0)
		return fd;
	say_to(stderr,
	       "ublkctl: %s is no memory: expected a file in tmpfs (as below /dev/shm) or in "
	       "hugetlbfs\n",
	       path);
	close(fd);
	return -1;
}

enum exit_code ublkctl_share(const struct ublkctl_args *a)
{
	json_t *request = client_request("share", a->name);
	enum exit_code code;
	int fd;

	if (!a->words[0])
		ublkctl_usage_error("the file to share is missing after ", "share NAME");
	if (a->words[1])
		ublkctl_usage_error("share takes one file, unexpected: ", a->words[1]);
	fd = open_memory(a->words[0], a->read_only);
	if (fd < 0) {
		json_decref(request);
		return EXIT_REFUSED;
	}
	if (a->read_only)
		json_object_set_new(request, "read_only", json_true());
	code = client_send_fd_and_print(a, request, fd, print_shared);
	close(fd);
	return code;
}

enum exit_code ublkctl_unshare(const struct ublkctl_args *a)
{
	json_t *request = client_request("unshare", a->name);

	if (!a->words[0])
		ublkctl_usage_error("the number of the buffer is missing after ", "unshare NAME");
	if (a->words[1])
		ublkctl_usage_error("unshare takes one buffer, unexpected: ", a->words[1]);
	client_set_text(&request, "buffer", a->words[0]);
	return client_ask_and_print(a, request, 0, NULL);
}

/* ---- throttle ---- */

/* NULL: a word is no KEY=VALUE. */
static json_t *key_values(char **words)
{
	json_t *all = json_object();

	for (; *words; words++) {
		const char *value = strchr(*words, '=');
		json_t *text = value ? json_string(value + 1) : NULL;
		char key[64];

		snprintf(key, sizeof(key), "%.*s", value ? (int)(value - *words) : 0, *words);
		if (json_object_set_new(all, key, text) < 0) {
			json_decref(all);
			return NULL;
		}
	}
	return all;
}

enum exit_code ublkctl_throttle(const struct ublkctl_args *a)
{
	json_t *request = client_request("throttle", a->name), *values = key_values(a->words);

	if (!values)
		ublkctl_usage_error("throttle takes only KEY=VALUE after the name", "");
	if (json_object_size(values) > 0)
		json_object_set(request, "set", values);
	json_decref(values);
	return client_ask_and_print(a, request, CLIENT_SECONDS, print_throttle);
}

/* ---- gc ---- */

/* NULL, with the reason printed: a word is no number. */
static json_t *parse_ids(char **words)
{
	json_t *all = json_array();

	for (; *words; words++) {
		char *end;
		unsigned long id = strtoul(*words, &end, 10);

		if ((*words)[0] < '0' || (*words)[0] > '9' || *end || id >= INT32_MAX) {
			say_to(stderr,
			       "ublkctl: gc takes numbers of devices, as N in /dev/ublkcN, not "
			       "%s\n",
			       *words);
			json_decref(all);
			return NULL;
		}
		json_array_append_new(all, json_integer((json_int_t)id));
	}
	return all;
}

/* EXIT_REFUSED when one could not be removed, or is none. */
enum exit_code ublkctl_gc(const struct ublkctl_args *a)
{
	json_t *ids = parse_ids(a->words), *request, *data;
	enum exit_code code;

	if (!ids)
		return EXIT_USAGE;
	request = client_request("gc", NULL);
	json_object_set_new(request, "remove", json_boolean(a->remove));
	json_object_set_new(request, "ids", ids);
	code = client_ask(a->socket_path, request, 0, &data);
	if (code != EXIT_DONE)
		return code;
	if (a->json)
		print_json(data);
	else
		print_orphans(data);
	if (a->remove && client_number(data, "left") > 0)
		code = EXIT_REFUSED;
	json_decref(data);
	return code;
}

/* ---- the daemon ---- */

enum exit_code ublkctl_inflight(const struct ublkctl_args *a)
{
	return client_ask_and_print(a, client_request("inflight", a->name), CLIENT_SECONDS,
				    print_inflight);
}

enum exit_code ublkctl_reactors(const struct ublkctl_args *a)
{
	return client_ask_and_print(a, client_request("reactors", NULL), CLIENT_SECONDS,
				    print_reactors);
}

static void print_upgrade(const json_t *data)
{
	say_to(stdout, "upgraded to %s, pid %llu: %llu devices, pause %.1f ms\n",
	       client_text(data, "version"), client_number(data, "pid"),
	       client_number(data, "devices"), json_real_value(json_object_get(data, "pause_ms")));
}

enum exit_code ublkctl_upgrade(const struct ublkctl_args *a)
{
	char path[PATH_MAX];
	json_t *request;

	if (a->name && !realpath(a->name, path)) {
		say_to(stderr, "ublkctl: %s: %m\n", a->name);
		return EXIT_REFUSED;
	}
	request = client_request("upgrade", NULL);
	client_set_text(&request, "path", a->name ? path : NULL);
	return client_ask_and_print(a, request, 0, print_upgrade);
}

static void print_version(const json_t *data)
{
	say_to(stdout, "ublkctl %s\n", UBLKD_VERSION);
	say_to(stdout, "ublkd %s\n", client_text(data, "version"));
}

enum exit_code ublkctl_version(const struct ublkctl_args *a)
{
	return client_ask_and_print(a, client_request("version", NULL), CLIENT_SECONDS,
				    print_version);
}
