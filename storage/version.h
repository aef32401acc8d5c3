/*
 * Which content a node has, beyond whose bytes they are (identity): for those above that keep
 * something of it, or about it, over a process, so that they find out what others have written
 * meanwhile.
 *
 * There are two kinds. One changes by our own writes too, in a way that cannot be foretold (the
 * change time of a file): it is good when it was noted after the last of them, so after a close in
 * order. Of the other one it is known what our own writes make of it: it is good after a power cut
 * too.
 */
#ifndef STORAGE_VERSION_H
#define STORAGE_VERSION_H

#include "storage/backend.h"

#define BACKEND_VERSION_BYTES 96

enum backend_version_kind {
	BACKEND_VERSION_NONE,
	BACKEND_VERSION_NOW,	 /* also by our writes; of this machine alone */
	BACKEND_VERSION_LASTING, /* the same words wherever it is opened */
};

struct backend_version {
	enum backend_version_kind kind;
	/* Before this opening has changed anything. Printable; "": NONE. */
	char found[BACKEND_VERSION_BYTES];
	/*
	 * LASTING: with what begins `found` of the next opening, if something was written through
	 * this one and through none between; if nothing was, it is that of this one. "": nothing
	 * can be written.
	 */
	char ours[BACKEND_VERSION_BYTES];
};

/* Of a node whose ops have it: struct backend's version. */
struct backend_version_ops {
	/* Control thread, from open to close. Does not wait. */
	void (*found)(const struct backend_device *device, struct backend_version *ret_version);
	/*
	 * Any thread, from open to close, no I/O is in flight: as it is now. May block. Returns 0
	 * or -errno. NULL: it is LASTING, or has none.
	 */
	int (*now)(const struct backend_device *device, char words[BACKEND_VERSION_BYTES]);
};

/*
 * Of a node, or of what it passes on unchanged: a filter with one child that keeps nothing, or a
 * tree that is shared. Control thread, from open to close.
 */
void backend_version(const struct backend_device *device, struct backend_version *ret_version);
/* The same, of kind NOW. Any thread; may block. -EOPNOTSUPP: it is of another kind. */
int backend_version_now(const struct backend_device *device, char words[BACKEND_VERSION_BYTES]);

/* All that is known of storage that says no version: its size. */
void backend_version_of_size(uint64_t size_bytes, char words[BACKEND_VERSION_BYTES]);

/*
 * Of a node that only reads its children, and whose content follows from theirs: LASTING of those
 * that have one. What the others have is left out: that it changes is not noticed. NONE when none
 * has one, or something can be written to it.
 */
void backend_version_join(const struct backend_device *device, struct backend_version *ret_version);

/* What somebody noted at an opening before; "": nothing. */
struct backend_version_note {
	char found[BACKEND_VERSION_BYTES], ours[BACKEND_VERSION_BYTES];
};

/* Whether others have changed it since; what was not noted, or has no version, has not. */
bool backend_version_has_moved(const struct backend_version_note *note,
			       const struct backend_version *version);

#endif
