/* A backend for the tests of the tests: right, slow and reordering, or wrong in one chosen way. */
#ifndef TEST_TESTDEV_H
#define TEST_TESTDEV_H

#include "storage/backend.h"

extern const struct backend backend_testdev;

#endif
