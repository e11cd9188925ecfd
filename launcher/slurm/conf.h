// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows {

/// The text of a file.
using ReadText = std::function<Result<std::string>(const std::string& path)>;

/// Lines of a file, 1-based: more than one where a backslash joins them.
struct ConfPlace {
  std::string file;
  int first = 0;
  int last = 0;

  /// "FILE:12" or "FILE:12-13".
  std::string to_string() const;
};

/// One KEY=VALUE of a file.
struct ConfEntry {
  std::string key;  ///< as it is spelled there
  std::string value;
  ConfPlace place;

  /// As one line of the file.
  std::string line() const;
};

/// slurm.conf or cgroup.conf with all that it includes, read by Slurm's rules: of a key that stands
/// more than once the last value counts, and the daemons log an error. A value.
class SlurmConf {
 public:
  /// Not ok: a file cannot be read (the text says which line includes it), or includes itself.
  static Result<SlurmConf> read(const std::string& path, const ReadText& read);

  const std::string& path() const { return path_; }
  /// Where the key stands, in Slurm's order. Keys have no case.
  std::vector<ConfEntry> all(std::string_view key) const;
  /// The value that counts; empty: none.
  std::string value(std::string_view key) const;
  /// Hosts of SlurmctldHost, or of the older ControlMachine and BackupController.
  std::vector<std::string> controllers() const;

 private:
  explicit SlurmConf(std::string path) : path_(std::move(path)) {}

  Status read_from(const std::string& path, const ReadText& read, std::size_t depth);
  Status take(const std::string& line, const ConfPlace& place, const ReadText& read,
              std::size_t depth);
  std::string included_path(std::string name, const std::string& from) const;

  std::string path_;
  std::vector<ConfEntry> entries_;
};

/// One plugin of plugstack.conf.
struct PlugstackLine {
  std::string text;    ///< the whole line
  std::string plugin;  ///< a path, or a name that Slurm looks up in PluginDir
  ConfPlace place;
};

/// The plugins of plugstack.conf and of the files that it includes. One that is not there is empty,
/// as for Slurm.
Result<std::vector<PlugstackLine>> read_plugstack(const std::string& path, const ReadText& read);

}  // namespace bellows
