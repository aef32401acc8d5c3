/*
 * An NVMe controller without a wire: answers the commands of nvme_fabrics.h one by one, and logs
 * what it was asked. A test bends it: fields, the status of one command, short answers.
 */
#ifndef TEST_RIG_NVME_FAKE_CONTROLLER_H
#define TEST_RIG_NVME_FAKE_CONTROLLER_H

#include <stdarg.h>
#include <stdio.h>

#include "backends/nvme/protocol/nvme_fabrics.h"
#include "base/assert.h"
#include "base/util.h"

#define FAKE_NAMESPACES_MAX 8u

struct fake_namespace {
	uint32_t nsid;
	uint8_t identify[NVME_IDENTIFY_BYTES];
	uint8_t ids[NVME_IDENTIFY_BYTES];
	size_t ids_bytes;
};

struct fake_controller {
	uint64_t cap;
	uint32_t vs, cc, connect_result;
	unsigned slow_nr; /* answers of CSTS before it follows CC */
	bool fatal;	  /* CSTS.CFS */
	uint16_t sq_head;
	uint32_t queues_result;
	uint8_t identify[NVME_IDENTIFY_BYTES];
	uint8_t limits[NVME_IDENTIFY_BYTES];
	unsigned namespaces_nr;
	struct fake_namespace namespaces[FAKE_NAMESPACES_MAX];
	uint8_t ana[NVME_FABRICS_DATA_BYTES];
	/* The command number fail_at (from 1) is answered with fail_status; or with less data. */
	unsigned fail_at, short_at;
	uint16_t fail_status;
	uint32_t fail_result;
	/* Authentication Send and Receive; returns how many bytes came. */
	uint32_t (*on_auth)(void *ctx, struct nvme_fabrics *f);
	void *ctx;
	unsigned commands_nr, pauses_nr;
	size_t log_bytes;
	char log[16384];
};

__attribute__((format(printf, 2, 3))) static inline void fake_log(struct fake_controller *c,
								  const char *fmt, ...)
{
	size_t room = sizeof(c->log) - c->log_bytes;
	va_list args;
	int nr;

	va_start(args, fmt);
	nr = vsnprintf(c->log + c->log_bytes, room, fmt, args);
	va_end(args);
	if ((size_t)nr < room)
		c->log_bytes += (size_t)nr;
}

static inline void fake_add_id(struct fake_namespace *ns, uint8_t type, const void *id,
			       uint8_t bytes)
{
	uint8_t *at = ns->ids + ns->ids_bytes;

	ASSERT(ns->ids_bytes + 4 + bytes <= sizeof(ns->ids));
	at[0] = type;
	at[1] = bytes;
	memcpy(at + 4, id, bytes);
	ns->ids_bytes += 4u + bytes;
}

/* Blocks of 512, size_blocks of them; UUID and NGUID are 16 times the nsid, plus 0xa0 for NGUID. */
static inline struct fake_namespace *fake_add(struct fake_controller *c, uint32_t nsid,
					      uint64_t size_blocks)
{
	struct fake_namespace *ns = &c->namespaces[c->namespaces_nr++];
	uint8_t id[16];

	ns->nsid = nsid;
	nvme_put64(ns->identify, size_blocks);
	nvme_put32(ns->identify + 92, 1); /* ANAGRPID */
	ns->identify[130] = 9;		  /* LBADS */
	memset(id, (int)nsid, sizeof(id));
	fake_add_id(ns, NVME_NIDT_UUID, id, 16);
	memset(id, (int)(nsid + 0xa0), sizeof(id));
	fake_add_id(ns, NVME_NIDT_NGUID, id, 16);
	memcpy(ns->identify + 104, id, 16);
	return ns;
}

/* As Linux' nvmet. */
static inline void fake_init(struct fake_controller *c)
{
	memset(c, 0, sizeof(*c));
	c->cap = 1023 | 15ull << 24 | 1ull << 37;
	c->vs = NVME_VS(2, 1);
	c->connect_result = 0x0007;
	c->sq_head = NVME_SQHD_NO_FLOW;
	c->queues_result = 127 << 16 | 127;
	memcpy(c->identify + 4, "serial              ", 20);
	memcpy(c->identify + 24, "Linux                                   ", 40);
	memcpy(c->identify + 64, "7.2     ", 8);
	nvme_put16(c->identify + 78, 7); /* CNTLID */
	nvme_put32(c->identify + 80, c->vs);
	c->identify[111] = NVME_CNTRLTYPE_IO;
	nvme_put32(c->identify + 92, NVME_AEN_NAMESPACE);
	nvme_put16(c->identify + 320, 10); /* KAS */
	nvme_put16(c->identify + 514, 1024);
	nvme_put32(c->identify + 516, 1024);
	nvme_put16(c->identify + 520, NVME_ONCS_DSM | NVME_ONCS_WRITE_ZEROES);
	c->identify[525] = NVME_VWC_PRESENT;
	nvme_put32(c->identify + 536, 0x100001);	   /* SGLS */
	nvme_put32(c->identify + 1792, (64 + 16384) / 16); /* IOCCSZ */
	nvme_put32(c->identify + 1796, 1);
}

