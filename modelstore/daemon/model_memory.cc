// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/model_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/memfd.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "common/text.h"

namespace bellows {
namespace {

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned MFD_NOEXEC_SEAL = 8;
#endif
constexpr std::uint64_t kHugePage = 2 << 20;
constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string path_of(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

bool has_huge_pages(std::uint64_t bytes) {
  const std::string folder = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  std::uint64_t pages[2] = {};
  const char* names[2] = {"free_hugepages", "resv_hugepages"};
  for (int i = 0; i < 2; ++i) {
    const auto text = read_file(folder + names[i], 64);
    const auto number = text ? parse_uint(trim(*text)) : std::nullopt;
    if (!number) return false;
    pages[i] = *number;
  }
  return pages[0] >= pages[1] && (pages[0] - pages[1]) * kHugePage >= bytes;
}

/// Where the kernel gives shared memory huge pages, at least to those who ask.
bool makes_huge_pages() {
  const auto text = read_file("/sys/kernel/mm/transparent_hugepage/shmem_enabled", 128);
  return text && text->find("[never]") == std::string::npos &&
         text->find("[deny]") == std::string::npos;
}

int make_memfd(unsigned flags) {
  flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = memfd_create("bellows-model", flags | MFD_NOEXEC_SEAL);
  // Kernels before 6.3 don't know it.
  return fd < 0 && errno == EINVAL ? memfd_create("bellows-model", flags) : fd;
}

}  // namespace

std::uint64_t room_for(std::uint64_t bytes) {
  return bytes < kHugePage ? bytes : (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

Result<WritableMemory> make_model_memory(std::uint64_t bytes, bool huge) {
  huge = huge && bytes >= kHugePage;
  const bool reserved = huge && has_huge_pages(room_for(bytes));
  WritableMemory memory;
  memory.fd.reset(reserved ? make_memfd(MFD_HUGETLB | MFD_HUGE_2MB) : make_memfd(0));
  memory.huge = reserved || (huge && makes_huge_pages());
  if (reserved) bytes = room_for(bytes);
  if (!memory.fd || ftruncate(memory.fd.get(), static_cast<off_t>(bytes)) < 0)
    return Error{ErrorKind::unavailable,
                 fmt::format("cannot make {} bytes of memory: {}", bytes, std::strerror(errno))};
  return memory;
}

Status ModelMemory::seal(Fd writable) {
  struct stat s;
  if (fstat(writable.get(), &s) < 0) return errno_error("look at", "a model's memory");
  if (static_cast<std::uint64_t>(s.st_size) < bytes)
    return Error{ErrorKind::internal, "a loader made the model's memory smaller"};
  // The seals hold whatever the mode; with it, other users can't even open it anew.
  if (fchmod(writable.get(), 0400) < 0 || fcntl(writable.get(), F_ADD_SEALS, kSeals) < 0)
    return Error{ErrorKind::internal,
                 fmt::format("cannot seal a model's memory: {}", std::strerror(errno))};
  auto opened = open_file(path_of(writable.get()), O_RDONLY);
  if (!opened) return opened.error();
  reader = std::move(*opened);
  return {};
}

Status ModelMemory::check_sealed() const {
  struct stat s;
  const int seals = fcntl(reader.get(), F_GET_SEALS);
  const int mode = fcntl(reader.get(), F_GETFL);
  const bool good = seals >= 0 && (seals & kSeals) == kSeals && mode >= 0 &&
                    (mode & O_ACCMODE) == O_RDONLY && fstat(reader.get(), &s) == 0 &&
                    static_cast<std::uint64_t>(s.st_size) >= bytes;
  return good ? Status()
              : Status(Error{ErrorKind::corrupt, "a model's memory is not sealed, or too small"});
}

Result<std::unique_ptr<FreedMemory>> FreedMemory::make(EventLoop& loop,
                                                       std::function<void(std::uint64_t)> freed) {
  std::unique_ptr<FreedMemory> made(new FreedMemory);
  auto last_close = LastClose::make(loop, std::move(freed));
  if (!last_close) return last_close.error();
  made->last_close_ = std::move(*last_close);
  made->inotify_.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!made->inotify_) return errno_error("make", "an inotify descriptor");
  auto watch = loop.watch(made->inotify_.get(), EPOLLIN,
                          [object = made.get()](std::uint32_t) { object->read_events(); });
  if (!watch) return watch.error();
  made->watch_ = std::move(*watch);
  return made;
}

void FreedMemory::give_up(ModelMemory memory, std::uint64_t number) {
  // All that was lent is one open file, with or without mappings of it: when the last of them goes,
  // this file is closed. That is an event, be it by our own close just here.
  const int watch =
      inotify_add_watch(inotify_.get(), path_of(memory.reader.get()).c_str(), IN_CLOSE_NOWRITE);
  auto path = open_file(path_of(memory.reader.get()), O_PATH);
  if (watch < 0 || !path) {
    if (watch >= 0) inotify_rm_watch(inotify_.get(), watch);
    return last_close_->close(std::move(memory.reader), number);
  }
  given_up_[watch] = {number, std::move(*path)};
}

void FreedMemory::read_events() {
  alignas(inotify_event) char buffer[4096];
  const ssize_t got = read(inotify_.get(), buffer, sizeof buffer);
  for (ssize_t at = 0; at < got;) {
    const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
    at += static_cast<ssize_t>(sizeof *event + event->len);
    const auto found = given_up_.find(event->wd);
    if (found == given_up_.end() || !(event->mask & IN_CLOSE_NOWRITE)) continue;
    GivenUp given_up = std::move(found->second);
    given_up_.erase(found);
    // The watch itself holds the memory.
    inotify_rm_watch(inotify_.get(), event->wd);
    last_close_->close(std::move(given_up.path), given_up.number);
  }
}

}  // namespace bellows
