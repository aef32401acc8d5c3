/* Prints the I/Os in the daemon as a table, the oldest of each device first. Nothing is owned. */
#include "ublkctl/ctl_inflight.h"

#include <stdio.h>

#include "base/util.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/table.h"
#include "base/format.h"

static const char *text(const json_t *o, const char *key)
{
	const char *value = json_string_value(json_object_get(o, key));

	return value ? value : "";
}

static long long number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static void row(struct table *t, const char *device, const json_t *io)
{
	char buf[FORMAT_BYTES];

	table_cell(t, TABLE_PLAIN, "%s", device);
	table_cell(t, TABLE_PLAIN, "%lld", number(io, "queue"));
	table_cell(t, TABLE_PLAIN, "%lld", number(io, "tag"));
	table_cell(t, TABLE_PLAIN, "%s", text(io, "op"));
	table_cell(t, TABLE_PLAIN, "%lld", number(io, "sector"));
	table_cell(t, TABLE_PLAIN, "%s", format_bytes((uint64_t)number(io, "bytes"), buf));
	table_cell(t, TABLE_PLAIN, "%s", format_ns((uint64_t)number(io, "age_ns"), buf));
	table_cell(t, TABLE_PLAIN, "%s", text(io, "state"));
	table_cell(t, TABLE_PLAIN, "%s%s%s", text(io, "backend"),
		   text(io, "backend_state")[0] ? ": " : "", text(io, "backend_state"));
}

void ctl_print_inflight(const json_t *data)
{
	static const char *const head[] = { "DEVICE", "QUEUE", "TAG",	"OP",	  "SECTOR",
					    "BYTES",  "AGE",   "STATE", "BACKEND" };
	const json_t *devices = json_object_get(data, "devices");
	json_t *device, *io;
	struct table t;
	size_t i, j, nr = 0;

	table_init(&t, "lrrlrrrll");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(devices, i, device)
	{
		json_array_foreach(json_object_get(device, "ios"), j, io)
		{
			row(&t, text(device, "name"), io);
			nr++;
		}
	}
	if (nr > 0)
		table_print(&t);
	else
		printf("no I/O in the daemon\n");
	table_fini(&t);
	json_array_foreach(devices, i, device) if (number(device, "left_out"))
		printf("%s: and %lld more\n", text(device, "name"), number(device, "left_out"));
}
