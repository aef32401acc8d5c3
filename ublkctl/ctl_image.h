/* Images of the command line: made, and looked at before they are attached. Main program. */
#ifndef UBLKCTL_CTL_IMAGE_H
#define UBLKCTL_CTL_IMAGE_H

#include <limits.h>

#include "storage/word.h"
#include "ublkctl/ctl_commands.h"
#include "ublkctl/image/image_new.h"

/* Makes the image that a->image asks for. What cannot be: printed, EXIT_REFUSED or EXIT_USAGE. */
enum exit_code ctl_image_make(const struct ublkctl_args *a, const char *path,
			      struct image_made *ret_made);

/*
 * Whether the file at this path can be attached as word says. What it is not, or what attach has no
 * option for, is printed: EXIT_REFUSED. A hint where the bytes of an image are served as they are.
 */
enum exit_code ctl_image_check(const struct ublkctl_args *a, const struct word *word,
			       const char *path);

/*
 * The same hint, after all, of what stands behind a URI: node is the block device that serves its
 * bytes. Nothing where this user may not read it.
 */
void ctl_image_hint(const char *uri, const char *node);

/*
 * Where the images below the one at this path may be, if that is not its own folder: as a->
 * backing_folder says, or where the backing file is that was asked for; "": that is it. What is not
 * there is printed: EXIT_REFUSED.
 */
enum exit_code ctl_image_folder(const struct ublkctl_args *a, const char *path,
				char ret_folder[static PATH_MAX]);

#endif
