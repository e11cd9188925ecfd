// SPDX-License-Identifier: Apache-2.0
/// What a node may be told by another one, or by whoever reaches its port: a frame, a question or
/// an answer is refused with a sentence, or is within its limits and reads back as it is. And the
/// list of nodes that an administrator writes.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "modelstore/peerwire/peer_frame.h"
#include "modelstore/peerwire/peer_letter.h"
#include "modelstore/peerwire/peer_nodes.h"

namespace {

using namespace bellows;

void require(bool holds) {
  if (!holds) std::abort();
}

void refused(const Error& error, ErrorKind kind) {
  require(error.kind == kind && !error.text.empty());
  require(error.text.find('\n') == std::string::npos);
}

void check_question(std::string_view text) {
  const auto question = parse_peer_question(text);
  if (!question) return refused(question.error(), ErrorKind::denied);
  require(is_peer_name(question->to) && is_peer_name(question->from));
  require(question->tenant.size() < 64 && question->model.size() < 256);
  require(text_of(*question) == text);
}

void check_answer(std::string_view text) {
  const auto answer = parse_peer_answer(text);
  if (!answer) return refused(answer.error(), ErrorKind::denied);
  if (answer->word == PeerWord::have) {
    require(answer->bytes > 0 && answer->catalogue_at <= answer->bytes);
    require(answer->catalogue_bytes <= answer->bytes - answer->catalogue_at);
  }
  require(text_of(*answer) == text);
}

void check_frames(std::string_view text) {
  std::string bytes(text);
  std::string again;
  for (;;) {
    const std::size_t before = bytes.size();
    const auto letter = take_frame(bytes);
    if (!letter) return refused(letter.error(), ErrorKind::denied);
    if (!*letter) {
      require(bytes.size() == before && before < kMostFrame + 5);
      break;
    }
    require((*letter)->text.size() <= kMostFrame && bytes.size() < before);
    again += frame_of((*letter)->kind, (*letter)->text);
  }
  require(again + bytes == text);
}

void check_nodes(std::string_view text) {
  const auto nodes = parse_peer_nodes(text, 6831);
  if (!nodes) return refused(nodes.error(), ErrorKind::invalid);
  require(!nodes->empty() && nodes->size() <= kMostPeers);
  std::set<std::string> names;
  for (const PeerNode& node : *nodes) {
    require(is_peer_name(node.name) && !node.host.empty() && node.port != 0);
    // It is a word of a line to the loader.
    require(node.host.find_first_of(" \n") == std::string::npos);
    require(names.insert(node.name).second);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'q':
      check_question(text);
      break;
    case 'a':
      check_answer(text);
      break;
    case 'f':
      check_frames(text);
      break;
    default:
      check_nodes(text);
  }
  return 0;
}
