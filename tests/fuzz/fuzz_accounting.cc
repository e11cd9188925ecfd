// SPDX-License-Identifier: Apache-2.0
/// What sacct may have printed of jobs with any name: every job has an id, no step is one, and an
/// error names the table and a line of it, or a title that it lacks.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "elastic/simulate/accounting.h"

namespace {

using namespace bellows;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_error(const Error& error) {
  require(error.kind == ErrorKind::invalid);
  const std::string_view text = error.text;
  require(text.starts_with("sacct, line ") || text.starts_with("sacct has no column "));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = parse_accounting(text, "sacct");
  if (!table) {
    check_error(table.error());
    return 0;
  }
  const auto jobs = accounted_jobs(*table);
  if (!jobs) {
    check_error(jobs.error());
    return 0;
  }
  std::size_t row = 0;
  for (const AccountedJob& job : *jobs) {
    require(job.row < table->rows() && (row == 0 || job.row >= row));
    require(job.id.find('.') == std::string::npos);
    // Years have four digits.
    require(job.submitted_s > -70'000'000'000 && job.submitted_s < 300'000'000'000);
    row = job.row;
  }
  return 0;
}
