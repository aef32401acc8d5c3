#include "base/format.h"

#include <stdio.h>

#include "base/util.h"

const char *format_count(double count, char buf[static FORMAT_BYTES])
{
	static const char unit[] = { 0, 'k', 'M', 'G', 'T' };
	unsigned i = 0;

	while (count >= 999.5 && i + 1 < sizeof(unit)) {
		count /= 1000;
		i++;
	}
	if (i == 0)
		snprintf(buf, FORMAT_BYTES, "%.*f",
			 count < 9.95 && count != (double)(unsigned)count ? 1 : 0, count);
	else
		snprintf(buf, FORMAT_BYTES, "%.*f%c",
			 count < 9.95	? 2
			 : count < 99.5 ? 1
					: 0,
			 count, unit[i]);
	return buf;
}

const char *format_ns(uint64_t ns, char buf[static FORMAT_BYTES])
{
	static const char *const unit[] = { "ns", "us", "ms", "s" };
	double value = (double)ns;
	unsigned i = 0;

	while (value >= 999.5 && i + 1 < ARRAY_SIZE(unit)) {
		value /= 1000;
		i++;
	}
	snprintf(buf, FORMAT_BYTES, "%.*f%s", i > 0 && value < 9.95 ? 1 : 0, value, unit[i]);
	return buf;
}

const char *format_bytes(uint64_t bytes, char buf[static FORMAT_BYTES])
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	double value = (double)bytes;
	unsigned i = 0;

	while (value >= 1024 && i + 1 < ARRAY_SIZE(unit)) {
		value /= 1024;
		i++;
	}
	snprintf(buf, FORMAT_BYTES, "%.*f%s", value == (double)(uint64_t)value ? 0 : 1, value,
		 unit[i]);
	return buf;
}
