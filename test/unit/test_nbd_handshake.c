/*
 * The NBD handshake against servers written down as bytes: each is fed whole, byte by byte and in
 * random pieces, and everything must come out the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "backends/nbd_handshake.h"
#include "base/prng.h"
#include "base/util.h"
#include "nbd_bytes.h"

#define FLAGS (NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH)
#define BOTH (NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES)

static struct nbd_handshake h;
static struct nbd_handshake_config config;
/* What the server sends in clear text, and then over TLS. */
static struct bytes clear, tls;
static char exports[512];
static size_t used_bytes;

static void on_export(void *ctx, const uint8_t *name, size_t name_bytes, const uint8_t *description,
		      size_t description_bytes)
{
	size_t at = strlen(exports);

	assert_ptr_equal(ctx, &config);
	if (at < 256)
		snprintf(exports + at, sizeof(exports) - at, "%.*s(%.*s) ", (int)name_bytes, name,
			 (int)description_bytes, description);
}

static void start(enum nbd_handshake_mode mode)
{
	config = (struct nbd_handshake_config){
		.mode = mode, .export_name = "disk", .on_export = on_export, .ctx = &config
	};
	clear.nr = tls.nr = 0;
	add_greeting(&clear, BOTH);
}

/* Feeds all of it in pieces of 1 to max bytes. */
static enum nbd_handshake_step feed(const struct bytes *b, struct prng *p, size_t max)
{
	enum nbd_handshake_step step = h.step;

	for (size_t at = 0; at < b->nr && step == NBD_HANDSHAKE_MORE;) {
		size_t nr = MIN(b->nr - at, 1 + prng_below(p, max)), used;

		step = nbd_handshake_feed(&h, b->at + at, nr, &used);
		assert_true(used <= nr && (used == nr || step != NBD_HANDSHAKE_MORE));
		at += used;
		used_bytes += used;
	}
	return step;
}

static enum nbd_handshake_step feed_all(struct prng *p, size_t max)
{
	enum nbd_handshake_step step;

	exports[0] = '\0';
	used_bytes = 0;
	nbd_handshake_init(&h, &config);
	step = feed(&clear, p, max);
	if (step == NBD_HANDSHAKE_START_TLS) {
		nbd_handshake_tls_started(&h);
		step = feed(&tls, p, max);
	}
	return step;
}

/* Everything that is not a buffer, and what was said. */
static void same_as(const struct nbd_handshake *whole)
{
	assert_int_equal(h.step, whole->step);
	assert_int_equal(h.err, whole->err);
	assert_string_equal(h.error, whole->error);
	assert_memory_equal(&h.export, &whole->export, sizeof(h.export));
	assert_int_equal(h.out_bytes, whole->out_bytes);
	assert_memory_equal(h.out, whole->out, h.out_bytes);
}

static enum nbd_handshake_step run(void)
{
	static struct nbd_handshake whole;
	size_t whole_used;
	struct prng p;

	prng_init(&p, 1);
	feed_all(&p, 1);
	whole = h;
	whole_used = used_bytes;
	for (unsigned i = 0; i < 20; i++) {
		feed_all(&p, i == 0 ? sizeof(clear.at) : 1 + prng_below(&p, 60));
		same_as(&whole);
		assert_int_equal(used_bytes, whole_used);
	}
	return h.step;
}

static void run_to_failure(int err, const char *words)
{
	assert_int_equal(run(), NBD_HANDSHAKE_FAILED);
	if (h.err != err || !strstr(h.error, words))
		fail_msg("%d: %s", h.err, h.error);
	for (const char *c = h.error; *c; c++)
		assert_in_range(*c, ' ', '~');
}

/* The options that were said, one behind the other; 0 at the end. */
static void said(const uint32_t *opts)
{
	const uint8_t *at, *end;
	size_t bytes = nbd_handshake_output(&h, &at);

	end = at + bytes;
	at += 4; /* client flags */
	for (; *opts; opts++) {
		assert_true(end - at >= 16);
		assert_true(nbd_get64(at) == NBD_OPTION_MAGIC);
		assert_int_equal(nbd_get32(at + 8), *opts);
		at += 16 + nbd_get32(at + 12);
	}
	assert_ptr_equal(at, end);
}

#define SAID(...) said((const uint32_t[]){ __VA_ARGS__, 0 })

