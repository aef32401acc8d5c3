/* Who serves which device: processes that have /dev/ublkcN open. Main thread; reads /proc. */
#ifndef UBLK_SERVERS_H
#define UBLK_SERVERS_H

/* Calls fn for each pair. folder: of the nodes, "/dev". */
void servers_find(const char *folder, void (*fn)(int pid, unsigned id, void *arg), void *arg);

#endif
