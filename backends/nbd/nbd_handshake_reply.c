/*
 * What servers answer to options: exports, infos, contexts, refusals. Pure functions.
 *
 * Happy path: the kind of reply is one that was asked for -> its length is what it must be -> into
 * h->export, or to the owner's on_export. Failure modes: all end the handshake, in words.
 */
#include "backends/nbd/nbd_handshake_reply.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/util.h"
#include "base/printable.h"

void nbd_handshake_fail(struct nbd_handshake *h, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(h->error, sizeof(h->error), fmt, args);
	va_end(args);
	h->err = err;
	h->step = NBD_HANDSHAKE_FAILED;
}

static void wrong_length(struct nbd_handshake *h, const char *what)
{
	nbd_handshake_fail(h, -EPROTO, "the server sent %s of %u bytes, which cannot be", what,
			   h->in_need);
}

/* "NBD_REP_SERVER" */
static void take_server(struct nbd_handshake *h)
{
	uint32_t rest = h->in_need - 4, name_bytes;

	if (h->in_need < 4)
		return wrong_length(h, "an export");
	name_bytes = be_get32(h->in);
	if (name_bytes > rest)
		return nbd_handshake_fail(h, -EPROTO,
					  "the server sent a name of %u bytes in a reply of %u",
					  name_bytes, h->in_need);
	if (name_bytes > NBD_STRING_BYTES_MAX || rest - name_bytes > NBD_STRING_BYTES_MAX)
		return wrong_length(h, "an export with a text");
	if (h->config.on_export)
		h->config.on_export(h->config.ctx, h->in + 4, name_bytes, h->in + 4 + name_bytes,
				    rest - name_bytes);
}

bool nbd_handshake_take_size(struct nbd_handshake *h, uint64_t size_bytes, uint16_t flags)
{
	if (size_bytes > INT64_MAX) {
		nbd_handshake_fail(h, -EPROTO, "the server says that the export has %llu bytes",
				   (unsigned long long)size_bytes);
		return false;
	}
	/* "Transmission flags": it MUST always be 1. */
	if (!(flags & NBD_FLAG_HAS_FLAGS)) {
		nbd_handshake_fail(h, -EPROTO,
				   "the server sent transmission flags 0x%x without "
				   "HAS_FLAGS",
				   flags);
		return false;
	}
	/* Each of these MUST be clear without the other: believed only together. */
	if (!h->export.structured)
		flags &= (uint16_t)~NBD_FLAG_SEND_DF;
	if (!(flags & NBD_FLAG_SEND_WRITE_ZEROES))
		flags &= (uint16_t)~NBD_FLAG_SEND_FAST_ZERO;
	h->export.size_bytes = size_bytes;
	h->export.flags = flags;
	h->has_export_info = true;
	return true;
}

/* "Size constraints" */
static void take_block_sizes(struct nbd_handshake *h)
{
	uint32_t min = be_get32(h->in + 2), preferred = be_get32(h->in + 6);
	uint32_t max = be_get32(h->in + 10);

	if (!is_power_of_two(min) || min > 65536 || !is_power_of_two(preferred) ||
	    preferred < MAX(min, 512u) || max < preferred)
		return nbd_handshake_fail(h, -EPROTO,
					  "the server sent block sizes that cannot be: minimum %u, "
					  "preferred %u, maximum %u",
					  min, preferred, max);
	h->export.has_block_sizes = true;
	h->export.min_block_bytes = min;
	h->export.preferred_block_bytes = preferred;
	h->export.max_payload_bytes = max;
}

/* "NBD_REP_INFO" */
static void take_info(struct nbd_handshake *h)
{
	const char *text = (const char *)h->in + 2;
	size_t text_bytes = h->in_need - 2;

	if (h->in_need < 2)
		return wrong_length(h, "an information");
	switch (be_get16(h->in)) {
	case NBD_INFO_EXPORT:
		if (h->in_need != 12)
			return wrong_length(h, "INFO_EXPORT");
		nbd_handshake_take_size(h, be_get64(h->in + 2), be_get16(h->in + 10));
		return;
	case NBD_INFO_BLOCK_SIZE:
		if (h->in_need != 14)
			return wrong_length(h, "INFO_BLOCK_SIZE");
		return take_block_sizes(h);
	case NBD_INFO_NAME:
	case NBD_INFO_DESCRIPTION:
		if (text_bytes > NBD_STRING_BYTES_MAX)
			return wrong_length(h, "a text");
		if (be_get16(h->in) == NBD_INFO_NAME)
			printable(h->export.name, sizeof(h->export.name), text, text_bytes);
		else
			printable(h->export.description, sizeof(h->export.description), text,
				  text_bytes);
		return;
	default: /* a client MUST ignore what it does not know */
		return;
	}
}