/* The answers to all options before GO, all of them yes. */
static void add_best(struct bytes *b)
{
	add_rep(b, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ACK, 0);
	add_context(b, 7, NBD_META_ALLOCATION);
	add_rep(b, NBD_OPT_SET_META_CONTEXT, NBD_REP_ACK, 0);
}

/* ... and all of them no. */
static void add_worst(struct bytes *b)
{
	add_rep(b, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_UNSUP, 0);
	add_rep(b, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ERR_UNSUP, 0);
}

static void test_go(void **state)
{
	static const uint8_t go[] = { 'I', 'H', 'A', 'V', 'E', 'O', 'P', 'T', 0, 0,   0,   7, 0,
				      0,   0,	14,  0,	  0,   0,   4,	 'd', 'i', 's', 'k', 0, 2,
				      0,   3,	0,   1 };
	const uint8_t *out;
	size_t bytes;

	(void)state;
	start(NBD_HANDSHAKE_GO);
	add_best(&clear);
	add_info_text(&clear, NBD_OPT_GO, NBD_INFO_NAME, "d\x1b[2Jk");
	add_info_block_size(&clear, NBD_OPT_GO, 4096, 65536, 1u << 25);
	add_info_text(&clear, NBD_OPT_GO, 77, "of a later protocol");
	add_info_export(&clear, NBD_OPT_GO, GIB(3), FLAGS | NBD_FLAG_SEND_DF);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ACK, 0);
	/* The transmission phase is somebody else's. */
	add_text(&clear, "more");
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	assert_int_equal(used_bytes, clear.nr - 4);
	SAID(NBD_OPT_EXTENDED_HEADERS, NBD_OPT_SET_META_CONTEXT, NBD_OPT_GO);
	bytes = nbd_handshake_output(&h, &out);
	assert_int_equal(nbd_get32(out), BOTH);
	assert_memory_equal(out + bytes - sizeof(go), go, sizeof(go));
	assert_true(h.export.size_bytes == GIB(3));
	assert_int_equal(h.export.flags, FLAGS | NBD_FLAG_SEND_DF);
	assert_true(h.export.extended && h.export.structured && h.export.has_meta);
	assert_int_equal(h.export.meta_context, 7);
	assert_true(h.export.has_block_sizes);
	assert_int_equal(h.export.min_block_bytes, 4096);
	assert_int_equal(h.export.preferred_block_bytes, 65536);
	assert_int_equal(h.export.max_payload_bytes, 1u << 25);
	assert_string_equal(h.export.name, "d?[2Jk");
	assert_false(h.export.by_name || h.export.tls);
}

/* Output may be sent in pieces while answers come: what was said stays where it is. */
static void test_output_in_pieces(void **state)
{
	const uint8_t *first, *later;
	size_t used, bytes;

	(void)state;
	start(NBD_HANDSHAKE_GO);
	nbd_handshake_init(&h, &config);
	assert_int_equal(nbd_handshake_output(&h, &first), 0);
	nbd_handshake_feed(&h, clear.at, clear.nr, &used);
	bytes = nbd_handshake_output(&h, &first);
	assert_int_equal(bytes, 20);
	clear.nr = 0;
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_UNSUP, 0);
	nbd_handshake_feed(&h, clear.at, clear.nr, &used);
	nbd_handshake_sent(&h, 7);
	assert_int_equal(nbd_handshake_output(&h, &later), 20 - 7 + 16);
	assert_ptr_equal(later, first + 7);
	nbd_handshake_sent(&h, 29);
	assert_int_equal(nbd_handshake_output(&h, &later), 0);
}

static void test_structured(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_GO);
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_UNSUP, 3);
	add_text(&clear, "no!");
	add_rep(&clear, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, 0);
	/* What came before an error does not count. */
	add_context(&clear, 7, NBD_META_ALLOCATION);
	add_rep(&clear, NBD_OPT_SET_META_CONTEXT, NBD_REP_ERR_POLICY, 0);
	add_info_export(&clear, NBD_OPT_GO, 512, FLAGS | NBD_FLAG_SEND_FAST_ZERO);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	SAID(NBD_OPT_EXTENDED_HEADERS, NBD_OPT_STRUCTURED_REPLY, NBD_OPT_SET_META_CONTEXT,
	     NBD_OPT_GO);
	assert_true(h.export.structured && !h.export.extended && !h.export.has_meta);
	assert_int_equal(h.export.flags, FLAGS);
	assert_false(h.export.has_block_sizes);
	assert_int_equal(h.export.min_block_bytes, 512);
	assert_int_equal(h.export.max_payload_bytes, 32u << 20);
}

