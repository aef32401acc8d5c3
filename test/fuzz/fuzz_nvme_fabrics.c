/*
 * Any answers to the commands of a bring-up. The first byte says what is brought up; then each
 * answer is a completion of 16 bytes, a length of 2, and what differs in the data, which are
 * otherwise those of a good controller: so deep states are reached. What must hold: it ends,
 * commands make sense, what is found is within limits, words are words.
 */
#include <errno.h>

#include "backends/nvme/protocol/nvme_command.h"
#include "answers.h"
#include "fuzz.h"
#include "test/rig/nvme_fake_controller.h"

const char *const fuzz_words[] = {
	"\x01", "\x02", "\x03", "\x09", "\x0c", "\x10", "\xff\xff", "\x82\x41", "\x0b\x80", NULL,
};

static void answer(struct fake_controller *c, struct nvme_fabrics *f, struct answers *a)
{
	struct nvme_fabrics copy = *f;
	uint8_t change[4] = { 0 };
	struct nvme_cqe cqe = { 0 };
	uint32_t bytes = f->in_bytes;

	/* What a good controller answers, bent: the copy is answered and forgotten. */
	c->commands_nr++;
	if (copy.sqe[0] == NVME_FABRICS)
		fake_fabrics(c, &copy, &cqe);
	else
		fake_admin(c, &copy, &cqe);
	memcpy(f->data, copy.data, f->in_bytes);
	answers_take(a, change, sizeof(change));
	if (change[0] & 1)
		answers_take(a, &cqe.result, sizeof(cqe.result));
	if (change[0] & 2)
		cqe.status = (uint16_t)(change[1] | change[2] << 8) & 0x7fff;
	if (change[0] & 4)
		bytes = change[3] < bytes ? change[3] : bytes;
	if (change[0] & 8)
		cqe.sq_head = change[3];
	answers_bend(a, f->data, f->in_bytes);
	nvme_fabrics_completed(f, &cqe, bytes);
}

static void check_end(const struct nvme_fabrics *f)
{
	const struct nvme_namespace *ns = &f->namespace;

	if (f->step == NVME_FABRICS_FAILED) {
		ASSERT(f->err < 0 && f->error[0]);
		fuzz_expect_printable(f->error);
		return;
	}
	if (f->config.mode != NVME_FABRICS_ADMIN)
		return;
	ASSERT(ns->nsid != 0 && (ns->block_bytes == 512 || ns->block_bytes == 4096));
	ASSERT(ns->size_bytes > 0 && ns->size_bytes <= INT64_MAX &&
	       ns->size_bytes % ns->block_bytes == 0);
	ASSERT(ns->atomic_write_bytes >= ns->block_bytes);
	ASSERT(!f->controller.has_ana || ns->ana_state != 0);
	ASSERT(nvme_want_matches(&f->config.want, ns->nsid, &ns->ids));
	ASSERT(f->controller.queues_nr >= 1 && f->controller.queues_nr <= f->config.queues_nr);
	ASSERT(f->controller.entries_nr >= 2 && f->controller.entries_nr <= f->config.entries_nr);
	ASSERT(f->controller.commands_nr >= 1 &&
	       f->controller.commands_nr < f->controller.entries_nr);
	ASSERT(f->controller.max_transfer_bytes >= 8192 && f->controller.max_zeroes_bytes >= 8192);
	ASSERT(f->controller.max_ranges_nr >= 1 && f->controller.max_ranges_nr <= 256);
	ASSERT(f->controller.max_range_blocks > 0 && f->controller.max_discard_blocks > 0);
}

static void start(struct fake_controller *c, struct nvme_fabrics *f, uint8_t how)
{
	struct nvme_fabrics_config config = {
		.mode = (enum nvme_fabrics_mode)(how % 3),
		.subsystem_nqn = "nqn.2024-01.com.example:disk",
		.host_nqn = "nqn.2024-01.com.example:host",
		.kato_ms = how & 128 ? 0 : 5000,
		.queues_nr = 4,
		.entries_nr = 64,
		.want = { .by = (enum nvme_want_by)(how / 3 % 5), .nsid = 2 },
		.qid = 1,
	};

	memset(config.want.id, config.want.by == NVME_WANT_NGUID ? 0xa2 : 2,
	       sizeof(config.want.id));
	fake_init(c);
	if (config.want.by != NVME_WANT_ONLY)
		fake_add(c, 1, 16);
	fake_add(c, 2, 2048);
	nvme_put64(c->namespaces[c->namespaces_nr - 1].identify + 120, 0x0202020202020202);
	c->identify[76] = how & 64 ? NVME_CMIC_ANA : 0;
	nvme_put32(c->identify + 348, 1);
	nvme_put16(c->ana + 8, 1);
	nvme_put32(c->ana + 16, 1);
	c->ana[32] = NVME_ANA_OPTIMIZED;
	/* CSTS never follows CC: but for the limit of CAP.TO it would be asked for ever. */
	if ((how & 112) == 112)
		c->slow_nr = 1000000;
	nvme_fabrics_init(f, &config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct fake_controller c;
	static struct nvme_fabrics f;
	struct answers a = { data + 1, data + bytes };
	unsigned steps = 0;

	if (bytes == 0)
		return 0;
	start(&c, &f, data[0]);
	while (f.step == NVME_FABRICS_COMMAND || f.step == NVME_FABRICS_PAUSE) {
		/* Two searches of 4096 and all pauses are fewer. */
		ASSERT(++steps < 20000);
		ASSERT(f.out_bytes <= sizeof(f.data) && f.in_bytes <= sizeof(f.data));
		if (f.step == NVME_FABRICS_PAUSE)
			nvme_fabrics_paused(&f);
		else if (a.at == a.end && steps % 2 && data[0] & 32)
			nvme_fabrics_gone(&f, steps % 4 == 1 ? -ETIMEDOUT : -ECONNRESET);
		else
			answer(&c, &f, &a);
	}
	check_end(&f);
	return 0;
}
