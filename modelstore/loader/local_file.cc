// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/local_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/page_cache.h"
#include "modelstore/format/model_layout.h"

namespace bellows {
namespace {

bool is_same(const struct stat& a, const struct stat& b) {
  const auto same_time = [](const timespec& x, const timespec& y) {
    return x.tv_sec == y.tv_sec && x.tv_nsec == y.tv_nsec;
  };
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         same_time(a.st_mtim, b.st_mtim) && same_time(a.st_ctim, b.st_ctim);
}

/// A change within one tick of the file system's clock leaves no trace in its times. So a file that
/// was changed just now is opened when a tick is over.
void let_a_tick_pass(const struct stat& s) {
  constexpr std::int64_t kTick = 20'000'000;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::int64_t age =
      (now.tv_sec - s.st_ctim.tv_sec) * 1'000'000'000 + (now.tv_nsec - s.st_ctim.tv_nsec);
  if (age < 0 || age >= kTick) return;
  const timespec pause{0, kTick - age};
  nanosleep(&pause, nullptr);
}

}  // namespace

Result<std::unique_ptr<SourceFile>> LocalFile::open(const std::string& path) {
  std::unique_ptr<LocalFile> file(new LocalFile(path));
  // O_NONBLOCK: a FIFO in the file's place must not hang its reader.
  auto fd = open_file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd) return fd.error();
  file->fd_ = std::move(*fd);
  if (fstat(file->fd_.get(), &file->stat_) < 0) return errno_error("look at", path);
  if (!S_ISREG(file->stat_.st_mode))
    return Error{ErrorKind::corrupt, path + " is not a plain file"};
  let_a_tick_pass(file->stat_);
  if (fstat(file->fd_.get(), &file->stat_) < 0) return errno_error("look at", path);
  file->open_direct();
  return std::unique_ptr<SourceFile>(std::move(file));
}

void LocalFile::open_direct() {
  if (is_cached(fd_.get(), size())) return;
  auto direct = open_file(path_, O_RDONLY | O_DIRECT | O_NONBLOCK | O_NOCTTY);
  struct stat s;
  // It might be another by now.
  if (direct && fstat(direct->get(), &s) == 0 && is_same(s, stat_)) direct_ = std::move(*direct);
}

std::string LocalFile::version() const {
  return fmt::format("{} {} {} {} {}.{} {}.{}", path_, stat_.st_dev, stat_.st_ino, stat_.st_size,
                     stat_.st_mtim.tv_sec, stat_.st_mtim.tv_nsec, stat_.st_ctim.tv_sec,
                     stat_.st_ctim.tv_nsec);
}

Status LocalFile::read(unsigned char* to, std::uint64_t bytes, std::uint64_t offset) const {
  // Of files that the layout left whole, blocks lie at pages; see format/README.md.
  const std::uint64_t head = std::min((kModelPage - offset % kModelPage) % kModelPage, bytes);
  const bool at_page = reinterpret_cast<std::uintptr_t>(to + head) % kModelPage == 0;
  const std::uint64_t body = at_page && direct_ ? (bytes - head) / kModelPage * kModelPage : 0;
  std::uint64_t done = 0;
  while (done < body) {
    const ssize_t got = pread(direct_.get(), to + head + done, body - done,
                              static_cast<off_t>(offset + head + done));
    // What it can't or won't read, the page cache reads, or says why not.
    if (got <= 0 || got % static_cast<ssize_t>(kModelPage) != 0) break;
    done += static_cast<std::uint64_t>(got);
  }
  if (auto read = read_at(fd_.get(), to, head, offset, path_); !read) return read;
  const std::uint64_t rest = head + done;
  return read_at(fd_.get(), to + rest, bytes - rest, offset + rest, path_);
}

Status LocalFile::check_unchanged() const {
  struct stat s;
  if (fstat(fd_.get(), &s) < 0) return errno_error("look at", path_);
  if (is_same(s, stat_)) return {};
  if (s.st_nlink == 0)
    return Error{ErrorKind::corrupt,
                 path_ +
                     " was removed while it was read: the model has to stay until it is read. "
                     "A checkpoint step with a name does: see \"bellows ckpt name\""};
  return Error{ErrorKind::corrupt,
               path_ + " was changed while it was read: open the model again when it is complete"};
}

}  // namespace bellows