static void test_not_wanted(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_GO);
	config.no_extended = config.no_structured = true;
	add_info_export(&clear, NBD_OPT_GO, 512, FLAGS | NBD_FLAG_SEND_DF);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	SAID(NBD_OPT_GO);
	assert_int_equal(h.export.flags, FLAGS);
	start(NBD_HANDSHAKE_GO);
	config.no_meta = true;
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_MORE);
	SAID(NBD_OPT_EXTENDED_HEADERS, NBD_OPT_GO);
}

static void test_export_name(void **state)
{
	(void)state;
	/* fixed newstyle, without GO */
	start(NBD_HANDSHAKE_GO);
	add_worst(&clear);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ERR_UNSUP, 0);
	add64(&clear, MIB(5));
	add16(&clear, FLAGS);
	add_text(&clear, "x");
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	assert_int_equal(used_bytes, clear.nr - 1);
	SAID(NBD_OPT_EXTENDED_HEADERS, NBD_OPT_STRUCTURED_REPLY, NBD_OPT_GO, NBD_OPT_EXPORT_NAME);
	assert_true(h.export.by_name && h.export.size_bytes == MIB(5));
	assert_false(h.export.structured || h.export.has_block_sizes);
	/* not even fixed newstyle, and with the zeroes */
	start(NBD_HANDSHAKE_GO);
	clear.nr = 0;
	add_greeting(&clear, 0);
	add64(&clear, MIB(6));
	add16(&clear, FLAGS);
	add_fill(&clear, 0, 123);
	assert_int_equal(run(), NBD_HANDSHAKE_MORE);
	add_fill(&clear, 0, 2);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	assert_int_equal(used_bytes, clear.nr - 1);
	SAID(NBD_OPT_EXPORT_NAME);
	assert_int_equal(nbd_get32(h.out), 0);
	assert_true(h.export.by_name && h.export.size_bytes == MIB(6));
}

static void test_info(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_INFO);
	add_best(&clear);
	add_info_export(&clear, NBD_OPT_INFO, 512, FLAGS);
	add_info_text(&clear, NBD_OPT_INFO, NBD_INFO_DESCRIPTION, "of \xff people");
	add_rep(&clear, NBD_OPT_INFO, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	SAID(NBD_OPT_EXTENDED_HEADERS, NBD_OPT_SET_META_CONTEXT, NBD_OPT_INFO, NBD_OPT_ABORT);
	assert_string_equal(h.export.description, "of ? people");
}

static void test_list(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_LIST);
	add_server(&clear, "a", "first");
	add_server(&clear, "", "");
	add_rep(&clear, NBD_OPT_LIST, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	SAID(NBD_OPT_LIST, NBD_OPT_ABORT);
	assert_string_equal(exports, "a(first) () ");
	/* A server that does not tell. */
	start(NBD_HANDSHAKE_LIST);
	add_rep(&clear, NBD_OPT_LIST, NBD_REP_ERR_POLICY, 0);
	run_to_failure(-EACCES, "LIST: forbidden");
	SAID(NBD_OPT_LIST, NBD_OPT_ABORT);
}

static void test_tls(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_GO);
	config.tls = true;
	add_rep(&clear, NBD_OPT_STARTTLS, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_MORE);
	add_best(&tls);
	add_info_export(&tls, NBD_OPT_GO, 512, FLAGS);
	add_rep(&tls, NBD_OPT_GO, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	SAID(NBD_OPT_STARTTLS, NBD_OPT_EXTENDED_HEADERS, NBD_OPT_SET_META_CONTEXT, NBD_OPT_GO);
	assert_true(h.export.tls);
}

/* Refused, with whatever error: nothing more is said in clear text. */
static void test_tls_refused(void **state)
{
	static const uint32_t reps[] = { NBD_REP_ERR_UNSUP, NBD_REP_ERR_POLICY,
					 NBD_REP_ERR_PLATFORM, NBD_REP_ERR_TLS_REQD,
					 0x80001234 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(reps); i++) {
		start(NBD_HANDSHAKE_GO);
		config.tls = true;
		add_rep(&clear, NBD_OPT_STARTTLS, reps[i], 2);
		add_text(&clear, "no");
		run_to_failure(-EACCES, "it says: \"no\"");
		SAID(NBD_OPT_STARTTLS);
	}
	start(NBD_HANDSHAKE_GO);
	config.tls = true;
	clear.nr = 0;
	add_greeting(&clear, NBD_FLAG_NO_ZEROES);
	run_to_failure(-EACCES, "too old for TLS");
	assert_int_equal(h.out_bytes, 0);
}

