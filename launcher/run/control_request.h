// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "launcher/machine/input.h"
#include "launcher/run/control_server.h"

namespace bellows {

/// What a client of the control socket wants: StatusRequest or StopRequest. invalid: neither; the
/// text is for the client.
Result<Input> parse_request(const ControlServer::Request& request);

}  // namespace bellows
