/* Time, chance, events, faults and the trace of the simulated world. */
#include "test/sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sim sim;

/* How often, in a million chances, at the rate "1"; 0: comes about by itself. */
static const struct fault_row {
	const char *name;
	uint32_t ppm;
} fault_rows[FAULT_NR] = {
	[FAULT_SQ_FULL] = { "sq-full", 0 },
	[FAULT_ENTER_EAGAIN] = { "enter-eagain", 10000 },
	[FAULT_ENTER_EBUSY] = { "enter-ebusy", 900000 },
	[FAULT_ENTER_PARTIAL] = { "enter-partial", 20000 },
	[FAULT_CQ_OVERFLOW] = { "cq-overflow", 0 },
	[FAULT_CQE_STALE] = { "cqe-stale", 1000 },
	[FAULT_CQE_DUPLICATE] = { "cqe-duplicate", 1000 },
	[FAULT_CQE_REORDER] = { "cqe-reorder", 100000 },
	[FAULT_WAKE_SPURIOUS] = { "wake-spurious", 10000 },
	[FAULT_CLOCK_STALL] = { "clock-stall", 100 },
	[FAULT_MAIL_EINTR] = { "mail-eintr", 50000 },
	[FAULT_FILE_SET] = { "file-table-enomem", 20000 },
	[FAULT_TIMEOUT] = { "timeout-enomem", 100000 },
	[FAULT_BUFFERS_INIT] = { "buffer-table-enomem", 500000 },
	[FAULT_BUFFER_REGISTER] = { "buffer-register-fails", 30000 },
	[FAULT_GROUP_SET] = { "buffer-group-enomem", 20000 },
	[FAULT_DISK_SHORT_READ] = { "disk-short-read", 20000 },
	[FAULT_DISK_SHORT_WRITE] = { "disk-short-write", 20000 },
	[FAULT_DISK_EINTR] = { "disk-eintr", 10000 },
	[FAULT_DISK_EAGAIN] = { "disk-eagain", 10000 },
	[FAULT_DISK_EIO_READ] = { "disk-eio-read", 3000 },
	[FAULT_DISK_EIO_WRITE] = { "disk-eio-write", 3000 },
	[FAULT_DISK_EIO_FSYNC] = { "disk-eio-fsync", 20000 },
	[FAULT_DISK_EIO_FALLOCATE] = { "disk-eio-fallocate", 20000 },
	[FAULT_DISK_ENOSPC_WRITE] = { "disk-enospc-write", 3000 },
	[FAULT_DISK_ENOSPC_FALLOCATE] = { "disk-enospc-fallocate", 20000 },
	[FAULT_DISK_ECANCELED] = { "disk-ecanceled", 2000 },
	[FAULT_DISK_EOPNOTSUPP] = { "disk-eopnotsupp", 10000 },
	[FAULT_DISK_SLOW] = { "disk-slow", 1000 },
	[FAULT_NET_SOCKET] = { "net-no-socket", 20000 },
	[FAULT_NET_SHORT_SEND] = { "net-short-send", 20000 },
	[FAULT_NET_SHORT_RECEIVE] = { "net-short-receive", 20000 },
	[FAULT_NET_EINTR] = { "net-eintr", 5000 },
	[FAULT_NET_CUT] = { "net-cut-planned", 200000 },
	[FAULT_NET_CUT_CLIENT] = { "net-cut-in-request", 0 },
	[FAULT_NET_CUT_SERVER] = { "net-cut-in-reply", 0 },
	[FAULT_NET_RESET] = { "net-reset", 0 },
	[FAULT_NET_CANCELLED_RECEIVE] = { "net-cancelled-receive", 0 },
	[FAULT_NET_REFUSED] = { "net-refused", 0 },
	[FAULT_NET_UNANSWERED] = { "net-unanswered", 0 },
	[FAULT_NET_ERROR] = { "server-error", 3000 },
	[FAULT_NET_REFUSED_EARLY] = { "server-refused-early", 10000 },
	[FAULT_NET_SLOW] = { "server-slow", 3000 },
	[FAULT_NET_SILENT] = { "server-silent", 100000 },
	[FAULT_NET_MUTE] = { "server-mute", 3000 },
	[FAULT_NET_DIES] = { "server-dies", 100000 },
	[FAULT_NET_DEATH] = { "server-death", 0 },
	[FAULT_NET_CACHE_LOST] = { "server-cache-lost", 0 },
	[FAULT_NET_CHANGED] = { "server-changed", 40000 },
	[FAULT_NET_FLUSH_LOST] = { "server-flush-lost", 0 },
	[FAULT_NET_OUTAGE] = { "server-outage", 0 },
	[FAULT_BACKEND_BUSY] = { "backend-busy", 50000 },
	[FAULT_BACKEND_ERROR] = { "backend-error", 10000 },
	[FAULT_BACKEND_HANG] = { "backend-hang", 300 },
	[FAULT_BACKEND_OPEN] = { "backend-open-fails", 60000 },
	[FAULT_BACKEND_QUEUE_INIT] = { "backend-queue-init-fails", 60000 },
	[FAULT_BACKEND_IO_INIT] = { "backend-io-init-fails", 2000 },
	[FAULT_TREE_RUN] = { "tree-run", 0 },
	[FAULT_TREE] = { "tree", 0 },
	[FAULT_TREE_DEEP] = { "tree-deep", 0 },
	[FAULT_TREE_PIECE] = { "tree-piece", 0 },
	[FAULT_TREE_FLUSH] = { "tree-flush", 0 },
	[FAULT_TREE_PIECE_ERROR] = { "tree-piece-error", 0 },
	[FAULT_TREE_PIECE_CANCELLED] = { "tree-piece-cancelled", 0 },
	[FAULT_TREE_RESIZED] = { "tree-resized", 0 },
	[FAULT_TREE_NO_SIZE] = { "tree-no-such-size", 0 },
	[FAULT_TREE_RECOVERED] = { "tree-recovered", 0 },
	[FAULT_CTL_FEATURES] = { "get-features-fails", 100000 },
	[FAULT_CTL_ADD] = { "add-dev-fails", 30000 },
	[FAULT_CTL_EEXIST] = { "add-dev-eexist", 0 },
	[FAULT_CTL_SET_PARAMS] = { "set-params-fails", 60000 },
	[FAULT_CTL_AFFINITY] = { "get-queue-affinity-fails", 30000 },
	[FAULT_CTL_START] = { "start-dev-fails", 90000 },
	[FAULT_CTL_STOP] = { "stop-dev-fails", 50000 },
	[FAULT_CTL_DEL] = { "del-dev-fails", 50000 },
	[FAULT_CTL_UPDATE_SIZE] = { "update-size-fails", 100000 },
	[FAULT_BACKEND_GROW] = { "backend-does-not-grow", 100000 },
	[FAULT_RESIZE_GROWN] = { "grown", 0 },
	[FAULT_RESIZE_SHRUNK] = { "shrunk", 0 },
	[FAULT_RESIZE_REFUSED] = { "resize-refused", 0 },
	[FAULT_RESIZE_KEPT] = { "shrunk-data-kept", 0 },
	[FAULT_CTL_SLOW] = { "control-slow", 10000 },
	[FAULT_CTL_NO_TRY_STOP] = { "no-try-stop-dev", 0 },
	[FAULT_CTL_NO_DEL_ASYNC] = { "no-del-dev-async", 0 },
	[FAULT_OLD_FILE_TABLE] = { "old-file-table", 0 },
	[FAULT_FEWER_QUEUES] = { "fewer-queues", 0 },
	[FAULT_OPEN_LATE] = { "node-late", 0 },
	[FAULT_OPEN_EACCES] = { "open-eacces", 50000 },
	[FAULT_OPEN_EBUSY] = { "open-ebusy", 50000 },
	[FAULT_OPEN_FAILS] = { "open-fails", 60000 },
	[FAULT_MAP_FAILS] = { "map-fails", 40000 },
	[FAULT_FETCH_FAILS] = { "fetch-fails", 2000 },
	[FAULT_COMMIT_FAILS] = { "commit-fails", 1000 },
	[FAULT_COPY_SHORT] = { "user-copy-short", 5000 },
	[FAULT_BATCH_FETCH_FAILS] = { "batch-fetch-fails", 20000 },
	[FAULT_BATCH_FETCH_FEW] = { "batch-fetch-few", 200000 },
	[FAULT_BATCH_NO_BUFFER] = { "batch-no-buffer", 0 },
	[FAULT_BATCH_NO_CQE] = { "batch-no-cqe", 10000 },
	[FAULT_BATCH_COMMIT_PARTIAL] = { "batch-commit-partial", 100000 },
	[FAULT_PATH_COPY] = { "path-copy", 0 },
	[FAULT_PATH_USER_COPY] = { "path-user-copy", 0 },
	[FAULT_PATH_FIXED] = { "path-fixed-buffer", 0 },
	[FAULT_PATH_FALLBACK] = { "path-fallback", 0 },
	[FAULT_PATH_METADATA] = { "path-metadata", 0 },
	[FAULT_PATH_BATCH] = { "path-batch", 0 },
	[FAULT_UNKNOWN_OP] = { "unknown-op", 1000 },
	[FAULT_OPENER] = { "opener", 500000 },
	[FAULT_PROBE] = { "udev-probe", 300000 },
	[FAULT_FOREIGN_STOP] = { "foreign-stop", 50000 },
	[FAULT_FOREIGN_DEL] = { "foreign-del", 0 },
	[FAULT_STOP_ON_WAY_UP] = { "stop-on-way-up", 200000 },
	[FAULT_STOP_REFUSED] = { "stop-refused", 0 },
	[FAULT_STOP_REFUSED_LATE] = { "stop-refused-late", 0 },
	[FAULT_STOP_SLOW] = { "try-stop-slow", 300000 },
	[FAULT_STOP_LATE] = { "stop-late", 0 },
	[FAULT_STOP_TWICE] = { "stop-twice", 200000 },
	[FAULT_NO_OP_SLOTS] = { "no-op-slots", 0 },
	[FAULT_NO_MEMORY] = { "no-memory", 1500 },
	[FAULT_NO_MAPPING] = { "no-mapping", 4000 },
	[FAULT_FILE_TRUNCATED] = { "file-truncated", 200000 },
	[FAULT_KILL_BETWEEN_DEVICES] = { "kill-between-devices", 0 },
	[FAULT_KILL_ADDING] = { "kill-adding", 0 },
	[FAULT_KILL_PARAMS] = { "kill-params", 0 },
	[FAULT_KILL_OPENING] = { "kill-opening", 0 },
	[FAULT_KILL_PLACING] = { "kill-placing", 0 },
	[FAULT_KILL_ATTACHING] = { "kill-attaching", 0 },
	[FAULT_KILL_STARTING] = { "kill-starting", 0 },
	[FAULT_KILL_LIVE] = { "kill-live", 0 },
	[FAULT_KILL_STOPPING] = { "kill-stopping", 0 },
	[FAULT_KILL_DRAINING] = { "kill-draining", 0 },
	[FAULT_KILL_DELETING] = { "kill-deleting", 0 },
	[FAULT_KILL_RECOVERING] = { "kill-recovering", 0 },
	[FAULT_KILL_READOPTING] = { "kill-readopting", 0 },
	[FAULT_KILL_IN_ENTER] = { "kill-in-enter", 0 },
	[FAULT_KILL_COPY] = { "kill-copy", 0 },
	[FAULT_KILL_USER_COPY] = { "kill-user-copy", 0 },
	[FAULT_KILL_ZERO_COPY] = { "kill-zero-copy", 0 },
	[FAULT_KILL_BATCH] = { "kill-batch", 0 },
	[FAULT_KILL_CONTROL] = { "kill-control", 0 },
	[FAULT_KILL_IO_LOST] = { "kill-io-lost", 0 },
	[FAULT_KILL_IO_LANDS] = { "kill-io-lands", 0 },
	[FAULT_KILL_IO_LATE] = { "kill-io-late", 0 },
	[FAULT_NOSRV_REISSUED] = { "nosrv-reissued", 0 },
	[FAULT_NOSRV_FAILED] = { "nosrv-failed", 0 },
	[FAULT_NOSRV_WAITS] = { "nosrv-waits", 0 },
	[FAULT_NOSRV_REFUSED] = { "nosrv-refused", 0 },
	[FAULT_NOSRV_DEAD] = { "nosrv-dead", 0 },
	[FAULT_RELEASE_SLOW] = { "release-slow", 60000 },
	[FAULT_FULL_QUEUE] = { "release-full-queue", 0 },
	[FAULT_NOTE_FAILS] = { "note-fails", 10000 },
	[FAULT_RECOVERY_BUSY] = { "recovery-busy", 0 },
	[FAULT_RECOVERY_LOCKED] = { "recovery-locked", 0 },
	[FAULT_RECOVERY_SHRUNK] = { "recovery-shrunk", 0 },
	[FAULT_RECOVERY_GROWN] = { "recovery-grown", 100000 },
	[FAULT_RECOVERY_OTHER] = { "recovery-other-file", 100000 },
	[FAULT_RECOVERY_VANISHED] = { "recovery-vanished", 50000 },
	[FAULT_RECOVERY_GET_PARAMS] = { "get-params-fails", 100000 },
	[FAULT_RECOVERY_START] = { "start-recovery-fails", 100000 },
	[FAULT_RECOVERY_END] = { "end-recovery-fails", 100000 },
	[FAULT_RECOVERY_SWEPT] = { "recovery-swept", 0 },
	[FAULT_RECOVERY_KEPT] = { "recovery-kept", 0 },
	[FAULT_RECOVERY_DISCARDED] = { "recovery-discarded", 0 },
	[FAULT_RECOVERED] = { "recovered", 0 },
	[FAULT_NVME_REFUSED] = { "nvme-refused", 20000 },
	[FAULT_NVME_ABORTED] = { "nvme-aborted", 0 },
	[FAULT_NVME_EVENT] = { "nvme-event", 300000 },
	[FAULT_NVME_AWAY] = { "nvme-away", 2000 },
	[FAULT_NO_PARTITION_SCAN] = { "no-partition-scan", 0 },
	[FAULT_PATH_SHMEM] = { "path-shmem", 0 },
	[FAULT_SHMEM_RESTORED] = { "shmem-restored", 0 },
	[FAULT_CTL_SHMEM] = { "ctl-shmem", 100000 },
	[FAULT_UNPRIVILEGED] = { "unprivileged", 0 },
	[FAULT_NODE_NOT_OURS] = { "node-not-ours", 60000 },
	[FAULT_ZONED] = { "zoned", 0 },
	[FAULT_ZONE_APPEND] = { "zone-append", 0 },
	[FAULT_ZONE_RESET] = { "zone-reset", 0 },
	[FAULT_ZONE_REPORT] = { "zone-report", 0 },
	[FAULT_ZONE_REFUSED] = { "zone-refused", 0 },
	[FAULT_ZONE_LIMIT] = { "zone-limit", 0 },
	[FAULT_ZONE_MIXED] = { "zone-mixed", 0 },
	[FAULT_ZONE_GIVEN_BACK] = { "zone-given-back", 0 },
	[FAULT_ZONE_AGAIN] = { "zone-again", 0 },
	[FAULT_ZONE_RECOVERED] = { "zone-recovered", 0 },
	[FAULT_ZONE_RESTARTED] = { "zone-restarted", 0 },
};

