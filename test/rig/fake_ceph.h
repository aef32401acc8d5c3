/*
 * A Ceph cluster in memory with one pool, "rbd", and one image in it, "vol", behind the table of
 * calls that backends/rbd has (ceph_api.h). Requests end on threads of the fake, as librbd's do.
 *
 * It ends the process where a caller breaks a rule of the libraries: an image is closed while it
 * has requests, a client ends while it has images, a completion is used twice.
 *
 * Any thread, but for fake_start and fake_stop.
 */
#ifndef TEST_RIG_FAKE_CEPH_H
#define TEST_RIG_FAKE_CEPH_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/rbd/ceph_api.h"

#define FAKE_IMAGE_BYTES_MAX (8u << 20)
#define FAKE_LUKS_HEADER_BYTES (64u << 10) /* in front of an encrypted image's data */
#define FAKE_ADDRS_BYTES 64

enum fake_op { FAKE_READ, FAKE_WRITE, FAKE_FLUSH, FAKE_DISCARD, FAKE_ZEROES, FAKE_OP_NR };

/* The image as the cluster has it. A test changes it while no image is open. */
struct fake_image {
	uint64_t size_bytes, features, stripe_unit_bytes, object_bytes;
	char id[32], name[64], pool[64], namespace[64], snapshot[64];
	char passphrase[64]; /* "": it is not encrypted */
	rbd_encryption_format_t format;
	char lock_owner[64]; /* of a client elsewhere, that does not let it go; "": none */
	uint8_t data[FAKE_IMAGE_BYTES_MAX];
};

/* A request as it has come to the library. */
struct fake_seen {
	enum fake_op op;
	uint64_t offset_bytes, length_bytes;
	int op_flags, zero_flags;
	unsigned client; /* 1 for the first one that was connected since fake_start */
};

/* ---- life: from one thread ---- */

/* The backend has this cluster from now on. The image: 4 MiB of zeroes, with an exclusive lock. */
void fake_start(void);
/* Nothing may be open. */
void fake_stop(void);
struct fake_image *fake_image(void);
/* Another image has the name from now on. Any time. */
void fake_set_id(const char *id);

/* ---- faults ---- */

/* The next nr calls of a function, "rbd_open", return err. Those of rbd_aio_* are not taken. */
void fake_fail_call(const char *call, int err, unsigned nr);
/*
 * The next nr requests end with err; above 0, a read of so many bytes. A write that ends with
 * -ETIMEDOUT is not forgotten: fake_late_land does it, unless its client is on the blocklist.
 */
void fake_fail_answer(enum fake_op op, int err, unsigned nr);
void fake_late_land(void);
/* Calls of a function wait until they are let go. */
void fake_block_call(const char *call);
void fake_unblock_call(const char *call);
/* Calls so far, and those that wait now. */
unsigned fake_call_nr(const char *call);
unsigned fake_blocked_nr(const char *call);
/* Requests are kept; those of a client on the blocklist end all the same. */
void fake_hold(bool on);
void fake_let_go(unsigned nr);
/*
 * The callbacks that run now have returned. A reactor must stay until then: one that posts to it
 * may be there still when what it has posted is read. (In the product rbd_close waits for that.)
 */
void fake_wait_called(void);
/* Requests that the fake has, those that it answers at this moment too. */
unsigned fake_out_nr(void);

/* ---- the cluster ---- */

/* Somebody puts a client, or all that there are now, on the blocklist. */
void fake_list_client(unsigned client);
void fake_list_all(void);
bool fake_is_listed(unsigned client);
void fake_resize(uint64_t size_bytes);
/* All who watch have been told. */
void fake_wait_told(void);

/* ---- what has been done ---- */

/*
 * In order: "connect 1;", "list 1 by 2;", "open 2;", "close 1;", "end 1;", with the numbers of
 * clients. Valid until the next call.
 */
const char *fake_events(void);
void fake_events_clear(void);
unsigned fake_seen_nr(void);
struct fake_seen fake_seen_at(unsigned idx);
/* The last one. */
struct fake_seen fake_seen_last(void);
/* An option of a client, as it was set last; "": never. Valid as long as the client. */
const char *fake_conf(unsigned client, const char *name);
/* "10.0.0.1:0/7" */
void fake_addrs(unsigned client, char text[FAKE_ADDRS_BYTES]);
/* Clients that there are now. */
unsigned fake_client_nr(void);

#endif
