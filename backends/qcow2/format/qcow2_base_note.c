/*
 * See qcow2_base_note.h. Owns nothing.
 *
 * Happy path: the end of the extensions is where the new one goes. The name of the backing file
 * follows them: where it is in the way it is copied, then the header points to the copy, then what
 * is left of it is cleared. The extension comes in place of the mark that ends them all, with a
 * note that says nothing, and the note at last. Each change that counts before that is of 8 bytes
 * at a multiple of 8: no sector has half of it; a torn note says nothing.
 * Failure modes: it ends between two steps, or within one: the next edit finds what is left, as
 * what it would have written itself, and goes on.
 */
#include "backends/qcow2/format/qcow2_base_note.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/qcow2/format/qcow2_header_internal.h"
#include "base/big_endian.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "base/util.h"

#define NOTE_BYTES (16u + QCOW2_BASE_VERSION_BYTES)
#define NOTE_SUMMED_AT 4u
#define NOTE_HASH_AT 8u
#define NOTE_VERSION_AT 16u

enum edit_step { EDIT_COPY_NAME, EDIT_POINT, EDIT_CLEAR, EDIT_HEAD, EDIT_NOTE, EDIT_STEP_NR };

_Static_assert(NOTE_BYTES % 8 == 0, "what follows it is aligned");

void qcow2_base_note_init(struct qcow2_base_note *note, const char *backing_name,
			  const char *version)
{
	memset(note, 0, sizeof(*note));
	note->name_hash = hash_text(HASH_START, backing_name);
	snprintf(note->version, sizeof(note->version), "%s", version);
}

bool qcow2_base_note_is_of(const struct qcow2_base_note *note, const char *backing_name)
{
	return note->version[0] && note->name_hash == hash_text(HASH_START, backing_name);
}

bool qcow2_base_note_read(struct qcow2_base_note *ret_note, const uint8_t *data, uint32_t bytes)
{
	memset(ret_note, 0, sizeof(*ret_note));
	if (bytes != NOTE_BYTES)
		return false;
	if (be_get32(data) != crc32c(0, data + NOTE_SUMMED_AT, NOTE_BYTES - NOTE_SUMMED_AT))
		return true;
	if (be_get32(data + NOTE_SUMMED_AT) != 0 || data[NOTE_BYTES - 1] != 0)
		return false;
	ret_note->name_hash = be_get64(data + NOTE_HASH_AT);
	memcpy(ret_note->version, data + NOTE_VERSION_AT, QCOW2_BASE_VERSION_BYTES);
	return true;
}

static void note_write(const struct qcow2_base_note *note, uint8_t *data)
{
	memset(data, 0, NOTE_BYTES);
	be_put64(data + NOTE_HASH_AT, note->name_hash);
	memcpy(data + NOTE_VERSION_AT, note->version, QCOW2_BASE_VERSION_BYTES);
	be_put32(data, crc32c(0, data + NOTE_SUMMED_AT, NOTE_BYTES - NOTE_SUMMED_AT));
}

/* ---- where it goes ---- */

/* A copy of the name, whole or of some sectors, which are zeroes else. */
static bool edit_is_copy(const struct qcow2_base_edit *e, const uint8_t *at, uint64_t i,
			 uint64_t copy_at)
{
	return i >= copy_at && i < copy_at + e->name_bytes &&
	       at[i] == at[e->name_at + (i - copy_at)];
}

/* Whether nobody has anything there, but for the name, and what this has copied already. */
static bool edit_is_free(const struct qcow2_base_edit *e, const uint8_t *at, uint64_t end,
			 uint64_t copy_at)
{
	for (uint64_t i = e->ext_at; i < end; i++)
		if (at[i] && (i < e->name_at || i >= e->name_at + e->name_bytes) &&
		    !edit_is_copy(e, at, i, copy_at))
			return false;
	return true;
}

static uint64_t edit_room_end(const struct qcow2_base_edit *e)
{
	/* Our extension, and the mark behind it. */
	return e->ext_at + 2 * QCOW2_EXT_HEAD_BYTES + NOTE_BYTES;
}

/* Where a name goes that is in the way. */
static uint64_t edit_away(const struct qcow2_base_edit *e, uint64_t name_at)
{
	return round_up(MAX(edit_room_end(e), name_at + e->name_bytes), 8);
}