static void test_tls_injection(void **state)
{
	size_t used;

	(void)state;
	start(NBD_HANDSHAKE_GO);
	config.tls = true;
	add_rep(&clear, NBD_OPT_STARTTLS, NBD_REP_ACK, 0);
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ACK, 0);
	nbd_handshake_init(&h, &config);
	assert_int_equal(nbd_handshake_feed(&h, clear.at, clear.nr, &used), NBD_HANDSHAKE_FAILED);
	assert_non_null(strstr(h.error, "clear text behind"));
	assert_int_equal(h.err, -EPROTO);
	SAID(NBD_OPT_STARTTLS);
}

static void test_refusals(void **state)
{
	static const struct {
		uint32_t rep;
		int err;
		const char *words;
	} cases[] = {
		{ NBD_REP_ERR_UNKNOWN, -ENOENT, "GO \"disk\": there is no such export" },
		{ NBD_REP_ERR_TLS_REQD, -EACCES, "write nbds" },
		{ NBD_REP_ERR_POLICY, -EACCES, "forbidden" },
		{ NBD_REP_ERR_SHUTDOWN, -ESHUTDOWN, "shutting down" },
		{ NBD_REP_ERR_EXT_HEADER_REQD, -EOPNOTSUPP, "extended headers" },
		{ 0x8000ffff, -EPROTO, "without a name (0x8000ffff)" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		start(NBD_HANDSHAKE_GO);
		add_worst(&clear);
		add_rep(&clear, NBD_OPT_GO, cases[i].rep, 0);
		run_to_failure(cases[i].err, cases[i].words);
		SAID(NBD_OPT_EXTENDED_HEADERS, NBD_OPT_STRUCTURED_REPLY, NBD_OPT_GO,
		     NBD_OPT_ABORT);
		assert_null(strstr(h.error, "it says"));
	}
	/* What forces TLS says so at once; with extended headers there is no EXPORT_NAME. */
	start(NBD_HANDSHAKE_GO);
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_TLS_REQD, 0);
	run_to_failure(-EACCES, "write nbds");
	start(NBD_HANDSHAKE_GO);
	add_best(&clear);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ERR_UNSUP, 0);
	run_to_failure(-EOPNOTSUPP, "does not know");
	start(NBD_HANDSHAKE_INFO);
	add_worst(&clear);
	add_rep(&clear, NBD_OPT_INFO, NBD_REP_ERR_UNSUP, 0);
	run_to_failure(-EOPNOTSUPP, "INFO \"disk\"");
}

static void test_texts_of_the_server(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_GO);
	add_worst(&clear);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ERR_UNKNOWN, 8200);
	add_fill(&clear, 0x1b, 8200);
	run_to_failure(-ENOENT, "???...\"");
	start(NBD_HANDSHAKE_GO);
	add_worst(&clear);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ERR_UNKNOWN, 8201);
	run_to_failure(-EPROTO, "above the limit of 8200");
}

/* Each is put where the answers to EXTENDED_HEADERS, GO or LIST are expected. */
static void test_hostile(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_GO);
	memcpy(clear.at, "HTTP/1.1", 8);
	run_to_failure(-EPROTO, "no NBD server");
	start(NBD_HANDSHAKE_GO);
	nbd_put64(clear.at + 8, NBD_OLDSTYLE_MAGIC);
	run_to_failure(-EOPNOTSUPP, "oldstyle");
	start(NBD_HANDSHAKE_GO);
	clear.at[15] ^= 1;
	run_to_failure(-EPROTO, "unknown magic");
	start(NBD_HANDSHAKE_LIST);
	clear.nr = 0;
	add_greeting(&clear, 0);
	run_to_failure(-EOPNOTSUPP, "too old to tell");

	start(NBD_HANDSHAKE_GO);
	add_worst(&clear);
	clear.at[18] ^= 1;
	run_to_failure(-EPROTO, "wrong magic");
	start(NBD_HANDSHAKE_GO);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ACK, 0);
	run_to_failure(-EPROTO, "asked for EXTENDED_HEADERS, the server answers to GO");
	start(NBD_HANDSHAKE_GO);
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ACK, 1);
	run_to_failure(-EPROTO, "ACK");
	start(NBD_HANDSHAKE_GO);
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_INFO, 0);
	run_to_failure(-EPROTO, "reply of type INFO");
	start(NBD_HANDSHAKE_GO);
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, 99, UINT32_MAX);
	run_to_failure(-EPROTO, "4294967295 bytes");
}

