#pragma once

#include "base/range.h"
#include "data/loader.h"

#include <cstdint>
#include <limits>

/// The ranges of the numbers of recipes, trainings and benchmarks, which the library and the command line check. Upper
/// ends are far beyond what makes sense, but so low that no product of a few of them overflows.
namespace norma::train::ranges {

inline constexpr Range<int64_t> kImageSize{1, 8192};
inline constexpr Range<int64_t> kBatchSize{1, data::kMaxBatchSize};
inline constexpr Range<int64_t> kEpochs{1, 1'000'000};
inline constexpr Range<double> kLr{.low = 0, .high = 1000, .with_low = false};
inline constexpr Range<uint64_t> kSeed{0, std::numeric_limits<uint64_t>::max()};

inline constexpr Range<int64_t> kClasses{1, 1'000'000};
inline constexpr Range<int64_t> kChannels{1, 65'536};
inline constexpr Range<int64_t> kThreads{0, 1024};  ///< 0: as many as there are cores
inline constexpr Range<int64_t> kWorkers{0, data::kMaxWorkers};
inline constexpr Range<int64_t> kCheckpointHist{1, 1'000'000};
inline constexpr Range<int64_t> kLogInterval{1, 1'000'000'000};
/// Steps of a benchmark, batches of a recalibration.
inline constexpr Range<int64_t> kSteps{1, 1'000'000};
inline constexpr Range<int64_t> kStepsOrNone{0, 1'000'000};
/// With kChannels channels and kImageSize² pixels of float32, so many images stay below 2^63 bytes.
inline constexpr Range<int64_t> kSweepBatch{1, 65'536};
inline constexpr Range<int64_t> kProcesses{1, 65'536};
inline constexpr Range<int64_t> kTimeout{1, 1'000'000};  ///< seconds
inline constexpr Range<int64_t> kMebibytes{1, 1'048'576};

}  // namespace norma::train::ranges
