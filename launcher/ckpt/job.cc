// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt/job.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "common/text.h"
#include "launcher/ckpt/place.h"
#include "launcher/cli/command_line.h"
#include "launcher/record/job_place.h"
#include "slurm/client.h"

namespace bellows {
namespace {

bool is_directory(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

/// The words that name steps, and a name, in their original order.
std::vector<std::string*> word_fields(CkptOptions& options) {
  std::vector<std::string*> fields = {&options.job_word};
  if (!options.step.empty()) fields.push_back(&options.step);
  for (std::string& step : options.steps) fields.push_back(&step);
  if (!options.name.empty()) fields.push_back(&options.name);
  return fields;
}

bool first_is_place(CkptOptions& options, std::size_t least, std::size_t most) {
  if (!options.dir.empty() || !options.job.empty()) return false;
  if (most == 0) return true;
  const std::string& first = options.job_word;
  if (!parse_job_name(first) && !is_directory(first)) return false;
  const std::size_t words = word_fields(options).size();
  if (words > most) return true;
  // A path may be that of a step.
  return least == 0 && parse_job_name(first) && !is_directory(default_checkpoint_dir());
}

}  // namespace

void settle_words(CkptOptions& options, std::size_t least, std::size_t most) {
  if (options.job_word.empty()) return;
  if (first_is_place(options, least, most)) {
    const bool job = parse_job_name(options.job_word) && !is_directory(options.job_word);
    (job ? options.job : options.dir) = std::exchange(options.job_word, "");
    return;
  }
  const auto words = word_fields(options);
  if (words.size() > most)
    throw WrongUsage{"unexpected argument '" + one_line(*words.back()) + "'"};
  const std::string first = std::exchange(options.job_word, "");
  if (most == kAnyNumber || !options.steps.empty()) {
    options.steps.insert(options.steps.begin(), first);
  } else {
    if (!options.step.empty()) options.name = options.step;
    options.step = first;
  }
}

Status find_job_dir(CkptOptions& options) {
  if (options.job.empty()) return {};
  const JobName name = *parse_job_name(options.job);
  std::unique_ptr<SlurmClient> slurm;
  if (SlurmClient::usable().ok()) slurm = std::make_unique<SlurmClient>();
  auto place = find_job(slurm.get(), name, "", Ask::if_needed);
  // Where a job without a directory of the site's keeps it, when this is where it was submitted.
  const std::string here = fmt::format("bellows-{}", options.job);
  options.dir = place.ok() && !place->checkpoint_dir.empty() ? place->checkpoint_dir : here;
  if (is_directory(options.dir)) return {};
  if (!place) return place.error();
  return Error{ErrorKind::not_found,
               fmt::format("job {} has no checkpoint directory {}: it has not begun to save, or it "
                           "saves elsewhere: name that directory with --dir",
                           options.job, one_line(options.dir))};
}

}  // namespace bellows
