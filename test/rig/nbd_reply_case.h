/*
 * NBD replies written down as bytes: each case is fed byte by byte, whole and in random pieces, and
 * everything must come out the same (nbd_reply_rig.h); the log of events is compared with what is
 * wanted.
 */
#ifndef TEST_RIG_NBD_REPLY_CASE_H
#define TEST_RIG_NBD_REPLY_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include "test/rig/nbd_bytes.h"
#include "test/rig/nbd_reply_rig.h"

#define DONE NBD_REPLY_FLAG_DONE
#define SIMPLE NBD_REPLIES_SIMPLE
#define STRUCTURED NBD_REPLIES_STRUCTURED
#define EXTENDED NBD_REPLIES_EXTENDED

static struct bytes b;
static struct reply_rig fresh, rig;

/* Slots 0 to 2: READ of 1024 at 4096; 3 WRITE, 4 FLUSH, 5 TRIM of 65536; 6 and 7 free. */
static inline void start(enum nbd_reply_mode mode)
{
	b.nr = 0;
	rig_init(&fresh, mode);
	for (unsigned i = 0; i < 3; i++)
		rig_request(&fresh, i, NBD_CMD_READ, i == 2 ? NBD_CMD_FLAG_DF : 0, 4096, 1024);
	rig_request(&fresh, 3, NBD_CMD_WRITE, 0, 4096, 1024);
	rig_request(&fresh, 4, NBD_CMD_FLUSH, 0, 0, 0);
	rig_request(&fresh, 5, NBD_CMD_TRIM, 0, 4096, 65536);
}

/* A copy whose parser looks up in itself. */
static inline void again(void)
{
	rig = fresh;
	rig.r.ctx = &rig;
}

static inline void run(const char *log)
{
	static struct reply_rig whole;
	struct prng p;

	prng_init(&p, 1);
	again();
	rig_feed_pieces(&rig, b.at, b.nr, &p, 1);
	whole = rig;
	again();
	rig_feed(&rig, b.at, b.nr);
	rig_feed_pieces(&rig, b.at, 0, &p, 1);
	rig_same(&rig, &whole);
	for (unsigned i = 0; i < 20; i++) {
		again();
		rig_feed_pieces(&rig, b.at, b.nr, &p, 1 + prng_below(&p, 100));
		rig_same(&rig, &whole);
	}
	assert_string_equal(rig.log, log);
}

static inline void run_broken(const char *words)
{
	char log[300];

	snprintf(log, sizeof(log), "broken: %s\ninside\n", words);
	run(log);
}

static inline void chunk(uint64_t cookie, uint16_t flags, uint16_t type, uint64_t bytes)
{
	const struct nbd_slot *slot = rig_lookup(&fresh, cookie);

	add_chunk(&b, fresh.r.mode == EXTENDED, cookie, flags, type, bytes,
		  slot ? slot->offset_bytes : 0);
}

static inline void data(uint64_t cookie, uint16_t flags, uint64_t offset, uint32_t bytes)
{
	chunk(cookie, flags, NBD_REPLY_TYPE_OFFSET_DATA, 8 + bytes);
	add64(&b, offset);
	for (uint32_t i = 0; i < bytes; i++)
		*bytes_room(&b, 1) = (uint8_t)((offset + i) * 7);
}

static inline void hole(uint64_t cookie, uint16_t flags, uint64_t offset, uint32_t bytes)
{
	chunk(cookie, flags, NBD_REPLY_TYPE_OFFSET_HOLE, 12);
	add64(&b, offset);
	add32(&b, bytes);
}

static inline void error(uint64_t cookie, uint16_t flags, uint32_t err, const char *text)
{
	chunk(cookie, flags, NBD_REPLY_TYPE_ERROR, 6 + strlen(text));
	add32(&b, err);
	add16(&b, (uint16_t)strlen(text));
	add_text(&b, text);
}

static inline void error_offset(uint64_t cookie, uint16_t flags, uint32_t err, const char *text,
				uint64_t offset)
{
	chunk(cookie, flags, NBD_REPLY_TYPE_ERROR_OFFSET, 14 + strlen(text));
	add32(&b, err);
	add16(&b, (uint16_t)strlen(text));
	add_text(&b, text);
	add64(&b, offset);
}

static inline void check_data(unsigned i, uint32_t from, uint32_t to)
{
	for (uint32_t at = from; at < to; at++)
		assert_int_equal(rig.buffer[i][at], (uint8_t)((4096 + at) * 7));
}

#endif
