/*
 * Servers of every kind, and one that comes back as another: smaller, without what it could, gone.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "backends/nbd/nbd.h"
#include "base/util.h"
#include "nbd_case.h"

#define QUEUE "on_disconnect: {queue: 30s}\ncache: kept\n"

struct change {
	const char *name;
	const char *before, *after; /* settings */
	const char *words;
};

/* Never served again with another size or fewer abilities than the block device promises. */
static void check_change(struct fault_case *c, const void *arg)
{
	const struct change *change = arg;
	const char *failure;
	uint64_t reads;

	case_serve(c, change->before);
	if (!case_open(c, QUEUE "connections: 1", 1))
		return;
	case_works(c, 50);
	EXPECT(!backend_failure(c->rig.device, NULL), "it has failed");
	nbd_peer_tell(&c->peer, "set %s", change->after);
	nbd_peer_tell(&c->peer, "kick");
	reads = nbd_peer_count(&c->peer, "read");
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 60000))
		return;
	for (unsigned tag = 0; tag < CASE_DEPTH; tag++)
		EXPECT(c->rig.queue[0].io[tag].io.result < 0, "served on");
	EXPECT(rig_do(&c->rig, BACKEND_WRITE, 0, 0, 4096, NULL) < 0, "served on");
	EXPECT(nbd_peer_count(&c->peer, "read") == reads, "the other export was read");
	case_logged(change->words);
	failure = backend_failure(c->rig.device, NULL);
	EXPECT(failure && strstr(failure, "is not what it was: "), "%s", failure);
}

/* More than before is no harm. */
static void check_no_change(struct fault_case *c, const void *arg)
{
	const struct change *change = arg;

	case_serve(c, change->before);
	if (!case_open(c, QUEUE "connections: 1", 1))
		return;
	case_works(c, 50);
	nbd_peer_tell(&c->peer, "set %s", change->after);
	nbd_peer_tell(&c->peer, "kick");
	case_works(c, 200);
}

/* Gone, and back in time. */
static void check_vanished(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE "connections: 1", 1))
		return;
	nbd_peer_tell(&c->peer, "set export=other");
	nbd_peer_tell(&c->peer, "kick");
	case_submit_all(c, BACKEND_READ, 4096);
	case_turn_for(c, 1000);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u of %u wait", rig_out_nr(&c->rig), CASE_DEPTH);
	case_logged("export");
	nbd_peer_tell(&c->peer, "set export=");
	if (case_drain(c, 60000))
		case_works(c, 100);
}

/* So many connections are open; they come up, and the probe's ends, beside the I/O. */
static void expect_open(struct fault_case *c, uint64_t nr)
{
	uint64_t got = 0;

	for (unsigned i = 0; i < 500 && (got = nbd_peer_count(&c->peer, "open")) != nr; i++)
		case_turn_for(c, 10);
	EXPECT(got == nr, "%llu connections", (unsigned long long)got);
}

struct kind {
	const char *name, *settings, *options;
	unsigned block_bytes, queue_nr;
	uint32_t caps, no_caps; /* that must be, that must not be */
	uint64_t connections;	/* open at once, while it serves; 0: not looked at */
};

static void check_kind(struct fault_case *c, const void *arg)
{
	const struct kind *k = arg;
	char options[200];
	uint32_t caps;

	case_serve(c, k->settings);
	snprintf(options, sizeof(options), QUEUE "%s", k->options);
	if (!case_open_with(c, c->peer.uri, options, k->block_bytes, k->queue_nr))
		return;
	caps = c->rig.device->limits.caps;
	EXPECT((caps & k->caps) == k->caps && !(caps & k->no_caps), "caps 0x%x", caps);
	case_works(c, 600);
	if (k->connections)
		expect_open(c, k->connections);
}

static void check_max_block(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "min_block=4096 preferred_block=16384 max_block=65536");
	if (!case_open_with(c, c->peer.uri, QUEUE "connections: 1", 4096, 1))
		return;
	EXPECT(c->rig.device->limits.logical_block_bytes == 4096, "%u",
	       c->rig.device->limits.logical_block_bytes);
	EXPECT(c->rig.device->limits.max_io_bytes == 65536, "%u",
	       c->rig.device->limits.max_io_bytes);
	EXPECT(c->rig.device->limits.io_opt_bytes == 0, "%u", c->rig.device->limits.io_opt_bytes);
	case_works(c, 600);
}

