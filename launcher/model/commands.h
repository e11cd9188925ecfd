// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "modelstore/wire/control_wire.h"

namespace bellows {

/// What the subcommands of `bellows model` are told.
struct ModelOptions {
  std::string run;     ///< the daemon's own folder; empty: in a job its socket, else kRunFolder
  std::string tenant;  ///< whose model; empty: there is only one of its name
  std::string name;
  std::vector<std::string> names;  ///< progress: of which models
  std::string place;               ///< add: a path or a URL
  std::string visible;
  std::string uid;              ///< add: with whose rights; empty: the daemon's own
  std::uint32_t seconds = 600;  ///< prefetch, verify: to wait
  bool begin_only = false;      ///< prefetch: don't wait
  std::uint32_t interval = 2;   ///< top: seconds between tables
  bool once = false;            ///< top
  bool json = false;
};

/// list and show in a job, through its socket.
int job_model_list(const ModelOptions& options, const std::string& socket);
int job_model_show(const ModelOptions& options, const std::string& socket);

/// Each does one subcommand, after it reported everything; the exit status.
int model_list(const ModelOptions& options);
/// list again and again, unless once.
int model_top(const ModelOptions& options);
int model_show(const ModelOptions& options);
int model_add(const ModelOptions& options);
int model_verify(const ModelOptions& options);
/// One line, NODE READ BYTES, while one of them is loaded.
int model_progress(const ModelOptions& options);
int model_prefetch(const ModelOptions& options);
/// remove, pin, unpin and evict.
int model_change(const ModelOptions& options, const char* command, modelwire::ControlOp op);

}  // namespace bellows
