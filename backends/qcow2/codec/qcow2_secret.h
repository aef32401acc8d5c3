/* Memory for keys. Any thread. */
#ifndef BACKENDS_QCOW2_CODEC_QCOW2_SECRET_H
#define BACKENDS_QCOW2_CODEC_QCOW2_SECRET_H

#include <stddef.h>

/*
 * Whole pages of their own, zeroed: in no core file, and not written to swap as long as the limit
 * of locked memory allows. NULL: no memory.
 */
void *qcow2_secret_alloc(size_t bytes);
void qcow2_secret_free(void *mem, size_t bytes); /* wipes it; accepts NULL */

#endif