/* "NBD_REP_META_CONTEXT": one context was asked for. */
static void take_context(struct nbd_handshake *h)
{
	static const char wanted[] = NBD_META_ALLOCATION;
	char name[64];

	if (h->in_need < 4)
		return wrong_length(h, "a metadata context");
	if (h->in_need - 4 != sizeof(wanted) - 1 || memcmp(h->in + 4, wanted, h->in_need - 4) != 0)
		return nbd_handshake_fail(h, -EPROTO,
					  "the server selected the metadata context \"%s\" unasked",
					  printable(name, sizeof(name), h->in + 4, h->in_need - 4));
	if (h->export.has_meta)
		return nbd_handshake_fail(h, -EPROTO, "the server selected %s twice", wanted);
	h->export.has_meta = true;
	h->export.meta_context = be_get32(h->in);
}

void nbd_handshake_take_data(struct nbd_handshake *h)
{
	const char *name = nbd_rep_name(h->rep);
	bool info = h->opt == NBD_OPT_GO || h->opt == NBD_OPT_INFO;
	uint32_t max =
		h->opt == NBD_OPT_LIST ? NBD_HANDSHAKE_EXPORTS_MAX : NBD_HANDSHAKE_REPLIES_MAX;

	if (++h->reply_nr > max)
		return nbd_handshake_fail(h, -EPROTO,
					  "the server does not end its answer to %s: "
					  "more than %u parts",
					  nbd_opt_name(h->opt), max);
	if (h->rep == NBD_REP_SERVER && h->opt == NBD_OPT_LIST)
		return take_server(h);
	if (h->rep == NBD_REP_INFO && info)
		return take_info(h);
	if (h->rep == NBD_REP_META_CONTEXT && h->opt == NBD_OPT_SET_META_CONTEXT)
		return take_context(h);
	nbd_handshake_fail(h, -EPROTO, "the server answered %s with a reply of type %s (0x%x)",
			   nbd_opt_name(h->opt), name ? name : "unknown", h->rep);
}

/* ---- refusals ---- */

struct refusal {
	uint32_t rep;
	int err;
	const char *words;
};

static const struct refusal refusals[] = {
	{ NBD_REP_ERR_UNSUP, -EOPNOTSUPP, "the server does not know this option" },
	{ NBD_REP_ERR_POLICY, -EACCES, "forbidden by the server's configuration" },
	{ NBD_REP_ERR_INVALID, -EPROTO, "the server takes the option as invalid" },
	{ NBD_REP_ERR_PLATFORM, -EOPNOTSUPP, "the server's platform does not support it" },
	{ NBD_REP_ERR_TLS_REQD, -EACCES, "the server wants TLS: write nbds instead of nbd" },
	{ NBD_REP_ERR_UNKNOWN, -ENOENT, "there is no such export" },
	{ NBD_REP_ERR_SHUTDOWN, -ESHUTDOWN, "the server is shutting down" },
	{ NBD_REP_ERR_BLOCK_SIZE_REQD, -EPROTO,
	  "the server wants block sizes to be asked for, "
	  "which they were" },
	{ NBD_REP_ERR_TOO_BIG, -EOPNOTSUPP, "too big for the server" },
	{ NBD_REP_ERR_EXT_HEADER_REQD, -EOPNOTSUPP, "the server wants extended headers" },
};

static const struct refusal *find_refusal(uint32_t rep)
{
	static const struct refusal unknown = { 0, -EPROTO, "an error without a name" };

	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
		if (refusals[i].rep == rep)
			return &refusals[i];
	return &unknown;
}

void nbd_handshake_take_refusal(struct nbd_handshake *h)
{
	const struct refusal *r = find_refusal(h->rep);
	const char *words = r->words;
	bool has_name = h->opt == NBD_OPT_GO || h->opt == NBD_OPT_INFO;
	bool has_text = h->in_need > 0;
	char name[64], text[128];

	/* STARTTLS in it already: the cure cannot be to ask for it. */
	if (h->rep == NBD_REP_ERR_TLS_REQD && h->config.tls)
		words = "the server wants TLS though TLS runs";
	printable(name, sizeof(name), h->config.export_name, strlen(h->config.export_name));
	printable(text, sizeof(text), h->in, h->in_need);
	nbd_handshake_fail(h, r->err, "%s%s%s%s: %s (0x%x)%s%s%s", nbd_opt_name(h->opt),
			   has_name ? " \"" : "", has_name ? name : "", has_name ? "\"" : "", words,
			   h->rep, has_text ? "; it says: \"" : "", text, has_text ? "\"" : "");
}