const char *fault_name(enum fault fault)
{
	return fault_rows[fault].name;
}

/* What only devices have that are on no server. */
static bool fault_of_others(enum fault fault)
{
	static const enum fault others[] = {
		FAULT_BUFFERS_INIT,
		FAULT_BUFFER_REGISTER,
		FAULT_DISK_SHORT_READ,
		FAULT_DISK_SHORT_WRITE,
		FAULT_DISK_EINTR,
		FAULT_DISK_EAGAIN,
		FAULT_DISK_EIO_READ,
		FAULT_DISK_EIO_WRITE,
		FAULT_DISK_EIO_FSYNC,
		FAULT_DISK_EIO_FALLOCATE,
		FAULT_DISK_ENOSPC_WRITE,
		FAULT_DISK_ENOSPC_FALLOCATE,
		FAULT_DISK_ECANCELED,
		FAULT_DISK_EOPNOTSUPP,
		FAULT_DISK_SLOW,
		FAULT_BACKEND_BUSY,
		FAULT_BACKEND_ERROR,
		FAULT_BACKEND_HANG,
		FAULT_BACKEND_OPEN,
		FAULT_BACKEND_QUEUE_INIT,
		FAULT_BACKEND_IO_INIT,
		FAULT_CTL_UPDATE_SIZE,
		FAULT_BACKEND_GROW,
		FAULT_RESIZE_GROWN,
		FAULT_RESIZE_SHRUNK,
		FAULT_RESIZE_KEPT,
		FAULT_PATH_FIXED,
		FAULT_PATH_FALLBACK,
		FAULT_PATH_METADATA,
		FAULT_FILE_TRUNCATED,
		FAULT_KILL_ZERO_COPY,
		FAULT_KILL_IO_LOST,
		FAULT_KILL_IO_LANDS,
		FAULT_KILL_IO_LATE,
		FAULT_RECOVERY_LOCKED,
		FAULT_RECOVERY_SHRUNK,
		FAULT_RECOVERY_GROWN,
		FAULT_RECOVERY_OTHER,
		FAULT_PATH_SHMEM,
		FAULT_SHMEM_RESTORED,
		FAULT_CTL_SHMEM,
		FAULT_TREE_RUN,
		FAULT_TREE,
		FAULT_TREE_DEEP,
		FAULT_TREE_PIECE,
		FAULT_TREE_FLUSH,
		FAULT_TREE_PIECE_ERROR,
		FAULT_TREE_PIECE_CANCELLED,
		FAULT_TREE_RESIZED,
		FAULT_TREE_NO_SIZE,
		FAULT_TREE_RECOVERED,
	};

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (others[i] == fault)
			return true;
	return fault >= FAULT_ZONED && fault <= FAULT_ZONE_RESTARTED;
}

