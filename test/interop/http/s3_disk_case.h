/* A disk of objects in a store that misbehaves: what its cases share. */
#ifndef TEST_INTEROP_HTTP_S3_DISK_CASE_H
#define TEST_INTEROP_HTTP_S3_DISK_CASE_H

#include "web_case.h"

#define S3_CASE_NEW "create: true\nsize: 4MiB\n"

/* Of the disk that the case has too. */
extern struct rig s3_case_other;

void s3_case_serve(struct fault_case *c);
/* The disk's options and these; a request's timeout is 2 s where they have none. Until the next
 * call. */
const char *s3_case_yaml(struct fault_case *c, const char *more);
bool s3_case_open(struct fault_case *c, const char *more);
/* Both: s3_case_serve, s3_case_open. */
bool s3_case_begin(struct fault_case *c, const char *more);
/* Of a rig that opens the disk; until the next s3_case_yaml. */
struct rig_params s3_case_params(struct fault_case *c, const char *name, const char *more);
/* s3_case_other: 0 or -errno */
int s3_case_open_other(struct fault_case *c);
/* Of the store: how many objects have keys that begin so. */
unsigned s3_case_objects(struct fault_case *c, const char *prefix);
/* Nobody has broken a rule of the format. */
void s3_case_is_whole(struct fault_case *c);
/* 4 KiB of one byte; read: the first byte, or -errno. */
int s3_case_write(struct rig *rig, uint64_t offset_bytes, uint8_t byte);
int s3_case_read(struct rig *rig, uint64_t offset_bytes);

#endif
