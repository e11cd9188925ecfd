// SPDX-License-Identifier: Apache-2.0
// The batch that a job was ordered to use: its record beside the checkpoints, and the order itself.
#include <criterion/criterion.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "launcher/record/batch_record.h"
#include "launcher/run/control_request.h"
#include "tests/unit/support/scratch_dir.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;

TestSuite(batch_record, .timeout = 20);

namespace {

std::optional<Contract> contract_with(std::optional<BatchRange> range) {
  Contract contract;
  contract.tenant = "vision";
  contract.batch = range;
  return contract;
}

const std::optional<Contract> kContract = contract_with(BatchRange{64, 512});

struct Place {
  ScratchDir scratch;
  std::string path = scratch.path() + "/batch.json";
  BatchRecord record{scratch.path()};

  void leave(const std::string& text) const { std::ofstream(path, std::ios::binary) << text; }
  void expect_error(ErrorKind kind, const std::string& words,
                    const std::optional<Contract>& contract = kContract) const {
    const auto batch = record.read(contract);
    cr_assert(!batch.ok(), "%s", words.c_str());
    cr_expect(batch.error().kind == kind && has(batch.error().text, words) &&
                  has(batch.error().text, path),
              "%s", batch.error().text.c_str());
  }
};

input::StopRequest stop_of(const std::string& line) {
  auto request = parse_request({5, line});
  cr_assert(request.ok() && std::holds_alternative<input::StopRequest>(*request), "%s",
            line.c_str());
  return std::get<input::StopRequest>(*request);
}

}  // namespace

Test(batch_record, is_read_as_it_was_written) {
  Place place;
  cr_expect(!place.record.read(kContract)->any(), "none was ordered");
  const OrderedBatch ordered[] = {{64}, {512}, {std::nullopt, {{128, 4}}}, {64, {{256, 8}}}};
  for (const OrderedBatch& batch : ordered) {
    cr_assert(place.record.write(batch).ok());
    cr_expect(*place.record.read(kContract) == batch);
  }
  struct stat info;
  cr_expect(stat(place.path.c_str(), &info) == 0 && (info.st_mode & 07777) == 0600);
  cr_assert(place.record.write({}).ok());
  cr_expect(!place.record.read(kContract)->any());
  cr_expect(place.record.write({}).ok(), "there is nothing to remove");
}

Test(batch_record, of_a_plan_is_for_its_size) {
  const OrderedBatch ordered{64, {{256, 8}}};
  cr_expect(ordered.at(8) == 256u);
  cr_expect(ordered.at(4) == 64u, "as its user ordered it, whom the plan left no word");
  const OrderedBatch plan_alone{std::nullopt, {{256, 8}}};
  cr_expect(plan_alone.at(8) == 256u && !plan_alone.at(7));
}

Test(batch_record, is_replaced_whole_or_not_at_all) {
  Place place;
  cr_assert(place.record.write({64}).ok());
  const BatchRecord nowhere(place.scratch.path() + "/missing");
  cr_expect(!nowhere.write({128}).ok() && !nowhere.write({}).ok());
  struct stat before, after;
  cr_assert(stat(place.path.c_str(), &before) == 0);
  cr_assert(place.record.write({128}).ok());
  cr_assert(stat(place.path.c_str(), &after) == 0);
  cr_expect(before.st_ino != after.st_ino, "a reader never finds half of a record");
}

Test(batch_record, that_is_damaged_is_refused) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "it is not a JSON object"},
      {"{\"batch\":12", "it is not a JSON object"},
      {"[64]", "it is not a JSON object"},
      {"64", "it is not a JSON object"},
      {"{}", "its \"batch\" is not a whole number"},
      {"{\"batch\":\"64\"}", "its \"batch\" is not a whole number"},
      {"{\"batch\":64.5}", "its \"batch\" is not a whole number"},
      {"{\"batch\":-64}", "its \"batch\" is not a whole number"},
      {"{\"batch\":0}", "its batch is not from 1 to 2147483648"},
      {"{\"batch\":2147483649}", "its batch is not from 1 to 2147483648"},
      {"{\"batch\":99999999999999999999}", "its \"batch\" is not a whole number"},
      {R"({"planned":7})", "its \"planned\" is not an object"},
      {R"({"planned":{"batch":64}})", "its \"gpus\" is not a whole number"},
      {R"({"planned":{"gpus":4}})", "its \"batch\" is not a whole number"},
      {R"({"planned":{"batch":0,"gpus":4}})", "its planned batch is not from 1 to"},
      {R"({"planned":{"batch":64,"gpus":0}})", "its number of GPUs is not from 1 to"},
      {R"({"batch":"64","planned":{"batch":64,"gpus":4}})", "its \"batch\" is not a whole number"}};
  for (const auto& [text, words] : cases) {
    Place place;
    place.leave(text);
    place.expect_error(ErrorKind::corrupt, words);
  }
  Place place;
  place.leave("{\"batch\":64}" + std::string(5000, ' '));
  place.expect_error(ErrorKind::corrupt, "is larger than 4096 bytes");
  place.leave("{\"batch\":64,\"later\":[1]}\n");
  cr_expect(*place.record.read(kContract) == OrderedBatch{64}, "a later release may add keys");
}

Test(batch_record, that_is_a_pipe_holds_nobody_up) {
  Place place;
  cr_assert(mkfifo(place.path.c_str(), 0600) == 0);
  place.expect_error(ErrorKind::corrupt, "it is not a JSON object");
}

Test(batch_record, is_held_to_the_contract) {
  Place place;
  for (const int batch : {63, 513}) {
    place.leave("{\"batch\":" + std::to_string(batch) + "}");
    place.expect_error(ErrorKind::denied, "the job's contract has 64-512");
  }
  place.leave(R"({"batch":64,"planned":{"batch":1024,"gpus":4}})");
  place.expect_error(ErrorKind::denied, "a batch of 1024, and the job's contract has 64-512");
  place.leave("{\"batch\":64}");
  place.expect_error(ErrorKind::denied, "no --batch-range", contract_with({}));
  place.expect_error(ErrorKind::denied, "no --batch-range", std::nullopt);
}

Test(batch_record, comes_with_an_order_to_stop) {
  const std::string stop = R"({"cmd":"stop","gpus":4)";
  cr_expect(!stop_of(stop + "}").batch);
  cr_expect(stop_of(stop + R"(,"batch":128})").batch == 128u);
  for (const char* odd : {"0", "-1", "1.5", "null", "true", "\"128\"", "[128]", "{}"})
    cr_expect(stop_of(stop + ",\"batch\":" + odd + "}").batch == 0u, "%s: no batch is 0", odd);
}
