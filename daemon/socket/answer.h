/* Answers of the control socket: one line of JSON each (docs: ublkctl(1)). Main thread. */
#ifndef DAEMON_SOCKET_ANSWER_H
#define DAEMON_SOCKET_ANSWER_H

#include <jansson.h>
#include <stdbool.h>

#include "config/errors.h"
#include "daemon/socket/socket.h"

/* Sends reply, which is taken; NULL: it could not be made, and the client is told so. */
void socket_answer_json(struct socket_client *client, json_t *reply, bool close_after);

/* {"ok":true,"data":...}; data is taken, NULL: it could not be made, and the client is told so. */
void socket_answer(struct socket_client *client, json_t *data);

/* {"ok":false,"error":...,"errors":[...]}; error: any bytes; errors is taken and may be NULL. */
void socket_refuse(struct socket_client *client, const char *error, json_t *errors);

/* The same with the lines of e. */
void socket_refuse_errors(struct socket_client *client, const char *error, struct config_errors *e);

#endif
