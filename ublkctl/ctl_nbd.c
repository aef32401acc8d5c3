/*
 * Asks an NBD server which exports it has, then about each by a connection of its own, by GO, which
 * is what a device would do. Owns the answers until they are printed. Main thread of ublkctl.
 *
 * Happy path: LIST -> GO, GO ... -> JSON -> text of it. Failure modes: no server: told, nothing
 * else; LIST refused: told, and the export of the URI is asked for; an export refused: told with
 * it, the others are asked all the same; no answer any more: the others are not asked.
 */
#include "ublkctl/ctl_commands.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nbd/nbd_credentials.h"
#include "backends/nbd/nbd_examine.h"
#include "base/util.h"
#include "storage/limits.h"
#include "ublkctl/client.h"
#include "daemon/wire/json_words.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/print/say.h"
#include "base/format.h"

/* For one connection. */
#define TIMEOUT_NS (10 * NS_PER_SEC)
/* ublkd's, without block_size in the configuration. */
#define BLOCK_BYTES 512u

struct offer {
	char *name; /* as the server said it: to ask with */
	char *description;
};

struct server {
	struct nbd_uri uri;
	struct tls_credentials *tls;
	struct offer *offers; /* NBD_HANDSHAKE_EXPORTS_MAX at most */
	size_t nr;
	bool nomem;
	char error[512]; /* of the last question */
};

static void on_export(void *ctx, const uint8_t *name, size_t name_bytes, const uint8_t *description,
		      size_t description_bytes)
{
	struct server *s = ctx;
	struct offer *more = reallocarray(s->offers, s->nr + 1, sizeof(*more));

	if (!more) {
		s->nomem = true;
		return;
	}
	s->offers = more;
	more[s->nr] = (struct offer){
		.name = strndup((const char *)name, name_bytes),
		.description = strndup((const char *)description, description_bytes),
	};
	s->nomem |= !more[s->nr].name || !more[s->nr].description;
	s->nr++;
}

static void server_free(struct server *s)
{
	for (size_t i = 0; i < s->nr; i++) {
		free(s->offers[i].name);
		free(s->offers[i].description);
	}
	free(s->offers);
	tls_credentials_free(s->tls);
	free(s);
}

static int nbd_question(struct server *s, enum nbd_handshake_mode mode, const char *name,
			struct nbd_export *ret_export)
{
	struct nbd_handshake_config wish = {
		.mode = mode,
		.tls = s->uri.tls,
		.export_name = name,
		.on_export = on_export,
		.ctx = s,
	};

	return nbd_examine_wait(&s->uri, s->tls, &wish, TIMEOUT_NS, ret_export, s->error,
				sizeof(s->error));
}

/* ---- as JSON ---- */

static void set_key(json_t *object, const char *key, json_t *value)
{
	json_object_set_new(object, key, value);
}

struct ability {
	uint16_t flag; /* enum nbd_transmission_flags */
	const char *key;
};

static const struct ability abilities[] = {
	{ NBD_FLAG_SEND_FLUSH, "flush" },	  { NBD_FLAG_SEND_FUA, "fua" },
	{ NBD_FLAG_SEND_TRIM, "trim" },		  { NBD_FLAG_SEND_WRITE_ZEROES, "write_zeroes" },
	{ NBD_FLAG_SEND_FAST_ZERO, "fast_zero" }, { NBD_FLAG_CAN_MULTI_CONN, "multi_conn" },
	{ NBD_FLAG_SEND_CACHE, "cache" },	  { NBD_FLAG_SEND_DF, "dont_fragment" },
	{ NBD_FLAG_ROTATIONAL, "rotational" },
};

static const char *replies_name(const struct nbd_export *e)
{
	return e->extended ? "extended" : e->structured ? "structured" : "simple";
}

/* What ublkd would make of it: in words. */
static json_t *device_json(const struct nbd_export *e)
{
	uint32_t block = MAX(e->min_block_bytes, BLOCK_BYTES);
	uint64_t can_bytes = e->has_block_sizes
				     ? round_down(e->size_bytes, (uint64_t)e->min_block_bytes)
				     : e->size_bytes;
	/* As storage/resize.h has it. */
	uint64_t bytes = e->flags & NBD_FLAG_READ_ONLY ? round_up(can_bytes, (uint64_t)block)
						       : round_down(can_bytes, (uint64_t)block);
	/* As the backend does it: nothing is to be kept in order between readers. */
	bool several = e->flags & (NBD_FLAG_CAN_MULTI_CONN | NBD_FLAG_READ_ONLY);
	char size[FORMAT_BYTES], blocks[FORMAT_BYTES], tail[FORMAT_BYTES + 64] = "";

	format_bytes(block, blocks);
	if (e->min_block_bytes > BACKEND_BLOCK_BYTES_MAX)
		return json_sprintf("none: its block size of %s is larger than a device supports",
				    blocks);
	if (bytes == 0)
		return json_sprintf("none: the export is empty");
	if (bytes < e->size_bytes)
		snprintf(tail, sizeof(tail), ", without its last %llu bytes",
			 (unsigned long long)(e->size_bytes - bytes));
	else if (bytes > e->size_bytes)
		snprintf(tail, sizeof(tail), ", with %llu bytes of zeroes behind its end",
			 (unsigned long long)(bytes - e->size_bytes));
	return json_sprintf("%s of %s, blocks of %s or more, %s%s",
			    e->flags & NBD_FLAG_READ_ONLY ? "a read-only device" : "a device",
			    format_bytes(bytes, size), blocks,
			    several ? "several connections possible" : "one connection", tail);
}

