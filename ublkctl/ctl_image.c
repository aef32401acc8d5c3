/*
 * create-image, and what attach has to do with images.
 *
 * Happy path: the options of the command line become a struct image_new -> image/image_new.c makes
 * it -> it is told what was made. Failure modes: printed; a number that is none is EXIT_USAGE.
 */
#include "ublkctl/ctl_image.h"

#include <errno.h>
#include <jansson.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "config/option.h"
#include "daemon/wire/json_words.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/print/say.h"

/* ---- options ---- */

/* 0: not given. */
static uint64_t read_image_size(const char *option, const char *text)
{
	uint64_t bytes = 0;

	if (text && (option_parse_size(text, &bytes) < 0 || bytes == 0))
		ublkctl_usage_error(option, text);
	return bytes;
}

/* The version of the format, by the names that qemu-img has for them. */
static unsigned read_compat(const char *text)
{
	if (!text || strcmp(text, "1.1") == 0)
		return 3;
	if (strcmp(text, "0.10") != 0)
		ublkctl_usage_error("--compat is 0.10 or 1.1, not ", text);
	return 2;
}

static bool has_image_suffix(const char *path)
{
	char error[WORD_ERROR_BYTES];
	struct word word;

	return word_find(path, &word, error) == 0 && word.format && !word.has_format;
}

static void read_image_options(const struct ublkctl_args *a, const char *path,
			       struct image_new *ret_new)
{
	const struct ublkctl_image *i = &a->image;

	if (i->backing_format && !i->backing)
		ublkctl_usage_error("--backing-format needs --backing FILE: it is of ",
				    "the backing file");
	if (i->data_file_raw && !i->data_file)
		ublkctl_usage_error("--data-file-raw needs ", "--data-file FILE");
	*ret_new = (struct image_new){
		.path = path,
		.force = a->force,
		.backing_is_named = i->backing && has_image_suffix(i->backing),
		.create = {
			.size_bytes = read_image_size(
				"--size needs a size (examples: 512MiB, 10GiB), not ", i->size),
			.cluster_bytes = read_image_size(
				"--cluster-size needs a size (examples: 64KiB, 2MiB), not ",
				i->cluster_size),
			.refcount_bits = (unsigned)i->refcount_bits,
			.version = read_compat(i->compat),
			.extended_l2 = i->extended_l2,
			.lazy_refcounts = i->lazy_refcounts,
			.backing_name = i->backing,
			.backing_format = i->backing_format,
			.data_file_name = i->data_file,
			.data_file_raw = i->data_file_raw,
		},
	};
}

/* ---- create-image ---- */

enum exit_code ctl_image_make(const struct ublkctl_args *a, const char *path,
			      struct image_made *ret_made)
{
	char error[IMAGE_ERROR_BYTES];
	struct image_new n;

	read_image_options(a, path, &n);
	if (image_new_make(&n, ret_made, error) < 0) {
		say_to(stderr, "ublkctl: %s\n", error);
		return EXIT_REFUSED;
	}
	if (ret_made->is_detected)
		say_to(stderr,
		       "ublkctl: the backing file %s looks as if its format were %s, which is now "
		       "written into %s: --backing-format says it without looking\n",
		       a->image.backing, ret_made->backing_format, path);
	return EXIT_DONE;
}

static json_t *made_json(const struct ublkctl_args *a, const struct image_made *made)
{
	return json_pack("{s:o, s:I, s:I, s:o?, s:s?, s:b, s:o?}", "path", json_words(a->name),
			 "size_bytes", (json_int_t)made->size_bytes, "file_bytes",
			 (json_int_t)made->image_bytes, "backing",
			 a->image.backing ? json_words(a->image.backing) : NULL, "backing_format",
			 made->backing_format, "backing_format_detected", made->is_detected,
			 "data_file", a->image.data_file ? json_words(a->image.data_file) : NULL);
}

enum exit_code ublkctl_create_image(const struct ublkctl_args *a)
{
	char size[FORMAT_BYTES], file[FORMAT_BYTES];
	struct image_made made;
	enum exit_code code = ctl_image_make(a, a->name, &made);
	json_t *json;

