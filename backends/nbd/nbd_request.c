/* Encodes NBD requests. Pure functions, any thread; what cannot be sent is a bug of the caller. */
#include "backends/nbd/nbd_request.h"

#include "base/assert.h"

uint32_t nbd_request_encode(uint8_t buf[static NBD_REQUEST_BYTES_MAX], const struct nbd_request *r,
			    bool extended)
{
	/* Extended headers say by a flag that the length is one of payload: "Request message". */
	uint16_t payload = extended && r->cmd == NBD_CMD_WRITE ? NBD_CMD_FLAG_PAYLOAD_LEN : 0;
	uint8_t *at = be_put32(buf, extended ? NBD_EXTENDED_REQUEST_MAGIC : NBD_REQUEST_MAGIC);

	at = be_put16(at, r->flags | payload);
	at = be_put16(at, r->cmd);
	at = be_put64(at, r->cookie);
	at = be_put64(at, r->offset_bytes);
	if (extended) {
		be_put64(at, r->length_bytes);
		return NBD_EXTENDED_REQUEST_BYTES;
	}
	ASSERT(r->length_bytes <= UINT32_MAX);
	be_put32(at, (uint32_t)r->length_bytes);
	return NBD_REQUEST_BYTES;
}

uint32_t nbd_request_encode_disc(uint8_t buf[static NBD_REQUEST_BYTES_MAX], bool extended)
{
	return nbd_request_encode(buf, &(struct nbd_request){ .cmd = NBD_CMD_DISC }, extended);
}

struct rule {
	uint16_t needs;	   /* transmission flags; 0: every server has the command */
	bool writes;	   /* not to a read-only export */
	uint16_t flags_ok; /* command flags that it may have, each if the server offers it */
};

static const struct rule rules[NBD_CMD_NR] = {
	[NBD_CMD_READ] = { .flags_ok = NBD_CMD_FLAG_DF },
	[NBD_CMD_WRITE] = { .writes = true, .flags_ok = NBD_CMD_FLAG_FUA },
	[NBD_CMD_DISC] = { 0 },
	[NBD_CMD_FLUSH] = { .needs = NBD_FLAG_SEND_FLUSH },
	[NBD_CMD_TRIM] = { .needs = NBD_FLAG_SEND_TRIM,
			   .writes = true,
			   .flags_ok = NBD_CMD_FLAG_FUA },
	[NBD_CMD_CACHE] = { .needs = NBD_FLAG_SEND_CACHE },
	[NBD_CMD_WRITE_ZEROES] = { .needs = NBD_FLAG_SEND_WRITE_ZEROES,
				   .writes = true,
				   .flags_ok = NBD_CMD_FLAG_FUA | NBD_CMD_FLAG_NO_HOLE |
					       NBD_CMD_FLAG_FAST_ZERO },
	[NBD_CMD_BLOCK_STATUS] = { .flags_ok = NBD_CMD_FLAG_REQ_ONE },
};

bool nbd_request_allowed(const struct nbd_request *r, uint16_t transmission_flags, bool meta)
{
	const struct rule *rule = &rules[r->cmd];

	if ((transmission_flags & rule->needs) != rule->needs || (r->flags & ~rule->flags_ok))
		return false;
	if (rule->writes && (transmission_flags & NBD_FLAG_READ_ONLY))
		return false;
	if (r->cmd == NBD_CMD_BLOCK_STATUS && !meta)
		return false;
	if ((r->flags & NBD_CMD_FLAG_FUA) && !(transmission_flags & NBD_FLAG_SEND_FUA))
		return false;
	if ((r->flags & NBD_CMD_FLAG_DF) && !(transmission_flags & NBD_FLAG_SEND_DF))
		return false;
	return !(r->flags & NBD_CMD_FLAG_FAST_ZERO) ||
	       (transmission_flags & NBD_FLAG_SEND_FAST_ZERO);
}
