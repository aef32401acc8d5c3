/* What checks of the nvme-tcp backend have in common. One thread per process. */
#include "nvme_case.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define ARGS_MAX 40
#define MDTS "mdts=5"

/* ---- target and device ---- */

void case_serve_ports(struct fault_case *c, unsigned port_nr, const char *settings)
{
	/* Small transfers: the target is slow, and the more of them the better. */
	const char *args[ARGS_MAX] = { "--size", "2097152", "--set", MDTS };
	char words[400];
	char *at = words, *word;
	unsigned nr = 4;

	_Static_assert(CASE_SIZE_BYTES == 2097152, "the same");
	snprintf(words, sizeof(words), "%s", settings);
	while ((word = strsep(&at, " ")) && nr + 3 < ARGS_MAX) {
		if (*word && word[0] != '-')
			args[nr++] = "--set";
		if (*word)
			args[nr++] = word;
	}
	fault_peer_kill(&c->peer);
	nvme_peer_start(&c->peer, port_nr, args);
}

void case_serve(struct fault_case *c, const char *settings)
{
	case_serve_ports(c, 1, settings);
}

static struct rig_params device_params(const struct fault_case *c, const char *options,
				       uint32_t block_bytes, unsigned queue_nr)
{
	static char yaml[1024];

	snprintf(yaml, sizeof(yaml), "uri: \"%s\"\nhost_nqn: " CASE_HOST_NQN "\n%s\n", c->peer.uri,
		 options);
	return (struct rig_params){
		.ops = backend_find("nvme-tcp"),
		.name = "test",
		.yaml = yaml,
		.block_bytes = block_bytes,
		.queue_nr = queue_nr,
		.depth = CASE_DEPTH,
	};
}

bool case_open_blocks(struct fault_case *c, const char *options, uint32_t block_bytes,
		      unsigned queue_nr)
{
	struct rig_params params = device_params(c, options, block_bytes, queue_nr);

	return case_open_rig(c, &params);
}

bool case_open(struct fault_case *c, const char *options)
{
	return case_open_blocks(c, options, 512, 1);
}

void case_refuses(struct fault_case *c, const char *options, const char *words)
{
	struct rig_params params = device_params(c, options, 512, 1);
	unsigned fds = rig_count_fds();
	regex_t regex;

	if (rig_open_device(&c->rig, &params) == 0) {
		rig_close_device(&c->rig);
		EXPECT(false, "it opens");
		return;
	}
	if (regcomp(&regex, words, REG_EXTENDED | REG_NOSUB) != 0)
		abort();
	EXPECT(regexec(&regex, c->rig.error, 0, NULL, 0) == 0, "not \"%s\" but \"%s\"", words,
	       c->rig.error);
	regfree(&regex);
	EXPECT(rig_count_fds() == fds, "%u descriptors, were %u", rig_count_fds(), fds);
}

/* ---- connections ---- */

struct net_connection_look case_look(const struct fault_case *c, unsigned idx)
{
	struct net_connection_look look = { .state = "none" };

	backend_connection(c->rig.queue[0].queue, idx, &look);
	return look;
}

/* Whether or not requests may take it. */
static bool case_serves(const struct net_connection_look *look)
{
	return strcmp(look->state, "connected") == 0 || strcmp(look->state, "unusable") == 0;
}

bool case_connected(struct fault_case *c, unsigned idx, uint64_t connects)
{
	uint64_t until_ms = case_now_ms() + 20000;
	struct net_connection_look look;

	do {
		case_turn_for(c, 2);
		look = case_look(c, idx);
	} while ((look.connects < connects || !case_serves(&look)) && case_now_ms() < until_ms);
	EXPECT(look.connects >= connects && case_serves(&look),
	       "connection %u is %s, was made %llu times, not %llu", idx, look.state,
	       (unsigned long long)look.connects, (unsigned long long)connects);
	return !tap_failed();
}

/* ---- I/O ---- */

struct rig_io *case_submit(struct fault_case *c, unsigned tag, enum backend_op op, uint32_t bytes)
{
	struct rig_io *rio = &c->rig.queue[0].io[tag];

	rio->done = NULL;
	rio->io.op = (uint8_t)op;
	rio->io.flags = 0;
	rio->io.offset_bytes = op == BACKEND_FLUSH ? 0 : (uint64_t)tag * bytes;
	rio->io.length_bytes = bytes;
	rig_submit(&c->rig, rio);
	return rio;
}

void case_fault(struct fault_case *c, const char *fault, unsigned times, const char *cmd,
		unsigned after)
{
	const char *first = strcmp(fault, "term_req") == 0 ? "1:" : "";

	if (cmd)
		nvme_peer_tell(&c->peer, "set %s=%scount=%u:cmd=%s:after=%u", fault, first, times,
			       cmd, after);
	else
		nvme_peer_tell(&c->peer, "set %s=count=%u:after=%u", fault, times, after);
}

bool case_strike(struct fault_case *c, const char *fault)
{
	char name[64];

	snprintf(name, sizeof(name), "waiting.%s", fault);
	for (int i = 0; i < 50 && nvme_peer_count(&c->peer, name) > 0; i++) {
		uint64_t failed_nr = case_survives(c, 40);

		EXPECT(failed_nr == 0, "%llu requests failed", (unsigned long long)failed_nr);
	}
	EXPECT(nvme_peer_count(&c->peer, name) == 0, "the target had no occasion for it");
	return !tap_failed();
}
