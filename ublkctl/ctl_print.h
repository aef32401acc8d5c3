/* The data of answers of ublkd on stdout: tables and words for people, or JSON. */
#ifndef UBLKCTL_CTL_PRINT_H
#define UBLKCTL_CTL_PRINT_H

#include <jansson.h>

void print_list(const json_t *devices);
void print_device(const json_t *device);
/* Nothing when there are none. */
void print_caches(const json_t *caches);
/* Accepts NULL: the device has none. */
void print_zones(const json_t *zones);
void print_integrity(const json_t *integrity);
void print_shmem(const json_t *buffers);
/* Limits that limit nothing are left out. */
void print_throttle(const json_t *limits);
void print_reactors(const json_t *reactors);
void print_inflight(const json_t *data);
void print_orphans(const json_t *data);
void print_resize(const json_t *data);

/* As it came, for other programs; what does something to a terminal has JSON's own escapes. */
void print_json(const json_t *data);

#endif
