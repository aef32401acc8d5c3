/* Servers on this machine that variants have as their peers: an NVMe/TCP target, a web
 * server, nbdkit. */
#include "variant_peers.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "variants.h"

/* In C, as a shell starts a program for each look: more CPU time than the server takes. */
#define WAIT_MS 10000
#define LOOK_MS 2

bool variant_says(const char *path)
{
	struct stat st;

	for (int i = 0; i < WAIT_MS / LOOK_MS; i++, usleep(LOOK_MS * 1000))
		if (stat(path, &st) == 0 && st.st_size > 0)
			return true;
	return false;
}

/* A process has ended before its parent has taken notice of that, which may take long. */
void variant_end(const char *path)
{
	FILE *f = fopen(path, "re");
	struct pollfd wait = { .events = POLLIN };
	int pid;

	while (f && fscanf(f, "%d", &pid) == 1) {
		wait.fd = (int)syscall(SYS_pidfd_open, pid, 0);
		if (wait.fd < 0)
			continue; /* it is gone */
		kill(pid, SIGTERM);
		if (poll(&wait, 1, WAIT_MS) != 1)
			fprintf(stderr, "process %d of %s does not end\n", pid, path);
		close(wait.fd);
	}
	if (f)
		fclose(f);
	unlink(path);
}

/* What listens says its port, which is the "path". */
static const char *nvme_listener(const char *program)
{
	char command[4096], ready[700];
	FILE *f;
	int port = 0;

	snprintf(ready, sizeof(ready), "%s/nvme", variant_dir);
	snprintf(command, sizeof(command),
		 "rm -f %s.ready; mkfifo %s.ready; setsid %s >%s.ready & echo $! >>%s.pid", ready,
		 ready, program, ready, ready);
	if (system(command) != 0)
		return "the NVMe target does not start";
	snprintf(command, sizeof(command), "%s.ready", ready);
	f = fopen(command, "re");
	if (!f || fscanf(f, "ready 127.0.0.1:%d", &port) != 1)
		return "the NVMe target does not say its port";
	fclose(f);
	snprintf(variant_path, sizeof(variant_path), "%d", port);
	return NULL;
}

static const char *nvme_target(const char *args)
{
	char command[2000];

	snprintf(command, sizeof(command),
		 UBLKD_SOURCE
		 "/test/interop/nvme_target.py --listen 127.0.0.1:0 --subsystem " NVME_SUBSYSTEM
		 " --size 4194304 %s",
		 args);
	return nvme_listener(command);
}

/* The key is in a file that has the port in its name. */
const char *variant_nvme_tls(void)
{
	const char *words = nvme_target("");
	char command[2000];

	if (words)
		return words;
	snprintf(command, sizeof(command),
		 UBLKD_TESTS "/tls_proxy %s " NVME_TLS_KEY " " NVME_HOST " " NVME_SUBSYSTEM " 1",
		 variant_path);
	words = nvme_listener(command);
	snprintf(command, sizeof(command),
		 "(umask 077; echo '" NVME_TLS_KEY "' >" NVME_KEY_PATH ")", variant_path);
	return words || system(command) == 0 ? words : "no key file can be written";
}

/* A web server of ours whose object is the pattern; its port is the "path". */
static const char *web_server_of(const char *program, const char *args)
{
	char command[3000], port[600];
	FILE *f;

	snprintf(port, sizeof(port), "%s/web.port", variant_dir);
	snprintf(command, sizeof(command),
		 "rm -f %s; setsid " UBLKD_SOURCE
		 "/test/interop/%s --port-file %s %s >/dev/null 2>&1 "
		 "</dev/null & echo $! >%s/web.pid",
		 port, program, port, args, variant_dir);
	if (system(command) != 0 || !variant_says(port))
		return "the web server does not start";
	f = fopen(port, "re");
	if (!f || fscanf(f, "%500s", variant_path) != 1)
		return "the web server does not say its port";
	fclose(f);
	return NULL;
}

static const char *web_server(const char *args)
{
	return web_server_of("http_server.py", args);
}

const char *variant_web_plain(void)
{
	return web_server("");
}

const char *variant_web_bucket(void)
{
	return web_server("--set path=/images/disk.img");
}

/* Answers come late. */
const char *variant_web_slow(void)
{
	return web_server("--set delay_ms=1");
}

const char *variant_store_plain(void)
{
	return web_server_of("s3_store.py", "--set page=7");
}

/* Answers come late, get lost, or come for what is done later. */
const char *variant_store_bad(void)
{
	return web_server_of("s3_store.py", "--set page=7 --set chaos=30");
}

void variant_web_stop(void)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/web.pid", variant_dir);
	variant_end(path);
	snprintf(path, sizeof(path), "%s/web.port", variant_dir);
	unlink(path);
}

const char *variant_nvme_plain(void)
{
	return nvme_target("");
}

/* Nothing in capsules, small H2CData, padding, data in pieces without SUCCESS. */
const char *variant_nvme_pieces(void)
{
	return nvme_target("--block 4096 --set in_capsule_bytes=0 --set maxh2cdata=16384 --set "
			   "cpda=31 --set c2h_bytes=20000 --set success=0 --set r2t_bytes=40960");
}

void variant_nvme_stop(void)
{
	char path[700];

	snprintf(path, sizeof(path), "%s/nvme.pid", variant_dir);
	variant_end(path);
	snprintf(path, sizeof(path), "%s/nvme.ready", variant_dir);
	unlink(path);
	snprintf(path, sizeof(path), NVME_KEY_PATH, variant_path);
	unlink(path);
}

/* In the background it listens, then writes its number; its content is one variant's. */
static const char *nbdkit(const char *args)
{
	char command[3000];

	if (system("command -v nbdkit >/dev/null") != 0)
		return "nbdkit is not installed";
	snprintf(variant_path, sizeof(variant_path), "%s/nbd.sock", variant_dir);
	snprintf(command, sizeof(command), "nbdkit -U %s -P %s.pid %s", variant_path, variant_path,
		 args);
	unlink(variant_path);
	if (system(command) != 0)
		return "nbdkit does not start";
	snprintf(command, sizeof(command), "%s.pid", variant_path);
	return variant_says(command) ? NULL : "nbdkit does not say its number";
}

const char *variant_nbdkit_memory(void)
{
	return nbdkit("memory 4M");
}

/* Answers in any order, in pieces, for whole blocks of a kind. */
const char *variant_nbdkit_delay(void)
{
	return nbdkit("--filter=delay --filter=blocksize-policy memory 4M rdelay=1ms "
		      "blocksize-minimum=4096 blocksize-preferred=64K blocksize-maximum=1M "
		      "blocksize-error-policy=error");
}

const char *variant_nbdkit_old(void)
{
	return nbdkit("--no-sr memory 4M");
}

void variant_nbdkit_stop(void)
{
	char path[700];

	if (!variant_path[0])
		return;
	snprintf(path, sizeof(path), "%s.pid", variant_path);
	variant_end(path);
	unlink(variant_path);
}
