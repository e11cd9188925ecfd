// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/policy/yaml_tree.h"

#include <fmt/core.h>
#include <yaml.h>

#include <algorithm>
#include <set>

namespace bellows {
namespace {

constexpr int kMostDepth = 32;
constexpr std::size_t kMostBytes = 1 << 20;

class Parser {
 public:
  explicit Parser(std::string_view text) {
    valid_ = yaml_parser_initialize(&parser_) != 0;
    if (valid_)
      yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                                   text.size());
  }
  ~Parser() {
    if (valid_) yaml_parser_delete(&parser_);
  }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  bool valid() const { return valid_; }
  yaml_parser_t& raw() { return parser_; }

 private:
  yaml_parser_t parser_;
  bool valid_ = false;
};

class Event {
 public:
  Event() = default;
  ~Event() { yaml_event_delete(&event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  yaml_event_t& raw() { return event_; }

 private:
  yaml_event_t event_{};
};

YamlMark mark_of(const yaml_mark_t& mark) {
  return {static_cast<int>(mark.line) + 1, static_cast<int>(mark.column) + 1};
}

std::string_view line_of(std::string_view text, std::size_t line) {
  for (; line > 0 && !text.empty(); --line)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text.substr(0, text.find('\n'));
}

/// What libyaml says about a text that is not YAML, and in words its most frequent cause.
std::string trouble_of(const yaml_parser_t& parser, std::string_view text) {
  const std::string_view line = line_of(text, parser.problem_mark.line);
  if (line.substr(0, line.find_first_not_of(" \t")).find('\t') != std::string_view::npos)
    return "the line is indented with a tab, which YAML does not allow; use spaces";
  const std::string_view context = parser.context ? parser.context : "";
  if (context == "while scanning an alias" || context == "while scanning an anchor")
    return "a value that begins with * or & must be quoted, such as \"*\"";
  const std::string_view problem = parser.problem ? parser.problem : "";
  if (problem == "found character that cannot start any token")
    return line.substr(0, parser.problem_mark.column + 1).ends_with('\t')
               ? "a tab is not allowed here; use spaces"
               : "a value that begins with this character must be quoted";
  if (problem == "mapping values are not allowed in this context")
    return "there is a second \": \" in the line; a value with one must be quoted";
  std::string said(problem.empty() ? "not valid YAML" : problem);
  if (!context.empty())
    said += fmt::format(" {}, which begins in line {}", context, parser.context_mark.line + 1);
  return said;
}

class Builder {
 public:
  Builder(Parser& parser, std::string_view text, const std::string& file)
      : parser_(parser), text_(text), file_(file) {}

  Result<YamlNode> document() {
    Event start;
    if (auto s = expect(start); !s.ok()) return s.error();  // stream start
    Event doc;
    if (auto s = expect(doc); !s.ok()) return s.error();
    if (doc.raw().type == YAML_STREAM_END_EVENT) {
      YamlNode empty;
      empty.kind = YamlNode::Kind::mapping;
      empty.mark = {1, 1};
      return empty;
    }
    Event first;
    if (auto s = expect(first); !s.ok()) return s.error();
    auto root = node(first.raw(), 0);
    if (!root) return root;
    Event doc_end;
    if (auto s = expect(doc_end); !s.ok()) return s.error();
    Event stream_end;
    if (auto s = expect(stream_end); !s.ok()) return s.error();
    if (stream_end.raw().type != YAML_STREAM_END_EVENT)
      return yaml_error(file_, mark_of(stream_end.raw().start_mark),
                        "a second document is not allowed");
    return root;
  }

 private:
  Status expect(Event& event) {
    if (yaml_parser_parse(&parser_.raw(), &event.raw())) return {};
    const yaml_parser_t& p = parser_.raw();
    return yaml_error(file_, mark_of(p.problem_mark), trouble_of(p, text_));
  }

  Result<YamlNode> node(yaml_event_t& event, int depth) {
    YamlNode out;
    out.mark = mark_of(event.start_mark);
    if (depth > kMostDepth) return yaml_error(file_, out.mark, "nested too deeply");
    switch (event.type) {
      case YAML_SCALAR_EVENT:
        if (event.data.scalar.anchor) return anchored(out.mark);
        if (event.data.scalar.tag) return tagged(out.mark);
        out.plain = event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        out.scalar.assign(reinterpret_cast<char*>(event.data.scalar.value),
                          event.data.scalar.length);
        if (out.scalar.find('\0') != std::string::npos)
          return yaml_error(file_, out.mark, "a value may not hold a NUL byte");
        return out;
      case YAML_SEQUENCE_START_EVENT:
        if (event.data.sequence_start.anchor) return anchored(out.mark);
        if (event.data.sequence_start.tag) return tagged(out.mark);
        return sequence(std::move(out), depth);
      case YAML_MAPPING_START_EVENT:
        if (event.data.mapping_start.anchor) return anchored(out.mark);
        if (event.data.mapping_start.tag) return tagged(out.mark);
        return mapping(std::move(out), depth);
      default:
        return anchored(out.mark);
    }
  }

  Result<YamlNode> sequence(YamlNode out, int depth) {
    out.kind = YamlNode::Kind::sequence;
    while (true) {
      Event event;
      if (auto s = expect(event); !s.ok()) return s.error();
      if (event.raw().type == YAML_SEQUENCE_END_EVENT) return out;
      auto item = node(event.raw(), depth + 1);
      if (!item) return item;
      out.items.push_back(*std::move(item));
    }
  }

  Result<YamlNode> mapping(YamlNode out, int depth) {
    out.kind = YamlNode::Kind::mapping;
    std::set<std::string> seen;
    while (true) {
      Event key_event;
      if (auto s = expect(key_event); !s.ok()) return s.error();
      if (key_event.raw().type == YAML_MAPPING_END_EVENT) return out;
      auto key = node(key_event.raw(), depth + 1);
      if (!key) return key;
      if (key->kind != YamlNode::Kind::scalar)
        return yaml_error(file_, key->mark, "a key must be a plain word");
      if (!seen.insert(key->scalar).second)
        return yaml_error(file_, key->mark, fmt::format("key \"{}\" appears twice", key->scalar));
      Event value_event;
      if (auto s = expect(value_event); !s.ok()) return s.error();
      auto value = node(value_event.raw(), depth + 1);
      if (!value) return value;
      out.entries.push_back({*std::move(key), *std::move(value)});
    }
  }

  Error anchored(YamlMark mark) {
    return yaml_error(file_, mark, "anchors and aliases are not allowed");
  }

  Error tagged(YamlMark mark) { return yaml_error(file_, mark, "tags are not allowed"); }

  Parser& parser_;
  std::string_view text_;
  const std::string& file_;
};

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name.scalar == key) return &value;
  return nullptr;
}

Error yaml_error(const std::string& file, YamlMark mark, std::string_view text) {
  return Error{ErrorKind::invalid, fmt::format("{}:{}:{}: {}", file, mark.line, mark.column, text)};
}

Result<YamlNode> parse_yaml(std::string_view text, const std::string& file) {
  if (text.size() > kMostBytes)
    return Error{ErrorKind::invalid, fmt::format("{}: larger than 1 MiB", file)};
  Parser parser(text);
  if (!parser.valid()) return Error{ErrorKind::internal, "out of memory for the YAML parser"};
  return Builder(parser, text, file).document();
}

}  // namespace bellows
