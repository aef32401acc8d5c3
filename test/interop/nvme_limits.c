/*
 * What the target says of itself is kept to: how many commands it takes, of what size, and which.
 * It counts as a violation whatever is above that.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "nvme_case.h"

#define QUEUE "on_disconnect: {queue: 60s}\ntimeout: 5s\n"

static uint64_t count(struct fault_case *c, const char *name)
{
	return nvme_peer_count(&c->peer, name);
}

/* ---- commands at a time ---- */

struct depth {
	const char *settings;
	unsigned most;
};

/* More requests than that are BUSY until one is over: none is lost. */
static void check_depth(struct fault_case *c, const void *arg)
{
	const struct depth *d = arg;

	case_serve(c, d->settings);
	if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
		return;
	for (unsigned i = 0; i < 5; i++) {
		case_submit_all(c, i % 2 ? BACKEND_READ : BACKEND_WRITE, 4096);
		rig_drain(&c->rig);
		case_expect_all(c, 0);
	}
	case_forget(c);
	case_works(c, 100);
	EXPECT(count(c, "most_outstanding") == d->most, "%llu at a time",
	       (unsigned long long)count(c, "most_outstanding"));
	/* Nobody waits for one that will not come, also when the connection is lost. */
	for (unsigned i = 0; i < 5; i++) {
		case_submit_all(c, BACKEND_WRITE, 4096);
		nvme_peer_tell(&c->peer, "drop");
		rig_drain(&c->rig);
		case_expect_all(c, 0);
	}
	EXPECT(count(c, "violations") == 0, "the client broke the protocol");
}

/* ---- sizes ---- */

struct sizes {
	const char *name, *settings;
	uint32_t block_bytes;
	uint64_t max_io_bytes, max_discard_bytes, max_zeroes_bytes;
	uint32_t io_opt_bytes;
};

static void check_sizes(struct fault_case *c, const void *arg)
{
	const struct sizes *s = arg;
	const struct backend_limits *l;

	case_serve(c, s->settings);
	if (!case_open_blocks(c, QUEUE, s->block_bytes, 1))
		return;
	l = &c->rig.device->limits;
	EXPECT(l->logical_block_bytes == s->block_bytes, "%u", l->logical_block_bytes);
	EXPECT(l->max_io_bytes == s->max_io_bytes, "%u", l->max_io_bytes);
	EXPECT(l->io_opt_bytes == s->io_opt_bytes, "%u", l->io_opt_bytes);
	if (s->max_discard_bytes)
		EXPECT(l->max_discard_bytes == s->max_discard_bytes, "%llu",
		       (unsigned long long)l->max_discard_bytes);
	if (s->max_zeroes_bytes)
		EXPECT(l->max_write_zeroes_bytes == s->max_zeroes_bytes, "%llu",
		       (unsigned long long)l->max_write_zeroes_bytes);
	case_works(c, 60);
}

/* ---- which commands ---- */

struct which {
	const char *name, *settings;
	bool has_discard, has_zeroes;
};

static void check_which(struct fault_case *c, const void *arg)
{
	const struct which *w = arg;
	uint64_t dsm, zeroes;

	case_serve(c, w->settings);
	if (!case_open(c, QUEUE))
		return;
	EXPECT(rig_do(&c->rig, BACKEND_DISCARD, 0, 0, 4096, NULL) ==
		       (w->has_discard ? 0 : -EOPNOTSUPP),
	       "discard");
	EXPECT(rig_do(&c->rig, BACKEND_WRITE_ZEROES, 0, 0, 4096, NULL) ==
		       (w->has_zeroes ? 0 : -EOPNOTSUPP),
	       "write zeroes");
	dsm = count(c, "commands.dsm");
	zeroes = count(c, "commands.write_zeroes");
	EXPECT(dsm == w->has_discard && zeroes == w->has_zeroes, "sent: %llu, %llu",
	       (unsigned long long)dsm, (unsigned long long)zeroes);
	case_forget(c);
	case_works(c, 40);
}

/* Without a volatile write cache there is nothing to flush, and FUA says nothing. */
static void check_cache(struct fault_case *c, const void *arg)
{
	bool has_cache = strcmp(arg, "vwc=1") == 0;

	case_serve(c, arg);
	if (!case_open(c, QUEUE))
		return;
	EXPECT(!(c->rig.device->limits.caps & BACKEND_CAP_FLUSH) == !has_cache, "caps 0x%x",
	       c->rig.device->limits.caps);
	for (unsigned i = 0; i < 3; i++) {
		EXPECT(rig_do(&c->rig, BACKEND_WRITE, BACKEND_FUA, 0, 4096, NULL) == 0, "FUA");
		EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "FLUSH");
	}
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "WRITE");
	EXPECT(count(c, "fua") == (has_cache ? 3 : 0), "%llu FUA",
	       (unsigned long long)count(c, "fua"));
	EXPECT(count(c, "commands.flush") == (has_cache ? 3 : 0), "%llu FLUSH",
	       (unsigned long long)count(c, "commands.flush"));
}

