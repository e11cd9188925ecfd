// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/munge/munge.h"
#include "common/result.h"
#include "modelstore/digest/model_digest.h"

namespace bellows {

/// How much a node may do to have the model that it is asked for.
enum class PeerMode {
  load,     ///< load it
  loading,  ///< wait for it, where it is being loaded
  have,     ///< nothing
};

/// What one node asks another. A value.
struct PeerQuestion {
  std::string number;     ///< 32 hexadecimal digits, no others'
  std::string challenge;  ///< the number of the connection by which it comes
  std::string to;         ///< the node that is asked, by its name
  std::string from;       ///< the node that asks
  PeerMode mode = PeerMode::have;
  std::string tenant;
  std::string model;                  ///< its name
  ModelDigest source;                 ///< of where it lies, and in which version
  std::optional<ModelDigest> digest;  ///< of the model, where it is known

  bool operator==(const PeerQuestion&) const = default;
};

enum class PeerWord {
  have,   ///< the bytes follow
  other,  ///< `text` is the name of a node that has it
  none,   ///< `text` says why
  wait,   ///< another answer comes later: from here on, frames that say how far it is count
};

struct PeerAnswer {
  std::string number;  ///< of the question
  PeerWord word = PeerWord::none;
  ModelDigest digest;
  std::uint64_t bytes = 0;
  std::uint64_t catalogue_at = 0;
  std::uint64_t catalogue_bytes = 0;
  std::string text;

  bool operator==(const PeerAnswer&) const = default;
};

std::string text_of(const PeerQuestion& question);
std::string text_of(const PeerAnswer& answer);
/// denied: text_of does not give such a text.
Result<PeerQuestion> parse_peer_question(std::string_view text);
Result<PeerAnswer> parse_peer_answer(std::string_view text);

/// A number that nobody can guess. unavailable: the kernel gives none.
Result<std::string> new_peer_number();

/// For this process's user only. Errors as those of Munge.
Result<std::string> seal(const Munge& munge, const PeerQuestion& question);
Result<std::string> seal(const Munge& munge, const PeerAnswer& answer);
/// denied: it was not sealed by this process's user as a question to the node `self`, for the
/// connection of this number, or was opened before.
Result<PeerQuestion> open_peer_question(const Munge& munge, const std::string& sealed,
                                        std::string_view self, std::string_view challenge);
/// denied: it was not sealed by this process's user as the answer to this question.
Result<PeerAnswer> open_peer_answer(const Munge& munge, const std::string& sealed,
                                    const PeerQuestion& question);

}  // namespace bellows
