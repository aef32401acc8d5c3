/*
 * A tree of backends in configuration: `{type: throttle, ..., backend: {type: file, ...}}`, up to
 * BACKEND_DEPTH_MAX above each other. Main thread.
 */
#ifndef STORAGE_SPEC_H
#define STORAGE_SPEC_H

#include "storage/backend.h"

#define BACKEND_REGISTRY_MAX 64
#define BACKEND_SPEC_TEXT_BYTES 128

/*
 * Reads a map with `type` and the options of that type. Returns 0, -EINVAL with errors added, or
 * -ENOMEM; the caller frees *ret_spec in every case (NULL when there is nothing). What OPTION_NODEs
 * borrow from the document lives as long as that.
 */
int backend_spec_parse(struct backend_spec **ret_spec, const struct yaml_node *map,
		       struct config_errors *e);

/*
 * Any thread. The same from a text of its own, for a node that resolves: 0, or -errno with words,
 * and nothing to free. No option of it may borrow from the document (OPTION_NODE).
 */
int backend_spec_from_text(struct backend_spec **ret_spec, const char *yaml, char *error,
			   size_t error_bytes);

/*
 * Any thread. The same tree with the same structs of options, which live as long as the last spec
 * that has them. NULL: out of memory.
 */
struct backend_spec *backend_spec_copy(const struct backend_spec *spec);

/* Any thread. Accepts NULL. */
void backend_spec_free(struct backend_spec *spec);

/* Whether a device opened from a is what b asks for. */
bool backend_spec_equal(const struct backend_spec *a, const struct backend_spec *b);

/*
 * Whether they are equal but for the size options of their leaves, or of nodes that size
 * themselves, which all have one and which do not make the same size. Returns it in bytes.
 */
bool backend_spec_resized(const struct backend_spec *a, const struct backend_spec *b,
			  uint64_t *ret_a_bytes, uint64_t *ret_b_bytes);

/* Makes these size options such that the device has this size, for the next open. */
void backend_spec_set_size(struct backend_spec *spec, uint64_t size_bytes);

/* "throttle > file", "stripe > (3 file, throttle > mem)". Returns buf. */
const char *backend_spec_text(const struct backend_spec *spec,
			      char buf[static BACKEND_SPEC_TEXT_BYTES]);

unsigned backend_spec_child_nr(const struct backend_spec *spec);

/*
 * Any thread. The word that stands in the place of the child `as`, a row of spec->ops->children; it
 * is one of as->words, the pointer too. NULL: a backend does, or nothing.
 */
const char *backend_spec_word(const struct backend_spec *spec,
			      const struct backend_child_option *as);

/* Where bytes live: the leaf with this index, in the order of the configuration; NULL: there are
 * fewer. Accepts NULL. */
const struct backend_spec *backend_spec_leaf(const struct backend_spec *spec, unsigned idx);

/* Where a leaf stands. */
struct backend_leaf_place {
	/* Nothing writes it. Before: of the device; after: of the leaf. */
	bool is_only_read;
	/* The node above it that shares what is below with other devices (sharing.h), of several
	 * the lowest; NULL: none. */
	const struct backend_spec *shared;
	bool alone; /* a node above it wants it alone: struct backend's alone_below */
};

/* The same; *place says of the device what it says of the leaf when there is one. */
const struct backend_spec *backend_spec_leaf_at(const struct backend_spec *spec, unsigned idx,
						struct backend_leaf_place *place);

/* The file that holds the bytes of a leaf, by its path as configured; NULL: it has none. */
const char *backend_spec_leaf_path(const struct backend_spec *leaf);

/* The URI of a leaf that several devices can open at a time (places); NULL: it has none. */
const char *backend_spec_leaf_uri(const struct backend_spec *leaf);

/* What the content of all leaves may come to use of the machine's memory; saturates. */
uint64_t backend_spec_memory_bytes(const struct backend_spec *spec);

#endif
