// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "spank/container/ld_cache.h"
#include "spank/container/user_mounts.h"

/// What a container needs of the host's NVIDIA driver: its libraries must be those of the running
/// kernel module, so no image can have them. Found by the names that the driver ships, without any
/// variable, of the image or the job.
///
/// They lie in a read-only directory of their own, beside libbellows, which LD_LIBRARY_PATH then
/// begins with: an image's ld.so.cache would need a writable image and ldconfig, run on what
/// the image holds. What that costs: a program that is started with another LD_LIBRARY_PATH, or
/// none (env -i), or whose DT_RPATH leads to another libcuda (a toolkit's stubs), does not find
/// them; nothing else of the host can get in a program's way, since nothing else is there. An
/// image's CUDA compatibility libraries (/usr/local/cuda/compat: a libcuda newer than the host's)
/// are left alone and come after the host's; who wants them puts their directory first.
namespace bellows::container {

inline constexpr const char* kDriverDirectory = "/usr/lib/bellows";
inline constexpr const char* kToolDirectory = "/usr/lib/bellows/bin";

/// One thing to have in a container. A value.
struct DriverFile {
  enum class Kind {
    file,   ///< `source`, a path on the host without links; `target` is below kDriverDirectory
    link,   ///< `source` is its text; `target` as above
    place,  ///< `source` is a file or socket on the host; `target` its own path in the container
  };

  Kind kind = Kind::file;
  std::string source;
  std::string target;

  bool operator==(const DriverFile&) const = default;
};

/// A file of Bellows, which a container has beside the driver's.
struct OwnFile {
  std::string source;  ///< its path on the host
  std::string target;  ///< below kDriverDirectory; of "libx.so.0", there is also "libx.so"
};

struct DriverPlan {
  std::string version;             ///< of the running module, "550.54.15"; empty: no driver
  std::vector<DriverFile> files;   ///< a directory before what is in it
  std::vector<std::string> notes;  ///< what is odd about the host, for --container-verbose
};

/// `root` is the host's, and has `own`. A host without a driver has those alone.
Result<DriverPlan> plan_driver_files(int root, const std::vector<OwnFile>& own, Machine machine);

/// The same, ready to be put in a container: kDriverDirectory, then the places. `scratch` (O_PATH)
/// is a directory of the caller's mount namespace, where it is put together; something remains
/// mounted there, to be hidden or left behind. Needs CAP_SYS_ADMIN.
Result<std::vector<PlacedMount>> open_driver_files(const DriverPlan& plan, int root, int scratch);

/// A list of directories as LD_LIBRARY_PATH and PATH have it, with `directory` before the others,
/// or after them, and nowhere else.
std::string with_first(std::string_view list, std::string_view directory);
std::string with_last(std::string_view list, std::string_view directory);

/// The version of /proc/driver/nvidia/version's text.
std::optional<std::string> driver_version(std::string_view text);

}  // namespace bellows::container
