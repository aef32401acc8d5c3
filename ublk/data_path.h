/*
 * Which way the bytes of a request take between the block layer and a backend. Pure functions:
 * what is wished for, what the backend can, what the driver knows.
 *
 *   copy       the driver copies to and from a buffer of the tag, at FETCH and COMMIT
 *   user_copy  the server moves them, by pread and pwrite on /dev/ublkcN: a backend that holds the
 *              bytes in memory needs no buffer in between
 *   zero_copy  the driver registers the request's pages as a buffer of the ring (AUTO_BUF_REG), and
 *              the backend's own I/O goes straight to and from them
 *
 * A device that is zoned (UBLK_F_ZONED) goes by user_copy alone: in the place of a buffer's address
 * a COMMIT says where a ZONE_APPEND has landed, and reads behind the write pointer are filled by
 * hand.
 *
 * The metadata of a device that keeps some (UBLK_F_INTEGRITY) go by pread and pwrite, whichever way
 * the bytes take; the driver wants USER_COPY for that, which copy excludes.
 *
 * batch (UBLK_F_BATCH_IO) is about commands, not about data: one multishot FETCH for a whole queue,
 * one COMMIT for all tags of a turn.
 */
#ifndef UBLK_DATA_PATH_H
#define UBLK_DATA_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend_spec;

enum data_path {
	DATA_PATH_AUTO, /* a wish only */
	DATA_PATH_COPY,
	DATA_PATH_ZERO_COPY,
	DATA_PATH_USER_COPY,
	DATA_PATH_NR,
};

enum batch_choice { BATCH_AUTO, BATCH_ON, BATCH_OFF, BATCH_NR };

/* Names for the configuration and for people; NULL after the last. */
extern const char *const data_path_names[];
extern const char *const batch_choice_names[];

struct data_choice {
	enum data_path path; /* not AUTO */
	bool batch;
	bool zoned;	/* zones.h: the driver wants USER_COPY for it */
	bool integrity; /* metadata.h: the same, but the bytes may go by zero_copy */
	bool shmem;	/* shmem.h: with USER_COPY alone */
};

#define DATA_PATH_ERROR_BYTES 256

/*
 * What the backends of spec alone forbid, whatever the kernel. Returns 0 or -EINVAL with words in
 * error.
 */
int data_path_check(enum data_path wish, enum batch_choice batch, const struct backend_spec *spec,
		    char error[static DATA_PATH_ERROR_BYTES]);

/*
 * features: UBLK_F_* of the driver. Returns 0 with the choice, or -EINVAL or -EOPNOTSUPP with
 * words: which wish cannot be had, why, and what to write instead.
 */
int data_path_choose(struct data_choice *ret_choice, enum data_path wish, enum batch_choice batch,
		     const struct backend_spec *spec, uint64_t features,
		     char error[static DATA_PATH_ERROR_BYTES]);

/* UBLK_F_* to ask ADD_DEV for. */
uint64_t data_path_flags(const struct data_choice *choice);

/* The other way round: what was chosen for a device with these UBLK_F_*. */
void data_path_of_flags(struct data_choice *ret_choice, uint64_t flags);

#endif
