// SPDX-License-Identifier: Apache-2.0
#include "common/container/spec_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "common/container/mount_grammar.h"
#include "common/container/options.h"
#include "common/contract.h"
#include "common/text.h"

namespace bellows::container {
namespace {

std::string unshared(const Spec& spec) {
  std::vector<std::string_view> kinds;
  if (spec.unshare_net) kinds.emplace_back("net");
  if (spec.unshare_ipc) kinds.emplace_back("ipc");
  if (spec.unshare_uts) kinds.emplace_back("uts");
  return fmt::format("{}", fmt::join(kinds, ","));
}

/// The items, each an option's name without "container-" and its value. Lists in values have "+"
/// for their commas, which would need encoding.
std::string with_plus(std::string list) {
  for (char& c : list)
    if (c == ',') c = '+';
  return list;
}

std::string with_commas(std::string_view list) {
  std::string out(list);
  for (char& c : out)
    if (c == '+') c = ',';
  return out;
}

Status take_item(Spec& spec, std::string_view item) {
  const auto colon = item.find(':');
  const std::string_view word = item.substr(0, colon);
  const std::string_view value =
      colon == std::string_view::npos ? std::string_view() : item.substr(colon + 1);
  if (word == "mount") {
    auto mount = parse_mount(value, "");
    if (!mount) return mount.error();
    add_mount(spec.mounts, *std::move(mount));
    return {};
  }
  for (const OptionInfo& info : options()) {
    if (info.word != word) continue;
    if (info.argument == nullptr && colon != std::string_view::npos) break;
    const bool list = info.option == Option::env || info.option == Option::unshare;
    const std::string text = list ? with_commas(value) : std::string(value);
    if (auto status = apply_option(spec, info.option, text, Place{}); !status.ok())
      return Error{status.error().kind, fmt::format("--{}: {}", info.name, status.error().text)};
    return {};
  }
  return Error{ErrorKind::invalid,
               fmt::format("\"{}\" is not an option of a container", word.substr(0, 64))};
}

}  // namespace

std::string spec_text(const Spec& spec) {
  std::vector<std::string> items;
  const auto add = [&items](std::string_view word, std::string_view value) {
    if (!value.empty()) items.push_back(fmt::format("{}:{}", word, value));
  };
  const auto add_choice = [&items](std::optional<bool> choice, const char* yes, const char* no) {
    if (choice) items.emplace_back(*choice ? yes : no);
  };
  add("image", spec.image);
  for (const Mount& mount : spec.mounts) add("mount", mount_text(mount));
  if (spec.workdir) add("workdir", *spec.workdir);
  if (spec.name_mode != NameMode::automatic)
    add("name", fmt::format("{}:{}", spec.name, name_mode_word(spec.name_mode)));
  else
    add("name", spec.name);
  add_choice(spec.mount_home, "mount-home", "no-mount-home");
  add_choice(spec.remap_root, "remap-root", "no-remap-root");
  add_choice(spec.writable, "writable", "readonly");
  add_choice(spec.entrypoint, "entrypoint", "no-entrypoint");
  if (spec.entrypoint_log) items.emplace_back("entrypoint-log");
  add("env", fmt::format("{}", fmt::join(spec.env, "+")));
  add("unshare", with_plus(unshared(spec)));
  if (spec.tmp_mib) add("tmp", fmt::format("{}M", *spec.tmp_mib));
  if (spec.verbose) items.emplace_back("verbose");
  add("save", spec.save);
  return Contract::join_list(items);
}

Result<Spec> parse_spec(std::string_view text) {
  if (text.size() > kMostText)
    return Error{
        ErrorKind::invalid,
        fmt::format("the --container options together are longer than {} bytes", kMostText)};
  Spec spec;
  for (const std::string& item : Contract::split_list(text))
    if (auto status = take_item(spec, item); !status.ok()) return status.error();
  return spec;
}

Spec overlay(const Spec& base, const Spec& over) {
  Spec spec = base;
  const auto take = [](auto& to, const auto& from) {
    if (from) to = from;
  };
  if (!over.image.empty()) spec.image = over.image;
  if (!over.mounts.empty()) spec.mounts = over.mounts;
  if (!over.env.empty()) spec.env = over.env;
  if (!over.save.empty()) spec.save = over.save;
  if (!over.name.empty()) {
    spec.name = over.name;
    spec.name_mode = over.name_mode;
  }
  take(spec.workdir, over.workdir);
  take(spec.mount_home, over.mount_home);
  take(spec.remap_root, over.remap_root);
  take(spec.writable, over.writable);
  take(spec.entrypoint, over.entrypoint);
  spec.entrypoint_log = base.entrypoint_log || over.entrypoint_log;
  take(spec.tmp_mib, over.tmp_mib);
  if (over.unshare_net || over.unshare_ipc || over.unshare_uts) {
    spec.unshare_net = over.unshare_net;
    spec.unshare_ipc = over.unshare_ipc;
    spec.unshare_uts = over.unshare_uts;
  }
  spec.verbose = base.verbose || over.verbose;
  return spec;
}

}  // namespace bellows::container
