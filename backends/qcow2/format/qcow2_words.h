/* What is wrong with an image, in words for the user. */
#ifndef BACKENDS_QCOW2_FORMAT_QCOW2_WORDS_H
#define BACKENDS_QCOW2_FORMAT_QCOW2_WORDS_H

#define QCOW2_WORDS_BYTES 192u

/* Returns err, negative. The words begin with "qcow2: " and are cut to what fits. */
__attribute__((format(printf, 3, 4))) int qcow2_fail(char words[static QCOW2_WORDS_BYTES], int err,
						     const char *format, ...);

#endif
