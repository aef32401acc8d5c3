/*
 * The key of an encrypted image: the passphrase is read from its file by a helper, the LUKS header
 * by requests of the open, and another helper derives the key, which takes seconds. What is secret
 * is in memory that is not dumped, and wiped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/qcow2/qcow2_opening.h"
#include "base/util.h"
#include "net/secret_file.h"
#include "reactor/helper.h"

/* ---- CRYPTO ---- */

struct unlocking {
	struct helper_job job;
	struct qcow2_open *p;
	struct qcow2_luks *luks;
	int ret;
	char words[QCOW2_LUKS_WORDS_BYTES];
};

static void unlock_work(struct helper_job *job)
{
	struct unlocking *u = container_of(job, struct unlocking, job);
	const struct qcow2_open *p = u->p;

	u->ret = qcow2_luks_unlock(&u->luks, p->crypto, p->d->header.crypto_bytes, p->key,
				   p->key_bytes, u->words);
}

static void unlock_done(struct helper_job *job)
{
	struct unlocking *u = container_of(job, struct unlocking, job);
	struct qcow2_open *p = u->p;

	p->d->luks = u->luks;
	if (u->ret < 0)
		qcow2_open_fail(p, u->ret, u->words);
	else
		qcow2_open_tables(p);
	free(u);
}

static void unlock_begin(struct qcow2_open *p)
{
	struct unlocking *u = calloc(1, sizeof(*u));

	if (!u) {
		qcow2_open_fail(p, -ENOMEM, "qcow2: out of memory");
		return;
	}
	u->p = p;
	u->job = (struct helper_job){ .work = unlock_work, .done = unlock_done };
	p->visit->doing = "unlocking the image";
	if (p->visit->helpers && helper_start(p->visit->helpers, &u->job) == 0)
		return;
	unlock_work(&u->job);
	unlock_done(&u->job);
}

static void read_crypto(struct qcow2_open *p);

static void crypto_read(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = qcow2_opening_of(visit);
	const struct qcow2_header *h = &p->d->header;
	uint64_t bytes = qcow2_open_chunk(p, p->end - p->at);
	uint64_t done = p->at - h->crypto_offset;

	if (result < 0) {
		qcow2_open_fail(p, result, NULL);
		return;
	}
	memcpy(p->crypto + done, p->buf, MIN(bytes, h->crypto_bytes - done));
	p->at += bytes;
	read_crypto(p);
}

static void read_crypto(struct qcow2_open *p)
{
	if (p->at < p->end)
		qcow2_open_io(p, BACKEND_READ, p->at, qcow2_open_chunk(p, p->end - p->at),
			      "reading the LUKS header", crypto_read);
	else
		unlock_begin(p);
}

/* Each image has a passphrase of its own: one that `auto` has found gets none. */
static bool was_found(const struct backend_device *device)
{
	const struct backend_device *over = device->parent;
	const char *word = over && over->ops == device->ops ? qcow2_backing_word(over->spec) : NULL;

	return word && strcmp(word, "auto") == 0 && strcmp(device->as->name, "backing") == 0;
}

static void fail_without_key(struct qcow2_open *p)
{
	qcow2_open_fail(
		p, -EINVAL,
		was_found(p->d->device)
			? "qcow2: the image is encrypted, and backing: auto has no key_file "
			  "for it: write {type: qcow2, key_file: FILE, data: ...} in the "
			  "place of auto"
			: "qcow2: the image is encrypted: set key_file to the file with "
			  "its passphrase");
}

void qcow2_open_crypto(struct qcow2_open *p)
{
	const struct qcow2_header *h = &p->d->header;

	if (h->crypt == QCOW2_CRYPT_NONE) {
		qcow2_open_tables(p);
		return;
	}
	if (!p->key) {
		fail_without_key(p);
		return;
	}
	if (h->crypto_bytes > QCOW2_LUKS_BYTES_MAX) {
		qcow2_open_fail(p, -EINVAL, "qcow2: the LUKS header is too large");
		return;
	}
	p->crypto = malloc(h->crypto_bytes);
	if (!p->crypto) {
		qcow2_open_fail(p, -ENOMEM, "qcow2: out of memory");
		return;
	}
	p->at = h->crypto_offset;
	p->end = p->at + round_up(h->crypto_bytes, qcow2_open_block(p));
	read_crypto(p);
}

int qcow2_open_key(struct qcow2_device *d, struct qcow2_open *p)
{
	const struct qcow2_config *config = d->device->config;
	size_t bytes;
	ssize_t n;
	int fd;

	if (!config->key_file)
		return 0;
	fd = secret_file_open(config->key_file, FILE_SECRET, &bytes, d->device->error,
			      sizeof(d->device->error));
	if (fd < 0)
		return fd;
	p->key = mmap(NULL, QCOW2_KEY_BYTES_MAX, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	n = p->key == MAP_FAILED ? -1 : read(fd, p->key, QCOW2_KEY_BYTES_MAX);
	close(fd);
	if (p->key == MAP_FAILED)
		p->key = NULL;
	if (n < 0 || n == QCOW2_KEY_BYTES_MAX)
		return backend_fail(d->device, -EINVAL,
				    "qcow2: key_file cannot be read, or is longer "
				    "than %u bytes",
				    QCOW2_KEY_BYTES_MAX);
	madvise(p->key, QCOW2_KEY_BYTES_MAX, MADV_DONTDUMP);
	/* An editor's line end is no part of a passphrase. */
	while (n > 0 && (p->key[n - 1] == '\n' || p->key[n - 1] == '\r'))
		n--;
	p->key_bytes = (size_t)n;
	return 0;
}

void qcow2_open_key_free(struct qcow2_open *p)
{
	if (!p->key)
		return;
	explicit_bzero(p->key, QCOW2_KEY_BYTES_MAX);
	munmap(p->key, QCOW2_KEY_BYTES_MAX);
}