static void fill(struct fault_case *c, int byte)
{
	memset(c->rig.queue[0].io[0].io.buf, byte, 4096);
}

static bool holds(struct fault_case *c, uint64_t offset_bytes, int byte)
{
	const uint8_t *buf = c->rig.queue[0].io[0].io.buf;

	if (rig_do(&c->rig, BACKEND_READ, 0, offset_bytes, 4096, NULL) < 0)
		return false;
	for (unsigned i = 0; i < 4096; i++)
		if (buf[i] != byte)
			return false;
	return true;
}

/* The target loses what it may lose: what was flushed, or written with FUA, is there. */
static void check_crash(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "volatile=1");
	if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
		return;
	fill(c, 0x11);
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "WRITE");
	EXPECT(rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "FLUSH");
	fill(c, 0x22);
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, BACKEND_FUA, 8192, 4096, NULL) == 0, "FUA");
	fill(c, 0x33);
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, 0, 16384, 4096, NULL) == 0, "WRITE");
	nvme_peer_tell(&c->peer, "crash");
	EXPECT(holds(c, 0, 0x11), "flushed, and lost");
	EXPECT(holds(c, 8192, 0x22), "FUA, and lost");
	EXPECT(!holds(c, 16384, 0x33), "the target loses nothing");
}

static int flush(struct fault_case *c)
{
	return rig_do(&c->rig, BACKEND_FLUSH, 0, 0, 0, NULL);
}

/* docs/durability.md: what is lost with the controller is told once, and so is a FLUSH refused. */
static void check_lost(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "volatile=1");
	if (!case_open(c, QUEUE "cache: volatile\n") || !case_connected(c, 0, 1))
		return;
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "WRITE");
	nvme_peer_tell(&c->peer, "crash");
	EXPECT(flush(c) == -EIO, "the write is lost");
	EXPECT(flush(c) == 0, "told twice");
	nvme_peer_tell(&c->peer, "set status=flush:2:0x80:dnr");
	EXPECT(flush(c) == -ENODATA, "it was refused");
	EXPECT(flush(c) == 0, "refused once");
	/* Nothing was acknowledged. */
	nvme_peer_tell(&c->peer, "set status=write:2:0x80:dnr");
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, BACKEND_FUA, 0, 4096, NULL) < 0, "FUA");
	EXPECT(flush(c) == 0, "told, and nothing is lost");
}

void limits_run(uint64_t seed)
{
	static const struct depth depths[] = { { "max_cmd=4", 3 },
					       { "mqes=3", 3 },
					       { "mqes=1", 1 },
					       { "max_cmd=1", 1 },
					       { "", CASE_DEPTH } };
	static const struct sizes sizes[] = {
		{ "MDTS of two pages", "mdts=1", 512, 8192, 0, 8192, 0 },
		{ "MDTS of two pages of 64 KiB", "mdts=1 mpsmin=4", 512, 131072, 0, 131072, 0 },
		{ "blocks of 4096", "--block=4096", 4096, 131072, 0, 0, 0 },
		{ "WZSL", "wzsl=3", 512, 131072, 0, 32768, 0 },
		{ "DMRSL", "dmrsl=64", 512, 131072, 32768, 0, 0 },
		{ "DMSL", "dmsl=100 dmrsl=500", 512, 131072, 51200, 0, 0 },
		{ "none of a controller before 2.0", "vs=1.4 wzsl=1 dmrsl=8", 512, 131072, 0,
		  131072, 0 },
		{ "a granularity of writes is no optimal size", "nsfeat=16 npwg=63", 512, 131072, 0,
		  131072, 0 },
		{ "the optimal size of writes", "nsfeat=16 npwg=7 nows=127", 512, 131072, 0, 131072,
		  65536 },
	};
	static const struct which which[] = { { "neither", "oncs=0", false, false },
					      { "discard", "oncs=4", true, false },
					      { "write zeroes", "oncs=8", false, true },
					      { "both", "oncs=12", true, true } };
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(depths); i++) {
		snprintf(name, sizeof(name), "limits: commands at a time: %s",
			 depths[i].settings[0] ? depths[i].settings : "all");
		fault_case_run(name, 60, seed, check_depth, &depths[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		snprintf(name, sizeof(name), "limits: %s", sizes[i].name);
		fault_case_run(name, 60, seed, check_sizes, &sizes[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(which); i++) {
		snprintf(name, sizeof(name), "limits: discard and write zeroes: %s", which[i].name);
		fault_case_run(name, 60, seed, check_which, &which[i]);
	}
	fault_case_run("limits: a volatile write cache", 60, seed, check_cache, "vwc=1");
	fault_case_run("limits: no volatile write cache", 60, seed, check_cache, "vwc=0");
	fault_case_run("limits: what is flushed, or FUA, is not lost", 60, seed, check_crash, NULL);
	fault_case_run("limits: what is lost fails a FLUSH, once", 60, seed, check_lost, NULL);
}
