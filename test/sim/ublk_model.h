/*
 * A ublk driver as of Linux 7.2 (drivers/block/ublk_drv.c): devices, the character device and its
 * mappings, control commands, FETCH and COMMIT_AND_FETCH or their batches, bytes by the driver's
 * copy, by the server's, or in registered buffers; what becomes of a device without a server, and
 * how it gets another one. There it can be as of 6.12, too: model_is_old(). What a correct server
 * never does fails the run.
 */
#ifndef SIM_UBLK_MODEL_H
#define SIM_UBLK_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "test/sim/ring_sim.h"
#include "test/sim/world.h"
#include "ublk/openers.h"
#include "ublk/ublk_abi.h"

#define MODEL_DEV_NR 16

struct client;
struct client_rq;

struct model_tag {
	bool active;	/* the driver holds the command */
	bool owned;	/* the server holds the request */
	bool cancelled; /* aborted: never to be used again */
	struct sim_op *cmd;
	struct sim_ring *ring;	     /* the task that fetched */
	uint64_t addr;		     /* for the driver's copy */
	uint16_t buf_idx;	     /* where to register */
	struct sim_ring *registered; /* the ring whose buffer buf_idx is the request's, or NULL */
	struct client_rq *rq;	     /* started, not completed */
	bool parked;		     /* it waits for a server */
	bool was_owned;		     /* by a server that is dead */
};

struct model_queue {
	struct ublksrv_io_desc *descs;
	struct model_tag *tags;
	unsigned ready_nr;
	unsigned map_nr;
	/* batches */
	struct model_dev *dev;
	uint16_t *fifo; /* tags that wait for a FETCH */
	unsigned fifo_nr;
	struct sim_op *fetch; /* in flight, or NULL */
	struct sim_task dispatch;
	struct sim_event plug;
	bool aborted;	     /* no FETCH any more */
	bool no_server;	     /* `canceling` of the driver */
	unsigned starved_nr; /* times in a row that there was no buffer */
};

struct model_dev {
	uint32_t id;
	struct ublksrv_ctrl_dev_info info;
	struct ublk_params params;
	struct model_queue *queues;
	size_t descs_bytes;  /* of one queue's mapping */
	uint64_t node_at_ns; /* when /dev/ublkcN appears */
	uint64_t disk_at_ns; /* when udev has given /dev/ublkbN to its owner */
	bool used;	     /* has been started */
	bool has_disk;	     /* can be opened */
	bool live;	     /* and is served */
	bool stopping;	     /* no new request */
	bool deleted;	     /* DEL_DEV was accepted; goes with its last user */
	int cdev_fd;	     /* of the one opener, or -1 */
	bool releasing;	     /* closed, but the driver has yet to let go of it */
	bool slow_release;   /* that takes longer than it may */
	unsigned map_nr, file_ref_nr;
	unsigned opener_nr, probe_nr;		    /* of the block device */
	struct sim_op *start_op, *stop_op, *del_op; /* waiting commands */
	struct sim_op *recover_op;		    /* END_USER_RECOVERY */
	struct sim_op *shmem_op;		    /* REG_BUF or UNREG_BUF */
	uint8_t *shmem_view;			    /* of its client's memory; NULL: it has none */
	bool shmem_registered;
	unsigned shmem_idx;
	bool foreign_stop; /* somebody else's STOP_DEV is under way */
	struct sim_event stop_event, scan_event, foreign_event, recover_event, release_event;
	unsigned scan_left; /* reads of the partition scan before START_DEV answers */
	struct client *client;
	unsigned inflight_nr; /* requests that the server has, or is about to get, or that wait */
};

/* The world's own. */
extern struct model {
	unsigned cpu_nr;
	uint64_t features;
	bool has_del_async;
	bool unprivileged; /* the servers have no CAP_SYS_ADMIN */
	struct model_dev *devs[MODEL_DEV_NR];
	int ctl_fd;
	unsigned next_fd;
	uint64_t commit_nr;
	/* Called when a device becomes live: who uses it. */
	void (*live)(struct model_dev *dev);
} model;

void model_init(void);
/* Frees what is left, which is nothing after a good run. */
void model_fini(void);
unsigned model_dev_nr(void);
struct model_dev *model_find(uint32_t id);

/* Whether udev has given /dev/ublkbN to its owner. */
bool model_disk_is_ours(uint32_t id);

/* ring_sim.c: a uring_cmd on /dev/ublk-control or /dev/ublkcN. */
void model_uring_cmd(struct sim_op *op);
/* The device behind a descriptor of /dev/ublkcN; fails the run when there is none. */
struct model_dev *model_by_file(int fd);
void model_file_ref(int fd);
void model_file_unref(int fd);