bool fault_possible(enum fault fault)
{
	/* Few of the other runs have a target, and fewer one that is as slow as that. */
	if (fault == FAULT_NVME_ABORTED)
		return sim.only_net;
	return !sim.only_net || !fault_of_others(fault);
}

static const struct defect_row {
	const char *name;
	const char *words;
} defect_rows[DEFECT_NR] = {
	[DEFECT_NONE] = { "none", "" },
	[DEFECT_DOUBLE_COMPLETE] = { "double-complete", "backend_io_is_queued(io)" },
	[DEFECT_DOUBLE_COMMIT] = { "double-commit", "COMMIT of a tag that the server does not" },
	[DEFECT_SHORT_COMMIT] = { "short-commit", "were asked for" },
	[DEFECT_LOST_TAG] = { "lost-tag", "no progress" },
	[DEFECT_LOST_COMMIT] = { "lost-commit", "no progress" },
	[DEFECT_FLUSH_EARLY] = { "flush-early", "acknowledged before, is not durable" },
	[DEFECT_FUA_EARLY] = { "fua-early", "a FUA write is answered, but" },
	[DEFECT_WRONG_DATA] = { "wrong-data", "read of" },
	[DEFECT_LOST_WRITE] = { "lost-write", "read of" },
	[DEFECT_WRONG_ERRNO] = { "wrong-errno", "but what happened is" },
	[DEFECT_SWALLOWED_ERROR] = { "swallowed-error", "success, but it failed" },
	[DEFECT_STALE] = { "stale", "COMMIT of a tag that the server does not" },
	[DEFECT_LEAKED_OP] = { "leaked-op", "op slots in use at the end" },
	[DEFECT_LEAKED_MEMORY] = { "leaked-memory", "is not given back" },
	[DEFECT_ALLOCATION] = { "allocation", "allocates while its devices run" },
	[DEFECT_NO_DSYNC] = { "no-dsync", "a FUA write is answered, but" },
	[DEFECT_NO_FSYNC] = { "no-fsync", "acknowledged before, is not durable" },
	[DEFECT_SHORT_WRITE] = { "short-write", "read of" },
	[DEFECT_LOST_CACHE] = { "lost-cache", "acknowledged before, is not durable" },
	[DEFECT_LONG_RECEIVE] = { "long-receive", "read of" },
	[DEFECT_LONG_SEND] = { "long-send", "before all of it was sent" },
	[DEFECT_IMPATIENT] = { "impatient", "but what happened is" },
	[DEFECT_PATIENT] = { "patient", "has waited too long" },
	[DEFECT_SHORT_COPY] = { "short-copy", "read of" },
	[DEFECT_NO_HAND_COPY] = { "no-hand-copy", "the server has not written" },
	[DEFECT_BUFFER_KEPT] = { "buffer-kept", "is still registered" },
	[DEFECT_PARTIAL_COMMIT] = { "partial-commit", "no progress" },
	[DEFECT_BUFFER_LOST] = { "buffer-lost", "for want of a buffer" },
	[DEFECT_LOST_REISSUE] = { "lost-reissue", "no progress" },
	[DEFECT_EARLY_SERVE] = { "early-serve", "lands when the next one has served" },
	[DEFECT_OLD_COMMIT] = { "old-commit", "COMMIT from another task than FETCH" },
	[DEFECT_LOST_MEMORY] = { "lost-memory", "read of" },
	[DEFECT_LOST_NOTE] = { "lost-note", "no note names it" },
};

