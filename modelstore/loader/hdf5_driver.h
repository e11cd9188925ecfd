// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/format/hdf5_file.h"
#include "modelstore/loader/source_file.h"

namespace bellows {

/// Opens a file as HDF5 that is open already: HDF5 reads it with the file's read(), which must stay
/// valid until the identifier is closed, and gets to open nothing else, whatever the file names. To
/// be called with a Turn. Below 0: HDF5 notes why.
hdf5::Hid open_hdf5(const SourceFile& file);

}  // namespace bellows
