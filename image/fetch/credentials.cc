// SPDX-License-Identifier: Apache-2.0
#include "image/fetch/credentials.h"

#include <fmt/core.h>
#include <openssl/evp.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/text.h"

namespace bellows::image {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  std::vector<std::string_view> words;
  for (std::size_t at = text.find_first_not_of(kSpaces); at != std::string_view::npos;
       at = text.find_first_not_of(kSpaces, at)) {
    const auto end = std::min(text.find_first_of(kSpaces, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

/// As enroot's users write it: without a port, and Docker Hub by the names of its servers.
bool is_of(std::string_view machine, const std::string& registry) {
  if (registry == "docker.io" && (machine == "auth.docker.io" || machine == "registry-1.docker.io"))
    return true;
  return machine == registry || machine == registry.substr(0, registry.find(':'));
}

std::string without_variable(std::string_view word) {
  if (!word.starts_with('$')) return std::string(word);
  std::string name(word.substr(1));
  if (name.starts_with('{') && name.ends_with('}')) name = name.substr(1, name.size() - 2);
  const char* value = is_variable_name(name) ? std::getenv(name.c_str()) : nullptr;
  return value != nullptr ? value : std::string(word);
}

}  // namespace

Result<std::optional<Login>> find_login(std::string_view netrc,
                                        const container::ImageReference& reference) {
  const auto words = words_of(netrc);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] != "machine" || !is_of(words[i + 1], reference.registry)) continue;
    Login login;
    for (std::size_t j = i + 2; j + 1 < words.size() && words[j] != "machine"; j += 2) {
      // A login such as NVIDIA's $oauthtoken is no variable.
      if (words[j] == "login") login.user = words[j + 1];
      if (words[j] == "password") login.password = without_variable(words[j + 1]);
    }
    if (login.user.empty() || (!reference.user.empty() && reference.user != login.user)) continue;
    if (!login.password.starts_with("$(")) return std::optional(std::move(login));
    return Error{ErrorKind::invalid,
                 fmt::format("the password of {} for {} is a command in enroot's credentials, and "
                             "no command is run; write the password or a variable, $NAME, or log "
                             "in with podman login {}",
                             one_line(login.user, 64), reference.registry, reference.registry)};
  }
  return std::optional<Login>();
}

Result<std::string> auth_file_text(const std::string& registry, const Login& login) {
  const std::string plain = login.user + ':' + login.password;
  std::string coded(4 * ((plain.size() + 2) / 3) + 1, '\0');
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(coded.data()),
                                     reinterpret_cast<const unsigned char*>(plain.data()),
                                     static_cast<int>(plain.size()));
  if (size < 0) return Error{ErrorKind::internal, "libcrypto can't encode a password"};
  coded.resize(static_cast<std::size_t>(size));
  const nlohmann::json json = {{"auths", {{registry, {{"auth", coded}}}}}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace bellows::image
