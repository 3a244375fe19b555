#pragma once

#include <cstdint>

namespace norma::emulated {

/// The number of times that the host would have waited for the device so far if it were a GPU: for copies between the
/// two, and for synchronize(). Counts all threads.
int64_t host_waits();

}  // namespace norma::emulated
