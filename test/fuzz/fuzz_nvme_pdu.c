/*
 * Any bytes as what an NVMe/TCP target sends. The first byte says what was asked for and how the
 * owner behaves; the rest is what comes. What must hold is asserted by nvme_receive_rig.h: data in
 * order, each byte once, none missing where a command succeeds, nobody answered twice. Byte by byte
 * and in larger pieces the same must come of it.
 */
#include "fuzz.h"
#include "test/rig/nvme_receive_rig.h"

const char *const fuzz_words[] = {
	"\x01",
	"\x03",
	"\x05",
	"\x07",
	"\x09",
	"\x18",
	"\x1c",
	"\x04",
	"\x0c",
	"\x80",
	/* common headers: CapsuleResp, C2HData of 64 bytes, R2T (no NUL can be in a word) */
	"\x05\x01\x18",
	"\x07\x0c\x18\x18\x58",
	"\x09\x01\x18",
	"\x40",
	"\x01\x01",
	"\x02\x01",
	"\x03\x01",
	"\x05\x01",
	"\xff\xff\xff\xff",
	NULL,
};

enum { WITH_HEADER = 1, WITH_DATA = 2, WITH_HPDA = 4, WITH_R2TS = 8, WITH_KEPT = 16 };

/* As in the corpus (nvme_corpus.py). */
static void start(struct receive_rig *rig, uint8_t how)
{
	struct nvme_wire wire = {
		.header_digest = how & WITH_HEADER,
		.data_digest = how & WITH_DATA,
		.hpda = how & WITH_HPDA ? 7 : 0,
		.r2t_nr = how & WITH_R2TS ? 3 : 1,
	};

	rig_init(rig, &wire);
	rig->keep_r2ts = how & WITH_KEPT;
	rig_command(rig, 0, NVME_DATA_IN, 64, false);
	rig_command(rig, 1, NVME_DATA_IN, 64, false);
	rig_command(rig, 2, NVME_DATA_OUT, 128, false);
	rig_command(rig, 3, NVME_DATA_OUT, 64, true);
	rig_command(rig, 4, NVME_NO_DATA, 0, false);
	rig_command(rig, 5, NVME_DATA_IN, 64, false);
	rig->slot[5].short_ok = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct receive_rig one, many;
	struct prng p;

	if (bytes == 0)
		return 0;
	prng_init(&p, bytes);
	start(&one, data[0]);
	rig_feed_pieces(&one, data + 1, bytes - 1, &p, 1);
	start(&many, data[0]);
	rig_feed_pieces(&many, data + 1, bytes - 1, &p, 1 + prng_below(&p, bytes));
	rig_same(&one, &many);
	return 0;
}
