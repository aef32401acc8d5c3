/*
 * The order of the NBD handshake: what is said when, and what answers mean for what is said next.
 * Owns struct nbd_handshake. Pure; whichever thread the connection belongs to.
 *
 * Happy path: magic and flags -> client flags -> one option after the other, each only when the one
 * before is answered -> DONE. `state` says what the next in_need bytes are; they are gathered in
 * h->in and then taken as a whole. Failure modes: FAILED with words. A refusal in proper form is
 * answered with ABORT, as "Termination of the session during option haggling" wants it; a broken
 * protocol, and a TLS that was refused, are answered with nothing.
 */
#include "backends/nbd/nbd_handshake.h"

#include <errno.h>

#include "backends/nbd/nbd_handshake_reply.h"
#include "base/assert.h"
#include "base/util.h"

enum state {
	GREETING,     /* two magics and flags: 18 */
	REPLY_HEADER, /* 20 */
	REPLY_DATA,   /* as the header says */
	EXPORT_SIZE,  /* the answer to EXPORT_NAME: 10 */
	EXPORT_ZEROES,
	TLS, /* the owner's turn */
};

static void handshake_expect(struct nbd_handshake *h, enum state state, uint32_t bytes)
{
	h->state = state;
	h->in_need = bytes;
	h->in_bytes = 0;
}

/* ---- what is said ---- */

/* Room for `bytes` at the end of the output. */
static uint8_t *handshake_say(struct nbd_handshake *h, size_t bytes)
{
	uint8_t *at = h->out + h->out_bytes;

	ASSERT(bytes <= sizeof(h->out) - h->out_bytes);
	h->out_bytes += (uint32_t)bytes;
	return at;
}

/* An option with data_bytes of data, which the caller writes where the return value points. */
static uint8_t *say_option(struct nbd_handshake *h, uint32_t opt, size_t data_bytes)
{
	uint8_t *at = handshake_say(h, 16 + data_bytes);

	at = be_put64(at, NBD_OPTION_MAGIC);
	at = be_put32(at, opt);
	h->opt = opt;
	h->reply_nr = 0;
	handshake_expect(h, REPLY_HEADER, 20);
	return be_put32(at, (uint32_t)data_bytes);
}

static uint8_t *handshake_put_text(uint8_t *at, const char *text, size_t bytes)
{
	memcpy(at, text, bytes);
	return at + bytes;
}

/* "NBD_OPT_SET_META_CONTEXT": the export, one query. */
static void say_meta_context(struct nbd_handshake *h)
{
	static const char query[] = NBD_META_ALLOCATION;
	uint32_t query_bytes = sizeof(query) - 1;
	uint32_t name_bytes = (uint32_t)strlen(h->config.export_name);
	uint8_t *at = say_option(h, NBD_OPT_SET_META_CONTEXT, 12 + name_bytes + query_bytes);

	at = be_put32(at, name_bytes);
	at = handshake_put_text(at, h->config.export_name, name_bytes);
	at = be_put32(at, 1);
	at = be_put32(at, query_bytes);
	handshake_put_text(at, query, query_bytes);
}

/* "NBD_OPT_INFO and NBD_OPT_GO" */
static void say_go(struct nbd_handshake *h, uint32_t opt)
{
	static const uint16_t wanted[] = { NBD_INFO_BLOCK_SIZE, NBD_INFO_NAME,
					   NBD_INFO_DESCRIPTION };
	/* Two texts that only people want. */
	uint16_t wanted_nr = opt == NBD_OPT_INFO ? 3 : 2;
	uint32_t name_bytes = (uint32_t)strlen(h->config.export_name);
	uint8_t *at = say_option(h, opt, 6 + name_bytes + 2 * wanted_nr);

	at = be_put32(at, name_bytes);
	at = handshake_put_text(at, h->config.export_name, name_bytes);
	at = be_put16(at, wanted_nr);
	for (unsigned i = 0; i < wanted_nr; i++)
		at = be_put16(at, wanted[i]);
}

