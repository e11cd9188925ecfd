// SPDX-License-Identifier: Apache-2.0
#include "spank/step_save.h"

#include <fmt/core.h>

#include <cstdint>

namespace bellows::spank {

SaveRequest step_save(spank_t spank, const Settings& settings) {
  SaveRequest request;
  std::uint32_t step = 0;
  std::uint32_t node = 0;
  std::uint16_t processors = 1;
  gid_t* groups = nullptr;
  int count = 0;
  request.run_dir = settings.run_dir;
  spank_get_item(spank, S_JOB_ID, &request.job);
  spank_get_item(spank, S_JOB_STEPID, &step);
  spank_get_item(spank, S_JOB_NODEID, &node);
  spank_get_item(spank, S_JOB_NCPUS, &processors);
  if (spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &count) == ESPANK_SUCCESS)
    request.groups.assign(groups, groups + count);
  request.file.program = settings.site.mksquashfs;
  request.file.tag = fmt::format("{}.{}.{}", request.job, step, node);
  request.file.processors = processors;
  request.limit = std::chrono::seconds(settings.site.save_seconds);
  return request;
}

}  // namespace bellows::spank
