// SPDX-License-Identifier: Apache-2.0
// bellows-model-gpu: copies one model to a GPU for bellows-modeld, which starts it. README.md has
// what they say to each other, on this process's standard input.
//
// usage: bellows-model-gpu LIBRARY, the driver's: libcuda.so.1
//        bellows-model-gpu --close, with memory of a GPU as standard input
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>

#include "modelstore/gpu/gpu_slab.h"
#include "modelstore/helper/helper_main.h"
#include "modelstore/loader/confine.h"
#include "modelstore/loader/daemon_line.h"

namespace bellows {
namespace {

/// Between two words of how far it is.
constexpr std::uint64_t kSaid = 64 << 20;

Status await_memory(LoaderWord word, LoaderMessage* message, plain::Handle* memory) {
  if (auto received = await_message(message, memory); !received) return received;
  if (message->word == word && memory->get() >= 0) return {};
  return Error{ErrorKind::internal, "bellows-modeld gave bellows-model-gpu no task"};
}

/// As far as the driver allows.
Status confine() {
  const rlimit nothing = {0, 0};
  if (setrlimit(RLIMIT_CORE, &nothing) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    return errno_error("limit", "bellows-model-gpu");
  return drop_capabilities();
}

/// A model, and where it is to go.
struct Task {
  LoaderMessage message;
  plain::Handle fd;
  plain::Handle catalogue;
  plain::Mapping memory;

  Status take() {
    if (auto got = await_memory(LoaderWord::copy, &message, &fd); !got) return got;
    LoaderMessage fill;
    if (auto got = await_memory(LoaderWord::fill, &fill, &catalogue); !got) return got;
    if (!memory.map_for_reading(fd.get())) return errno_error("map", "the model's memory");
    const bool fits = message.bytes <= memory.size() && message.catalogue_bytes <= message.bytes &&
                      message.catalogue_at <= message.bytes - message.catalogue_bytes;
    return fits ? Status() : Status(Error{ErrorKind::internal, "the model's memory is too small"});
  }
  Status write_catalogue() const {
    const auto* begin = reinterpret_cast<const char*>(memory.data() + message.catalogue_at);
    return write_all(catalogue.get(), {begin, message.catalogue_bytes}, "the model's catalogue");
  }
};

Status copy(const Gpu& gpu, const Task& task) {
  const cuda::Current current(gpu.driver(), gpu.context());
  if (current.error() != cuda::kSuccess) return gpu.error("use its context", current.error());
  const std::uint64_t bytes = task.message.bytes;
  auto slab = GpuSlab::make(gpu, bytes);
  if (!slab) return slab.error();
  // Two passes: there, and back.
  std::atomic<std::uint64_t> done{0};
  const auto progress = [&done](std::uint64_t more) {
    const std::uint64_t before = done.fetch_add(more);
    if (before / kSaid != (before + more) / kSaid) say_progress((before + more) / 2);
  };
  if (auto filled = (*slab)->fill(task.memory.data(), bytes, progress); !filled) return filled;
  const auto digest = (*slab)->digest(bytes, progress);
  if (!digest) return digest.error();
  if (*digest != task.message.digest)
    return Error{ErrorKind::unavailable,
                 fmt::format("GPU {} gave other bytes back than it was given: it may be broken",
                             task.message.text_view())};
  if (auto written = task.write_catalogue(); !written) return written;
  const auto descriptor = (*slab)->to_descriptor();
  if (!descriptor) return descriptor.error();
  LoaderMessage message;
  message.word = LoaderWord::done;
  message.bytes = (*slab)->size();
  return tell(message, descriptor->get());
}

Status serve(const std::string& library) {
  if (auto confined = confine(); !confined) return confined;
  Task task;
  if (auto taken = task.take(); !taken) return taken;
  const auto gpu = Gpu::open(library, std::string(task.message.text_view()));
  return gpu ? copy(**gpu, task) : Status(gpu.error());
}

/// Has its standard input closed by its end, when the daemon has closed the same: that may hang in
/// the driver.
int close_last() {
  pollfd daemon = {STDOUT_FILENO, 0, 0};
  while (daemon.revents == 0) (void)poll(&daemon, 1, -1);
  return 0;
}

}  // namespace
}  // namespace bellows

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--close") == 0) return bellows::close_last();
  return bellows::helper_main(
      "bellows-model-gpu", [&] { return bellows::serve(argc > 1 ? argv[1] : "libcuda.so.1"); },
      bellows::say_failed);
}
