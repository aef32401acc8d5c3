/* What a request can ask of a backend. */
#ifndef STORAGE_OPERATION_H
#define STORAGE_OPERATION_H

enum backend_op {
	BACKEND_READ,
	BACKEND_WRITE,
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
