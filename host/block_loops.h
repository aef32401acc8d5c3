/*
 * What loop devices stand on. A loop device leaves no entry among the holders of a block device,
 * and /sys has only the path of its file, as it was given: so each loop device is asked for numbers
 * (LOOP_GET_STATUS64).
 */
#ifndef HOST_BLOCK_LOOPS_H
#define HOST_BLOCK_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define BLOCK_LOOP_NAME_BYTES 32

struct block_loop {
	char name[BLOCK_LOOP_NAME_BYTES]; /* "loop0" */
	dev_t dev;
	bool known;		 /* false: it could not be asked */
	dev_t below_block;	 /* it stands on a block device: its number; else 0 */
	dev_t below_file_system; /* else the number of the file system that its file is on */
};

/*
 * All loop devices that have a file. A loop device can wait for a server that is dead: each is
 * asked by a thread of its own, and after a second in all those without an answer are not known.
 * Returns 0 and an array to free(), or -errno. Any thread, also two at once; blocks.
 */
int block_loops_find(struct block_loop **ret_loops, size_t *ret_nr);

#endif
