/*
 * Reads NVMe-oF URIs. Pure functions, any thread.
 *
 * Happy path: scheme -> authority (host, port) -> path (NQN, namespace) -> query. Failure modes:
 * those of net/uri.h.
 */
#include "backends/nvme/protocol/nvme_uri.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "net/uri.h"

#define SCHEME "nvme+tcp"

static int nvme_uri_nqn(const struct uri_reader *r, struct uri_part from, const char *what,
			char buf[static NVME_NQN_BYTES_MAX + 1])
{
	char words[100];

	if (uri_decode(r, from, what, buf, NVME_NQN_BYTES_MAX + 1) < 0)
		return -EINVAL;
	/* The boot specification shows it in capitals. */
	if (strcasecmp(buf, NVME_DISCOVERY_NQN) == 0)
		memcpy(buf, NVME_DISCOVERY_NQN, sizeof(NVME_DISCOVERY_NQN));
	if (nvme_nqn_check(buf, words, sizeof(words)) < 0)
		return uri_fail(r, from.at, "%s: %s", what, words);
	return 0;
}

/* ---- scheme, authority: [host][:port] ---- */

static int nvme_uri_scheme(struct uri_reader *r)
{
	struct uri_part part;

	if (uri_read_scheme(r, SCHEME "://host/nqn.2024-01.com.example:disk", &part) < 0)
		return -EINVAL;
	return uri_is_scheme(part, SCHEME)
		       ? 0
		       : uri_fail(r, part.at, "unknown scheme; known is " SCHEME);
}

static int nvme_uri_authority(struct uri_reader *r, struct nvme_uri *uri)
{
	struct uri_part authority = uri_split(r, "/?#");

	uri->server.kind = NET_TCP;
	if (uri_find(authority, '@'))
		return uri_fail(r, authority.at,
				"a user has no place in an NVMe URI: hosts are known by hostnqn");
	return uri_decode_server(r, authority, "the host is missing", &uri->server);
}

/* ---- path: subsystem NQN, namespace ---- */

/* The next segment that is not empty; libnvme passes over empty ones too. */
static struct uri_part nvme_uri_segment(struct uri_reader *r)
{
	while (*r->at == '/')
		r->at++;
	return uri_split(r, "/?#");
}

static int nvme_uri_path(struct uri_reader *r, struct nvme_uri *uri)
{
	struct uri_part nqn = nvme_uri_segment(r), namespace = nvme_uri_segment(r);
	struct uri_part more = nvme_uri_segment(r);
	char text[64];

	if (more.at < more.end)
		return uri_fail(r, more.at,
				"nothing comes behind the namespace; a / in an NQN is %%2F");
	memcpy(uri->subsystem_nqn, NVME_DISCOVERY_NQN, sizeof(NVME_DISCOVERY_NQN));
	if (nqn.at < nqn.end && nvme_uri_nqn(r, nqn, "subsystem NQN", uri->subsystem_nqn) < 0)
		return -EINVAL;
	uri->discovery = nvme_nqn_is_discovery(uri->subsystem_nqn);
	if (uri->server.port == 0)
		uri->server.port = uri->discovery ? NVME_TCP_DISCOVERY_PORT : NVME_TCP_PORT;
	if (namespace.at == namespace.end)
		return 0;
	if (uri_decode(r, namespace, "namespace", text, sizeof(text)) < 0)
		return -EINVAL;
	if (nvme_want_parse(text, &uri->want) < 0)
		return uri_fail(r, namespace.at,
				"namespace: expected a number, uuid.UUID, nguid.32 hex digits "
				"or eui.16 hex digits");
	return 0;
}

/* ---- query ---- */

static const char *const keys[NVME_URI_KEY_NR] = {
	[NVME_URI_HOSTNQN] = "hostnqn",
	[NVME_URI_HOSTID] = "hostid",
	[NVME_URI_HDR_DIGEST] = "hdr_digest",
	[NVME_URI_DATA_DIGEST] = "data_digest",
	[NVME_URI_NSID] = "nsid",
	[NVME_URI_UUID] = "uuid",
	[NVME_URI_NGUID] = "nguid",
	[NVME_URI_EUI64] = "eui64",
};

const char *nvme_uri_key_name(enum nvme_uri_key key)
{
	return keys[key];
}

