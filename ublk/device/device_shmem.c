/*
 * Memory that clients share with a device (ublk/shmem.h), while it goes on serving. Main thread.
 *
 * Happy path: a descriptor is looked at and mapped -> REG_BUF pins its pages in the driver -> the
 * reactors may use the mapping. The other way: they may not -> UNREG_BUF, which waits for the
 * requests that do -> it is unmapped. The device's end unmaps all; the driver forgets them with the
 * device, not with its server.
 *
 * Failure modes: the descriptor is not what may be shared: words. A request has been served for
 * long: refused, since both commands wait for all requests, and meanwhile the driver takes no other
 * command about the device; if this process were killed then, neither its end nor a recovery could
 * come to an end (blk_mq_freeze_queue under ub->mutex). The driver refuses: the event has words.
 */
#include "ublk/device/device_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "ublk/device/inflight.h"
#include "ublk/shmem.h"

/* A request that has been served for so long may be served for ever. */
#define SHMEM_STUCK_NS NS_PER_SEC

struct device_shmem {
	struct shmem_buffers buffers;
	char file[SHMEM_BUFFERS_MAX][DEVICE_SHMEM_FILE_BYTES];
	struct ctl_cmd cmd;
	struct ublk_shmem_buf_reg reg;
	/* What is under way, and what came of the last. */
	struct device_shmem_end end;
	struct shmem_map *map;
	bool busy;
};

/* ---- with the device ---- */

int device_shmem_init(struct device *d)
{
	struct device_shmem *s;
	int ret;

	if (!d->data.shmem)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->end.fd = -1;
	s->buffers.align_mask = MAX(d->backend->limits.dma_alignment_bytes, 1u) - 1;
	ret = ctl_cmd_init(&s->cmd, d->host->ctl);
	if (ret < 0) {
		free(s);
		return ret;
	}
	d->shmem = s;
	return 0;
}

void device_shmem_fini(struct device *d)
{
	struct device_shmem *s = d->shmem;

	if (!s)
		return;
	ctl_cmd_fini(&s->cmd);
	for (unsigned i = 0; i < SHMEM_BUFFERS_MAX; i++)
		shmem_map_close(s->buffers.buffer[i].map);
	free(s);
	d->shmem = NULL;
}

const struct shmem_buffers *device_shmem_buffers(const struct device *d)
{
	return d->shmem ? &d->shmem->buffers : NULL;
}

bool device_shmem_busy(const struct device *d)
{
	return d->shmem && d->shmem->busy;
}

/* ---- what may be done ---- */

static int shmem_refuse(int err, const char *words, char *error, size_t error_bytes)
{
	snprintf(error, error_bytes, "%s", words);
	return err;
}

static void note_oldest(const struct inflight_io *io, void *arg)
{
	uint64_t *oldest_ns = arg;

	*oldest_ns = MIN(*oldest_ns, io->start_ns);
}

/* How long the oldest request has been served. */
static uint64_t longest_ns(const struct device *d)
{
	uint64_t now_ns = ring_clock_ns(), oldest_ns = now_ns;
	struct inflight_queue queue;

	for (unsigned i = 0; i < d->spec.queues; i++)
		device_inflight(d, i, &queue, note_oldest, &oldest_ns);
	return now_ns - oldest_ns;
}

static int shmem_check_free(const struct device *d, char *error, size_t error_bytes)
{
	uint64_t waited_ns;

	if (d->state != DEVICE_LIVE || d->stop_wanted || ctl_cmd_busy(&d->cmd)) {
		snprintf(error, error_bytes,
			 "the device is not live (%s): try again when ublkctl list says that it is",
			 device_state_name(d->state));
		return -EBUSY;
	}
	if (!d->shmem)
		return shmem_refuse(-EOPNOTSUPP,
				    "the device was started without shared_memory: set it in its "
				    "configuration to the bytes that clients may share, and reload",
				    error, error_bytes);
	if (d->shmem->busy)
		return shmem_refuse(-EBUSY,
				    "memory is being shared with the device, or taken back: try "
				    "again",
				    error, error_bytes);
	waited_ns = longest_ns(d);
	if (waited_ns < SHMEM_STUCK_NS)
		return 0;
	snprintf(
		error, error_bytes,
		"a request has been served for %llu s, and the driver would wait for it: try again "
		"when ublkctl inflight says that it is done",
		(unsigned long long)(waited_ns / NS_PER_SEC));
	return -EBUSY;
}

