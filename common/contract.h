// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/gpus_range.h"
#include "common/result.h"

namespace bellows {

/// The global batch sizes that a program may be told to use, `MIN-MAX`. A value.
struct BatchRange {
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 31;

  std::uint64_t min = 1;  ///< 1 or more, at most `max`
  std::uint64_t max = 1;  ///< at most kMost

  /// invalid: says which part of the text is wrong and gives the accepted form.
  static Result<BatchRange> parse(std::string_view text);
  bool contains(std::uint64_t batch) const { return batch >= min && batch <= max; }
  std::string to_string() const;

  bool operator==(const BatchRange&) const = default;
};

/// The value of --job-class: 1 to 64 letters, digits and ._+- that begin with a letter or digit.
/// invalid: says what is wrong with it.
Result<std::string> parse_job_class(std::string_view text);

/// The job contract: what admission promised a job, fixed at submit.
///
/// One versioned line, `bellows/1 tenant=vision framework=digits:1.0 gpus=1-8 ckpt=/shared/%25u`.
/// slurmctld writes it into spank_job_env (for the nodes) and AdminComment (for people, and for a
/// node that has lost it), where it shares the place with others. It holds the range and the
/// rights, never the current size. A value: compares and copies.
struct Contract {
  /// A line longer than this is refused, so that nobody makes a node parse megabytes.
  static constexpr std::size_t kMostBytes = 4096;
  /// The name of the variable in spank_job_env that carries the line.
  static constexpr const char* kVariable = "BELLOWS_CONTRACT";
  /// Keys among `extra`, only there where bellows.yaml sets them: the command before the program's,
  /// lists (see join_list) of launch kinds, of mounts and of the framework's variables, and the
  /// GPUs of a node where a job has whole nodes.
  static constexpr const char* kPrefixKey = "prefix";
  static constexpr const char* kLaunchKey = "launch";
  static constexpr const char* kMountsKey = "mounts";
  static constexpr const char* kEnvKey = "env";
  static constexpr const char* kNodeGpusKey = "node_gpus";
  /// A list of patterns of images that steps of the job may name; and the job's --container options
  /// apart from its image, see common/container/spec_text.h.
  static constexpr const char* kImagesKey = "images";
  static constexpr const char* kContainerKey = "container";
  /// Where the batch script runs: kInImage, or on the host.
  static constexpr const char* kScriptKey = "script";
  static constexpr const char* kInImage = "image";
  /// Who else may read what the job stores, see access.h.
  static constexpr const char* kAccessKey = "access";
  /// Where bellowsd listens that may change the job's size, see common/controller_address.h; only
  /// there where it may.
  static constexpr const char* kControllerKey = "controller";
  /// A list of the models of --model, whose memory bellows-modeld lends on the job's nodes.
  static constexpr const char* kModelsKey = "models";
  /// Where they are lent besides memory: kOnGpu, or not there.
  static constexpr const char* kModelOnKey = "model_on";
  static constexpr const char* kOnGpu = "gpu";

  /// The job's pool, see common/pool_option.h.
  static constexpr const char* kPoolKey = "pool";

  /// Of a plain job, which uses nothing of Bellows: the contract is only for containers that its
  /// steps may ask for, and for the rest there is none. It has a variable of its own in
  /// spank_job_env, so that nobody takes it for a whole one, and is not in AdminComment.
  static constexpr const char* kPlainKey = "plain";
  static constexpr const char* kPlainVariable = "BELLOWS_PLAIN_CONTRACT";

  std::string tenant;
  std::string framework;          ///< NAME, or empty when the job named none
  std::string framework_version;  ///< empty when the framework has no versions
  GpusRange gpus = GpusRange::between(1, 1);
  std::string checkpoint_dir;       ///< pattern with %u, %a and %j; empty: the launcher's default
  std::string image;                ///< the framework's container image; empty: none
  std::optional<BatchRange> batch;  ///< of --batch-range
  std::string job_class;            ///< of --job-class; empty: none
  /// The keys above, and those of a newer minor version, kept as they were, in order.
  std::vector<std::pair<std::string, std::string>> extra;

  /// invalid: the text is not a contract of this major version; says why.
  static Result<Contract> parse(std::string_view line);
  std::string to_string() const;
  /// The value of one of `extra`, or "".
  std::string_view extra_value(std::string_view key) const;
  bool is_plain() const { return !extra_value(kPlainKey).empty(); }

  /// AdminComment holds the line first and then, after a word that no line has, what others keep
  /// there. line_in: "" if there is no line.
  static std::string admin_comment(std::string_view line, std::string_view others);
  static std::string_view line_in(std::string_view admin_comment);
  static std::string_view others_in(std::string_view admin_comment);

  /// Texts in one value, whatever is in them; and back. An empty list is an empty text.
  static std::string join_list(const std::vector<std::string>& texts);
  static std::vector<std::string> split_list(std::string_view value);

  bool operator==(const Contract&) const = default;
};

/// Replaces %u (user), %a (account), %j (job id) and %% in a path pattern. Another % sequence is
/// invalid.
Result<std::string> expand_path(std::string_view pattern, std::string_view user,
                                std::string_view account, std::string_view job_id);

/// The directory of a path pattern above its first component that depends on the job:
/// "/shared/checkpoints" of "/shared/checkpoints/%u/%j".
std::string fixed_part(std::string_view pattern);

}  // namespace bellows
