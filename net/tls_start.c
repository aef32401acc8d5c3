/*
 * Moves the bytes of a TLS handshake between a stream and tls.h; owns neither. Reactor thread.
 *
 * Happy path: output -> stream, in one piece at a time; stream -> feed -> the next step; when it is
 * done and the last bytes without TLS are out, the stream takes TLS over. Failure modes: the
 * handshake fails: the rest of the output (an alert) is left for tls_start_say_rest.
 */
#include "net/tls_start.h"

static bool tls_start_is_sent(const struct tls_start *start)
{
	return start->stream->sent_bytes == start->stream->queued_bytes;
}

/* One piece at a time: tls_output's stays where it is until it is sent. */
static void tls_start_say(struct tls_start *start)
{
	const uint8_t *data;
	size_t bytes;

	if (!tls_start_is_sent(start) || start->said_bytes > 0)
		return;
	bytes = tls_output(start->tls, &data);
	if (bytes == 0)
		return;
	start->said_bytes = bytes;
	stream_send(start->stream, data, bytes);
}

static int tls_start_go_on(struct tls_start *start)
{
	switch (tls_handshake(start->tls)) {
	case TLS_MORE:
		tls_start_say(start);
		return 0;
	case TLS_DONE:
		if (!tls_start_is_sent(start))
			return 0;
		stream_secure(start->stream, &tls_codec, start->tls);
		return 1;
	case TLS_FAILED:
		break;
	}
	return -1;
}

static void tls_start_said(struct tls_start *start)
{
	tls_sent(start->tls, start->said_bytes);
	start->said_bytes = 0;
}

int tls_start_begin(struct tls_start *start)
{
	start->said_bytes = 0;
	return tls_start_go_on(start);
}

int tls_start_received(struct tls_start *start, const uint8_t *data, size_t bytes, size_t *ret_used)
{
	size_t used = 0, taken;
	int ret;

	do {
		taken = tls_feed(start->tls, data + used, bytes - used);
		used += taken;
		ret = tls_start_go_on(start);
	} while (ret == 0 && used < bytes && taken > 0);
	*ret_used = used;
	return ret;
}

int tls_start_sent(struct tls_start *start)
{
	tls_start_said(start);
	return tls_start_go_on(start);
}

bool tls_start_say_rest(struct tls_start *start)
{
	if (tls_start_is_sent(start))
		tls_start_said(start);
	tls_start_say(start);
	return start->said_bytes > 0;
}
