/*
 * Frames onto a terminal, keys from it. Owns the terminal between open and close.
 *
 * Happy path: open, then paint and key as often as wanted, close. Failure modes: a terminal that
 * ncurses does not know or that cannot move its cursor: open says so; abort() while it is open: the
 * terminal is given back first. Resizing is the caller's to notice (SIGWINCH), as it polls.
 */
#include "ublkctl/top/top_screen.h"

#include <ncurses.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <term.h>
#undef columns /* a macro for a capability */

#include "base/util.h"
#include "ublkctl/top/top_text.h"

#define ESCAPE 27
#define ESCAPE_MS 25 /* an arrow key sends its bytes at once */

static SCREEN *screen;
static bool colors;

/* Runs inside abort(): no code of ncurses is active. */
static void on_abort(int signal_nr)
{
	top_screen_close();
	raise(signal_nr); /* it is the default's again, once we return */
}

static void set_colors(void)
{
	const char *no_color = getenv("NO_COLOR");

	colors = has_colors() && (!no_color || no_color[0] == '\0') && start_color() != ERR;
	if (!colors)
		return;
	use_default_colors();
	init_pair(TOP_GREEN, COLOR_GREEN, -1);
	init_pair(TOP_YELLOW, COLOR_YELLOW, -1);
	init_pair(TOP_RED, COLOR_RED, -1);
}

/* Asked first, as newterm takes any terminal that it knows and leaks what it does not. */
static bool can_move_cursor(void)
{
	bool can;
	int err;

	if (setupterm(NULL, STDOUT_FILENO, &err) != OK)
		return false;
	can = cursor_address != NULL;
	del_curterm(cur_term);
	return can;
}

bool top_screen_open(void)
{
	if (!can_move_cursor())
		return false;
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return false;
	signal(SIGABRT, on_abort);
	cbreak();
	noecho();
	nonl();
	set_escdelay(ESCAPE_MS);
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	curs_set(0);
	set_colors();
	return true;
}

void top_screen_close(void)
{
	if (!screen)
		return;
	endwin();
	delscreen(screen);
	screen = NULL;
	signal(SIGABRT, SIG_DFL);
}

void top_screen_resize(struct top_frame *f)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col)
		resizeterm(size.ws_row, size.ws_col);
	f->rows = (unsigned)LINES;
	f->columns = (unsigned)COLS;
}

static attr_t attribute(enum top_color color)
{
	static const attr_t plain[TOP_COLOR_NR] = {
		[TOP_BOLD] = A_BOLD, [TOP_DIM] = A_DIM, [TOP_RED] = A_BOLD
	};

	if (colors && (color == TOP_GREEN || color == TOP_YELLOW || color == TOP_RED))
		return plain[color] | (attr_t)COLOR_PAIR(color);
	return plain[color];
}

static void paint_span(const struct top_frame *f, const struct top_span *span)
{
	const char *text = f->text + span->offset;
	attr_t attr = attribute(span->color);
	size_t fits;

	if (span->line >= f->rows || span->column >= f->columns)
		return;
	/* Dim on reverse cannot be read. */
	if (span->line == f->selected_line)
		attr = (attr & ~A_DIM) | A_REVERSE;
	fits = top_text_fit(text, span->bytes, f->columns - span->column);
	attrset(attr);
	mvaddnstr((int)span->line, (int)span->column, text, (int)fits);
}

void top_screen_paint(const struct top_frame *f)
{
	erase();
	if (f->selected_line < f->rows)
		mvchgat((int)f->selected_line, 0, -1, A_REVERSE, 0, NULL);
	for (size_t i = 0; i < f->span_nr; i++)
		paint_span(f, &f->spans[i]);
	refresh();
}

/* ---- keys ---- */

static const struct {
	int code;
	enum top_key key;
} keys[] = {
	{ KEY_UP, TOP_KEY_UP },		 { 'k', TOP_KEY_UP },
	{ KEY_DOWN, TOP_KEY_DOWN },	 { 'j', TOP_KEY_DOWN },
	{ KEY_PPAGE, TOP_KEY_PAGE_UP },	 { KEY_NPAGE, TOP_KEY_PAGE_DOWN },
	{ KEY_HOME, TOP_KEY_FIRST },	 { KEY_END, TOP_KEY_LAST },
	{ KEY_ENTER, TOP_KEY_ENTER },	 { '\r', TOP_KEY_ENTER },
	{ '\n', TOP_KEY_ENTER },	 { KEY_RIGHT, TOP_KEY_ENTER },
	{ KEY_LEFT, TOP_KEY_BACK },	 { ESCAPE, TOP_KEY_BACK },
	{ KEY_BACKSPACE, TOP_KEY_BACK }, { '\b', TOP_KEY_BACK },
	{ 127, TOP_KEY_BACK },		 { 's', TOP_KEY_SORT },
	{ 'r', TOP_KEY_REVERSE },	 { ' ', TOP_KEY_PAUSE },
	{ '+', TOP_KEY_SLOWER },	 { '=', TOP_KEY_SLOWER },
	{ '-', TOP_KEY_FASTER },	 { '?', TOP_KEY_HELP },
	{ 'h', TOP_KEY_HELP },		 { 'q', TOP_KEY_QUIT },
};

enum top_key top_screen_key(bool *ret_more)
{
	int code = getch();

	*ret_more = code != ERR;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (keys[i].code == code)
			return keys[i].key;
	return TOP_KEY_NONE;
}
