/*
 * Any bytes as the answers of an NBD server. The first byte says which headers were negotiated, the
 * rest is what the server sends. What must hold is asserted by nbd_reply_rig.h: no byte of a READ
 * comes twice, none is missing where it succeeds, nobody is answered twice. Byte by byte and in
 * larger pieces the same must come of it.
 */
#include "fuzz.h"
#include "test/rig/nbd_reply_rig.h"

const char *const fuzz_words[] = {
	"\x67\x44\x66\x98",
	"\x66\x8e\x33\xef",
	"\x6e\x8a\x27\x8c",
	"\x01",
	"\x02",
	"\x04",
	"\x05",
	"\x06",
	"\x07",
	"\x0c",
	"\x10",
	"\x80\x01",
	"\x80\x02",
	"d",
	"e",
	"f",
	"g",
	"h",
	"i",
	"j",
	"\xff\xff\xff\xff",
	NULL,
};

/* As in the corpus (nbd_corpus.py). */
static void start(struct reply_rig *rig, enum nbd_reply_mode mode)
{
	rig_init(rig, mode);
	for (unsigned i = 0; i < 3; i++)
		rig_request(rig, i, NBD_CMD_READ, i == 2 ? NBD_CMD_FLAG_DF : 0, 4096, 64);
	rig_request(rig, 3, NBD_CMD_WRITE, 0, 4096, 1024);
	rig_request(rig, 4, NBD_CMD_FLUSH, 0, 0, 0);
	rig_request(rig, 5, NBD_CMD_TRIM, 0, 4096, 65536);
	rig_request(rig, 6, NBD_CMD_WRITE_ZEROES, 0, 4096, 65536);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct reply_rig one, many;
	enum nbd_reply_mode mode;
	struct prng p;

	if (bytes == 0)
		return 0;
	mode = (enum nbd_reply_mode)(data[0] % 3);
	prng_init(&p, bytes);
	start(&one, mode);
	rig_feed_pieces(&one, data + 1, bytes - 1, &p, 1);
	start(&many, mode);
	rig_feed_pieces(&many, data + 1, bytes - 1, &p, 1 + prng_below(&p, bytes));
	rig_same(&one, &many);
	return 0;
}
