/*
 * The users of a block device with zones. As the block layer does, they send one WRITE to a zone at
 * a time and ask where the pointer is when one has failed; appends as they come. Some requests are
 * wrong, and must be refused; some come together that nobody can tell the order of.
 *
 * For client.c: what it asks of requests of a device whose storage has zones.
 */
#ifndef SIM_CLIENT_ZONES_H
#define SIM_CLIENT_ZONES_H

#include "test/sim/client.h"
#include "test/sim/zones/sim_zones.h"

/* Whether it is a request that only devices with zones have. */
bool client_zones_is(const struct client_rq *rq);
/* The next one, for its tag; false: none can be made now. */
bool client_zones_choose(struct client *c, struct client_rq *rq);
/* It is sent. */
void client_zones_begin(struct client_rq *rq);
/* What the kernel does by itself before there is a disk: a report of all zones. False: no tag. */
bool client_zones_scan(struct client *c);

/* Something went wrong below in what no request has of its own: flushes and the table. */
void client_zones_note(struct client *c, int err);
/* The server is killed: what is in flight may be done, and be asked for again. */
void client_zones_lost(struct client *c);
/* It will be served from the beginning, by another server. */
void client_zones_renew(struct client_rq *rq);

/* True: it is judged; false: as a request of any other device. */
bool client_zones_judge(struct client_rq *rq, int32_t result, const void *buf);
/* It fails, without a server; nobody will say what became of it. */
void client_zones_fail(struct client_rq *rq);
void client_zones_abandon(struct client_rq *rq);

/* Between the two sources: of the request's place. */
static inline uint64_t client_zones_at(const struct client_rq *rq)
{
	return rq->start_sector << 9;
}

static inline uint64_t client_zones_bytes(const struct client_rq *rq)
{
	return (uint64_t)rq->nr_sectors << 9;
}

static inline uint32_t client_zones_idx(const struct client_rq *rq)
{
	return (uint32_t)(client_zones_at(rq) / rq->client->st->zones->zone_bytes);
}

/* A WRITE, an append or a command whose zone has a pointer; RESET_ALL too. */
bool client_zones_changes(const struct client_rq *rq);
/* Whether a READ of these bytes is in flight. */
bool client_zones_is_read(const struct client *c, uint64_t from_bytes, uint64_t end_bytes);

#endif
