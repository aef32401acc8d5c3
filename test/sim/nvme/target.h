/*
 * A simulated NVMe/TCP target of one subsystem with one namespace.
 *
 *	target_conn.c	a connection: PDUs in and out, the life of a command
 *	target_io.c	commands of an I/O queue
 *	target_admin.c	controllers, and commands of their admin queue
 *	target_pages.c	what Identify says
 *	slot_nvme.c	the device on it
 *
 * A controller lives from Connect of its admin queue until both of its connections are over; when
 * one of them is, it ends the other soon, or leaves that to the host. It is strict: what a correct
 * host never does fails the run.
 */
#ifndef SIM_NVME_TARGET_H
#define SIM_NVME_TARGET_H

#include "backends/nvme/protocol/nvme_proto.h"
#include "test/sim/server/server.h"

#define TARGET_NQN "nqn.2024-01.com.example:disk"
#define TARGET_HOST_NQN "nqn.2024-01.com.example:host"
#define TARGET_HOST_ID "5ea1ca7e-0000-4000-8000-000000000001"
#define TARGET_NSID 7u
#define TARGET_PATHS_MAX 2u
#define TARGET_PAGE_BYTES NVME_IDENTIFY_BYTES

struct target {
	struct server server;
	/* how it speaks */
	uint64_t size_bytes; /* the device may have become smaller */
	uint32_t vs;
	uint64_t cap;
	uint32_t block_bytes, capsule_data_bytes, maxh2cdata_bytes;
	uint16_t maxcmd, crdt[3];
	uint8_t mdts, cpda;
	bool has_success; /* C2HData may say that their command succeeded */
	bool is_enabled;  /* controllers begin so */
	uint32_t events;  /* NVME_AEN_* */
	/* what its host was configured with */
	uint64_t keep_alive_ns;
	/* how it is */
	struct list_node controllers;
	uint16_t last_id;
	bool is_away; /* the namespace, not the target */
	uint64_t back_seq;
	struct sim_event back;
};

struct target_controller {
	struct target *target;
	struct list_node node;
	uint16_t id;
	struct target_conn *admin, *io; /* NULL: not there, or over */
	uint32_t cc;
	uint64_t turned_ns; /* from then on CSTS.RDY is CC.EN */
	bool is_fatal;
	uint64_t alive_ns; /* the host owes no sign of life for keep_alive_ns from then on */
	bool has_event;	   /* an Asynchronous Event Request is held */
	uint32_t events;   /* as the host wants them */
	struct sim_event end, keep_alive;
};

/* What comes of a command. */
struct target_answer {
	uint16_t status; /* without the phase tag */
	uint64_t result;
	uint32_t bytes;
	uint8_t page[TARGET_PAGE_BYTES];
};

enum target_queue { TARGET_NO_QUEUE, TARGET_ADMIN, TARGET_IO };

struct target_conn {
	struct server_conn c;
	struct target_controller *controller;
	enum target_queue queue;
	unsigned path;
	bool has_icreq, has_success;
	uint16_t entries_nr;
	struct list_node commands;
	struct list_node ghosts; /* answered before all that an R2T had asked for had come */
	uint16_t last_ttag;
	bool refused; /* the capsule that is coming has been answered */
};

struct target_command {
	struct sim_event event;
	struct list_node node;
	struct target_conn *conn;
	uint8_t sqe[NVME_SQE_BYTES];
	uint64_t seq; /* what was done before it came a FLUSH owes */
	/* What the host sends. */
	uint8_t *data;
	uint32_t data_bytes, came_bytes, asked_bytes;
	bool in_capsule;
	uint16_t ttag;
	/* What it gets. */
	bool done, aborted;
	uint16_t status;
	uint64_t result;
	uint8_t *reply;
	uint32_t reply_bytes, said_bytes;
};

extern const struct server_protocol target_protocol;

static inline struct target *target_of(const struct target_conn *conn)
{
	return container_of(conn->c.server, struct target, server);
}

static inline uint16_t target_cid(const struct target_command *cmd)
{
	return nvme_get16(cmd->sqe + 2);
}

/* ---- target_conn.c ---- */

/* The next step of the command, so late or a little later. */
void target_command_later(struct target_command *cmd, uint64_t max_ns);
/* It has come, but for what an R2T may have to ask for. */
struct target_command *target_command_find(const struct target_conn *conn, uint16_t cid);
/* The command ends with this, whatever becomes of its data. */
void target_command_end(struct target_command *cmd, uint16_t status);

/* ---- target_io.c ---- */

/* Fails the run if the host may not send this. How many bytes it moves, *ret_out: to the target. */
uint32_t target_io_check(const struct target_conn *conn, const uint8_t *sqe, bool *ret_out);
/* Does it, or chooses an error instead. */
void target_io_execute(struct target_command *cmd);
/* The connection is over: it was done, in part, or not. */
void target_io_lost(const struct target_command *cmd);
/* A READ: where its bytes are. */
const uint8_t *target_io_data(const struct target_command *cmd);
/* Of the request that it is for. */
unsigned target_io_tag(const struct target_conn *conn, uint16_t cid);
/* The host will see this error: it may try again, or its user may see it. */
void target_io_note(const struct target_conn *conn, uint16_t cid, uint16_t status);
/* Chooses an error that ends a command. */
uint16_t target_io_refusal(void);
/* The namespace is there again. */
void target_namespace_back(struct sim_event *event);

/* ---- target_admin.c ---- */

struct target_controller *target_controller_create(struct target *target);
void target_controller_destroy(struct target_controller *ctl);
/* The connection is over. */
void target_controller_left(struct target_conn *conn);
void target_connect(struct target_command *cmd);
/* Any command of an admin queue but Connect. data: that came with it. */
void target_admin_execute(struct target_controller *ctl, const uint8_t *sqe,
			  struct target_answer *ret);
/* It has come: true: it is held, or is about another command. */
bool target_admin_takes(struct target_command *cmd);
/* It may go wrong, while a host brings a controller up. */
bool target_admin_refuses(struct target_command *cmd);
/* An answer, or a sign of life: Keep Alive is owed from now on. */
void target_controller_lives(struct target_controller *ctl);

/* There is something to tell of the namespace, to those who want to know. */
void target_tell(const struct target *target);

/* ---- target_pages.c ---- */

void target_page_controller(const struct target *target, uint16_t id, uint8_t *page);
void target_page_limits(uint8_t *page);
void target_page_list(uint32_t after, uint8_t *page);
void target_page_ids(const struct target *target, uint8_t *page);
void target_page_namespace(const struct target *target, uint8_t *page);

#endif
