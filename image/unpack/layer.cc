// SPDX-License-Identifier: Apache-2.0
#include "image/unpack/layer.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <unordered_set>

#include "common/text.h"
#include "image/unpack/tree.h"

namespace bellows::image {
namespace {

constexpr std::string_view kWhiteout = ".wh.";
constexpr std::string_view kOpaque = ".wh..wh..opq";
constexpr mode_t kRights = 0777;  // never setuid, setgid or sticky

/// libarchive gives no name that the thread's locale can't write.
class Utf8 {
 public:
  Utf8() : locale_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
    if (locale_ != nullptr) before_ = ::uselocale(locale_);
  }
  Utf8(const Utf8&) = delete;
  Utf8& operator=(const Utf8&) = delete;
  ~Utf8() {
    if (locale_ == nullptr) return;
    ::uselocale(before_);
    ::freelocale(locale_);
  }

 private:
  locale_t locale_;
  locale_t before_ = nullptr;
};

Error bad(const std::string& path, std::string_view why) {
  return {ErrorKind::invalid,
          fmt::format("a layer has the file \"{}\": {}", one_line(path, 256), why)};
}

class Application {
 public:
  Application(const Fd& root, LayerStream& stream, const Limits& limits, Tally& tally)
      : tree_(Fd(::fcntl(root.get(), F_DUPFD_CLOEXEC, 3)), limits),
        stream_(stream),
        limits_(limits),
        tally_(tally) {}

  Status run() {
    for (;;) {
      archive_entry* entry = nullptr;
      const int read = ::archive_read_next_header(stream_.tar(), &entry);
      if (read == ARCHIVE_EOF) return stream_.finish();
      if (read != ARCHIVE_OK && read != ARCHIVE_WARN) return stream_.failure();
      if (++tally_.entries > limits_.entries)
        return Error{ErrorKind::invalid,
                     fmt::format("the image has more than {} files, the most that is allowed",
                                 limits_.entries)};
      if (auto status = take(entry); !status) return status;
    }
  }

 private:
  Status take(archive_entry* entry) {
    const char* name = ::archive_entry_pathname(entry);
    if (name == nullptr) return bad("?", "its name can't be read");
    const auto path = tree_.clean(name);
    if (!path) return path.error();
    if (path->empty()) return set_root(entry);
    const auto place = tree_.find(*path, true);
    if (!place) return place.error();
    if (std::string_view(place->name).starts_with(kWhiteout)) return take_whiteout(*place);
    Status status = make(entry, *place);
    made_.insert(place->path);
    return status;
  }

  Status set_root(archive_entry* entry) const {
    if (::archive_entry_filetype(entry) != AE_IFDIR) return bad("/", "the root is no directory");
    return set_mode(tree_.root(), "/", ::archive_entry_perm(entry) | S_IRWXU);
  }

  /// Only what lower layers have: an upper one's own files stay.
  Status take_whiteout(const Tree::Place& place) {
    if (place.name == kOpaque) {
      const auto slash = place.path.rfind('/');
      return tree_.clear(slash == std::string::npos ? "" : place.path.substr(0, slash),
                         [this](const std::string& path) { return made_.contains(path); });
    }
    // Of aufs, for its own use.
    if (place.name.starts_with(".wh..wh.")) return {};
    Tree::Place gone = place;
    gone.name = place.name.substr(kWhiteout.size());
    if (gone.name.empty() || gone.name == "." || gone.name == "..")
      return bad(place.path, "it takes away what is no file");
    gone.path = place.path.substr(0, place.path.size() - place.name.size()) + gone.name;
    return tree_.remove(gone);
  }

  Status make(archive_entry* entry, const Tree::Place& place) {
    const auto type = ::archive_entry_filetype(entry);
    const char* link = ::archive_entry_hardlink(entry);
    if (link == nullptr && type == AE_IFDIR) return make_directory(entry, place);
    if (auto status = tree_.remove(place); !status) return status;
    if (link != nullptr) return make_link(link, place);
    if (type == AE_IFREG) return make_file(entry, place);
    if (type == AE_IFLNK) return make_symlink(entry, place);
    ++tally_.left_out;
    return {};
  }

