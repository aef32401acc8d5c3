/*
 * What all commands share: how a wrong command line is told.
 */
#include "ublktrace/command.h"

#include <stdarg.h>
#include <stdio.h>

int usage_error(const char *command, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "ublktrace %s: ", command);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nublktrace --help lists the options\n");
	return 2;
}
