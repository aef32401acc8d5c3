/*
 * A simulated NBD server.
 *
 *	nbd_conn.c	a connection: handshake, requests, replies
 *	slot_nbd.c	the device on it
 */
#ifndef SIM_NBD_SERVER_H
#define SIM_NBD_SERVER_H

#include "backends/nbd/nbd_proto.h"
#include "test/sim/server/server.h"

#define NBD_SERVER_MAX_PAYLOAD MIB(32)

struct nbd_server {
	struct server server;
	/* how it speaks */
	bool no_zeroes, has_go, has_structured, has_extended;
	uint16_t flags; /* enum nbd_transmission_flags */
	uint32_t min_block_bytes;
};

struct nbd_conn {
	struct server_conn c;
	uint8_t state;
	bool structured, extended;
	bool refused; /* the WRITE that is coming has been answered */
	struct list_node requests;
};

extern const struct server_protocol nbd_server_protocol;

uint64_t nbd_server_size_bytes(const struct nbd_server *server);

#endif
