// SPDX-License-Identifier: Apache-2.0
#include "elastic/wire/envelope.h"

#include <fmt/core.h>
#include <sys/random.h>

#include <cstdint>

namespace bellows {
namespace {

// Clocks of a cluster that munge works on differ by less.
constexpr std::chrono::seconds kLife{60};
constexpr std::string_view kAnswer = "answer";

/// What comes before the body: what it is and its number, a line each.
std::string with_head(std::string_view kind, std::string_view number, std::string_view body) {
  return fmt::format("{}\n{}\n{}", kind, number, body);
}

struct Letter {
  std::string_view kind;
  std::string_view number;
  std::string_view body;
};

Result<Letter> read_head(std::string_view text) {
  const auto first = text.find('\n');
  const auto second = first == std::string_view::npos ? first : text.find('\n', first + 1);
  if (second == std::string_view::npos)
    return Error{ErrorKind::denied, "a message was sealed by something else than Bellows"};
  return Letter{text.substr(0, first), text.substr(first + 1, second - first - 1),
                text.substr(second + 1)};
}

}  // namespace

Result<Question> seal_question(const Munge& munge, Call call, std::string_view body, uid_t reader) {
  std::uint64_t random[2] = {};
  if (getrandom(random, sizeof random, 0) != sizeof random)
    return Error{ErrorKind::unavailable, "the kernel gives no random numbers"};
  Question question{"", fmt::format("{:016x}{:016x}", random[0], random[1])};
  auto sealed = munge.seal(with_head(path_of(call), question.number, body), reader, kLife);
  if (!sealed) return sealed.error();
  question.sealed = std::move(*sealed);
  return question;
}

Result<Asked> open_question(const Munge& munge, Call call, const std::string& sealed) {
  auto opened = munge.open(sealed);
  if (!opened) return opened.error();
  auto letter = read_head(opened->text);
  if (!letter) return letter.error();
  if (letter->kind != path_of(call))
    return Error{ErrorKind::denied, "a message was sealed for another path than it came to"};
  return Asked{std::string(letter->body), std::string(letter->number), opened->uid};
}

Result<std::string> seal_answer(const Munge& munge, const Asked& asked, std::string_view body) {
  return munge.seal(with_head(kAnswer, asked.number, body), asked.uid, kLife);
}

Result<std::string> open_answer(const Munge& munge, const Question& question,
                                const std::string& sealed, uid_t writer) {
  auto opened = munge.open(sealed);
  if (!opened) return opened.error();
  if (opened->uid != writer)
    return Error{
        ErrorKind::denied,
        fmt::format("an answer came from uid {} and not from bellowsd's, {}", opened->uid, writer)};
  auto letter = read_head(opened->text);
  if (!letter) return letter.error();
  if (letter->kind != kAnswer || letter->number != question.number)
    return Error{ErrorKind::denied, "an answer was given to another question"};
  return std::string(letter->body);
}

}  // namespace bellows
