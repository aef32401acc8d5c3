/* What a request can ask of a backend. */
#ifndef STORAGE_OPERATION_H
#define STORAGE_OPERATION_H

enum backend_op {
	BACKEND_READ,
	BACKEND_WRITE,
	/*
	 * All that was acknowledged before it began is durable when it succeeds. When one fails, or
	 * the storage finds out otherwise that it may have lost writes, what was acknowledged since
	 * the last good one counts as not written: the next FLUSH from above fails, whoever issued
	 * the one that failed, and no state may call it clean, named, committed or freed because a
	 * later one succeeds. owed.h keeps the first for all nodes; docs/durability.md.
	 */
	BACKEND_FLUSH,
	BACKEND_DISCARD,      /* content becomes undefined until written; may free space */
	BACKEND_WRITE_ZEROES, /* reads back as zeroes */
	/* Of what is zoned alone (limits.zones): zones.h. */
	BACKEND_ZONE_APPEND,
	BACKEND_ZONE_MANAGE,
	BACKEND_OP_NR,
	BACKEND_PLAIN_OP_NR = BACKEND_ZONE_APPEND, /* those of every device */
};

const char *backend_op_name(enum backend_op op);

enum backend_io_flags {
	BACKEND_FUA = 1u << 0,	   /* WRITE, WRITE_ZEROES: durable before completion */
	BACKEND_NOUNMAP = 1u << 1, /* WRITE_ZEROES: keep the space allocated */
	/* Who asked would rather have an error than wait for a peer that is gone: net/options.h. */
	BACKEND_FAIL_FAST = 1u << 2,
	/* READ, WRITE: its metadata moves with it (metadata.h); of devices that keep some. */
	BACKEND_METADATA = 1u << 5,
};

#endif
