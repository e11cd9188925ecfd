// SPDX-License-Identifier: Apache-2.0
#include "common/container/mount_grammar.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <system_error>
#include <tuple>
#include <utility>

#include "common/text.h"

namespace bellows::container {
namespace {

constexpr std::uint64_t kMostMib = std::uint64_t{1} << 24;
constexpr std::size_t kMostMounts = 64;

Error invalid(std::string text) { return Error{ErrorKind::invalid, std::move(text)}; }

Error bad_mount(std::string_view mount, std::string_view why) {
  return invalid(fmt::format("mount \"{}\": {}", mount.substr(0, 256), why));
}

bool is_path(std::string_view text) { return text.starts_with('/') || text.starts_with('.'); }

/// What enroot knows too and has no effect here: it holds anyway, or says nothing of a mount that
/// is there already, or is the usual. Nothing that is mounted on the node later comes into a
/// container, and nothing goes out, so all propagation is private.
constexpr std::string_view kIdle[] = {
    "async",      "atime",      "auto",   "defaults", "diratime",   "dirsync",       "group",
    "iversion",   "lazytime",   "loud",   "mand",     "noauto",     "nodev",         "nogroup",
    "nolazytime", "noiversion", "nomand", "noowner",  "norelatime", "nostrictatime", "nosuid",
    "nouser",     "nousers",    "owner",  "private",  "relatime",   "rprivate",      "rshared",
    "rslave",     "shared",     "slave",  "sync",     "user",       "users"};

/// What enroot knows too and a container can't have.
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {"suid", "every mount is nosuid and nodev; leave it out"},
    {"dev", "every mount is nosuid and nodev; leave it out"},
    {"remount", "each mount is made once; give its other flags alone"},
    {"strictatime", "the file system's own setting counts; leave it out, or write noatime"},
    {"uid=", "a tmpfs belongs to its user; leave it out, and write mode= for what others may do"},
    {"gid=", "a tmpfs belongs to its user; leave it out, and write mode= for what others may do"}};

/// Flags that are on or off.
constexpr std::tuple<std::string_view, bool Mount::*, bool> kSwitches[] = {
    {"ro", &Mount::read_only, true},          {"rw", &Mount::read_only, false},
    {"exec", &Mount::no_exec, false},         {"noexec", &Mount::no_exec, true},
    {"noatime", &Mount::no_atime, true},      {"nodiratime", &Mount::no_dir_atime, true},
    {"unbindable", &Mount::unbindable, true}, {"runbindable", &Mount::unbindable, true},
    {"nofail", &Mount::optional, true},       {"silent", &Mount::quiet, true}};

constexpr std::string_view kHugePages[] = {"never", "always", "within_size", "advise"};

/// enroot's x-move comes to rbind where pyxis uses it.
Status take_bind_flag(Mount& mount, std::string_view flag) {
  if (mount.kind != Mount::Kind::bind)
    return invalid(fmt::format("{} is only for files and directories of the host", flag));
  mount.recursive = flag != "bind";
  return {};
}

Status take_create(Mount& mount, std::string_view how) {
  if (how != "auto" && how != "file" && how != "dir" && how != "none")
    return invalid("x-create is auto, file, dir or none");
  mount.create = how != "none";
  return {};
}

/// A number without a unit is one of bytes, as the kernel has it.
Status take_size(Mount& mount, std::string_view text) {
  const auto bytes = parse_uint(text);
  const auto size = bytes ? parse_size(fmt::format("{}K", *bytes / 1024 + (*bytes % 1024 != 0)))
                          : parse_size(text);
  if (!size) return size.error();
  mount.size_mib = *size;
  return {};
}

Status take_mode(Mount& mount, std::string_view text) {
  unsigned mode = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  if (text.empty() || end.ec != std::errc() || end.ptr != text.data() + text.size() || mode > 01777)
    return invalid(fmt::format("mode={} is not an octal number up to 1777, such as mode=700",
                               text.substr(0, 64)));
  mount.mode = mode;
  return {};
}

Status take_huge(Mount& mount, std::string_view text) {
  if (std::find(std::begin(kHugePages), std::end(kHugePages), text) == std::end(kHugePages))
    return invalid(fmt::format("huge= is one of {}", fmt::join(kHugePages, ", ")));
  mount.huge = text;
  return {};
}

constexpr std::pair<std::string_view, Status (*)(Mount&, std::string_view)> kTmpfsValues[] = {
    {"size=", take_size}, {"mode=", take_mode}, {"huge=", take_huge}};

Status take_switch(Mount& mount, std::string_view flag, bool& taken) {
  for (const auto& [name, member, value] : kSwitches)
    if (flag == name) {
      mount.*member = value;
      taken = true;
    }
  for (const auto& [name, take] : kTmpfsValues)
    if (flag.starts_with(name)) {
      taken = true;
      if (mount.kind != Mount::Kind::tmpfs)
        return invalid(fmt::format("{} is only for tmpfs", name));
      return take(mount, flag.substr(name.size()));
    }
  return {};
}

Status take_umount_flag(Mount& mount, std::string_view flag) {
  if (flag == "nofail") mount.optional = true;
  if (flag == "silent") mount.quiet = true;
  if (flag == "nofail" || flag == "silent" || flag == "x-detach") return {};
  return invalid("umount takes no flags but nofail and silent");
}

Status take_flag(Mount& mount, std::string_view flag) {
  if (mount.kind == Mount::Kind::umount) return take_umount_flag(mount, flag);
  if (flag == "bind" || flag == "rbind" || flag == "x-move") return take_bind_flag(mount, flag);
  if (flag.starts_with("x-create=")) return take_create(mount, flag.substr(9));
  if (flag == "x-detach") return invalid("x-detach is only for umount");
  bool taken = false;
  if (auto status = take_switch(mount, flag, taken); !status.ok() || taken) return status;
  if (std::find(std::begin(kIdle), std::end(kIdle), flag) != std::end(kIdle)) return {};
  for (const auto& [name, why] : kRefused)
    if (flag == name || (name.ends_with('=') && flag.starts_with(name)))
      return invalid(fmt::format("{} cannot be given: {}", name, why));
  return invalid(
      fmt::format("\"{}\" is not a flag; there are ro, rw, bind, rbind, exec, noexec, noatime, "
                  "nodiratime, unbindable, nofail, silent, x-create=auto|file|dir|none, and for "
                  "tmpfs size=N, mode=OCTAL and huge=never|always|within_size|advise",
                  flag.substr(0, 64)));
}

Status take_flags(Mount& mount, std::string_view flags) {
  if (flags.empty()) return {};
  for (std::string_view flag : split(flags, '+'))
    if (auto status = take_flag(mount, flag); !status.ok()) return status;
  return {};
}

/// Whether its dots lead above the directory that it counts from.
bool leads_out(std::string_view path) {
  int depth = 0;
  for (std::string_view part : split(path, '/')) {
    if (part.empty() || part == ".") continue;
    depth += part == ".." ? -1 : 1;
    if (depth < 0) return true;
  }
  return false;
}

/// The first of the parts: what is mounted.
Status take_source(Mount& mount, std::string_view source, std::string_view base) {
  if (source == "tmpfs") {
    mount.kind = Mount::Kind::tmpfs;
  } else if (source == "umount") {
    mount.kind = Mount::Kind::umount;
  } else if (!is_path(source)) {
    return invalid(
        "the source must be an absolute path, one that begins with \"./\" or \"../\", "
        "tmpfs or umount");
  } else if (!source.starts_with('/') && base.empty()) {
    return invalid("the source must be an absolute path");
  } else {
    mount.source = normal_path(source, base);
  }
  return {};
}

}  // namespace

