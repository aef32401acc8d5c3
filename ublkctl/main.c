/*
 * ublkctl: the command line. Each command is a row of a table.
 *
 * Happy path: options, a command, its function. Failure modes: a wrong command line is exit code 2;
 * a refusal by ublkd, or no answer, is exit code 1; the reason is printed on stderr.
 */
#include <getopt.h>
#include <limits.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "host/user_paths.h"
#include "ublkctl/ctl_commands.h"
#include "ublkctl/print/say.h"

#define INTERVAL_SECONDS_MIN 0.05
#define INTERVAL_SECONDS_MAX 86400.0

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
	OPT_READ_ONLY,
	OPT_NAME,
	OPT_QUEUES,
	OPT_SHOW,
	OPT_PERSIST,
	OPT_HOST_NQN,
	OPT_TIMEOUT,
	OPT_NODE,
	OPT_OFFSET,
	OPT_LENGTH,
	OPT_DEVICE,
	OPT_DRY_RUN,
	OPT_RAW,
	OPT_BACKING_FOLDER,
	OPT_SIZE,
	OPT_BACKING,
	OPT_BACKING_FORMAT,
	OPT_CLUSTER_SIZE,
	OPT_EXTENDED_L2,
	OPT_REFCOUNT_BITS,
	OPT_COMPAT,
	OPT_LAZY_REFCOUNTS,
	OPT_DATA_FILE,
	OPT_DATA_FILE_RAW,
	OPT_SET,
	OPT_DISCARD,
	OPT_BOUNDARIES, /* and those of enum ublkctl_boundaries after it */
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
	{ "read-only", no_argument, NULL, OPT_READ_ONLY },
	{ "name", required_argument, NULL, OPT_NAME },
	{ "queues", required_argument, NULL, OPT_QUEUES },
	{ "show", no_argument, NULL, OPT_SHOW },
	{ "persist", no_argument, NULL, OPT_PERSIST },
	{ "host-nqn", required_argument, NULL, OPT_HOST_NQN },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "node", required_argument, NULL, OPT_NODE },
	{ "offset", required_argument, NULL, OPT_OFFSET },
	{ "length", required_argument, NULL, OPT_LENGTH },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "dry-run", no_argument, NULL, OPT_DRY_RUN },
	{ "discard", no_argument, NULL, OPT_DISCARD },
	{ "raw", no_argument, NULL, OPT_RAW },
	{ "backing-folder", required_argument, NULL, OPT_BACKING_FOLDER },
	{ "size", required_argument, NULL, OPT_SIZE },
	{ "backing", required_argument, NULL, OPT_BACKING },
	{ "backing-format", required_argument, NULL, OPT_BACKING_FORMAT },
	{ "cluster-size", required_argument, NULL, OPT_CLUSTER_SIZE },
	{ "extended-l2", no_argument, NULL, OPT_EXTENDED_L2 },
	{ "refcount-bits", required_argument, NULL, OPT_REFCOUNT_BITS },
	{ "compat", required_argument, NULL, OPT_COMPAT },
	{ "lazy-refcounts", no_argument, NULL, OPT_LAZY_REFCOUNTS },
	{ "data-file", required_argument, NULL, OPT_DATA_FILE },
	{ "data-file-raw", no_argument, NULL, OPT_DATA_FILE_RAW },
	{ "set", no_argument, NULL, OPT_SET },
	{ "boundaries", required_argument, NULL, OPT_BOUNDARIES + BOUNDARIES_ALL },
	{ "boundaries-read", required_argument, NULL, OPT_BOUNDARIES + BOUNDARIES_READ },
	{ "boundaries-write", required_argument, NULL, OPT_BOUNDARIES + BOUNDARIES_WRITE },
	{ "boundaries-flush", required_argument, NULL, OPT_BOUNDARIES + BOUNDARIES_FLUSH },
	{ "version", no_argument, NULL, 'V' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

enum name_use {
	NAME_NONE,
	NAME_NEEDED,
	NAME_OPTIONAL,
	NAME_IS_URI,
	NAME_IS_WORD,
	NAME_IS_TARGET,
	NAME_IS_FILE,
	NAME_IS_CONFIGURATION,
	NAME_OR_NODE
};

static const struct command {
	const char *name;
	enum exit_code (*fn)(const struct ublkctl_args *a);
	enum name_use name_use;
	/* letters: F: --force, R: --remove, L: --list, i: --interval, b: --batch, P: --perfetto,
	 * y: --layers, S: --state-dir, h: of histogram, a: of attach, d: of nvme-discover,
	 * I: of create-image, B: of that and of attach, N: --node, O: of cache warm, D: --discard,
	 * r:
	 * --read-only, g: of s3-gc, o: of udev-owner, A: an action stands before the name, +: more
	 * words */
	const char *options;
} commands[] = {
	{ "list", ublkctl_list, NAME_NONE, "" },
	{ "show", ublkctl_show, NAME_NEEDED, "" },
	{ "add", ublkctl_add, NAME_NONE, "f" },
	{ "del", ublkctl_del, NAME_NEEDED, "F" },
	{ "attach", ublkctl_attach, NAME_IS_WORD, "aBr" },
	{ "detach", ublkctl_detach, NAME_OR_NODE, "F" },
	{ "create-image", ublkctl_create_image, NAME_IS_FILE, "BIF" },
	{ "s3-gc", ublkctl_s3_gc, NAME_IS_CONFIGURATION, "g" },
	{ "resize", ublkctl_resize, NAME_NEEDED, "F+" },
	{ "snapshot", ublkctl_snapshot, NAME_NEEDED, "FNA+" },
	{ "cache", ublkctl_cache, NAME_NEEDED, "NOAFD" },
	{ "share", ublkctl_share, NAME_NEEDED, "r+" },
	{ "unshare", ublkctl_unshare, NAME_NEEDED, "+" },
	{ "gc", ublkctl_gc, NAME_NONE, "R+" },
	{ "stats", ublkctl_stats, NAME_OPTIONAL, "wny" },
	{ "top", ublkctl_top, NAME_OPTIONAL, "nib" },
	{ "histogram", ublkctl_histogram, NAME_NEEDED, "hA" },
	{ "throttle", ublkctl_throttle, NAME_NEEDED, "+" },
	{ "inflight", ublkctl_inflight, NAME_OPTIONAL, "" },
	{ "why-stuck", ublkctl_why_stuck, NAME_OPTIONAL, "" },
	{ "flight", ublkctl_flight, NAME_OPTIONAL, "nP" },
	{ "upgrade", ublkctl_upgrade, NAME_OPTIONAL, "" },
	{ "reactors", ublkctl_reactors, NAME_NONE, "" },
	{ "nbd-info", ublkctl_nbd_info, NAME_IS_URI, "L" },
	{ "nvme-discover", ublkctl_nvme_discover, NAME_IS_TARGET, "d" },
	{ "doctor", ublkctl_doctor, NAME_NONE, "" },
	{ "udev-name", ublkctl_udev_name, NAME_NEEDED, "S" },
	{ "udev-owner", ublkctl_udev_owner, NAME_NEEDED, "o" },
	{ "version", ublkctl_version, NAME_NONE, "" },
};

static double parse_seconds(const char *what, const char *word)
{
	char *end;
	double seconds = strtod(word, &end);

	if (end == word || *end ||
	    !(seconds >= INTERVAL_SECONDS_MIN && seconds <= INTERVAL_SECONDS_MAX))
		ublkctl_usage_error(what, word);
	return seconds;
}

static double parse_interval(const char *word)
{
	return parse_seconds("an interval is a number of seconds, at least 0.05, not ", word);
}

static unsigned long parse_count(const char *option, const char *word)
{
	char *end;
	unsigned long count = strtoul(word, &end, 10);

	if (end == word || *end || word[0] == '-' || count == 0)
		ublkctl_usage_error(option, word);
	return count;
}

/* Returns whether opt is one of them. */
static bool parse_histogram_option(int opt, struct ublkctl_args *a)
{
	if (opt == OPT_LAYER)
		a->layer = optarg;
	else if (opt == OPT_OP)
		a->op = optarg;
	else if (opt == OPT_QMP_JSON)
		a->qmp_json = true;
	else if (opt >= OPT_BOUNDARIES && opt < OPT_BOUNDARIES + BOUNDARIES_NR)
		a->boundaries[opt - OPT_BOUNDARIES] = optarg;
	else
		return false;
	return true;
}

/* Returns whether opt is one of them. */
static bool parse_attach_option(int opt, struct ublkctl_args *a)
{
	if (opt == OPT_NAME)
		a->device_name = optarg;
	else if (opt == OPT_QUEUES)
		a->queues = parse_count("--queues needs a number of at least 1, not ", optarg);
	else if (opt == OPT_SHOW)
		a->show = true;
	else if (opt == OPT_PERSIST)
		a->persist = true;
	else if (opt == OPT_RAW)
		a->raw = true;
	else if (opt == OPT_BACKING_FOLDER)
		a->backing_folder = optarg;
	else
		return false;
	return true;
}

/* Those that attach has too. */
static bool parse_new_image_option(int opt, struct ublkctl_image *image)
{
	if (opt == OPT_SIZE)
		image->size = optarg;
	else if (opt == OPT_BACKING)
		image->backing = optarg;
	else if (opt == OPT_BACKING_FORMAT)
		image->backing_format = optarg;
	else
		return false;
	return true;
}

/* Returns whether opt is one of them. */
static bool parse_image_option(int opt, struct ublkctl_image *image)
{
	if (opt == OPT_CLUSTER_SIZE)
		image->cluster_size = optarg;
	else if (opt == OPT_EXTENDED_L2)
		image->extended_l2 = true;
	else if (opt == OPT_REFCOUNT_BITS)
		image->refcount_bits =
			parse_count("--refcount-bits needs a number of at least 1, not ", optarg);
	else if (opt == OPT_COMPAT)
		image->compat = optarg;
	else if (opt == OPT_LAZY_REFCOUNTS)
		image->lazy_refcounts = true;
	else if (opt == OPT_DATA_FILE)
		image->data_file = optarg;
	else if (opt == OPT_DATA_FILE_RAW)
		image->data_file_raw = true;
	else
		return false;
	return true;
}

/* Returns whether opt is one of them. */
static bool parse_discover_option(int opt, struct ublkctl_args *a)
{
	if (opt == OPT_HOST_NQN)
		a->host_nqn = optarg;
	else if (opt == OPT_TIMEOUT)
		a->timeout = parse_seconds(
			"--timeout needs a number of seconds, at least 0.05, not ", optarg);
	else
		return false;
	return true;
}

/* Returns whether opt is one of them. */
static bool parse_s3_option(int opt, struct ublkctl_args *a)
{
	if (opt == OPT_DEVICE)
		a->gc_device = optarg;
	else if (opt == OPT_DRY_RUN)
		a->dry_run = true;
	else
		return false;
	return true;
}

/* used: letters of the options given so far that belong to a command. */
static void parse_ublkctl_option(int opt, struct ublkctl_args *a, char *used)
{
	switch (opt) {
	case 's':
		a->socket_path = optarg;
		return;
	case 'j':
		a->json = true;
		return;
	case 'V':
		say_to(stdout, "ublkctl %s\n", UBLKD_VERSION);
		exit(EXIT_DONE);
	case 'h':
		fputs(ublkctl_usage_text, stdout);
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
		a->list = true;
		opt = 'L';
		break;
	case OPT_MAP:
		ublkctl_usage_error(
			"--map was removed: nbdinfo of libnbd prints allocated ranges: ",
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
		a->watch_seconds = parse_interval(optarg);
		break;
	case OPT_INTERVAL:
		a->interval = parse_interval(optarg);
		opt = 'i';
		break;
	case OPT_BATCH:
		a->batch = true;
		opt = 'b';
		break;
	case 'n':
		a->count = parse_count("--count needs a number of at least 1, not ", optarg);
		break;
	case OPT_NODE:
		a->node = optarg;
		opt = 'N';
		break;
	case OPT_OFFSET:
	case OPT_LENGTH:
		*(opt == OPT_OFFSET ? &a->offset : &a->length) = optarg;
		opt = 'O';
		break;
	case OPT_DISCARD:
		a->discard = true;
		opt = 'D';
		break;
	case OPT_READ_ONLY:
		a->read_only = true;
		opt = 'r';
		break;
	case OPT_SET:
		a->set = true;
		opt = 'o';
		break;
	case OPT_LAYERS:
		a->layers = true;
		opt = 'y';
		break;
	default:
		if (parse_attach_option(opt, a))
			opt = 'a';
		else if (parse_histogram_option(opt, a))
			opt = 'h';
		else if (parse_discover_option(opt, a))
			opt = 'd';
		else if (parse_s3_option(opt, a))
			opt = 'g';
		else if (parse_new_image_option(opt, &a->image))
			opt = 'B';
		else if (parse_image_option(opt, &a->image))
			opt = 'I';
		else /* getopt_long has printed why */
			exit(EXIT_USAGE);
		break;
	}
	if (!strchr(used, opt))
		used[strlen(used)] = (char)opt;
}

static const struct command *find_ublkctl_command(const char *name)
{
	for (size_t i = 0; name && i < ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	ublkctl_usage_error(name ? "unknown command: " : "the command is missing",
			    name ? name : "");
}

/* Words for a usage error. */
static const char *missing_action(const struct command *c)
{
	if (c->fn == ublkctl_histogram)
		return "get, set or reset is missing after ";
	if (c->fn == ublkctl_cache)
		return "stats, warm, drop or store is missing after ";
	return "list, create, delete or apply is missing after ";
}

static void check_fit(const struct command *c, const struct ublkctl_args *a, const char *used)
{
	for (; *used; used++)
		if (!strchr(c->options, *used))
			ublkctl_usage_error("an option does not apply to ", c->name);
	if (c->name_use == NAME_NEEDED && !a->name)
		ublkctl_usage_error(a->action && strcmp(a->action, "store") == 0
					    ? "the file of the store is missing after "
					    : "the device name is missing after ",
				    c->name);
	if (c->name_use == NAME_IS_WORD && !a->name)
		ublkctl_usage_error("a file, a block device or a URI is missing after ", c->name);
	if (c->name_use == NAME_OR_NODE && !a->name)
		ublkctl_usage_error("the name or the path of a device is missing after ", c->name);
	if (c->name_use == NAME_IS_URI && !a->name)
		ublkctl_usage_error("a URI is missing after ", c->name);
	if (c->name_use == NAME_IS_FILE && !a->name)
		ublkctl_usage_error("the name of the image is missing after ", c->name);
	if (c->name_use == NAME_IS_CONFIGURATION && !a->name)
		ublkctl_usage_error("a file with the device is missing after ", c->name);
	if (c->name_use == NAME_IS_TARGET && !a->name)
		ublkctl_usage_error("a host or a URI is missing after ", c->name);
	if (strchr(c->options, 'f') && !a->file)
		ublkctl_usage_error("-f FILE is missing after ", c->name);
}

/* Where the daemon of this user is, as it finds out itself. client.c has words for no runtime
 * folder. */
static const char *default_socket(void)
{
	static char path[PATH_MAX];

	if (geteuid() != 0 && user_path(USER_PATH_CONTROL, path) == 0)
		return path;
	return UBLKCTL_SOCKET_DEFAULT;
}

int main(int argc, char **argv)
{
	struct ublkctl_args a = { .socket_path = default_socket(),
				  .state_dir = UBLKCTL_STATE_DIR_DEFAULT };
	const struct command *c;
	char used[32] = "";
	int opt;

	setlocale(LC_CTYPE, "C.UTF-8"); /* the width of letters in tables */
	/* Options may stand anywhere: getopt_long moves them to the front. */
	while ((opt = getopt_long(argc, argv, "s:jf:w:n:Vh", options, NULL)) != -1)
		parse_ublkctl_option(opt, &a, used);
	c = find_ublkctl_command(argv[optind]);
	optind++;
	if (strchr(c->options, 'A')) {
		if (optind >= argc)
			ublkctl_usage_error(missing_action(c), c->name);
		a.action = argv[optind++];
	}
	if (c->name_use != NAME_NONE && optind < argc)
		a.name = argv[optind++];
	a.words = argv + optind;
	if (optind < argc && !strchr(c->options, '+'))
		ublkctl_usage_error("unexpected argument: ", argv[optind]);
	check_fit(c, &a, used);
	return c->fn(&a);
}
