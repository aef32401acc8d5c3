/*
 * Who writes the disk. A writer puts its name into the manifest, on the condition that nobody has
 * changed it (If-Match), and again every few seconds while it serves: that is its lease. Whoever
 * finds a writer that does not do so for the time of a lease takes its place; the other one sees
 * that at its next FLUSH or renewal, and stops. What it stored until then, but not flushed, may be
 * lost; what it has flushed was there before the new writer looked.
 */
#ifndef BACKENDS_S3_DISK_S3_DISK_LEASE_H
#define BACKENDS_S3_DISK_S3_DISK_LEASE_H

#include "backends/s3_disk/s3_disk_call.h"
#include "backends/s3_disk/s3_disk_manifest.h"

/* One question at a time. Reactor thread of its client. */
struct s3_disk_lease {
	struct s3_disk_call call;
	/*
	 * The disk's: the store compares the text of an ETag without its quotes (Ceph's gateway in
	 * a PUT, rgw_rados.cc), against RFC 9110, 8.8.3. Found out by a write that is refused
	 * though the ETag is right.
	 */
	bool *is_bare;
	bool has_turned; /* is_bare: by the write under way, once */
	/* Of the manifest that was read or written last. */
	struct s3_disk_manifest manifest;
	char etag[HTTP_ETAG_BYTES];
	char expected[HTTP_ETAG_BYTES]; /* by the write under way; "": no manifest */
	char words[HTTP_ERROR_BYTES + 200];

	struct s3_disk_manifest next; /* being written */
	struct task task;	      /* it cannot be written */
	void (*done)(struct s3_disk_lease *lease, int result);
	char text[S3_DISK_MANIFEST_BYTES];
};

/*
 * lease_ns: of the disk. Between two tries of a question passes a sixth of it at most, whatever the
 * store asks for: a renewal, due after a third, has three more before others may take the disk.
 */
int s3_disk_lease_init(struct s3_disk_lease *lease, struct s3_disk_client *client, bool *is_bare,
		       uint64_t lease_ns);
void s3_disk_lease_fini(struct s3_disk_lease *lease);

/*
 * done, from a turn: 0, and manifest and etag are what the store has; -ENOENT: there is none; -EIO,
 * -EINVAL with words.
 */
void s3_disk_lease_read(struct s3_disk_lease *lease,
			void (*done)(struct s3_disk_lease *lease, int result));
/*
 * Puts `next` in place of the manifest that was read or written last; is_new: where there is none.
 * done: 0; -ESTALE: somebody else has changed it; -EIO with words: unknown; -ENOMEM with words:
 * nothing was sent.
 */
void s3_disk_lease_write(struct s3_disk_lease *lease, bool is_new,
			 void (*done)(struct s3_disk_lease *lease, int result));

#endif