static void say_export_name(struct nbd_handshake *h)
{
	uint32_t name_bytes = (uint32_t)strlen(h->config.export_name);
	uint8_t *at = say_option(h, NBD_OPT_EXPORT_NAME, name_bytes);

	handshake_put_text(at, h->config.export_name, name_bytes);
	h->export.by_name = true;
	handshake_expect(h, EXPORT_SIZE, 10);
}

/* An answer may come or not; nobody waits for it. */
static void say_abort(struct nbd_handshake *h)
{
	say_option(h, NBD_OPT_ABORT, 0);
}

static void say_last(struct nbd_handshake *h)
{
	if (h->config.mode == NBD_HANDSHAKE_LIST)
		say_option(h, NBD_OPT_LIST, 0);
	else
		say_go(h, h->config.mode == NBD_HANDSHAKE_INFO ? NBD_OPT_INFO : NBD_OPT_GO);
}

/* The option behind `opt`; 0: the first one. What was refused or is not wanted is passed over. */
static void say_next(struct nbd_handshake *h, uint32_t opt)
{
	const struct nbd_handshake_config *c = &h->config;
	bool list = c->mode == NBD_HANDSHAKE_LIST;

	switch (opt) {
	case 0:
		if (c->tls) {
			say_option(h, NBD_OPT_STARTTLS, 0);
			return;
		}
		/* fall through */
	case NBD_OPT_STARTTLS:
		if (!c->no_extended && !list) {
			say_option(h, NBD_OPT_EXTENDED_HEADERS, 0);
			return;
		}
		/* fall through */
	case NBD_OPT_EXTENDED_HEADERS:
		if (!c->no_structured && !list && !h->export.extended) {
			say_option(h, NBD_OPT_STRUCTURED_REPLY, 0);
			return;
		}
		/* fall through */
	case NBD_OPT_STRUCTURED_REPLY:
		if (!c->no_meta && h->export.structured) {
			say_meta_context(h);
			return;
		}
		/* fall through */
	default:
		say_last(h);
	}
}

/* ---- what is heard ---- */

static void handshake_done(struct nbd_handshake *h)
{
	h->step = NBD_HANDSHAKE_DONE;
}

/* "Newstyle negotiation" */
static void take_greeting(struct nbd_handshake *h)
{
	uint64_t magic = be_get64(h->in + 8);
	uint32_t flags;

	if (be_get64(h->in) != NBD_MAGIC)
		return nbd_handshake_fail(h, -EPROTO, "what answers is no NBD server");
	if (magic == NBD_OLDSTYLE_MAGIC)
		return nbd_handshake_fail(h, -EOPNOTSUPP,
					  "the server speaks the oldstyle protocol "
					  "of before 2011: start a newer one");
	if (magic != NBD_OPTION_MAGIC)
		return nbd_handshake_fail(h, -EPROTO, "the server greets with an unknown magic");
	h->server_flags = be_get16(h->in + 16);
	/* The client's flags have the bits of the server's. */
	flags = h->server_flags & (NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES);
	if (!(flags & NBD_FLAG_FIXED_NEWSTYLE) && h->config.tls)
		return nbd_handshake_fail(h, -EACCES,
					  "the server is too old for TLS, and TLS is "
					  "required");
	if (!(flags & NBD_FLAG_FIXED_NEWSTYLE) && h->config.mode != NBD_HANDSHAKE_GO)
		return nbd_handshake_fail(h, -EOPNOTSUPP,
					  "the server is too old to tell about its "
					  "exports");
	be_put32(handshake_say(h, 4), flags);
	if (flags & NBD_FLAG_FIXED_NEWSTYLE)
		say_next(h, 0);
	else
		say_export_name(h);
}

