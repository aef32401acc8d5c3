/*
 * Flight recorder: the last FLIGHT_RECORD_NR events of one reactor in a file on tmpfs, mapped
 * shared. What was recorded is there after a crash, kill -9 or an abort: the kernel keeps the
 * pages. One writer (the reactor), any reader, no system call and no lock to record.
 */
#ifndef BASE_FLIGHT_H
#define BASE_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FLIGHT_MAGIC "UBLKDFLT"
#define FLIGHT_VERSION 1 /* raised with the layout: test/kept.py */
#define FLIGHT_RECORD_NR 65536u
#define FLIGHT_NAME_NR 1024u
#define FLIGHT_NAME_BYTES 32u

enum flight_event {
	FLIGHT_NONE,   /* never written */
	FLIGHT_FETCH,  /* the driver handed a request over; value: bytes */
	FLIGHT_BUSY,   /* the backend did not take it; value: 0 */
	FLIGHT_DONE,   /* the backend answered later than at once; value: 0 or -errno */
	FLIGHT_COMMIT, /* handed back; value: bytes or -errno */
	FLIGHT_ABORT,  /* the tag came back without a request; value: -errno */
	FLIGHT_EVENT_NR,
};

/* What a record is about. A tag keeps its own, so that it is copied as one word. */
struct flight_key {
	uint16_t device; /* N of /dev/ublkbN */
	uint16_t queue;
	uint16_t tag;
	uint8_t op;    /* enum backend_op */
	uint8_t event; /* enum flight_event; flight_write sets it */
};

struct flight_record {
	uint64_t time_ns; /* CLOCK_MONOTONIC at the start of the turn (COMMIT: at its end) */
	uint64_t sector;
	int32_t value;
	struct flight_key key;
	uint32_t reserved;
};
_Static_assert(sizeof(struct flight_record) == 32 && offsetof(struct flight_record, key) == 20 &&
		       sizeof(struct flight_key) == 8,
	       "part of the file format");

/* The file: this header, then FLIGHT_RECORD_NR records. */
struct flight_file {
	char magic[8];
	uint32_t version, record_nr;
	uint32_t reactor, pid;
	int64_t realtime_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC at start */
	uint64_t head;		    /* records ever written; the next goes to head % record_nr */
	uint64_t reserved[2];
	/* Names of devices, at id % FLIGHT_NAME_NR; written by the main thread. */
	char name[FLIGHT_NAME_NR][FLIGHT_NAME_BYTES];
	struct flight_record record[FLIGHT_RECORD_NR];
};

/*
 * Creates folder/flight-<reactor>, keeping an older one as flight-<reactor>.old. All of its pages
 * are allocated here: recording never meets a full file system. Where there is no room for a file
 * the recorder is memory of this process, and flight-<reactor> a link to it that is good for as
 * long as the process lives; folder NULL asks for private memory. Returns 0, or the -errno for a
 * warning; *ret_flight is NULL only without memory.
 */
int flight_create(struct flight_file **ret_flight, const char *folder, unsigned reactor);
/* Leaves the file where it is. Accepts NULL. */
void flight_close(struct flight_file *flight);

/* Main thread: stores the name of a device for readers of the file. */
void flight_name(struct flight_file *flight, unsigned device, const char *name);

const char *flight_event_name(unsigned event);

/* The hot path: a handful of stores. head is published last, so a reader never sees half a record
 * among those it says are there, but for the oldest, which may be about to be overwritten. */
static inline void flight_write(struct flight_file *f, uint64_t time_ns, enum flight_event event,
				const struct flight_key *key, uint64_t sector, int32_t value)
{
	uint64_t head = f->head;
	struct flight_record *r = &f->record[head % FLIGHT_RECORD_NR];

	r->time_ns = time_ns;
	r->sector = sector;
	r->value = value;
	r->key = *key;
	r->key.event = (uint8_t)event;
	__atomic_store_n(&f->head, head + 1, __ATOMIC_RELEASE);
}

#endif