/* ublk_ctl.c */
void model_ctl_cmd(struct sim_op *op);
/* The server is killed; these were its SQEs: each is executed now or never. */
void model_ctl_dies(struct list_node *held);
void model_check_start(struct model_dev *dev);
void model_request_done(struct model_dev *dev);
void model_stop(struct model_dev *dev, struct sim_op *op);
void model_mark_deleted(struct model_dev *dev);
/* Frees the device when nobody refers to it any more. */
void model_put(struct model_dev *dev);

/* ublk_tags.c */
void model_tag_cmd(struct model_dev *dev, struct sim_op *op);
void model_cancel_tags(struct model_dev *dev);
bool model_ready(const struct model_dev *dev);
/* Hands a request to the server through an idle tag of the queue. */
void model_dispatch(struct model_dev *dev, struct client_rq *rq);
bool model_tag_idle(const struct model_dev *dev, unsigned queue, unsigned tag);
/* The request that a tag serves, or NULL. */
struct client_rq *model_rq(const struct model_dev *dev, unsigned queue, unsigned tag);
struct model_tag *model_tag(const struct model_dev *dev, unsigned queue, unsigned tag);
/* True when the driver itself copies: between a tag's buffer and the request. */
bool model_copies(const struct model_dev *dev);
/* The tag becomes the driver's; ready: for the first time. */
void model_tag_ready(struct model_dev *dev, unsigned queue, struct model_tag *t);
/* The request of the tag becomes the server's; ring: where its pages are registered. */
void model_hand_over(struct model_dev *dev, struct model_tag *t, struct sim_ring *ring);
/* Takes that back: the server was not told. */
void model_take_back(struct model_tag *t);
/* The server hands the request back, on this ring, with this address for the driver's copy. */
void model_commit(struct model_dev *dev, struct model_tag *t, struct sim_ring *ring, int32_t result,
		  uint64_t addr);

/* The request reaches the driver's queue, perhaps again. */
void model_queue_rq(struct model_dev *dev, struct client_rq *rq, uint64_t max_delay_ns);

/* ublk_recover.c */
bool model_is_old(void);
/* Whether a server may register /dev/ublkcN with its rings. */
bool model_registers_files(void);
/* All servers are killed; their rings hold their files until then. */
void model_server_dies(uint64_t until_ns);
/* Closed by a server that lives, with a disk behind it. */
void model_release_later(struct model_dev *dev);
/* A request reaches a queue without a server. */
void model_no_server(struct model_dev *dev, struct client_rq *rq);
/* Those that wait for a server fail. */
void model_fail_parked(struct model_dev *dev);
/* A queue has all its FETCHes. */
void model_queue_ready(struct model_dev *dev, struct model_queue *queue);
int model_get_params(const struct model_dev *dev, const struct ublksrv_ctrl_cmd *cmd);
int model_start_recovery(struct model_dev *dev);
void model_end_recovery(struct model_dev *dev, struct sim_op *op);
void model_check_recovery(struct model_dev *dev);
/* The commands that waited belong to a dead server. */
void model_waiters_die(struct model_dev *dev);
/* daemon/devices/old_driver.c: a process has fetched every tag, and ended. */
void model_sweep(struct model_dev *dev);
/* Somebody deletes it. */
void model_remove(struct model_dev *dev);

/* ublk_shmem.c */
#define MODEL_SHMEM_BYTES MIB(2)
void model_shmem_cmd(struct model_dev *dev, struct sim_op *op);
/* A request has ended. */
void model_shmem_look(struct model_dev *dev);
/* Where a request's pages are in the client's memory, or NULL: elsewhere. */
uint8_t *model_shmem_pages(const struct model_dev *dev, const struct client_rq *rq);
/* Of such a request, when the memory is registered: addr of its descriptor. */
uint64_t model_shmem_addr(const struct model_dev *dev, const struct client_rq *rq);

/* zones/ublk_zones.c: what the driver has of UBLK_F_ZONED. Of SET_PARAMS: 0 or -errno. */
int model_zones_validate(const struct model_dev *dev, const struct ublk_params *params);
/* Whether a command's addr is the sector of an append, and no buffer. */
bool model_takes_sector(const struct model_dev *dev, const struct ublksrv_io_cmd *cmd);
/* Gives the append in a COMMIT its sector. Returns the address that is left of the command. */
uint64_t model_zones_take_sector(const struct model_dev *dev, struct client_rq *rq,
				 const struct ublksrv_io_cmd *cmd);
/* True: the result is one of a zone request, whose bytes the driver does not count. */
bool model_zones_check_result(const struct client_rq *rq, int32_t result);

/* ublk_batch.c */
bool model_is_batch(const struct model_dev *dev);
void model_batch_cmd(struct model_dev *dev, struct sim_op *op);
/* A request has come for the tag. */
void model_batch_push(struct model_dev *dev, unsigned queue, unsigned tag);
void model_batch_cancel(struct model_queue *queue);

#endif
