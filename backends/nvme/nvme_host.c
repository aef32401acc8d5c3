/*
 * Who this host is, to targets: /etc/nvme/hostnqn and hostid, as nvme-cli makes them, so that a
 * target knows this machine under one name; else names made from the machine's identifier (which
 * must not be told to others itself: machine-id(5)). Helper thread: reads files. Owns nothing.
 */
#include "backends/nvme/nvme_host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#define HOSTNQN_PATH "/etc/nvme/hostnqn"
#define HOSTID_PATH "/etc/nvme/hostid"

/* The first line, without the spaces at its end. False: there is none. */
static bool host_read_line(const char *path, char *buf, size_t bytes)
{
	FILE *file = fopen(path, "re");
	bool is = file && fgets(buf, (int)bytes, file);

	if (file)
		fclose(file);
	if (!is)
		return false;
	buf[strcspn(buf, " \t\r\n")] = '\0';
	return buf[0] != '\0';
}

/* A UUID of version 8 (RFC 9562 5.8): the same on each start, and no other machine's. */
static bool host_uuid_of_machine(uint8_t uuid[16])
{
	char id[64];
	uint64_t h[2];

	if (!host_read_line("/etc/machine-id", id, sizeof(id)))
		return false;
	h[0] = hash_text(HASH_START, id);
	h[1] = hash_text(hash_text(h[0], "ublkd nvme host"), id);
	memcpy(uuid, h, 16);
	uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x80);
	uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
	return true;
}

static int host_find_nqn(struct nvme_uri *uri, char *error, size_t error_bytes)
{
	char words[160];
	uint8_t uuid[16];

	if (host_read_line(HOSTNQN_PATH, uri->host_nqn, sizeof(uri->host_nqn))) {
		if (nvme_nqn_check(uri->host_nqn, words, sizeof(words)) == 0)
			return 0;
		snprintf(error, error_bytes, "nvme-tcp: %s: %s", HOSTNQN_PATH, words);
		return -EINVAL;
	}
	if (host_uuid_of_machine(uuid)) {
		nvme_nqn_of_uuid(uuid, uri->host_nqn);
		return 0;
	}
	snprintf(error, error_bytes,
		 "nvme-tcp: this host has no name: say host_nqn, or make %s with nvme gen-hostnqn",
		 HOSTNQN_PATH);
	return -ENOENT;
}

static void host_find_id(struct nvme_uri *uri)
{
	char text[64];

	if (host_read_line(HOSTID_PATH, text, sizeof(text)) &&
	    nvme_uuid_parse(text, uri->host_id) == 0)
		return;
	if (nvme_nqn_uuid(uri->host_nqn, uri->host_id) == 0 || host_uuid_of_machine(uri->host_id))
		return;
	memcpy(uri->host_id, uri->host_nqn, sizeof(uri->host_id));
}

int nvme_host_complete(struct nvme_uri *uri, char *error, size_t error_bytes)
{
	static const uint8_t none[16];
	int ret = 0;

	if (uri->host_nqn[0] == '\0')
		ret = host_find_nqn(uri, error, error_bytes);
	if (ret == 0 && memcmp(uri->host_id, none, sizeof(none)) == 0)
		host_find_id(uri);
	return ret;
}
