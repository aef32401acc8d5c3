/* Objects of S3: each request is signed, and http_server.py verifies it; keys; refusals. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "web_case.h"

#define ACCESS "AKIDTEST"
#define SECRET "wJalr/secret+key"

/* The server, which wants requests that are signed with these for us-east-1. */
static void serve_signed(struct fault_case *c, const char *path)
{
	web_serve(c, NULL);
	web_tell(c, "set s3=" ACCESS ":" SECRET ":us-east-1 path=%s", path);
}

/* "http://127.0.0.1:1234", or by another name of the host. */
static const char *endpoint(struct fault_case *c, const char *host)
{
	static char text[100];

	snprintf(text, sizeof(text), "http://%s:%d", host, atoi(strrchr(c->peer.uri, ':') + 1));
	return text;
}

static const char *credentials(struct fault_case *c, const char *secret, const char *more)
{
	static char path[200];
	char text[1000];

	snprintf(text, sizeof(text),
		 "[other]\naws_access_key_id = no\n\n[default]\naws_access_key_id=" ACCESS
		 "\naws_secret_access_key = %s\n%s\n",
		 secret, more);
	web_write_secret(c, "credentials", text, path);
	return path;
}

/* Options for a bucket of the server. more: lines. */
static const char *object(struct fault_case *c, const char *key, const char *more)
{
	static char yaml[1500];

	snprintf(yaml, sizeof(yaml),
		 "bucket: images\nkey: \"%s\"\nendpoint: \"%s\"\ncredentials_file: %s\ntimeout: "
		 "3s\n%s\n",
		 key, endpoint(c, "127.0.0.1"), credentials(c, SECRET, ""), more);
	return yaml;
}

static void expect_signed(struct fault_case *c)
{
	uint64_t nr = web_count(c, "secrets");

	EXPECT(nr > 0 && nr == web_count(c, "requests"), "%llu of %llu are signed",
	       (unsigned long long)nr, (unsigned long long)web_count(c, "requests"));
	case_not_logged(SECRET);
}

struct name {
	const char *name, *key, *path;
};

static void check_key(struct fault_case *c, const void *arg)
{
	const struct name *n = arg;

	serve_signed(c, n->path);
	if (!web_open_backend(c, "s3", object(c, n->key, ""), 2))
		return;
	web_works(c);
	expect_signed(c);
}

static void check_token(struct fault_case *c, const void *arg)
{
	char yaml[1000], token[301], line[400];

	(void)arg;
	memset(token, 'T', sizeof(token) - 1);
	token[sizeof(token) - 1] = '\0';
	web_serve(c, NULL);
	web_tell(c, "set s3=" ACCESS ":" SECRET ":eu-1:%s path=/images/disk.img", token);
	snprintf(line, sizeof(line), "aws_session_token = %s", token);
	snprintf(
		yaml, sizeof(yaml),
		"uri: s3://images/disk.img\nregion: eu-1\nendpoint: \"%s\"\ncredentials_file: %s\n",
		endpoint(c, "127.0.0.1"), credentials(c, SECRET, line));
	if (!web_open_backend(c, "s3", yaml, 1))
		return;
	web_works(c);
	expect_signed(c);
	case_not_logged(token);
}

/* The bucket stands before the host's name, of which all that end in localhost are this machine's.
 */
static void check_virtual(struct fault_case *c, const void *arg)
{
	char yaml[1000];

	(void)arg;
	serve_signed(c, "/disk.img");
	snprintf(
		yaml, sizeof(yaml),
		"uri: s3://images/disk.img\npath_style: false\nendpoint: \"%s\"\ncredentials_file: "
		"%s\n",
		endpoint(c, "localhost"), credentials(c, SECRET, ""));
	if (!web_open_backend(c, "s3", yaml, 1))
		return;
	web_works(c);
	expect_signed(c);
	case_close(c);
	c->is_open = false;
	web_backend_refused(
		c, "s3", object(c, "disk.img", "path_style: false"),
		"the bucket images cannot stand before the host 127.0.0.1: set it to true");
}

