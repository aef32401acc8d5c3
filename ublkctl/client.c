/*
 * One question, one answer, as ublkctl asks them. Owns the connection for the time of the question.
 *
 * Happy path: connect, send a line, read a line, take its data. Failure modes: nobody serves the
 * socket, no permission, no answer in time, an answer that is a refusal: each is printed in words
 * with the cure.
 */
#include "ublkctl/client.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/errname.h"
#include "daemon/runtime/fd_message.h"
#include "host/user_paths.h"
#include "daemon/socket/socket.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/print/say.h"

/* Behind words about a socket that a user who is not root cannot use. */
static const char *user_hint(void)
{
	char path[PATH_MAX];

	if (geteuid() == 0)
		return "";
	if (user_path(USER_PATH_CONTROL, path) < 0)
		return "; for a ublkd of your own XDG_RUNTIME_DIR must be set, as in a session";
	return "; your own: systemctl --user start ublkd; the system's: sudo ublkctl";
}

void client_no_connection(const char *path, int err, char *ret_text, size_t bytes)
{
	switch (err) {
	case ENOENT:
	case ENOTDIR:
		snprintf(ret_text, bytes,
			 "no process serves %s: start ublkd, or give its socket with --socket "
			 "PATH%s",
			 path, user_hint());
		break;
	case ECONNREFUSED:
		snprintf(ret_text, bytes,
			 "no process answers at %s: ublkd is starting or stopping, or was "
			 "killed; see its log",
			 path);
		break;
	case EACCES:
	case EPERM:
		snprintf(ret_text, bytes, "no permission for %s: run as root, as ublkd does%s",
			 path, user_hint());
		break;
	case EKEYREJECTED:
		snprintf(ret_text, bytes,
			 "%s belongs to a process of a user other than root: no request was sent; "
			 "find out who created the socket, and ask as that user: runuser -u USER "
			 "-- ublkctl",
			 path);
		break;
	case EAGAIN:
		snprintf(ret_text, bytes, "ublkd at %s does not answer; is it stopped or stuck?",
			 path);
		break;
	default:
		snprintf(ret_text, bytes, "%s: %s", path, strerror(err));
	}
}

static void tell_no_connection(const char *path, int err)
{
	char text[CLIENT_TEXT_BYTES];

	client_no_connection(path, err, text, sizeof(text));
	say_to(stderr, "ublkctl: %s\n", text);
}

bool client_may_ask(int fd)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
	       (peer.uid == 0 || peer.uid == geteuid());
}

/* Returns an fd or -errno. */
static int connect_ublkd(const char *path, int seconds)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = CLIENT_SECONDS }, answer = { .tv_sec = seconds };
	int fd, ret = 0;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* SNDTIMEO is connect's limit too, unix(7). */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &answer, sizeof(answer));
	if (connect(fd, (void *)&addr, sizeof(addr)) < 0)
		ret = -errno;
	else if (!client_may_ask(fd))
		ret = -EKEYREJECTED;
	if (ret == 0)
		return fd;
	close(fd);
	return ret;
}

/* passed_fd: goes along with the first byte; -1: none. */
static int send_line(int fd, const char *text, int passed_fd)
{
	size_t bytes = strlen(text), sent = 0;
	ssize_t ret;

	if (passed_fd >= 0) {
		if (fd_message_send(fd, text, 1, passed_fd, 0) != 1)
			return -errno;
		sent = 1;
	}

	while (sent <= bytes) {
		ret = sent < bytes ? send(fd, text + sent, bytes - sent, MSG_NOSIGNAL)
				   : send(fd, "\n", 1, MSG_NOSIGNAL);
		if (ret < 0 && errno != EINTR)
			return -errno;
		if (ret > 0)
			sent += (size_t)ret;
	}
	return 0;
}

/* jansson reads until the object is complete; err: why it is not. */
struct source {
	int fd;
	int err;
	bool any; /* something came */
};

