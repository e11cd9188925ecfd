// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "common/child.h"
#include "modelstore/digest/tree_digest.h"
#include "modelstore/loader/loader_wire.h"

namespace bellows::model_test {

inline constexpr int kLimitMs = 20000;

/// A loader, and what a daemon does with it.
class LoaderProcess {
 public:
  LoaderProcess() {
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    socket_.reset(ends[0]);
    Fd theirs(ends[1]);
    ChildOptions options;
    options.command = {LOADER};
    options.in_fd = theirs.get();
    auto child = Child::start(options);
    cr_assert(child.ok(), "%s", child.error().text.c_str());
    child_.emplace(std::move(*child));
  }

  void load(const std::string& path, uid_t uid = geteuid()) {
    LoaderMessage message;
    message.word = LoaderWord::load;
    message.uid = uid;
    message.set_text(path);
    cr_assert(send_message(socket_.get(), message).ok());
  }

  /// What comes next but progress and the identities of files, which `files` gets.
  LoaderMessage next() {
    for (;;) {
      pollfd p = {socket_.get(), POLLIN, 0};
      cr_assert_eq(poll(&p, 1, kLimitMs), 1, "the loader says nothing");
      LoaderMessage message;
      const auto received = receive_message(socket_.get(), &message, nullptr);
      cr_assert(received.ok(), "%s", received.error().text.c_str());
      if (!*received || message.word == LoaderWord::progress) continue;
      if (message.word != LoaderWord::files) return message;
      files += message.text_view();
    }
  }

  LoaderMessage fill(std::uint64_t bytes) {
    memory_.reset(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    cr_assert_eq(ftruncate(memory_.get(), static_cast<off_t>(bytes)), 0);
    LoaderMessage message;
    message.word = LoaderWord::fill;
    cr_assert(send_message(socket_.get(), message, memory_.get()).ok());
    return next();
  }

  std::string memory() const {
    std::string bytes(static_cast<std::size_t>(lseek(memory_.get(), 0, SEEK_END)), '\0');
    cr_assert_eq(pread(memory_.get(), bytes.data(), bytes.size(), 0),
                 static_cast<ssize_t>(bytes.size()));
    return bytes;
  }

  int fd() const { return memory_.get(); }
  int socket() const { return socket_.get(); }
  pid_t pid() const { return child_->pid(); }

  std::string files;

 private:
  Fd socket_;
  Fd memory_;
  std::optional<Child> child_;
};

inline ModelDigest digest_of(const std::string& bytes) {
  auto hasher = TreeHasher::make();
  std::vector<ModelDigest> leaves;
  for (std::uint64_t i = 0; i < leaf_count(bytes.size()); ++i)
    leaves.push_back(*hasher->leaf(std::string_view(bytes).substr(i * kLeafBytes, kLeafBytes)));
  return *hasher->root(leaves, bytes.size());
}

/// What is said of a path that is no model.
inline std::string refusal(const std::string& path, ErrorKind kind, uid_t uid = geteuid()) {
  LoaderProcess loader;
  loader.load(path, uid);
  const LoaderMessage message = loader.next();
  cr_assert(message.word == LoaderWord::failed, "%s was taken", path.c_str());
  cr_expect(message.to_error().kind == kind, "%s", message.to_error().text.c_str());
  return message.to_error().text;
}

}  // namespace bellows::model_test
