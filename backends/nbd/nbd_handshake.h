/*
 * The client's side of the NBD handshake, from the first byte of a connection to its transmission
 * phase: a state machine over bytes, without sockets. Pure, any thread, no allocation; the owner
 * moves the bytes, keeps the time and does TLS.
 *
 * Asked for in this order: STARTTLS (only where TLS is required, and then before all else),
 * EXTENDED_HEADERS, STRUCTURED_REPLY (unless those), SET_META_CONTEXT base:allocation (if one of
 * those), then GO, INFO or LIST. What may be refused is done without; GO falls back to EXPORT_NAME
 * on servers that do not know it.
 *
 *	nbd_handshake_init(&h, &config);
 *	for (;;) {
 *		send what nbd_handshake_output says, tell by nbd_handshake_sent
 *		receive, give it to nbd_handshake_feed: until it is no longer MORE
 *	}
 *
 * Nothing of what a server sends is trusted: each length has a limit (see below), replies to what
 * was not asked end the handshake, texts are cut and made printable.
 */
#ifndef BACKENDS_NBD_NBD_HANDSHAKE_H
#define BACKENDS_NBD_NBD_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/nbd/nbd_proto.h"

/* Limits: beyond each, the handshake fails and says so. */
#define NBD_HANDSHAKE_REPLY_BYTES_MAX (8 + 2 * NBD_STRING_BYTES_MAX) /* name and description */
#define NBD_HANDSHAKE_EXPORTS_MAX 4096u				     /* in the answer to LIST */
#define NBD_HANDSHAKE_REPLIES_MAX 64u				     /* in any other answer */

#define NBD_HANDSHAKE_ERROR_BYTES 320

enum nbd_handshake_mode {
	NBD_HANDSHAKE_GO,   /* enter the transmission phase */
	NBD_HANDSHAKE_INFO, /* look at the export and leave */
	NBD_HANDSHAKE_LIST, /* look which exports there are, and leave */
};

struct nbd_handshake_config {
	enum nbd_handshake_mode mode;
	bool tls; /* required: nothing but STARTTLS is ever said in clear text */
	/* Not even asked for. */
	bool no_extended, no_structured, no_meta;
	const char *export_name; /* at most NBD_STRING_BYTES_MAX; stays the owner's, and stays */
	/*
	 * LIST: once per export. Bytes of the server, neither terminated nor printable
	 * (printable); valid during the call.
	 */
	void (*on_export)(void *ctx, const uint8_t *name, size_t name_bytes,
			  const uint8_t *description, size_t description_bytes);
	void *ctx;
};

/* What is known at the end of GO and INFO. */
struct nbd_export {
	/* At most INT64_MAX. Believe that of GO: nbd-server 3.24 answers INFO with 0. */
	uint64_t size_bytes;
	uint16_t flags; /* enum nbd_transmission_flags, without what makes no sense */
	bool by_name;	/* GO was unknown: EXPORT_NAME, an old server */
	bool tls;
	bool extended;	       /* headers of 32 bytes, both ways */
	bool structured;       /* replies in chunks; true with extended too */
	bool has_meta;	       /* BLOCK_STATUS may be sent */
	uint32_t meta_context; /* ... and its replies name this context */
	bool has_block_sizes;  /* false: the three are the protocol's defaults */
	uint32_t min_block_bytes, preferred_block_bytes, max_payload_bytes;
	/* What the server said, printable; "" when it did not. */
	char name[128], description[128];
};

enum nbd_handshake_step {
	NBD_HANDSHAKE_MORE,	 /* send what is to be sent, feed what comes */
	NBD_HANDSHAKE_START_TLS, /* do TLS, then nbd_handshake_tls_started, and go on */
	NBD_HANDSHAKE_DONE, /* GO: transmit. INFO, LIST: send the rest of the output and close */
	/* error says why. Send the rest of the output, if it can be done at once, and close. */
	NBD_HANDSHAKE_FAILED,
};

/* For nbd_handshake*.c, but for what has a comment that says so. */
struct nbd_handshake {
	struct nbd_handshake_config config;
	enum nbd_handshake_step step;	       /* the owner may read it */
	struct nbd_export export;	       /* the owner's when DONE */
	char error[NBD_HANDSHAKE_ERROR_BYTES]; /* the owner's when FAILED: printable words */
	/*
	 * Why: -EPROTO the server broke the protocol, -ENOENT no such export, -EACCES refused (TLS,
	 * policy), -ESHUTDOWN, -EOPNOTSUPP too old for what is wanted, -ECONNRESET
	 * nbd_handshake_eof.
	 */
	int err;

	uint8_t state;	   /* what the next in_need bytes are */
	uint32_t opt;	   /* what was asked last */
	uint32_t rep;	   /* the reply that is being received */
	uint32_t reply_nr; /* to opt, so far */
	uint16_t server_flags;
	bool has_export_info;
	uint32_t in_bytes, in_need;
	uint32_t out_bytes, out_sent;
	uint8_t in[NBD_HANDSHAKE_REPLY_BYTES_MAX];
	/* Everything that is ever said fits: it is only appended to, so it stays where it is. */
	uint8_t out[3 * (NBD_STRING_BYTES_MAX + 64) + 128];
};

/* export_name must be short enough (nbd_uri's is). */
void nbd_handshake_init(struct nbd_handshake *h, const struct nbd_handshake_config *config);

/*
 * What is to be sent now: *ret_data stays where it is until it was sent, while more may be
 * appended. Returns its size, 0: nothing.
 */
size_t nbd_handshake_output(const struct nbd_handshake *h, const uint8_t **ret_data);
void nbd_handshake_sent(struct nbd_handshake *h, size_t bytes);

/*
 * Bytes as they came, in any pieces. Returns the step, *ret_used of them were taken: all with MORE,
 * those of the handshake with DONE.
 */
enum nbd_handshake_step nbd_handshake_feed(struct nbd_handshake *h, const uint8_t *data,
					   size_t bytes, size_t *ret_used);

/* After START_TLS: what is sent and fed from now on is what TLS carries. */
void nbd_handshake_tls_started(struct nbd_handshake *h);

/* The server closed the connection: FAILED with what this means here, or DONE as it was. */
enum nbd_handshake_step nbd_handshake_eof(struct nbd_handshake *h);

#endif
