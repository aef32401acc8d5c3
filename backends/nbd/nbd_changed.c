/* An export that is not what it was, in words; a device that says them for as long as it fails. */
#include <stdio.h>
#include <string.h>

#include "backends/nbd/nbd.h"
#include "base/util.h"

struct words {
	char *at;
	size_t bytes, len;
};

__attribute__((format(printf, 2, 3))) static void words_add(struct words *w, const char *fmt, ...)
{
	va_list ap;

	if (w->len > 0 && w->len < w->bytes)
		w->len += (size_t)snprintf(w->at + w->len, w->bytes - w->len, ", ");
	if (w->len >= w->bytes)
		return;
	va_start(ap, fmt);
	w->len += (size_t)vsnprintf(w->at + w->len, w->bytes - w->len, fmt, ap);
	va_end(ap);
}

static void add_size(struct words *w, const char *what, uint64_t was, uint64_t is)
{
	char before[32], after[32];

	if (was != is)
		words_add(w, "%s was %s, is %s", what,
			  option_format_size(was, before, sizeof(before)),
			  option_format_size(is, after, sizeof(after)));
}

static void add_abilities(struct words *w, uint16_t was, uint16_t is)
{
	static const struct {
		uint16_t flag;
		const char *name;
	} abilities[] = {
		{ NBD_FLAG_SEND_FLUSH, "FLUSH" },
		{ NBD_FLAG_SEND_FUA, "FUA" },
		{ NBD_FLAG_SEND_TRIM, "TRIM" },
		{ NBD_FLAG_SEND_WRITE_ZEROES, "WRITE_ZEROES" },
		{ NBD_FLAG_SEND_FAST_ZERO, "FAST_ZERO" },
		{ NBD_FLAG_SEND_CACHE, "CACHE" },
		{ NBD_FLAG_SEND_DF, "DF" },
		{ NBD_FLAG_SEND_RESIZE, "RESIZE" },
		{ NBD_FLAG_CAN_MULTI_CONN, "multi-conn" },
		{ NBD_FLAG_BLOCK_STATUS_PAYLOAD, "BLOCK_STATUS_PAYLOAD" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(abilities); i++)
		if ((was ^ is) & abilities[i].flag)
			words_add(w,
				  is & abilities[i].flag ? "had no %s, has it" : "had %s, has none",
				  abilities[i].name);
}

bool nbd_changed_words(const struct nbd_export *was, const struct nbd_export *is, char *buf,
		       size_t bytes)
{
	struct words w = { .at = buf, .bytes = bytes };
	uint16_t changed = was->flags ^ is->flags;

	buf[0] = '\0';
	add_size(&w, "size", was->size_bytes, is->size_bytes);
	if (changed & NBD_FLAG_READ_ONLY)
		words_add(&w, is->flags & NBD_FLAG_READ_ONLY ? "was writable, is read-only"
							     : "was read-only, is writable");
	if (changed & NBD_FLAG_ROTATIONAL)
		words_add(&w, is->flags & NBD_FLAG_ROTATIONAL ? "was not rotational, is"
							      : "was rotational, is not");
	add_abilities(&w, was->flags, is->flags);
	add_size(&w, "smallest block", was->min_block_bytes, is->min_block_bytes);
	add_size(&w, "largest request", was->max_payload_bytes, is->max_payload_bytes);
	return w.len > 0;
}

bool nbd_changed_note(struct nbd_device *nbd, const struct nbd_export *is)
{
	char words[NET_CHANGED_BYTES];

	if (!nbd_changed_words(&nbd->found.export, is, words, sizeof(words)))
		return false;
	net_changed_note(&nbd->changed, "the export", words, nbd->name, nbd->address);
	return true;
}

const char *nbd_failure(const struct backend_device *device)
{
	const struct nbd_device *nbd = device->priv;

	return net_changed_words(&nbd->changed);
}
