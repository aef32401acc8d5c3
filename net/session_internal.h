/* What the session and its connections say to each other; for nobody else. */
#ifndef NET_SESSION_INTERNAL_H
#define NET_SESSION_INTERNAL_H

#include "net/session.h"

/* session.c: what a connection reports */

/* One has become ready: what is held goes on. */
void session_gained(struct session *s);
/* This connection served and does so no longer; session_take_back of what it had follows. */
void session_lost(struct session *s, struct session_connection *c);
/* session_protocol's is_over. */
bool session_is_over(const struct session *s);
/* All that is held fails. */
void session_stop(struct session *s);
/* Whether some connection takes requests has changed, while none came or went. */
void session_ranks_changed(struct session *s);
/* No address of the peer answers: ask for new ones. */
void session_look_up(struct session *s);

/* session_connection.c */

/* Returns 0, -ENOMEM or -ENOBUFS. It begins to connect at once. */
int session_connection_open(struct session_connection **ret_c, struct session *s, unsigned idx);
/* No request is with it but its own. It frees itself when it can. Accepts NULL. */
void session_connection_abandon(struct session_connection *c);

/* session_look.c */

/* "connected", "connecting", "waiting" ...: the same word is the same pointer. */
const char *session_state_word(enum session_state state);

#endif