/* All that a word of a command line does not say is the environment's. */
static void check_environment(struct fault_case *c, const void *arg)
{
	(void)arg;
	serve_signed(c, "/images/disk.img");
	web_tell(c, "set s3=" ACCESS ":" SECRET ":eu-2:tok");
	setenv("AWS_ENDPOINT_URL", endpoint(c, "127.0.0.1"), 1);
	setenv("AWS_DEFAULT_REGION", "eu-2", 1);
	setenv("AWS_ACCESS_KEY_ID", ACCESS, 1);
	web_backend_refused(c, "s3", "uri: s3://images/disk.img\n",
			    "environment: aws_secret_access_key is missing");
	setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
	setenv("AWS_SESSION_TOKEN", "tok", 1);
	if (!web_open_backend(c, "s3", "uri: s3://images/disk.img\n", 1))
		return;
	web_works(c);
	expect_signed(c);
}

static void check_anonymous(struct fault_case *c, const void *arg)
{
	char yaml[300];

	(void)arg;
	web_serve(c, NULL);
	web_tell(c, "set path=/images/disk.img");
	snprintf(yaml, sizeof(yaml), "uri: s3://images/disk.img\nendpoint: \"%s\"\n",
		 endpoint(c, "127.0.0.1"));
	if (!web_open_backend(c, "s3", yaml, 1))
		return;
	web_works(c);
	EXPECT(web_count(c, "secrets") == 0, "something is signed");
	case_close(c);
	c->is_open = false;
	web_tell(c, "set s3=" ACCESS ":" SECRET ":us-east-1");
	web_backend_refused(c, "s3", yaml,
			    "403 AccessDenied \\(Access Denied\\): set credentials_file");
}

static void check_bad_credentials(struct fault_case *c, const void *arg)
{
	char yaml[600];
	const char *path;

	(void)arg;
	serve_signed(c, "/images/disk.img");
	path = credentials(c, "another", "");
	snprintf(yaml, sizeof(yaml),
		 "uri: s3://images/disk.img\nendpoint: \"%s\"\ncredentials_file: %s\n",
		 endpoint(c, "127.0.0.1"), path);
	web_backend_refused(c, "s3", yaml,
			    "SignatureDoesNotMatch .*: see the secret key in credentials_file");
	chmod(path, 0644);
	web_backend_refused(c, "s3", yaml, "chmod o=");
	credentials(c, "two words", "");
	chmod(path, 0600);
	web_backend_refused(c, "s3", yaml, "line 6: aws_secret_access_key");
	EXPECT(!strstr(c->rig.error, "two"), "the error shows the key: %s", c->rig.error);
	credentials(c, SECRET, "");
	strcat(yaml, "profile: nobody\n");
	web_backend_refused(c, "s3", yaml, "credentials: has no profile \\[nobody\\]");
}

struct s3_refusal {
	const char *name, *command, *words;
};

static void check_refused(struct fault_case *c, const void *arg)
{
	const struct s3_refusal *r = arg;

	serve_signed(c, "/images/disk.img");
	web_tell(c, "%s", r->command);
	web_backend_refused(c, "s3", object(c, "disk.img", ""), r->words);
}

/* While it serves: what passes is asked again, what is refused is logged. */
static void check_serving(struct fault_case *c, const void *arg)
{
	(void)arg;
	serve_signed(c, "/images/disk.img");
	if (!web_open_backend(c, "s3", object(c, "disk.img", ""), 1))
		return;
	web_tell(c, "fault xml 2 503:SlowDown:Please_reduce_your_request_rate.");
	web_tell(c, "fault xml 2 400:RequestTimeout:Your_socket_connection_was_idle.");
	web_works(c);
	EXPECT(web_count(c, "left") == 0, "the server had no occasion for it");
	case_logged("it answers 503 SlowDown \\(Please reduce your request rate.\\)");
	web_tell(c, "fault xml 1 403:AccessDenied:Access_Denied");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) < 0, "served");
	case_logged("403 AccessDenied \\(Access Denied\\): see credentials_file and the policy");
	web_works(c);
	expect_signed(c);
}

/* The clocks are two hours apart: requests wait, as it is set at any moment, and the log says how.
 */
