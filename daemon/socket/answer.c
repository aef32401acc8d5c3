/*
 * What every answer on the control socket looks like. Main thread. Failure mode: no memory for an
 * answer: the client is answered that.
 */
#include "daemon/socket/answer.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/wire/json_words.h"

#define NO_ANSWER "{\"ok\":false,\"error\":\"ublkd is out of memory for the answer\"}"

void socket_answer_json(struct socket_client *client, json_t *reply, bool close_after)
{
	char *text = reply ? json_dumps(reply, JSON_COMPACT) : NULL;

	json_decref(reply);
	socket_reply(client, text ? text : strdup(NO_ANSWER), close_after);
}

void socket_answer(struct socket_client *client, json_t *data)
{
	socket_answer_json(client, data ? json_pack("{s:b, s:o}", "ok", 1, "data", data) : NULL,
			   false);
}

void socket_refuse(struct socket_client *client, const char *error, json_t *errors)
{
	json_t *reply = json_pack("{s:b, s:o}", "ok", 0, "error", json_words(error));

	if (errors)
		json_object_set_new(reply, "errors", errors);
	socket_answer_json(client, reply, false);
}

/* Lines of text as an array of strings. */
static json_t *text_lines(const char *text)
{
	json_t *all = json_array();

	while (text && *text) {
		size_t len = strcspn(text, "\n");

		json_array_append_new(all, json_words_bytes(text, len));
		text += len + (text[len] == '\n');
	}
	return all;
}

void socket_refuse_errors(struct socket_client *client, const char *error, struct config_errors *e)
{
	char *text = config_errors_text(e);

	socket_refuse(client, error, text_lines(text));
	free(text);
}
