// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::size_t kUsualWidth = 80;
constexpr std::string_view kDots = "...";

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

void append_wrapped(std::string& out, std::string_view line, std::size_t width,
                    std::size_t indent) {
  std::size_t used = indent;
  bool first = true;
  for (std::string_view word : split(line, ' ')) {
    const std::size_t size = shown_width(word);
    if (!first && used + 1 + size > width) {
      out += '\n' + std::string(indent, ' ');
      used = indent;
      first = true;
      if (word.empty()) continue;
    }
    if (!first) {
      out += ' ';
      ++used;
    }
    out += word;
    used += size;
    first = false;
  }
}

}  // namespace

std::size_t terminal_width(int fd) {
  if (isatty(fd) != 1) return 0;
  winsize size = {};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualWidth;
}

std::size_t shown_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string cut_to(const std::string& text, std::size_t width) {
  if (shown_width(text) <= width) return text;
  const std::string_view dots = kDots.substr(0, std::min(width, kDots.size()));
  std::size_t left = width - dots.size();
  std::size_t bytes = 0;
  for (; bytes < text.size(); ++bytes) {
    if (!begins_character(text[bytes])) continue;
    if (left-- == 0) break;
  }
  return text.substr(0, bytes).append(dots);
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  if (width == 0) return std::string(text);
  std::string out;
  bool first = true;
  for (std::string_view line : split(text, '\n')) {
    if (!first) out += '\n' + std::string(indent, ' ');
    append_wrapped(out, line, width, indent);
    first = false;
  }
  return out;
}

}  // namespace bellows
