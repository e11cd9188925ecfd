// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/container/spec.h"
#include "common/result.h"

/// The --container options, with pyxis's names and meanings. Nothing here knows SPANK.
namespace bellows::container {

enum class Option {
  image,
  mounts,
  workdir,
  name,
  mount_home,
  no_mount_home,
  remap_root,
  no_remap_root,
  writable,
  readonly,
  env,
  unshare,
  tmp,
  verbose,
  save,
  entrypoint,
  no_entrypoint,
  entrypoint_log,
};
constexpr std::size_t kOptionCount = 18;

struct OptionInfo {
  Option option;
  const char* name;      ///< without the dashes before it
  const char* word;      ///< the name without "container-": see spec_text.h
  const char* argument;  ///< how help shows its value; null: it has none
  const char* help;
};

/// All of them, in the order of Option.
std::span<const OptionInfo> options();
const OptionInfo& info_of(Option option);

/// Where a command runs: what relative paths count from, and what files there are.
struct Place {
  std::string base;                                     ///< empty: only absolute paths are taken
  std::function<bool(const std::string& path)> exists;  ///< empty: nothing does
};

/// This process's own. Without a working directory only absolute paths can be meant.
Place place_of_process();

/// Puts one option's value into a Spec; lists are added to those there are, everything else
/// replaces. An option without an argument has an empty value.
/// invalid: a sentence without the option's name.
Status apply_option(Spec& spec, Option option, std::string_view value, const Place& place);

/// auto, create, exec or no_exec.
Result<NameMode> parse_name_mode(std::string_view word);
std::string_view name_mode_word(NameMode mode);

/// An option that a variable of the environment sets. A value.
struct Setting {
  Option option = Option::image;
  std::string variable;  ///< such as PYXIS_CONTAINER_IMAGE
  std::string value;
};

/// What the BELLOWS_CONTAINER_ and PYXIS_CONTAINER_ variables say: one Setting at most for each
/// thing to set, and BELLOWS_ before PYXIS_. An empty variable says nothing, but hides the other.
using GetVariable = std::function<const char*(const char* name)>;
std::vector<Setting> read_variables(const GetVariable& get);

/// Collects what a command line and variables say.
class Collector {
 public:
  explicit Collector(Place place) : place_(std::move(place)) {}

  /// An option of the command line; of `#SBATCH` lines too, since Slurm gives both alike.
  /// invalid: the value is wrong, the option was given before with another one, or its contrary
  /// was; a sentence without the option's name.
  Status take(Option option, std::string_view value);
  /// A variable: counts only where the command line says nothing.
  Status take(const Setting& setting);

  Spec spec() const;

  /// The names of the variables that count for nothing, since the command line says otherwise.
  std::vector<std::string> beaten_variables() const;

 private:
  Status check_length() const;

  Place place_;
  Spec line_;
  Spec variables_;
  std::array<std::optional<std::string>, kOptionCount> given_;  ///< on the command line
};

}  // namespace bellows::container
