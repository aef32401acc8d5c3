/* Opening: what is refused, and in which words; secrets; TLS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "web_case.h"

struct refusal {
	const char *name, *command, *path, *words;
};

static void check_refused(struct fault_case *c, const void *arg)
{
	const struct refusal *r = arg;
	char url[300];

	web_serve(c, NULL);
	web_tell(c, "%s", r->command);
	snprintf(url, sizeof(url), "%.*s%s", (int)(strrchr(c->peer.uri, '/') - c->peer.uri),
		 c->peer.uri, r->path);
	web_refused(c, url, "timeout: 3s\n", r->words);
}

static void check_nobody(struct fault_case *c, const void *arg)
{
	(void)arg;
	web_serve(c, NULL);
	web_tell(c, "down");
	web_refused(c, c->peer.uri, "", "127.0.0.1:[0-9]+: .*[Cc]onnect");
}

static void check_password(struct fault_case *c, const void *arg)
{
	char options[400], path[200];

	(void)arg;
	web_serve(c, NULL);
	/* "user:secret" */
	web_tell(c, "set auth=Basic_dXNlcjpzZWNyZXQ=");
	web_refused(c, c->peer.uri, "", "does not let us read the object \\(401\\)");
	web_write_secret(c, "password", "secret\n", path);
	snprintf(options, sizeof(options), "user: user\npassword_file: %s\n", path);
	if (web_open_case(c, options, 1))
		web_works(c);
}

/* Where the server sends us; behind: what follows its port, NULL: that is not in it. */
struct place {
	const char *before, *behind;
};

static void check_redirected_login(struct fault_case *c, const void *arg)
{
	const struct place *p = arg;
	char options[400], path[200], place[200];
	int port;

	web_serve(c, NULL);
	port = atoi(strrchr(c->peer.uri, ':') + 1);
	if (p->behind)
		snprintf(place, sizeof(place), "%s%d%s", p->before, port, p->behind);
	else
		snprintf(place, sizeof(place), "%s", p->before);
	/* "user@home:s3cr/t" */
	web_tell(c, "set auth=Basic_dXNlckBob21lOnMzY3IvdA==");
	web_write_secret(c, "password", "s3cr/t\n", path);
	snprintf(options, sizeof(options), "user: user@home\npassword_file: %s\n", path);
	web_tell(c, "fault redirect 1 %s", place);
	if (!web_open_case(c, options, 1))
		return;
	web_tell(c, "fault redirect 2 %s", place);
	web_works(c);
	EXPECT(web_count(c, "left") == 0, "it was sent nowhere");
	EXPECT(web_count(c, "secrets") == web_count(c, "requests"), "some had no password");
	case_not_logged("s3cr");
}

/* Of a user that the server names there is no password; that of ours is not for it. */
static void check_named_user(struct fault_case *c, const void *arg)
{
	char place[200];

	(void)arg;
	web_serve(c, NULL);
	snprintf(place, sizeof(place), "http://eve:x@127.0.0.1:%d/disk.img",
		 atoi(strrchr(c->peer.uri, ':') + 1));
	web_tell(c, "fault redirect 1 %s", place);
	web_refused(c, c->peer.uri, "", "a user does not belong here");
}

/* A server that sends us to another host is not given what is secret. */
static void check_secrets_stay(struct fault_case *c, const void *arg)
{
	char options[400], path[200];
	uint64_t secrets;

	web_serve(c, NULL);
	web_write_secret(c, "secret", "abc123", path);
	snprintf(options, sizeof(options), "%s: %s\nheaders: {X-Secret: abc}\n", (const char *)arg,
		 path);
	if (!web_open_case(c, options, 1))
		return;
	web_works(c);
	secrets = web_count(c, "secrets");
	EXPECT(secrets > 0 && secrets == web_count(c, "requests"), "%llu with secrets",
	       (unsigned long long)secrets);
	/* The same machine by another name is another host. */
	web_tell(c, "fault redirect 1 http://localhost:%s", strrchr(c->peer.uri, ':') + 1);
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == 0, "not served");
	EXPECT(web_count(c, "secrets") == secrets + 1, "the other host has seen them");
	web_works(c);
	EXPECT(web_count(c, "secrets") == secrets + 1, "the other host has seen them");
}

/* dates: of certtool's template. */
static bool make_certificate(struct fault_case *c, const char *dates)
{
	char command[800];

	snprintf(command, sizeof(command),
		 "cd %s && printf '%%s\\n' 'cn = test' 'ip_address = 127.0.0.1' tls_www_server %s "
		 ">template "
		 "&& certtool --generate-privkey --ecc --outfile key.pem 2>/dev/null && certtool "
		 "--generate-self-signed --load-privkey key.pem --template template --outfile "
		 "cert.pem "
		 "2>/dev/null",
		 c->peer.dir, dates);
	return system(command) == 0;
}