static void add_export(json_t *json, const struct nbd_export *e)
{
	set_key(json, "size_bytes", json_integer((json_int_t)e->size_bytes));
	set_key(json, "read_only", json_boolean(e->flags & NBD_FLAG_READ_ONLY));
	for (size_t i = 0; i < ARRAY_SIZE(abilities); i++)
		set_key(json, abilities[i].key, json_boolean(e->flags & abilities[i].flag));
	set_key(json, "block_status", json_array());
	if (e->has_meta)
		json_array_append_new(json_object_get(json, "block_status"),
				      json_string(NBD_META_ALLOCATION));
	set_key(json, "block_sizes_said", json_boolean(e->has_block_sizes));
	set_key(json, "min_block_bytes", json_integer(e->min_block_bytes));
	set_key(json, "preferred_block_bytes", json_integer(e->preferred_block_bytes));
	set_key(json, "max_payload_bytes", json_integer(e->max_payload_bytes));
	set_key(json, "replies", json_string(replies_name(e)));
	set_key(json, "by_name", json_boolean(e->by_name));
	set_key(json, "tls", json_boolean(e->tls));
	set_key(json, "device", device_json(e));
}

/* description: of LIST, or NULL. Returns 0 or -errno, which is in the JSON too. */
static int ask_export(struct server *s, const char *name, const char *description, json_t *exports)
{
	json_t *json = json_object();
	struct nbd_export e = { 0 };
	int ret = nbd_question(s, NBD_HANDSHAKE_GO, name, &e);

	set_key(json, "name", json_words(name));
	set_key(json, "description",
		json_words(description && description[0] ? description : e.description));
	if (ret == 0)
		add_export(json, &e);
	else
		set_key(json, "error", json_words(s->error));
	json_array_append_new(exports, json);
	return ret;
}

/* Nobody answers: nor would they for the next one. */
static bool is_gone(int err)
{
	return err == -ETIMEDOUT || err == -ECONNREFUSED;
}

static int ask_all_exports(struct server *s, json_t *exports)
{
	int first = 0;

	for (size_t i = 0; i < s->nr; i++) {
		int ret = ask_export(s, s->offers[i].name, s->offers[i].description, exports);

		if (first == 0)
			first = ret;
		if (is_gone(ret))
			break;
	}
	return first;
}

/* ---- for people ---- */

