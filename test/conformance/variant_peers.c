/* Servers on this machine that variants have as their peers: an NVMe/TCP target, a web server. */
#include "variant_peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "variants.h"

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
	char command[3000];
	FILE *f;

	snprintf(
		command, sizeof(command),
		"rm -f %s/web.port; setsid " UBLKD_SOURCE
		"/test/interop/%s --port-file %s/web.port %s >/dev/null 2>&1 "
		"</dev/null & echo $! >%s/web.pid; "
		"until [ -s %s/web.port ]; do kill -0 $(cat %s/web.pid) || exit 1; sleep .01; done",
		variant_dir, program, variant_dir, args, variant_dir, variant_dir, variant_dir);
	if (system(command) != 0)
		return "the web server does not start";
	snprintf(command, sizeof(command), "%s/web.port", variant_dir);
	f = fopen(command, "re");
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
	char command[1400];

	snprintf(command, sizeof(command),
		 "pid=$(cat %s/web.pid 2>/dev/null) || exit 0; kill $pid; "
		 "while kill -0 $pid 2>/dev/null; do sleep .01; done; rm -f %s/web.*",
		 variant_dir, variant_dir);
	if (system(command) != 0)
		fprintf(stderr, "the web server does not end\n");
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
	char command[2000];

	snprintf(command, sizeof(command),
		 "pids=$(cat %s/nvme.pid 2>/dev/null) || exit 0; kill $pids; for pid in $pids; do "
		 "while kill -0 $pid 2>/dev/null; do sleep .01; done; done; rm -f "
		 "%s/nvme.* " NVME_KEY_PATH,
		 variant_dir, variant_dir, variant_path);
	if (system(command) != 0)
		fprintf(stderr, "the NVMe target does not end\n");
}