const char *defect_name(enum defect defect)
{
	return defect_rows[defect].name;
}

const char *defect_words(enum defect defect)
{
	return defect_rows[defect].words;
}

/* They need a backend that is no client, or a data path that those have not. */
static bool defect_of_others(enum defect defect)
{
	static const enum defect others[] = {
		DEFECT_DOUBLE_COMPLETE, DEFECT_LOST_TAG,	DEFECT_FLUSH_EARLY,
		DEFECT_FUA_EARLY,	DEFECT_WRONG_DATA,	DEFECT_LOST_WRITE,
		DEFECT_WRONG_ERRNO,	DEFECT_SWALLOWED_ERROR, DEFECT_STALE,
		DEFECT_LEAKED_OP,	DEFECT_LEAKED_MEMORY,	DEFECT_ALLOCATION,
		DEFECT_NO_DSYNC,	DEFECT_NO_FSYNC,	DEFECT_SHORT_WRITE,
		DEFECT_NO_HAND_COPY,	DEFECT_BUFFER_KEPT,	DEFECT_EARLY_SERVE,
	};

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (others[i] == defect)
			return true;
	return false;
}

bool defect_possible(enum defect defect)
{
	return !sim.only_net || !defect_of_others(defect);
}

/* Each run has its own mix: some faults off, some often, so that none hides another. */
static void choose_rates(void)
{
	unsigned scale = (unsigned)sim_below(4);
	struct prng own;

	if (sim.cut.on)
		return;
	/* Where a defect is to be caught nothing else goes wrong. */
	if (sim.defect != DEFECT_NONE) {
		sim.fault_ppm[FAULT_BACKEND_ERROR] = 10000;
		sim.fault_ppm[FAULT_BACKEND_BUSY] = 10000;
		sim.fault_ppm[FAULT_DISK_SHORT_WRITE] = 10000;
		if (sim.defect == DEFECT_NO_HAND_COPY)
			sim.fault_ppm[FAULT_BUFFER_REGISTER] = 10000;
		if (sim.defect == DEFECT_LONG_SEND)
			sim.fault_ppm[FAULT_NET_REFUSED_EARLY] = 200000;
		if (sim.defect == DEFECT_IMPATIENT || sim.defect == DEFECT_PATIENT)
			sim.fault_ppm[FAULT_NET_MUTE] = 3000;
		return;
	}
	prng_init(&own, sim.seed);
	for (int i = 0; i < FAULT_NR; i++) {
		uint64_t ppm = fault_rows[i].ppm;
		/* A fault more is none to the other seeds. */
		uint64_t choice = i < FAULT_NVME_REFUSED ? sim_below(4) : prng_below(&own, 4);

		if (scale == 0 || choice == 0)
			ppm = 0;
		else if (choice == 3)
			ppm *= 5;
		sim.fault_ppm[i] = (uint32_t)MIN(ppm, 900000ull);
	}
}

