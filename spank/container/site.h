// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/container/spec.h"
#include "common/result.h"

namespace bellows::container {

/// The names of Site's settings in plugstack.conf, for messages.
inline constexpr const char* kSiteSettings =
    "image_dirs, image_importer, image_cache, image_cache_budget, squashfuse, mksquashfs, "
    "container_scope, containers_dir, containers_days, containers_budget, devices, "
    "tmp_size, shm_size, tmp_keep, mount_home, remap_root, user_namespace, writable, entrypoint, "
    "batch_in_container, task_prolog, no_new_privs, "
    "require_fence, max_containers, phase_seconds, save_seconds";

/// Takes one NAME=VALUE of the plugin's line in plugstack.conf. not_found: no such setting.
/// invalid: the value is wrong; says what is accepted.
Status set_site(Site& site, std::string_view argument);

}  // namespace bellows::container