static void check_clock(struct fault_case *c, const void *arg)
{
	(void)arg;
	serve_signed(c, "/images/disk.img");
	if (!web_open_backend(c, "s3", object(c, "disk.img", ""), 1))
		return;
	web_tell(c, "set clock=7230");
	case_submit_all(c, BACKEND_READ, 4096);
	case_turn_for(c, 300);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	case_logged("RequestTimeTooSkewed .*: this machine's clock is 2 h behind the server's: set "
		    "it");
	web_tell(c, "set clock=0");
	case_drain(c, 20000);
	case_expect_all(c, 0);
	web_works(c);
	expect_signed(c);
}

static void check_clock_at_open(struct fault_case *c, const void *arg)
{
	(void)arg;
	serve_signed(c, "/images/disk.img");
	web_tell(c, "set clock=-1200");
	web_backend_refused(c, "s3", object(c, "disk.img", ""),
			    "this machine's clock is 20 min ahead of the server's: set it, see "
			    "timedatectl");
}

/* ---- keys that are good for a while ---- */

static const char *write_token(struct fault_case *c, const char *token)
{
	char line[100];

	snprintf(line, sizeof(line), "aws_session_token = %s", token);
	return credentials(c, SECRET, line);
}

/* Signed by the token "old", which the server takes no more from then on. */
static bool open_to_expire(struct fault_case *c, const char *outage)
{
	char yaml[1000];

	serve_signed(c, "/images/disk.img");
	web_tell(c, "set s3=" ACCESS ":" SECRET ":us-east-1:old");
	snprintf(yaml, sizeof(yaml),
		 "uri: s3://images/disk.img\nendpoint: \"%s\"\ncredentials_file: %s\n%s\n",
		 endpoint(c, "127.0.0.1"), write_token(c, "old"), outage);
	if (!web_open_backend(c, "s3", yaml, 1))
		return false;
	web_works(c);
	web_tell(c, "set s3=" ACCESS ":" SECRET ":us-east-1:new expired=old");
	return true;
}

static void check_renewed(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!open_to_expire(c, ""))
		return;
	write_token(c, "new");
	web_works(c);
	EXPECT(web_count(c, "expired") > 0, "the old token was not tried");
	/* As many as were under way. */
	EXPECT(web_count(c, "expired") < 20, "%llu requests with the old token",
	       (unsigned long long)web_count(c, "expired"));
	case_logged("new keys are used");
	case_not_logged(SECRET);
}

static void write_token_later(struct fault_case *c, const char *token, unsigned ms)
{
	pid_t pid = fork();

	if (pid != 0)
		return;
	usleep(ms * 1000);
	write_token(c, token);
	_exit(0);
}

static void check_renewed_late(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!open_to_expire(c, ""))
		return;
	write_token_later(c, "new", 700);
	web_works(c);
	EXPECT(web_count(c, "expired") > 1, "asked again too late");
	case_logged("the server refuses the keys, and their file has no others");
	case_logged("new keys are used");
}

static void check_not_renewed(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!open_to_expire(c, "on_disconnect: {queue: 1s}"))
		return;
	credentials(c, "two words", "");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == -EIO, "served");
	case_logged(
		"400 ExpiredToken \\(The provided token has expired.\\): put a new session token");
	case_logged("new keys cannot be read.*line 6: aws_secret_access_key");
	write_token(c, "new");
	/* One request after each pause finds out. */
	for (unsigned i = 0; i < 100 && rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) < 0; i++)
		case_turn_for(c, 100);
	web_works(c);
}

/* Closed while the file is being read. */
static void check_renewal_dropped(struct fault_case *c, const void *arg)
{
	(void)arg;
	if (!open_to_expire(c, "on_disconnect: fail"))
		return;
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == -EIO, "served");
	case_close(c);
	c->is_open = false;
	usleep(100000);
}

/* Nobody renews the environment. */
static void check_expired_environment(struct fault_case *c, const void *arg)
{
	(void)arg;
	serve_signed(c, "/images/disk.img");
	web_tell(c, "set s3=" ACCESS ":" SECRET ":us-east-1:old");
	setenv("AWS_ENDPOINT_URL", endpoint(c, "127.0.0.1"), 1);
	setenv("AWS_ACCESS_KEY_ID", ACCESS, 1);
	setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
	setenv("AWS_SESSION_TOKEN", "old", 1);
	if (!web_open_backend(c, "s3", "uri: s3://images/disk.img\n", 1))
		return;
	web_tell(c, "set expired=old");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == -EIO, "served");
	EXPECT(web_count(c, "expired") == 1, "asked again, for nothing");
}