/* A server without multi-conn makes no promise about a flush of another connection. */
static void check_one_queue_at_most(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "multi_conn=0");
	if (!case_open(c, QUEUE "connections: 4", 1))
		return;
	EXPECT(c->rig.device->limits.queue_nr_max == 1, "%u queues",
	       c->rig.device->limits.queue_nr_max);
	case_works(c, 100);
	expect_open(c, 1);
}

#define TCP_URI_BYTES 96u

static void listen_tcp(struct fault_case *c, const char *host, char ret_uri[static TCP_URI_BYTES])
{
	/* Below those that the kernel gives to clients (ip_local_port_range). */
	unsigned port = 20000 + (unsigned)getpid() % 12000;

	nbd_peer_tell(&c->peer, "listen %s:%u", host, port);
	snprintf(ret_uri, TCP_URI_BYTES, "nbd://%s:%u", host, port);
}

static void check_tcp(struct fault_case *c, const void *arg)
{
	const char *args[] = { NULL };
	char uri[TCP_URI_BYTES];

	/* A second server, as the first one's socket is not what is wanted. */
	nbd_peer_start(&c->peer, args);
	listen_tcp(c, arg, uri);
	if (!case_open_with(c, uri, QUEUE "connections: 2", 512, 1))
		return;
	case_works(c, 500);
	nbd_peer_tell(&c->peer, "kick");
	case_works(c, 200);
}

/*
 * A name with two addresses, nobody behind the first: both are tried in turn. White box, as names
 * with several addresses are not to be had everywhere.
 */
static void check_other_address(struct fault_case *c, const void *arg)
{
	const char *args[] = { NULL };
	char uri[TCP_URI_BYTES];
	struct nbd_queue *q;

	(void)arg;
	nbd_peer_start(&c->peer, args);
	listen_tcp(c, "127.0.0.1", uri);
	if (!case_open_with(c, uri, QUEUE "connections: 1", 512, 1))
		return;
	case_works(c, 50);
	q = c->rig.queue[0].queue->priv;
	q->session.addresses.address[1] = q->session.addresses.address[0];
	q->session.addresses.nr = 2;
	/* Port 1, of tcpmux. */
	((struct sockaddr_in *)&q->session.addresses.address[0].name)->sin_port = htons(1);
	for (unsigned i = 0; i < 3; i++) {
		nbd_peer_tell(&c->peer, "kick");
		case_works(c, 50);
	}
}

/* Only while large answers are awaited are headers received apart: that costs calls. White box. */
static void check_large(struct fault_case *c, const void *arg)
{
	const struct nbd_queue *q;
	struct session_connection *conn;

	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE "connections: 1", 1))
		return;
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, RIG_IO_BYTES, NULL) == 0, "read");
	q = c->rig.queue[0].queue->priv;
	conn = q->session.connection[0];
	EXPECT(nbd_connection_of(conn)->large_nr == 0, "%u are awaited",
	       nbd_connection_of(conn)->large_nr);
	EXPECT(conn->stream.in_limit == conn->stream.in_room, "it receives %zu bytes at a time",
	       conn->stream.in_limit);
}

struct replies {
	const char *name, *settings, *options;
	bool tcp;
	unsigned structured, extended; /* connections: the probe's and one of the queue's */
};

/* Which replies are asked for. */
static void check_replies(struct fault_case *c, const void *arg)
{
	const struct replies *r = arg;
	char uri[TCP_URI_BYTES], options[128];

	case_serve(c, r->settings);
	if (r->tcp)
		listen_tcp(c, "127.0.0.1", uri);
	snprintf(options, sizeof(options), QUEUE "connections: 1\nreplies: %s", r->options);
	if (!case_open_with(c, r->tcp ? uri : c->peer.uri, options, 512, 1))
		return;
	case_works(c, 100);
	EXPECT(nbd_peer_count(&c->peer, "structured") == r->structured, "structured");
	EXPECT(nbd_peer_count(&c->peer, "extended") == r->extended, "extended");
}

static void run_replies(uint64_t seed)
{
	static const struct replies replies[] = {
		{ "auto, a unix socket", "extended=1", "auto", false, 0, 0 },
		{ "auto, loopback", "extended=1", "auto", true, 0, 0 },
		{ "simple", "extended=1", "simple", false, 0, 0 },
		{ "structured", "", "structured", false, 2, 0 },
		{ "structured, from one that has more", "extended=1", "structured", false, 0, 2 },
	};
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(replies); i++) {
		snprintf(name, sizeof(name), "replies: %s", replies[i].name);
		fault_case_run(name, 30, seed, check_replies, &replies[i]);
	}
}

