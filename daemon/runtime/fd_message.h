/*
 * One message on a unix socket, with at most one descriptor (SCM_RIGHTS, unix(7)), and who is at
 * the other end. Header only: ublkd-keeper links nothing. Any thread.
 */
#ifndef DAEMON_RUNTIME_FD_MESSAGE_H
#define DAEMON_RUNTIME_FD_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union fd_message_room {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr header;
};

/* fd: a duplicate of it goes along; -1: none. Returns as sendmsg(2). */
static inline ssize_t fd_message_send(int sock, const void *data, size_t bytes, int fd, int flags)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	union fd_message_room room = { .header = { .cmsg_level = SOL_SOCKET,
						   .cmsg_type = SCM_RIGHTS,
						   .cmsg_len = CMSG_LEN(sizeof(int)) } };

	if (fd >= 0) {
		memcpy(CMSG_DATA(&room.header), &fd, sizeof(fd));
		msg.msg_control = &room;
		msg.msg_controllen = CMSG_LEN(sizeof(int));
	}
	return sendmsg(sock, &msg, flags | MSG_NOSIGNAL);
}

/*
 * Returns as recvmsg(2). *ret_fd: the descriptor that came along, the caller's from here on; -1:
 * none. *ret_flags: what recvmsg says of the message; MSG_CTRUNC: more than one came along, or
 * there was no room for one in our table of files.
 */
static inline ssize_t fd_message_receive(int sock, void *data, size_t bytes, int flags, int *ret_fd,
					 int *ret_flags)
{
	/* msg_controllen has no room for the second descriptor that CMSG_SPACE would give. */
	union fd_message_room room = { 0 };
	struct iovec iov = { .iov_base = data, .iov_len = bytes };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &room,
			      .msg_controllen = CMSG_LEN(sizeof(int)) };
	ssize_t ret = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *header = ret < 0 ? NULL : CMSG_FIRSTHDR(&msg);

	*ret_fd = -1;
	*ret_flags = msg.msg_flags;
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(header), sizeof(*ret_fd));
	return ret;
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
