/*
 * Devices on a simulated NVMe/TCP target: the product's backend. Its question to the target is
 * answered without a network in between (CMakeLists.txt wraps the functions), and nothing goes
 * wrong with it: that is for the unit tests of nvme_examine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nvme/nvme.h"
#include "backends/nvme/nvme_examine.h"
#include "storage/registry.h"
#include "test/sim/nvme/target.h"
#include "test/sim/slot.h"

/* A short session has few bytes: an old target, of which little can be asked. */
static void choose_version(struct target *target)
{
	static const uint32_t versions[] = { NVME_VS(1, 2), NVME_VS(1, 3), NVME_VS(2, 0) };

	target->vs = versions[sim.cut.on ? 0 : sim_below(ARRAY_SIZE(versions))];
}

static void choose_limits(struct target *target)
{
	static const uint32_t capsules[] = { 0, 4096, 8192, 65536 };
	const struct storage *st = target->server.st;

	target->block_bytes = st->block_bytes == 4096 && sim_one_in(2) ? 4096 : 512;
	target->capsule_data_bytes = capsules[sim_below(ARRAY_SIZE(capsules))];
	/* In a short session: ranges to discard are in capsules, blocks are not. */
	if (sim.cut.on)
		target->capsule_data_bytes = 256;
	target->maxh2cdata_bytes = (uint32_t)sim_skewed(1024, 32768) * 4;
	target->mdts = sim_one_in(2) ? 0 : (uint8_t)sim_between(1, 6);
	target->cpda = sim_one_in(2) ? 0 : (uint8_t)sim_below(32);
	target->maxcmd = sim_one_in(2) ? 0 : (uint16_t)sim_skewed(2, 128);
	for (unsigned i = 0; i < 3; i++)
		target->crdt[i] = (uint16_t)sim_skewed(0, 20);
}

static uint64_t choose_cap(void)
{
	uint64_t entries_nr = sim_one_in(2) ? 1024 : sim_skewed(2, 128);
	uint64_t timeout = sim.cut.on ? 0 : sim_skewed(0, 8); /* of 500 ms */

	return (entries_nr - 1) | timeout << 24 | (uint64_t)NVME_CAP_CSS_NVM << 37;
}

static struct target *create(unsigned idx, struct storage *st)
{
	struct target *target = calloc(1, sizeof(*target));

	server_init(&target->server, &target_protocol, idx, st);
	target->size_bytes = st->size_bytes;
	choose_version(target);
	choose_limits(target);
	target->cap = choose_cap();
	target->has_success = sim_one_in(2);
	target->is_enabled = !sim.cut.on && sim_one_in(4);
	target->events = sim_one_in(2) ? NVME_AEN_NAMESPACE : 0;
	target->server.address_nr = sim.cut.on || sim_one_in(2) ? 1 : TARGET_PATHS_MAX;
	list_init(&target->controllers);
	server_start(&target->server);
	return target;
}

/* Which namespace, in one of the ways in which it can be said. */
static const char *choose_namespace(void)
{
	static const char *const some[] = { "namespace: 7\n", "" };

	return some[sim.cut.on ? 0 : sim_below(ARRAY_SIZE(some))];
}

static void write_paths(const struct server *server, char *text, size_t text_bytes)
{
	text[0] = '\0';
	if (server->address_nr > 1)
		snprintf(text, text_bytes, "paths: '127.0.0.1:%u'\n", server_port(server, 1));
}

void slot_nvme_init(struct slot *slot)
{
	struct target *target = create(slot->idx, slot->st);
	struct server *server = &target->server;
	char waits[128], paths[64], yaml[640];

	target->keep_alive_ns = sim_one_in(4) ? 0 : sim_between(1, 10) * NS_PER_SEC;
	slot_server_choose_waits(server, waits, sizeof(waits));
	write_paths(server, paths, sizeof(paths));
	snprintf(yaml, sizeof(yaml),
		 "uri: 'nvme+tcp://127.0.0.1:%u/" TARGET_NQN "'\nhost_nqn: '" TARGET_HOST_NQN
		 "'\nhost_id: '" TARGET_HOST_ID "'\nkeep_alive: %llus\n%s%s%s",
		 server_port(server, 0), (unsigned long long)(target->keep_alive_ns / NS_PER_SEC),
		 choose_namespace(), paths, waits);
	slot->config = sim_parse_options(&backend_nvme_tcp, yaml);
}

/* Of the device that is opened next; its configuration is the product's, once it opens. */
static struct target *asked;

static void complete(struct nvme_fabrics *f, const struct target_answer *answer)
{
	const struct nvme_cqe cqe = { .result = answer->result,
				      .status = answer->status,
				      .sq_head = NVME_SQHD_NO_FLOW };

	memcpy(f->data, answer->page, answer->bytes);
	nvme_fabrics_completed(f, &cqe, answer->bytes);
}

static void ask(struct target_controller *ctl, struct nvme_fabrics *f)
{
	static struct target_answer answer;

	while (f->step == NVME_FABRICS_COMMAND || f->step == NVME_FABRICS_PAUSE) {
		if (f->step == NVME_FABRICS_PAUSE) {
			ctl->turned_ns = 0;
			nvme_fabrics_paused(f);
		} else if (f->sqe[0] == NVME_FABRICS && f->sqe[4] == NVME_FCTYPE_CONNECT) {
			answer = (struct target_answer){ .result = ctl->id };
			complete(f, &answer);
		} else {
			target_admin_execute(ctl, f->sqe, &answer);
			complete(f, &answer);
		}
	}
	if (f->step != NVME_FABRICS_DONE)
		sim_fail("a question ends with \"%s\"", f->error);
}

int __wrap_nvme_examine_begin(struct nvme_examine **ret_examine, struct reactor *reactor,
			      const struct nvme_examine_params *params, nvme_examine_fn *fn,
			      void *arg);

int __wrap_nvme_examine_begin(struct nvme_examine **ret_examine, struct reactor *reactor,
			      const struct nvme_examine_params *params, nvme_examine_fn *fn,
			      void *arg)
{
	static struct nvme_fabrics f;
	enum sim_side side = sim_cross(SIM_WORLD);
	struct target_controller *ctl = target_controller_create(asked);

	(void)ret_examine, (void)reactor;
	nvme_fabrics_init(&f, &params->fabrics);
	ask(ctl, &f);
	target_controller_destroy(ctl);
	sim_cross(side);
	fn(arg, 0, &f, "");
	return 0;
}

/* Requests wait in the device until the controller takes more commands. */
static bool is_narrow(const struct target *target, uint32_t depth)
{
	return NVME_CAP_MQES(target->cap) < depth || (target->maxcmd && target->maxcmd < depth);
}

void slot_nvme_begin(struct slot *slot, bool anew)
{
	struct server *server = slot->st->server;

	server_begin(server, anew);
	asked = container_of(server, struct target, server);
	server->filtered = slot->filters.nr > 0 || is_narrow(asked, slot->spec.depth);
	asked->is_away = false;
	sim_event_cancel(&asked->back);
	slot_server_found(server, true, (unsigned)sim_between(1, 2));
}
