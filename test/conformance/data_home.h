/* A data reactor on a thread of its own, for queues of what devices share (storage/sharing.h). */
#ifndef TEST_DATA_HOME_H
#define TEST_DATA_HOME_H

#include "reactor/reactor.h"

/* Returns a reason to skip, or NULL: it turns until data_home_stop. One at a time. */
const char *data_home_start(void);
void data_home_stop(void);

/* NULL: none turns. */
struct reactor *data_home(void);

#endif