static uint64_t shared_bytes(const struct device_shmem *s)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < SHMEM_BUFFERS_MAX; i++)
		bytes += s->buffers.buffer[i].map ? s->buffers.buffer[i].map->bytes : 0;
	return bytes;
}

static int check_room(const struct device *d, const struct shmem_file *file, char *error,
		      size_t error_bytes)
{
	uint64_t have_bytes = shared_bytes(d->shmem);
	unsigned nr = 0;

	for (unsigned i = 0; i < SHMEM_BUFFERS_MAX; i++)
		nr += d->shmem->buffers.buffer[i].map != NULL;
	if (nr == SHMEM_BUFFERS_MAX)
		return shmem_refuse(
			-ENOSPC,
			"16 buffers are shared with the device, which is the limit: take "
			"one back with ublkctl unshare, or share fewer and larger ones",
			error, error_bytes);
	if (have_bytes + file->bytes <= d->spec.shmem_bytes)
		return 0;
	snprintf(error, error_bytes,
		 "%llu bytes more than the %llu that are shared would be above the device's "
		 "shared_memory of %llu: set it higher, or share less",
		 (unsigned long long)file->bytes, (unsigned long long)have_bytes,
		 (unsigned long long)d->spec.shmem_bytes);
	return -ENOSPC;
}

/* ---- the ends ---- */

/* Its name as /proc has it: for people. */
static void name_file(int fd, char name[static DEVICE_SHMEM_FILE_BYTES])
{
	char path[32];
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	len = readlink(path, name, DEVICE_SHMEM_FILE_BYTES - 1);
	name[MAX(len, 0)] = '\0';
}

static void shmem_publish(struct device_shmem *s, unsigned idx, struct shmem_map *map,
			  bool read_only)
{
	struct shmem_buffer *buffer = &s->buffers.buffer[idx];

	buffer->read_only = read_only;
	buffer->base = map->base;
	buffer->map = map;
	atomic_store_explicit(&buffer->usable_bytes, map->bytes, memory_order_release);
}

static void shmem_ended(struct device *d, int err)
{
	struct device_shmem *s = d->shmem;

	s->busy = false;
	s->end.err = err;
	device_event(d, DEVICE_EVENT_SHMEM);
	if (s->end.fd >= 0)
		close(s->end.fd);
	s->end.fd = -1;
	device_check_finish(d);
}

static void shmem_command(struct device *d, uint32_t cmd_op, uint64_t data, ctl_cmd_fn *done)
{
	bool registers = cmd_op == UBLK_U_CMD_REG_BUF;
	struct ctl_request request = {
		.cmd_op = cmd_op,
		.dev_id = d->info.dev_id,
		.queue_id = -1,
		.buf = registers ? &d->shmem->reg : NULL,
		.buf_bytes = registers ? sizeof(d->shmem->reg) : 0,
		.data = data,
	};

	d->shmem->busy = true;
	ctl_cmd_send(&d->shmem->cmd, &request, done);
}

static void shmem_failed(struct device *d, const struct ctl_cmd *cmd, int err)
{
	const char *words = ctl_explain(cmd->request.cmd_op, err);

	snprintf(d->shmem->end.words, sizeof(d->shmem->end.words), "%s failed: %s%s%s",
		 ctl_cmd_name(cmd->request.cmd_op), errname(err), *words ? ": " : "", words);
	shmem_ended(d, err);
}

/* ---- share ---- */

/* An index above ours: the driver has buffers of a server before us that nobody noted. */
static void unregistered_again(struct ctl_cmd *cmd, int res)
{
	struct device_shmem *s = container_of(cmd, struct device_shmem, cmd);
	struct device *d = s->end.device;

	(void)res;
	snprintf(s->end.words, sizeof(s->end.words),
		 "the driver has too many buffers of the device: remove the device and add it "
		 "again");
	shmem_ended(d, -ENOSPC);
}

static void registered(struct ctl_cmd *cmd, int res)
{
	struct device_shmem *s = container_of(cmd, struct device_shmem, cmd);
	struct device *d = s->end.device;
	struct shmem_map *map = s->map;

	s->map = NULL;
	if (res >= 0 && res < (int)SHMEM_BUFFERS_MAX && !s->buffers.buffer[res].map) {
		s->end.idx = (unsigned)res;
		name_file(s->end.fd, s->file[res]);
		shmem_publish(s, s->end.idx, map, s->reg.flags & UBLK_SHMEM_BUF_READ_ONLY);
		shmem_ended(d, 0);
		return;
	}
	shmem_map_close(map);
	if (res < 0)
		shmem_failed(d, cmd, res);
	else
		shmem_command(d, UBLK_U_CMD_UNREG_BUF, (uint64_t)res, unregistered_again);
}

