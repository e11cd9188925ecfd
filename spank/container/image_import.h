// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

/// Images in registries: a program of Bellows's own fetches them, as the job's user and with no
/// capability, into a directory that the container then starts from.
namespace bellows::container {

/// How to import an image. A value.
struct ImageImport {
  std::string program;                   ///< bellows-image; empty: there is nothing to import
  std::string image;                     ///< as an ImageReference has it
  std::string cache;                     ///< the directory of images; empty: the user's own
  std::vector<std::string> environment;  ///< NAME=VALUE
  bool tells = false;                    ///< what takes long, and why it failed, is said
};

/// Of a job's environment, what tells of the user, of credentials and of proxies.
std::vector<std::string> import_environment(const std::vector<std::string>& job,
                                            const std::string& user, const std::string& home);

/// The image's root directory, which belongs to the user: trust it no more than the user.
/// As the user. Ends when the importer does, which gives up a registry that sends nothing.
Result<std::string> run_import(const ImageImport& import);

}  // namespace bellows::container
