/*
 * Asks an NVMe/TCP discovery controller for its log page: which subsystems there are, and where.
 * Owns the entries until they are printed. Main thread of ublkctl.
 *
 * Happy path: HOST or URI -> who we are -> the log page -> JSON -> text of it. Failure modes: what
 * is no target: EXIT_USAGE; no answer, or a refusal: told, with the cure. Texts of entries are
 * printable, but as hostile as their sender: a URI is made only of what one may be pasted of.
 */
#include "ublkctl/ctl_commands.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nvme/nvme_examine.h"
#include "backends/nvme/nvme_host.h"
#include "backends/nvme/protocol/nvme_nqn.h"
#include "backends/nvme/protocol/nvme_uri.h"
#include "base/util.h"
#include "ublkctl/client.h"
#include "daemon/wire/json_words.h"
#include "net/uri.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/print/say.h"
#include "ublkctl/print/table.h"

#define SCHEME "nvme+tcp://"
#define TIMEOUT_SECONDS 10.0
/* Of an address, a port, two NQNs: each byte at most %XX. */
#define MADE_URI_BYTES 2560u

struct discovery {
	struct nvme_uri uri;
	bool has_host_nqn;		      /* said by the user: attach needs it too */
	struct nvme_discovery_entry *entries; /* NVME_DISCOVERY_ENTRIES_MAX at most */
	size_t nr;
	bool nomem;
	char error[1024];
};

static void on_entry(void *arg, uint32_t idx, const struct nvme_discovery_entry *entry)
{
	struct discovery *d = arg;
	struct nvme_discovery_entry *more;

	if (!entry) {
		d->nr = 0;
		return;
	}
	more = reallocarray(d->entries, idx + 1, sizeof(*more));
	if (!more) {
		d->nomem = true;
		return;
	}
	d->entries = more;
	d->entries[idx] = *entry;
	d->nr = idx + 1;
}

/* ---- the command line ---- */

static bool is_bare_ipv6(const char *word)
{
	struct in6_addr address;

	return inet_pton(AF_INET6, word, &address) == 1;
}

/* The column of an error counts in the word as it was typed. */
static int parse_word(const char *word, struct nvme_uri *uri, struct nvme_uri_error *e)
{
	char text[NVME_URI_BYTES_MAX + sizeof(SCHEME "[]/")];
	size_t before;
	int ret;

	if (strstr(word, "://"))
		return nvme_uri_parse(word, uri, e);
	before = strlen(SCHEME) + is_bare_ipv6(word);
	snprintf(text, sizeof(text), is_bare_ipv6(word) ? SCHEME "[%s]/" : SCHEME "%s/", word);
	ret = nvme_uri_parse(text, uri, e);
	if (ret < 0)
		e->column -= MIN(e->column - 1, before);
	return ret;
}

static void tell_strange_host(const char *nqn)
{
	const char *strange = nqn[0] ? nvme_nqn_strange(nqn) : NULL;

	if (strange)
		say_to(stderr, "ublkctl: the name of this host, %s, %s\n", nqn, strange);
}

/* Returns 0, or -EINVAL: told. */
static int parse_discovery(const struct ublkctl_args *a, struct nvme_uri *uri)
{
	struct nvme_uri_error e;
	char words[160];

	if (parse_word(a->name, uri, &e) < 0) {
		say_to(stderr, "ublkctl: %s\n", a->name);
		say_to(stderr, "ublkctl: column %zu: %s\n", e.column, e.text);
	} else if (!uri->discovery) {
		say_to(stderr,
		       "ublkctl: %s: it is the target that lists subsystems: leave %s out\n",
		       a->name, uri->subsystem_nqn);
	} else if (a->host_nqn && uri->host_nqn[0] != '\0') {
		say_to(stderr, "ublkctl: --host-nqn: the URI has it too, as hostnqn: say it "
			       "once\n");
	} else if (a->host_nqn && nvme_nqn_check(a->host_nqn, words, sizeof(words)) < 0) {
		say_to(stderr, "ublkctl: --host-nqn %s: %s\n", a->host_nqn, words);
	} else {
		if (a->host_nqn)
			snprintf(uri->host_nqn, sizeof(uri->host_nqn), "%s", a->host_nqn);
		tell_strange_host(uri->host_nqn);
		return 0;
	}
	return -EINVAL;
}

/* ---- the question ---- */

