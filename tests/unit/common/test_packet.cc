// SPDX-License-Identifier: Apache-2.0
// Messages with descriptors over unix sockets.
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "common/plain/packet.h"

using namespace bellows::plain;

namespace {

struct Pair {
  Pair() {
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    a.reset(ends[0]);
    b.reset(ends[1]);
  }
  Handle a, b;
};

std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

int send_text(int socket, const char* text, int passed) {
  const iovec parts[2] = {{const_cast<char*>(text), 1},
                          {const_cast<char*>(text) + 1, strlen(text) - 1}};
  return send_packet(socket, parts, 2, passed, MSG_DONTWAIT);
}

int receive_text(int socket, char* text, std::size_t size, Handle* passed) {
  const iovec part = {text, size};
  std::size_t got = 0;
  const int failure = receive_packet(socket, &part, 1, &got, passed, MSG_DONTWAIT);
  if (failure == 0) text[got] = 0;
  return failure;
}

/// Sends more descriptors than anybody asked for.
void send_descriptors(int socket, const int* fds, std::size_t count) {
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
  char byte = 'x';
  iovec part = {&byte, 1};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(count * sizeof(int));
  memcpy(CMSG_DATA(c), fds, count * sizeof(int));
  cr_assert_eq(sendmsg(socket, &message, 0), 1);
}

}  // namespace

Test(packet, brings_its_parts_and_its_descriptor, .timeout = 10) {
  Pair pair;
  Handle memory(memfd_create("test", MFD_CLOEXEC)), passed;
  cr_assert_eq(ftruncate(memory.get(), 5), 0);
  cr_assert_eq(send_text(pair.a.get(), "hello", memory.get()), 0);
  cr_assert_eq(send_text(pair.a.get(), "again", -1), 0);
  char text[16];
  cr_assert_eq(receive_text(pair.b.get(), text, 15, &passed), 0);
  cr_expect_str_eq(text, "hello");
  cr_expect_eq(lseek(passed.get(), 0, SEEK_END), 5);
  cr_expect(fcntl(passed.get(), F_GETFD) & FD_CLOEXEC);
  cr_assert_eq(receive_text(pair.b.get(), text, 15, &passed), 0);
  cr_expect_str_eq(text, "again");
  cr_expect_eq(passed.get(), -1, "it came with no descriptor");
  cr_expect_eq(receive_text(pair.b.get(), text, 15, &passed), EAGAIN);
}

Test(packet, says_when_the_other_side_is_gone, .timeout = 10) {
  Pair pair;
  cr_expect(!hung_up(pair.b.get()));
  pair.a.reset(-1);
  char text[16];
  cr_expect(hung_up(pair.b.get()));
  cr_expect_eq(receive_text(pair.b.get(), text, 15, nullptr), EPIPE);
  cr_expect_eq(send_text(pair.b.get(), "hello", -1), EPIPE, "and no signal came");
}

Test(packet, does_not_fit_what_is_shorter, .timeout = 10) {
  Pair pair;
  cr_assert_eq(send_text(pair.a.get(), "hello", -1), 0);
  char text[16];
  cr_expect_eq(receive_text(pair.b.get(), text, 4, nullptr), EPROTO);
}

Test(packet, leaves_no_descriptor_that_nobody_asked_for, .timeout = 10) {
  Pair pair;
  const int fds[] = {0, 0, 0, 0, 0};
  const std::size_t before = descriptors();
  char text[16];
  for (std::size_t count = 1; count <= 5; ++count) {
    Handle passed;
    send_descriptors(pair.a.get(), fds, count);
    cr_assert_eq(receive_text(pair.b.get(), text, 15, &passed), 0);
    cr_expect_eq(descriptors(), before + 1, "of %zu", count);
    send_descriptors(pair.a.get(), fds, count);
    cr_assert_eq(receive_text(pair.b.get(), text, 15, nullptr), 0);
    cr_expect_eq(descriptors(), before + 1, "of %zu", count);
  }
  cr_expect_eq(descriptors(), before);
}
