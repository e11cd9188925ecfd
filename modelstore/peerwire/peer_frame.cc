// SPDX-License-Identifier: Apache-2.0
#include "modelstore/peerwire/peer_frame.h"

namespace bellows {
namespace {

constexpr std::size_t kHead = 5;
constexpr std::size_t kHello = 32;
constexpr std::size_t kWait = 8;

std::string big_endian(std::uint64_t number, std::size_t bytes) {
  std::string text;
  for (std::size_t i = bytes; i-- > 0;) text += static_cast<char>(number >> (8 * i) & 0xff);
  return text;
}

std::uint64_t number_in(std::string_view text) {
  std::uint64_t number = 0;
  for (const char c : text) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

bool is_possible(char kind, std::uint64_t length) {
  switch (static_cast<PeerFrame>(kind)) {
    case PeerFrame::hello:
      return length == kHello;
    case PeerFrame::question:
    case PeerFrame::answer:
      return length <= kMostFrame;
    case PeerFrame::wait:
      return length == kWait;
    case PeerFrame::got:
      return length == 0;
  }
  return false;
}

}  // namespace

std::string frame_of(PeerFrame kind, std::string_view text) {
  return static_cast<char>(kind) + big_endian(text.size(), kHead - 1) + std::string(text);
}

std::string wait_frame(std::uint64_t far) {
  return frame_of(PeerFrame::wait, big_endian(far, kWait));
}

std::uint64_t far_of(std::string_view text) { return number_in(text.substr(0, kWait)); }

Result<std::optional<PeerLetter>> take_frame(std::string& bytes) {
  if (bytes.size() < kHead) return std::optional<PeerLetter>();
  const std::uint64_t length = number_in(std::string_view(bytes).substr(1, kHead - 1));
  if (!is_possible(bytes[0], length))
    return Error{ErrorKind::denied, "it says what no bellows-model-peer says"};
  if (bytes.size() - kHead < length) return std::optional<PeerLetter>();
  PeerLetter letter{static_cast<PeerFrame>(bytes[0]), bytes.substr(kHead, length)};
  bytes.erase(0, kHead + length);
  return std::optional<PeerLetter>(std::move(letter));
}

}  // namespace bellows
