/* The metadata that a device keeps, as text for people. */
#include "base/format.h"
#include "base/util.h"
#include "ublkctl/client.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/table.h"

void print_integrity(const json_t *integrity)
{
	static const char *const head[] = { "CHECKSUM", "METADATA", "INTERVAL",	 "REFTAG",
					    "READS",	"WRITES",   "FORGOTTEN", "HELD" };
	static const char *const counts[] = { "reads", "writes", "forgotten", "held" };
	char buf[FORMAT_BYTES];
	struct table t;

	if (!integrity)
		return;
	table_init(&t, "lrrlrrrr");
	for (size_t i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	table_cell(&t, TABLE_PLAIN, "%s", client_text(integrity, "checksum"));
	table_cell(&t, TABLE_PLAIN, "%s",
		   format_bytes(client_number(integrity, "metadata_bytes"), buf));
	table_cell(&t, TABLE_PLAIN, "%s",
		   format_bytes(client_number(integrity, "interval_bytes"), buf));
	table_cell(&t, TABLE_PLAIN, "%s",
		   json_is_true(json_object_get(integrity, "reftag")) ? "yes" : "no");
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
		table_cell(&t, TABLE_PLAIN, "%llu", client_number(integrity, counts[i]));
	table_print(&t);
	table_fini(&t);
}
