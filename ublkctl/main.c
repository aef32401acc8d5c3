/*
 * ublkctl: the command line. Each command is a row of a table.
 *
 * Happy path: options, a command, one question to ublkd, its answer printed. Failure modes: a wrong
 * command line is exit code 2; whatever ublkd or the way to it refuses is exit code 1, with words.
 */
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ublkctl/client.h"
#include "ublkctl/ctl_flight.h"
#include "ublkctl/ctl_inflight.h"
#include "ublkctl/ctl_gc.h"
#include "ublkctl/ctl_histogram.h"
#include "ublkctl/ctl_nbd.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/ctl_resize.h"
#include "ublkctl/ctl_stats.h"
#include "ublkctl/ctl_stuck.h"
#include "ublkctl/top/top.h"
#include "ublkctl/ctl_udev.h"
#include "ublkctl/doctor.h"

#define SOCKET_DEFAULT "/run/ublkd/control.sock"
#define FILE_BYTES_MAX (1u << 20)
#define WATCH_SECONDS_MIN 0.05
#define WATCH_SECONDS_MAX 86400.0

struct args {
	const char *socket_path, *name, *file, *perfetto, *state_dir;
	bool json, force, remove;
	bool list_all;
	double watch_seconds, interval;
	unsigned long count;
	char **words; /* behind the name, NULL at the end */
	bool layers, batch;
	struct ctl_histogram_params histogram; /* its own options and action */
};

static const char usage_text[] =
	"usage: ublkctl [--socket PATH] [--json] COMMAND\n"
	"\n"
	"  list                     list all devices\n"
	"  show NAME                show everything about one device\n"
	"  add -f FILE              start the device or devices of a YAML file; - is stdin\n"
	"  del NAME [--force]       stop and remove a device; --force: even when it is in use\n"
	"  resize NAME [SIZE] [--force]   change the size of a live device: 20GiB, or +1GiB;\n"
	"                           without SIZE: the size of its storage; --force: shrink a\n"
	"                           device that is in use or has data beyond the new end\n"
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
	"  doctor                   check whether this machine can run ublkd (needs no ublkd)\n"
	"  udev-name NODE [--state-dir DIR]   the device name of ublkbN (needs no ublkd)\n"
	"  version                  versions of ublkd and ublkctl\n"
	"\n"
	"  -s, --socket PATH        control socket of ublkd (default " SOCKET_DEFAULT ")\n"
	"  -j, --json               print the answer as JSON\n"
	"  -V, --version            print the version of ublkctl\n"
	"  -h, --help               print this help\n";

enum {
	OPT_FORCE = 256,
	OPT_REMOVE,
	OPT_LIST,
	OPT_MAP,
	OPT_PERFETTO,
	OPT_STATE_DIR,
	OPT_LAYERS,
	OPT_INTERVAL,
	OPT_BATCH,
	OPT_LAYER,
	OPT_OP,
	OPT_QMP_JSON,
	OPT_BOUNDARIES, /* and those of enum ctl_boundaries after it */
};

