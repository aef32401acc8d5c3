/* The simulated disk: executes file SQEs on the real files at a later virtual time, with faults. */
#ifndef SIM_DISK_H
#define SIM_DISK_H

struct sim_op;

/* Takes an SQE on a file of the host (READ, WRITE, READV, WRITEV, FSYNC, FALLOCATE). */
void disk_submit(struct sim_op *op);

#endif
