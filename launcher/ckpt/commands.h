// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/store/retention.h"
#include "launcher/ckpt/progress.h"

namespace bellows {

/// What the subcommands of `bellows ckpt` are told.
struct CkptOptions {
  std::string dir;       ///< empty: the default
  std::string job;       ///< whose directory it is; empty: see dir
  std::string job_word;  ///< the first word, which may be a step
  std::string step;      ///< as find_step takes it
  std::vector<std::string> steps;
  std::string name;
  std::string to;
  std::set<std::string> except;
  Retention retention;
  bool all = false;
  bool dry_run = false;
  bool job_is_over = false;
  bool json = false;
  bool quiet = false;

  ProgressBar::Style progress() const {
    return quiet ? ProgressBar::Style::quiet : ProgressBar::Style::automatic;
  }
};

/// Each does one subcommand, after it reported everything; the exit status.
int ckpt_list(const CkptOptions& options);
int ckpt_show(const CkptOptions& options);
int ckpt_verify(const CkptOptions& options);
int ckpt_diff(const CkptOptions& options);
int ckpt_prune(const CkptOptions& options);
int ckpt_name(const CkptOptions& options);
int ckpt_unname(const CkptOptions& options);
int ckpt_export(const CkptOptions& options);

}  // namespace bellows