static void run_renewals(uint64_t seed)
{
	fault_case_run("s3: keys expire, the file has others", 30, seed, check_renewed, NULL);
	fault_case_run("s3: keys expire, others come later", 30, seed, check_renewed_late, NULL);
	fault_case_run("s3: keys expire, others do not come", 30, seed, check_not_renewed, NULL);
	fault_case_run("s3: keys expire, the device is closed", 30, seed, check_renewal_dropped,
		       NULL);
	fault_case_run("s3: keys of the environment expire", 30, seed, check_expired_environment,
		       NULL);
}

/* A signature is for one server: no other is asked. */
static void check_elsewhere(struct fault_case *c, const void *arg)
{
	uint64_t requests;

	(void)arg;
	serve_signed(c, "/images/disk.img");
	if (!web_open_backend(c, "s3", object(c, "disk.img", ""), 1))
		return;
	requests = web_count(c, "requests");
	web_tell(c, "fault redirect 1 %s/images/disk.img", endpoint(c, "localhost"));
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) < 0, "served");
	EXPECT(web_count(c, "requests") == requests + 1, "the other place was asked");
	case_logged("it answers 302: see region and endpoint");
	web_works(c);
}

static void run_refusals(uint64_t seed)
{
	static const struct s3_refusal refusal[] = {
		{ "another region",
		  "fault xml 1 301:PermanentRedirect:Use_another_endpoint.:eu-west-1",
		  "301 PermanentRedirect \\(Use another endpoint.\\): set region: eu-west-1" },
		{ "a clock that is wrong", "fault xml 1 403:RequestTimeTooSkewed:Too_large.",
		  "RequestTimeTooSkewed \\(Too large.\\): set the clock of this machine: see "
		  "timedatectl" },
		{ "no such key", "fault xml 1 404:NoSuchKey:It_does_not_exist.",
		  "404 NoSuchKey \\(It does not exist.\\): see key" },
		{ "no words", "fault status 1 403", "it answers 403: see credentials_file" },
		{ "a busy server", "fault xml 1 503:SlowDown:Slow", "it answers 503 SlowDown" },
		{ "the whole object", "fault whole 1", "does not send ranges" },
		{ "an empty object", "set size=0", "the object is empty" },
	};
	char name[100];

	for (size_t i = 0; i < ARRAY_SIZE(refusal); i++) {
		snprintf(name, sizeof(name), "s3 refused: %s", refusal[i].name);
		fault_case_run(name, 30, seed, check_refused, &refusal[i]);
	}
}

void s3_run(uint64_t seed)
{
	static const struct name names[] = {
		{ "plain", "disk.img", "/images/disk.img" },
		{ "signs and letters", "a b+c/\303\251~(1).img",
		  "/images/a%20b%2Bc/%C3%A9~%281%29.img" },
		{ "dots and slashes", "/a/../b//.", "/images//a/../b//." },
	};
	char name[100];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(name, sizeof(name), "s3 key: %s", names[i].name);
		fault_case_run(name, 30, seed, check_key, &names[i]);
	}
	fault_case_run("s3: a session's token", 30, seed, check_token, NULL);
	fault_case_run("s3: the bucket before the host", 30, seed, check_virtual, NULL);
	fault_case_run("s3: all from the environment", 30, seed, check_environment, NULL);
	fault_case_run("s3: anonymous", 30, seed, check_anonymous, NULL);
	fault_case_run("s3: bad credentials", 30, seed, check_bad_credentials, NULL);
	fault_case_run("s3: refusals while it serves", 60, seed, check_serving, NULL);
	fault_case_run("s3: a wrong clock", 30, seed, check_clock, NULL);
	fault_case_run("s3: a wrong clock when it is opened", 30, seed, check_clock_at_open, NULL);
	fault_case_run("s3: sent elsewhere", 30, seed, check_elsewhere, NULL);
	run_renewals(seed);
	run_refusals(seed);
}