void sim_init(uint64_t seed, enum defect defect, uint64_t *fault_nr)
{
	const struct sim before = sim;

	sim = (struct sim){
		.seed = seed,
		.verbose = before.verbose,
		.only_net = before.only_net,
		.cut = { .on = before.cut.on,
			 .by = before.cut.by,
			 .at = before.cut.at,
			 .nth = before.cut.nth },
		.defect = defect,
		.fault_nr = fault_nr,
		.trace_hash = 0xcbf29ce484222325ull,
	};
	prng_init(&sim.prng, seed);
	/* Neighbouring seeds begin alike: let them part. */
	for (int i = 0; i < 16; i++)
		prng_next(&sim.prng);
	/* A machine that has been up for a while; never 0, which would hide what is not set. */
	sim.now_ns = sim_between(NS_PER_SEC, 1000 * NS_PER_SEC);
	choose_rates();
}

void sim_fini(void)
{
	free(sim.heap);
	sim.heap = NULL;
	sim.heap_nr = sim.heap_cap = 0;
}

uint64_t sim_skewed(uint64_t min, uint64_t max)
{
	unsigned shift = (unsigned)sim_between(log2_floor(min + 1), log2_floor(max + 1));
	uint64_t low = (1ull << shift) - 1;

	return sim_between(MAX(low, min), MIN(low * 2 + 1, max));
}