	if (code != EXIT_DONE)
		return code;
	if (a->json) {
		json = made_json(a, &made);
		print_json(json);
		json_decref(json);
		return EXIT_DONE;
	}
	say_to(stdout, "%s: a disk of %s, in a file of %s", a->name,
	       format_bytes(made.size_bytes, size), format_bytes(made.image_bytes, file));
	if (made.backing_format)
		say_to(stdout, ", over %s (%s)", a->image.backing, made.backing_format);
	putchar('\n');
	return EXIT_DONE;
}

/* ---- attach ---- */

static enum exit_code refuse_image(const char *path, const char *what, const char *cure)
{
	say_to(stderr, "ublkctl: %s %s: %s\n", path, what, cure);
	return EXIT_REFUSED;
}

/* What needs an option that only a configuration has. */
static enum exit_code check_image(const struct word *word, const char *path,
				  const struct image_probe *p)
{
	if (p->kind == IMAGE_BROKEN)
		return refuse_image(path, "cannot be served", p->words);
	if (p->kind == IMAGE_PLAIN && word->has_format)
		return refuse_image(path, "is no qcow2 image",
				    "ublkctl create-image makes one; without qcow2: before its "
				    "name the file is served as it is");
	if (p->kind == IMAGE_PLAIN)
		return refuse_image(path, "is named as a qcow2 image, and is none",
				    "--raw serves the file as it is; ublkctl create-image --force "
				    "makes it one");
	if (p->header.incompatible & QCOW2_INCOMPAT_DATA_FILE)
		return refuse_image(path, "has its data in another file",
				    "name that as data_file in a configuration file, for "
				    "ublkctl add -f");
	if (p->header.crypt != QCOW2_CRYPT_NONE)
		return refuse_image(path, "is encrypted",
				    "name the file with its passphrase as key_file in a "
				    "configuration file, for ublkctl add -f");
	return EXIT_DONE;
}

enum exit_code ctl_image_check(const struct ublkctl_args *a, const struct word *word,
			       const char *path)
{
	struct image_probe p;

	/* The daemon may read what this user may not. */
	if (image_probe(path, &p) < 0)
		return EXIT_DONE;
	if (word->format)
		return check_image(word, path, &p);
	if (p.kind != IMAGE_PLAIN && !a->raw)
		say_to(stderr,
		       "ublkctl: %s looks like a qcow2 image, and its bytes are served as they "
		       "are: attach qcow2:%s to serve what is in it\n",
		       path, path);
	return EXIT_DONE;
}

void ctl_image_hint(const char *uri, const char *node)
{
	struct image_probe p;

	if (image_probe(node, &p) < 0 || p.kind == IMAGE_PLAIN)
		return;
	say_to(stderr,
	       "ublkctl: %s looks like a qcow2 image, and its bytes are served as they are: to "
	       "serve what is in it, name it as data of a backend of type qcow2 in a configuration "
	       "file, for ublkctl add -f\n",
	       uri);
}

/* The folder of a file, without links. False: it is not there. */
static bool real_folder(const char *path, char ret_folder[static PATH_MAX])
{
	char file[PATH_MAX];

	return realpath(path, file) && realpath(dirname(file), ret_folder);
}

static bool is_inside(const char *folder, const char *outer)
{
	size_t len = strlen(outer);

	return strcmp(outer, "/") == 0 ||
	       (strncmp(folder, outer, len) == 0 && (folder[len] == '/' || folder[len] == '\0'));
}

enum exit_code ctl_image_folder(const struct ublkctl_args *a, const char *path,
				char ret_folder[static PATH_MAX])
{
	char own[PATH_MAX], base[PATH_MAX];

	ret_folder[0] = '\0';
	if (a->backing_folder && !realpath(a->backing_folder, ret_folder))
		return refuse_image(a->backing_folder, "cannot be the backing folder",
				    strerror(errno));
	if (a->backing_folder || !a->image.backing)
		return EXIT_DONE;
	if (image_path_from(path, a->image.backing, base, sizeof(base)) == 0 &&
	    real_folder(base, ret_folder) && real_folder(path, own) && is_inside(ret_folder, own))
		ret_folder[0] = '\0';
	return EXIT_DONE;
}