/* Without a value too: hdr_digest alone is yes. */
static int nvme_uri_bool(const struct uri_reader *r, struct uri_part value, const char *what,
			 bool *ret)
{
	char word[8];

	if (uri_decode(r, value, what, word, sizeof(word)) < 0)
		return -EINVAL;
	if (strcmp(word, "1") == 0 || strcmp(word, "true") == 0 || word[0] == '\0')
		*ret = true;
	else if (strcmp(word, "0") == 0 || strcmp(word, "false") == 0)
		*ret = false;
	else
		return uri_fail(r, value.at, "%s: expected 1 or 0", what);
	return 0;
}

/* nsid, uuid, nguid, eui64 */
static int nvme_uri_want(const struct uri_reader *r, const struct uri_pair *pair,
			 struct nvme_uri *uri)
{
	struct nvme_want *want = &uri->want;
	const char *what = keys[pair->key];
	char text[64];
	int err;

	if (want->by != NVME_WANT_ONLY)
		return uri_fail(r, pair->value.at, "%s: the namespace was named already", what);
	if (uri_decode(r, pair->value, what, text, sizeof(text)) < 0)
		return -EINVAL;
	switch (pair->key) {
	case NVME_URI_NSID:
		want->by = NVME_WANT_NSID;
		err = nvme_want_parse_nsid(text, &want->nsid);
		break;
	case NVME_URI_UUID:
		want->by = NVME_WANT_UUID;
		err = nvme_uuid_parse(text, want->id);
		break;
	case NVME_URI_NGUID:
		want->by = NVME_WANT_NGUID;
		err = nvme_hex_parse(text, want->id, 16);
		break;
	default:
		want->by = NVME_WANT_EUI64;
		err = nvme_hex_parse(text, want->id, 8);
	}
	if (err < 0)
		return uri_fail(r, pair->value.at, "%s: expected %s", what,
				pair->key == NVME_URI_NSID    ? "a number from 1 to 4294967294"
				: pair->key == NVME_URI_UUID  ? "hex digits in the form 8-4-4-4-12"
				: pair->key == NVME_URI_NGUID ? "32 hex digits"
							      : "16 hex digits");
	return 0;
}

static int nvme_uri_value(const struct uri_reader *r, const struct uri_pair *pair,
			  struct nvme_uri *uri)
{
	char text[48];

	switch (pair->key) {
	case NVME_URI_HOSTNQN:
		return nvme_uri_nqn(r, pair->value, "hostnqn", uri->host_nqn);
	case NVME_URI_HOSTID:
		if (uri_decode(r, pair->value, "hostid", text, sizeof(text)) < 0)
			return -EINVAL;
		if (nvme_uuid_parse(text, uri->host_id) < 0)
			return uri_fail(r, pair->value.at,
					"hostid: expected a UUID of the form 8-4-4-4-12");
		return 0;
	case NVME_URI_HDR_DIGEST:
		return nvme_uri_bool(r, pair->value, keys[pair->key], &uri->header_digest);
	case NVME_URI_DATA_DIGEST:
		return nvme_uri_bool(r, pair->value, keys[pair->key], &uri->data_digest);
	default:
		return nvme_uri_want(r, pair, uri);
	}
}

static int nvme_uri_query(struct uri_reader *r, struct nvme_uri *uri)
{
	static const struct uri_query query = { .keys = keys,
						.keys_nr = NVME_URI_KEY_NR,
						.values_unsaid = true };
	struct uri_pair pair;
	int more;

	while ((more = uri_next_pair(r, &query, &pair)) > 0)
		if (nvme_uri_value(r, &pair, uri) < 0)
			return -EINVAL;
	uri->said = r->seen;
	return more;
}

int nvme_uri_parse(const char *text, struct nvme_uri *ret_uri, struct nvme_uri_error *e)
{
	struct uri_reader r;

	*ret_uri = (struct nvme_uri){ 0 };
	if (uri_begin(&r, text, NVME_URI_BYTES_MAX, &e->column, e->text, sizeof(e->text)) < 0 ||
	    nvme_uri_scheme(&r) < 0 || nvme_uri_authority(&r, ret_uri) < 0 ||
	    nvme_uri_path(&r, ret_uri) < 0 || nvme_uri_query(&r, ret_uri) < 0 || uri_end(&r) < 0)
		return -EINVAL;
	if (ret_uri->discovery && ret_uri->want.by != NVME_WANT_ONLY)
		return uri_fail(&r, r.at,
				"a discovery controller has no namespaces: write the subsystem's "
				"NQN");
	return 0;
}
