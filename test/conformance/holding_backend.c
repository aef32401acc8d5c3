#include "holding_backend.h"

#include <string.h>

#include "base/util.h"

bool keeps;
struct backend_io *kept, *kept_of[DEPTH];
unsigned room = DEPTH;
unsigned out_nr;
uint8_t last_flags;
unsigned submitted_nr;
uint8_t written[IO_BYTES];

static int holding_open(struct backend_device *device)
{
	device->limits.size_bytes = MIB(1);
	device->limits.caps = BACKEND_CAP_FLUSH | BACKEND_CAP_FUA | BACKEND_CAP_WRITE_ZEROES;
	return 0;
}

static enum backend_submit holding_submit(struct backend_io *io)
{
	if (keeps && out_nr >= room)
		return BACKEND_BUSY;
	submitted_nr++;
	last_flags = io->flags;
	if (io->op == BACKEND_WRITE)
		memcpy(written, io->buf, IO_BYTES);
	if (keeps) {
		kept = kept_of[io->tag] = io;
		out_nr++;
		return BACKEND_QUEUED;
	}
	io->result = 0;
	return BACKEND_DONE;
}

const struct backend holding_backend = { .name = "holding",
					 .open = holding_open,
					 .submit = holding_submit };
