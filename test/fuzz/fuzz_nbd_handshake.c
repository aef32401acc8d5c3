/*
 * Any bytes as an NBD server that shakes hands. The first byte says what the client wants, the rest
 * is what the server sends. Byte by byte and in larger pieces the same must come of it.
 */
#include <stdio.h>

#include "backends/nbd/nbd_handshake.h"
#include "base/assert.h"
#include "base/prng.h"
#include "base/util.h"
#include "fuzz.h"

const char *const fuzz_words[] = {
	"NBDMAGIC",
	"IHAVEOPT",
	"\x03\xe8\x89\x04\x55\x65\xa9",
	"base:allocation",
	"\x01",
	"\x02",
	"\x03",
	"\x04",
	"\x07",
	"\x0b",
	"\x0c",
	"\x0e",
	"\x80",
	"\xff\xff\xff\xff",
	NULL,
};

static struct nbd_handshake_config config;

static void on_export(void *ctx, const uint8_t *name, size_t name_bytes, const uint8_t *description,
		      size_t description_bytes)
{
	uint64_t *sum = ctx;

	/* Reads every byte: ASan sees what is none of it. */
	for (size_t i = 0; i < name_bytes; i++)
		*sum = *sum * 31 + name[i];
	for (size_t i = 0; i < description_bytes; i++)
		*sum = *sum * 31 + description[i];
}

static void check_text(const char *text, size_t bytes_max)
{
	ASSERT(strnlen(text, bytes_max) < bytes_max);
	fuzz_expect_printable(text);
}

static void check(const struct nbd_handshake *h)
{
	const struct nbd_export *x = &h->export;

	/* Flags, and the header of STARTTLS. */
	if (config.tls && !x->tls)
		ASSERT(h->out_bytes <= 20 && h->step != NBD_HANDSHAKE_DONE);
	ASSERT((h->step == NBD_HANDSHAKE_FAILED) == (h->error[0] != '\0'));
	ASSERT((h->step == NBD_HANDSHAKE_FAILED) == (h->err < 0));
	check_text(h->error, sizeof(h->error));
	check_text(x->name, sizeof(x->name));
	check_text(x->description, sizeof(x->description));
	ASSERT(x->size_bytes <= INT64_MAX);
	ASSERT(is_power_of_two(x->min_block_bytes) && x->min_block_bytes <= 65536);
	ASSERT(x->max_payload_bytes >= x->preferred_block_bytes);
	ASSERT(x->structured || (!x->has_meta && !x->extended && !(x->flags & NBD_FLAG_SEND_DF)));
	if (h->step == NBD_HANDSHAKE_DONE && config.mode != NBD_HANDSHAKE_LIST)
		ASSERT(x->flags & NBD_FLAG_HAS_FLAGS);
}

/* Returns how many bytes were taken. */
static size_t feed(struct nbd_handshake *h, const uint8_t *data, size_t bytes, struct prng *p,
		   size_t max)
{
	size_t at = 0, used;

	nbd_handshake_init(h, &config);
	while (at < bytes && h->step == NBD_HANDSHAKE_MORE) {
		size_t nr = MIN(bytes - at, 1 + prng_below(p, max));

		ASSERT(nbd_handshake_feed(h, data + at, nr, &used) == h->step && used <= nr);
		at += used;
		check(h);
		if (h->step == NBD_HANDSHAKE_START_TLS)
			nbd_handshake_tls_started(h);
	}
	nbd_handshake_eof(h);
	check(h);
	return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct nbd_handshake one, many;
	uint64_t one_sum = 0, many_sum = 0;
	size_t one_used, many_used;
	struct prng p;

	if (bytes == 0)
		return 0;
	config = (struct nbd_handshake_config){
		.mode = (enum nbd_handshake_mode)(data[0] % 3),
		.tls = data[0] & 4,
		.no_extended = data[0] & 8,
		.no_structured = data[0] & 16,
		.no_meta = data[0] & 32,
		.export_name = "disk",
		.on_export = on_export,
		.ctx = &one_sum,
	};
	prng_init(&p, bytes);
	one_used = feed(&one, data + 1, bytes - 1, &p, 1);
	config.ctx = &many_sum;
	many_used = feed(&many, data + 1, bytes - 1, &p, 1 + prng_below(&p, bytes));
	/* Only in pieces can there be clear text behind the answer to STARTTLS. */
	if (strstr(many.error, "clear text"))
		return 0;
	ASSERT(one_used == many_used && one_sum == many_sum && one.step == many.step);
	ASSERT(strcmp(one.error, many.error) == 0);
	ASSERT(memcmp(&one.export, &many.export, sizeof(one.export)) == 0);
	ASSERT(one.out_bytes == many.out_bytes && memcmp(one.out, many.out, one.out_bytes) == 0);
	return 0;
}
