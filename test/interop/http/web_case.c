/* What checks of the http backend have in common. One thread per process. */
#include "web_case.h"

#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"

static uint64_t web_peer_count(struct fault_peer *peer, const char *name)
{
	const char *answer = fault_peer_ask(peer, "stats", "ok"), *at;
	char key[64];

	snprintf(key, sizeof(key), " %s=", name);
	at = strstr(answer, key);
	if (!at)
		fault_peer_give_up("no number is called %s: %s", name, answer);
	return strtoull(at + strlen(key), NULL, 10);
}

static void serve(struct fault_case *c, const char *program, const char *const *args)
{
	bool is_tls = false;

	for (const char *const *arg = args; arg && *arg; arg++)
		is_tls |= strcmp(*arg, "--tls") == 0;
	if (c->peer.dir[0] == '\0')
		fault_peer_init(&c->peer);
	c->peer.count = web_peer_count;
	fault_peer_start(&c->peer, program, args);
	snprintf(c->peer.uri, sizeof(c->peer.uri), "%s://127.0.0.1:%d/disk.img",
		 is_tls ? "https" : "http",
		 atoi(fault_peer_ask(&c->peer, "where", "ok ") + strlen("ok ")));
}

void web_serve(struct fault_case *c, const char *const *args)
{
	serve(c, "http_server.py", args);
	c->content = MODEL_PATTERN;
}

void web_serve_store(struct fault_case *c)
{
	serve(c, "s3_store.py", NULL);
	c->content = MODEL_ZEROES;
}

void web_tell(struct fault_case *c, const char *fmt, ...)
{
	char line[600];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fault_peer_ask(&c->peer, line, "ok");
}

uint64_t web_count(struct fault_case *c, const char *name)
{
	return web_peer_count(&c->peer, name);
}

bool web_open_backend(struct fault_case *c, const char *backend, const char *yaml,
		      unsigned queue_nr)
{
	struct rig_params params = {
		.ops = backend_find(backend),
		.yaml = yaml,
		.block_bytes = 512,
		.queue_nr = queue_nr,
	};

	return case_open_rig(c, &params);
}

bool web_open_url(struct fault_case *c, const char *url, const char *options, unsigned queue_nr)
{
	char yaml[1024];

	snprintf(yaml, sizeof(yaml), "url: \"%s\"\n%s\n", url, options);
	return web_open_backend(c, "http", yaml, queue_nr);
}

bool web_open_case(struct fault_case *c, const char *options, unsigned queue_nr)
{
	return web_open_url(c, c->peer.uri, options, queue_nr);
}

void web_backend_refused(struct fault_case *c, const char *backend, const char *yaml,
			 const char *words)
{
	struct rig_params params = {
		.ops = backend_find(backend),
		.name = "test",
		.yaml = yaml,
		.block_bytes = 512,
		.queue_nr = 1,
		.depth = CASE_DEPTH,
	};
	regex_t regex;

	c->is_open = rig_open(&c->rig, &params) == 0;
	EXPECT(!c->is_open, "it was opened");
	if (regcomp(&regex, words, REG_EXTENDED | REG_NOSUB) != 0)
		abort();
	EXPECT(regexec(&regex, c->rig.error, 0, NULL, 0) == 0, "the error is: %s", c->rig.error);
	regfree(&regex);
}

void web_refused(struct fault_case *c, const char *url, const char *options, const char *words)
{
	char yaml[1024];

	snprintf(yaml, sizeof(yaml), "url: \"%s\"\n%s\n", url, options);
	web_backend_refused(c, "http", yaml, words);
}

void web_write_secret(struct fault_case *c, const char *name, const char *text, char path[200])
{
	FILE *f;

	snprintf(path, 200, "%s/%s", c->peer.dir, name);
	umask(077);
	f = fopen(path, "we");
	if (!f)
		abort();
	fputs(text, f);
	fclose(f);
}

void web_works(struct fault_case *c)
{
	case_works(c, 300);
}
