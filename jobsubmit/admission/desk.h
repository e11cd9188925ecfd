// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jobsubmit/admission/admission.h"
#include "jobsubmit/admission/trace.h"

namespace bellows {

/// Makes one decision about a submitted job; each step returns false once it has refused. Part of
/// admission, in one file for each kind of choice.
class Desk {
 public:
  /// `trace` may be null.
  Desk(const Policy& policy, const Request& request, Trace* trace)
      : policy_(policy), request_(request), trace_(trace) {}

  Decision decide();

 private:
  struct Step;
  bool take(const Step& step);
  bool refuse(Refusal why, std::string message) {
    decision_.refused = why;
    decision_.message = std::move(message);
    return false;
  }
  void note(std::string_view text) {
    if (!decision_.message.empty()) decision_.message += "; ";
    decision_.message += text;
  }
  bool elastic() const { return range_.min() != range_.max(); }
  /// Whether the job will be resized, and so is spelled as --gpus=N with N tasks.
  bool resizable() const { return elastic() && request_.batch; }

  // admission.cc
  bool job_kind();
  bool find_tenant();
  bool choose_batch_range();
  bool fill_in();
  bool fits_contract();

  // framework_choice.cc
  bool choose_framework();
  bool choose_version(const std::string& name, const Framework& framework,
                      std::optional<std::string_view> wanted);
  bool check_version(const Framework& framework, const FrameworkVersion& version, bool named);
  void take_version(const FrameworkVersion& version);

  // container_choice.cc
  bool choose_container();
  bool choose_image(const std::string& image);

  // size_choice.cc
  bool choose_range();
  bool parse_range();
  bool within_limits();
  std::uint64_t least_for(std::uint32_t nodes) const;
  std::uint32_t start_for_nodes() const;
  bool takes_default_range() const;
  bool choose_type();
  bool keeps_meaning();
  bool choose_size();
  bool size_by_nodes();
  bool check_tasks();
  bool check_shrinking();
  std::string range_name() const;
  std::string jobs_of_tenant() const;

  // terms.cc
  std::optional<std::uint32_t> fixed_nodes() const;
  bool choose_nodes();
  bool choose_whole_nodes();
  bool choose_partition();
  bool choose_time();
  void spell_size();
  void spell_type();
  void choose_shares();
  void choose_signal();

  // trace.cc
  void tell_tenant(Trace& trace) const;
  void tell_framework(Trace& trace) const;
  void tell_container(Trace& trace) const;
  void tell_range(Trace& trace) const;
  void tell_type(Trace& trace) const;
  void tell_size(Trace& trace) const;
  void tell_nodes(Trace& trace) const;
  void tell_partition(Trace& trace) const;
  void tell_time(Trace& trace) const;
  void tell_batch_range(Trace& trace) const;
  void tell_terms(Trace& trace) const;

  const Policy& policy_;
  const Request& request_;
  Trace* const trace_;
  Decision decision_;
  const Tenant* tenant_ = nullptr;
  const GpuLimits* limits_ = nullptr;
  std::optional<GpuRequest> asked_;
  GpusRange range_ = GpusRange::between(1, 1);
  std::string type_;
  std::uint32_t size_ = 1;
};

}  // namespace bellows
