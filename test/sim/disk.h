/* The simulated disk: executes file SQEs on the real files at a later virtual time, with faults. */
#ifndef SIM_DISK_H
#define SIM_DISK_H

#include <stdbool.h>
#include <stdint.h>

struct sim_op;

/* Takes an SQE on a file of the host (READ, WRITE, READV, WRITEV, FSYNC, FALLOCATE). */
void disk_submit(struct sim_op *op);

/*
 * Its server was killed: it is lost, or it lands now, or later. Returns until when the kernel keeps
 * the ring for it, or 0; not an SQE of the disk: also 0.
 */
uint64_t disk_orphan(struct sim_op *op);

/* Whether some of it is still to land in this file, which is locked until then. */
bool disk_has_orphans(int fd);

/* Forgets what has not landed. */
void disk_fini(void);

#endif
