/* The parts of the conformance program. */
#ifndef TEST_SUITE_H
#define TEST_SUITE_H

#include <stdint.h>

/* Of all variants those whose number modulo nr is idx. */
struct suite_part {
	unsigned idx, nr;
};

/* suite.c: every check on every variant of this part. */
void suite_run(uint64_t seed, unsigned io_nr, struct suite_part part);

/* file_cases.c: what only the file backend can meet. */
void file_cases_run(void);

/* mem_cases.c: what mem promises about memory. */
void mem_cases_run(void);

/* resize_cases.c: backends that become larger and smaller. */
void resize_cases_run(void);

/* rbd_cases.c: encrypted images. */
void rbd_cases_run(void);

/* contract.c: broken backends must be noticed by storage/io.c, or by the model. */
void contract_run(uint64_t seed);

#endif
