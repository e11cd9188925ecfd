// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace bellows::container {

/// The job's user, as programs in the container see this user.
struct Account {
  std::string user;
  std::string group;  ///< empty: unknown
  std::string home;   ///< empty: unknown
};

/// A file to put in the place of the image's.
struct AccountFile {
  std::string path;
  std::string text;
};

/// Of /etc/passwd and /etc/group those that lack the caller's user or group: the image's text after
/// a line for this user, and one for root if it has none. Nothing if the image has no /etc. Read in
/// `root` with the caller's rights; one that cannot be read is left alone.
std::vector<AccountFile> account_files(int root, const Account& account);

}  // namespace bellows::container
