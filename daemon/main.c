/*
 * ublkd: the command line. Main thread.
 *
 * Happy path: options -> daemon_run or daemon_check. Failure mode: a wrong command line, exit
 * code 2.
 */
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "host/user_paths.h"

struct args {
	struct daemon_params params;
	bool check_only;
};

static const char usage_text[] =
	"usage: ublkd [--config FILE] [--check-config] [--log-level LEVEL]\n"
	"       ublkd --version | --help\n"
	"\n"
	"  -c, --config FILE     the configuration, see ublkd.yaml(5);\n"
	"                        default for users: $XDG_CONFIG_HOME/ublkd/ublkd.yaml\n"
	"      --check-config    check it and exit\n"
	"      --log-level LEVEL error, warn, info or debug; overrides log_level in the file\n"
	"  -V, --version         print the version and exit\n"
	"  -h, --help            print this and exit\n";

enum { OPT_CHECK = 256, OPT_LEVEL };

static const struct option options[] = {
	{ "config", required_argument, NULL, 'c' },
	{ "check-config", no_argument, NULL, OPT_CHECK },
	{ "log-level", required_argument, NULL, OPT_LEVEL },
	{ "version", no_argument, NULL, 'V' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

_Noreturn static void ublkd_usage_error(const char *what, const char *value)
{
	fprintf(stderr, "ublkd: %s%s\n%s", what, value, usage_text);
	exit(EXIT_USAGE);
}

static int parse_log_level(const char *word)
{
	static const char *const level[] = { "error", "warn", "info", "debug" };

	for (int i = 0; i < 4; i++)
		if (strcmp(word, level[i]) == 0)
			return i;
	ublkd_usage_error("no log level is called ", word);
}

static void parse_ublkd_option(int opt, struct args *a)
{
	switch (opt) {
	case 'c':
		a->params.config_path = optarg;
		break;
	case OPT_CHECK:
		a->check_only = true;
		break;
	case OPT_LEVEL:
		a->params.log_level = parse_log_level(optarg);
		break;
	case 'V':
		printf("ublkd %s\n", UBLKD_VERSION);
		exit(EXIT_DONE);
	case 'h':
		fputs(usage_text, stdout);
		exit(EXIT_DONE);
	default: /* told by getopt_long */
		exit(EXIT_USAGE);
	}
}

/* Root has none: a daemon by mistake would take the devices of the one that runs. */
static void use_default_config(struct daemon_params *params)
{
	static char path[PATH_MAX];

	if (!user_paths_apply())
		ublkd_usage_error("--config FILE is missing", "");
	if (user_path(USER_PATH_CONFIG, path) < 0)
		ublkd_usage_error("--config FILE is missing, and there is no default: ",
				  user_path_cure(USER_PATH_CONFIG));
	params->config_path = path;
	params->config_optional = true;
}

static struct args parse_args(int argc, char **argv)
{
	struct args a = { .params.log_level = -1 };
	int opt;

	while ((opt = getopt_long(argc, argv, "c:Vh", options, NULL)) != -1)
		parse_ublkd_option(opt, &a);
	if (optind < argc)
		ublkd_usage_error("what is this: ", argv[optind]);
	if (!a.params.config_path)
		use_default_config(&a.params);
	return a;
}

int main(int argc, char **argv)
{
	struct args a = parse_args(argc, argv);

	a.params.argv = argv;
	if (a.check_only)
		return daemon_check(&a.params);
	return daemon_run(&a.params);
}
