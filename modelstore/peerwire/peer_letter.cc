// SPDX-License-Identifier: Apache-2.0
#include "modelstore/peerwire/peer_letter.h"

#include <fmt/core.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

#include "common/model_names.h"
#include "common/text.h"
#include "modelstore/peerwire/peer_nodes.h"

namespace bellows {
namespace {

// Clocks of a cluster that munge works on differ by less.
constexpr std::chrono::seconds kLife{60};
constexpr std::string_view kQuestion = "bellows-model-peer/2 question";
constexpr std::string_view kAnswer = "bellows-model-peer/2 answer";
constexpr std::string_view kModes[] = {"load", "loading", "have"};
constexpr std::string_view kWords[] = {"have", "other", "none", "wait"};
constexpr std::size_t kMostTenant = 63;
constexpr std::size_t kMostText = 511;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 57;

Error no_letter() {
  return Error{ErrorKind::denied, "a message of another node is none that Bellows writes"};
}

/// A line each, in one order.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  void head(std::string_view wanted) { good_ = take() == wanted && good_; }
  /// "KEY VALUE"
  std::string_view value(std::string_view key) {
    const std::string_view line = take();
    const bool right = line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ';
    good_ = good_ && right;
    return right ? line.substr(key.size() + 1) : std::string_view();
  }
  std::uint64_t number(std::string_view key) {
    const std::string_view text = value(key);
    const auto number = parse_uint(text);
    // One way to write each.
    good_ = good_ && number && fmt::format("{}", *number) == text;
    return number.value_or(0);
  }
  std::optional<ModelDigest> digest(std::string_view key) {
    const std::string_view text = value(key);
    const auto digest = ModelDigest::parse(text);
    good_ = good_ && (digest || text == "-");
    return digest;
  }
  template <std::size_t kCount>
  std::size_t word(std::string_view key, const std::string_view (&words)[kCount]) {
    const auto found = std::find(std::begin(words), std::end(words), value(key));
    good_ = good_ && found != std::end(words);
    return good_ ? static_cast<std::size_t>(found - std::begin(words)) : 0;
  }
  void require(bool holds) { good_ = good_ && holds; }
  bool good() const { return good_ && rest_.empty(); }

 private:
  std::string_view take() {
    const auto end = rest_.find('\n');
    good_ = good_ && end != std::string_view::npos;
    if (!good_) return {};
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }

  std::string_view rest_;
  bool good_ = true;
};

bool is_plain(std::string_view text, std::size_t most) {
  return text.size() <= most && std::none_of(text.begin(), text.end(), is_control);
}

bool is_number(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string text_of(const PeerQuestion& q) {
  return fmt::format(
      "{}\nnumber {}\nchallenge {}\nto {}\nfrom {}\nmode {}\ntenant {}\nmodel {}\nsource {}\n"
      "digest {}\n",
      kQuestion, q.number, q.challenge, q.to, q.from, kModes[static_cast<std::size_t>(q.mode)],
      q.tenant, q.model, q.source.to_string(), q.digest ? q.digest->to_string() : "-");
}

std::string text_of(const PeerAnswer& a) {
  return fmt::format(
      "{}\nnumber {}\nword {}\ndigest {}\nbytes {}\ncatalogue_at {}\ncatalogue_bytes {}\n"
      "text .{}\n",
      kAnswer, a.number, kWords[static_cast<std::size_t>(a.word)], a.digest.to_string(), a.bytes,
      a.catalogue_at, a.catalogue_bytes, one_line(a.text, kMostText));
}

Result<PeerQuestion> parse_peer_question(std::string_view text) {
  Lines lines(text);
  PeerQuestion q;
  lines.head(kQuestion);
  q.number = lines.value("number");
  q.challenge = lines.value("challenge");
  q.to = lines.value("to");
  q.from = lines.value("from");
  q.mode = static_cast<PeerMode>(lines.word("mode", kModes));
  q.tenant = lines.value("tenant");
  q.model = lines.value("model");
  const auto source = lines.digest("source");
  q.digest = lines.digest("digest");
  lines.require(is_number(q.number) && is_number(q.challenge) && is_peer_name(q.to) &&
                is_peer_name(q.from) && is_plain(q.tenant, kMostTenant) && is_model_name(q.model) &&
                source);
  if (!lines.good()) return no_letter();
  q.source = *source;
  return q;
}

Result<PeerAnswer> parse_peer_answer(std::string_view text) {
  Lines lines(text);
  PeerAnswer a;
  lines.head(kAnswer);
  a.number = lines.value("number");
  a.word = static_cast<PeerWord>(lines.word("word", kWords));
  const auto digest = lines.digest("digest");
  a.bytes = lines.number("bytes");
  a.catalogue_at = lines.number("catalogue_at");
  a.catalogue_bytes = lines.number("catalogue_bytes");
  const std::string_view more = lines.value("text");
  lines.require(is_number(a.number) && digest && more.starts_with('.') &&
                is_plain(more, kMostText + 1));
  if (a.word == PeerWord::have)
    lines.require(a.bytes > 0 && a.bytes <= kMostBytes && a.catalogue_bytes <= a.bytes &&
                  a.catalogue_at <= a.bytes - a.catalogue_bytes);
  if (!lines.good()) return no_letter();
  a.text = more.substr(1);
  if (a.word == PeerWord::other && !is_peer_name(a.text)) return no_letter();
  a.digest = *digest;
  return a;
}

Result<std::string> new_peer_number() {
  std::uint64_t random[2] = {};
  if (getrandom(random, sizeof random, 0) != sizeof random)
    return Error{ErrorKind::unavailable, "the kernel gives no random numbers"};
  return fmt::format("{:016x}{:016x}", random[0], random[1]);
}

Result<std::string> seal(const Munge& munge, const PeerQuestion& question) {
  return munge.seal(text_of(question), geteuid(), kLife);
}

Result<std::string> seal(const Munge& munge, const PeerAnswer& answer) {
  return munge.seal(text_of(answer), geteuid(), kLife);
}

Result<PeerQuestion> open_peer_question(const Munge& munge, const std::string& sealed,
                                        std::string_view self, std::string_view challenge) {
  const auto opened = munge.open(sealed);
  if (!opened) return opened.error();
  if (opened->uid != geteuid())
    return Error{ErrorKind::denied,
                 fmt::format("uid {} asked, and only the user of bellows-modeld, {}, may",
                             opened->uid, geteuid())};
  auto question = parse_peer_question(opened->text);
  if (question && question->to != self)
    return Error{ErrorKind::denied, "a question was for the node " + question->to};
  // Whoever had this port before may have been sent it.
  if (question && question->challenge != challenge)
    return Error{ErrorKind::denied, "a question was for another connection"};
  return question;
}

Result<PeerAnswer> open_peer_answer(const Munge& munge, const std::string& sealed,
                                    const PeerQuestion& question) {
  const auto opened = munge.open(sealed);
  if (!opened) return opened.error();
  if (opened->uid != geteuid())
    return Error{ErrorKind::denied,
                 fmt::format("uid {} answered, and not the user of bellows-modeld, {}", opened->uid,
                             geteuid())};
  auto answer = parse_peer_answer(opened->text);
  if (answer && answer->number != question.number)
    return Error{ErrorKind::denied, "an answer was to another question"};
  return answer;
}

}  // namespace bellows
