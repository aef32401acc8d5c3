/*
 * Asks for a resize and tells from which size to which. Failure modes: the daemon refuses in words;
 * it has a deadline of its own.
 */
#include "ublkctl/ctl_resize.h"

#include <jansson.h>
#include <stdio.h>

#include "ublkctl/client.h"
#include "ublkctl/ctl_print.h"
#include "base/format.h"

static void print(const json_t *data)
{
	uint64_t old_bytes = (uint64_t)json_integer_value(json_object_get(data, "old_size_bytes"));
	uint64_t bytes = (uint64_t)json_integer_value(json_object_get(data, "size_bytes"));
	const char *given = json_string_value(json_object_get(data, "name"));
	const char *name = given ? given : "?";
	const char *note = json_string_value(json_object_get(data, "note"));
	char old_size[FORMAT_BYTES], size[FORMAT_BYTES];

	format_bytes(old_bytes, old_size);
	format_bytes(bytes, size);
	if (bytes == old_bytes)
		printf("%s: %s, unchanged\n", name, size);
	else
		printf("%s: %s -> %s\n", name, old_size, size);
	if (note && note[0])
		printf("%s\n", note);
}

enum exit_code ctl_resize(const struct ctl_resize_params *params)
{
	json_t *request = json_pack("{s:s, s:s, s:b}", "command", "resize", "name", params->name,
				    "force", params->force);
	enum exit_code code;
	json_t *data;

	if (params->size)
		json_object_set_new(request, "size", json_string(params->size));
	code = client_ask(params->socket_path, request, 0, &data);
	if (code != EXIT_DONE)
		return code;
	if (params->json)
		ctl_print_json(data);
	else
		print(data);
	json_decref(data);
	return EXIT_DONE;
}
