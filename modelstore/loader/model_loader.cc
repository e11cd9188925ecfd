// SPDX-License-Identifier: Apache-2.0
// bellows-model-loader: reads one model for bellows-modeld, which starts it. README.md has what
// they say to each other, on this process's standard input.
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "modelstore/loader/loader_wire.h"
#include "modelstore/loader/loading.h"
#include "modelstore/loader/model_source.h"

namespace bellows {
namespace {

constexpr int kDaemon = 0;
constexpr int kReportMs = 100;
/// Some wait for the disk while others hash.
constexpr unsigned kThreadsOfCore = 2;
constexpr unsigned kMostThreads = 16;

/// Memory that the daemon gave, while it is mapped.
class GivenMemory {
 public:
  GivenMemory() = default;
  GivenMemory(const GivenMemory&) = delete;
  GivenMemory& operator=(const GivenMemory&) = delete;
  ~GivenMemory() { leave(); }

  /// All of it, of which the model takes `bytes`: huge pages can't be unmapped in part.
  Status map(int fd, std::uint64_t bytes, int protection) {
    struct stat s;
    if (fstat(fd, &s) < 0) return errno_error("look at", "the model's memory");
    if (static_cast<std::uint64_t>(s.st_size) < bytes)
      return Error{ErrorKind::internal, "bellows-modeld gave its loader too little memory"};
    bytes_ = static_cast<std::size_t>(s.st_size);
    void* data = mmap(nullptr, bytes_, protection, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return errno_error("map", "the model's memory");
    data_ = static_cast<unsigned char*>(data);
    // Where the kernel gives shared memory huge pages to those who ask.
    (void)madvise(data_, bytes_, MADV_HUGEPAGE);
    return {};
  }
  unsigned char* data() const { return data_; }
  /// From here on it can be sealed.
  void leave() {
    if (data_) munmap(data_, bytes_);
    data_ = nullptr;
  }

 private:
  unsigned char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Waits for the daemon's next message.
Status await_message(LoaderMessage* message, plain::Handle* passed) {
  for (;;) {
    pollfd daemon = {kDaemon, POLLIN, 0};
    (void)poll(&daemon, 1, -1);
    auto received = receive_message(kDaemon, message, passed);
    if (!received || message->word != LoaderWord::progress) return received;
  }
}

/// Tells the daemon how far it is until all is done. unavailable: the daemon is gone.
Result<ModelDigest> run(Loading& loading) {
  if (auto started = loading.start(
          std::min(kThreadsOfCore * std::thread::hardware_concurrency(), kMostThreads));
      !started)
    return started.error();
  for (;;) {
    pollfd fds[] = {{loading.event(), POLLIN, 0}, {kDaemon, 0, 0}};
    (void)poll(fds, 2, kReportMs);
    if (fds[0].revents) return loading.finish();
    if (fds[1].revents) return Error{ErrorKind::unavailable, "bellows-modeld has gone"};
    LoaderMessage message;
    message.word = LoaderWord::progress;
    message.bytes = loading.bytes_done();
    (void)send_message(kDaemon, message);
  }
}

Status say_done(const ModelDigest& digest) {
  LoaderMessage message;
  message.word = LoaderWord::done;
  std::memcpy(message.digest, digest.bytes.data(), sizeof message.digest);
  return send_message(kDaemon, message);
}

/// So that the daemon finds the model by its files. One of very many is not found so.
Status say_files(const std::vector<plain::FileIdentity>& files) {
  constexpr std::size_t kOfMessage = LoaderMessage::kMostText / sizeof(plain::FileIdentity);
  constexpr std::size_t kMost = 1024;
  for (std::size_t at = 0; at < files.size() && files.size() <= kMost; at += kOfMessage) {
    const std::size_t count = std::min(kOfMessage, files.size() - at);
    LoaderMessage message;
    message.word = LoaderWord::files;
    message.set_bytes(
        {reinterpret_cast<const char*>(files[at].data()), count * sizeof(plain::FileIdentity)});
    if (auto sent = send_message(kDaemon, message); !sent) return sent;
  }
  return {};
}

Status load(const LoaderMessage& task) {
  const auto source = ModelSource::open(std::string(task.text_view()), task.uid);
  if (!source) return source.error();
  if (auto said = say_files(source->identities()); !said) return said;
  const ModelLayout& layout = source->layout();
  LoaderMessage message;
  message.word = LoaderWord::sized;
  message.bytes = layout.bytes;
  message.catalogue_at = layout.catalogue_at;
  message.catalogue_bytes = layout.catalogue.size();
  if (auto sent = send_message(kDaemon, message); !sent) return sent;

  plain::Handle fd;
  if (auto received = await_message(&message, &fd); !received) return received;
  if (message.word != LoaderWord::fill || fd.get() < 0)
    return Error{ErrorKind::internal, "bellows-modeld gave its loader no memory"};
  GivenMemory memory;
  if (auto mapped = memory.map(fd.get(), layout.bytes, PROT_READ | PROT_WRITE); !mapped)
    return mapped;
  Result<ModelDigest> digest = Error{ErrorKind::internal, ""};
  {
    Loading loading(memory.data(), layout.bytes,
                    [&](std::uint64_t begin, unsigned char* to, std::uint64_t bytes) {
                      return source->read(begin, to, bytes);
                    });
    digest = run(loading);
  }
  if (!digest) return digest.error();
  if (auto unchanged = source->check_unchanged(); !unchanged) return unchanged;
  memory.leave();
  return say_done(*digest);
}

Status check(const LoaderMessage& task, int fd) {
  GivenMemory memory;
  if (auto mapped = memory.map(fd, task.bytes, PROT_READ); !mapped) return mapped;
  Loading loading(memory.data(), task.bytes, {});
  const auto digest = run(loading);
  return digest ? say_done(*digest) : Status(digest.error());
}

Status serve() {
  LoaderMessage task;
  plain::Handle fd;
  if (auto received = await_message(&task, &fd); !received) return received;
  if (task.word == LoaderWord::load) return load(task);
  if (task.word == LoaderWord::check && fd.get() >= 0) return check(task, fd.get());
  return Error{ErrorKind::internal, "bellows-modeld gave its loader no task"};
}

int report(const Error& error) {
  LoaderMessage message;
  message.word = LoaderWord::failed;
  message.error = static_cast<std::uint32_t>(error.kind);
  message.set_text(error.text);
  (void)send_message(kDaemon, message);
  return 1;
}

}  // namespace
}  // namespace bellows

int main() {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const bellows::Status served = bellows::serve();
    return served ? 0 : bellows::report(served.error());
  } catch (const std::exception& error) {
    return bellows::report({bellows::ErrorKind::unavailable,
                            std::string("the loader ran out of something: ") + error.what()});
  }
}
