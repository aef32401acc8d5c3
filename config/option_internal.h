/* Between option.c, option_value.c, option_list.c, option_man.c, units.c and nearest.c only. */
#ifndef CONFIG_OPTION_INTERNAL_H
#define CONFIG_OPTION_INTERNAL_H

#include "config/option.h"

/* Any number, size and duration has room here, as option_format_number writes it. */
#define OPTION_NUMBER_BYTES 32

/* What a type is; see option_value.c. */
struct option_kind {
	const char *noun; /* "expected <noun>" */
	size_t bytes;	  /* of the field */
	/* Returns 0, -EINVAL with the error added and the field as it was, or -ENOMEM. */
	int (*set)(const struct option *o, struct yaml_node *value, void *field,
		   struct config_errors *e);
	void (*release)(void *field); /* NULL: nothing is owned; OPTION_MAP: has its own */
	bool (*equal)(const void *a, const void *b);
};

const struct option_kind *option_kind_of(const struct option *o);

/* Sets the option from a node; a null is as if the key were left out, told at key_pos if required.
 */
int option_value_set(const struct option *o, struct yaml_node *value, struct config_pos key_pos,
		     void *field, struct config_errors *e);

/* Back to the default, or to zero without one. Returns 0 or -ENOMEM. */
int option_value_reset(const struct option *o, void *field);

/* Frees what the field owns and zeroes it. */
void option_value_clear(const struct option *o, void *field);

/* Whether both fields say the same. */
bool option_value_equal(const struct option *o, const void *a, const void *b);

/* "<name>: expected <noun>, not a <kind of node>" */
int option_wrong_kind(const struct option *o, const struct yaml_node *node,
		      struct config_errors *e);

/* Index of text in o->values, or -EINVAL with the error added. */
int option_enum_find(const struct option *o, const char *text, struct config_pos pos,
		     struct config_errors *e);

/* OPTION_SET, OPTION_CPUS, OPTION_OUTAGE_TIMEOUT and OPTION_MAP: option_list.c. */
int option_set_set(const struct option *o, struct yaml_node *value, void *field,
		   struct config_errors *e);

int option_outage_timeout_set(const struct option *o, struct yaml_node *value, void *field,
			      struct config_errors *e);

/* The field may be NULL. */
int option_map_set(const struct option *o, struct yaml_node *value, void *field,
		   struct config_errors *e);
void option_map_release(const struct option *o, void *field);
bool option_map_equal(const struct option *o, const void *a, const void *b);

int option_cpus_set(const struct option *o, struct yaml_node *value, void *field,
		    struct config_errors *e);
void option_cpus_release(void *field);
bool option_cpus_equal(const void *a, const void *b);

/* The number of an OPTION_UINT, OPTION_SIZE or OPTION_DURATION. Returns as option_parse_size. */
int option_parse_number(enum option_type type, const char *text, uint64_t *ret_number);
char *option_format_number(enum option_type type, uint64_t number,
			   char buf[static OPTION_NUMBER_BYTES]);

/* A value from text as after the colon in YAML; see option.c. Fill, use node, fini. */
struct option_text {
	struct yaml_doc doc;
	struct yaml_node plain;
	struct yaml_node *node;
};

/* text must outlive t. Every node says pos. Errors are added at pos after "key: ". */
int option_text_init(struct option_text *t, const char *key, const char *text,
		     struct config_pos pos, struct config_errors *e);
void option_text_fini(struct option_text *t);

/* The best of several candidates; zeroed but for word. */
struct option_nearest {
	const char *word;
	const char *best;
	unsigned distance;
};

/* Makes name the best one when it is near, and nearer than the best so far. */
void option_nearest_try(struct option_nearest *n, const char *name);

/* ' (did you mean "x"?)', or "" without a best one. Returns buf. */
#define OPTION_HINT_BYTES 64
const char *option_nearest_hint(const struct option_nearest *n, char buf[static OPTION_HINT_BYTES]);

#endif
