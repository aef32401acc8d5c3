/*
 * A reader and checker of qcow2 images for tests. It shares no code with backends/qcow2: who reads
 * the format wrongly there is not excused here. test/interop/qcow2_oracle.sh holds it against
 * qemu-img. Source: QEMU, docs/interop/qcow2.rst.
 *
 * Not thread safe; an oracle belongs to one thread. It allocates one record of 16 bytes per cluster
 * of the image, which it keeps for the next image, and the decompressors when it meets a compressed
 * cluster; nothing else. It never writes.
 */
#ifndef TEST_RIG_QCOW2_QCOW2_ORACLE_H
#define TEST_RIG_QCOW2_QCOW2_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define QCOW2_ORACLE_WORDS_BYTES 160u
#define QCOW2_ORACLE_WORDS_NR 8u
#define QCOW2_ORACLE_NAME_BYTES 1024u
#define QCOW2_ORACLE_ACTIVE (-1) /* instead of the index of a snapshot */

/*
 * Where bytes come from. read gives n bytes at offset; fewer where the file ends; -errno. It is
 * called for 4 KiB or a cluster at most at a time in tables, and for as much as is contiguous in
 * data.
 */
struct qcow2_oracle_file {
	ssize_t (*read)(void *arg, void *buf, size_t n, uint64_t offset);
	void *arg;
	uint64_t bytes;
	/* Of an encrypted image: data that was read at offset; NULL: it stays as it is stored. */
	void (*decrypt)(void *arg, void *buf, size_t n, uint64_t offset);
};

/* What the header says. */
struct qcow2_oracle_info {
	uint64_t size_bytes; /* of the disk */
	uint32_t version, cluster_bits, refcount_bits, snapshot_nr, bitmap_nr;
	uint32_t crypt; /* 0: none, 1: AES, 2: LUKS */
	bool dirty, corrupt, lazy, extended_l2, zstd, data_file, data_file_raw;
	bool bitmaps_missing; /* their feature bit, without their extension */
	/* Terminated; "": none. */
	char backing_name[QCOW2_ORACLE_NAME_BYTES], backing_format[QCOW2_ORACLE_NAME_BYTES];
	char data_file_name[QCOW2_ORACLE_NAME_BYTES];
};

enum qcow2_oracle_fault {
	QCOW2_ORACLE_LOW,      /* a cluster has more references than its reference count says */
	QCOW2_ORACLE_COPIED,   /* COPIED, and a reference count that is not 1; or the reverse */
	QCOW2_ORACLE_ENTRY,    /* of L1, L2 or a bitmap table: reserved bits, unaligned, outside */
	QCOW2_ORACLE_OVERLAP,  /* one cluster is of two kinds, whatever its reference count says */
	QCOW2_ORACLE_TABLE,    /* reference count table, snapshot table, bitmap directory */
	QCOW2_ORACLE_IO,       /* the file could not be read */
	QCOW2_ORACLE_LEAK,     /* a reference count is higher than the references */
	QCOW2_ORACLE_PAST_END, /* a reference count of a cluster behind the end of the file: space
				  to come */
	QCOW2_ORACLE_SHARED,   /* two entries of one L1, or of its L2 tables, lead to one cluster */
	QCOW2_ORACLE_FAULT_NR,
};

struct qcow2_oracle_report {
	uint64_t nr[QCOW2_ORACLE_FAULT_NR];
	/*
	 * LOW, COPIED, ENTRY, OVERLAP, TABLE and IO. In a dirty image LOW and COPIED are repairable
	 * instead: the next one who opens it counts anew. There COPIED is compared with the
	 * references themselves, which are what the count will be. A writer with lazy reference
	 * counts makes LOW and no COPIED.
	 */
	uint64_t corruptions, repairable;
	uint64_t leaks;
	uint64_t copied_shared;		 /* COPIED, and more than one reference */
	uint64_t clusters;		 /* of the file */
	uint64_t referenced;		 /* of these */
	uint64_t data, zero, compressed; /* entries of the active L2 tables */
	/* The first faults: corruptions, repairable and leaks, then notes. */
	unsigned words_nr;
	char words[QCOW2_ORACLE_WORDS_NR][QCOW2_ORACLE_WORDS_BYTES];
};

struct qcow2_oracle;

struct qcow2_oracle *qcow2_oracle_create(void);	   /* NULL: no memory */
void qcow2_oracle_destroy(struct qcow2_oracle *o); /* accepts NULL */

/*
 * Reads the header. Call it again whenever the file has changed: what was read of its tables is
 * forgotten. data: the external data file, may be NULL (then data cannot be read). Both structures
 * are copied. Returns 0 or -errno with words: -EINVAL (no qcow2, or a header that contradicts
 * itself), -ENOTSUP (unknown incompatible features, or more than QEMU takes). Then nothing else may
 * be called.
 */
int qcow2_oracle_open(struct qcow2_oracle *o, const struct qcow2_oracle_file *file,
		      const struct qcow2_oracle_file *data,
		      char words[static QCOW2_ORACLE_WORDS_BYTES]);
const struct qcow2_oracle_info *qcow2_oracle_info(const struct qcow2_oracle *o);

/* Everything but the data. Returns 0 with the report, whatever it says; -ENOMEM. */
int qcow2_oracle_check(struct qcow2_oracle *o, struct qcow2_oracle_report *ret_report);

/*
 * What a guest reads. snapshot: QCOW2_ORACLE_ACTIVE, or the index of one in the snapshot table.
 * backing: NULL reads as zeroes, and so does what is behind its end. Zeroes behind the end of the
 * disk. Encrypted clusters come as they are stored, where the file has no
 * decrypt. Returns 0; -EIO: an entry is broken, a
 * compressed cluster cannot be decompressed, a read failed; -ENOENT: there is no such snapshot;
 * -ENOMEM.
 */
int qcow2_oracle_read(struct qcow2_oracle *o, const struct qcow2_oracle_file *backing, int snapshot,
		      uint64_t offset, void *buf, size_t n);
/* Size of the disk in a snapshot; -ENOENT. */
int qcow2_oracle_snapshot_bytes(struct qcow2_oracle *o, int snapshot, uint64_t *ret_bytes);

#endif