  Status make_directory(archive_entry* entry, const Tree::Place& place) {
    const char* name = place.name.c_str();
    struct stat info {};
    if (::fstatat(place.directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(info.st_mode))
      if (auto status = tree_.remove(place); !status) return status;
    if (::mkdirat(place.directory, name, S_IRWXU) != 0 && errno != EEXIST)
      return errno_error("make the image's directory", place.path);
    const Fd fd(::openat(place.directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) return errno_error("open the image's directory", place.path);
    return set_mode(fd.get(), place.path, ::archive_entry_perm(entry) | S_IRWXU);
  }

  static Status set_mode(int fd, const std::string& path, mode_t mode) {
    if (::fchmod(fd, mode & kRights) == 0) return {};
    return errno_error("set the rights of the image's file", path);
  }

  Status make_link(const char* to, const Tree::Place& place) {
    // The tree remembers one directory, which the search of the other one would close.
    const Fd directory(::fcntl(place.directory, F_DUPFD_CLOEXEC, 3));
    if (!directory) return errno_error("open the directory of", place.path);
    const auto target = tree_.find(to, false);
    if (!target) return target.error();
    struct stat info {};
    if (::fstatat(target->directory, target->name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
      return errno_error("link to the image's file", target->path);
    if (!S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode))
      return bad(place.path, "it is a link to what is no file");
    if (::linkat(target->directory, target->name.c_str(), directory.get(), place.name.c_str(), 0) !=
        0)
      return errno_error("make the image's link", place.path);
    return {};
  }

  Status make_symlink(archive_entry* entry, const Tree::Place& place) {
    const char* to = ::archive_entry_symlink(entry);
    if (to == nullptr) return bad(place.path, "where it leads can't be read");
    if (::symlinkat(to, place.directory, place.name.c_str()) != 0)
      return errno_error("make the image's link", place.path);
    return {};
  }

  Status make_file(archive_entry* entry, const Tree::Place& place) {
    const Fd fd(::openat(place.directory, place.name.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!fd) return errno_error("make the image's file", place.path);
    if (auto status = fill(fd, place.path); !status) return status;
    const auto size = ::archive_entry_size(entry);
    if (size > 0 && static_cast<std::uint64_t>(size) > limits_.bytes)
      return bad(place.path, "it is larger than an image may be");
    // A sparse file may end in a hole.
    if (size > 0 && ::ftruncate(fd.get(), size) != 0)
      return errno_error("write the image's file", place.path);
    const timespec times[] = {
        {::archive_entry_mtime(entry), 0},
        {::archive_entry_mtime(entry), ::archive_entry_mtime_nsec(entry)},
    };
    ::futimens(fd.get(), times);
    return set_mode(fd.get(), place.path, ::archive_entry_perm(entry) | S_IRUSR);
  }

  Status fill(const Fd& fd, const std::string& path) {
    for (;;) {
      const void* data = nullptr;
      std::size_t size = 0;
      la_int64_t at = 0;
      const int read = ::archive_read_data_block(stream_.tar(), &data, &size, &at);
      if (read == ARCHIVE_EOF) return {};
      if (read != ARCHIVE_OK && read != ARCHIVE_WARN) return stream_.failure();
      if (at < 0 || static_cast<std::uint64_t>(at) > limits_.bytes)
        return bad(path, "it is larger than an image may be");
      if (::lseek(fd.get(), at, SEEK_SET) < 0) return errno_error("write the image's file", path);
      if (auto status = write_all(fd.get(), {static_cast<const char*>(data), size}, path); !status)
        return status;
    }
  }

  Tree tree_;
  LayerStream& stream_;
  const Limits& limits_;
  Tally& tally_;
  std::unordered_set<std::string> made_;  ///< the paths of this layer's own
};

}  // namespace

Status apply_layer(const Fd& root, const Layer& layer, const Limits& limits, Tally& tally) {
  const Utf8 locale;
  LayerStream stream(layer, limits, tally);
  if (auto status = stream.open(); !status) return status;
  return Application(root, stream, limits, tally).run();
}

}  // namespace bellows::image