int device_shmem_share(struct device *d, int fd, bool read_only, char *error, size_t error_bytes)
{
	char words[SHMEM_ERROR_BYTES];
	struct shmem_file file;
	struct device_shmem *s;
	int ret = shmem_check_free(d, error, error_bytes);

	if (ret < 0)
		return ret;
	s = d->shmem;
	ret = shmem_file_check(fd, shmem_wants_sealed(d->spec.backend), &file, words);
	if (ret < 0)
		return shmem_refuse(ret, words, error, error_bytes);
	ret = check_room(d, &file, error, error_bytes);
	if (ret < 0)
		return ret;
	file.read_only |= read_only;
	ret = shmem_map_open(&s->map, fd, file.bytes, file.page_bytes, file.read_only);
	if (ret < 0) {
		snprintf(error, error_bytes, "the memory cannot be mapped: %s%s", errname(ret),
			 ret == -ENOMEM ? ": there are too few huge pages, perhaps" : "");
		return ret;
	}
	s->end = (struct device_shmem_end){ .device = d, .shares = true };
	s->end.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	s->reg = (struct ublk_shmem_buf_reg){
		.addr = (uint64_t)(uintptr_t)s->map->base,
		.len = file.bytes,
		.flags = file.read_only ? UBLK_SHMEM_BUF_READ_ONLY : 0,
	};
	shmem_command(d, UBLK_U_CMD_REG_BUF, 0, registered);
	return 0;
}

int device_shmem_restore(struct device *d, unsigned idx, int fd)
{
	char words[SHMEM_ERROR_BYTES];
	struct shmem_map *map;
	struct shmem_file file;
	int ret;

	if (!d->shmem || idx >= SHMEM_BUFFERS_MAX || d->shmem->buffers.buffer[idx].map)
		return -EINVAL;
	ret = shmem_file_check(fd, shmem_wants_sealed(d->spec.backend), &file, words);
	if (ret < 0)
		return ret;
	ret = shmem_map_open(&map, fd, file.bytes, file.page_bytes, file.read_only);
	if (ret < 0)
		return ret;
	name_file(fd, d->shmem->file[idx]);
	shmem_publish(d->shmem, idx, map, file.read_only);
	return 0;
}

/* ---- unshare ---- */

static void unregistered(struct ctl_cmd *cmd, int res)
{
	struct device_shmem *s = container_of(cmd, struct device_shmem, cmd);
	struct shmem_buffer *buffer = &s->buffers.buffer[s->end.idx];
	struct device *d = s->end.device;

	/* -ENOENT: the driver has none of this index. */
	if (res < 0 && res != -ENOENT) {
		shmem_failed(d, cmd, res);
		return;
	}
	shmem_map_close(buffer->map);
	*buffer = (struct shmem_buffer){ 0 };
	shmem_ended(d, 0);
}

int device_shmem_unshare(struct device *d, unsigned idx, char *error, size_t error_bytes)
{
	int ret = shmem_check_free(d, error, error_bytes);

	if (ret < 0)
		return ret;
	if (idx >= SHMEM_BUFFERS_MAX || !d->shmem->buffers.buffer[idx].map)
		return shmem_refuse(-ENOENT,
				    "the device has no shared buffer of this number: ublkctl show "
				    "lists them",
				    error, error_bytes);
	d->shmem->end = (struct device_shmem_end){ .device = d, .idx = idx, .fd = -1 };
	atomic_store(&d->shmem->buffers.buffer[idx].usable_bytes, 0);
	shmem_command(d, UBLK_U_CMD_UNREG_BUF, idx, unregistered);
	return 0;
}

/* ---- looks ---- */

void device_shmem_ended(const struct device *d, struct device_shmem_end *ret_end)
{
	*ret_end = d->shmem->end;
}

bool device_shmem_look(const struct device *d, unsigned idx, struct device_shmem_look *ret_look)
{
	const struct shmem_buffer *buffer = d->shmem ? &d->shmem->buffers.buffer[idx] : NULL;

	if (!buffer || !buffer->map)
		return false;
	*ret_look = (struct device_shmem_look){
		.bytes = buffer->map->bytes,
		.file = d->shmem->file[idx],
		.read_only = buffer->read_only,
		.torn = shmem_map_torn(buffer->map),
		.leaving = atomic_load(&buffer->usable_bytes) == 0,
	};
	return true;
}
