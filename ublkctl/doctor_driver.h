/* Between doctor.c, doctor_driver.c and doctor_user.c only. */
#ifndef UBLKCTL_DOCTOR_DRIVER_H
#define UBLKCTL_DOCTOR_DRIVER_H

#include <stdint.h>

enum doctor_verdict { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

/* Adds a line: what was looked at, what was found (fmt), what to do ("": nothing). */
void doctor_find(enum doctor_verdict verdict, const char *what, const char *cure, const char *fmt,
		 ...) __attribute__((format(printf, 4, 5)));

/* Whether io_uring works as the reactors need it. */
void doctor_check_ring(void);

/* Whether there is a ublk driver, and what it can. */
void doctor_check_driver(void);

/* doctor_user.c: for a process without CAP_SYS_ADMIN. */
void doctor_check_user(void);
/* The driver's UBLK_F_* are known. */
void doctor_user_features(uint64_t features);
/* /dev/ublk-control cannot be opened: EACCES, EPERM. */
void doctor_control_refused(void);

#endif