/* Without keep alive, as it is over at once. */
static int ask_discovery(struct discovery *d, double seconds)
{
	struct nvme_examine_params params = {
		.fabrics = { .mode = NVME_FABRICS_DISCOVERY,
			     .subsystem_nqn = d->uri.subsystem_nqn,
			     .host_nqn = d->uri.host_nqn },
		.header_digest = d->uri.header_digest,
		.data_digest = d->uri.data_digest,
		.timeout_ns = (uint64_t)(seconds * NS_PER_SEC),
		.on_entry = on_entry,
	};
	int ret;

	memcpy(params.fabrics.host_id, d->uri.host_id, sizeof(params.fabrics.host_id));
	ret = nvme_examine_wait(&d->uri.server, &params, d, d->error, sizeof(d->error));
	if (ret == 0 && d->nomem) {
		snprintf(d->error, sizeof(d->error), "out of memory");
		return -ENOMEM;
	}
	return ret;
}

static void print_discovery_error(const struct discovery *d, int err)
{
	const struct net_host *server = &d->uri.server;
	struct net_host other = *server;
	char where[300];

	say_to(stderr, "ublkctl: %s\n", d->error);
	if (err != -ECONNREFUSED || server->port != NVME_TCP_DISCOVERY_PORT)
		return;
	other.port = NVME_TCP_PORT;
	say_to(stderr,
	       "ublkctl: Linux' target lists its subsystems on the ports where they are: try "
	       "ublkctl nvme-discover %s\n",
	       net_host_format(&other, where, sizeof(where)));
}

/* ---- URIs ---- */

/* Plain to each shell; the buffer has room for three times the text. */
static char *add_encoded(char *at, const char *text)
{
	size_t bytes = strlen(text);

	return at + uri_escape(text, bytes, "-._:", at, 3 * bytes + 5);
}

/* Only an NQN of ASCII that came as it was: without the escapes and the "..." of printable. */
static bool is_whole(const struct nvme_discovery_entry *e)
{
	size_t bytes = strlen(e->subnqn);

	for (const char *at = e->subnqn; *at; at++)
		if ((unsigned char)*at >= 0x80 || *at == '\\')
			return false;
	return bytes <= NVME_NQN_BYTES_MAX &&
	       (bytes < 3 || strcmp(e->subnqn + bytes - 3, "...") != 0);
}

/*
 * Of the subsystem, or of the discovery controller that the entry refers to. False: what the entry
 * says makes none.
 */
static bool make_uri(const struct discovery *d, const struct nvme_discovery_entry *e,
		     char uri[static MADE_URI_BYTES])
{
	bool refers = e->subtype == NVME_SUBTYPE_REFERRAL;
	const char *default_port = refers ? "8009" : "4420";
	bool ipv6 = strchr(e->traddr, ':');
	struct nvme_uri parsed;
	struct nvme_uri_error error;
	char *at = uri;

	if (e->trtype != NVME_TRTYPE_TCP || !is_whole(e) ||
	    (e->subtype != NVME_SUBTYPE_NVME && !refers))
		return false;
	at += sprintf(at, SCHEME "%s", ipv6 ? "[" : "");
	at = add_encoded(at, e->traddr);
	at += sprintf(at, "%s", ipv6 ? "]" : "");
	if (strcmp(e->trsvcid, default_port) != 0) {
		*at++ = ':';
		at = add_encoded(at, e->trsvcid);
	}
	*at++ = '/';
	*at = '\0';
	if (!refers)
		at = add_encoded(at, e->subnqn);
	if (d->has_host_nqn)
		add_encoded(at + sprintf(at, "?hostnqn="), d->uri.host_nqn);
	return nvme_uri_parse(uri, &parsed, &error) == 0 && parsed.discovery == refers;
}

/* ---- as JSON: the keys of nvme-cli ---- */

static json_t *entry_json(const struct discovery *d, const struct nvme_discovery_entry *e)
{
	char uri[MADE_URI_BYTES];

	return json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:b, s:s?}", "trtype",
			 nvme_trtype_name(e->trtype), "adrfam", nvme_adrfam_name(e->adrfam),
			 "subtype", nvme_subtype_name(e->subtype), "portid", e->port_id, "traddr",
			 e->traddr, "trsvcid", e->trsvcid, "subnqn", e->subnqn, "tls", e->tls,
			 "uri", make_uri(d, e, uri) ? uri : NULL);
}

static json_t *discovery_json(const struct discovery *d)
{
	json_t *records = json_array();
	char where[300];

	for (size_t i = 0; i < d->nr; i++)
		json_array_append_new(records, entry_json(d, &d->entries[i]));
	net_host_format(&d->uri.server, where, sizeof(where));
	return json_pack("{s:o, s:o, s:o}", "address", json_words(where), "hostnqn",
			 json_words(d->uri.host_nqn), "records", records);
}

