/*
 * Counts of a reference count block: 1 to 64 bits wide. Pure, any thread.
 *
 * Those of 8 bits and more are big endian numbers; of narrower ones several share a byte, the first
 * in its lowest bits.
 */
#include "base/big_endian.h"
#include "backends/qcow2/format/qcow2_format.h"

/* Of order 0 to 2: the byte that holds count idx, and where in it. */
static unsigned narrow_shift(unsigned order, unsigned idx)
{
	return (idx << order) & 7;
}

static size_t narrow_byte(unsigned order, unsigned idx)
{
	return idx >> (3 - order);
}

static uint8_t narrow_mask(unsigned order)
{
	return (uint8_t)((1u << (1u << order)) - 1);
}

uint64_t qcow2_refcount_get(const void *block, unsigned order, unsigned idx)
{
	const uint8_t *at = block;

	switch (order) {
	case 3:
		return at[idx];
	case 4:
		return be_get16(at + (size_t)idx * 2);
	case 5:
		return be_get32(at + (size_t)idx * 4);
	case 6:
		return be_get64(at + (size_t)idx * 8);
	default:
		return at[narrow_byte(order, idx)] >> narrow_shift(order, idx) & narrow_mask(order);
	}
}

static void narrow_set(uint8_t *at, unsigned order, unsigned idx, uint64_t value)
{
	unsigned shift = narrow_shift(order, idx);
	uint8_t *byte = at + narrow_byte(order, idx);

	*byte = (uint8_t)((*byte & ~(narrow_mask(order) << shift)) | value << shift);
}

void qcow2_refcount_set(void *block, unsigned order, unsigned idx, uint64_t value)
{
	uint8_t *at = block;

	switch (order) {
	case 3:
		at[idx] = (uint8_t)value;
		break;
	case 4:
		be_put16(at + (size_t)idx * 2, (uint16_t)value);
		break;
	case 5:
		be_put32(at + (size_t)idx * 4, (uint32_t)value);
		break;
	case 6:
		be_put64(at + (size_t)idx * 8, value);
		break;
	default:
		narrow_set(at, order, idx, value);
	}
}
