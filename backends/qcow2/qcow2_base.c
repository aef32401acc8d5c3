/*
 * An overlay over a base whose version is known (storage/version.h), as that of an object of a web
 * server is: the header notes it (qcow2_base_note.h), and over another one the overlay is refused,
 * as its clusters fit the bytes that they were copied from. The control reactor, at open.
 *
 * Failure modes: another version, or a base that says none any more: words with the cure; no room
 * for the note: logged, and changes of the base are not noticed; the header cannot be written: the
 * open fails.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/qcow2/qcow2_opening.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/printable.h"
#include "storage/version.h"

_Static_assert(QCOW2_BASE_VERSION_BYTES == BACKEND_VERSION_BYTES, "a version has room in the note");

/* What a user repeats to accept one version and no other. */
#define BASE_TOKEN_BYTES 17

static void base_token(const char *version, char token[static BASE_TOKEN_BYTES])
{
	snprintf(token, BASE_TOKEN_BYTES, "%016llx",
		 (unsigned long long)hash_text(HASH_START, version));
}

static int base_refuse(struct qcow2_open *p, const char *was, const char *is, const char *token)
{
	return backend_fail(p->d->device, -ESTALE,
			    "qcow2: `backing` has changed, and the overlay fits what it was: %.*s, "
			    "not %.*s: bring that back, or set accept_base: %s to use the overlay "
			    "over what is there",
			    utf8_fit(was, 50), was, utf8_fit(is, 50), is, token);
}

/*
 * False: nothing is noted, and nothing is known. Where only the note is there, the base may be
 * another one: what is known of it is its size.
 */
static bool base_look(const struct qcow2_open *p, struct qcow2_base_note *ret_now)
{
	const struct backend_device *base = qcow2_child(p->d->device, (unsigned)p->d->backing_idx);
	const struct qcow2_header *h = &p->d->header;
	struct backend_version version;

	backend_version(base, &version);
	backend_version_only_lasting(&version);
	if (version.kind == BACKEND_VERSION_NONE) {
		if (!qcow2_base_note_is_of(&h->base_note, h->backing_name))
			return false;
		backend_version_of_size(backend_size(base), version.found);
	}
	qcow2_base_note_init(ret_now, h->backing_name, version.found);
	return true;
}

int qcow2_base_judge(struct qcow2_open *p)
{
	const struct qcow2_config *config = p->d->device->config;
	const struct qcow2_header *h = &p->d->header;
	const struct qcow2_base_note *noted = &h->base_note;
	char token[BASE_TOKEN_BYTES], shown[BACKEND_VERSION_BYTES];
	struct qcow2_base_note now;

	if (p->d->backing_idx < 0 || !base_look(p, &now))
		return 0;
	if (qcow2_base_note_is_of(noted, h->backing_name) &&
	    strcmp(noted->version, now.version) != 0) {
		base_token(now.version, token);
		printable(shown, sizeof(shown), noted->version, strlen(noted->version));
		if (!config->accepted_base || strcmp(config->accepted_base, token) != 0)
			return base_refuse(p, shown, now.version, token);
		log_warn("an overlay is used over a base that has changed, as accept_base says",
			 "node=%s was=\"%s\" is=\"%s\"", p->d->device->name, shown, now.version);
	}
	p->base = now;
	p->notes_base = !p->d->is_read_only && !h->base_note_is_other &&
			memcmp(noted, &now, sizeof(now)) != 0;
	return 0;
}

/* ---- the note ---- */

static void base_step(struct qcow2_open *p)
{
	if (qcow2_base_edit_next(&p->base_edit, p->buf)) {
		qcow2_open_put_header(p, p->header_bytes, base_step);
		return;
	}
	qcow2_open_saw_header(p);
	qcow2_open_mark(p);
}

static void base_begin(struct qcow2_open *p)
{
	if (qcow2_base_edit_begin(&p->base_edit, &p->base, p->buf, p->header_bytes) == 0) {
		base_step(p);
		return;
	}
	log_warn("the header of an image has no room for the version of its base: that the base "
		 "changes while no device has it is not noticed",
		 "node=%s", p->d->device->name);
	qcow2_open_mark(p);
}

void qcow2_base_note(struct qcow2_open *p)
{
	if (p->notes_base)
		qcow2_open_get_header(p, base_begin);
	else
		qcow2_open_mark(p);
}
