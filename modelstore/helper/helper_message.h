// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "common/plain/handle.h"
#include "common/result.h"

namespace bellows {

/// What is said between bellows-modeld and one of its processes, which errors call kProcess. What
/// came is sound if it is of this version and its fields can be believed.
template <class Message>
concept HelperMessage = std::is_trivially_copyable_v<Message> && requires(const Message& message) {
  { Message::kProcess } -> std::convertible_to<const char*>;
  { message.is_sound() } -> std::same_as<bool>;
};

/// Writes what fits of the text, and zeros behind it. Gives its length, at most `most`.
std::uint32_t put_text(char* to, std::size_t most, std::string_view text);

/// These are for the templates below.
Status send_helper_bytes(int socket, const void* message, std::size_t bytes, int passed,
                         const char* process);
Result<bool> receive_helper_bytes(int socket, void* message, std::size_t bytes,
                                  plain::Handle* passed, const char* process);
Error other_version(const char* process);

/// unavailable: the other side is gone, or cannot take it now.
template <HelperMessage Message>
Status send_message(int socket, const Message& message, int passed = -1) {
  return send_helper_bytes(socket, &message, sizeof message, passed, Message::kProcess);
}

/// unavailable: the other side is gone; invalid: it speaks otherwise. Nothing came: false.
template <HelperMessage Message>
Result<bool> receive_message(int socket, Message* message, plain::Handle* passed) {
  const auto received =
      receive_helper_bytes(socket, message, sizeof *message, passed, Message::kProcess);
  if (!received || !*received || message->is_sound()) return received;
  return other_version(Message::kProcess);
}

}  // namespace bellows
