// SPDX-License-Identifier: Apache-2.0
#include "spank/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/container/options.h"
#include "common/text.h"
#include "common/variables.h"
#include "spank/container/site.h"

namespace bellows::spank {
namespace {

constexpr std::size_t kMostCharacters = 64;

constexpr std::string_view kPunctuation = "._+-";

// The names that bellows.yaml(5) may give.
Status check_word(std::string_view word, std::string_view what) {
  if (word.empty())
    return Error{
        ErrorKind::invalid,
        fmt::format("the {} is empty; write NAME or NAME:VERSION, such as pytorch:2.1", what)};
  if (word.size() > kMostCharacters)
    return Error{ErrorKind::invalid,
                 fmt::format("the {} is longer than {} characters", what, kMostCharacters)};
  if (!is_alphanumeric(word[0]) && word[0] != '_')
    return Error{ErrorKind::invalid,
                 fmt::format("the {} must begin with a letter, a digit or \"_\"", what)};
  for (char c : word)
    if (!is_alphanumeric(c) && kPunctuation.find(c) == std::string_view::npos)
      return Error{
          ErrorKind::invalid,
          fmt::format("the {} may have only letters, digits and \"{}\"", what, kPunctuation)};
  return {};
}

}  // namespace

Result<FrameworkOption> parse_framework(std::string_view text) {
  const auto colon = text.find(':');
  FrameworkOption framework{std::string(text.substr(0, colon)), ""};
  if (auto status = check_word(framework.name, "framework's name"); !status.ok())
    return status.error();
  if (colon == std::string_view::npos) return framework;
  framework.version = text.substr(colon + 1);
  if (auto status = check_word(framework.version, "framework's version"); !status.ok())
    return status.error();
  return framework;
}

Settings read_settings(int count, char** arguments, std::vector<std::string>& complaints) {
  Settings settings;
  const std::pair<std::string_view, std::string*> paths[] = {
      {"run_dir", &settings.run_dir}, {"model_store", &settings.model_store}};
  for (int i = 0; i < count; ++i) {
    const std::string_view argument = arguments[i];
    const std::string_view key = argument.substr(0, argument.find('='));
    const auto path = std::find_if(std::begin(paths), std::end(paths), [&](const auto& one) {
      return one.first == key && key.size() < argument.size();
    });
    if (path == std::end(paths)) {
      if (auto status = container::set_site(settings.site, argument); !status.ok())
        complaints.push_back(fmt::format("plugstack.conf: {}", status.error().text));
      continue;
    }
    const std::string_view value = argument.substr(key.size() + 1);
    if (value.size() < 2 || value[0] != '/' || value.find("..") != std::string_view::npos)
      complaints.push_back(
          fmt::format("plugstack.conf: {} must be an absolute path, not \"{}\"; {} is used", key,
                      value, *path->second));
    else
      *path->second = value;
  }
  return settings;
}

std::string option_variable(std::string_view option) {
  std::string name(kOptionPrefix);
  for (char c : option) name += is_alphanumeric(c) ? c : '_';
  return name;
}

const std::vector<std::string>& option_variables() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> bare = {option_variable("framework"),   option_variable("gpus-range"),
                                     option_variable("batch-range"), option_variable("job-class"),
                                     option_variable("model"),       option_variable("model-on"),
                                     option_variable("pool"),        kContainerVariable};
    for (const container::OptionInfo& option : container::options())
      bare.push_back(option_variable(option.name));
    std::vector<std::string> all = bare;
    for (const std::string& name : bare) all.push_back(kExported + name);
    return all;
  }();
  return names;
}

}  // namespace bellows::spank