bool sim_fault(enum fault fault)
{
	if (sim.fault_ppm[fault] == 0 || sim_below(1000000) >= sim.fault_ppm[fault])
		return false;
	sim_saw(fault);
	return true;
}

void sim_saw(enum fault fault)
{
	sim.fault_nr[fault]++;
	sim_trace(fault_rows[fault].name, 0, 0, 0, 0);
}

bool sim_defect(enum defect defect)
{
	if (sim.defect != defect || sim.defect_done)
		return false;
	sim.defect_done = true;
	sim_trace("defect", defect, 0, 0, 0);
	return true;
}

bool sim_defect_always(enum defect defect)
{
	return sim.defect == defect;
}

static bool before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->seq < b->seq);
}

static void heap_put(size_t pos, struct sim_event *event)
{
	sim.heap[pos] = event;
	event->pos = pos;
}

static void sift_up(struct sim_event *event)
{
	size_t pos = event->pos;

	while (pos > 1 && before(event, sim.heap[pos / 2])) {
		heap_put(pos, sim.heap[pos / 2]);
		pos /= 2;
	}
	heap_put(pos, event);
}

static void sift_down(struct sim_event *event)
{
	size_t pos = event->pos;

	for (;;) {
		size_t child = pos * 2;

		if (child > sim.heap_nr)
			break;
		if (child < sim.heap_nr && before(sim.heap[child + 1], sim.heap[child]))
			child++;
		if (!before(sim.heap[child], event))
			break;
		heap_put(pos, sim.heap[child]);
		pos = child;
	}
	heap_put(pos, event);
}