static void take_header(struct nbd_handshake *h)
{
	uint32_t opt = be_get32(h->in + 8), bytes = be_get32(h->in + 16);
	const char *name = nbd_opt_name(opt);

	if (be_get64(h->in) != NBD_OPTION_REPLY_MAGIC)
		return nbd_handshake_fail(h, -EPROTO, "the server's answer to %s has a wrong magic",
					  nbd_opt_name(h->opt));
	if (opt != h->opt)
		return nbd_handshake_fail(h, -EPROTO, "asked for %s, the server answers to %s (%u)",
					  nbd_opt_name(h->opt), name ? name : "something unknown",
					  opt);
	h->rep = be_get32(h->in + 12);
	if (bytes > NBD_HANDSHAKE_REPLY_BYTES_MAX)
		return nbd_handshake_fail(h, -EPROTO,
					  "the server's answer to %s has %u bytes, above the limit "
					  "of %u",
					  nbd_opt_name(h->opt), bytes,
					  NBD_HANDSHAKE_REPLY_BYTES_MAX);
	if (h->rep == NBD_REP_ACK && bytes != 0)
		return nbd_handshake_fail(h, -EPROTO, "the server's ACK to %s has %u bytes of data",
					  nbd_opt_name(h->opt), bytes);
	handshake_expect(h, REPLY_DATA, bytes);
}

static void take_last_ack(struct nbd_handshake *h)
{
	/* "NBD_OPT_INFO and NBD_OPT_GO": the server MUST send it. */
	if (h->opt != NBD_OPT_LIST && !h->has_export_info)
		return nbd_handshake_fail(h, -EPROTO,
					  "the server accepts the export without saying its size");
	if (h->opt != NBD_OPT_GO)
		say_abort(h);
	handshake_done(h);
}

static void take_ack(struct nbd_handshake *h)
{
	switch (h->opt) {
	case NBD_OPT_STARTTLS:
		h->step = NBD_HANDSHAKE_START_TLS;
		handshake_expect(h, TLS, 0);
		return;
	case NBD_OPT_EXTENDED_HEADERS:
		h->export.extended = true;
		h->export.structured = true;
		return say_next(h, h->opt);
	case NBD_OPT_STRUCTURED_REPLY:
		h->export.structured = true;
		return say_next(h, h->opt);
	case NBD_OPT_SET_META_CONTEXT:
		return say_next(h, h->opt);
	default:
		take_last_ack(h);
	}
}

static bool is_optional(uint32_t opt)
{
	return opt == NBD_OPT_EXTENDED_HEADERS || opt == NBD_OPT_STRUCTURED_REPLY ||
	       opt == NBD_OPT_SET_META_CONTEXT;
}

static void handshake_refuse(struct nbd_handshake *h)
{
	bool tls_refused = h->opt == NBD_OPT_STARTTLS;

	nbd_handshake_take_refusal(h);
	if (tls_refused)
		/* In clear text, nothing but STARTTLS is ever said. */
		h->err = -EACCES;
	else
		say_abort(h);
}

static void take_error(struct nbd_handshake *h)
{
	/* A FORCEDTLS server answers every option so; one that goes down helps nobody further. */
	bool final = h->rep == NBD_REP_ERR_TLS_REQD || h->rep == NBD_REP_ERR_SHUTDOWN;

	if (is_optional(h->opt) && !final) {
		/* "If an error is returned, the client MUST disregard any context replies" */
		h->export.has_meta = false;
		return say_next(h, h->opt);
	}
	/* With extended headers, EXPORT_NAME MUST NOT be used. */
	if (h->opt == NBD_OPT_GO && h->rep == NBD_REP_ERR_UNSUP && !h->export.extended)
		return say_export_name(h);
	handshake_refuse(h);
}

static void take_reply(struct nbd_handshake *h)
{
	if (h->rep & NBD_REP_ERROR_BIT)
		return take_error(h);
	if (h->rep == NBD_REP_ACK)
		return take_ack(h);
	nbd_handshake_take_data(h);
	handshake_expect(h, REPLY_HEADER, 20);
}

