// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/lua/slips.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "common/text.h"

namespace bellows {
namespace {

struct Token {
  enum class Kind { name, number, text, sign };

  Kind kind;
  std::string_view text;
  int line;
};

bool is_name_part(char c) { return is_alphanumeric(c) || c == '_'; }

class Tokens {
 public:
  explicit Tokens(std::string_view source) : rest_(source) {
    while (skip()) list_.push_back(next());
  }
  const std::vector<Token>& list() const { return list_; }

 private:
  void drop(std::size_t bytes) {
    bytes = std::min(bytes, rest_.size());
    line_ += static_cast<int>(std::count(rest_.begin(), rest_.begin() + bytes, '\n'));
    rest_.remove_prefix(bytes);
  }
  /// The bytes of a "[==[...]==]" at the beginning of `text`; 0: there is none.
  static std::size_t long_bracket(std::string_view text) {
    if (!text.starts_with('[')) return 0;
    const auto second = text.find_first_not_of('=', 1);
    if (second == std::string_view::npos || text[second] != '[') return 0;
    const std::string end = "]" + std::string(second - 1, '=') + "]";
    const auto found = text.find(end, second);
    return found == std::string_view::npos ? text.size() : found + end.size();
  }
  /// Goes past blanks and comments. False: nothing is left.
  bool skip() {
    while (!rest_.empty()) {
      const auto blanks = rest_.find_first_not_of(" \t\r\n");
      if (blanks != 0) {
        drop(blanks);
      } else if (rest_.starts_with("--")) {
        const std::size_t block = long_bracket(rest_.substr(2));
        drop(block > 0 ? block + 2 : rest_.find('\n'));
      } else {
        return true;
      }
    }
    return false;
  }
  std::size_t quoted() const {
    std::size_t at = 1;
    while (at < rest_.size() && rest_[at] != rest_[0]) at += rest_[at] == '\\' ? 2 : 1;
    return at + 1;
  }
  Token next() {
    Token::Kind kind = Token::Kind::sign;
    std::size_t size = 1;
    const bool digit = rest_[0] >= '0' && rest_[0] <= '9';
    if (rest_[0] == '"' || rest_[0] == '\'') {
      kind = Token::Kind::text;
      size = quoted();
    } else if (const std::size_t block = long_bracket(rest_); block > 0) {
      kind = Token::Kind::text;
      size = block;
    } else if (is_name_part(rest_[0])) {
      kind = digit ? Token::Kind::number : Token::Kind::name;
      const auto end = std::find_if_not(rest_.begin(), rest_.end(), [&](char c) {
        return is_name_part(c) || (digit && c == '.');
      });
      size = static_cast<std::size_t>(end - rest_.begin());
    } else {
      for (std::string_view sign : {"==", "~=", "<=", ">=", "..", "//", "::", "<<", ">>"})
        if (rest_.starts_with(sign)) size = 2;
    }
    const Token token{kind, rest_.substr(0, size), line_};
    drop(size);
    return token;
  }

  std::string_view rest_;
  int line_ = 1;
  std::vector<Token> list_;
};

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

std::optional<LuaComparison::Literal> literal(const Token& token) {
  if (token.kind == Token::Kind::text) return LuaComparison::Literal::text;
  if (token.kind == Token::Kind::number) return LuaComparison::Literal::number;
  if (is_one_of(token.text, {"true", "false"})) return LuaComparison::Literal::flag;
  return std::nullopt;
}

/// Looks at the tokens around an operator.
class Around {
 public:
  Around(const std::vector<Token>& tokens, std::size_t sign) : tokens_(tokens), sign_(sign) {}

  std::optional<LuaComparison> find() const {
    if (const auto with = literal(at(1))) return named(-1, -3, *with);
    const auto with = literal(at(-1));
    return with ? named(at(2).text == "." ? 3 : 1, 1, *with) : std::nullopt;
  }

 private:
  /// An empty sign beyond the ends.
  Token at(int offset) const {
    const auto index = static_cast<std::ptrdiff_t>(sign_) + offset;
    if (index < 0 || index >= static_cast<std::ptrdiff_t>(tokens_.size()))
      return {Token::Kind::sign, "", 0};
    return tokens_[static_cast<std::size_t>(index)];
  }
  /// `last` is where NAME or FIELD is, `first` where NAME is if there is a FIELD.
  std::optional<LuaComparison> named(int last, int first, LuaComparison::Literal with) const {
    const bool has_field = at(last - 1).text == "." && at(first).kind == Token::Kind::name;
    if (!has_field) first = last;
    if (at(last).kind != Token::Kind::name || literal(at(last))) return std::nullopt;
    const Token before = at(first - 1);
    const bool left = last < 0;
    if (left && !is_one_of(before.text, {"if", "elseif", "while", "until", "and", "or", "return",
                                         "(", ",", "="}))
      return std::nullopt;
    const Token after = at(last + 1);
    if (!left && (after.kind == Token::Kind::text ||
                  is_one_of(after.text, {".", ":", "[", "(", "{", "..", "+", "-", "*", "/", "//",
                                         "%", "^", "&", "|", "~", "<<", ">>"})))
      return std::nullopt;
    return LuaComparison{0, at(0).line, std::string(at(first).text),
                         has_field ? std::string(at(last).text) : "", with};
  }

  const std::vector<Token>& tokens_;
  const std::size_t sign_;
};

/// Follows the blocks of a script, to know in which function a token is.
class Blocks {
 public:
  void pass(const Token& token) {
    if (token.kind != Token::Kind::name) return;
    if (is_one_of(token.text, {"function", "do", "if", "repeat"})) open_.push_back(token);
    if (is_one_of(token.text, {"end", "until"}) && !open_.empty()) open_.pop_back();
  }
  /// Nothing: two functions begin on that line, and it could be either.
  std::optional<int> function_line() const {
    std::vector<int> lines;
    for (const Token& block : open_)
      if (block.text == "function") lines.push_back(block.line);
    if (lines.empty()) return 0;
    const bool alone = lines.size() == 1 || lines[lines.size() - 2] != lines.back();
    return alone ? std::optional(lines.back()) : std::nullopt;
  }

 private:
  std::vector<Token> open_;
};

}  // namespace

std::vector<LuaComparison> comparisons_in(std::string_view source) {
  const Tokens tokens(source);
  std::vector<LuaComparison> found;
  Blocks blocks;
  for (std::size_t i = 0; i < tokens.list().size(); ++i) {
    blocks.pass(tokens.list()[i]);
    if (!is_one_of(tokens.list()[i].text, {"==", "~="})) continue;
    const auto function = blocks.function_line();
    auto one = Around(tokens.list(), i).find();
    if (!function || !one) continue;
    one->function = *function;
    found.push_back(*std::move(one));
  }
  return found;
}

}  // namespace bellows
