/* The data of answers of ublkd on stdout: tables and words for people, or JSON. */
#ifndef UBLKCTL_CTL_PRINT_H
#define UBLKCTL_CTL_PRINT_H

#include <jansson.h>

void print_list(const json_t *devices);
void print_device(const json_t *device);
/* Limits that limit nothing are left out. */
void print_throttle(const json_t *limits);
void print_reactors(const json_t *reactors);
void print_inflight(const json_t *data);
void print_orphans(const json_t *data);
void print_resize(const json_t *data);

/* As it came, for other programs. */
void print_json(const json_t *data);

#endif