static bool is_true(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

static void print_abilities(const json_t *o)
{
	bool any = false;

	say_to(stdout, "  can           ");
	for (size_t i = 0; i < ARRAY_SIZE(abilities); i++)
		if (is_true(o, abilities[i].key)) {
			say_to(stdout, " %s", abilities[i].key);
			any = true;
		}
	puts(any ? "" : " only read and write");
}

static void print_blocks(const json_t *o)
{
	char min[FORMAT_BYTES], preferred[FORMAT_BYTES], max[FORMAT_BYTES];

	say_to(stdout, "  blocks         from %s, best %s, requests up to %s%s\n",
	       format_bytes(client_number(o, "min_block_bytes"), min),
	       format_bytes(client_number(o, "preferred_block_bytes"), preferred),
	       format_bytes(client_number(o, "max_payload_bytes"), max),
	       is_true(o, "block_sizes_said")
		       ? ""
		       : " (the protocol's default: the server does not report any)");
}

static void print_export(const json_t *o)
{
	const json_t *contexts = json_object_get(o, "block_status");
	char size[FORMAT_BYTES];

	putchar('\n');
	say_to(stdout, "export \"%s\"\n", client_text(o, "name"));
	if (client_text(o, "description")[0] != '\0')
		say_to(stdout, "  description    %s\n", client_text(o, "description"));
	if (json_object_get(o, "error")) {
		say_to(stdout, "  error          %s\n",
		       json_string_value(json_object_get(o, "error")));
		return;
	}
	say_to(stdout, "  size           %llu bytes (%s)\n", client_number(o, "size_bytes"),
	       format_bytes(client_number(o, "size_bytes"), size));
	say_to(stdout, "  access         %s\n",
	       is_true(o, "read_only") ? "read-only" : "read and write");
	print_abilities(o);
	say_to(stdout, "  block status   %s\n",
	       json_array_size(contexts) ? json_string_value(json_array_get(contexts, 0)) : "no");
	print_blocks(o);
	say_to(stdout, "  replies        %s%s%s\n", client_text(o, "replies"),
	       is_true(o, "tls") ? ", TLS" : "",
	       is_true(o, "by_name") ? ", the server does not support GO" : "");
	say_to(stdout, "  device         %s\n", client_text(o, "device"));
}

static void print_server(const json_t *data)
{
	const json_t *exports = json_object_get(data, "exports");
	json_t *o;
	size_t i;

	say_to(stdout, "server %s%s\n", client_text(data, "address"),
	       is_true(data, "tls") ? ", TLS" : "");
	if (json_object_get(data, "list_error"))
		say_to(stdout, "it does not list its exports: %s\n",
		       json_string_value(json_object_get(data, "list_error")));
	else if (json_array_size(exports) == 0)
		say_to(stdout, "it lists no exports\n");
	json_array_foreach(exports, i, o) print_export(o);
}

/* ---- together ---- */

static int list_exports(struct server *s)
{
	struct nbd_export none;
	int ret = nbd_question(s, NBD_HANDSHAKE_LIST, "", &none);

	if (ret == 0 && s->nomem) {
		snprintf(s->error, sizeof(s->error), "out of memory");
		return -ENOMEM;
	}
	return ret;
}

/* It answers, but not to LIST. */
static bool lists_nothing(int err)
{
	return err == -EOPNOTSUPP || err == -EACCES;
}

/* Returns 0 or -errno: 0 and an error in *data alike are to be printed, else s->error. */
static int ask_server(struct server *s, bool all, json_t *data)
{
	json_t *exports = json_object_get(data, "exports");
	int ret;

	if (s->uri.export_name[0] != '\0' && !all)
		return ask_export(s, s->uri.export_name, NULL, exports);
	ret = list_exports(s);
	if (ret == 0)
		return ask_all_exports(s, exports);
	if (!lists_nothing(ret))
		return ret;
	set_key(data, "list_error", json_words(s->error));
	return ask_export(s, s->uri.export_name, NULL, exports);
}

static json_t *server_json(const struct server *s)
{
	char where[160];

	return json_pack("{s:o, s:b, s:[]}", "address",
			 json_words(net_host_format(&s->uri.server, where, sizeof(where))), "tls",
			 s->uri.tls, "exports");
}

/* Nothing but what went wrong is known. */
static bool is_only_errors(const json_t *data)
{
	const json_t *exports = json_object_get(data, "exports");

	return json_array_size(exports) == 0 ||
	       (json_array_size(exports) == 1 &&
		json_object_get(json_array_get(exports, 0), "error"));
}

static void print_nbd_errors(const struct server *s, const json_t *data)
{
	const json_t *list_error = json_object_get(data, "list_error");

	if (list_error)
		say_to(stderr, "ublkctl: %s\n", json_string_value(list_error));
	say_to(stderr, "ublkctl: %s\n", s->error);
}

static enum exit_code ask_and_print_exports(struct server *s, bool all, bool json)
{
	json_t *data = server_json(s);
	int ret = ask_server(s, all, data);

	if (ret < 0 && is_only_errors(data))
		print_nbd_errors(s, data);
	else if (json)
		print_json(data);
	else
		print_server(data);
	json_decref(data);
	return ret < 0 ? EXIT_REFUSED : EXIT_DONE;
}

enum exit_code ublkctl_nbd_info(const struct ublkctl_args *a)
{
	struct server *s = calloc(1, sizeof(*s));
	enum exit_code code = EXIT_REFUSED;
	struct nbd_uri_error e;

	if (!s)
		return EXIT_REFUSED;
	if (nbd_uri_parse(a->name, &s->uri, &e) < 0) {
		say_to(stderr, "ublkctl: %s\n", a->name);
		say_to(stderr, "ublkctl: column %zu: %s\n", e.column, e.text);
		code = EXIT_USAGE;
	} else if (nbd_credentials_new(&s->uri, &s->tls, s->error, sizeof(s->error)) < 0) {
		say_to(stderr, "ublkctl: %s\n", s->error);
	} else {
		code = ask_and_print_exports(s, a->list, a->json);
	}
	server_free(s);
	return code;
}