static void bad_go(void)
{
	start(NBD_HANDSHAKE_GO);
	add_worst(&clear);
}

static void test_hostile_infos(void **state)
{
	static const uint32_t sizes[][3] = {
		{ 0, 4096, 65536 },	 { 3, 4096, 65536 }, { 131072, 131072, 131072 },
		{ 512, 256, 65536 },	 { 4096, 512, 65536 }, { 512, 4095, 65536 },
		{ 512, 4096, 4095 },
	};

	(void)state;
	bad_go();
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ACK, 0);
	run_to_failure(-EPROTO, "without saying its size");
	bad_go();
	add_info_export(&clear, NBD_OPT_GO, 1ull << 63, FLAGS);
	run_to_failure(-EPROTO, "9223372036854775808 bytes");
	bad_go();
	add_info_export(&clear, NBD_OPT_GO, 512, NBD_FLAG_SEND_FLUSH);
	run_to_failure(-EPROTO, "without HAS_FLAGS");
	bad_go();
	add_rep(&clear, NBD_OPT_GO, NBD_REP_INFO, 1);
	add_fill(&clear, 0, 1);
	run_to_failure(-EPROTO, "of 1 bytes");
	bad_go();
	add_rep(&clear, NBD_OPT_GO, NBD_REP_INFO, 11);
	add_fill(&clear, 0, 11);
	run_to_failure(-EPROTO, "INFO_EXPORT of 11 bytes");
	bad_go();
	add_rep(&clear, NBD_OPT_GO, NBD_REP_INFO, 15);
	add16(&clear, NBD_INFO_BLOCK_SIZE);
	add_fill(&clear, 0, 13);
	run_to_failure(-EPROTO, "INFO_BLOCK_SIZE of 15 bytes");
	bad_go();
	add_rep(&clear, NBD_OPT_GO, NBD_REP_INFO, 2 + 4097);
	add16(&clear, NBD_INFO_NAME);
	add_fill(&clear, 'a', 4097);
	run_to_failure(-EPROTO, "a text of 4099 bytes");
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		bad_go();
		add_info_block_size(&clear, NBD_OPT_GO, sizes[i][0], sizes[i][1], sizes[i][2]);
		run_to_failure(-EPROTO, "block sizes that cannot be");
	}
	bad_go();
	for (unsigned i = 0; i <= NBD_HANDSHAKE_REPLIES_MAX; i++)
		add_info_text(&clear, NBD_OPT_GO, 77, "");
	run_to_failure(-EPROTO, "does not end its answer to GO: more than 64");
}

static void test_hostile_contexts(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		start(NBD_HANDSHAKE_GO);
		add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ACK, 0);
		if (i == 0) {
			add_context(&clear, 1, "qemu:dirty\n");
			run_to_failure(-EPROTO, "\"qemu:dirty?\" unasked");
		} else if (i == 1) {
			add_context(&clear, 1, NBD_META_ALLOCATION);
			add_context(&clear, 2, NBD_META_ALLOCATION);
			run_to_failure(-EPROTO, "twice");
		} else if (i == 2) {
			add_rep(&clear, NBD_OPT_SET_META_CONTEXT, NBD_REP_META_CONTEXT, 3);
			add_fill(&clear, 0, 3);
			run_to_failure(-EPROTO, "of 3 bytes");
		} else {
			/* None selected is no error. */
			add_rep(&clear, NBD_OPT_SET_META_CONTEXT, NBD_REP_ACK, 0);
			assert_int_equal(run(), NBD_HANDSHAKE_MORE);
			assert_false(h.export.has_meta);
		}
	}
}

