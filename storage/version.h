/*
 * Which content a node has, beyond whose bytes they are (identity): for those above that keep
 * something of it, or about it, over a process, so that they find out what others have written
 * meanwhile.
 *
 * There are two kinds. One changes by our own writes too, in a way that cannot be foretold (the
 * change time of a file): it is good when it was noted after the last of them, so after a close in
 * order. Of the other one it is known what our own writes make of it: it is good after a power cut
 * too. Where a node has others below, its version says of each what that says; of those that say
 * none it is not noticed that they change. docs/durability.md has who says what.
 */
#ifndef STORAGE_VERSION_H
#define STORAGE_VERSION_H

#include "storage/backend.h"

#define BACKEND_VERSION_BYTES 96

enum backend_version_kind {
	BACKEND_VERSION_NONE,
	BACKEND_VERSION_NOW,	 /* also by our writes; of this machine alone */
	BACKEND_VERSION_LASTING, /* the same words wherever it is opened over the same files */
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
	/* LASTING: `now` says it too. Of NOW it always does. */
	bool is_known_now;
	/*
	 * What of it can be noted for any machine: of the parts that are LASTING and cannot be
	 * written, as `found`. "": there are none. backend_version sets it where it is `found`.
	 */
	char lasting[BACKEND_VERSION_BYTES];
};

/* Of a node whose ops have it: struct backend's version. */
struct backend_version_ops {
	/*
	 * Control thread, from open to close; any, while no I/O is in flight. Does not wait.
	 */
	void (*found)(const struct backend_device *device, struct backend_version *ret_version);
	/*
	 * Any thread, from open to close, no I/O is in flight: what the next opening finds, if
	 * nothing is written any more and this one is closed in order. May block. Returns 0 or
	 * -errno. NULL: there is nothing that it says.
	 */
	int (*now)(const struct backend_device *device, char words[BACKEND_VERSION_BYTES]);
};

/*
 * Of a node, or of what it passes on unchanged: a filter with one child that keeps nothing, or a
 * tree that is shared. Threads: as `found`.
 */
void backend_version(const struct backend_device *device, struct backend_version *ret_version);
/* The same for `now`. -EOPNOTSUPP: it is not known, or there is none. */
int backend_version_now(const struct backend_device *device, char words[BACKEND_VERSION_BYTES]);

/* All that is known of storage that says no version: its size. */
void backend_version_of_size(uint64_t size_bytes, char words[BACKEND_VERSION_BYTES]);

/*
 * Of a node whose content follows from that of its children, and that writes nothing by itself when
 * it is closed: LASTING, if all of them are that have one, and none can be written; else NOW. Left
 * out are those that have none, and those that can be written and do not say what comes of that.
 * NONE: all are left out.
 */
void backend_version_join(const struct backend_device *device, struct backend_version *ret_version);
int backend_version_join_now(const struct backend_device *device,
			     char words[BACKEND_VERSION_BYTES]);
/* `lasting` alone. */
void backend_version_only_lasting(struct backend_version *version);

/* What somebody noted at an opening before; "": nothing. */
struct backend_version_note {
	char found[BACKEND_VERSION_BYTES], ours[BACKEND_VERSION_BYTES];
};

/* Whether others have changed it since; what was not noted, or has no version, has not. */
bool backend_version_has_moved(const struct backend_version_note *note,
			       const struct backend_version *version);

#endif
