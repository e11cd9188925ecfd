// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "spank/container/job_cgroup.h"

/// Images in registries: a program of Bellows's own fetches them, as the job's user and with no
/// capability, into a directory that the container then starts from.
namespace bellows::container {

/// How to import an image. A value.
struct ImageImport {
  std::string program;                   ///< bellows-image; empty: there is nothing to import
  std::string image;                     ///< as an ImageReference has it
  std::string cache;                     ///< the directory of images; empty: the user's own
  std::uint64_t budget_mib = 0;          ///< the most that it may have; 0: as the program has it
  std::uint32_t job = 0;                 ///< which shall have a lease on the image; 0: none
  std::vector<std::string> environment;  ///< NAME=VALUE
  bool tells = false;                    ///< what takes long, and why it failed, is said
};

/// Of a job's environment, what tells of the user, of credentials and of proxies.
std::vector<std::string> import_environment(const std::vector<std::string>& job,
                                            const std::string& user, const std::string& home);

/// The image's root directory, which belongs to the user: trust it no more than the user.
/// As the user. Ends when the importer does, which gives up a registry that sends nothing. The
/// process that keeps the job's lease lives in `home`, and so as long as the job; without one there
/// is no lease.
Result<std::string> run_import(const ImageImport& import, const JobCgroup& home);

}  // namespace bellows::container
