/* What checks of the NBD backend have in common. One thread per process. */
#include "nbd_case.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"

void case_serve(struct fault_case *c, const char *settings)
{
	const char *args[16] = { NULL };
	char words[256];
	char *at = words, *word;
	unsigned nr = 0;

	snprintf(words, sizeof(words), "%s", settings);
	while ((word = strsep(&at, " ")) && nr + 3 < ARRAY_SIZE(args)) {
		if (!*word)
			continue;
		args[nr++] = "--set";
		args[nr++] = word;
	}
	nbd_peer_start(&c->peer, args);
}

bool case_open_with(struct fault_case *c, const char *uri, const char *options,
		    uint32_t block_bytes, unsigned queue_nr)
{
	char yaml[1024];
	struct rig_params params = {
		.ops = backend_find("nbd"),
		.yaml = yaml,
		.block_bytes = block_bytes,
		.queue_nr = queue_nr,
	};

	/* What a server on this machine is asked for by itself has less that can go wrong. */
	snprintf(yaml, sizeof(yaml), "uri: \"%s\"\n%s\n%s\n", uri, options,
		 strstr(options, "replies:") ? "" : "replies: structured");
	return case_open_rig(c, &params);
}

bool case_open(struct fault_case *c, const char *options, unsigned queue_nr)
{
	return case_open_with(c, c->peer.uri, options, 512, queue_nr);
}

static bool do_all(struct fault_case *c, enum backend_op op)
{
	case_submit_all(c, op, 4096);
	if (!case_drain(c, 10000))
		return false;
	case_expect_all(c, 0);
	return !tap_failed();
}

/* A connection that has brought an answer is made again soon, others ever later: all must. */
bool case_strike_out(struct fault_case *c, unsigned conn_nr)
{
	for (unsigned i = 0; i < 200 && nbd_peer_count(&c->peer, "left") > 0; i++) {
		if (!do_all(c, i % 3 ? BACKEND_READ : BACKEND_FLUSH))
			return false;
		case_turn_for(c, 3);
	}
	EXPECT(nbd_peer_count(&c->peer, "left") == 0, "the server had no occasion for it");
	if (!case_reaches(c, "open", conn_nr, 10000))
		return false;
	case_turn_for(c, 3);
	return do_all(c, BACKEND_READ);
}
