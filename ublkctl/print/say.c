#include "ublkctl/print/say.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"

void say_to(FILE *out, const char *fmt, ...)
{
	bool ends = fmt[0] && fmt[strlen(fmt) - 1] == '\n';
	size_t bytes, shown_bytes;
	char *text, *shown;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		abort();
	va_end(ap);
	bytes = strlen(text) - ends;
	shown_bytes = bytes * PRINTABLE_GROWTH + 4;
	shown = malloc(shown_bytes);
	if (!shown)
		abort();
	fputs(printable(shown, shown_bytes, text, bytes), out);
	if (ends)
		putc('\n', out);
	free(shown);
	free(text);
}