static void take_export_size(struct nbd_handshake *h)
{
	if (!nbd_handshake_take_size(h, be_get64(h->in), be_get16(h->in + 8)))
		return;
	if (h->server_flags & NBD_FLAG_NO_ZEROES)
		handshake_done(h);
	else
		handshake_expect(h, EXPORT_ZEROES, 124);
}

static void handshake_take(struct nbd_handshake *h)
{
	switch ((enum state)h->state) {
	case GREETING:
		return take_greeting(h);
	case REPLY_HEADER:
		return take_header(h);
	case REPLY_DATA:
		return take_reply(h);
	case EXPORT_SIZE:
		return take_export_size(h);
	case EXPORT_ZEROES:
		return handshake_done(h);
	case TLS:
		ASSERT(!"fed before TLS was started");
	}
}

enum nbd_handshake_step nbd_handshake_feed(struct nbd_handshake *h, const uint8_t *data,
					   size_t bytes, size_t *ret_used)
{
	size_t used = 0;

	while (h->step == NBD_HANDSHAKE_MORE) {
		size_t nr = MIN(bytes - used, (size_t)(h->in_need - h->in_bytes));

		if (nr > 0)
			memcpy(h->in + h->in_bytes, data + used, nr);
		h->in_bytes += (uint32_t)nr;
		used += nr;
		if (h->in_bytes < h->in_need)
			break;
		handshake_take(h);
	}
	/*
	 * The server waits for TLS now. What somebody put behind its answer in clear text must not
	 * be taken for what came over TLS.
	 */
	if (h->step == NBD_HANDSHAKE_START_TLS && used < bytes)
		nbd_handshake_fail(h, -EPROTO, "clear text behind the answer to STARTTLS");
	*ret_used = used;
	return h->step;
}

void nbd_handshake_tls_started(struct nbd_handshake *h)
{
	ASSERT(h->step == NBD_HANDSHAKE_START_TLS);
	h->step = NBD_HANDSHAKE_MORE;
	h->export.tls = true;
	say_next(h, NBD_OPT_STARTTLS);
}

enum nbd_handshake_step nbd_handshake_eof(struct nbd_handshake *h)
{
	if (h->step == NBD_HANDSHAKE_DONE || h->step == NBD_HANDSHAKE_FAILED)
		return h->step;
	if (h->state == GREETING)
		nbd_handshake_fail(h, -ECONNRESET, "the server closed the connection %s",
				   h->in_bytes ? "in the middle of its greeting"
					       : "without a greeting");
	else if (h->state == EXPORT_SIZE && h->in_bytes == 0)
		/* It has no other way to refuse: "NBD_OPT_EXPORT_NAME". */
		nbd_handshake_fail(h, -ENOENT,
				   "the server closed the connection when it was asked "
				   "for the export: it has none of that name, or wants "
				   "TLS");
	else
		nbd_handshake_fail(h, -ECONNRESET,
				   "the server closed the connection when it was "
				   "asked for %s",
				   nbd_opt_name(h->opt));
	return h->step;
}

size_t nbd_handshake_output(const struct nbd_handshake *h, const uint8_t **ret_data)
{
	*ret_data = h->out + h->out_sent;
	return h->out_bytes - h->out_sent;
}

void nbd_handshake_sent(struct nbd_handshake *h, size_t bytes)
{
	ASSERT(bytes <= h->out_bytes - h->out_sent);
	h->out_sent += (uint32_t)bytes;
}

void nbd_handshake_init(struct nbd_handshake *h, const struct nbd_handshake_config *config)
{
	ASSERT(strlen(config->export_name) <= NBD_STRING_BYTES_MAX);
	/* Not the buffers: nothing is read there that was not written. */
	memset(h, 0, offsetof(struct nbd_handshake, in));
	h->config = *config;
	h->export.min_block_bytes = NBD_MIN_BLOCK_BYTES;
	h->export.preferred_block_bytes = NBD_PREFERRED_BLOCK_BYTES;
	h->export.max_payload_bytes = NBD_MAX_PAYLOAD_BYTES;
	handshake_expect(h, GREETING, 18);
}
