// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "pool/shared/shared.h"

/// A client of shared fields for tests: shared_client POOL NAME MILLISECONDS. Reads "read KEY",
/// "write KEY N", "cas KEY N|null N" and "add KEY N", and answers each with "ok RESULT", "failed"
/// or "unknown".

namespace {

using bellows::pool::FieldError;
using bellows::pool::FieldLock;
using bellows::pool::Shared;
using Number = std::optional<std::int64_t>;

Number number(const std::string& text) {
  return text == "null" ? Number() : Number(std::stoll(text));
}

template <typename T>
std::string said(const T& result) {
  if (!result)
    return result.error().kind == FieldError::Kind::may_have_run ? "unknown"
                                                                 : "failed " + result.error().text;
  if constexpr (requires { (*result).has_value(); })
    return "ok " + ((*result).has_value() ? std::to_string(**result) : "null");
  else
    return "ok " + std::to_string(*result);
}

struct Client {
  std::string pool, name;
  Shared shared;
  std::map<std::string, std::unique_ptr<FieldLock>> locks;

  std::string answer(const std::string& line);
};

std::string Client::answer(const std::string& line) {
  std::istringstream words(line);
  std::string kind, key, one, two;
  words >> kind >> key >> one >> two;
  if (kind == "read") return said(shared.get<std::int64_t>(key));
  if (kind == "write") return said(shared.set(key, std::stoll(one)));
  if (kind == "cas") return said(shared.compare_and_set(key, number(one), number(two)));
  if (kind == "lock") {
    locks[key] = std::make_unique<FieldLock>(pool, name, key, std::chrono::seconds(2));
    return said(locks[key]->acquire(std::chrono::milliseconds(std::stol(one))));
  }
  if (kind == "unlock") return "ok " + std::to_string(locks.erase(key));
  if (kind == "held") return "ok " + std::to_string(locks.at(key)->is_held());
  if (kind == "token") return "ok " + std::to_string(locks.at(key)->token());
  if (kind == "write-locked") return said(shared.set(key, std::stoll(one), locks.at(two).get()));
  if (kind == "add") return said(shared.add<std::int64_t>(key, std::stoll(one)));
  return "failed there is no such operation";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  Client client{argv[1],
                argv[2],
                Shared(argv[1], argv[2], std::chrono::milliseconds(std::stol(argv[3]))),
                {}};
  for (std::string line; std::getline(std::cin, line);)
    std::cout << client.answer(line) << std::endl;
}
