/*
 * The NBD handshake against servers written down as bytes: each is fed byte by byte, whole and in
 * random pieces, and everything must come out the same.
 */
#ifndef TEST_RIG_NBD_HANDSHAKE_CASE_H
#define TEST_RIG_NBD_HANDSHAKE_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>

#include "backends/nbd/nbd_handshake.h"
#include "base/prng.h"
#include "base/util.h"
#include "test/unit/base/printable_check.h"
#include "test/rig/nbd_bytes.h"

#define FLAGS (NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH)
#define BOTH (NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES)

static struct nbd_handshake h;
static struct nbd_handshake_config config;
/* What the server sends in clear text, and then over TLS. */
static struct bytes clear, tls;
static char exports[512];
static size_t used_bytes;

static inline void on_export(void *ctx, const uint8_t *name, size_t name_bytes,
			     const uint8_t *description, size_t description_bytes)
{
	size_t at = strlen(exports);

	assert_ptr_equal(ctx, &config);
	if (at < 256)
		snprintf(exports + at, sizeof(exports) - at, "%.*s(%.*s) ", (int)name_bytes, name,
			 (int)description_bytes, description);
}

static inline void start(enum nbd_handshake_mode mode)
{
	config = (struct nbd_handshake_config){
		.mode = mode, .export_name = "disk", .on_export = on_export, .ctx = &config
	};
	clear.nr = tls.nr = 0;
	add_greeting(&clear, BOTH);
}

/* Feeds all of it in pieces of 1 to max bytes. */
static inline enum nbd_handshake_step feed(const struct bytes *b, struct prng *p, size_t max)
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

static inline enum nbd_handshake_step feed_all(struct prng *p, size_t max)
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
static inline void same_as(const struct nbd_handshake *whole)
{
	assert_int_equal(h.step, whole->step);
	assert_int_equal(h.err, whole->err);
	assert_string_equal(h.error, whole->error);
	assert_memory_equal(&h.export, &whole->export, sizeof(h.export));
	assert_int_equal(h.out_bytes, whole->out_bytes);
	assert_memory_equal(h.out, whole->out, h.out_bytes);
}

static inline enum nbd_handshake_step run(void)
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

static inline void run_to_failure(int err, const char *words)
{
	assert_int_equal(run(), NBD_HANDSHAKE_FAILED);
	if (h.err != err || !strstr(h.error, words))
		fail_msg("%d: %s", h.err, h.error);
	check_printable(h.error);
}

/* The options that were said, one behind the other; 0 at the end. */
static inline void said(const uint32_t *opts)
{
	const uint8_t *at, *end;
	size_t bytes = nbd_handshake_output(&h, &at);

	end = at + bytes;
	at += 4; /* client flags */
	for (; *opts; opts++) {
		assert_true(end - at >= 16);
		assert_true(be_get64(at) == NBD_OPTION_MAGIC);
		assert_int_equal(be_get32(at + 8), *opts);
		at += 16 + be_get32(at + 12);
	}
	assert_ptr_equal(at, end);
}

#define SAID(...) said((const uint32_t[]){ __VA_ARGS__, 0 })

/* The answers to all options before GO, all of them yes. */
static inline void add_best(struct bytes *b)
{
	add_rep(b, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ACK, 0);
	add_context(b, 7, NBD_META_ALLOCATION);
	add_rep(b, NBD_OPT_SET_META_CONTEXT, NBD_REP_ACK, 0);
}

/* ... and all of them no. */
static inline void add_worst(struct bytes *b)
{
	add_rep(b, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_UNSUP, 0);
	add_rep(b, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ERR_UNSUP, 0);
}

#endif
