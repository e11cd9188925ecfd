// SPDX-License-Identifier: Apache-2.0
#include "image/cache/cache.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "common/directory.h"
#include "common/fd.h"
#include "common/text.h"
#include "image/cache/layout_files.h"
#include "image/cache/leases.h"
#include "image/cache/tree_digest.h"
#include "image/layout/digest.h"

namespace bellows::image {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kLeftover = 7 * 86400 * kSecond;
constexpr std::size_t kMostRecord = 65536;
constexpr const char* kRecord = "/image.json";
constexpr const char* kRoot = "/rootfs";
constexpr const char* kKinds[] = {"images", "locks", "names", "partial", "uses"};

Status make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return errno_error("make the directory", path);
}

Status make_above(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (!error) return {};
  return Error{ErrorKind::io,
               fmt::format("cannot make the directory {}: {}", path, error.message())};
}

Status remove_tree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (!error) return {};
  return Error{ErrorKind::io, fmt::format("cannot remove {}: {}", path, error.message())};
}

/// The record of an image or a name. An object, empty if there is none.
Json read_record(const std::string& path) {
  const auto text = read_file(path, kMostRecord);
  Json json = text ? Json::parse(*text, nullptr, false) : Json::object();
  return json.is_object() ? json : Json::object();
}

std::string text_in(const Json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_string() ? found->get<std::string>() : "";
}

Status write_record(const std::string& path, const Json& record) {
  return replace_file(path, record.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n',
                      0600);
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  const auto entries =
      read_directory(Fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr)
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  return names;
}

/// In nanoseconds since 1970.
std::int64_t changed(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return info.st_mtim.tv_sec * kSecond + info.st_mtim.tv_nsec;
}

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

/// The lock of a name says why its last import failed: its kind and the sentence. A hundred tasks
/// that wait for one import fail with it, without asking the registry again.
void note_failure(const Fd& lock, const Error* error) {
  if (::ftruncate(lock.get(), 0) != 0 || error == nullptr) return;
  (void)write_all(lock.get(), fmt::format("{} {}", static_cast<int>(error->kind), error->text),
                  "the lock of an image");
}

/// Invalid if somebody else has the lock, or there can be none.
Fd try_lock(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd.reset();
  return fd;
}

std::optional<Error> failure_since(const std::string& path, std::int64_t since) {
  const auto text = read_file(path, kMostRecord);
  if (!text || changed(path) <= since) return std::nullopt;
  const auto blank = text->find(' ');
  const auto kind = parse_uint(std::string_view(*text).substr(0, blank));
  if (!kind || *kind > static_cast<std::uint64_t>(ErrorKind::internal) || blank == text->npos)
    return std::nullopt;
  return Error{static_cast<ErrorKind>(*kind), text->substr(blank + 1)};
}

}  // namespace

Result<Cache> Cache::open(const std::string& path) {
  if (path.empty() || path.front() != '/' || path.find(':') != std::string::npos)
    return Error{ErrorKind::invalid,
                 fmt::format("the cache \"{}\" is not an absolute path without \":\"", path)};
  if (auto status = make_above(path); !status) return status.error();
  if (auto status = make_directory(path); !status) return status.error();
  const auto fd = open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!fd) return fd.error();
  if (auto status = check_owner(fd->get(), ::geteuid(), path); !status) return status.error();
  for (const char* kind : kKinds)
    if (auto status = make_directory(path + '/' + kind); !status) return status.error();
  return Cache(path);
}

std::string Cache::directory(const char* kind, const std::string& digest) const {
  return fmt::format("{}/{}/{}", path_, kind, hex_of(digest));
}

