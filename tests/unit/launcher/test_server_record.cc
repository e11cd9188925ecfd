// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <fstream>

#include "launcher/record/server_record.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;

namespace {

ServerRecord sample() {
  return {.time = 1795844376.5,
          .job = 7,
          .restart = 1,
          .learners = 2,
          .updates = 2436,
          .updates_per_second = 812.25,
          .staleness = 0.75,
          .most_staleness = 3};
}

}  // namespace

Test(server_record, comes_back_as_it_was_written) {
  const ScratchDir dir;
  cr_expect(!ServerRecord::read(dir.path()));
  cr_assert(sample().write(dir.path(), Access::owner).ok());
  const auto read = ServerRecord::read(dir.path());
  cr_assert(read.has_value());
  cr_expect(*read == sample());
  const std::string shown = read->to_string();
  cr_expect(shown == "2 learners, 812 updates/s, staleness 0.8 (at most 3)", "%s", shown.c_str());
}

Test(server_record, tells_of_this_run_for_a_while) {
  const ServerRecord record = sample();
  cr_expect(record.tells_of(7, 1, record.time + 29) && record.tells_of(7, 1, record.time - 1));
  cr_expect(!record.tells_of(8, 1, record.time));
  cr_expect(!record.tells_of(7, 2, record.time));
  cr_expect(!record.tells_of(7, 1, record.time + 31));
}

Test(server_record, takes_nothing_that_is_none) {
  const ScratchDir dir;
  const std::string good = sample().to_json();
  cr_assert(ServerRecord::parse(good).ok());
  for (const char* bad : {"", "[]", "{}", R"({"job": 7})"}) {
    std::ofstream(dir.path() + "/server.json", std::ios::trunc) << bad;
    cr_expect(!ServerRecord::read(dir.path()), "%s", bad);
  }
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    const auto at = text.find(from);
    cr_assert(at != std::string::npos);
    return ServerRecord::parse(text.replace(at, from.size(), to));
  };
  for (const char* bad : {"-0.75", "\"much\"", "1e308", "1e999", "null"})
    cr_expect(!with("0.75", bad).ok(), "%s", bad);
  for (const char* bad : {"-1", "1.5", "4294967296", "\"1\""})
    cr_expect(!with("\"restart\":1", std::string("\"restart\":") + bad).ok(), "%s", bad);
}
