// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "modelstore/wire/model_wire.h"

namespace bellows {

/// As what an error goes to programs and administrators.
inline modelwire::Failure failure_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid:
      return modelwire::Failure::invalid;
    case ErrorKind::not_found:
      return modelwire::Failure::not_found;
    case ErrorKind::busy:
      return modelwire::Failure::no_room;
    case ErrorKind::corrupt:
      return modelwire::Failure::corrupt;
    case ErrorKind::denied:
    case ErrorKind::unavailable:
    case ErrorKind::io:
    case ErrorKind::internal:
      break;
  }
  return modelwire::Failure::unavailable;
}

}  // namespace bellows
