/* A TLS session as the codec of a stream; apart from tls.c, which a test replaces. Reactor thread.
 */
#include "net/tls.h"

static size_t feed(void *session, const uint8_t *wire, size_t bytes)
{
	return tls_feed(session, wire, bytes);
}

static ssize_t read_plain(void *session, void *buf, size_t bytes)
{
	return tls_read(session, buf, bytes);
}

static ssize_t write_plain(void *session, const struct iovec *iov, unsigned nr)
{
	return tls_write(session, iov, nr);
}

static size_t output(const void *session, const uint8_t **ret_data)
{
	return tls_output(session, ret_data);
}

static void codec_sent(void *session, size_t bytes)
{
	tls_sent(session, bytes);
}

const struct stream_codec tls_codec = {
	.feed = feed,
	.read = read_plain,
	.write = write_plain,
	.output = output,
	.sent = codec_sent,
};
