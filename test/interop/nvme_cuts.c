/*
 * The connection is cut at a byte of what the target sends: while a device opens, of a bring-up, of
 * answers. Bytes are sampled, by the seed: every one takes minutes; with UBLKD_SOAK more are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme_case.h"

#define QUEUE "on_disconnect: {queue: 60s}\ntimeout: 5s\n"

/* Of the bytes up to here more are taken: headers of the first PDUs. */
#define DENSE_BYTES 600u

static unsigned next_sample(struct fault_case *c, unsigned at, unsigned total)
{
	unsigned nr = getenv("UBLKD_SOAK") ? 1000 : 40;
	unsigned step = at < DENSE_BYTES ? DENSE_BYTES / nr : (total - DENSE_BYTES) / nr;

	return at + 1 + (unsigned)prng_below(&c->prng, 2 * step);
}

/* ---- while it opens ---- */

struct opening {
	const char *settings, *options;
};

static struct rig_params opening_params(const struct fault_case *c, const char *options)
{
	static char yaml[512];

	snprintf(yaml, sizeof(yaml), "uri: \"%s\"\nhost_nqn: " CASE_HOST_NQN "\n%s", c->peer.uri,
		 options);
	return (struct rig_params){ .ops = backend_find("nvme-tcp"),
				    .name = "test",
				    .yaml = yaml,
				    .block_bytes = 512,
				    .queue_nr = 1,
				    .depth = 1 };
}

/* Of an answer to a shutdown nothing depends on. */
#define BEHIND_BYTES 64u

static void check_open(struct fault_case *c, const void *arg)
{
	const struct opening *o = arg;
	struct rig_params params;
	unsigned fds, total;

	case_serve(c, o->settings);
	params = opening_params(c, o->options);
	fds = rig_count_fds();
	REQUIRE(rig_open_device(&c->rig, &params) == 0, "%s", c->rig.error);
	rig_close_device(&c->rig);
	total = (unsigned)nvme_peer_count(&c->peer, "bytes_sent");
	for (unsigned at = 1; at <= total; at = next_sample(c, at, total)) {
		nvme_peer_tell(&c->peer, "set cut_after=%u", at);
		if (rig_open_device(&c->rig, &params) == 0) {
			rig_close_device(&c->rig);
			EXPECT(at + BEHIND_BYTES > total, "content with %u of %u bytes", at, total);
		} else {
			EXPECT(c->rig.error[0] != '\0', "byte %u: no words", at);
		}
		REQUIRE(rig_count_fds() == fds, "byte %u: %u descriptors, were %u", at,
			rig_count_fds(), fds);
	}
	EXPECT(nvme_peer_count(&c->peer, "violations") == 0, "the client broke the protocol");
}

/* ---- in its life ---- */

static struct rig_io *submit(struct fault_case *c, unsigned tag, enum backend_op op,
			     uint64_t offset_bytes, uint32_t bytes, int fill)
{
	struct rig_io *rio = &c->rig.queue[0].io[tag];

	memset(rio->io.buf, fill, bytes);
	rio->done = NULL;
	rio->io.op = (uint8_t)op;
	rio->io.flags = 0;
	rio->io.offset_bytes = offset_bytes;
	rio->io.length_bytes = bytes;
	rig_submit(&c->rig, rio);
	return rio;
}

#define SMALL_BYTES 4096u /* goes in a capsule */
#define LARGE_BYTES 16384u

/* All at once, then what was written is read: a little of everything, as digests cost the target.
 */
