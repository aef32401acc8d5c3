/* Names as values of labels. Main thread. */
#include <stdio.h>
#include <string.h>

#include "base/printable.h"
#include "daemon/metrics/metrics_internal.h"

/* One letter of text, or what stands for it: at most "\\xff" and a terminator. */
#define PIECE_BYTES 8

/* Returns how many bytes of text piece stands for. */
static size_t escape_piece(const char *text, size_t bytes, bool quotes,
			   char piece[static PIECE_BYTES])
{
	uint32_t code;
	size_t nr = utf8_letter(text, bytes, &code);

	if (*text == '\\' || *text == '\n' || (quotes && *text == '"')) {
		snprintf(piece, PIECE_BYTES, "\\%c", *text == '\n' ? 'n' : *text);
	} else if (nr > 0) {
		snprintf(piece, PIECE_BYTES, "%.*s", (int)nr, text);
	} else {
		nr = printable_next(text, bytes, piece + 1);
		if (piece[1] == '\\')
			piece[0] = '\\';
		else
			memmove(piece, piece + 1, strlen(piece + 1) + 1);
	}
	return nr;
}

const char *metrics_escape(char *buf, size_t buf_bytes, const char *text, bool quotes)
{
	size_t bytes = strlen(text), len = 0;
	char piece[PIECE_BYTES];

	for (size_t nr; bytes > 0; text += nr, bytes -= nr) {
		nr = escape_piece(text, bytes, quotes, piece);
		if (len + strlen(piece) >= buf_bytes)
			break;
		memcpy(buf + len, piece, strlen(piece));
		len += strlen(piece);
	}
	buf[len] = '\0';
	return buf;
}

const char *metrics_node_labels(const struct snapshot *s, const char *node,
				char labels[static METRICS_LABELS_BYTES])
{
	char shown[2 * BACKEND_PATH_BYTES];
	int len = snprintf(labels, METRICS_LABELS_BYTES, "device=\"%s\"", s->label);

	if (strcmp(node, s->name) != 0)
		snprintf(labels + len, METRICS_LABELS_BYTES - (size_t)len, ",node=\"%s\"",
			 metrics_escape(shown, sizeof(shown), node, true));
	return labels;
}
