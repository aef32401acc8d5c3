/*
 * A backend stack in configuration: `{type: throttle, ..., backend: {type: file, ...}}`, any depth
 * up to BACKEND_STACK_MAX. Main thread.
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

/* Accepts NULL. */
void backend_spec_free(struct backend_spec *spec);

/* The file that holds the bytes, by its path as configured; NULL: the lowest backend has none. */
const char *backend_spec_path(const struct backend_spec *spec);

/* Whether a device opened from a is what b asks for. */
bool backend_spec_equal(const struct backend_spec *a, const struct backend_spec *b);

/*
 * Whether they are equal but for the size option of the lowest backend, which both have and which
 * is not the same. Returns it in bytes.
 */
bool backend_spec_resized(const struct backend_spec *a, const struct backend_spec *b,
			  uint64_t *ret_a_bytes, uint64_t *ret_b_bytes);

/* Makes the lowest backend's size option another one, for the next open. */
void backend_spec_set_size(struct backend_spec *spec, uint64_t size_bytes);

/* "throttle > file". Returns buf. */
const char *backend_spec_text(const struct backend_spec *spec,
			      char buf[static BACKEND_SPEC_TEXT_BYTES]);

/* The lowest one: where the bytes live. *map (may be NULL) becomes the map that it was read from.
 */
const struct backend_spec *backend_spec_bottom(const struct backend_spec *spec,
					       const struct yaml_node **map);

#endif