static bool all_is_well(struct fault_case *c, unsigned at)
{
	static uint8_t want[LARGE_BYTES];
	struct rig_io *small, *large;
	int fill = (int)(at % 251 + 1);

	submit(c, 0, BACKEND_WRITE, 0, SMALL_BYTES, fill);
	submit(c, 1, BACKEND_WRITE, LARGE_BYTES, LARGE_BYTES, fill);
	submit(c, 2, BACKEND_FLUSH, 0, 0, 0);
	submit(c, 3, BACKEND_WRITE_ZEROES, 4 * LARGE_BYTES, SMALL_BYTES, 0);
	if (!case_drain(c, 60000))
		return false;
	small = submit(c, 4, BACKEND_READ, 0, SMALL_BYTES, 0);
	large = submit(c, 5, BACKEND_READ, LARGE_BYTES, LARGE_BYTES, 0);
	if (!case_drain(c, 60000))
		return false;
	for (unsigned tag = 0; tag < 6; tag++)
		EXPECT(c->rig.queue[0].io[tag].io.result == 0, "byte %u: tag %u: %d", at, tag,
		       c->rig.queue[0].io[tag].io.result);
	memset(want, fill, sizeof(want));
	EXPECT(memcmp(small->io.buf, want, SMALL_BYTES) == 0, "byte %u: wrong bytes", at);
	EXPECT(memcmp(large->io.buf, want, LARGE_BYTES) == 0, "byte %u: wrong bytes", at);
	return !tap_failed();
}

/* The bring-up and answers behind it; every request succeeds, with the right bytes. */
static void check_bring_up(struct fault_case *c, const void *arg)
{
	const struct opening *o = arg;
	unsigned before, total;

	case_serve(c, o->settings);
	if (!case_open(c, o->options) || !case_connected(c, 0, 1))
		return;
	before = (unsigned)nvme_peer_count(&c->peer, "bytes_sent");
	nvme_peer_tell(&c->peer, "drop");
	if (!case_connected(c, 0, 2))
		return;
	total = (unsigned)nvme_peer_count(&c->peer, "bytes_sent") - before;
	for (unsigned at = 1; at <= total + 8192; at = next_sample(c, at, total)) {
		nvme_peer_tell(&c->peer, "set cut_after=%u", at);
		nvme_peer_tell(&c->peer, "drop");
		if (!all_is_well(c, at))
			return;
	}
	EXPECT(nvme_peer_count(&c->peer, "violations") == 0, "the client broke the protocol");
}

/* Two READs, and the completions. */
#define ANSWER_BYTES (SMALL_BYTES + LARGE_BYTES)

/* Of answers alone, one after the other, without a bring-up before. */
static void check_answers(struct fault_case *c, const void *arg)
{
	const struct opening *o = arg;

	case_serve(c, o->settings);
	if (!case_open(c, o->options) || !case_connected(c, 0, 1))
		return;
	for (unsigned at = 1; at < ANSWER_BYTES; at = next_sample(c, at, ANSWER_BYTES)) {
		uint64_t connects = case_look(c, 0).connects;

		nvme_peer_tell(&c->peer, "set cut_after=%u", at);
		if (!all_is_well(c, at))
			return;
		EXPECT(case_look(c, 0).connects > connects, "byte %u: it was not cut", at);
	}
	EXPECT(nvme_peer_count(&c->peer, "violations") == 0, "the client broke the protocol");
}

/* Each lives for so many bytes only: what it has done counts. */
static void check_short_lives(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open_blocks(c, QUEUE, 512, 2))
		return;
	nvme_peer_tell(&c->peer, "set cut_each=300000");
	EXPECT(case_survives(c, 300) == 0, "some failed");
	EXPECT(case_look(c, 0).lost >= 3, "it was not cut");
	nvme_peer_tell(&c->peer, "set cut_each=0");
	case_works(c, 50);
}

void cuts_run(uint64_t seed)
{
	static const struct opening plain = { "", QUEUE };
	static const struct opening digests = {
		"c2h_bytes=2000 success=0 cpda=3",
		QUEUE "header_digest: true\ndata_digest: true\n",
	};

	fault_case_run("cut: while it opens", 60, seed, check_open, &plain);
	fault_case_run("cut: while it opens, with digests, in pieces", 60, seed, check_open,
		       &digests);
	fault_case_run("cut: of a bring-up and answers behind it", 60, seed, check_bring_up,
		       &plain);
	fault_case_run("cut: of a bring-up with digests, in pieces", 60, seed, check_bring_up,
		       &digests);
	fault_case_run("cut: of answers", 60, seed, check_answers, &plain);
	fault_case_run("cut: of answers with digests, in pieces", 60, seed, check_answers,
		       &digests);
	fault_case_run("cut: again and again, under load", 60, seed, check_short_lives, NULL);
}
