// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/access.h"
#include "common/controller_address.h"
#include "common/gpus_range.h"
#include "common/launch_kind.h"
#include "common/pool_option.h"
#include "common/result.h"
#include "jobsubmit/policy/guarantee.h"

namespace bellows {

enum class LifeCycle {
  supported,
  deprecated,  ///< admitted, with a warning
  removed      ///< refused, with the hint
};
enum class PlacementStrategy {
  any,
  pack,   ///< as few nodes as hold the GPUs
  spread  ///< as many nodes as Slurm has free
};
/// What becomes of a job when there is nobody to ask (a failed Lua hook, a plain job).
enum class Fallback { pass, refuse };

/// One version of a framework. What the file says for the whole framework is already merged in.
struct FrameworkVersion {
  std::string version;                     ///< empty: the framework has no versions to choose from
  std::string image;                       ///< empty: none
  std::map<std::string, std::string> env;  ///< set in batch jobs where the user did not set them
  std::vector<std::string> mounts;         ///< SOURCE:TARGET[:ro]
  std::vector<std::string> models;         ///< of jobs that name none, where their tenant sees them
  std::string prefix;                      ///< put before the program's command; empty: nothing
  std::vector<LaunchKind> launch;          ///< the kinds it supports; empty: all
  LifeCycle state = LifeCycle::supported;
  std::string hint;  ///< for deprecated and removed: what to use instead
};

struct Framework {
  std::vector<FrameworkVersion> versions;  ///< at least one
  std::string default_version;             ///< one of `versions` that is not removed

  /// nullptr: there is no such version.
  const FrameworkVersion* find(std::string_view version) const;
};

/// Who may change the size of a job that was submitted with a range.
enum class Elasticity {
  off,       ///< nobody: it keeps the size it was submitted with
  manual,    ///< its user
  automatic  ///< bellowsd too
};

/// The sizes that jobs may have.
struct GpuLimits {
  GpusRange sizes = GpusRange::between(1, GpusRange::kMost);
  std::uint32_t start = 1;          ///< first size of a job that gives only a range; in `sizes`
  std::optional<GpusRange> range;   ///< of a job that gives neither range nor size; within `sizes`
  std::vector<std::string> types;   ///< GPU types that may be asked for; empty: any, and untyped
  std::uint32_t max_nodes = 0;      ///< 0: no limit
  std::uint32_t gpus_per_node = 0;  ///< sizes are whole nodes of so many; 0: they need not be
  bool shrink_below_start = true;   ///< whether a range may go below the submitted size
  Elasticity elastic = Elasticity::manual;
};

/// What a job gets for each GPU of a type, in Slurm's terms.
struct Share {
  std::uint32_t cpus = 0;          ///< 0: leave to Slurm
  std::uint64_t memory_mib = 0;    ///< host memory for the program; 0: leave to Slurm
  std::uint64_t snapshot_mib = 0;  ///< and for a checkpoint in flight, added to it
};

struct Sizing {
  std::map<std::string, Share> by_type;  ///< by GPU type; "" for every other type and for none
  std::uint32_t time_default_min = 0;    ///< minutes; 0: leave to Slurm
  std::uint32_t time_max_min = 0;        ///< minutes; 0: no limit
  std::uint32_t signal_lead_s = 0;       ///< USR1 to the batch script so long before the time limit
  PlacementStrategy placement = PlacementStrategy::any;
  std::string partition;                 ///< for jobs that name none
  std::string qos;                       ///< the same
  std::vector<std::string> partitions;   ///< fnmatch patterns of those it may use; empty: any
  std::vector<std::string> qos_allowed;  ///< the same for QOS
  std::uint32_t site_factor = 0;         ///< added to the priority of each job; 0: nothing

  /// The share for a GPU type; the one for "" where the type has none; nullptr without either.
  const Share* share(std::string_view gpu_type) const;
};

/// Whether an fnmatch pattern is for NAME or for NAME:VERSION.
bool fits_framework(const std::string& pattern, std::string_view framework,
                    std::string_view version);

/// Limits of their own for the frameworks that match, inside a tenant's.
struct FrameworkRule {
  std::string pattern;  ///< fnmatch pattern on NAME or NAME:VERSION
  GpuLimits gpus;
};

/// The GPUs that all jobs of a tenant may hold together. Slurm enforces it, see bellows-tenants(1).
struct Quota {
  std::uint32_t gpus = 0;
  std::string parent;  ///< the account above the tenant's that gets the limit; empty: its only one
};

struct Tenant {
  std::string name;
  std::vector<std::string> accounts;  ///< Slurm accounts, lower case
  bool children = false;              ///< also accounts below them, where slurmdbd knows parents
  std::vector<std::string> users;     ///< only these; with groups: either suffices. Empty: all
  std::vector<std::string> groups;
  std::vector<std::string> partitions;   ///< fnmatch patterns: only jobs in these; empty: all
  std::optional<std::string> suspended;  ///< the reason that users see
  std::vector<std::string> frameworks;   ///< fnmatch patterns on NAME or NAME:VERSION
  std::vector<std::string> images;       ///< fnmatch patterns of own images; empty: none
  bool wide_batch = true;                ///< whether --batch-range may be given
  std::uint32_t pool_members = kMostPoolMembers;  ///< the most of one pool; 0: it has no pools
  GpuLimits gpus;
  std::vector<FrameworkRule> rules;  ///< the first that matches wins over `gpus`
  Sizing sizing;
  std::optional<Quota> quota;  ///< no account is in the quotas of two tenants
  Guarantee guarantee;
  /// What it counts beside other tenants when bellowsd divides the rest.
  std::uint32_t weight = 1;

