/* Text in columns, for a terminal or a pipe. Owned by its user; nothing is shared. */
#ifndef UBLKCTL_PRINT_TABLE_H
#define UBLKCTL_PRINT_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum table_color { TABLE_PLAIN, TABLE_BOLD, TABLE_GREEN, TABLE_YELLOW, TABLE_RED, TABLE_DIM };

#define TABLE_CELL_BYTES 256 /* an NQN, or an address of NVMe discovery, fits */
#define TABLE_COLUMNS_MAX 20

struct table_cell {
	char text[TABLE_CELL_BYTES];
	enum table_color color;
};

struct table {
	unsigned column_nr;
	const char *align; /* one letter per column: l or r */
	struct table_cell *cells;
	size_t cell_nr, cell_max;
};

/* align also says how many columns there are: at most TABLE_COLUMNS_MAX. */
void table_init(struct table *t, const char *align);
void table_fini(struct table *t);

/* The next cell, row by row; what is too long is cut, what is not printable becomes an escape. */
void table_cell(struct table *t, enum table_color color, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* To stdout, each column as wide as its widest cell; colours only on a terminal. */
void table_print(const struct table *t);

/*
 * Text outside of tables: in that colour where stdout is a terminal, and printable as in say.h. The
 * newline belongs to what follows it. At most 1 KiB.
 */
void table_say(enum table_color color, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
