/* See s3_disk_case.h. */
#include "s3_disk_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rig s3_case_other;

void s3_case_serve(struct fault_case *c)
{
	web_serve_store(c);
	web_tell(c, "set s3=AK:SK:us-east-1");
}

const char *s3_case_yaml(struct fault_case *c, const char *more)
{
	static char yaml[1500];
	char keys[200];

	web_write_secret(c, "keys",
			 "[default]\naws_access_key_id = AK\naws_secret_access_key = SK\n", keys);
	snprintf(yaml, sizeof(yaml),
		 "bucket: disks\nprefix: \"vm 1/a\"\nendpoint: \"http://127.0.0.1:%d\"\n"
		 "credentials_file: %s\nobject_size: 64KiB\n%s"
		 "%s%s\n",
		 atoi(strrchr(c->peer.uri, ':') + 1), keys,
		 strstr(more, "lease:") ? "" : "lease: 1s\n",
		 strstr(more, "timeout:") ? "" : "timeout: 2s\n", more);
	return yaml;
}

bool s3_case_open(struct fault_case *c, const char *more)
{
	return web_open_backend(c, "s3-disk", s3_case_yaml(c, more), 1);
}

bool s3_case_begin(struct fault_case *c, const char *more)
{
	s3_case_serve(c);
	return s3_case_open(c, more);
}

struct rig_params s3_case_params(struct fault_case *c, const char *name, const char *more)
{
	return (struct rig_params){
		.ops = backend_find("s3-disk"),
		.name = name,
		.yaml = s3_case_yaml(c, more),
		.block_bytes = 512,
		.queue_nr = 1,
		.depth = CASE_DEPTH,
	};
}

int s3_case_open_other(struct fault_case *c)
{
	struct rig_params params = s3_case_params(c, "other", S3_CASE_NEW);

	return rig_open(&s3_case_other, &params);
}

unsigned s3_case_objects(struct fault_case *c, const char *prefix)
{
	char line[100];

	snprintf(line, sizeof(line), "objects disks/vm 1/a/%s", prefix);
	return (unsigned)atoi(fault_peer_ask(&c->peer, line, "ok ") + strlen("ok "));
}

void s3_case_is_whole(struct fault_case *c)
{
	EXPECT(web_count(c, "violations") == 0, "%s", fault_peer_ask(&c->peer, "stats", "ok"));
}

int s3_case_write(struct rig *rig, uint64_t offset_bytes, uint8_t byte)
{
	static _Alignas(4096) uint8_t buf[4096];

	memset(buf, byte, sizeof(buf));
	return rig_do(rig, BACKEND_WRITE, 0, offset_bytes, sizeof(buf), buf);
}

int s3_case_read(struct rig *rig, uint64_t offset_bytes)
{
	static _Alignas(4096) uint8_t buf[4096];
	int ret = rig_do(rig, BACKEND_READ, 0, offset_bytes, sizeof(buf), buf);

	return ret < 0 ? ret : buf[0];
}
