// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bellows::ps_test {

/// Has this process, whose sources are compiled with -finstrument-functions, do at its functions
/// what the environment says:
///   BELLOWS_POINT="enter 3 9 SYMBOL"  at the third call of a function, send itself signal 9;
///                                     "exit" is when it returns; 0: this thread waits until the
///                                     file below is gone, for a minute at most
///   BELLOWS_POINT_MARK=FILE           by the one process that makes this file, with its number in
///                                     it
///   BELLOWS_POINTS=FILE               notes there every function of the parameter server that is
///                                     called, for the first and the twentieth time
/// A program does so when it starts; a process that was forked may do it again.
void arm_point();

}  // namespace bellows::ps_test
