/* Targets on which no device can be: opening fails, in words that say the cure. */
#include <stdio.h>

#include "base/util.h"
#include "nvme_case.h"

struct refusal {
	const char *name, *settings, *tell, *options, *words;
};

static const struct refusal refusals[] = {
	{ "a host that is not allowed", "allow_host=nqn.2026-01.org.example:other", NULL, "",
	  "does not allow the host " CASE_HOST_NQN ": add this NQN to its allowed hosts" },
	{ "Connect: no such subsystem", "reject_connect=1:0x82:dnr:result=0x10100:always", NULL, "",
	  "no subsystem " NVME_PEER_SUBSYSTEM " at this address: look for its NQN" },
	{ "Connect: a host NQN that is not taken",
	  "reject_connect=1:0x82:dnr:result=0x10200:always", NULL, "",
	  "does not take the host NQN " CASE_HOST_NQN ": allow it at the target" },
	{ "Connect: a host identifier that is not taken",
	  "reject_connect=1:0x82:dnr:result=0x10000", NULL, "",
	  "does not take the host identifier" },
	{ "Connect: a keep alive timeout that is not taken", "reject_connect=1:0x82:result=48",
	  NULL, "", "keep alive timeout of 5000 ms: choose another" },
	{ "Connect: busy", "reject_connect=1:0x81:always", NULL, "",
	  "is busy with another connection" },
	{ "Connect: elsewhere", "reject_connect=1:0x83:dnr", NULL, "",
	  "elsewhere now: look for it with ublkctl nvme-discover" },
	{ "Connect: authentication required", "reject_connect=1:0x91:dnr", NULL, "",
	  "wants authentication: set dhchap_key_file, or remove the host's key" },
	{ "Connect: authentication wanted", "authreq=2", NULL, "",
	  "DH-HMAC-CHAP authentication: set dhchap_key_file, or remove the host's key" },
	{ "Connect: an internal error", "reject_connect=0:6", NULL, "",
	  "answers to Connect: Internal Error \\(type 0, code 0x06\\)" },
	{ "never ready", "csts_never_ready=1 cap_to=1", NULL, "",
	  "did not become ready within 1000 ms, as long as it says" },
	{ "a fatal error", "csts_cfs=1", NULL, "",
	  "fatal error of its own .CSTS.CFS.: look into the log of the target" },
	{ "a discovery controller", "cntrltype=2", NULL, "",
	  "is a discovery controller: .*choose one with ublkctl nvme-discover" },
	{ "an administrative controller", "cntrltype=3", NULL, "", "is an administrative one" },
	{ "another controller than Connect's", "cntlid_add=1", NULL, "",
	  "Connect gave controller [0-9]+, Identify Controller is of [0-9]+" },
	{ "no NVM command set", "css=128", NULL, "", "does not do the NVM command set" },
	{ "queues of one entry", "mqes=0", NULL, "", "queues have one entry" },
	{ "no SGLs", "sgls=0", NULL, "", "does no SGLs" },
	{ "in-capsule data elsewhere", "icdoff=1", NULL, "", "ICDOFF 1" },
	{ "no keep alive", "kas=0", NULL, "", "does no keep alive .KAS 0.: switch it off" },
	{ "no queues", "max_queues=0", NULL, "",
	  "answers to Set Features \\(number of queues\\): Invalid Field" },
	{ "metadata", "ms=8", NULL, "", "8 bytes of metadata.*: format it without metadata" },
	{ "protection", "ms=8 dps=1", NULL, "", "and protection information.*: format it" },
	{ "blocks of 2048", "block=2048", NULL, "",
	  "blocks of 2.11 bytes: format it with blocks of 512 or 4096" },
	{ "a zoned namespace", "csi=2", NULL, "", "namespace 1 is zoned" },
	{ "several namespaces", "namespaces=3", NULL, "",
	  "several namespaces \\(1, 2, 3\\): say which one, by nsid, uuid or nguid" },
	{ "another namespace", "", NULL, "namespace: 7", "namespace 7 does not exist, .*list-ns" },
	{ "another UUID", "", NULL, "namespace: uuid.00000000-0000-4000-8000-000000000001",
	  "none of the 1 namespaces .* uuid 00000000-0000-4000-8000-000000000001: look with" },
	{ "no namespace", "", "resize 0", "", "no namespace for this host: enable one" },
	{ "no header digests", "digests=2", NULL, "header_digest: true",
	  "does not do header digests: leave out hdr_digest, or enable them" },
	{ "no data digests", "digests=1", NULL, "data_digest: true",
	  "does not do data digests: leave out data_digest, or enable them" },
	{ "digests not asked for", "digests_forced=1", NULL, "", "ICResp with digests 0x1" },
	{ "another format of PDUs", "pfv=1", NULL, "", "PDU format version 1" },
	{ "too much padding", "cpda=32", NULL, "", "ICResp with CPDA 32" },
	{ "small H2CData", "maxh2cdata=2048", NULL, "", "ICResp with MAXH2CDATA 2048" },
	{ "silence", "icresp_silent=always", NULL, "timeout: 1s",
	  "does not answer to ICReq|time is up \\(1000 ms\\) while waiting .* ICReq" },
	{ "an end instead of ICResp", "accept_close=always", NULL, "",
	  "instead of an answer to ICReq: is it an NVMe/TCP target, or does it want TLS" },
	{ "another protocol", "icresp_garbage=always", NULL, "",
	  "what answers is no NVMe/TCP target" },
	{ "an end instead of Connect", "hangup=always:cmd=connect", NULL, "",
	  "instead of an answer to Connect: it wants TLS, or its log" },
	{ "silence in the bring-up", "stall=always:cmd=identify", NULL, "timeout: 1s",
	  "does not answer to Identify Controller in time|time is up .* Identify" },
	{ "nobody", "", "stop-listening", "", "no server at 127.0.0.1:[0-9]+: is it started" },
};

static void check_refusal(struct fault_case *c, const void *arg)
{
	const struct refusal *r = arg;

	case_serve(c, r->settings);
	if (r->tell)
		nvme_peer_tell(&c->peer, "%s", r->tell);
	case_refuses(c, r->options, r->words);
	EXPECT(nvme_peer_count(&c->peer, "violations") == 0, "the client broke the protocol");
}

/* What is not a refusal: the cures of some. */
struct cure {
	const char *name, *settings, *options;
};

static void check_cure(struct fault_case *c, const void *arg)
{
	const struct cure *cure = arg;

	case_serve(c, cure->settings);
	if (case_open(c, cure->options))
		case_works(c, 40);
}

void refusals_run(uint64_t seed)
{
	static const struct cure cures[] = {
		{ "no keep alive", "kas=0", "keep_alive: 0s" },
		{ "several namespaces, one of them", "namespaces=3", "namespace: 2" },
		{ "no descriptors", "descriptors=0", "" },
		{ "version 1.2", "vs=1.2", "" },
		{ "slow to be ready", "ready_ms=700", "" },
		{ "one byte at a time", "trickle=1 mdts=1", "" },
		{ "flow control of the SQ", "sq_flow=1", "" },
	};
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(refusals); i++) {
		snprintf(name, sizeof(name), "refused: %s", refusals[i].name);
		fault_case_run(name, 60, seed, check_refusal, &refusals[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(cures); i++) {
		snprintf(name, sizeof(name), "taken: %s", cures[i].name);
		fault_case_run(name, 60, seed, check_cure, &cures[i]);
	}
}
