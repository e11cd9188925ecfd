// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/model_source.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/page_cache.h"
#include "modelstore/loader/user_rights.h"

namespace bellows {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kFile = "model.safetensors";
constexpr std::string_view kIndexEnd = ".index.json";

unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

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

Error about(const Error& error, const std::string& path) {
  return Error{error.kind, fmt::format("{}: {}", path, error.text)};
}

Result<Fd> open_plain_file(const std::string& path, struct stat* s) {
  // O_NONBLOCK: a FIFO in the file's place must not hang its reader.
  auto fd = open_file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd) return fd.error();
  if (fstat(fd->get(), s) < 0) return errno_error("look at", path);
  if (!S_ISREG(s->st_mode)) return Error{ErrorKind::corrupt, path + " is not a plain file"};
  return fd;
}

}  // namespace

Status ModelSource::add_file(const std::string& path) {
  OpenFile file{path, Fd(), Fd(), {}};
  auto fd = open_plain_file(path, &file.stat);
  if (!fd) return fd.error();
  let_a_tick_pass(file.stat);
  if (fstat(fd->get(), &file.stat) < 0) return errno_error("look at", path);
  file.fd = std::move(*fd);
  const auto bytes = static_cast<std::uint64_t>(file.stat.st_size);
  unsigned char begin[kLengthBytes] = {};
  const auto first = std::min<std::uint64_t>(bytes, kLengthBytes);
  if (auto read = read_at(file.fd.get(), begin, first, 0, path); !read) return read;
  const auto length = header_length({reinterpret_cast<const char*>(begin), first}, bytes);
  if (!length) return about(length.error(), path);
  std::string header(*length, '\0');
  if (auto read = read_at(file.fd.get(), bytes_of(header), *length, kLengthBytes, path); !read)
    return read;
  auto tensors = parse_header(header, bytes);
  if (!tensors) return about(tensors.error(), path);
  // Before all are there: one large header under many names would fill the memory.
  tensors_ += tensors->size();
  if (tensors_ > catalogue::kMostTensors)
    return Error{ErrorKind::corrupt,
                 fmt::format("{}: with the files before it, the model has more than {} tensors",
                             path, catalogue::kMostTensors)};
  if (!is_cached(file.fd.get(), bytes))
    if (auto direct = open_file(path, O_RDONLY | O_DIRECT | O_NONBLOCK | O_NOCTTY)) {
      struct stat s;
      // It might be another by now.
      if (fstat(direct->get(), &s) == 0 && is_same(s, file.stat)) file.direct = std::move(*direct);
    }
  headers_.push_back({path, bytes, std::move(*tensors)});
  files_.push_back(std::move(file));
  return {};
}

Status ModelSource::open_indexed(const std::string& folder, const std::string& path) {
  struct stat s;
  const auto fd = open_plain_file(path, &s);
  if (!fd) return fd.error();
  if (static_cast<std::uint64_t>(s.st_size) > kMostIndex)
    return Error{ErrorKind::corrupt, fmt::format("{} is longer than {} bytes", path, kMostIndex)};
  std::string text(static_cast<std::size_t>(s.st_size), '\0');
  if (auto read = read_at(fd->get(), bytes_of(text), text.size(), 0, path); !read) return read;
  const auto index = parse_index(text);
  if (!index) return about(index.error(), path);
  for (const std::string& name : index->files)
    if (auto added = add_file(folder + "/" + name); !added) return added;
  auto layout = lay_out_model(headers_, *index);
  if (!layout) return about(layout.error(), path);
  layout_ = std::move(*layout);
  return {};
}

Status ModelSource::open_all(const std::string& path) {
  struct stat s;
  if (stat(path.c_str(), &s) < 0) return errno_error("look at", path);
  if (S_ISDIR(s.st_mode)) {
    const std::string index = path + "/" + kIndex;
    if (access(index.c_str(), F_OK) == 0 || errno != ENOENT) return open_indexed(path, index);
    return open_all(path + "/" + kFile);
  }
  if (path.size() > kIndexEnd.size() &&
      path.compare(path.size() - kIndexEnd.size(), kIndexEnd.size(), kIndexEnd) == 0)
    return open_indexed(path.substr(0, path.rfind('/')), path);
  if (auto added = add_file(path); !added) return added;
  auto layout = lay_out_model(headers_, {});
  if (!layout) return about(layout.error(), path);
  layout_ = std::move(*layout);
  return {};
}

Result<ModelSource> ModelSource::open(const std::string& path, uid_t uid) {
  ModelSource source;
  auto rights = UserRights::take(uid);
  if (!rights) return rights.error();
  if (auto opened = source.open_all(path); !opened) return opened.error();
  return source;
}

Status ModelSource::read_file_part(const OpenFile& file, unsigned char* to, std::uint64_t bytes,
                                   std::uint64_t offset) {
  // Of files that the layout left whole, blocks lie at pages; see format/README.md.
  const std::uint64_t head = std::min((kModelPage - offset % kModelPage) % kModelPage, bytes);
  const bool at_page = reinterpret_cast<std::uintptr_t>(to + head) % kModelPage == 0;
  const std::uint64_t body = at_page && file.direct ? (bytes - head) / kModelPage * kModelPage : 0;
  std::uint64_t done = 0;
  while (done < body) {
    const ssize_t got = pread(file.direct.get(), to + head + done, body - done,
                              static_cast<off_t>(offset + head + done));
    // What it can't or won't read, the page cache reads, or says why not.
    if (got <= 0 || got % static_cast<ssize_t>(kModelPage) != 0) break;
    done += static_cast<std::uint64_t>(got);
  }
  if (auto read = read_at(file.fd.get(), to, head, offset, file.path); !read) return read;
  const std::uint64_t rest = head + done;
  return read_at(file.fd.get(), to + rest, bytes - rest, offset + rest, file.path);
}

Status ModelSource::read(std::uint64_t begin, unsigned char* to, std::uint64_t bytes) const {
  const std::uint64_t end = begin + bytes;
  const auto& pieces = layout_.pieces;
  auto piece = std::partition_point(pieces.begin(), pieces.end(), [begin](const ModelPiece& p) {
    return p.to + p.bytes <= begin;
  });
  for (; piece != pieces.end() && piece->to < end; ++piece) {
    const std::uint64_t from = std::max(begin, piece->to);
    const std::uint64_t until = std::min(end, piece->to + piece->bytes);
    const OpenFile& file = files_[piece->file];
    if (auto read = read_file_part(file, to + (from - begin), until - from,
                                   piece->from + (from - piece->to));
        !read)
      return read;
  }
  const std::uint64_t catalogue_end = layout_.catalogue_at + layout_.catalogue.size();
  const std::uint64_t from = std::max(begin, layout_.catalogue_at);
  if (from < std::min(end, catalogue_end))
    std::memcpy(to + (from - begin), layout_.catalogue.data() + (from - layout_.catalogue_at),
                std::min(end, catalogue_end) - from);
  return {};
}

std::vector<plain::FileIdentity> ModelSource::identities() const {
  std::vector<plain::FileIdentity> all;
  for (const OpenFile& file : files_) all.push_back(plain::identity_of(file.stat));
  return all;
}

Status ModelSource::check_unchanged() const {
  for (const OpenFile& file : files_) {
    struct stat s;
    if (fstat(file.fd.get(), &s) < 0) return errno_error("look at", file.path);
    if (!is_same(s, file.stat))
      return Error{ErrorKind::corrupt,
                   file.path +
                       " was changed while it was read: open the model again when it is "
                       "complete"};
  }
  return {};
}

}  // namespace bellows
