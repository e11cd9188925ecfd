// SPDX-License-Identifier: Apache-2.0
#include "modelstore/disk/image_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace bellows {
namespace {

/// Of one call: enough for any disk, and a kill need not wait long for it.
constexpr std::uint64_t kMostAtOnce = 16 << 20;

bool is_aligned(std::uint64_t begin, const void* memory, std::uint64_t bytes) {
  return (begin | reinterpret_cast<std::uintptr_t>(memory) | bytes) % kDiskBlock == 0;
}

/// Past the page cache, which a model would fill with what nobody reads from there.
void set_direct(int fd, bool direct) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT);
}

Error write_error(const std::string& path, const DiskImage& image) {
  if (errno != ENOSPC && errno != EDQUOT) return errno_error("write", path);
  return Error{ErrorKind::unavailable,
               fmt::format("{}: the file system has no room for {} bytes: make room there, or give "
                           "the models a smaller budget on this disk",
                           path, image.file_bytes())};
}

bool write_at(int fd, const void* data, std::uint64_t bytes, std::uint64_t offset,
              const Wrote& wrote) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written =
        pwrite(fd, from, std::min(bytes, kMostAtOnce), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && (fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
      set_direct(fd, false);
      continue;
    }
    if (written <= 0) return false;
    // The rest begins at no multiple.
    if (static_cast<std::uint64_t>(written) % kDiskBlock != 0) set_direct(fd, false);
    from += written;
    offset += static_cast<std::uint64_t>(written);
    bytes -= static_cast<std::uint64_t>(written);
    if (wrote) wrote(offset);
  }
  return true;
}

/// All room at once, so that a full disk is known before anything is written.
bool reserve(int fd, std::uint64_t bytes) {
  int rc;
  do {
    rc = fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (rc < 0 && errno == EINTR);
  return rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS;
}

Status fill(int fd, const DiskImage& image, const unsigned char* memory, const std::string& path,
            const Wrote& wrote) {
  const auto trailer = image.trailer();
  if (!trailer) return trailer.error();
  alignas(kDiskBlock) char block[kDiskBlock];
  std::memcpy(block, trailer->data(), sizeof block);
  set_direct(fd, is_aligned(0, memory, image.bytes));
  if (!reserve(fd, image.file_bytes()) || !write_at(fd, memory, image.bytes, 0, wrote) ||
      !write_at(fd, block, sizeof block, image.bytes, wrote))
    return write_error(path, image);
  if (fsync(fd) < 0) return errno_error("make durable", path);
  return {};
}

}  // namespace

Status write_image(const DiskImage& image, const unsigned char* memory, const std::string& part,
                   const std::string& path, const std::string& directory, const Wrote& wrote) {
  auto fd = open_file(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
  if (!fd) return fd.error();
  auto status = fill(fd->get(), image, memory, part, wrote);
  if (status && rename(part.c_str(), path.c_str()) < 0) status = errno_error("rename to", path);
  if (!status) {
    unlink(part.c_str());
    return status;
  }
  status = sync_directory(directory);
  // It could be there after a power loss or not; nobody was told that it is.
  if (!status) unlink(path.c_str());
  return status;
}

Result<ImageFile> ImageFile::open(const std::string& path) {
  // O_NONBLOCK: a FIFO in the file's place must not hang its reader.
  auto fd = open_file(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  if (!fd) return fd.error();
  return open(std::move(*fd), path);
}

Result<ImageFile> ImageFile::open(Fd fd, const std::string& path) {
  ImageFile file;
  file.path_ = path;
  struct stat s;
  if (fstat(fd.get(), &s) < 0) return errno_error("look at", path);
  const auto bytes = static_cast<std::uint64_t>(s.st_size);
  if (!S_ISREG(s.st_mode) || bytes <= kDiskBlock)
    return Error{ErrorKind::corrupt, path + " is no whole image of a model"};
  std::string trailer(kDiskBlock, '\0');
  auto read = file.read_at(fd.get(), bytes - kDiskBlock,
                           reinterpret_cast<unsigned char*>(trailer.data()), kDiskBlock);
  if (!read) return read.error();
  const auto image = DiskImage::parse(trailer);
  if (!image || image->file_bytes() != bytes)
    return Error{ErrorKind::corrupt, path + " is no whole image of a model"};
  file.image_ = *image;
  // The same file, whatever has the name by now.
  const std::string link = fmt::format("/proc/self/fd/{}", fd.get());
  file.direct_.reset(::open(link.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  file.file_ = std::move(fd);
  return file;
}

Status ImageFile::read_at(int fd, std::uint64_t begin, unsigned char* to,
                          std::uint64_t bytes) const {
  while (bytes > 0) {
    const ssize_t got = pread(fd, to, std::min(bytes, kMostAtOnce), static_cast<off_t>(begin));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EINVAL && fd == direct_.get()) {
      fd = file_.get();
      continue;
    }
    if (got < 0) return errno_error("read", path_);
    if (got == 0) return Error{ErrorKind::corrupt, path_ + " became shorter while it was read"};
    if (static_cast<std::uint64_t>(got) % kDiskBlock != 0 && file_) fd = file_.get();
    to += got;
    begin += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
  return {};
}

Status ImageFile::read(std::uint64_t begin, unsigned char* to, std::uint64_t bytes) const {
  if (begin > image_.bytes || bytes > image_.bytes - begin)
    return Error{ErrorKind::invalid, fmt::format("{} has {} bytes, and {} are wanted from {} on",
                                                 path_, image_.bytes, bytes, begin)};
  const bool past_cache = direct_ && is_aligned(begin, to, bytes);
  return read_at(past_cache ? direct_.get() : file_.get(), begin, to, bytes);
}

}  // namespace bellows
