// SPDX-License-Identifier: Apache-2.0
// What a program of the kind nccl does before its first collective, without a GPU: each rank gets
// rank 0's 128 bytes, the length of NCCL's unique id, and all ranks' names.
#include <cstdio>
#include <exception>

#include "examples/digits/pmix_session.h"

int main() try {
  digits::PmixSession session;
  std::string id(128, '\0');
  for (char& byte : id) byte = static_cast<char>(session.rank() + (&byte - id.data()));
  const std::string got = session.from_first("id", id);
  bool right = got.size() == id.size();
  for (std::size_t i = 0; right && i < got.size(); ++i) right = got[i] == static_cast<char>(i);
  const auto names = session.gather("name", "rank" + std::to_string(session.rank()));
  for (int rank = 0; rank < session.size(); ++rank)
    right = right && names[static_cast<std::size_t>(rank)] == "rank" + std::to_string(rank);
  std::printf("pmix rank %d of %d local %d of %d: %s\n", session.rank(), session.size(),
              session.local_rank(), session.local_size(), right ? "right" : "wrong");
  return right ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "pmix_id: %s\n", error.what());
  return 1;
}
