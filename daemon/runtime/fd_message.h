/*
 * One descriptor that goes along with a message on a unix socket (SCM_RIGHTS, unix(7)), and who is
 * at the other end. Header only: ublkd-keeper links nothing. Any thread.
 */
#ifndef DAEMON_RUNTIME_FD_MESSAGE_H
#define DAEMON_RUNTIME_FD_MESSAGE_H

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Room in msg_control, zeroed by its owner, for as long as the msghdr is used. */
union fd_message {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr header;
};

/* One at most: msg_controllen has no room for the second that CMSG_SPACE would give. */
static inline void fd_message_expect(struct msghdr *msg, union fd_message *room)
{
	msg->msg_control = room;
	msg->msg_controllen = CMSG_LEN(sizeof(int));
}

/* fd stays the caller's. */
static inline void fd_message_put(struct msghdr *msg, union fd_message *room, int fd)
{
	fd_message_expect(msg, room);
	room->header.cmsg_level = SOL_SOCKET;
	room->header.cmsg_type = SCM_RIGHTS;
	room->header.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&room->header), &fd, sizeof(fd));
}

/* Of a received message: the descriptor, the caller's from here on; -1: none came along. */
static inline int fd_message_get(struct msghdr *msg)
{
	const struct cmsghdr *header = CMSG_FIRSTHDR(msg);
	int fd = -1;

	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return fd;
}

/* Whether a process of our own user is at the other end of a connected socket. */
static inline bool fd_message_peer_is_us(int sock)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
	       peer.uid == geteuid();
}

#endif
