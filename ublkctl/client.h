/* ublkctl's end of the control socket: one connection per question, blocking, with a limit. */
#ifndef UBLKCTL_CLIENT_H
#define UBLKCTL_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/runtime/exit_code.h"

/* How long an answer that needs no device may take. */
#define CLIENT_SECONDS 10

/*
 * Asks (request is taken; seconds 0: as long as it takes) and gives the answer's data. When it is
 * refused or cannot be asked, the reason is printed to stderr and EXIT_REFUSED returned.
 */
enum exit_code client_ask(const char *socket_path, json_t *request, int seconds, json_t **ret_data);

/*
 * Whether root or our own user serves the other end of a connection: a socket in a folder that
 * others may write could be anybody's, and what is asked tells of configurations.
 */
bool client_may_ask(int fd);

/* Why nobody answers at path, in words with the cure; err is what connect or recv said,
 * or EKEYREJECTED after client_may_ask. */
#define CLIENT_TEXT_BYTES 512
void client_no_connection(const char *path, int err, char *ret_text, size_t bytes);

#endif