static size_t read_some(void *buffer, size_t bytes, void *arg)
{
	struct source *source = arg;
	ssize_t ret;

	do {
		ret = recv(source->fd, buffer, bytes, 0);
	} while (ret < 0 && errno == EINTR);
	if (ret < 0)
		source->err = errno;
	source->any |= ret > 0;
	return ret < 0 ? (size_t)-1 : (size_t)ret;
}

/* NULL with *ret_err set: 0 when the answer was cut short or no JSON. */
static json_t *read_reply(int fd, int *ret_err, bool *ret_any)
{
	struct source source = { .fd = fd };
	json_error_t error;
	json_t *reply = json_load_callback(read_some, &source, JSON_DISABLE_EOF_CHECK, &error);

	*ret_err = source.err;
	*ret_any = source.any;
	return reply;
}

static void wait_for_answer(int fd, const struct client_meanwhile *meanwhile)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	while (poll(&p, 1, meanwhile->every_ms) == 0)
		meanwhile->fn(meanwhile->arg);
}

static json_t *ask_socket(const char *path, const char *text, int seconds,
			  const struct client_meanwhile *meanwhile, int passed_fd)
{
	int fd = connect_ublkd(path, seconds), ret, err;
	json_t *reply;
	bool any;

	if (fd < 0) {
		tell_no_connection(path, -fd);
		return NULL;
	}
	ret = send_line(fd, text, passed_fd);
	if (ret == 0 && meanwhile)
		wait_for_answer(fd, meanwhile);
	/* Refused while sending (too many clients): the reason is there to be read. */
	reply = read_reply(fd, &err, &any);
	close(fd);
	if (!reply && (ret < 0 || err))
		tell_no_connection(path, err ? err : -ret);
	else if (!reply)
		say_to(stderr, "ublkctl: %s\n",
		       any ? "the answer is truncated, or not from ublkd: did ublkd exit, or does "
			     "another program serve this socket?"
			   : "ublkd exited before it answered");
	return reply;
}

static void tell_versions(const char *version)
{
	if (strcmp(version, UBLKD_VERSION) != 0)
		say_to(stderr,
		       "ublkctl: this is ublkctl %s and the daemon is ublkd %s: use the ublkctl "
		       "of the same version\n",
		       UBLKD_VERSION, version);
}

/* Data of an unknown kind: asks for the version that sent it. */
static void tell_strange(const char *path)
{
	json_t *reply = ask_socket(path, "{\"command\":\"version\"}", CLIENT_SECONDS, NULL, -1);
	const char *version =
		json_string_value(json_object_get(json_object_get(reply, "data"), "version"));

	say_to(stderr, "ublkctl: ublkctl %s does not understand the answer; it is from %s%s\n",
	       UBLKD_VERSION, version ? "ublkd " : "a program without a ublkd version",
	       version ? version : "");
	json_decref(reply);
}

/* These answer with a list, all others with an object. */
static bool is_expected(const json_t *request, const json_t *data)
{
	const char *command = json_string_value(json_object_get(request, "command"));
	json_t *item;
	size_t i;

	if (strcmp(command, "list") != 0 && strcmp(command, "reactors") != 0)
		return json_is_object(data);
	json_array_foreach(data, i, item) if (!json_is_object(item)) return false;
	return json_is_array(data);
}

void client_tell_refusal(const json_t *reply)
{
	const char *error = json_string_value(json_object_get(reply, "error"));
	json_t *errors = json_object_get(reply, "errors"), *line;
	size_t i;

	/* A single error is the same as the summary. */
	if (json_array_size(errors) != 1 || !json_is_string(json_array_get(errors, 0)))
		say_to(stderr, "ublkctl: %s\n",
		       error ? error : "the request was refused without a reason");
	json_array_foreach(errors, i, line) if (json_is_string(line))
		say_to(stderr, "%s\n", json_string_value(line));
	if (json_is_string(json_object_get(reply, "version")))
		tell_versions(json_string_value(json_object_get(reply, "version")));
}

static void say_each(FILE *out, const char *before, const json_t *texts)
{
	json_t *text;
	size_t i;

	json_array_foreach(texts, i, text) if (json_is_string(text))
		say_to(out, "%s: %s\n", before, json_string_value(text));
}