Result<Fd> Cache::lock(const std::string& digest, const container::ImageReference& reference,
                       const ImportOptions& options) const {
  auto fd = open_file(directory("locks", digest), O_RDWR | O_CREAT, 0600);
  if (!fd) return fd;
  if (::flock(fd->get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK && options.say)
    options.say(fmt::format("waiting for another import of {}", reference.place()));
  while (::flock(fd->get(), LOCK_EX) != 0)
    if (errno != EINTR) return errno_error("lock", directory("locks", digest));
  return fd;
}

/// What was found while the caller waited is as good as what it would find itself.
Result<std::string> Cache::current_digest(const Registry& registry, const std::string& name_digest,
                                          std::int64_t since) const {
  const std::string path = directory("names", name_digest);
  if (changed(path) > since) {
    const std::string digest = text_in(read_record(path), "digest");
    if (container::is_digest(digest)) return digest;
  }
  const auto manifest = registry.read_manifest();
  if (!manifest) return manifest.error();
  return digest_of(*manifest);
}

Result<CachedImage> Cache::find(const std::string& digest) const {
  const std::string at = directory("images", digest);
  const Json record = read_record(at + kRecord);
  if (text_in(record, "digest") != digest)
    return Error{ErrorKind::not_found, fmt::format("there is no image {} in {}", digest, path_)};
  CachedImage image;
  image.digest = digest;
  image.path = at + kRoot;
  image.used = changed(at + kRecord) / kSecond;
  const auto bytes = record.find("bytes");
  if (bytes != record.end() && bytes->is_number_unsigned())
    image.bytes = bytes->get<std::uint64_t>();
  return image;
}

/// Whoever has the lock may find what an import left that was killed.
Result<CachedImage> Cache::make(const Registry& registry,
                                const container::ImageReference& reference,
                                const std::string& digest, const ImportOptions& options) const {
  const std::string partial = directory("partial", digest);
  const std::string layout = partial + "/layout";
  Status status = make_directory(partial);
  if (status) status = make_directory(layout);
  if (status) status = remove_tree(partial + kRoot);
  for (const std::string& name : names_in(layout))
    if (status && name.starts_with("oci-put-blob")) status = remove_tree(layout + '/' + name);
  if (status) status = make_directory(partial + kRoot);
  if (status) status = registry.copy(digest, layout);
  if (!status) return status.error();
  if (options.say) options.say(fmt::format("unpacking {}", reference.place()));
  const auto tally = unpack_layout(layout, partial + kRoot, options.limits);
  if (!tally) {
    // What is damaged would be found again.
    if (tally.error().kind == ErrorKind::corrupt) status = remove_tree(partial);
    return tally.error();
  }
  const auto tree = tree_digest(partial + kRoot);
  if (!tree) return tree.error();
  status = remove_tree(layout);
  if (status)
    status = write_record(partial + kRecord,
                          {{"digest", digest}, {"bytes", tally->bytes}, {"tree", *tree}});
  const std::string at = directory("images", digest);
  if (status) status = remove_tree(at);
  if (status && ::rename(partial.c_str(), at.c_str()) != 0)
    status = errno_error("put in its place", at);
  if (!status) return status.error();
  return find(digest);
}

Result<Imported> Cache::import(const container::ImageReference& reference,
                               const ImportOptions& options) const {
  const auto name_digest = digest_of(reference.text());
  if (!name_digest) return name_digest.error();
  const std::int64_t since = now();
  const auto name_lock = lock(*name_digest, reference, options);
  if (!name_lock) return name_lock.error();
  const std::string path = directory("locks", *name_digest);
  if (const auto failed = failure_since(path, since)) return *failed;
  auto imported = import_locked(reference, options, *name_digest, since);
  note_failure(*name_lock, imported ? nullptr : &imported.error());
  return imported;
}

Result<Imported> Cache::import_locked(const container::ImageReference& reference,
                                      const ImportOptions& options, const std::string& name_digest,
                                      std::int64_t since) const {
  const auto registry = Registry::open(reference, options.fetch);
  if (!registry) return registry.error();
  // A digest is not the registry's to say, and skopeo does not compare what it only shows.
  const auto digest =
      reference.digest.empty() ? current_digest(*registry, name_digest, since) : reference.digest;
  if (!digest) return digest.error();
  const auto image_lock = lock(*digest, reference, options);
  if (!image_lock) return image_lock.error();
  auto image = find(*digest);
  const bool reused = image.ok();
  if (!reused) image = make(*registry, reference, *digest, options);
  if (!image) return image.error();
  ::utimensat(AT_FDCWD, (directory("images", *digest) + kRecord).c_str(), nullptr, 0);
  const Status noted = write_record(directory("names", name_digest),
                                    {{"name", reference.text()}, {"digest", *digest}});
  if (!noted) return noted.error();
  Imported imported{*std::move(image), reused, Fd()};
  if (!options.user.empty()) {
    auto lease = take_lease(directory("uses", *digest), options.user);
    if (!lease && lease.error().kind != ErrorKind::busy) return lease.error();
    if (lease) imported.lease = *std::move(lease);
  }
  if (!reused)
    if (auto status = make_room(options); !status) return status.error();
  return imported;
}

/// What imports left that nobody has gone on with, and what is left of leases.
void Cache::remove_leftovers() const {
  const std::int64_t old = now() - kLeftover;
  for (const std::string& hex : names_in(path_ + "/partial")) {
    const std::string digest = "sha256:" + hex;
    const std::string path = path_ + "/partial/" + hex;
    if (!container::is_digest(digest) || changed(path) > old) continue;
    if (const Fd lock = try_lock(directory("locks", digest))) (void)remove_tree(path);
  }
  for (const std::string& hex : names_in(path_ + "/uses"))
    if (const Fd lock = try_lock(path_ + "/locks/" + hex)) remove_unlocked(path_ + "/uses/" + hex);
}

/// The new image stays, since its lock is held.
Status Cache::make_room(const ImportOptions& options) const {
  // Two at once would both remove as much as is too much.
  const auto only = open_file(path_ + "/locks/room", O_RDWR | O_CREAT, 0600);
  if (!only) return only.error();
  if (::flock(only->get(), LOCK_EX | LOCK_NB) != 0) return {};
  remove_leftovers();
  auto images = list();
  if (!images) return images.error();
  std::uint64_t bytes = 0;
  for (const CachedImage& image : *images) bytes += image.bytes;
  for (; bytes > options.budget && !images->empty(); images->pop_back()) {
    const CachedImage& image = images->back();
    if (!remove(image.digest)) continue;
    bytes -= image.bytes;
    if (options.say)
      options.say(fmt::format("removed {} from the cache to keep to its budget",
                              image.names.empty() ? image.digest : image.names.front()));
  }
  if (bytes > options.budget && options.say)
    options.say(fmt::format(
        "the cache {} has {} bytes, more than its budget of {} bytes, in images that jobs use",
        path_, bytes, options.budget));
  return {};
}

Result<std::vector<CachedImage>> Cache::list() const {
  std::vector<CachedImage> images;
  for (const std::string& hex : names_in(path_ + "/images")) {
    const std::string digest = "sha256:" + hex;
    if (!container::is_digest(digest)) continue;
    auto image = find(digest);
    if (!image) continue;
    image->users = leases_in(directory("uses", digest));
    images.push_back(*std::move(image));
  }
  for (const std::string& name : names_in(path_ + "/names")) {
    const Json record = read_record(path_ + "/names/" + name);
    for (CachedImage& image : images)
      if (image.digest == text_in(record, "digest")) image.names.push_back(text_in(record, "name"));
  }
  std::sort(images.begin(), images.end(), [](const CachedImage& one, const CachedImage& other) {
    return std::tie(other.used, one.digest) < std::tie(one.used, other.digest);
  });
  return images;
}

Status Cache::verify(const std::string& digest) const {
  const auto image = find(digest);
  if (!image) return image.error();
  const auto tree = tree_digest(image->path);
  if (!tree) return tree.error();
  if (*tree == text_in(read_record(directory("images", digest) + kRecord), "tree")) return {};
  return Error{ErrorKind::corrupt,
               fmt::format("the image {} in {} is not what was imported; remove it, and it is "
                           "fetched again when it is needed",
                           digest, path_)};
}

Status Cache::remove(const std::string& digest) const {
  const Fd fd = try_lock(directory("locks", digest));
  if (!fd) return Error{ErrorKind::busy, fmt::format("the image {} is being imported", digest)};
  const auto image = find(digest);
  if (!image) return image.error();
  if (const auto users = leases_in(directory("uses", digest)); !users.empty())
    return Error{ErrorKind::busy,
                 fmt::format("the image {} is used by {}; remove it when this has ended", digest,
                             fmt::join(users, ", "))};
  (void)remove_tree(directory("uses", digest));
  for (const std::string& name : names_in(path_ + "/names"))
    if (text_in(read_record(path_ + "/names/" + name), "digest") == digest)
      ::unlink((path_ + "/names/" + name).c_str());
  // From here on nobody finds it, whenever this ends.
  const std::string gone = directory("partial", digest);
  Status status = remove_tree(gone);
  if (status && ::rename(directory("images", digest).c_str(), gone.c_str()) != 0)
    status = errno_error("remove the image", digest);
  return status ? remove_tree(gone) : status;
}

std::string default_cache() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const auto own = variable("BELLOWS_IMAGE_CACHE"); !own.empty()) return own;
  const auto caches = variable("XDG_CACHE_HOME");
  return (caches.empty() ? variable("HOME") + "/.cache" : caches) + "/bellows/images";
}

}  // namespace bellows::image
