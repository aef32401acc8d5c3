/*
 * Which version of its base an overlay was made over: a header extension of ublkd's own. QEMU keeps
 * those that it does not know when it writes a header anew (block/qcow2.c, unknown_header_ext).
 *
 *   | sum (4) | 0 (4) | hash of the backing file's name (8) | the version, text, then zeroes |
 *
 * Big-endian, as all of the header. The hash: when another program gives the overlay another base,
 * by its name, the note is not about that. Pure, any thread.
 */
#ifndef BACKENDS_QCOW2_FORMAT_QCOW2_BASE_NOTE_H
#define BACKENDS_QCOW2_FORMAT_QCOW2_BASE_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QCOW2_BASE_VERSION_BYTES 96u

struct qcow2_base_note {
	uint64_t name_hash;
	char version[QCOW2_BASE_VERSION_BYTES]; /* "": there is none, or it was torn */
};

void qcow2_base_note_init(struct qcow2_base_note *note, const char *backing_name,
			  const char *version);
/* Whether it says a version of the base that has this name in the header. */
bool qcow2_base_note_is_of(const struct qcow2_base_note *note, const char *backing_name);
/* False: it is whole and of another version of ublkd, which may have put more into it. */
bool qcow2_base_note_read(struct qcow2_base_note *ret_note, const uint8_t *data, uint32_t bytes);

/*
 * How a note comes into a header: as steps that each leave a header which says the same as before,
 * or all of it, when only some of the sectors are written; and that a later edit takes up.
 */
struct qcow2_base_edit {
	struct qcow2_base_note note;
	uint64_t ext_at;	   /* of the extension */
	bool is_there;		   /* it is replaced */
	uint64_t name_at, name_to; /* of the backing file's name; the same: it stays */
	uint32_t name_bytes;
	unsigned step; /* the next one */
};

/*
 * bytes: the first of an image, nr_bytes of them, whose header was parsed. Returns 0; -ENOSPC:
 * there is no room in the first cluster, or somebody else has something there.
 */
int qcow2_base_edit_begin(struct qcow2_base_edit *edit, const struct qcow2_base_note *note,
			  const void *bytes, size_t nr_bytes);
/* Changes bytes for the next step, which is to be durable before the one after it. False: all is
 * done. */
bool qcow2_base_edit_next(struct qcow2_base_edit *edit, void *bytes);

#endif
