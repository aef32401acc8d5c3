/* Between doctor.c and doctor_driver.c only. */
#ifndef UBLKCTL_DOCTOR_DRIVER_H
#define UBLKCTL_DOCTOR_DRIVER_H

enum doctor_verdict { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

/* Adds a line: what was looked at, what was found (fmt), what to do ("": nothing). */
void doctor_find(enum doctor_verdict verdict, const char *what, const char *cure, const char *fmt,
		 ...) __attribute__((format(printf, 4, 5)));

/* Whether io_uring works as the reactors need it. */
void doctor_check_ring(void);

/* Whether there is a ublk driver, and what it can. */
void doctor_check_driver(void);

#endif
