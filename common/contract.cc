// SPDX-License-Identifier: Apache-2.0
#include "common/contract.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::string_view kVersion = "bellows/1";
constexpr std::string_view kOthers = " ; ";

bool is_plain(char c) {
  return is_alphanumeric(c) || std::string_view("_.:,/@+-").find(c) != std::string_view::npos;
}

/// Runs at each submission inside slurmctld: no format, and most values are plain as a whole.
void append_encoded(std::string& out, std::string_view value) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  while (!value.empty()) {
    const auto odd = std::find_if_not(value.begin(), value.end(), is_plain);
    const auto plain = static_cast<std::size_t>(odd - value.begin());
    out += value.substr(0, plain);
    if (odd == value.end()) return;
    const auto byte = static_cast<unsigned char>(*odd);
    out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    value.remove_prefix(plain + 1);
  }
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

Error bad_contract(std::string_view why) {
  return Error{ErrorKind::invalid, fmt::format("job contract: {}", why)};
}

Result<std::string> decode(std::string_view value) {
  std::string out;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (is_plain(value[i])) {
      out += value[i];
      continue;
    }
    if (value[i] != '%' || i + 2 >= value.size())
      return bad_contract("a value has a character that is not percent-encoded");
    const int high = hex_digit(value[i + 1]);
    const int low = hex_digit(value[i + 2]);
    // A NUL or a line feed would end the value early in whatever C string it reaches.
    if (high < 0 || low < 0 || (high * 16 + low) < 0x20)
      return bad_contract("a value has a bad percent sequence");
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

bool is_key(std::string_view key) {
  if (key.empty()) return false;
  for (char c : key)
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) return false;
  return true;
}

Status take(Contract& contract, std::string_view key, std::string value) {
  if (key == "tenant") {
    contract.tenant = std::move(value);
  } else if (key == "framework") {
    const auto colon = value.find(':');
    contract.framework = value.substr(0, colon);
    if (colon != std::string::npos) contract.framework_version = value.substr(colon + 1);
  } else if (key == "gpus") {
    auto range = value == "0" ? Result<GpusRange>(GpusRange::none()) : GpusRange::parse(value);
    if (!range) return range.error();
    contract.gpus = *std::move(range);
  } else if (key == "ckpt") {
    contract.checkpoint_dir = std::move(value);
  } else if (key == "image") {
    contract.image = std::move(value);
  } else if (key == "batch") {
    auto range = BatchRange::parse(value);
    if (!range) return range.error();
    contract.batch = *range;
  } else if (key == "class") {
    auto name = parse_job_class(value);
    if (!name) return name.error();
    contract.job_class = *std::move(name);
  } else {
    contract.extra.emplace_back(key, std::move(value));
  }
  return {};
}

}  // namespace

Result<BatchRange> BatchRange::parse(std::string_view text) {
  const auto bad = [text](std::string_view why) {
    return Error{ErrorKind::invalid, fmt::format("batch range \"{}\": {}; write MIN-MAX, such as "
                                                 "256-4096",
                                                 text.substr(0, 64), why)};
  };
  const auto dash = text.find('-');
  if (dash == std::string_view::npos) return bad("it has no \"-\"");
  const auto min = parse_uint(text.substr(0, dash));
  const auto max = parse_uint(text.substr(dash + 1));
  if (!min || !max) return bad("MIN and MAX must be whole numbers");
  if (*min < 1 || *max > kMost || *min > kMost || *max < 1)
    return bad(fmt::format("MIN and MAX must be from 1 to {}", kMost));
  if (*min > *max) return bad(fmt::format("{} is larger than {}", *min, *max));
  return BatchRange{*min, *max};
}

std::string BatchRange::to_string() const { return fmt::format("{}-{}", min, max); }

Result<std::string> parse_job_class(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return is_alphanumeric(c) || std::string_view("._+-").find(c) != std::string_view::npos;
  });
  if (!text.empty() && text.size() <= kLongest && plain && is_alphanumeric(text.front()))
    return std::string(text);
  return Error{ErrorKind::invalid,
               fmt::format("job class \"{}\": write at most {} letters, digits and ._+- that begin "
                           "with a letter or digit, such as resnet50",
                           text.substr(0, kLongest), kLongest)};
}

