// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/client/socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace bellows::client {

void Handle::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

int Handle::release() {
  int fd = fd_;
  fd_ = -1;
  return fd;
}

void Mapping::reset() {
  if (data_) munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

static void* map_shared(int fd, std::size_t bytes, int protection, int flags) {
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED | flags, fd, 0);
  return data == MAP_FAILED ? nullptr : data;
}

bool Mapping::map(int fd, std::size_t bytes, int protection) {
  reset();
  off_t size = lseek(fd, 0, SEEK_END);
  if (size < 0) return false;
  if (static_cast<std::uint64_t>(size) < bytes || bytes == 0) {
    errno = EPROTO;
    return false;
  }
  // All of it is used at once: one call is several times faster than a fault for each page.
  data_ = map_shared(fd, bytes, protection, MAP_POPULATE);
  if (data_) size_ = bytes;
  return data_;
}

bool Mapping::map_for_reading(int fd) {
  reset();
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size <= 0) return false;
  data_ = map_shared(fd, static_cast<std::size_t>(size), PROT_READ, 0);
  if (data_) size_ = static_cast<std::size_t>(size);
  return data_;
}

int connect_to(const char* path, Handle* out) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (strlen(path) >= sizeof address.sun_path) return ENAMETOOLONG;
  memcpy(address.sun_path, path, strlen(path) + 1);
  out->reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (out->get() < 0) return errno;
  int rc;
  do {
    rc = connect(out->get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (rc < 0 && errno == EINTR);
  if (rc == 0) return 0;
  int error = errno;
  out->reset(-1);
  return error;
}

int send_message(int fd, wire::Head head, const void* body, std::size_t length, const void* tail,
                 std::size_t tail_length) {
  head.length = static_cast<std::uint32_t>(length + tail_length);
  iovec parts[3] = {{&head, sizeof head},
                    {const_cast<void*>(body), length},
                    {const_cast<void*>(tail), tail_length}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 3;
  ssize_t sent;
  do {
    sent = sendmsg(fd, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

static void take_fd(msghdr* message, Message* out) {
  for (cmsghdr* c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int fd;
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    out->fd.reset(fd);
  }
}

int receive_message(int fd, Message* out) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec parts[2] = {{&out->head, sizeof out->head}, {out->body, sizeof out->body - 1}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  out->fd.reset(-1);
  ssize_t got;
  do {
    got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return errno == ECONNRESET ? EPIPE : errno;
  if (got == 0) return EPIPE;
  take_fd(&message, out);
  if (static_cast<std::size_t>(got) < sizeof out->head || (message.msg_flags & MSG_TRUNC) ||
      out->head.version != wire::kVersion ||
      out->head.length != static_cast<std::size_t>(got) - sizeof out->head) {
    return EPROTO;
  }
  out->body[out->head.length] = 0;
  return 0;
}

bool hung_up(int fd) {
  pollfd p = {fd, POLLIN, 0};
  if (poll(&p, 1, 0) <= 0) return false;
  if (p.revents & (POLLHUP | POLLERR | POLLNVAL)) return true;
  char byte;
  return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

}  // namespace bellows::client
