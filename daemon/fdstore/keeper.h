/*
 * What ublkd and ublkd-keeper say to each other: a request, a reply, on a SOCK_SEQPACKET socket in
 * the state directory. A keeper outlives the program that started it: a change of these structures
 * needs another KEEPER_MAGIC.
 */
#ifndef DAEMON_FDSTORE_KEEPER_H
#define DAEMON_FDSTORE_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define KEEPER_SOCKET "keeper.sock"
#define KEEPER_MAGIC 0x31504b55u /* "UKP1" */
#define KEEPER_NAME_BYTES 256	 /* the 0 at its end counted */
#define KEEPER_HELD_MAX 2048
#define KEEPER_CLIENTS_MAX 8

/* The keeper is started with two sockets in these places. */
#define KEEPER_FD_LISTEN 0 /* bound and listening */
#define KEEPER_FD_FIRST                                                                            \
	1 /* connected to the first client, so that the keeper does not end at once */

enum keeper_op {
	/* Hold the descriptor that comes along, in the place of the one that had the name. */
	KEEPER_PUT = 1,
	KEEPER_DROP, /* -ENOENT: there was none */
	KEEPER_AT,   /* name and descriptor of the entry idx, from 0 on; -ENOENT: no more */
};

struct keeper_request {
	uint32_t magic;
	uint32_t op;  /* enum keeper_op */
	uint32_t idx; /* KEEPER_AT */
	char name[KEEPER_NAME_BYTES];
};

struct keeper_reply {
	uint32_t magic;
	int32_t result;	  /* 0 or -errno */
	uint32_t held_nr; /* now; at 0 the keeper ends once nobody is connected */
	char name[KEEPER_NAME_BYTES];
};

/* Printable ASCII without ':', as systemd takes names of descriptors. */
static inline bool keeper_is_name(const char *name)
{
	size_t len = strnlen(name, KEEPER_NAME_BYTES);

	for (size_t i = 0; i < len; i++)
		if (name[i] < ' ' || name[i] > '~' || name[i] == ':')
			return false;
	return len > 0 && len < KEEPER_NAME_BYTES;
}

#endif
