/* Of qcow2_bases.c: the row that its registry has more. */
#ifndef TEST_CUTS_QCOW2_BASES_H
#define TEST_CUTS_QCOW2_BASES_H

#include "storage/backend.h"

extern const struct backend backend_said_base;

#endif
