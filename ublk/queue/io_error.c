/*
 * A line of the log for failed I/Os: which, where, who said so and what it usually means. Runs on
 * the queue's reactor, in the branch that only a failed I/O takes.
 *
 * Happy path: the first of its kind in a while is told, the others are counted, and the next one
 * that is told says how many (`dropped`). log_line never waits. Each node of the tree has limits of
 * its own, allocated when the device starts: a child that fails all the time does not hide another.
 * Several reactors share the limits of a node; at worst two of them tell the same thing at once.
 */
#include "ublk/queue/io_error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"

#define PLACE_BYTES 64

struct io_errors *io_errors_create(unsigned node_nr)
{
	struct io_errors *errors;

	ASSERT(node_nr <= BACKEND_NODES_MAX);
	errors = calloc(1, sizeof(*errors) + node_nr * sizeof(errors->node[0]));
	if (errors)
		errors->node_nr = node_nr;
	return errors;
}

const char *io_error_words(int err)
{
	switch (err < 0 ? -err : err) {
	case EIO:
		return "the storage failed, or said what the block layer has no word for";
	case ENOSPC:
		return "no space is left below: a full file system, pool or quota";
	case EOPNOTSUPP:
		return "what is below cannot do this operation; it will not be asked again";
	case ETIMEDOUT:
		return "the storage did not answer in time";
	case ENOLINK:
		return "the connection to the storage is gone";
	case EREMOTEIO:
		return "the storage refused it for good: trying again does not help";
	case ENODATA:
		return "a medium error: these sectors cannot be read";
	case EILSEQ:
		return "the data does not match its checksum";
	case ENOMEM:
		return "out of memory: the block layer tries again";
	case ETOOMANYREFS:
		return "as many zones are open as can be, all by commands: close or finish one";
	case EOVERFLOW:
		return "as many zones are active as can be: finish or reset one";
	default:
		return "";
	}
}

/*
 * The deepest node that answered with an error, of several the first; NULL: none. The answers are
 * wiped: what is left of them must not speak for a later request of this tag that never comes so
 * deep.
 */
static const struct backend_device *take_culprit(struct backend_io *request)
{
	const struct backend_device *node = request->queue->device, *below = NULL;

	if (request->result >= 0)
		return NULL;
	request->result = 0;
	for (unsigned i = 0; i < node->child_nr; i++) {
		const struct backend_device *culprit = take_culprit(&request->child[i]);

		below = below ? below : culprit;
	}
	return below ? below : node;
}

/* by NULL: no node has answered. */
static struct io_error_limits *limits_of(struct io_errors *errors, const struct backend_device *by)
{
	if (!by)
		return &errors->ublkd;
	ASSERT(by->node_idx < errors->node_nr);
	return &errors->node[by->node_idx];
}

/* "sector=80 bytes=4096 "; of a FLUSH, which has no place, "". */
static const char *io_error_place(const struct backend_io *request, char text[static PLACE_BYTES])
{
	text[0] = '\0';
	if (request->op != BACKEND_FLUSH)
		snprintf(text, PLACE_BYTES, "sector=%llu bytes=%u ",
			 (unsigned long long)(request->offset_bytes >> 9), request->length_bytes);
	return text;
}

void io_error_tell(struct tag_io *io, int err)
{
	const struct queue_setup *setup = &io->queue->setup;
	const struct backend_io *request = &io->request;
	unsigned err_idx = (unsigned)MIN(-err, QUEUE_ERRNO_NR - 1);
	const struct backend_device *by = take_culprit(&io->request);
	struct io_error_limits *limits = limits_of(setup->errors, by);
	char place[PLACE_BYTES];
	uint32_t dropped;

	if (!log_limit_pass_each(&limits->limit[request->op][err_idx], 1, &dropped))
		return;
	log_warn("I/O failed",
		 "device=%s id=%d queue=%u tag=%u op=%s %serror=%s by=%s "
		 "means=\"%s\" node=%s dropped=%u",
		 setup->device_name, setup->dev_id, setup->idx, tag_of(io),
		 backend_op_name(request->op), io_error_place(request, place), errname(err),
		 by ? by->ops->name : "ublkd", io_error_words(err),
		 by ? by->name : setup->device_name, dropped);
}
