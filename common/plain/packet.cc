// SPDX-License-Identifier: Apache-2.0
#include "common/plain/packet.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

namespace bellows::plain {

int connect_to(const char* path, Handle* out, int wait_ms) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (strlen(path) >= sizeof address.sun_path) return ENAMETOOLONG;
  memcpy(address.sun_path, path, strlen(path) + 1);
  out->reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (out->get() < 0) return errno;
  const timeval limit = {wait_ms / 1000, wait_ms % 1000 * 1000};
  if (wait_ms >= 0) (void)setsockopt(out->get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  int rc;
  do {
    rc = connect(out->get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (rc < 0 && errno == EINTR);
  if (rc == 0) return 0;
  const int error = wait_ms >= 0 && errno == EAGAIN ? ETIMEDOUT : errno;
  out->reset(-1);
  return error;
}

int send_packet(int socket, const iovec* parts, std::size_t count, int passed, int flags) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  if (passed >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof passed);
    memcpy(CMSG_DATA(c), &passed, sizeof passed);
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | flags);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

static void take_descriptor(msghdr* message, Handle* out) {
  for (cmsghdr* c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int fd;
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    out->reset(fd);
  }
}

int receive_packet(int socket, const iovec* parts, std::size_t count, std::size_t* bytes,
                   Handle* passed, int flags) {
  // There is room for one, without the padding that would hold a second: the kernel closes the
  // others of a sender that wants to use ours up.
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  if (passed) {
    message.msg_control = control;
    message.msg_controllen = CMSG_LEN(sizeof(int));
    passed->reset(-1);
  }
  ssize_t got;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return errno == ECONNRESET ? EPIPE : errno;
  if (got == 0) return EPIPE;
  if (passed) take_descriptor(&message, passed);
  *bytes = static_cast<std::size_t>(got);
  return message.msg_flags & MSG_TRUNC ? EPROTO : 0;
}

bool hung_up(int socket) {
  pollfd p = {socket, POLLIN, 0};
  if (poll(&p, 1, 0) <= 0) return false;
  if (p.revents & (POLLHUP | POLLERR | POLLNVAL)) return true;
  char byte;
  return recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

}  // namespace bellows::plain
