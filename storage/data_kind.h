/* The ways in which a backend can reach the bytes of a request: struct backend's `data`. */
#ifndef STORAGE_DATA_KIND_H
#define STORAGE_DATA_KIND_H

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