static inline void fake_get(struct fake_controller *c, const uint8_t *sqe, struct nvme_cqe *cqe)
{
	uint32_t reg = nvme_get32(sqe + 44);

	/* ATTRIB: 8 bytes for CAP alone */
	ASSERT(sqe[40] == (reg == 0));
	switch (reg) {
	case 0:
		cqe->result = c->cap;
		break;
	case 8:
		cqe->result = c->vs;
		break;
	case 0x14:
		cqe->result = c->cc;
		break;
	default:
		ASSERT(reg == 0x1c);
		cqe->result = c->fatal ? NVME_CSTS_CFS : 0;
		if ((c->cc & 1) != (c->slow_nr > 0))
			cqe->result |= NVME_CSTS_RDY;
		c->slow_nr -= c->slow_nr > 0;
	}
	fake_log(c, "get 0x%x\n", reg);
}

static inline void fake_fabrics(struct fake_controller *c, struct nvme_fabrics *f,
				struct nvme_cqe *cqe)
{
	switch (f->sqe[4]) {
	case 0:
		ASSERT(nvme_get32(f->sqe + 44) == 0x14 && f->sqe[40] == 0);
		c->cc = nvme_get32(f->sqe + 48);
		fake_log(c, "set CC 0x%x\n", c->cc);
		break;
	case 1:
		ASSERT(f->out_bytes == 1024 && f->sqe[39] == 0x01);
		cqe->result = c->connect_result;
		cqe->sq_head = c->sq_head;
		fake_log(c, "connect %u cntlid 0x%x entries %u kato %u\n", nvme_get16(f->sqe + 42),
			 nvme_get16(f->data + 16), nvme_get16(f->sqe + 44) + 1u,
			 nvme_get32(f->sqe + 48));
		break;
	default:
		ASSERT(f->sqe[4] == 4);
		fake_get(c, f->sqe, cqe);
	}
}

static inline void fake_identify(struct fake_controller *c, struct nvme_fabrics *f,
				 struct nvme_cqe *cqe)
{
	uint32_t nsid = nvme_get32(f->sqe + 4), at = 0;
	uint8_t cns = f->sqe[40];

	ASSERT(f->in_bytes == 4096 && nvme_get32(f->sqe + 32) == 4096);
	fake_log(c, "identify %u of %u\n", cns, nsid);
	if (cns == 1 || cns == 6) {
		memcpy(f->data, cns == 1 ? c->identify : c->limits, 4096);
		return;
	}
	if (cns == 2) {
		for (unsigned i = 0; i < c->namespaces_nr; i++)
			if (c->namespaces[i].nsid > nsid) {
				nvme_put32(f->data + (size_t)at * 4, c->namespaces[i].nsid);
				at++;
			}
		return;
	}
	for (unsigned i = 0; i < c->namespaces_nr; i++)
		if (c->namespaces[i].nsid == nsid) {
			memcpy(f->data, cns == 3 ? c->namespaces[i].ids : c->namespaces[i].identify,
			       4096);
			return;
		}
	cqe->status = NVME_SC_INVALID_NAMESPACE | NVME_STATUS_DNR;
}

static inline void fake_admin(struct fake_controller *c, struct nvme_fabrics *f,
			      struct nvme_cqe *cqe)
{
	switch (f->sqe[0]) {
	case 0x06:
		fake_identify(c, f, cqe);
		break;
	case 0x09:
		cqe->result = f->sqe[40] == 7 ? c->queues_result : 0;
		fake_log(c, "feature %u 0x%x\n", f->sqe[40], nvme_get32(f->sqe + 44));
		break;
	default:
		ASSERT(f->sqe[0] == 0x02 && f->sqe[40] == 0x0c);
		ASSERT((nvme_get16(f->sqe + 42) + 1u) * 4 == f->in_bytes);
		fake_log(c, "log 0x%x of %u\n", f->sqe[40], f->in_bytes);
		memcpy(f->data, c->ana, f->in_bytes);
	}
}

static inline void fake_answer(struct fake_controller *c, struct nvme_fabrics *f)
{
	struct nvme_cqe cqe = { 0 };
	uint32_t bytes = f->in_bytes;

	c->commands_nr++;
	if (f->sqe[0] == 0x7f && (f->sqe[4] == 5 || f->sqe[4] == 6))
		bytes = c->on_auth(c->ctx, f);
	else if (f->sqe[0] == 0x7f)
		fake_fabrics(c, f, &cqe);
	else
		fake_admin(c, f, &cqe);
	if (c->commands_nr == c->fail_at) {
		cqe.status = c->fail_status;
		cqe.result = c->fail_result;
	}
	if (c->commands_nr == c->short_at)
		bytes--;
	nvme_fabrics_completed(f, &cqe, bytes);
}

/* Until DONE or FAILED. */
static inline enum nvme_fabrics_step fake_run(struct fake_controller *c, struct nvme_fabrics *f)
{
	while (f->step == NVME_FABRICS_COMMAND || f->step == NVME_FABRICS_PAUSE) {
		if (f->step == NVME_FABRICS_PAUSE) {
			ASSERT(f->pause_ms > 0);
			c->pauses_nr++;
			nvme_fabrics_paused(f);
		} else {
			fake_answer(c, f);
		}
	}
	return f->step;
}

#endif
