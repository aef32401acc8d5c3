/*
 * See qcow2_base_note.h. Owns nothing.
 *
 * Happy path: the end of the extensions is where the new one goes. The name of the backing file
 * follows them: where it is in the way it is copied, then the header points to the copy, then the
 * extension is written behind the mark that ends them, and at last in place of that mark. Each
 * change that counts is of 8 bytes at a multiple of 8: no sector has half of it.
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

_Static_assert(NOTE_BYTES % 8 == 0, "what follows it is aligned");

void qcow2_base_note_init(struct qcow2_base_note *note, const char *backing_name,
			  const char *version)
{
	memset(note, 0, sizeof(*note));
	note->name_hash = hash_text(HASH_START, backing_name);
	snprintf(note->version, sizeof(note->version), "%s", version);
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

/* Whether nobody has anything there, but for the name. */
static bool edit_is_free(const struct qcow2_base_edit *e, const uint8_t *at, uint64_t from,
			 uint64_t end)
{
	for (uint64_t i = from; i < end; i++)
		if (at[i] && (i < e->name_at || i >= e->name_at + e->name_bytes))
			return false;
	return true;
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
	uint64_t cluster_bytes = 1ull << be_get32(at + QCOW2_AT_CLUSTER_BITS), end, name_end;
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
	if (ret < 0 || edit->is_there)
		return ret;
	/* Our extension, and the mark behind it. */
	end = edit->ext_at + 2 * QCOW2_EXT_HEAD_BYTES + NOTE_BYTES;
	name_end = edit->name_at + edit->name_bytes;
	if (edit->name_at && edit->name_at < end) {
		edit->name_to = round_up(MAX(end, name_end), 8);
		end = edit->name_to + edit->name_bytes;
	}
	if (end > MIN(cluster_bytes, (uint64_t)nr_bytes) ||
	    !edit_is_free(edit, at, edit->ext_at, end))
		return -ENOSPC;
	return 0;
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

static void edit_note(struct qcow2_base_edit *e, uint8_t *at)
{
	uint8_t *data = at + e->ext_at + QCOW2_EXT_HEAD_BYTES;

	note_write(&e->note, data);
	if (!e->is_there)
		memset(data + NOTE_BYTES, 0, QCOW2_EXT_HEAD_BYTES);
}

static void edit_head(struct qcow2_base_edit *e, uint8_t *at)
{
	be_put32(at + e->ext_at, QCOW2_EXT_BASE_NOTE);
	be_put32(at + e->ext_at + 4, NOTE_BYTES);
}

bool qcow2_base_edit_next(struct qcow2_base_edit *edit, void *bytes)
{
	static void (*const steps[])(struct qcow2_base_edit *, uint8_t *) = {
		edit_copy_name,
		edit_point,
		edit_note,
		edit_head,
	};
	bool moves = edit->name_to != edit->name_at;

	if (edit->step == 0 && !moves)
		edit->step = 2;
	if (edit->step == ARRAY_SIZE(steps))
		return false;
	steps[edit->step](edit, bytes);
	edit->step = edit->step == 2 && edit->is_there ? ARRAY_SIZE(steps) : edit->step + 1;
	return true;
}
