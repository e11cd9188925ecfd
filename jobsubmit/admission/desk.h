// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "jobsubmit/admission/review.h"

namespace bellows {

/// The rules that have not moved out yet; each returns false once it has refused.
class Desk {
 public:
  explicit Desk(Review& review) : review_(review) {}

  // admission.cc
  bool job_kind();
  bool find_tenant();
  bool choose_batch_range();
  bool fill_in();

  // terms.cc
  bool choose_nodes();
  bool choose_partition();
  bool choose_time();

 private:
  bool refuse(Refusal why, std::string message) { return review_.refuse(why, std::move(message)); }
  void note(std::string_view text) { review_.note(text); }
  bool elastic() const { return review_.elastic(); }
  bool resizable() const { return review_.resizable(); }
  std::string jobs_of_tenant() const { return review_.jobs_of_tenant(); }

  // admission.cc
  bool fits_contract();

  // terms.cc
  std::optional<std::uint32_t> fixed_nodes() const;
  bool choose_whole_nodes();
  void spell_size();
  void spell_type();
  void choose_shares();
  void choose_signal();

  Review& review_;
  const Policy& policy_ = review_.policy;
  const Request& request_ = review_.request;
  Decision& decision_ = review_.decision;
  const Tenant*& tenant_ = review_.tenant;
  const GpuLimits*& limits_ = review_.limits;
  std::optional<GpuRequest>& asked_ = review_.asked;
  GpusRange& range_ = review_.range;
  std::string& type_ = review_.type;
  std::uint32_t& size_ = review_.size;
};

}  // namespace bellows
