/* What connections do and have done, in words. Any thread. */
#include "net/session_look.h"

const char *net_end_name(enum net_end end)
{
	static const char *const name[NET_END_NR] = { "closed",	   "unreachable", "refused",
						      "silent",	   "protocol",	  "shutdown",
						      "cancelled", "changed" };

	return end < NET_END_NR ? name[end] : "?";
}
