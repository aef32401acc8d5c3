/*
 * Owns the slots and one timer. Main thread.
 *
 * Happy path: take -> REQUEST -> ANSWER -> drop. Every phase has an end that
 * does not depend on bytes that come now and then. Failure modes: a phase lasts too long, or others
 * come and there is no room: LEAVING, shut down.
 *
 * A new client is always accepted: one that reads the metrics sends its request at once, and one
 * that occupies a slot has been connected for longer. The dropped client gets no message: it may
 * not read.
 */
#include "daemon/metrics/http_clients.h"

#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"
#include "reactor/ring.h"

static bool is_here(const struct http_client *client)
{
	return client->phase != HTTP_FREE && client->phase != HTTP_LEAVING;
}

/* What one machine cannot have many of: an address of IPv4, a network of IPv6. */
static struct in6_addr origin(const struct sockaddr_storage *from)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
	struct in6_addr at = { 0 };

	if (from->ss_family == AF_INET) {
		at.s6_addr[10] = at.s6_addr[11] = 0xff; /* as ::ffff:a.b.c.d */
		memcpy(&at.s6_addr[12], &v4->sin_addr, 4);
		return at;
	}
	at = v6->sin6_addr;
	if (!IN6_IS_ADDR_V4MAPPED(&at))
		memset(&at.s6_addr[8], 0, 8);
	return at;
}

static bool is_same(const struct in6_addr *a, const struct in6_addr *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static unsigned nr_from(const struct http_clients *c, const struct in6_addr *from)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < HTTP_SLOT_NR; i++)
		nr += is_here(&c->slot[i]) && is_same(&c->slot[i].from, from);
	return nr;
}

unsigned http_clients_nr(const struct http_clients *c)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < HTTP_SLOT_NR; i++)
		nr += is_here(&c->slot[i]);
	return nr;
}

/* ---- dropping clients ---- */

static void send_away(struct http_client *client, const char *why)
{
	log_limited(LOG_LEVEL_DEBUG, "client of the metrics is dropped", "reason=\"%s\"", why);
	client->phase = HTTP_LEAVING;
	shutdown(client->fd, SHUT_RDWR);
}

/* from: of this address; NULL: of the one that has most. Of equal ones the oldest. */
static struct http_client *find_oldest(struct http_clients *c, const struct in6_addr *from)
{
	struct http_client *oldest = NULL;
	unsigned most = 0;

	for (unsigned i = 0; i < HTTP_SLOT_NR; i++) {
		struct http_client *client = &c->slot[i];
		unsigned nr;

		if (!is_here(client) || (from && !is_same(&client->from, from)))
			continue;
		nr = nr_from(c, &client->from);
		if (oldest && (nr < most || (nr == most && client->since_ns >= oldest->since_ns)))
			continue;
		oldest = client;
		most = nr;
	}
	return oldest;
}

static void make_room_for(struct http_clients *c, const struct in6_addr *from)
{
	if (nr_from(c, from) >= HTTP_ADDRESS_CLIENTS_MAX)
		send_away(find_oldest(c, from), "its address has too many connections");
	else if (http_clients_nr(c) >= HTTP_CLIENTS_MAX)
		send_away(find_oldest(c, NULL), "there are too many connections");
}

/* ---- deadlines ---- */

/* UINT64_MAX: never. */
static uint64_t ends_ns(const struct http_clients *c, const struct http_client *client)
{
	if (!is_here(client))
		return UINT64_MAX;
	return client->since_ns + (uint64_t)(c->seconds[client->phase] * NS_PER_SEC);
}

/* For whose phase ends first. */
static void set_deadline(struct http_clients *c)
{
	uint64_t first_ns = UINT64_MAX, now_ns = ring_clock_ns();

	for (unsigned i = 0; i < HTTP_SLOT_NR; i++)
		first_ns = MIN(first_ns, ends_ns(c, &c->slot[i]));
	ev_timer_stop(c->ev, &c->deadline);
	if (first_ns == UINT64_MAX)
		return;
	ev_timer_set(&c->deadline,
		     first_ns > now_ns ? (double)(first_ns - now_ns) / NS_PER_SEC : 0., 0.);
	ev_timer_start(c->ev, &c->deadline);
}

static void on_phase_deadline(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct http_clients *c = container_of(w, struct http_clients, deadline);
	uint64_t now_ns = ring_clock_ns();

	(void)ev, (void)events;
	for (unsigned i = 0; i < HTTP_SLOT_NR; i++)
		if (ends_ns(c, &c->slot[i]) <= now_ns)
			send_away(&c->slot[i], c->slot[i].phase == HTTP_ANSWER
						       ? "takes its answer too slowly"
						       : "sends no whole request in time");
	set_deadline(c);
}

/* ---- slots ---- */

void http_clients_init(struct http_clients *c, struct ev_loop *ev)
{
	*c = (struct http_clients){
		.ev = ev,
		.seconds = { [HTTP_REQUEST] = HTTP_REQUEST_SECONDS,
			     [HTTP_ANSWER] = HTTP_ANSWER_SECONDS },
	};
	ev_timer_init(&c->deadline, on_phase_deadline, 0., 0.);
}

void http_clients_fini(struct http_clients *c)
{
	ev_timer_stop(c->ev, &c->deadline);
}

/* NULL: none. */
static const struct http_client *find_free(const struct http_clients *c)
{
	for (unsigned i = 0; i < HTTP_SLOT_NR; i++)
		if (c->slot[i].phase == HTTP_FREE)
			return &c->slot[i];
	return NULL;
}

bool http_clients_has_slot(const struct http_clients *c)
{
	return find_free(c) != NULL;
}

void http_clients_take(struct http_clients *c, int fd, const struct sockaddr_storage *from)
{
	const struct http_client *slot = find_free(c);
	struct http_client *client;

	ASSERT(slot);
	client = &c->slot[slot - c->slot];
	client->from = origin(from);
	make_room_for(c, &client->from);
	client->fd = fd;
	http_clients_set_phase(c, client, HTTP_REQUEST);
}

struct http_client *http_clients_find(struct http_clients *c, int fd)
{
	for (unsigned i = 0; i < HTTP_SLOT_NR; i++)
		if (c->slot[i].phase != HTTP_FREE && c->slot[i].fd == fd)
			return &c->slot[i];
	return NULL;
}

/* A client that is leaving stays so, also when another request arrives. */
void http_clients_set_phase(struct http_clients *c, struct http_client *client,
			    enum http_phase phase)
{
	if (client->phase == HTTP_LEAVING)
		return;
	client->phase = phase;
	client->since_ns = ring_clock_ns();
	set_deadline(c);
}

void http_clients_drop(struct http_client *client)
{
	client->phase = HTTP_FREE;
}