static void test_hostile_lists(void **state)
{
	size_t used;

	(void)state;
	start(NBD_HANDSHAKE_LIST);
	add_rep(&clear, NBD_OPT_LIST, NBD_REP_SERVER, 3);
	add_fill(&clear, 0, 3);
	run_to_failure(-EPROTO, "of 3 bytes");
	start(NBD_HANDSHAKE_LIST);
	add_rep(&clear, NBD_OPT_LIST, NBD_REP_SERVER, 6);
	add32(&clear, 3);
	add_text(&clear, "ab");
	run_to_failure(-EPROTO, "a name of 3 bytes in a reply of 6");
	start(NBD_HANDSHAKE_LIST);
	add_rep(&clear, NBD_OPT_LIST, NBD_REP_SERVER, 4 + 4097);
	add32(&clear, 4097);
	add_fill(&clear, 'a', 4097);
	run_to_failure(-EPROTO, "of 4101 bytes");
	/* Without end. */
	start(NBD_HANDSHAKE_LIST);
	nbd_handshake_init(&h, &config);
	nbd_handshake_feed(&h, clear.at, clear.nr, &used);
	clear.nr = 0;
	add_server(&clear, "", "");
	for (unsigned i = 0; i < NBD_HANDSHAKE_EXPORTS_MAX; i++)
		assert_int_equal(nbd_handshake_feed(&h, clear.at, clear.nr, &used),
				 NBD_HANDSHAKE_MORE);
	assert_int_equal(nbd_handshake_feed(&h, clear.at, clear.nr, &used), NBD_HANDSHAKE_FAILED);
	assert_non_null(strstr(h.error, "more than 4096"));
}

static void eof_after(size_t bytes, const char *words)
{
	struct prng p;
	size_t all = clear.nr;

	prng_init(&p, 1);
	clear.nr = bytes;
	feed_all(&p, 8);
	assert_int_equal(nbd_handshake_eof(&h), NBD_HANDSHAKE_FAILED);
	if (!strstr(h.error, words))
		fail_msg("after %zu: %s", bytes, h.error);
	clear.nr = all;
}

/* The server goes at every byte; each time there are words for it. */
static void test_eof(void **state)
{
	size_t at;

	(void)state;
	start(NBD_HANDSHAKE_GO);
	add_worst(&clear);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ERR_UNSUP, 0);
	eof_after(0, "without a greeting");
	for (at = 1; at < 18; at++)
		eof_after(at, "in the middle of its greeting");
	for (; at < 38; at++)
		eof_after(at, "asked for EXTENDED_HEADERS");
	for (; at < 58; at++)
		eof_after(at, "asked for STRUCTURED_REPLY");
	for (; at < 78; at++)
		eof_after(at, "asked for GO");
	eof_after(78, "it has none of that name");
	assert_int_equal(h.err, -ENOENT);
}

static void test_longest_name(void **state)
{
	static char name[NBD_STRING_BYTES_MAX + 1];

	(void)state;
	memset(name, 'n', NBD_STRING_BYTES_MAX);
	start(NBD_HANDSHAKE_GO);
	config.export_name = name;
	config.tls = true;
	add_rep(&clear, NBD_OPT_STARTTLS, NBD_REP_ACK, 0);
	add_rep(&tls, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_UNSUP, 0);
	add_rep(&tls, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, 0);
	add_rep(&tls, NBD_OPT_SET_META_CONTEXT, NBD_REP_ERR_UNSUP, 0);
	add_rep(&tls, NBD_OPT_GO, NBD_REP_ERR_UNSUP, 0);
	add64(&tls, 512);
	add16(&tls, FLAGS);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	SAID(NBD_OPT_STARTTLS, NBD_OPT_EXTENDED_HEADERS, NBD_OPT_STRUCTURED_REPLY,
	     NBD_OPT_SET_META_CONTEXT, NBD_OPT_GO, NBD_OPT_EXPORT_NAME);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_go),
		cmocka_unit_test(test_output_in_pieces),
		cmocka_unit_test(test_structured),
		cmocka_unit_test(test_not_wanted),
		cmocka_unit_test(test_export_name),
		cmocka_unit_test(test_info),
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_tls),
		cmocka_unit_test(test_tls_refused),
		cmocka_unit_test(test_tls_injection),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_texts_of_the_server),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_hostile_infos),
		cmocka_unit_test(test_hostile_contexts),
		cmocka_unit_test(test_hostile_lists),
		cmocka_unit_test(test_eof),
		cmocka_unit_test(test_longest_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
