/*
 * PDUs of a target written down as bytes: each case is fed byte by byte, whole and in random
 * pieces, and everything must come out the same (nvme_receive_rig.h); the log of events is compared
 * with what is wanted.
 */
#ifndef TEST_RIG_NVME_RECEIVE_CASE_H
#define TEST_RIG_NVME_RECEIVE_CASE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include "test/rig/nvme_bytes.h"
#include "test/rig/nvme_receive_rig.h"

#define LAST NVME_PDU_FLAG_LAST
#define SUCCESS NVME_PDU_FLAG_SUCCESS
#define READ_BYTES 4096u
#define WRITE_BYTES 8192u

static struct bytes b;
static struct receive_rig fresh, rig;
static unsigned digests; /* NVME_DIGEST_* of the case */

/*
 * Before ICResp. Slots 0 and 1: reads of 4096; 2: a write of 8192; 3: a write of 512 in its
 * capsule; 4: without data; 5: a read of 4096 that may be short; 6 and 7 free.
 */
static inline void start_cold(unsigned with_digests, uint8_t hpda, uint32_t r2t_nr)
{
	struct nvme_wire wire = {
		.header_digest = with_digests & NVME_DIGEST_HEADER,
		.data_digest = with_digests & NVME_DIGEST_DATA,
		.hpda = hpda,
		.r2t_nr = r2t_nr,
	};

	digests = with_digests;
	b.nr = 0;
	rig_init(&fresh, &wire);
	rig_command(&fresh, 0, NVME_DATA_IN, READ_BYTES, false);
	rig_command(&fresh, 1, NVME_DATA_IN, READ_BYTES, false);
	rig_command(&fresh, 2, NVME_DATA_OUT, WRITE_BYTES, false);
	rig_command(&fresh, 3, NVME_DATA_OUT, 512, true);
	rig_command(&fresh, 4, NVME_NO_DATA, 0, false);
	rig_command(&fresh, 5, NVME_DATA_IN, READ_BYTES, false);
	fresh.slot[5].short_ok = true;
}

/* Behind ICResp. */
static inline void start(unsigned with_digests)
{
	start_cold(with_digests, 0, 1);
	add_icresp(&b, 0, (uint8_t)with_digests, 4096);
	rig_feed(&fresh, b.at, b.nr);
	b.nr = 0;
	fresh.log_bytes = 0;
	fresh.log[0] = '\0';
}

/* A copy whose parser looks up in itself. */
static inline void again(void)
{
	rig = fresh;
	rig.r.ctx = &rig;
}

static inline void run(const char *log)
{
	static struct receive_rig whole;
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
	/* in two, at every place */
	for (size_t cut = 0; b.nr <= 600 && cut <= b.nr; cut++) {
		again();
		rig_feed(&rig, b.at, cut);
		if (!rig_has_ended(&rig))
			rig_feed(&rig, b.at + cut, b.nr - cut);
		rig_feed_pieces(&rig, b.at, 0, &p, 1);
		rig_same(&rig, &whole);
	}
	assert_string_equal(rig.log, log);
}

/* The words, and the fatal error status and information for H2CTermReq. */
static inline void run_broken(enum nvme_fes fes, uint32_t fei, const char *words)
{
	char log[300];

	snprintf(log, sizeof(log), "broken %u %u: %s\n", (unsigned)fes, fei, words);
	run(log);
	assert_int_equal(rig.r.err, -EPROTO);
}

static inline void data(uint16_t cid, uint8_t flags, uint32_t offset, uint32_t bytes)
{
	add_data(&b, digests, flags, cid, offset, bytes, 0);
}

static inline uint8_t *response(uint16_t cid, uint16_t status)
{
	return add_response(&b, digests & NVME_DIGEST_HEADER, cid, status);
}

static inline void r2t(uint16_t cid, uint16_t ttag, uint32_t offset, uint32_t bytes)
{
	add_r2t(&b, digests & NVME_DIGEST_HEADER, cid, ttag, offset, bytes);
}

static inline void check_data(unsigned i, uint32_t from, uint32_t to)
{
	for (uint32_t at = from; at < to; at++)
		assert_int_equal(rig.buffer[i][at], data_byte(at));
}

#endif
