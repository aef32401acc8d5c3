/* How ublkctl shows what ublkd answers: devices in words and numbers. */
#ifndef UBLKCTL_CTL_PRINT_H
#define UBLKCTL_CTL_PRINT_H

#include <jansson.h>

void ctl_print_list(const json_t *devices);
void ctl_print_device(const json_t *device);
/* Limits that limit nothing are left out. */
void ctl_print_throttle(const json_t *limits);
void ctl_print_reactors(const json_t *reactors);

/* The data as it came, for other programs. */
void ctl_print_json(const json_t *data);

#endif
