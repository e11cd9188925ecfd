// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "modelstore/book/model_book.h"

namespace bellows::model_test {

constexpr ModelBook::Time at(std::int64_t ms) {
  return ModelBook::Time(std::chrono::milliseconds(ms));
}

inline std::string text_of(const BookDecision& decision) {
  struct Words {
    std::string operator()(const decide::Load& d) { return "load " + std::to_string(d.model); }
    std::string operator()(const decide::Fill& d) { return "fill " + std::to_string(d.model); }
    std::string operator()(const decide::Abandon& d) {
      return "abandon " + std::to_string(d.model);
    }
    std::string operator()(const decide::Evict& d) { return "evict " + std::to_string(d.model); }
    std::string operator()(const decide::Grant& d) { return "grant " + std::to_string(d.ticket); }
    std::string operator()(const decide::Refuse& d) { return "refuse " + std::to_string(d.ticket); }
  };
  return std::visit(Words(), decision);
}

/// "load 1, grant 2"
inline std::string text_of(const BookDecisions& decisions) {
  std::string text;
  for (const BookDecision& decision : decisions)
    text += (text.empty() ? "" : ", ") + text_of(decision);
  return text;
}

}  // namespace bellows::model_test
