// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/base/exit_status.h"
#include "launcher/base/program_output.h"
#include "tests/unit/modelstore/model_store.h"

namespace bellows::model_test {

using nlohmann::json;

struct Ran {
  int status = -1;
  std::string out, err;
};

inline Ran model(const ModelStore& store, std::vector<std::string> words) {
  words.insert(words.begin(), {BELLOWS, "model"});
  words.push_back("--run=" + store.run());
  auto output = output_of(words, std::chrono::seconds(40), 16 << 20);
  if (!output) return {-1, "", output.error().text};
  return {output->exit.code(), output->out, output->err};
}

inline void expect_done(const Ran& ran, const std::string& text) {
  cr_expect(ran.status == kOk && has(ran.out, text), "%d: %s%s", ran.status, ran.out.c_str(),
            ran.err.c_str());
}

inline void expect_failed(const Ran& ran, int status, const std::string& text) {
  cr_expect(ran.status == status && has(ran.err, text), "%d: %s%s", ran.status, ran.out.c_str(),
            ran.err.c_str());
}

inline json shown(const ModelStore& store, std::vector<std::string> words) {
  words.push_back("--json");
  const Ran ran = model(store, words);
  cr_assert_eq(ran.status, kOk, "%s", ran.err.c_str());
  return json::parse(ran.out);
}

/// As a program of the job with this socket.
inline Ran at_socket(const std::string& socket, std::vector<std::string> words) {
  words.insert(words.begin(), {"env", "BELLOWS_MODEL_SOCKET=" + socket, BELLOWS, "model"});
  auto output = output_of(words, std::chrono::seconds(40), 16 << 20);
  if (!output) return {-1, "", output.error().text};
  return {output->exit.code(), output->out, output->err};
}

inline json seen_at(const std::string& socket, std::vector<std::string> words) {
  words.push_back("--json");
  const Ran ran = at_socket(socket, words);
  cr_assert_eq(ran.status, kOk, "%s", ran.err.c_str());
  return json::parse(ran.out);
}

}  // namespace bellows::model_test
