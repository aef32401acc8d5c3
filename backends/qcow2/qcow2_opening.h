/*
 * What opens an image; see qcow2_open.c. The control reactor, but for qcow2_open_key.
 */
#ifndef BACKENDS_QCOW2_QCOW2_OPENING_H
#define BACKENDS_QCOW2_QCOW2_OPENING_H

#include "backends/qcow2/format/qcow2_create.h"
#include "backends/qcow2/qcow2_owner.h"

#define QCOW2_OPEN_BUFFER_BYTES 65536u
#define QCOW2_KEY_BYTES_MAX 4096u

struct qcow2_rebuild;

struct qcow2_open {
	struct qcow2_device *d;
	struct backend_visit *visit;
	uint8_t *buf;	       /* QCOW2_OPEN_BUFFER_BYTES */
	uint32_t header_bytes; /* of the image that were read */
	struct qcow2_seen seen;
	uint8_t *crypto;      /* the LUKS header */
	uint64_t at, end;     /* of what is being read or written */
	uint64_t table_idx;   /* the next that qcow2_open_check looks at */
	uint64_t image_bytes; /* of a new one */
	bool has_tables, is_made;
	char *key;
	size_t key_bytes;
	int stored_fd; /* -1: none */
	struct qcow2_create create;
	struct qcow2_rebuild *rebuild; /* qcow2_rebuild.c */
	/* qcow2_base.c */
	bool notes_base;
	struct qcow2_base_note base;
	struct qcow2_base_edit base_edit;
	void (*headed)(struct qcow2_open *p); /* qcow2_open_get_header, _put_header */
};

/* ---- qcow2_open.c ---- */

struct qcow2_open *qcow2_opening_of(struct backend_visit *visit);
/* The open has failed; words NULL: the core has some. */
void qcow2_open_fail(struct qcow2_open *p, int err, const char *words);
/* The header is read into p->buf; or its first bytes are written from there, and flushed. Then
 * `then`, unless that has failed, and with it the open. */
void qcow2_open_get_header(struct qcow2_open *p, void (*then)(struct qcow2_open *p));
void qcow2_open_put_header(struct qcow2_open *p, uint64_t bytes,
			   void (*then)(struct qcow2_open *p));
/* A request to the image, with p->buf. False: the open has failed. */
bool qcow2_open_io(struct qcow2_open *p, enum backend_op op, uint64_t at, uint64_t bytes,
		   const char *doing, backend_visit_fn *fn);
/* How much of what is left a request takes. */
uint64_t qcow2_open_chunk(const struct qcow2_open *p, uint64_t left);
uint32_t qcow2_open_block(const struct qcow2_open *p);
/* Reads the header, for the first time or after it was written. */
void qcow2_open_again(struct qcow2_open *p);
/* The tables are there. */
void qcow2_open_done(struct qcow2_open *p);

/* ---- one after the other, each goes on with the next ---- */

/* qcow2_make.c: whether nothing is there, or what a power cut has left of such an image: all but
 * its header; whether the header's place is zeroes; and writes a new one. */
bool qcow2_open_is_blank(struct qcow2_open *p);
bool qcow2_open_begins_blank(const struct qcow2_open *p);
void qcow2_open_make(struct qcow2_open *p);
/* qcow2_key.c: reads the LUKS header of an encrypted image and unlocks it. */
void qcow2_open_crypto(struct qcow2_open *p);
/* qcow2_open_tables.c */
void qcow2_open_tables(struct qcow2_open *p);
/*
 * qcow2_mark.c: compares tables that are taken over with the disk, then marks the image, and takes
 * away what the node does not keep up.
 */
void qcow2_open_saw_header(struct qcow2_open *p); /* it is in p->buf */
void qcow2_open_check(struct qcow2_open *p);
void qcow2_open_mark(struct qcow2_open *p);
/* qcow2_base.c: of the header; 0 or -errno with words: the base is not the one of the overlay. */
int qcow2_base_judge(struct qcow2_open *p);
/* Writes into the header over which base it is, if that is new, then qcow2_open_mark. */
void qcow2_base_note(struct qcow2_open *p);

/* qcow2_key.c, on a helper: reads the passphrase. 0 or -errno with words. */
int qcow2_open_key(struct qcow2_device *d, struct qcow2_open *p);
void qcow2_open_key_free(struct qcow2_open *p);

/* ---- qcow2_rebuild.c ---- */

bool qcow2_rebuild_is_wanted(const struct qcow2_open *p);
/* Makes reference counts anew, then qcow2_open_again. */
void qcow2_rebuild_begin(struct qcow2_open *p);
void qcow2_rebuild_free(struct qcow2_open *p);

#endif
