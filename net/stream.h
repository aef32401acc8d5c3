/*
 * stream: one connected socket on a reactor, for every backend that talks to a peer. Reactor thread
 * only; knows nothing of any protocol. Allocates nothing: its memory is the owner's.
 *
 * Life: stream_init -> stream_connect -> connected -> any number of stream_send, received, sent ->
 * stream_close, or the peer or the network ends it -> closed -> stream_connect again, or
 * stream_fini. Each stream_connect is answered by exactly one `closed`, never from inside a call of
 * the owner, when nothing of the kernel's points at the owner's memory any more.
 *
 * Sending: what is handed over in a turn goes out at its end in one gathering sendmsg, one at a
 * time per stream. The memory stays the owner's until sent_bytes has passed it, or until `closed`.
 *
 * Receiving: as much as there is into the stream's own memory; an owner that waits for many bytes
 * that belong elsewhere has them received there (stream_receive_into).
 *
 * With a codec (TLS) plain bytes pass through it in both directions: bytes count as sent once it
 * has taken them, and there is no receiving into the owner's memory.
 */
#ifndef NET_STREAM_H
#define NET_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "reactor/reactor.h"

struct stream;

struct stream_ops {
	void (*connected)(struct stream *s);
	/* All of it is the owner's to look at until it returns, and then gone. May close. */
	void (*received)(struct stream *s, const uint8_t *data, size_t bytes);
	/* So many of the bytes that stream_receive_into asked for are there. May close. */
	void (*received_into)(struct stream *s, size_t bytes);
	/* sent_bytes has grown. May close. */
	void (*sent)(struct stream *s);
	/*
	 * 0: by stream_close; -ECONNRESET also when the peer simply closed; else -errno of connect,
	 * send or receive.
	 */
	void (*closed)(struct stream *s, int err);
};

/* The functions of a TLS session: net/tls.h has their contracts. */
struct stream_codec {
	size_t (*feed)(void *session, const uint8_t *wire, size_t bytes);
	ssize_t (*read)(void *session, void *buf, size_t bytes);
	ssize_t (*write)(void *session, const struct iovec *iov, unsigned nr);
	size_t (*output)(const void *session, const uint8_t **ret_data);
	void (*sent)(void *session, size_t bytes);
};

struct stream_params {
	const struct stream_ops *ops;
	unsigned queue_idx, leg; /* for user_data: traces tell streams apart by them */
	/* Memory that stays the owner's and the stream's until stream_fini. */
	struct iovec
		*send; /* for send_nr pieces: so many are handed over and not yet sent at most */
	unsigned send_nr;
	uint8_t *receive; /* where bytes are received */
	size_t receive_bytes;
	uint8_t *plain; /* STREAM_PLAIN_BYTES, where a codec's bytes become plain; or NULL: never */
	/*
	 * A send that fails because the peer hung up does not close: what the peer said before is
	 * received, and then its end, or an owner who has had enough. Without it that is lost.
	 */
	bool hear_out;
};

#define STREAM_PLAIN_BYTES (16u << 10)

enum stream_state { STREAM_IDLE, STREAM_CONNECTING, STREAM_OPEN, STREAM_CLOSING };

struct stream {
	struct reactor *reactor;
	const struct stream_ops *ops;
	enum stream_state state;
	int fd, err;
	uint64_t queued_bytes; /* handed over since connected */
	uint64_t sent_bytes;   /* of those */
	/* Since stream_init; any thread may read (base/counter.h): calls of the kernel that moved
	 * bytes. */
	uint64_t wire_sent_bytes, wire_received_bytes, wire_sends, wire_receives;

	/* What follows is stream.c's. */
	struct op send_op, receive_op, cancel_op;
	struct task flush, end, arrive;
	struct iovec
		*out; /* a ring: out_nr pieces from out_first on, the first one perhaps begun */
	unsigned out_room, out_first, out_nr;
	struct msghdr msg;
	struct iovec wire; /* with a codec: what its output said */
	uint8_t *in;
	size_t in_room, in_limit; /* receive no more than in_limit at a time */
	uint8_t *into;
	size_t into_bytes;
	bool nothing_there; /* the last receive emptied the socket: poll first */
	bool hear_out;
	bool mute;	    /* with that: the peer takes nothing any more */
	bool finishing;	    /* stream_finish */
	bool connect_polls; /* send_op waits for the end of a connect */
	const struct stream_codec *codec;
	void *session;
	uint8_t *plain; /* with a codec: where its bytes become plain */
	struct sockaddr_storage address;
	socklen_t address_bytes;
};

/* Returns 0 or -ENOBUFS (too many ops). Then it needs no fini. */
int stream_init(struct stream *s, struct reactor *reactor, const struct stream_params *params);

/* Idle streams only. Accepts a zeroed one. */
void stream_fini(struct stream *s);

/*
 * Idle streams only. The address is copied. Returns 0, `connected` or `closed` follows; or -errno
 * of socket(2), and nothing follows.
 */
int stream_connect(struct stream *s, const struct sockaddr *address, socklen_t address_bytes);

/*
 * Hands bytes over, to be sent at the end of this turn or when those before them are. There must be
 * room for a piece; bytes that stand directly behind the last piece in memory only lengthen it.
 * They are sent when sent_bytes is what queued_bytes is after this call.
 */
void stream_send(struct stream *s, const void *data, size_t bytes);

static inline unsigned stream_send_room(const struct stream *s)
{
	return s->out_room - s->out_nr;
}

/*
 * From `received` or `received_into`, when all that came has been taken: the next bytes go to buf,
 * which stays the stream's until they are there or it is closed. Not with a codec.
 */
void stream_receive_into(struct stream *s, void *buf, size_t bytes);

/* How much to receive at once into the stream's own memory, from the next receive on. */
static inline void stream_receive_limit(struct stream *s, size_t bytes)
{
	s->in_limit = bytes < s->in_room ? bytes : s->in_room;
}

/* From now on all bytes pass through the codec. What it has as output is sent first. */
void stream_secure(struct stream *s, const struct stream_codec *codec, void *session);

/*
 * Before stream_close: says so much at once if the socket takes it and nothing else is on its way.
 * Nothing depends on it. Not with a codec.
 */
void stream_last_word(struct stream *s, const void *data, size_t bytes);

/* Nothing more is handed over: closes, with 0, when all of it is out, and the codec's output. */
void stream_finish(struct stream *s);

/* `closed` follows, with err, unless that has been set in motion before. Harmless when idle. */
void stream_close(struct stream *s, int err);

#endif
