/* ublkctl's end of the control socket: one connection per question, blocking, with a limit. */
#ifndef UBLKCTL_CLIENT_H
#define UBLKCTL_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "daemon/runtime/exit_code.h"
#include "ublkctl/ctl_commands.h"

/* How long an answer that needs no device may take. */
#define CLIENT_SECONDS 10

/*
 * Asks (request is taken; seconds 0: as long as it takes) and gives the answer's data. When it is
 * refused or cannot be asked, the reason is printed to stderr and EXIT_REFUSED returned.
 */
enum exit_code client_ask(const char *socket_path, json_t *request, int seconds, json_t **ret_data);

/*
 * The same, but a refusal is not printed: *ret_refusal is then the answer, for client_tell_refusal
 * and json_decref; without an answer it is NULL, and why is printed.
 */
enum exit_code client_try(const char *socket_path, json_t *request, int seconds, json_t **ret_data,
			  json_t **ret_refusal);
void client_tell_refusal(const json_t *refusal);

/* The key notes of an answer, or of a device in it: what its user has to know, a line for each. */
void client_say_notes(FILE *out, const char *before, const json_t *of);

/* The same as client_ask, and prints the data: as JSON with --json, else with print; NULL: prints
 * nothing. */
enum exit_code client_ask_and_print(const struct ublkctl_args *a, json_t *request, int seconds,
				    void (*print)(const json_t *data));

/* The same; fd goes along with the request and stays the caller's. As long as it takes. */
enum exit_code client_send_fd_and_print(const struct ublkctl_args *a, json_t *request, int fd,
					void (*print)(const json_t *data));

/* What is done again and again while an answer is awaited, as long as it takes. */
struct client_meanwhile {
	int every_ms;
	void (*fn)(void *arg);
	void *arg;
};
/* As client_try; meanwhile NULL: nothing is done. */
enum exit_code client_try_long(const char *socket_path, json_t *request,
			       const struct client_meanwhile *meanwhile, json_t **ret_data,
			       json_t **ret_refusal);

/* {"command":command,"name":name}; name NULL: without. */
json_t *client_request(const char *command, const char *name);

/* text: a word of the command line; NULL: none. *request becomes NULL when it is not UTF-8. */
void client_set_text(json_t **request, const char *key, const char *text);

/* From answers. A key that is missing, as with another version of ublkd: "" and 0. */
const char *client_text(const json_t *object, const char *key);
unsigned long long client_number(const json_t *object, const char *key);

/*
 * Whether root or our own user serves the other end of a connection: a socket in a folder that
 * others may write could be any user's, and requests contain configurations.
 */
bool client_may_ask(int fd);

/* Why there is no answer at path, in words with the cure; err is what connect or recv said,
 * or EKEYREJECTED after client_may_ask. */
#define CLIENT_TEXT_BYTES 512
void client_no_connection(const char *path, int err, char *ret_text, size_t bytes);

#endif
