/* "127.0.0.1:9740", "[::1]:9740": addresses to listen at; no names, for those would need a
 * resolver. */
#ifndef DAEMON_SETTINGS_LISTEN_ADDRESS_H
#define DAEMON_SETTINGS_LISTEN_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

/* Returns 0 or -EINVAL. */
int address_parse(const char *text, struct sockaddr_storage *ret_addr);

bool address_is_loopback(const struct sockaddr_storage *addr);

#endif