static void run_changes(uint64_t seed)
{
	static const struct change changes[] = {
		{ "it is smaller", "", "size=1048576", "\"size was 4MiB, is 1MiB\"" },
		{ "it is larger", "", "size=8388608", "\"size was 4MiB, is 8MiB\"" },
		{ "it is read-only", "", "read_only=1", "\"was writable, is read-only\"" },
		{ "it cannot flush", "", "flush=0", "\"had FLUSH, has none\"" },
		{ "it cannot trim", "", "trim=0", "\"had TRIM, has none\"" },
		{ "it cannot write zeroes", "", "zeroes=0", "had WRITE_ZEROES, has none" },
		{ "its blocks are larger", "", "min_block=4096",
		  "smallest block was 512, is 4KiB" },
		{ "its requests are smaller", "min_block=512 max_block=1048576",
		  "min_block=512 max_block=65536", "\"largest request was 1MiB, is 64KiB\"" },
		{ "all of it", "trim=0", "size=1048576 fua=0 trim=1",
		  "\"size was 4MiB, is 1MiB, had FUA, has none, had no TRIM, has it\"" },
	};
	static const struct change harmless = { "more", "trim=1", "extended=1 description=new",
						"" };
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(changes); i++) {
		snprintf(name, sizeof(name), "changed: %s: never served again", changes[i].name);
		fault_case_run(name, 30, seed, check_change, &changes[i]);
	}
	fault_case_run("changed: what does not matter: goes on", 30, seed, check_no_change,
		       &harmless);
	fault_case_run("changed: the export vanishes and comes back", 30, seed, check_vanished,
		       NULL);
}

static void run_kinds(uint64_t seed)
{
	static const struct kind kinds[] = {
		{ "structured", "", "connections: 1", 512, 1,
		  BACKEND_CAP_FLUSH | BACKEND_CAP_FUA | BACKEND_CAP_DISCARD |
			  BACKEND_CAP_WRITE_ZEROES,
		  BACKEND_CAP_READ_ONLY | BACKEND_CAP_ROTATIONAL, 1 },
		{ "simple", "structured=0", "connections: 1", 512, 1, BACKEND_CAP_FLUSH, 0, 1 },
		{ "extended", "extended=1", "connections: 1", 512, 1, BACKEND_CAP_FLUSH, 0, 1 },
		{ "EXPORT_NAME", "go=0", "connections: 1", 512, 1, BACKEND_CAP_FLUSH, 0, 1 },
		{ "the oldest", "go=0 structured=0 meta=0 df=0", "connections: 1", 512, 1,
		  BACKEND_CAP_FLUSH, 0, 1 },
		{ "bare", "flush=0 fua=0 trim=0 zeroes=0 multi_conn=0", "connections: 1", 512, 1, 0,
		  BACKEND_CAP_FUA | BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES, 1 },
		{ "read-only", "read_only=1", "connections: 1", 512, 1, BACKEND_CAP_READ_ONLY, 0,
		  1 },
		{ "rotational", "rotational=1", "connections: 1", 512, 1, BACKEND_CAP_ROTATIONAL, 0,
		  1 },
		{ "four connections", "", "connections: 4", 512, 1, 0, 0, 4 },
		{ "two queues", "", "connections: 2", 512, 2, 0, 0, 4 },
		{ "blocks of 4096", "", "connections: 2", 4096, 1, 0, 0, 2 },
	};
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		snprintf(name, sizeof(name), "kind: %s", kinds[i].name);
		fault_case_run(name, 60, seed, check_kind, &kinds[i]);
	}
	fault_case_run("kind: block sizes are limits", 60, seed, check_max_block, NULL);
	fault_case_run("kind: without multi-conn one connection", 60, seed, check_one_queue_at_most,
		       NULL);
	fault_case_run("kind: IPv4", 60, seed, check_tcp, "127.0.0.1");
	fault_case_run("kind: IPv6", 60, seed, check_tcp, "[::1]");
	fault_case_run("kind: a host name", 60, seed, check_tcp, "localhost");
	fault_case_run("kind: large READs, then none", 60, seed, check_large, NULL);
	fault_case_run("kind: the other address of a host name", 60, seed, check_other_address,
		       NULL);
}

void changes_run(uint64_t seed)
{
	run_kinds(seed);
	run_replies(seed);
	run_changes(seed);
}
