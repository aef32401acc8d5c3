/* "ub", 32 bits of hash of the control socket's path, 16 of the name. Any thread. */
#include "daemon/devices/mark.h"

#define MARK_PREFIX 0x7562ull

/* FNV-1a */
static uint32_t hash_of(const char *text)
{
	uint32_t hash = 2166136261u;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return hash;
}

uint64_t mark_of(const char *control_path, const char *name)
{
	uint32_t name_hash = hash_of(name);

	return MARK_PREFIX << 48 | (uint64_t)hash_of(control_path) << 16 |
	       ((name_hash >> 16 ^ name_hash) & 0xffff);
}

bool mark_is_of(uint64_t mark, const char *control_path)
{
	return mark >> 16 == mark_of(control_path, "") >> 16;
}

bool mark_is_ublkd(uint64_t mark)
{
	return mark >> 48 == MARK_PREFIX;
}
