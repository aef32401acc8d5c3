/*
 * Power cuts of an image while a change of snapshots goes on: every request of the qcow2 node to
 * its storage is noted, and at moments the image is looked at as it may be after a power cut then:
 * what was flushed, and of the rest any sectors.
 */
#ifndef TEST_CONFORMANCE_QCOW2_CUTS_H
#define TEST_CONFORMANCE_QCOW2_CUTS_H

#include "rig.h"
#include "test/rig/qcow2/qcow2_oracle.h"

#define DISK_BYTES_MAX (2u << 20)
#define CUT_SNAPSHOTS_MAX 2u

/* What the image may hold: a number at the start of each sector. */
struct cut_expected {
	uint64_t size_bytes;
	const uint64_t *now, *then; /* of the disk; then NULL: there is nothing else */
	/* By index, when they are there. is_deleting: or the first is gone. */
	const uint64_t *snapshot[CUT_SNAPSHOTS_MAX];
	bool is_deleting;
};

/* All is flushed, no request is under way. path: the image, as a file. */
void cuts_begin(const struct backend_device *qcow2, const char *path,
		const struct cut_expected *expected);
/* The change has ended: what is durable has so many snapshots. */
void cuts_end(unsigned snapshot_nr);
/*
 * The next request of a guest that the node passes on to its storage as it is waits until it is
 * let go.
 */
void cuts_hold_next(void);
bool cuts_holds_one(void);
void cuts_let_go(void);
/* From now on, or not any more: the header of the image cannot be written. */
void cuts_fail_headers(bool fail);

unsigned cuts_nr(void); /* looked at since the program began */

#endif