void sim_event_cancel(struct sim_event *event)
{
	size_t pos = event->pos;
	struct sim_event *last;

	if (pos == 0)
		return;
	event->pos = 0;
	last = sim.heap[sim.heap_nr--];
	if (last == event)
		return;
	heap_put(pos, last);
	sift_up(last);
	sift_down(last);
}

void sim_event_arm(struct sim_event *event, uint64_t at_ns, sim_event_fn *fn)
{
	sim_event_cancel(event);
	if (sim.heap_nr + 2 > sim.heap_cap) {
		sim.heap_cap = sim.heap_cap ? sim.heap_cap * 2 : 64;
		sim.heap = realloc(sim.heap, sim.heap_cap * sizeof(*sim.heap));
	}
	event->at_ns = at_ns;
	event->seq = sim.event_seq++;
	event->fn = fn;
	heap_put(++sim.heap_nr, event);
	sift_up(event);
}

unsigned sim_events_run(void)
{
	unsigned nr = 0;

	while (sim.heap_nr > 0 && sim.heap[1]->at_ns <= sim.now_ns) {
		struct sim_event *event = sim.heap[1];

		sim_event_cancel(event);
		event->fn(event);
		nr++;
	}
	return nr;
}

uint64_t sim_next_event_ns(void)
{
	return sim.heap_nr > 0 ? sim.heap[1]->at_ns : UINT64_MAX;
}

static void hash(uint64_t value)
{
	sim.trace_hash = (sim.trace_hash ^ value) * 0x100000001b3ull;
	sim.trace_hash ^= sim.trace_hash >> 29;
}

void sim_trace(const char *what, uint64_t a, uint64_t b, uint64_t c, int64_t d)
{
	uint64_t word = 0;

	memcpy(&word, what, MIN(strlen(what), sizeof(word)));
	hash(word);
	hash(sim.now_ns);
	hash(a);
	hash(b);
	hash(c);
	hash((uint64_t)d);
	sim.trace_nr++;
	if (sim.verbose)
		fprintf(stderr, "%13.6f %-18s %llx %llx %llx %lld\n", (double)sim.now_ns / 1e9,
			what, (unsigned long long)a, (unsigned long long)b, (unsigned long long)c,
			(long long)d);
}

_Noreturn void sim_fail(const char *fmt, ...)
{
	void (*dump)(void) = sim.dump;
	va_list ap;

	fprintf(stderr, "SIM FAILED seed=%llu time=%.9f: ", (unsigned long long)sim.seed,
		(double)sim.now_ns / 1e9);
	if (sim.cut.on)
		fprintf(stderr, "cut by the %s behind byte %llu of connection %u: ",
			sim.cut.by == NET_CLIENT ? "client" : "server",
			(unsigned long long)sim.cut.at, sim.cut.nth + 1);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	sim.dump = NULL;
	if (dump)
		dump();
	fflush(NULL);
	_exit(1);
}
