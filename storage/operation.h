/* What a request can ask of a backend, and how its bytes can be reached. */
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

/*
 * How a backend can get at the bytes of a READ or WRITE; none of these: in a buffer of memory. A
 * tree can do what all of its nodes can.
 */
enum backend_data {
	/*
	 * By READ_FIXED and WRITE_FIXED of its own, with the ring's registered buffer buf_index and
	 * buf as the address in it.
	 */
	BACKEND_DATA_FIXED = 1u << 0,
	/* By backend_data_put and _get alone, while the request is in its hands. */
	BACKEND_DATA_MOVES = 1u << 1,
	/*
	 * In memory that a client shares: it can change the bytes while the request is in hand. The
	 * node sends on what it reads at one time, decides nothing by it, and reads nothing back
	 * that it has written there.
	 */
	BACKEND_DATA_SEALED = 1u << 2,
	/*
	 * The same where a client can take pages away, which is EFAULT to the kernel: that fails
	 * that request alone.
	 */
	BACKEND_DATA_SHMEM = BACKEND_DATA_SEALED | 1u << 3,
	/* Of nodes that do not look at the bytes: what is below decides. */
	BACKEND_DATA_ANY = BACKEND_DATA_FIXED | BACKEND_DATA_MOVES,
};

#endif
