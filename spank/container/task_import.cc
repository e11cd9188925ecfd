// SPDX-License-Identifier: Apache-2.0
#include <linux/capability.h>

#include "spank/container/capabilities.h"
#include "spank/container/image_import.h"
#include "spank/container/task.h"

namespace bellows::container {

/// Before the lock on the job's views is taken, since it may take as long as a network does.
Status TaskEntry::import_image(const std::string& name, const TaskRequest& wanted, Phases& phases) {
  constexpr std::uint32_t kDay = 86400;  // the importer itself gives up what does not answer
  if (wanted.import.program.empty()) return {};
  {
    const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
    if (!as_root) return as_root.error();
    const auto found = views_.find(name);
    if (!found) return found.error();
    if (*found) return {};
  }
  begin_patiently("importing the image", kDay, phases);
  auto path = run_import(wanted.import, servers_);
  if (!path) return path.error();
  imported_ = *std::move(path);
  return {};
}

}  // namespace bellows::container
