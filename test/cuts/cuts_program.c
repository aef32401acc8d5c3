/* See cuts_program.h. */
#include "test/cuts/cuts_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"

/* By hand: getopt.h's struct option is not config/option.h's. */
static bool args_take(int argc, char **argv, struct cuts_args *args)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--soak") == 0)
			args->is_soak = true;
		else if (i + 1 == argc)
			return false;
		else if (strcmp(argv[i], "--seed") == 0)
			args->seed = strtoull(argv[++i], NULL, 0);
		else if (strcmp(argv[i], "--cuts") == 0)
			args->cut_nr = strtoull(argv[++i], NULL, 0);
		else if (strcmp(argv[i], "--run") == 0)
			args->run_nr = (unsigned)strtoul(argv[++i], NULL, 0);
		else if (strcmp(argv[i], "--only") == 0)
			args->only = argv[++i];
		else
			return false;
	}
	return true;
}

bool cuts_args_parse(int argc, char **argv, struct cuts_args *args)
{
	*args = (struct cuts_args){ .seed = (uint64_t)time(NULL) * 100000, .cut_nr = 4000 };
	if (!args_take(argc, argv, args)) {
		fprintf(stderr,
			"usage: %s [--seed N] [--cuts N] [--only TEXT] [--run N] [--soak]\n",
			argv[0]);
		return false;
	}
	args->is_soak |= getenv("UBLKD_SOAK") != NULL;
	if (args->is_soak)
		args->cut_nr *= 25;
	return true;
}

int cuts_run_in_process(void (*run)(void *arg), void *arg, unsigned seconds)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	ASSERT(pid >= 0);
	if (pid == 0) {
		alarm(seconds);
		run(arg);
		_exit(0);
	}
	ASSERT(waitpid(pid, &status, 0) == pid);
	return status;
}