void client_say_notes(FILE *out, const char *before, const json_t *of)
{
	say_each(out, before, json_object_get(of, "notes"));
}

/* NULL: there is none, and why is printed. */
static json_t *client_reply(const char *socket_path, const json_t *request, int seconds,
			    const struct client_meanwhile *meanwhile, int passed_fd)
{
	char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	json_t *reply = NULL;

	if (!text)
		say_to(stderr,
		       "ublkctl: a name on the command line is not UTF-8, or memory ran out\n");
	else if (strlen(text) >= SOCKET_REQUEST_BYTES_MAX)
		say_to(stderr, "ublkctl: the request is longer than 1 MiB\n");
	else
		reply = ask_socket(socket_path, text, seconds, meanwhile, passed_fd);
	free(text);
	return reply;
}

/* request and reply are taken. */
static enum exit_code judge_reply(const char *socket_path, json_t *request, json_t *reply,
				  json_t **ret_data, json_t **ret_refusal)
{
	json_t *data = json_object_get(reply, "data");
	bool accepted = json_is_true(json_object_get(reply, "ok"));
	bool strange = accepted && !is_expected(request, data);

	*ret_refusal = reply && !accepted ? json_incref(reply) : NULL;
	if (accepted && !strange) {
		*ret_data = json_incref(data);
		say_each(stderr, "ublkctl: warning", json_object_get(data, "warnings"));
	}
	if (strange)
		tell_strange(socket_path);
	json_decref(reply);
	json_decref(request);
	return accepted && !strange ? EXIT_DONE : EXIT_REFUSED;
}

enum exit_code client_try(const char *socket_path, json_t *request, int seconds, json_t **ret_data,
			  json_t **ret_refusal)
{
	return judge_reply(socket_path, request,
			   client_reply(socket_path, request, seconds, NULL, -1), ret_data,
			   ret_refusal);
}

enum exit_code client_try_long(const char *socket_path, json_t *request,
			       const struct client_meanwhile *meanwhile, json_t **ret_data,
			       json_t **ret_refusal)
{
	return judge_reply(socket_path, request,
			   client_reply(socket_path, request, 0, meanwhile, -1), ret_data,
			   ret_refusal);
}

enum exit_code client_ask(const char *socket_path, json_t *request, int seconds, json_t **ret_data)
{
	json_t *refusal;
	enum exit_code code = client_try(socket_path, request, seconds, ret_data, &refusal);

	if (refusal)
		client_tell_refusal(refusal);
	json_decref(refusal);
	return code;
}

/* data is taken. */
static void print_data(const struct ublkctl_args *a, json_t *data,
		       void (*print)(const json_t *data))
{
	if (a->json)
		print_json(data);
	else if (print)
		print(data);
	json_decref(data);
}

enum exit_code client_ask_and_print(const struct ublkctl_args *a, json_t *request, int seconds,
				    void (*print)(const json_t *data))
{
	json_t *data;
	enum exit_code code = client_ask(a->socket_path, request, seconds, &data);

	if (code == EXIT_DONE)
		print_data(a, data, print);
	return code;
}

enum exit_code client_send_fd_and_print(const struct ublkctl_args *a, json_t *request, int fd,
					void (*print)(const json_t *data))
{
	json_t *data, *refusal;
	enum exit_code code =
		judge_reply(a->socket_path, request,
			    client_reply(a->socket_path, request, 0, NULL, fd), &data, &refusal);

	if (refusal)
		client_tell_refusal(refusal);
	json_decref(refusal);
	if (code == EXIT_DONE)
		print_data(a, data, print);
	return code;
}

json_t *client_request(const char *command, const char *name)
{
	json_t *request = json_pack("{s:s}", "command", command);

	client_set_text(&request, "name", name);
	return request;
}

void client_set_text(json_t **request, const char *key, const char *text)
{
	if (!text || json_object_set_new(*request, key, json_string(text)) == 0)
		return;
	json_decref(*request);
	*request = NULL;
}

const char *client_text(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value ? value : "";
}

unsigned long long client_number(const json_t *object, const char *key)
{
	return (unsigned long long)json_integer_value(json_object_get(object, key));
}
