// SPDX-License-Identifier: Apache-2.0
#include "common/container/image_reference.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/text.h"

namespace bellows::container {
namespace {

constexpr std::size_t kMostText = 1024;
constexpr std::size_t kMostTag = 128;
constexpr std::string_view kDockerHub = "docker.io";

bool is_lower(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

/// Letters and digits, with single characters of `between` in them and none at an end.
template <typename Predicate>
bool is_word(std::string_view text, Predicate letter, std::string_view between) {
  if (text.empty() || !letter(text.front())) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return letter(c) || between.find(c) != std::string_view::npos;
  });
}

/// Docker's own rule: only a host has a dot or a port.
bool looks_like_host(std::string_view part) {
  return part == "localhost" || part.find_first_of(".:") != std::string_view::npos;
}

bool is_registry(std::string_view text) {
  if (!looks_like_host(text)) return false;
  const auto colon = text.find(':');
  if (colon != std::string_view::npos) {
    const auto port = parse_uint(text.substr(colon + 1));
    if (!port || *port == 0 || *port > 65535) return false;
  }
  return is_word(text.substr(0, colon), is_alphanumeric, ".-");
}

bool is_name(std::string_view text) {
  for (const std::string_view part : split(text, '/'))
    if (!is_word(part, is_lower, "._-") || part.find("..") != std::string_view::npos) return false;
  return true;
}

bool is_tag(std::string_view text) {
  return text.size() <= kMostTag && !text.empty() && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alphanumeric(c) || c == '_' || c == '.' || c == '-'; });
}

bool is_user(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_alphanumeric(c) || std::string_view("$._+-").find(c) != std::string_view::npos;
  });
}

Error bad(std::string_view text, std::string_view why) {
  return Error{ErrorKind::invalid,
               fmt::format("\"{}\" is not the name of an image in a registry: {}; write "
                           "docker://REGISTRY/NAME:TAG or pyxis's [USER@][REGISTRY#]NAME[:TAG]",
                           one_line(text, 256), why)};
}

void take_registry(std::string_view& rest, ImageReference& reference) {
  if (const auto hash = rest.find('#'); hash != std::string_view::npos) {
    reference.registry = rest.substr(0, hash);
    rest.remove_prefix(hash + 1);
  } else if (const auto slash = rest.find('/');
             slash != std::string_view::npos && looks_like_host(rest.substr(0, slash))) {
    reference.registry = rest.substr(0, slash);
    rest.remove_prefix(slash + 1);
  } else {
    reference.registry = kDockerHub;
  }
  if (reference.registry == "registry-1.docker.io" || reference.registry == "index.docker.io")
    reference.registry = kDockerHub;
}

}  // namespace

bool is_digest(std::string_view text) {
  constexpr std::string_view kBegin = "sha256:";
  if (!text.starts_with(kBegin) || text.size() != kBegin.size() + 64) return false;
  return std::all_of(text.begin() + kBegin.size(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string ImageReference::place() const {
  const std::string version = digest.empty() ? ":" + tag : "@" + digest;
  return fmt::format("{}{}/{}{}", kRegistryScheme, registry, name, version);
}

std::string ImageReference::brief() const {
  std::string text = place().substr(kRegistryScheme.size());
  for (const std::string& begin :
       {fmt::format("{}/library/", kDockerHub), fmt::format("{}/", kDockerHub)})
    if (text.starts_with(begin)) text.erase(0, begin.size());
  if (tag == "latest") text.erase(text.rfind(':'));
  return text;
}

std::string ImageReference::text() const {
  const std::string all = place();
  if (user.empty()) return all;
  return fmt::format("{}{}@{}", kRegistryScheme, user, all.substr(kRegistryScheme.size()));
}

Result<ImageReference> parse_reference(std::string_view text) {
  if (text.size() > kMostText)
    return bad(text, fmt::format("it is longer than {} bytes", kMostText));
  std::string_view rest = text;
  if (rest.starts_with(kRegistryScheme)) rest.remove_prefix(kRegistryScheme.size());
  ImageReference reference;
  const auto at = rest.find('@');
  if (at != std::string_view::npos && !rest.substr(at + 1).starts_with("sha256:") &&
      at < rest.find_first_of("/#")) {
    reference.user = rest.substr(0, at);
    if (!is_user(reference.user)) return bad(text, "its user has other characters than a user's");
    rest.remove_prefix(at + 1);
  }
  take_registry(rest, reference);
  if (const auto digest = rest.find('@'); digest != std::string_view::npos) {
    reference.digest = rest.substr(digest + 1);
    rest = rest.substr(0, digest);
    if (!is_digest(reference.digest)) return bad(text, "its digest is not sha256:HEX");
  }
  const auto colon = rest.find(':');
  reference.tag = colon == std::string_view::npos ? "latest" : rest.substr(colon + 1);
  reference.name = rest.substr(0, colon);
  if (reference.registry == kDockerHub && reference.name.find('/') == std::string::npos)
    reference.name = "library/" + reference.name;
  if (!is_registry(reference.registry))
    return bad(text, "its registry is not HOST.DOMAIN or HOST:PORT");
  if (!is_name(reference.name))
    return bad(text, "its name has other characters than a-z, 0-9 and single ones of \"._-/\"");
  if (!is_tag(reference.tag)) return bad(text, "its tag has other characters than a tag's");
  if (!reference.digest.empty()) reference.tag.clear();
  return reference;
}

}  // namespace bellows::container