static const struct option options[] = {
	{ "socket", required_argument, NULL, 's' },
	{ "json", no_argument, NULL, 'j' },
	{ "file", required_argument, NULL, 'f' },
	{ "force", no_argument, NULL, OPT_FORCE },
	{ "remove", no_argument, NULL, OPT_REMOVE },
	{ "list", no_argument, NULL, OPT_LIST },
	{ "map", no_argument, NULL, OPT_MAP },
	{ "watch", required_argument, NULL, 'w' },
	{ "count", required_argument, NULL, 'n' },
	{ "perfetto", required_argument, NULL, OPT_PERFETTO },
	{ "state-dir", required_argument, NULL, OPT_STATE_DIR },
	{ "layers", no_argument, NULL, OPT_LAYERS },
	{ "interval", required_argument, NULL, OPT_INTERVAL },
	{ "batch", no_argument, NULL, OPT_BATCH },
	{ "layer", required_argument, NULL, OPT_LAYER },
	{ "op", required_argument, NULL, OPT_OP },
	{ "qmp-json", no_argument, NULL, OPT_QMP_JSON },
	{ "boundaries", required_argument, NULL, OPT_BOUNDARIES + CTL_BOUNDARIES_ALL },
	{ "boundaries-read", required_argument, NULL, OPT_BOUNDARIES + CTL_BOUNDARIES_READ },
	{ "boundaries-write", required_argument, NULL, OPT_BOUNDARIES + CTL_BOUNDARIES_WRITE },
	{ "boundaries-flush", required_argument, NULL, OPT_BOUNDARIES + CTL_BOUNDARIES_FLUSH },
	{ "version", no_argument, NULL, 'V' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

_Noreturn static void usage_error(const char *what, const char *value)
{
	fprintf(stderr, "ublkctl: %s%s\n%s", what, value, usage_text);
	exit(EXIT_USAGE);
}

/* ---- commands ---- */

static enum exit_code ask(const struct args *a, json_t *request, int seconds, json_t **ret_data)
{
	return client_ask(a->socket_path, request, seconds, ret_data);
}

static enum exit_code ask_and_print(const struct args *a, json_t *request, int seconds,
				    void (*print)(const json_t *data))
{
	enum exit_code code;
	json_t *data;

	code = ask(a, request, seconds, &data);
	if (code != EXIT_DONE)
		return code;
	if (a->json)
		ctl_print_json(data);
	else
		print(data);
	json_decref(data);
	return EXIT_DONE;
}

static enum exit_code list(const struct args *a)
{
	return ask_and_print(a, json_pack("{s:s}", "command", "list"), CLIENT_SECONDS,
			     ctl_print_list);
}

static enum exit_code show(const struct args *a)
{
	return ask_and_print(a, json_pack("{s:s, s:s}", "command", "show", "name", a->name),
			     CLIENT_SECONDS, ctl_print_device);
}

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

static enum exit_code throttle(const struct args *a)
{
	json_t *request = json_pack("{s:s, s:s}", "command", "throttle", "name", a->name);
	json_t *values = key_values(a->words);

	if (!values)
		usage_error("throttle takes only KEY=VALUE after the name", "");
	if (json_object_size(values) > 0)
		json_object_set(request, "set", values);
	json_decref(values);
	return ask_and_print(a, request, CLIENT_SECONDS, ctl_print_throttle);
}

static enum exit_code reactors(const struct args *a)
{
	return ask_and_print(a, json_pack("{s:s}", "command", "reactors"), CLIENT_SECONDS,
			     ctl_print_reactors);
}

static void print_nothing(const json_t *data)
{
	(void)data;
}

static enum exit_code del(const struct args *a)
{
	json_t *request =
		json_pack("{s:s, s:s, s:b}", "command", "del", "name", a->name, "force", a->force);

	/* The daemon has a deadline of its own. */
	return ask_and_print(a, request, 0, print_nothing);
}

static enum exit_code resize(const struct args *a)
{
	struct ctl_resize_params params = {
		.socket_path = a->socket_path,
		.name = a->name,
		.size = a->words[0],
		.force = a->force,
		.json = a->json,
	};

	if (a->words[0] && a->words[1])
		usage_error("resize takes one size, unexpected: ", a->words[1]);
	return ctl_resize(&params);
}

static enum exit_code gc(const struct args *a)
{
	return ctl_gc(a->socket_path, a->words, a->remove, a->json);
}

/* Returns the bytes read, or -1 with the reason printed. */
static long read_file(const char *path, char *text, size_t max)
{
	bool is_stdin = strcmp(path, "-") == 0;
	FILE *file = is_stdin ? stdin : fopen(path, "re");
	size_t bytes;

	if (!file) {
		fprintf(stderr, "ublkctl: %s: %m\n", path);
		return -1;
	}
	bytes = fread(text, 1, max + 1, file);
	if (ferror(file))
		fprintf(stderr, "ublkctl: %s: %m\n", path);
	else if (bytes > max)
		fprintf(stderr, "ublkctl: %s: longer than 1 MiB\n", path);
	if (ferror(file))
		bytes = max + 1;
	if (!is_stdin)
		fclose(file);
	return bytes > max ? -1 : (long)bytes;
}

static enum exit_code add(const struct args *a)
{
	static char text[FILE_BYTES_MAX + 1];
	const char *file = strcmp(a->file, "-") == 0 ? "<stdin>" : a->file;
	long bytes = read_file(a->file, text, FILE_BYTES_MAX);
	json_t *yaml;

	if (bytes < 0)
		return EXIT_REFUSED;
	yaml = json_stringn(text, (size_t)bytes);
	if (!yaml) {
		fprintf(stderr, "ublkctl: %s: not valid UTF-8\n", file);
		return EXIT_REFUSED;
	}
	return ask_and_print(
		a, json_pack("{s:s, s:s, s:o}", "command", "add", "file", file, "yaml", yaml), 0,
		print_nothing);
}

static enum exit_code stats(const struct args *a)
{
	struct ctl_stats_params params = {
		.socket_path = a->socket_path,
		.name = a->name,
		.json = a->json,
		.watch_seconds = a->watch_seconds,
		.count = a->count,
		.layers = a->layers,
	};

	if (a->layers && a->watch_seconds > 0)
		usage_error("--layers cannot be combined with --watch", "");
	if (a->count && !(a->watch_seconds > 0))
		usage_error("--count needs --watch", "");
	return ctl_stats(&params);
}

static enum exit_code top(const struct args *a)
{
	struct ctl_top_params params = {
		.socket_path = a->socket_path,
		.name = a->name,
		.interval = a->interval,
		.batch = a->batch,
		.count = a->count,
	};

	if (a->json)
		usage_error("top has no --json; use stats --watch", "");
	return ctl_top(&params);
}

static json_t *inflight_request(const struct args *a)
{
	return a->name ? json_pack("{s:s, s:s}", "command", "inflight", "name", a->name)
		       : json_pack("{s:s}", "command", "inflight");
}

static enum exit_code inflight(const struct args *a)
{
	return ask_and_print(a, inflight_request(a), CLIENT_SECONDS, ctl_print_inflight);
}

static enum exit_code why_stuck(const struct args *a)
{
	return ctl_why_stuck(a->socket_path, a->name, a->json);
}

static enum exit_code flight(const struct args *a)
{
	struct ctl_flight_params params = {
		.socket_path = a->socket_path,
		.file = a->name,
		.perfetto = a->perfetto,
		.count = a->count,
		.json = a->json,
	};

	return ctl_flight(&params);
}

static enum exit_code histogram(const struct args *a)
{
	struct ctl_histogram_params params = a->histogram;

	params.socket_path = a->socket_path;
	params.name = a->name;
	params.json = a->json;
	return ctl_histogram(&params);
}

static void print_upgrade(const json_t *data)
{
	const char *now = json_string_value(json_object_get(data, "version"));

	printf("upgraded to %s, pid %lld: %lld devices, pause %.1f ms\n", now ? now : "?",
	       (long long)json_integer_value(json_object_get(data, "pid")),
	       (long long)json_integer_value(json_object_get(data, "devices")),
	       json_real_value(json_object_get(data, "pause_ms")));
}

static enum exit_code upgrade(const struct args *a)
{
	char path[PATH_MAX];
	json_t *request = json_pack("{s:s}", "command", "upgrade");

	if (a->name && !realpath(a->name, path)) {
		fprintf(stderr, "ublkctl: %s: %m\n", a->name);
		json_decref(request);
		return EXIT_REFUSED;
	}
	if (a->name)
		json_object_set_new(request, "path", json_string(path));
	/* The daemon has deadlines of its own. */
	return ask_and_print(a, request, 0, print_upgrade);
}

static enum exit_code nbd_info(const struct args *a)
{
	return ctl_nbd_info(a->name, a->list_all, a->json);
}

static enum exit_code doctor(const struct args *a)
{
	return doctor_run(a->json);
}

static enum exit_code udev_name(const struct args *a)
{
	return ctl_udev_name(a->name, a->state_dir);
}

static void print_version(const json_t *data)
{
	const char *other = json_string_value(json_object_get(data, "version"));

	printf("ublkctl %s\nublkd %s\n", UBLKD_VERSION, other ? other : "?");
}

static enum exit_code version(const struct args *a)
{
	return ask_and_print(a, json_pack("{s:s}", "command", "version"), CLIENT_SECONDS,
			     print_version);
}

/* ---- the command line ---- */

enum name_use { NAME_NONE, NAME_NEEDED, NAME_OPTIONAL, NAME_IS_URI };

static const struct command {
	const char *name;
	enum exit_code (*fn)(const struct args *a);
	enum name_use name_use;
	/* letters: F: --force, R: --remove, L: --list, i: --interval, b: --batch, P: --perfetto,
	 * y: --layers, S: --state-dir, h: of histogram, +: more words */
	const char *options;
} commands[] = {
	{ "list", list, NAME_NONE, "" },
	{ "show", show, NAME_NEEDED, "" },
	{ "add", add, NAME_NONE, "f" },
	{ "del", del, NAME_NEEDED, "F" },
	{ "resize", resize, NAME_NEEDED, "F+" },
	{ "gc", gc, NAME_NONE, "R+" },
	{ "stats", stats, NAME_OPTIONAL, "wny" },
	{ "top", top, NAME_OPTIONAL, "nib" },
	{ "histogram", histogram, NAME_NEEDED, "h" },
	{ "throttle", throttle, NAME_NEEDED, "+" },
	{ "inflight", inflight, NAME_OPTIONAL, "" },
	{ "why-stuck", why_stuck, NAME_OPTIONAL, "" },
	{ "flight", flight, NAME_OPTIONAL, "nP" },
	{ "upgrade", upgrade, NAME_OPTIONAL, "" },
	{ "reactors", reactors, NAME_NONE, "" },
	{ "nbd-info", nbd_info, NAME_IS_URI, "L" },
	{ "doctor", doctor, NAME_NONE, "" },
	{ "udev-name", udev_name, NAME_NEEDED, "S" },
	{ "version", version, NAME_NONE, "" },
};

static double parse_seconds(const char *word)
{
	char *end;
	double seconds = strtod(word, &end);

	if (end == word || *end || !(seconds >= WATCH_SECONDS_MIN && seconds <= WATCH_SECONDS_MAX))
		usage_error("an interval is a number of seconds, at least 0.05, not ", word);
	return seconds;
}

static unsigned long parse_count(const char *word)
{
	char *end;
	unsigned long count = strtoul(word, &end, 10);

	if (end == word || *end || word[0] == '-' || count == 0)
		usage_error("--count needs a number of at least 1, not ", word);
	return count;
}

/* Returns whether opt is one of them. */
static bool parse_histogram_option(int opt, struct ctl_histogram_params *h)
{
	if (opt == OPT_LAYER)
		h->layer = optarg;
	else if (opt == OPT_OP)
		h->op = optarg;
	else if (opt == OPT_QMP_JSON)
		h->qmp_json = true;
	else if (opt >= OPT_BOUNDARIES && opt < OPT_BOUNDARIES + CTL_BOUNDARIES_NR)
		h->boundaries[opt - OPT_BOUNDARIES] = optarg;
	else
		return false;
	return true;
}

/* used: letters of the options given so far that belong to a command. */
static void parse_option(int opt, struct args *a, char *used)
{
	switch (opt) {
	case 's':
		a->socket_path = optarg;
		return;
	case 'j':
		a->json = true;
		return;
	case 'V':
		printf("ublkctl %s\n", UBLKD_VERSION);
		exit(EXIT_DONE);
	case 'h':
		fputs(usage_text, stdout);
		exit(EXIT_DONE);
	case 'f':
		a->file = optarg;
		break;
	case OPT_FORCE:
		a->force = true;
		opt = 'F';
		break;
	case OPT_REMOVE:
		a->remove = true;
		opt = 'R';
		break;
	case OPT_LIST:
		a->list_all = true;
		opt = 'L';
		break;
	case OPT_MAP:
		usage_error("--map was removed: nbdinfo of libnbd prints allocated ranges: ",
			    "nbdinfo --map URI");
	case OPT_PERFETTO:
		a->perfetto = optarg;
		opt = 'P';
		break;
	case OPT_STATE_DIR:
		a->state_dir = optarg;
		opt = 'S';
		break;
	case 'w':
		a->watch_seconds = parse_seconds(optarg);
		break;
	case OPT_INTERVAL:
		a->interval = parse_seconds(optarg);
		opt = 'i';
		break;
	case OPT_BATCH:
		a->batch = true;
		opt = 'b';
		break;
	case 'n':
		a->count = parse_count(optarg);
		break;
	case OPT_LAYERS:
		a->layers = true;
		opt = 'y';
		break;
	default:
		if (!parse_histogram_option(opt, &a->histogram)) /* told by getopt_long */
			exit(EXIT_USAGE);
		opt = 'h';
		break;
	}
	if (!strchr(used, opt))
		used[strlen(used)] = (char)opt;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; name && i < ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	usage_error(name ? "unknown command: " : "the command is missing", name ? name : "");
}

static void check_fit(const struct command *c, const struct args *a, const char *used)
{
	for (; *used; used++)
		if (!strchr(c->options, *used))
			usage_error("an option does not apply to ", c->name);
	if (c->name_use == NAME_NEEDED && !a->name)
		usage_error("the device name is missing after ", c->name);
	if (c->name_use == NAME_IS_URI && !a->name)
		usage_error("a URI is missing after ", c->name);
	if (strchr(c->options, 'f') && !a->file)
		usage_error("-f FILE is missing after ", c->name);
}

int main(int argc, char **argv)
{
	struct args a = { .socket_path = SOCKET_DEFAULT, .state_dir = CTL_STATE_DIR_DEFAULT };
	const struct command *c;
	char used[16] = "";
	int opt;

	/* Options may stand anywhere: getopt_long moves them to the front. */
	while ((opt = getopt_long(argc, argv, "s:jf:w:n:Vh", options, NULL)) != -1)
		parse_option(opt, &a, used);
	c = find_command(argv[optind]);
	optind++;
	if (c->fn == histogram) {
		if (optind >= argc)
			usage_error("get, set or reset is missing after ", c->name);
		a.histogram.action = argv[optind++];
	}
	if (c->name_use != NAME_NONE && optind < argc)
		a.name = argv[optind++];
	a.words = argv + optind;
	if (optind < argc && !strchr(c->options, '+'))
		usage_error("unexpected argument: ", argv[optind]);
	check_fit(c, &a, used);
	return c->fn(&a);
}
