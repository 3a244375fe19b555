#pragma once

#include <cstdint>

namespace norma::emulated {

/// The number of times that the host would have waited for the device so far if it were a GPU: for copies to the host,
/// and for synchronize(). Counts all threads. Copies to a GPU go through buffers (core/cuda/staging.h).
int64_t host_waits();

}  // namespace norma::emulated