Result<Contract> Contract::parse(std::string_view line) {
  if (line.size() > kMostBytes) return bad_contract("longer than 4096 bytes");
  line = trim(line);
  const auto words = split(line, ' ');
  if (words[0] != kVersion)
    return bad_contract(
        fmt::format("it starts with \"{}\", but this version of Bellows reads \"{}\"",
                    words[0].substr(0, 32), kVersion));
  Contract contract;
  std::set<std::string_view> seen;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    const std::string_view key = words[i].substr(0, equals);
    if (equals == std::string_view::npos || !is_key(key))
      return bad_contract(fmt::format("\"{}\" is not key=value", words[i].substr(0, 32)));
    if (!seen.insert(key).second) return bad_contract(fmt::format("{} appears twice", key));
    auto value = decode(words[i].substr(equals + 1));
    if (!value) return value.error();
    if (auto status = take(contract, key, *std::move(value)); !status.ok()) return status.error();
  }
  if (!seen.contains("tenant") || !seen.contains("gpus"))
    return bad_contract("it must have tenant and gpus");
  if (contract.tenant.empty() || (seen.contains("framework") && contract.framework.empty()))
    return bad_contract("tenant and framework may not be empty");
  return contract;
}

std::string Contract::to_string() const {
  std::string line;
  line.reserve(256);
  const auto add = [&line](std::string_view key, std::string_view value) {
    line += ' ';
    line += key;
    line += '=';
    append_encoded(line, value);
  };
  line += kVersion;
  add("tenant", tenant);
  if (!framework.empty()) {
    add("framework", framework);
    if (!framework_version.empty()) append_encoded(line += ':', framework_version);
  }
  add("gpus", gpus.to_string());
  if (!checkpoint_dir.empty()) add("ckpt", checkpoint_dir);
  if (!image.empty()) add("image", image);
  if (batch) add("batch", batch->to_string());
  if (!job_class.empty()) add("class", job_class);
  for (const auto& [key, value] : extra) add(key, value);
  return line;
}

std::string_view Contract::extra_value(std::string_view key) const {
  for (const auto& [name, value] : extra)
    if (name == key) return value;
  return "";
}

std::string Contract::admin_comment(std::string_view line, std::string_view others) {
  std::string text(line);
  if (!line.empty() && !others.empty()) text += kOthers;
  return text.append(others);
}

std::string_view Contract::line_in(std::string_view admin_comment) {
  if (!admin_comment.starts_with("bellows/")) return {};
  return admin_comment.substr(0, admin_comment.find(kOthers));
}

// However many contract lines there are, only slurmctld's own may remain.
std::string_view Contract::others_in(std::string_view admin_comment) {
  while (!line_in(admin_comment).empty()) {
    const auto at = admin_comment.find(kOthers);
    if (at == std::string_view::npos) return {};
    admin_comment.remove_prefix(at + kOthers.size());
  }
  return admin_comment;
}

std::string Contract::join_list(const std::vector<std::string>& texts) {
  std::string value;
  for (const std::string& text : texts) {
    if (!value.empty()) value += ',';
    for (char c : text) {
      if (c == ',' || c == '%')
        value += fmt::format("%{:02X}", static_cast<unsigned char>(c));
      else
        value += c;
    }
  }
  return value;
}

std::vector<std::string> Contract::split_list(std::string_view value) {
  std::vector<std::string> texts;
  if (value.empty()) return texts;
  for (std::string_view piece : split(value, ',')) {
    std::string& text = texts.emplace_back();
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const bool comma = piece.substr(i).starts_with("%2C");
      if (comma || piece.substr(i).starts_with("%25")) {
        text += comma ? ',' : '%';
        i += 2;
      } else {
        text += piece[i];
      }
    }
  }
  return texts;
}

Result<std::string> expand_path(std::string_view pattern, std::string_view user,
                                std::string_view account, std::string_view job_id) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      path += pattern[i];
      continue;
    }
    const char c = ++i < pattern.size() ? pattern[i] : '\0';
    switch (c) {
      case 'u':
        path += user;
        break;
      case 'a':
        path += account;
        break;
      case 'j':
        path += job_id;
        break;
      case '%':
        path += '%';
        break;
      default:
        return Error{ErrorKind::invalid,
                     fmt::format("path \"{}\": only %u, %a, %j and %% may follow %", pattern)};
    }
  }
  return path;
}

std::string fixed_part(std::string_view pattern) {
  std::string path;
  std::string whole;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && (i + 1 == pattern.size() || pattern[++i] != '%')) break;
    if (pattern[i] == '/') whole = path;
    path += pattern[i];
  }
  return whole.empty() ? "/" : whole;
}

}  // namespace bellows