static bool serve_tls(struct fault_case *c, const char *dates)
{
	static char cert[200], key[200];
	const char *const args[] = { "--tls", cert, key, NULL };

	fault_peer_init(&c->peer);
	snprintf(cert, sizeof(cert), "%s/cert.pem", c->peer.dir);
	snprintf(key, sizeof(key), "%s/key.pem", c->peer.dir);
	if (!make_certificate(c, dates)) {
		EXPECT(false, "certtool makes no certificate");
		return false;
	}
	web_serve(c, args);
	return true;
}

static void check_tls(struct fault_case *c, const void *arg)
{
	char options[300];

	(void)arg;
	if (!serve_tls(c, "'expiration_days = 2'"))
		return;
	web_refused(c, c->peer.uri, "", "certificate");
	snprintf(options, sizeof(options), "ca_file: %s/cert.pem\n", c->peer.dir);
	if (web_open_case(c, options, 2))
		web_works(c);
}

static void check_expired(struct fault_case *c, const void *arg)
{
	char options[300];

	(void)arg;
	if (!serve_tls(c, "'activation_date = \"2020-01-01\"' 'expiration_date = \"2021-01-01\"'"))
		return;
	snprintf(options, sizeof(options), "ca_file: %s/cert.pem\n", c->peer.dir);
	web_refused(c, c->peer.uri, options, "certificate has expired");
	if (web_open_case(c, "verify_peer: false\n", 1))
		web_works(c);
}

/* From https no server sends us to http, where everybody may read along. */
static void check_downgrade(struct fault_case *c, const void *arg)
{
	char options[300];

	(void)arg;
	if (!serve_tls(c, "'expiration_days = 2'"))
		return;
	web_tell(c, "fault redirect -1 http://127.0.0.1/disk.img");
	snprintf(options, sizeof(options), "ca_file: %s/cert.pem\n", c->peer.dir);
	web_refused(c, c->peer.uri, options, "from https to http");
}

static void run_redirections(uint64_t seed)
{
	/* RFC 9110, 10.2.2: relative ones by RFC 3986, 4.2; a fragment is not sent. */
	static const struct place places[] = {
		{ "/disk.img?x=1", NULL },
		{ "disk.img", NULL },
		{ "?y=1", NULL },
		{ "./a/../disk.img#part", NULL },
		{ "//127.0.0.1:", "/disk.img" },
		{ "http://127.0.0.1:", "/disk.img" },
		{ "HTTP://127.0.0.1:", "/disk.img#part" },
	};
	static const char *const secrets[] = { "token_file", "user: user\npassword_file" };
	char name[100];

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		snprintf(name, sizeof(name), "the password goes along to %s%s", places[i].before,
			 places[i].behind ? "PORT" : "");
		fault_case_run(name, 30, seed, check_redirected_login, &places[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(secrets); i++) {
		snprintf(name, sizeof(name), "secrets go to their host alone: %zu", i);
		fault_case_run(name, 30, seed, check_secrets_stay, secrets[i]);
	}
	fault_case_run("sent to another user", 30, seed, check_named_user, NULL);
}

void web_opens_run(uint64_t seed)
{
	static const struct refusal refusal[] = {
		{ "no such object", "stats", "/other.img", "no such object \\(404\\)" },
		{ "no ranges", "fault whole 1", "/disk.img", "does not send ranges" },
		{ "an empty object", "set size=0", "/disk.img", "the object is empty" },
		{ "a busy server", "fault status 1 503", "/disk.img", "answers 503" },
		{ "a silent server", "fault silence 1", "/disk.img", "imed out" },
		{ "a compressed object", "fault gzip 1", "/disk.img", "compressed" },
		{ "no HTTP", "fault garbage 1", "/disk.img", "127.0.0.1" },
		{ "a circle", "fault redirect -1 /disk.img", "/disk.img",
		  "more than 5 redirections" },
		{ "sent nowhere", "fault status 1 302", "/disk.img", "does not say where" },
		{ "sent to a file", "fault redirect 1 file:///etc/passwd", "/disk.img",
		  "what is no URL|does not say where" },
	};
	char name[100];

	for (size_t i = 0; i < ARRAY_SIZE(refusal); i++) {
		snprintf(name, sizeof(name), "refused: %s", refusal[i].name);
		fault_case_run(name, 30, seed, check_refused, &refusal[i]);
	}
	fault_case_run("refused: nobody is there", 30, seed, check_nobody, NULL);
	fault_case_run("a password", 30, seed, check_password, NULL);
	run_redirections(seed);
	fault_case_run("TLS", 30, seed, check_tls, NULL);
	fault_case_run("TLS: expired", 30, seed, check_expired, NULL);
	fault_case_run("TLS: sent to http", 30, seed, check_downgrade, NULL);
}
