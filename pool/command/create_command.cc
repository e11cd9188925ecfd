// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "common/fd.h"
#include "common/pool_option.h"
#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/program_output.h"
#include "pool/command/commands.h"
#include "pool/command/keeper_job.h"
#include "pool/policy/pool_policy.h"
#include "pool/wire/channel.h"
#include "pool/wire/node_place.h"
#include "pool/wire/pool_place.h"
#include "pool/wire/pool_settings.h"
#include "slurm/client.h"

namespace bellows::pool {
namespace {

/// Slurm's own limit of a batch script, max_script_size.
constexpr std::size_t kMostScript = 4 << 20;
constexpr std::size_t kMostOutput = 64 * 1024;
constexpr std::chrono::seconds kMakesWithin{30};

struct Options {
  std::string name;
  std::string script;
  std::string policy;
  std::optional<std::uint32_t> min;
  std::optional<std::uint32_t> max;
  std::optional<std::uint32_t> burst;
  std::uint32_t drain = 30;
  std::optional<std::uint32_t> http;
  std::optional<std::uint32_t> shared;
  std::vector<std::string> keeper_options;
};

/// The pool's directory while it is made: what fails leaves nothing.
class NewDirectory {
 public:
  explicit NewDirectory(const std::string& pools) : path_(pools + "/.new-XXXXXX") {
    if (!mkdtemp(path_.data())) path_.clear();
  }
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;
  ~NewDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  /// busy: there is something with that name.
  Status become(const std::string& path) {
    if (rename(path_.c_str(), path.c_str()) != 0) {
      if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR)
        return Error{ErrorKind::busy, path +
                                          " is there already: delete that pool, or give this one "
                                          "another name"};
      return errno_error("make", path);
    }
    path_ = path;
    return {};
  }
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

Status fill(const std::string& dir, const PoolSettings& settings, const std::string& script,
            const std::string& policy, const char* policy_name) {
  const auto text = read_file(script, kMostScript);
  if (!text) return text.error();
  if (!text->starts_with("#!"))
    return Error{ErrorKind::invalid, script + " is no batch script: it does not begin with #!"};
  const auto key = make_key();
  if (!key) return key.error();
  if (mkdir((dir + "/log").c_str(), 0700) != 0) return errno_error("make", dir + "/log");
  for (const auto& [name, content] :
       {std::pair<const char*, const std::string&>("key.pem", key->key),
        {"cert.pem", key->certificate},
        {"member.sbatch", *text}})
    if (const Status written = replace_file(dir + "/" + name, content, 0600); !written)
      return written;
  if (!policy.empty())
    if (const Status written = replace_file(dir + "/" + policy_name, policy, 0600); !written)
      return written;
  return write_settings(dir, settings);
}

/// What the options say, and otherwise the policy; its text is for the pool's directory.
Result<PoolSettings> settings_of(const Options& options, std::string& policy_text) {
  PoolPolicy policy;
  if (!options.policy.empty()) {
    auto text = read_file(options.policy, kMostPolicyBytes);
    if (!text) return text.error();
    const auto read = read_pool_policy(*text, options.policy);
    if (!read) return read.error();
    policy = *read;
    if (options.min == 0U && !may_be_empty(policy)) return Error{ErrorKind::invalid, kNobodySays};
    policy_text = std::move(*text);
  }
  return PoolSettings{.name = options.name,
                      .min = options.min.value_or(policy.min),
                      .max = options.max.value_or(policy.max),
                      .burst_interval = options.burst ? std::chrono::seconds(*options.burst)
                                                      : policy.burst_interval,
                      .drain = std::chrono::seconds(options.drain),
                      .http_port = static_cast<std::uint16_t>(options.http.value_or(0)),
                      .keeper_options = options.keeper_options};
}

Status make_shared_fields(const std::string& dir, std::uint32_t servers) {
  const auto output =
      output_of({helper_program("bellows-pool-shared"), "--make", std::to_string(servers), dir},
                kMakesWithin, kMostOutput);
  if (!output) return output.error();
  if (output->exit.ok()) return {};
  return Error{ErrorKind::io,
               "can't prepare the shared fields: " + one_line(trim(output->err), 400)};
}

/// A pool of that name in another folder, or one whose directory was removed by hand, still has
/// jobs: its keeper would keep this one's from starting, and bellowsd takes the two for one.
Status refuse_known_name(const std::string& name) {
  if (const Status usable = SlurmClient::usable(); !usable) return usable;
  const auto jobs = jobs_of_pool(name, PoolJobs::all, "");
  if (!jobs) return jobs.error();
  if (jobs->empty()) return {};
  return Error{ErrorKind::busy,
               fmt::format("job {} is of a pool {} of yours: delete that pool or cancel its jobs, "
                           "or give this one another name",
                           jobs->front(), name)};
}

Status create(const Options& options, std::string& job) {
  std::string policy;
  const auto read = settings_of(options, policy);
  if (!read) return read.error();
  const PoolSettings& settings = *read;
  if (const std::string complaint = settings_complaint(settings); !complaint.empty())
    return Error{ErrorKind::invalid, complaint};
  const auto pools = pools_dir();
  if (!pools) return pools.error();
  const std::string path = *pools + "/" + options.name;
  // A pool that is there already is said to be so below.
  std::error_code failure;
  if (!std::filesystem::exists(path, failure))
    if (const Status unknown = refuse_known_name(options.name); !unknown) return unknown;
  std::filesystem::create_directories(*pools, failure);
  NewDirectory dir(*pools);
  if (dir.path().empty()) return errno_error("make a folder in", *pools);
  const char* const policy_name = options.policy.ends_with(".lua") ? "policy.lua" : "policy.yaml";
  if (const Status filled = fill(dir.path(), settings, options.script, policy, policy_name);
      !filled)
    return filled;
  if (const Status made = dir.become(path); !made) return made;
  if (options.shared)
    if (const Status made = make_shared_fields(path, *options.shared); !made) return made;
  const auto submitted = submit_keeper(settings, path);
  if (!submitted) return submitted.error();
  job = *submitted;
  dir.keep();
  return {};
}

int run(const Options& options) {
  std::string job;
  if (const Status created = create(options, job); !created) return fail(created.error());
  fmt::print("pool {}: its keeper is job {}\n", options.name, job);
  return kOk;
}

}  // namespace

void add_create_command(CommandLine& pool) {
  CommandLine command = pool.add_command(
      "create", "Make a pool: jobs with one batch script, as many as its load needs");
  const auto options = std::make_shared<Options>();
  command.add_option("NAME", options->name, "The pool's name")
      .check(pool_name_complaint)
      .required();
  command
      .add_option("SCRIPT", options->script,
                  "The batch script of each member. It ends with `exec bellows pool member -- CMD`")
      .required();
  command
      .add_option("--policy", options->policy,
                  "A file that says by which metrics the pool has which size, in YAML or, if it "
                  "ends in .lua, in Lua: bellows-pool(1)")
      .value_name("FILE");
  command
      .add_option("--min", options->min,
                  "The least number of members (default: the policy's, or 1)")
      .value_name("N");
  command.add_option("--max", options->max, "The most (default: the policy's, or 1)")
      .value_name("N")
      .between(1, 10'000);
  command
      .add_option(
          "--burst-interval", options->burst,
          "Seconds from one change of size by thresholds to the next (default: the policy's, "
          "or 60)")
      .value_name("SECONDS");
  command
      .add_option("--drain", options->drain,
                  "Seconds that a member has to end its calls before it is killed")
      .value_name("SECONDS")
      .between(1, 86'400)
      .show_default();
  command
      .add_option("--http", options->http,
                  "Take HTTP requests at this port of the keeper's node, and pass them to members")
      .value_name("PORT")
      .between(1, 65'535);
  command
      .add_option(
          "--shared", options->shared,
          "Have fields that members share, on so many servers of etcd: 1, or 3 of a pool with "
          "two members or more")
      .value_name("SERVERS")
      .check([](const std::string& given) {
        return given == "1" || given == "3" ? "" : "it is 1 or 3";
      });
  command
      .add_option(
          "--keeper-option", options->keeper_options,
          "An option of sbatch for the keeper's job, such as --partition=cpu; may be repeated")
      .value_name("OPTION")
      .one_value_each();
  command.run([options] { return run(*options); });
}

}  // namespace bellows::pool