Status check_value(std::string_view value) {
  if (value.size() > kMostValue)
    return invalid(fmt::format("it is longer than {} bytes", kMostValue));
  for (char c : value)
    if (is_control(c)) return invalid("it has a control character");
  return {};
}

std::string normal_path(std::string_view path, std::string_view base) {
  const std::string whole =
      path.starts_with('/') ? std::string(path) : fmt::format("{}/{}", base, path);
  std::vector<std::string_view> parts;
  for (std::string_view part : split(whole, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..")
      parts.push_back(part);
    else if (!parts.empty())
      parts.pop_back();
  }
  return fmt::format("/{}", fmt::join(parts, "/"));
}

Result<std::uint64_t> parse_size(std::string_view text) {
  const auto bad = [text](std::string_view why) {
    return invalid(fmt::format("size \"{}\": {}; write a number and K, M, G or T, such as 512M",
                               text.substr(0, 64), why));
  };
  if (text.empty()) return bad("it is empty");
  const std::string unit = to_lower(text.substr(text.size() - 1));
  const auto power = std::string_view("kmgt").find(unit);
  if (power == std::string_view::npos) return bad("it has no unit");
  const auto number = parse_uint(text.substr(0, text.size() - 1));
  if (!number) return bad("it has no whole number");
  if (*number == 0) return bad("it is zero");
  if (power == 0 && *number <= UINT64_MAX - 1023) {
    const std::uint64_t mib = (*number + 1023) / 1024;
    return mib <= kMostMib ? Result<std::uint64_t>(mib) : bad("it is more than 16T");
  }
  const std::uint64_t factor = std::uint64_t{1} << (power == 0 ? 0 : 10 * (power - 1));
  if (*number > kMostMib / factor) return bad("it is more than 16T");
  return *number * factor;
}

Result<Mount> parse_mount(std::string_view text, std::string_view base) {
  if (auto status = check_value(text); !status.ok()) return bad_mount(text, status.error().text);
  const auto parts = split(text, ':');
  if (parts[0].empty() || parts.size() > 3)
    return bad_mount(text, "it is not SOURCE[:TARGET[:FLAG+FLAG]]");
  Mount mount;
  if (auto status = take_source(mount, parts[0], base); !status.ok())
    return bad_mount(text, status.error().text);
  if (parts.size() == 1 && mount.kind == Mount::Kind::bind) {
    mount.target = mount.source;
  } else if (parts.size() == 1 || !is_path(parts[1])) {
    return bad_mount(text, "the target must be a path in the container, such as /data");
  } else if (leads_out(parts[1])) {
    return bad_mount(text,
                     "the target leads out of the container (cross-device link); write it as the "
                     "container has it, such as /data");
  } else {
    mount.target = normal_path(parts[1], "");
  }
  if (mount.target == "/")
    return bad_mount(text, "the target is the container's root, which is the image's place");
  if (mount.target == "/dev" && mount.kind != Mount::Kind::umount)
    return bad_mount(text,
                     "the target is the container's own /dev; mount what is needed below it, as at "
                     "/dev/x");
  if (parts.size() == 3)
    if (auto status = take_flags(mount, parts[2]); !status.ok())
      return bad_mount(text, status.error().text);
  return mount;
}

std::string mount_text(const Mount& mount) {
  std::vector<std::string> flags;
  if (mount.read_only) flags.emplace_back("ro");
  if (mount.no_exec) flags.emplace_back("noexec");
  if (mount.no_atime) flags.emplace_back("noatime");
  if (mount.no_dir_atime) flags.emplace_back("nodiratime");
  if (!mount.recursive) flags.emplace_back("bind");
  if (mount.unbindable) flags.emplace_back("unbindable");
  if (mount.optional) flags.emplace_back("nofail");
  if (mount.quiet) flags.emplace_back("silent");
  if (!mount.create) flags.emplace_back("x-create=none");
  if (mount.size_mib > 0) flags.push_back(fmt::format("size={}M", mount.size_mib));
  if (mount.mode) flags.push_back(fmt::format("mode={:o}", *mount.mode));
  if (!mount.huge.empty()) flags.push_back(fmt::format("huge={}", mount.huge));
  std::string text = mount.source;
  if (mount.kind == Mount::Kind::tmpfs) text = "tmpfs";
  if (mount.kind == Mount::Kind::umount) text = "umount";
  if (mount.target != text || !flags.empty()) text += ":" + mount.target;
  if (!flags.empty()) text += fmt::format(":{}", fmt::join(flags, "+"));
  return text;
}

void add_mount(std::vector<Mount>& mounts, Mount mount) {
  if (std::find(mounts.begin(), mounts.end(), mount) == mounts.end())
    mounts.push_back(std::move(mount));
}

Status parse_mounts(std::string_view text, std::string_view base, std::vector<Mount>& mounts) {
  if (text.empty()) return invalid("it is empty; write SOURCE[:TARGET[:FLAG+FLAG]],...");
  if (auto status = check_value(text); !status.ok()) return status;
  for (std::string_view piece : split(text, ',')) {
    auto mount = parse_mount(piece, base);
    if (!mount) return mount.error();
    add_mount(mounts, *std::move(mount));
    if (mounts.size() > kMostMounts)
      return invalid(fmt::format("there are more than {} mounts", kMostMounts));
  }
  return {};
}

}  // namespace bellows::container
