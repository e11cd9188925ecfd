// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/wire/wire.h"

namespace bellows::client {

/// Slurm announces a preemption and the end of the time to every step with SIGTERM, and `scancel
/// --signal` reaches every step too. The launcher answers with a stop at a checkpoint, before which
/// no rank may die. So from here on a SIGTERM or SIGUSR1 that would end this process is held back
/// for as long as the agent, which gets it too, says so in `page` and lives, and a stop follows
/// soon; a signal to the ranks alone, as when their step is taken down, ends it a moment later. A
/// handler of the program's own stays as it is. The agent hears too when this process comes to its
/// end with status 0.
void survive_announcements(const wire::Control* page, int socket);

/// Before the socket is closed, as its number may soon be another's: the agent has gone.
void forget_agent(const wire::Control* page);

/// Before `page` goes: the signals do what they did before.
void obey_announcements(const wire::Control* page);

}  // namespace bellows::client