/* The name was there, and has been moved to where it is now, as this does it. */
static bool edit_was_moved(const struct qcow2_base_edit *e, const uint8_t *at)
{
	uint64_t end = edit_room_end(e);

	for (uint64_t was = e->ext_at; e->name_at && was < end; was++)
		if (edit_away(e, was) == e->name_at && edit_is_free(e, at, end, was))
			return true;
	return false;
}

/* At the mark that ends the extensions, or where ours is. */
static int edit_find(struct qcow2_base_edit *e, const struct qcow2_reader *r, uint64_t from,
		     uint64_t end)
{
	struct qcow2_ext ext;
	int ret;

	e->ext_at = from;
	while ((ret = qcow2_extension_next(r, end, &from, &ext)) > 0) {
		e->is_there = ext.type == QCOW2_EXT_BASE_NOTE;
		if (e->is_there)
			return ext.bytes == NOTE_BYTES ? 0 : -ENOSPC;
		e->ext_at = from;
	}
	if (ret < 0 || e->ext_at + QCOW2_EXT_HEAD_BYTES > end)
		return -ENOSPC;
	return 0;
}

int qcow2_base_edit_begin(struct qcow2_base_edit *edit, const struct qcow2_base_note *note,
			  const void *bytes, size_t nr_bytes)
{
	const uint8_t *at = bytes;
	uint32_t header_bytes = be_get32(at + QCOW2_AT_VERSION) == 2
					? QCOW2_V2_HEADER_BYTES
					: be_get32(at + QCOW2_AT_HEADER_BYTES);
	uint64_t cluster_bytes = 1ull << be_get32(at + QCOW2_AT_CLUSTER_BITS), end;
	struct qcow2_reader r = { .at = at,
				  .nr_bytes = nr_bytes,
				  .backing_offset = be_get64(at + QCOW2_AT_BACKING_OFFSET) };
	char words[QCOW2_WORDS_BYTES];
	int ret;

	r.words = words;
	*edit = (struct qcow2_base_edit){ .note = *note };
	edit->name_at = edit->name_to = r.backing_offset;
	edit->name_bytes = r.backing_offset ? be_get32(at + QCOW2_AT_BACKING_BYTES) : 0;
	ret = edit_find(edit, &r, header_bytes,
			r.backing_offset ? r.backing_offset : cluster_bytes);
	edit->step = EDIT_NOTE;
	if (ret < 0 || edit->is_there)
		return ret;
	end = edit_room_end(edit);
	edit->step = EDIT_CLEAR;
	if (edit->name_at && edit->name_at < end) {
		edit->step = EDIT_COPY_NAME;
		edit->name_to = edit_away(edit, edit->name_at);
		end = edit->name_to + edit->name_bytes;
	}
	if (end > MIN(cluster_bytes, (uint64_t)nr_bytes))
		return -ENOSPC;
	return edit_is_free(edit, at, end, edit->name_to) || edit_was_moved(edit, at) ? 0 : -ENOSPC;
}

/* ---- its steps ---- */

static void edit_copy_name(struct qcow2_base_edit *e, uint8_t *at)
{
	memcpy(at + e->name_to, at + e->name_at, e->name_bytes);
}

static void edit_point(struct qcow2_base_edit *e, uint8_t *at)
{
	be_put64(at + QCOW2_AT_BACKING_OFFSET, e->name_to);
}

static void edit_clear(struct qcow2_base_edit *e, uint8_t *at)
{
	memset(at + e->ext_at, 0, edit_room_end(e) - e->ext_at);
}

static void edit_head(struct qcow2_base_edit *e, uint8_t *at)
{
	be_put32(at + e->ext_at, QCOW2_EXT_BASE_NOTE);
	be_put32(at + e->ext_at + 4, NOTE_BYTES);
}

static void edit_note(struct qcow2_base_edit *e, uint8_t *at)
{
	note_write(&e->note, at + e->ext_at + QCOW2_EXT_HEAD_BYTES);
}

bool qcow2_base_edit_next(struct qcow2_base_edit *edit, void *bytes)
{
	static void (*const steps[EDIT_STEP_NR])(struct qcow2_base_edit *, uint8_t *) = {
		[EDIT_COPY_NAME] = edit_copy_name, [EDIT_POINT] = edit_point,
		[EDIT_CLEAR] = edit_clear,	   [EDIT_HEAD] = edit_head,
		[EDIT_NOTE] = edit_note,
	};

	if (edit->step == EDIT_STEP_NR)
		return false;
	steps[edit->step++](edit, bytes);
	return true;
}
