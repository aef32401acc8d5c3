/*
 * Reads and writes the manifest. Owns the text of it.
 *
 * Happy path: a PUT with If-Match -> its ETag is the next one's condition. Failure modes: a PUT
 * whose answer was lost is sent again and finds itself: then who stands in the manifest decides.
 * One that is refused though nobody has changed the manifest is sent again with the ETag without
 * its quotes: Ceph's gateway (16.2) compares it so.
 */
#include "backends/s3_disk/s3_disk_lease.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

static struct s3_disk_lease *lease_of(struct s3_disk_call *call)
{
	return container_of(call, struct s3_disk_lease, call);
}

/* ---- reading ---- */

/* 0: manifest and etag are set. */
static int lease_take(struct s3_disk_lease *l, int result)
{
	const struct s3_disk_call *call = &l->call;
	int ret;

	if (result < 0) {
		snprintf(l->words, sizeof(l->words), "the manifest: %s", call->words);
		return result == -EMSGSIZE ? -EINVAL : result;
	}
	if (!call->etag[0]) {
		snprintf(l->words, sizeof(l->words), "the server says no ETag of the manifest");
		return -EINVAL;
	}
	ret = s3_disk_manifest_read(&l->manifest, l->text, call->got, l->words, sizeof(l->words));
	/* What is not understood is not to be replaced. */
	if (ret == 0)
		memcpy(l->etag, call->etag, sizeof(l->etag));
	return ret;
}

static void lease_on_read(struct s3_disk_call *call, int result)
{
	struct s3_disk_lease *l = lease_of(call);

	l->done(l, lease_take(l, result));
}

static void lease_get(struct s3_disk_lease *l, void (*done)(struct s3_disk_call *call, int result))
{
	struct s3_disk_call *call = &l->call;

	s3_disk_call_reset(call);
	snprintf(call->path, sizeof(call->path), "manifest");
	call->to = (uint8_t *)l->text;
	call->to_bytes = sizeof(l->text);
	s3_disk_call_begin(call, done);
}

void s3_disk_lease_read(struct s3_disk_lease *l,
			void (*done)(struct s3_disk_lease *lease, int result))
{
	l->done = done;
	lease_get(l, lease_on_read);
}

/* ---- writing ---- */

static void lease_put(struct s3_disk_lease *l);

/* After a PUT that was refused or may have been executed before: is what is there ours? */
static void lease_on_look(struct s3_disk_call *call, int result)
{
	struct s3_disk_lease *l = lease_of(call);
	char etag[HTTP_ETAG_BYTES];
	int ret;

	memcpy(etag, l->etag, sizeof(etag));
	ret = lease_take(l, result);
	if (ret == 0 && !l->is_new && !l->is_bare && strcmp(etag, l->etag) == 0) {
		l->is_bare = true;
		lease_put(l);
		return;
	}
	if (ret == 0 &&
	    (strcmp(l->manifest.owner, l->next.owner) != 0 || l->manifest.beat != l->next.beat ||
	     l->manifest.generation != l->next.generation)) {
		/* It is not ours to replace. */
		memcpy(l->etag, etag, sizeof(etag));
		ret = -ESTALE;
	}
	l->done(l, ret);
}

static void lease_on_written(struct s3_disk_call *call, int result)
{
	struct s3_disk_lease *l = lease_of(call);
	bool is_unsure = result == -ESTALE && (call->tries > 1 || (!l->is_new && !l->is_bare));

	if (is_unsure || (result == 0 && !call->etag[0])) {
		lease_get(l, lease_on_look);
		return;
	}
	if (result == 0) {
		l->manifest = l->next;
		memcpy(l->etag, call->etag, sizeof(l->etag));
	} else {
		snprintf(l->words, sizeof(l->words), "the manifest: %s", call->words);
	}
	l->done(l, result);
}

static void lease_condition(const struct s3_disk_lease *l, char text[S3_DISK_CONDITION_BYTES])
{
	size_t bytes = strlen(l->etag);

	if (l->is_new)
		snprintf(text, S3_DISK_CONDITION_BYTES, "If-None-Match: *");
	else if (l->is_bare && bytes > 2 && l->etag[0] == '"')
		snprintf(text, S3_DISK_CONDITION_BYTES, "If-Match: %.*s", (int)bytes - 2,
			 l->etag + 1);
	else
		snprintf(text, S3_DISK_CONDITION_BYTES, "If-Match: %s", l->etag);
}

static void lease_run_unwritable(struct task *task)
{
	struct s3_disk_lease *l = container_of(task, struct s3_disk_lease, task);

	snprintf(l->words, sizeof(l->words), "out of memory");
	l->done(l, -ENOMEM);
}

static void lease_put(struct s3_disk_lease *l)
{
	struct s3_disk_call *call = &l->call;
	int bytes = s3_disk_manifest_write(&l->next, l->text);

	s3_disk_call_reset(call);
	if (bytes < 0) {
		reactor_defer(call->client->reactor, &l->task, lease_run_unwritable);
		return;
	}
	call->method = HTTP_PUT;
	call->body = l->text;
	call->body_bytes = (size_t)bytes;
	snprintf(call->path, sizeof(call->path), "manifest");
	lease_condition(l, call->condition);
	s3_disk_call_begin(call, lease_on_written);
}

void s3_disk_lease_write(struct s3_disk_lease *l, bool is_new,
			 void (*done)(struct s3_disk_lease *lease, int result))
{
	l->done = done;
	l->is_new = is_new;
	l->next.beat++;
	lease_put(l);
}

int s3_disk_lease_init(struct s3_disk_lease *l, struct s3_disk_client *client, const char *owner)
{
	l->owner = owner;
	return s3_disk_call_init(&l->call, client);
}

void s3_disk_lease_fini(struct s3_disk_lease *l)
{
	task_cancel(&l->task);
	s3_disk_call_fini(&l->call);
}
