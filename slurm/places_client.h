// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "slurm/client.h"
#include "slurm/places.h"

namespace bellows {

/// The places of slurmctld through libslurm, which `client` has set up and which must outlive this.
class PlacesClient final : public SlurmPlaces {
 public:
  explicit PlacesClient(const SlurmClient&) {}

  Result<std::vector<SlurmNode>> nodes() override;
  Result<std::vector<std::string>> reservations() override;
  Status reserve(const SlurmReservation& reservation) override;
  Status extend(const std::string& name, std::time_t end) override;
  Status unreserve(const std::string& name) override;
};

}  // namespace bellows