/* ---- for people ---- */

static bool needs_tls(const json_t *record)
{
	return json_is_true(json_object_get(record, "tls"));
}

static void record_row(struct table *t, const json_t *record)
{
	table_cell(t, TABLE_PLAIN, "%s", client_text(record, "trtype"));
	table_cell(t, TABLE_PLAIN, "%s", client_text(record, "adrfam"));
	table_cell(t, TABLE_PLAIN, "%s", client_text(record, "subtype"));
	table_cell(t, TABLE_PLAIN, "%llu", client_number(record, "portid"));
	table_cell(t, TABLE_PLAIN, "%s", client_text(record, "traddr"));
	table_cell(t, TABLE_PLAIN, "%s", client_text(record, "trsvcid"));
	table_cell(t, needs_tls(record) ? TABLE_YELLOW : TABLE_DIM, "%s",
		   needs_tls(record) ? "required" : "-");
	table_cell(t, TABLE_PLAIN, "%s", client_text(record, "subnqn"));
}

static void print_records(const json_t *records)
{
	static const char *const head[] = { "TRANSPORT", "FAMILY", "SUBTYPE", "PORT ID",
					    "ADDRESS",	 "PORT",   "TLS",     "SUBSYSTEM" };
	struct table t;
	json_t *record;
	size_t i;

	table_init(&t, "lllrlrll");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(records, i, record) record_row(&t, record);
	table_print(&t);
	table_fini(&t);
}

static bool is_record_of(const json_t *record, enum nvme_subtype subtype)
{
	return strcmp(client_text(record, "subtype"), nvme_subtype_name(subtype)) == 0;
}

/* Quoted where a shell would take it for a pattern. A key for TLS has no place in a command. */
static void print_next_command(const json_t *record)
{
	const char *uri = client_text(record, "uri");
	const char *quote = strpbrk(uri, "[?") ? "'" : "";
	bool refers = is_record_of(record, NVME_SUBTYPE_REFERRAL);

	if (uri[0] == '\0')
		return;
	if (!needs_tls(record))
		say_to(stdout, "ublkctl %s %s%s%s\n", refers ? "nvme-discover" : "attach", quote,
		       uri, quote);
	else if (refers)
		say_to(stdout, "%s requires TLS: nvme-discover cannot ask it\n", uri);
	else
		say_to(stdout,
		       "%s requires TLS: write a file for ublkctl add, with this uri and "
		       "tls_key_file\n",
		       uri);
}

static void print_discovery(const json_t *data)
{
	const json_t *records = json_object_get(data, "records");
	json_t *record;
	size_t i;

	say_to(stdout, "discovery controller %s\n", client_text(data, "address"));
	if (json_array_size(records) == 0) {
		say_to(stdout,
		       "it lists no subsystems to this host: does the target allow "
		       "%s?\n",
		       client_text(data, "hostnqn"));
		return;
	}
	putchar('\n');
	print_records(records);
	putchar('\n');
	json_array_foreach(records, i, record) print_next_command(record);
}

/* ---- together ---- */

static enum exit_code discover(struct discovery *d, const struct ublkctl_args *a)
{
	json_t *data;
	int ret;

	d->has_host_nqn = d->uri.host_nqn[0] != '\0';
	ret = nvme_host_complete(&d->uri, d->error, sizeof(d->error));
	if (ret == -ENOENT) {
		say_to(stderr, "ublkctl: this host has no name: say --host-nqn NQN, or make "
			       "/etc/nvme/hostnqn with nvme gen-hostnqn\n");
		return EXIT_REFUSED;
	}
	if (ret == 0)
		ret = ask_discovery(d, a->timeout > 0 ? a->timeout : TIMEOUT_SECONDS);
	if (ret < 0) {
		print_discovery_error(d, ret);
		return EXIT_REFUSED;
	}
	data = discovery_json(d);
	if (a->json)
		print_json(data);
	else
		print_discovery(data);
	json_decref(data);
	return EXIT_DONE;
}

enum exit_code ublkctl_nvme_discover(const struct ublkctl_args *a)
{
	struct discovery *d = calloc(1, sizeof(*d));
	enum exit_code code = EXIT_REFUSED;

	if (!d)
		return EXIT_REFUSED;
	code = parse_discovery(a, &d->uri) < 0 ? EXIT_USAGE : discover(d, a);
	free(d->entries);
	free(d);
	return code;
}
