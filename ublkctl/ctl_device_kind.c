/* What is special about a device, as text for people: its zones, metadata, memory that clients
 * share. */
#include "base/format.h"
#include "base/util.h"
#include "ublkctl/client.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/print/table.h"

/* "3 of 14"; no limit: "3" */
static void limited_cell(struct table *t, unsigned long long nr, unsigned long long max)
{
	if (max > 0)
		table_cell(t, TABLE_PLAIN, "%llu of %llu", nr, max);
	else
		table_cell(t, TABLE_PLAIN, "%llu", nr);
}

void print_zones(const json_t *zones)
{
	static const char *const head[] = { "ZONES",  "SIZE", "CONVENTIONAL", "EMPTY",	"OPEN",
					    "ACTIVE", "FULL", "RESETS",	      "REFUSED" };
	char buf[FORMAT_BYTES];
	unsigned long long open;
	struct table t;

	if (!zones)
		return;
	open = client_number(zones, "implicit_open") + client_number(zones, "explicit_open");
	table_init(&t, "rrrrrrrrr");
	for (size_t i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	table_cell(&t, TABLE_PLAIN, "%llu", client_number(zones, "zones"));
	table_cell(&t, TABLE_PLAIN, "%s", format_bytes(client_number(zones, "zone_bytes"), buf));
	table_cell(&t, TABLE_PLAIN, "%llu", client_number(zones, "conventional"));
	table_cell(&t, TABLE_PLAIN, "%llu", client_number(zones, "empty"));
	limited_cell(&t, open, client_number(zones, "max_open"));
	limited_cell(&t, open + client_number(zones, "closed"), client_number(zones, "max_active"));
	table_cell(&t, TABLE_PLAIN, "%llu", client_number(zones, "full"));
	table_cell(&t, TABLE_PLAIN, "%llu", client_number(zones, "resets"));
	table_cell(&t, TABLE_PLAIN, "%llu", client_number(zones, "refused_writes"));
	table_print(&t);
	table_fini(&t);
}

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

static const char *shared_state(const json_t *buffer)
{
	if (json_is_true(json_object_get(buffer, "leaving")))
		return "is being taken back";
	if (json_is_true(json_object_get(buffer, "torn")))
		return "pages are missing: copied";
	return json_is_true(json_object_get(buffer, "read_only")) ? "writes only" : "in use";
}

void print_shmem(const json_t *buffers)
{
	static const char *const head[] = { "SHARED", "SIZE", "STATE", "FILE" };
	char size[FORMAT_BYTES];
	struct table t;
	json_t *one;
	size_t i;

	if (json_array_size(buffers) == 0)
		return;
	table_init(&t, "rrll");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(buffers, i, one)
	{
		table_cell(&t, TABLE_PLAIN, "%llu", client_number(one, "buffer"));
		table_cell(&t, TABLE_PLAIN, "%s", format_bytes(client_number(one, "bytes"), size));
		table_cell(&t, TABLE_PLAIN, "%s", shared_state(one));
		table_cell(&t, TABLE_PLAIN, "%s", client_text(one, "file"));
	}
	table_print(&t);
	table_fini(&t);
}
