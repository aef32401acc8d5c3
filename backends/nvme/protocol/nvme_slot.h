/*
 * A command under way on an NVMe/TCP connection: how much of its data has been transferred. The
 * owner has it, nvme_receive.h keeps it; the thread of the connection.
 */
#ifndef BACKENDS_NVME_NVME_SLOT_H
#define BACKENDS_NVME_NVME_SLOT_H

#include <stdbool.h>
#include <stdint.h>

enum nvme_direction { NVME_NO_DATA, NVME_DATA_IN, NVME_DATA_OUT };

/* A command that waits for its completion. The owner has it, and its buffer. */
struct nvme_slot {
	uint32_t data_bytes;	       /* of its buffer */
	enum nvme_direction direction; /* as seen by the host */
	bool short_ok; /* NVME_DATA_IN: fewer bytes are a success too (came_bytes: how many) */
	/* The parser's; the owner may read them. */
	bool waiting;
	bool all_came;	      /* C2HData with LAST_PDU */
	bool digest_error;    /* of its data */
	uint32_t came_bytes;  /* NVME_DATA_IN: always the first ones of the buffer */
	uint32_t asked_bytes; /* NVME_DATA_OUT: in the capsule, or by R2Ts so far */
	uint32_t r2t_nr;      /* R2Ts that are not answered in full */
};

/* Before the command is sent. in_capsule: its data are with it, no R2T may ask for them. */
void nvme_slot_start(struct nvme_slot *slot, enum nvme_direction direction, uint32_t data_bytes,
		     bool in_capsule);

/*
 * The last H2CData of an R2T of this command was handed to the socket. Not later: what the
 * controller answers may be seen before the completion of the send.
 */
void nvme_slot_r2t_answered(struct nvme_slot *slot);

#endif
