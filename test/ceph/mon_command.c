/*
 * Sends commands to the monitor of a Ceph cluster: mon_command [-u TEXT] [-p POOL] [-t SECONDS]
 * [JSON...]
 *
 * What `ceph` does, without Python, whose start takes seconds in the test guest. Each JSON is one
 * command, as {"prefix": "osd stat", "format": "json"}. CEPH_CONF and CEPH_ARGS say where and as
 * whom.
 *
 *   -u TEXT     repeats the last command until what it prints has TEXT
 *   -p POOL     at the end, waits until the OSD answers a request to this pool
 *   -t SECONDS  of the whole run (600: the instruction clock of the guest may jump)
 *
 * Prints what the monitor answers. Exit: 0; 1 when a command failed or the time was up; 2 for bad
 * usage.
 */
#include <errno.h>
#include <rados/librados.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

struct options {
	const char *until; /* or NULL */
	const char *pool;  /* or NULL */
	unsigned seconds;
	char **commands;
	int command_nr;
};

static int options_parse(int argc, char **argv, struct options *o)
{
	int c;

	*o = (struct options){ .seconds = 600 };
	while ((c = getopt(argc, argv, "u:p:t:")) != -1) {
		if (c == 'u')
			o->until = optarg;
		else if (c == 'p')
			o->pool = optarg;
		else if (c == 't')
			o->seconds = (unsigned)strtoul(optarg, NULL, 10);
		else
			return -1;
	}
	o->commands = argv + optind;
	o->command_nr = argc - optind;
	return (o->command_nr > 0 || o->pool) && o->seconds > 0 ? 0 : -1;
}

/*
 * librados waits without end unless its options say how long. A monitor that refused a connection
 * is asked again after 3 s, an OSD that was down is looked for again after 5 s, and that an OSD has
 * been started again is noticed after 10 s: too long for who waits for their start.
 */
static int set_waits(rados_t cluster, unsigned seconds)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", seconds);
	if (rados_conf_set(cluster, "client_mount_timeout", text) < 0 ||
	    rados_conf_set(cluster, "rados_mon_op_timeout", text) < 0 ||
	    rados_conf_set(cluster, "rados_osd_op_timeout", text) < 0 ||
	    rados_conf_set(cluster, "mon_client_hunt_interval", "0.3") < 0 ||
	    rados_conf_set(cluster, "objecter_tick_interval", "0.1") < 0 ||
	    rados_conf_set(cluster, "objecter_timeout", "0.3") < 0)
		return -EINVAL;
	return 0;
}

/* Returns 0 or -errno. *ret_cluster is set in any case where it has to be shut down. */
static int cluster_connect(rados_t *ret_cluster, unsigned seconds)
{
	int err = rados_create(ret_cluster, NULL);

	if (err < 0) {
		*ret_cluster = NULL;
		return err;
	}
	if ((err = rados_conf_read_file(*ret_cluster, NULL)) < 0 ||
	    (err = rados_conf_parse_env(*ret_cluster, NULL)) < 0 ||
	    (err = set_waits(*ret_cluster, seconds)) < 0)
		return err;
	return rados_connect(*ret_cluster);
}

/* Returns 0 or -errno; *ret_has: the answer has the text. An answer is printed when it is the
 * wanted one. */
static int command_run(rados_t cluster, const char *json, const char *text, bool *ret_has)
{
	char *answer = NULL, *status = NULL;
	size_t answer_len = 0, status_len = 0;
	int err = rados_mon_command(cluster, &json, 1, NULL, 0, &answer, &answer_len, &status,
				    &status_len);

	*ret_has = !text || (answer && memmem(answer, answer_len, text, strlen(text)));
	if (err < 0)
		fprintf(stderr, "mon_command: %s: %.*s (%s)\n", json, (int)status_len,
			status ? status : "", strerror(-err));
	else if (*ret_has && answer_len > 0)
		printf("%.*s\n", (int)answer_len, answer);
	rados_buffer_free(answer);
	rados_buffer_free(status);
	return err;
}

static int command_repeat(rados_t cluster, const char *json, const char *text, time_t deadline)
{
	const struct timespec pause = { .tv_nsec = 50 * 1000 * 1000 };
	bool has = false;
	int err;

	while ((err = command_run(cluster, json, text, &has)) == 0 && !has) {
		if (time(NULL) > deadline) {
			fprintf(stderr, "mon_command: no \"%s\" in time: %s\n", text, json);
			return -1;
		}
		nanosleep(&pause, NULL);
	}
	return err;
}

/* Any answer will do: that there is no such object is one. */
static int pool_ask(rados_t cluster, const char *pool)
{
	rados_ioctx_t io;
	uint64_t bytes;
	time_t changed;
	int err = rados_ioctx_create(cluster, pool, &io);

	if (err == 0) {
		err = rados_stat(io, "rbd_info", &bytes, &changed);
		if (err == -ENOENT)
			err = 0;
		rados_ioctx_destroy(io);
	}
	if (err < 0)
		fprintf(stderr, "mon_command: pool %s: %s\n", pool, strerror(-err));
	return err;
}

int main(int argc, char **argv)
{
	struct options o;
	rados_t cluster;
	int i, err;
	time_t deadline;

	if (options_parse(argc, argv, &o) < 0) {
		fprintf(stderr, "usage: mon_command [-u TEXT] [-p POOL] [-t SECONDS] [JSON...]\n");
		return 2;
	}
	/* cluster.sh may be killed while this waits */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	deadline = time(NULL) + o.seconds;
	err = cluster_connect(&cluster, o.seconds);
	if (err < 0)
		fprintf(stderr, "mon_command: cannot connect: %s\n", strerror(-err));
	for (i = 0; err == 0 && i < o.command_nr; i++)
		err = command_repeat(cluster, o.commands[i], i == o.command_nr - 1 ? o.until : NULL,
				     deadline);
	if (err == 0 && o.pool)
		err = pool_ask(cluster, o.pool);
	if (cluster)
		rados_shutdown(cluster);
	return err == 0 ? 0 : 1;
}
