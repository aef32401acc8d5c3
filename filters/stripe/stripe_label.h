/*
 * What a stripe with `verify: true` writes in front of the bytes of each backend: to which set it
 * belongs, and which place it has there. One block, in a chunk of its own, so that data stay
 * aligned and the label stays where it is when the backend grows. All numbers are little-endian.
 * Pure.
 *
 *	| label, 4 KiB | nothing, to the end of the chunk | chunks of data ... |
 *
 * A set is made in two rounds, each flushed: all labels NEW, then all READY. Data are written only
 * when all are READY. So a cut in between leaves either no READY one (nothing can be lost by making
 * the set again) or a READY one and no block without a label (the second round goes on).
 */
#ifndef FILTERS_STRIPE_LABEL_H
#define FILTERS_STRIPE_LABEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STRIPE_LABEL_BYTES 4096u

enum stripe_label_kind {
	STRIPE_LABEL_NONE,    /* the block is all zeroes */
	STRIPE_LABEL_FOREIGN, /* it holds something else */
	STRIPE_LABEL_DAMAGED, /* it was one, or is of a later version */
	STRIPE_LABEL_UNREAD,  /* it could not be read; for stripe_labels_unwanted alone */
	STRIPE_LABEL_NEW,
	STRIPE_LABEL_READY,
};

struct stripe_label {
	enum stripe_label_kind kind;
	/* Of the last two: */
	uint64_t set[2]; /* random */
	uint64_t chunk_bytes;
	uint32_t child_nr, idx;
};

void stripe_label_write(const struct stripe_label *label, void *block);
void stripe_label_parse(struct stripe_label *ret_label, const void *block);

enum stripe_verdict {
	STRIPE_IS_RIGHT, /* each READY and in its place */
	STRIPE_MAKE,	 /* all labels are to be written, as NEW and then as READY */
	STRIPE_FINISH,	 /* all, as READY: the set that labels[0] says */
	STRIPE_REFUSED,
};

/*
 * What to do with the labels found on child_nr backends, in the order of the configuration, of
 * which there are 2 and more. REFUSED: words for the user, with the cure.
 */
enum stripe_verdict stripe_labels_judge(const struct stripe_label *labels, uint32_t child_nr,
					uint64_t chunk_bytes, char *words, size_t words_bytes);

/*
 * For a stripe without `verify`. True, with words for the user: these are backends of one that has
 * labels, whose data would be read a chunk too early. One label alone can also be data: the device
 * is a backend of another stripe. Nobody can tell, so that the user has to say it.
 */
bool stripe_labels_unwanted(const struct stripe_label *labels, uint32_t child_nr, char *words,
			    size_t words_bytes);

#endif