  bool permits(std::string_view framework, std::string_view version) const;
  /// Those of the tenant for a job that names no framework.
  const GpuLimits& limits_for(std::string_view framework, std::string_view version) const;
  /// Whether it takes only some of the jobs of its accounts.
  bool narrowed() const { return !users.empty() || !groups.empty() || !partitions.empty(); }
};

/// The site's Lua script, read together with the policy so that both change at once.
struct LuaSettings {
  std::string path;    ///< as it is opened, with the directory of the policy; empty: no script
  std::string source;  ///< its text; filled in by whoever reads files, not by load_policy
  Fallback on_error = Fallback::refuse;
  std::uint32_t max_instructions = 100000;
  std::uint32_t max_memory_kib = 1024;
};

/// bellowsd, which changes the sizes of jobs where a tenant's are elastic by themselves.
struct ControllerSettings {
  enum class Objective { fair, goodput, throughput };

  ControllerAddress address;
  Objective objective = Objective::fair;
  bool share_by_value = false;          ///< between tenants; else by weight
  std::uint32_t dwell_s = 60;           ///< a job keeps a size at least so long
  std::uint32_t restarts_per_hour = 6;  ///< of one job, by bellowsd
  std::uint32_t last_s = 300;           ///< of a job's time limit, in which it is left alone
  std::uint32_t user_wins_s = 3600;     ///< for which bellowsd leaves the size that a user chose
  /// After so long elastic jobs make room for a job that bellowsd does not resize; none: never.
  std::optional<std::uint32_t> make_room_s = 600;
};

/// A model that bellows-modeld lends to jobs, on each node.
struct SiteModel {
  std::string name;                  ///< one of its tenant's
  std::string tenant;                ///< whose share of the memory it takes
  std::string source;                ///< an absolute path of a file or a folder, or a URL
  std::vector<std::string> visible;  ///< tenants besides its own that see it
  bool for_all = false;              ///< all tenants see it
  /// With whose rights it is opened; neither: with those of bellows-modeld.
  std::optional<std::uint32_t> uid;
  std::string user;

  bool is_seen_by(std::string_view tenant) const;
};

/// Who submits, as far as a tenant can be narrowed by it.
struct Submitter {
  std::string_view account;  ///< lower case; empty: none
  std::string_view user;
  const std::vector<std::string>* groups = nullptr;   ///< null: not known
  std::string_view partition;                         ///< or several, with commas; empty: none
  const std::vector<std::string>* parents = nullptr;  ///< of the account, nearest first
};

/// bellows.yaml, checked: every name it refers to exists. A value; safe to read from many threads.
class Policy {
 public:
  bool enabled = true;  ///< false: the plugin lets everything pass (the kill switch)
  std::map<std::string, Framework, std::less<>> frameworks;
  std::vector<Tenant> tenants;
  std::string default_tenant;            ///< for accounts that no tenant lists; empty: refuse them
  Fallback plain_jobs = Fallback::pass;  ///< jobs that use nothing of Bellows
  std::map<std::string, Fallback, std::less<>> plain_jobs_by_partition;
  std::string checkpoint_dir;  ///< pattern with %u, %a, %j; empty: the launcher's default
  Access checkpoint_access = Access::owner;  ///< who else may read what jobs store
  std::uint32_t resize_site_factor = 0;      ///< 0: a resize leaves the job's priority alone
  LuaSettings lua;
  std::optional<ControllerSettings> controller;  ///< none: the site has no bellowsd
  std::vector<SiteModel> models;                 ///< in the file's order
  std::string digest;                            ///< of the file's text: 16 hexadecimal digits
  std::vector<std::string> notes;  ///< "FILE:LINE:COLUMN: ..." of what may be a mistake

  /// The first tenant in the file that the submitter matches: by account (its own before a
  /// parent's), then narrowed by user, group and partition; else the default one, where it is not
  /// narrowed to others; else nullptr. Constant time in the number of tenants.
  const Tenant* tenant_of(const Submitter& who) const;
  const Tenant* find_tenant(std::string_view name) const;

  /// What a tenant means by a model's name: its own, or else the one that another tenant shows it.
  /// nullptr: it sees none of that name, whether or not there is one.
  const SiteModel* find_model(std::string_view tenant, std::string_view name) const;

  /// Whether a tenant stands for the children of its accounts, so that parents matter.
  bool has_children() const { return has_children_; }
  /// Whether a job's partition can decide which tenant's it is.
  bool has_partitions() const { return has_partitions_; }
  /// Whether a tenant may bring images.
  bool has_images() const { return has_images_; }

  /// Makes what is above fast; load_policy calls it when all tenants stand.
  void index();

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  template <typename Value>
  using ByName = std::unordered_map<std::string, Value, Hash, std::equal_to<>>;

  const Tenant* among(std::string_view account, const Submitter& who, bool for_children) const;

  bool has_children_ = false;
  bool has_partitions_ = false;
  bool has_images_ = false;
  ByName<std::vector<std::size_t>> by_account_;  ///< in the file's order
  ByName<std::size_t> by_name_;
};

/// Reads a policy. `filename` only names the source in messages.
/// invalid: "FILE:LINE:COLUMN: what is wrong", with the nearest known key for an unknown one.
Result<Policy> load_policy(std::string_view text, const std::string& filename);

}  // namespace bellows
