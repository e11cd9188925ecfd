// SPDX-License-Identifier: Apache-2.0
#include "modelstore/remote/server_text.h"

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::size_t kMost = 200;

std::string_view element(std::string_view text, std::string_view name) {
  const std::string begin = "<" + std::string(name) + ">", end = "</" + std::string(name) + ">";
  const auto from = text.find(begin);
  if (from == std::string_view::npos) return "";
  text.remove_prefix(from + begin.size());
  const auto until = text.find(end);
  return until == std::string_view::npos ? "" : text.substr(0, until);
}

/// An error of S3 repeats the request: what was signed, and with which key. Of a page the title is
/// enough.
std::string gist(std::string_view said) {
  const std::string_view code = element(said, "Code"), message = element(said, "Message");
  if (code.empty()) {
    const std::string_view title = element(said, "title");
    return std::string(title.empty() ? said : title);
  }
  return std::string(code) + (message.empty() ? "" : ": ") + std::string(message);
}

void hide(std::string& text, const std::string& secret) {
  constexpr std::string_view kHidden = "***";
  // A short one is in many words by chance, and no secret.
  if (secret.size() < 4) return;
  for (auto at = text.find(secret); at != std::string::npos; at = text.find(secret, at))
    text.replace(at, secret.size(), kHidden);
}

}  // namespace

std::string server_text(std::string_view said, const std::vector<std::string>& secrets) {
  std::string text = gist(said);
  for (const std::string& secret : secrets) hide(text, secret);
  std::string line;
  for (const char c : text) {
    const bool is_blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (is_blank && (line.empty() || line.back() == ' ')) continue;
    line += is_blank ? ' ' : c > ' ' && c < 0x7f ? c : '?';
  }
  const std::string_view trimmed = trim(line);
  return trimmed.empty() ? "" : " (" + one_line(trimmed, kMost) + ")";
}

}  // namespace bellows
