// SPDX-License-Identifier: Apache-2.0
#include "modelstore/disk/disk_tier.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "common/directory.h"

namespace bellows {
namespace {

constexpr std::string_view kPart = ".part";
constexpr const char* kLock = "lock";

}  // namespace

struct DiskTier::Contents {
  struct Entry {
    DiskImage image;
    bool is_whole = false;  ///< nobody stores or removes it
  };

  std::mutex mutex;
  std::map<ModelDigest, Entry> entries;
  std::uint64_t used = 0;

  void add(const DiskImage& image, bool is_whole) {
    entries[image.digest] = {image, is_whole};
    used += image.file_bytes();
  }
  void drop(const ModelDigest& digest) {
    const auto entry = entries.find(digest);
    used -= entry->second.image.file_bytes();
    entries.erase(entry);
  }
};

DiskTier::DiskTier(std::string directory, std::uint64_t budget)
    : directory_(std::move(directory)), budget_(budget), contents_(std::make_unique<Contents>()) {}
DiskTier::DiskTier(DiskTier&&) noexcept = default;
DiskTier& DiskTier::operator=(DiskTier&&) noexcept = default;
DiskTier::~DiskTier() = default;

std::string DiskTier::path_of(const ModelDigest& digest) const {
  return directory_ + "/" + digest.to_string();
}

Result<DiskTier> DiskTier::open(const std::string& directory, std::uint64_t budget) {
  DiskTier tier(directory, budget);
  if (auto taken = tier.take_directory(); !taken) return taken.error();
  if (auto recovered = tier.recover(); !recovered) return recovered.error();
  return tier;
}

Status DiskTier::take_directory() {
  if (mkdir(directory_.c_str(), 0700) == 0) {
    const auto slash = directory_.rfind('/');
    const std::string above = slash == std::string::npos ? "." : directory_.substr(0, slash + 1);
    if (auto synced = sync_directory(above); !synced) return synced;
  } else if (errno != EEXIST) {
    return errno_error("make the directory", directory_);
  }
  const auto fd = open_file(directory_, O_RDONLY | O_DIRECTORY);
  if (!fd) return fd.error();
  if (auto owned = check_owner(fd->get(), geteuid(), directory_); !owned) return owned;
  const std::string path = directory_ + "/" + kLock;
  auto lock = open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  if (!lock) return lock.error();
  if (flock(lock->get(), LOCK_EX | LOCK_NB) < 0) {
    if (errno != EWOULDBLOCK) return errno_error("lock", path);
    return Error{ErrorKind::busy,
                 directory_ + " is used by another process: end it, or name another directory"};
  }
  lock_ = std::move(*lock);
  return {};
}

Status DiskTier::recover() {
  const Directory listing = read_directory(Fd(::open(directory_.c_str(), O_RDONLY | O_CLOEXEC)));
  if (!listing) return errno_error("list", directory_);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(listing.get())) {
    names.emplace_back(entry->d_name);
    errno = 0;
  }
  if (errno != 0) return errno_error("list", directory_);
  for (const std::string& name : names)
    if (auto recovered = recover_file(name); !recovered) return recovered;
  return {};
}

Status DiskTier::recover_file(const std::string& name) {
  const bool is_part = name.size() > kPart.size() && name.ends_with(kPart);
  const auto digest = ModelDigest::parse(
      std::string_view(name).substr(0, name.size() - (is_part ? kPart.size() : 0)));
  // Somebody else's, who may miss it.
  if (!digest) return {};
  const std::string path = directory_ + "/" + name;
  if (!is_part) {
    const auto file = ImageFile::open(path);
    if (!file && file.error().kind != ErrorKind::corrupt) return file.error();
    if (file && file->image().digest == *digest) {
      contents_->add(file->image(), true);
      return {};
    }
  }
  if (unlink(path.c_str()) < 0) return errno_error("remove", path);
  return {};
}

std::vector<DiskImage> DiskTier::images() const {
  const std::lock_guard<std::mutex> lock(contents_->mutex);
  std::vector<DiskImage> images;
  for (const auto& [digest, entry] : contents_->entries)
    if (entry.is_whole) images.push_back(entry.image);
  return images;
}

std::uint64_t DiskTier::used() const {
  const std::lock_guard<std::mutex> lock(contents_->mutex);
  return contents_->used;
}

Status DiskTier::reserve(const DiskImage& image, bool* is_there) {
  const std::lock_guard<std::mutex> lock(contents_->mutex);
  const auto entry = contents_->entries.find(image.digest);
  *is_there = entry != contents_->entries.end() && entry->second.is_whole;
  if (*is_there) return {};
  if (entry != contents_->entries.end())
    return Error{ErrorKind::busy,
                 path_of(image.digest) + " is being stored or removed: try again when it is done"};
  if (contents_->used > budget_ || image.file_bytes() > budget_ - contents_->used)
    return Error{
        ErrorKind::unavailable,
        fmt::format("{}: {} bytes do not fit into the {} of which {} are used: remove other "
                    "models first",
                    directory_, image.file_bytes(), budget_, contents_->used)};
  contents_->add(image, false);
  return {};
}

Status DiskTier::store(const DiskImage& image, const unsigned char* memory, const Wrote& wrote) {
  bool is_there = false;
  if (auto reserved = reserve(image, &is_there); !reserved || is_there) return reserved;
  const std::string path = path_of(image.digest);
  auto written = write_image(image, memory, path + std::string(kPart), path, directory_, wrote);
  const std::lock_guard<std::mutex> lock(contents_->mutex);
  if (written)
    contents_->entries[image.digest].is_whole = true;
  else
    contents_->drop(image.digest);
  return written;
}

Status DiskTier::remove(const ModelDigest& digest) {
  const std::string path = path_of(digest);
  {
    const std::lock_guard<std::mutex> lock(contents_->mutex);
    const auto entry = contents_->entries.find(digest);
    if (entry == contents_->entries.end())
      return Error{ErrorKind::not_found, path + " is not there"};
    if (!entry->second.is_whole)
      return Error{ErrorKind::busy,
                   path + " is being stored or removed: try again when it is done"};
    entry->second.is_whole = false;
  }
  Status removed;
  if (unlink(path.c_str()) < 0 && errno != ENOENT) removed = errno_error("remove", path);
  const std::lock_guard<std::mutex> lock(contents_->mutex);
  if (removed)
    contents_->drop(digest);
  else
    contents_->entries[digest].is_whole = true;
  return removed;
}

Result<ImageFile> DiskTier::open_image(const ModelDigest& digest) const {
  auto file = ImageFile::open(path_of(digest));
  if (file && file->image().digest != digest)
    return Error{ErrorKind::corrupt, path_of(digest) + " is the image of another model"};
  return file;
}

}  // namespace bellows
