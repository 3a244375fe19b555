#include "lab/bench/norm_sweep.h"

#include "base/nearest_name.h"
#include "core/allocator.h"
#include "core/copy.h"
#include "core/event.h"
#include "core/factory.h"
#include "core/tape.h"
#include "lab/bench/floor.h"
#include "lab/bench/spread.h"
#include "lab/statistics/robust.h"
#include "nn/norm/factory.h"
#include "nn/norm/norm.h"
#include "session/interrupt.h"
#include "session/progress.h"
#include "train/recipe_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <set>
#include <tuple>
#include <utility>

namespace norma::lab::bench {

namespace {

constexpr auto kOp = "bench-norms";
constexpr int64_t kRows = 2048;
const Sizes kVolume = {64, 16, 224, 224};

/// A shape with the norms that run on it.
struct Case {
  std::string shape;
  Sizes sizes;
  std::vector<std::string> norms;
};

/// A case runs until `seconds` are spent, but at least `least` and at most `most` times.
struct Patience {
  int least;
  int most;
  double seconds;
};

std::vector<int64_t> or_default(const std::vector<int64_t>& given, const std::vector<int64_t>& all,
                                const std::vector<int64_t>& quick, bool is_quick) {
  return !given.empty() ? given : is_quick ? quick : all;
}

int64_t max_bytes(const SweepOptions& options) {
  return options.max_bytes > 0 ? options.max_bytes : options.quick ? int64_t{16} << 20 : int64_t{64} << 20;
}

bool wants(const SweepOptions& options, std::string_view shape) {
  if (options.shapes.empty()) {
    const bool chosen = options.norms != SweepOptions().norms || !options.batch_sizes.empty() ||
                        !options.channels.empty() || !options.image_sizes.empty();
    return shape == "images" || !chosen;
  }
  return std::find(options.shapes.begin(), options.shapes.end(), shape) != options.shapes.end();
}

/// Returns those of `norms` that the sweep's norms name, whatever their options.
std::vector<std::string> chosen_of(const SweepOptions& options, const std::vector<std::string>& norms) {
  std::vector<std::string> chosen;
  for (const std::string& name : norms) {
    if (std::any_of(options.norms.begin(), options.norms.end(),
                    [&](const std::string& norm) { return nn::parse_norm(norm).name == name; })) {
      chosen.push_back(name);
    }
  }
  return chosen;
}

/// The cases for every dtype; an image counts as too large if it is so in float32.
std::vector<Case> all_cases(const SweepOptions& options) {
  std::vector<Case> cases;
  if (wants(options, "images")) {
    for (const int64_t n : or_default(options.batch_sizes, {8, 16, 32, 64, 128, 256}, {8, 32}, options.quick)) {
      for (const int64_t c :
           or_default(options.channels,
                      {24, 40, 48, 56, 64, 72, 96, 128, 152, 184, 192, 200, 256, 368, 384, 512, 768, 1024, 2048},
                      {64, 96, 256, 1024}, options.quick)) {
        for (const int64_t side : or_default(options.image_sizes, {7, 14, 28, 56, 112}, {7, 28, 56}, options.quick)) {
          if (n * c * side * side * int64_t{sizeof(float)} <= max_bytes(options)) {
            cases.push_back({"images", {n, c, side, side}, options.norms});
          }
        }
      }
    }
  }
  if (wants(options, "rows")) {
    const std::vector<int64_t> quick = {128, 1024};
    const std::vector<int64_t> all = {128, 256, 384, 512, 640, 768, 896, 1024};
    for (const int64_t features : options.quick ? quick : all) {
      cases.push_back({"rows", {kRows, features}, chosen_of(options, {"layer2d", "rms2d"})});
    }
  }
  if (wants(options, "volume") && !options.quick) {
    cases.push_back({"volume", kVolume, chosen_of(options, {"layer2d"})});
  }
  std::erase_if(cases, [](const Case& one) { return one.norms.empty(); });
  return cases;
}

/// A million random numbers, repeated.
Tensor random_numbers(int64_t count) {
  const int64_t block = std::min<int64_t>(count, 1 << 20);
  const Tensor some = randn({block});
  const Tensor all = empty({count});
  for (int64_t first = 0; first < count; first += block) {
    const int64_t length = std::min(block, count - first);
    copy_into(alias(some, {length}, {1}, 0), alias(all, {length}, {1}, first));
  }
  return all;
}

/// The layer; null if groups do not divide the channels.
std::shared_ptr<nn::Module> layer_for(const Case& c, const std::string& norm) {
  if (c.shape == "images") {
    const nn::NormChoice choice = nn::parse_norm(norm);
    const int64_t channels = c.sizes[1];
    const bool fits = (!choice.groups || channels % *choice.groups == 0) &&
                      (!choice.channels_per_group || channels % *choice.channels_per_group == 0);
    return fits ? nn::make_norm(choice, channels) : nullptr;
  }
  Sizes last = c.sizes;
  last.erase(0);
  if (norm == "rms2d") {
    return std::make_shared<nn::RMSNorm>(last);
  }
  return std::make_shared<nn::LayerNorm>(last);
}

/// Seconds of a copy, a forward and a backward pass by turns, one of each per round.
struct Timing {
  std::vector<double> copy;
  std::vector<double> forward;
  std::vector<double> backward;
};

Timing time_norm(nn::Module& layer, const Tensor& x, const Tensor& dy, Copy& copy, const DeviceCache& cache,
                 const Patience& patience) {
  Timing timing;
  Tensor input = x.detach();
  input.set_requires_grad();
  Event forward_start;
  Event forward_end;
  Event backward_start;
  Event backward_end;
  const auto step = [&](bool counts) {
    cache.clear();
    forward_start.record();
    const Tensor y = layer(input);
    forward_end.record();
    cache.clear();
    backward_start.record();
    backward(y, dy);
    backward_end.record();
    if (counts) {
      timing.forward.push_back(forward_end.seconds_since(forward_start));
      timing.backward.push_back(backward_end.seconds_since(backward_start));
    }
    input.set_grad({});
    layer.zero_grad();
  };
  double spent = 0;
  for (int round = 0; round < patience.most && (round < patience.least || spent < patience.seconds); ++round) {
    // The first run of each pair brings its own data back into the caches.
    const Clock::time_point start = Clock::now();
    copy.run();
    cache.clear();
    timing.copy.push_back(copy.run());
    step(/* counts= */ false);
    step(/* counts= */ true);
    spent += seconds_between(start, Clock::now());
  }
  return timing;
}

class Runner {
 public:
  explicit Runner(const SweepOptions& options)
      : cases_(all_cases(options)), patience_(options.quick ? Patience{3, 20, 0.01} : Patience{5, 100, 0.03}) {
    sweep_.options = options;
    while (!cases_.empty()) {
      const auto largest = std::max_element(
          cases_.begin(), cases_.end(), [](const Case& a, const Case& b) { return a.sizes.numel() < b.sizes.numel(); });
      const bool fits = unless_memory_ends(*largest, [&] {
        numbers_ = random_numbers(largest->sizes.numel());
        gradients_ = random_numbers(largest->sizes.numel());
      });
      if (fits) {
        break;
      }
      numbers_ = {};
      cases_.erase(largest);
    }
  }

  Sweep run() {
    sweep_.environment = train::environment();
    const Clock::time_point start = Clock::now();
    if (sweep_.options.log) {
      sweep_.options.log(fmt::format("{} shapes in {}: about {}", cases_.size(), fmt::join(sweep_.options.dtypes, ", "),
                                     train::format_duration(expected_seconds())));
    }
    sweep_.complete = run_all();
    check(!sweep_.rows.empty() || sweep_.failed.empty(), kOp, "no shape fits into memory: {}",
          sweep_.failed.empty() ? "" : sweep_.failed.back());
    sweep_.seconds = seconds_between(start, Clock::now());
    return std::move(sweep_);
  }

 private:
  /// Calls f(). If it runs out of memory, notes the case as failed and returns false.
  template <class F>
  bool unless_memory_ends(const Case& c, F&& f) {
    std::string reason;
    try {
      f();
      return true;
    } catch (const OutOfMemory& error) {
      reason = error.what();
    } catch (const std::bad_alloc&) {
      reason = "the system has no memory left";
    }
    sweep_.failed.push_back(fmt::format("{}: {}", to_string(c.sizes), reason));
    if (sweep_.options.log) {
      sweep_.options.log("failed: " + sweep_.failed.back());
    }
    allocator(default_device()).empty_cache();
    return false;
  }

  /// By the rate of a copy.
  double expected_seconds() const {
    Copy copy(int64_t{16} << 20, default_device());
    copy.run();
    const double rate = copy.bytes() / copy.run();
    double seconds = 0;
    for (const std::string& dtype : sweep_.options.dtypes) {
      for (const Case& c : cases_) {
        // Two copies and two steps, which read and write five tensors each, at two thirds of the rate.
        const double bytes =
            static_cast<double>(c.sizes.numel()) * static_cast<double>(size_of(dtype_from_string(dtype)));
        const double round = (2 * 2 + 2 * 5 * 1.5) * bytes / rate;
        const size_t formats = c.shape == "images" ? sweep_.options.formats.size() : 1;
        seconds += static_cast<double>(formats * c.norms.size()) * std::max(patience_.seconds, patience_.least * round);
      }
    }
    return seconds;
  }

  bool run_all() {
    for (const std::string& dtype : sweep_.options.dtypes) {
      for (size_t i = 0; i < cases_.size(); ++i) {
        const bool images = cases_[i].shape == "images";
        for (const std::string& format : sweep_.options.formats) {
          if (!images && format != sweep_.options.formats.front()) {
            continue;  // other shapes have one order only
          }
          const bool channels_last = images && format == "channels_last";
          bool goes_on = true;
          unless_memory_ends(cases_[i], [&] {
            goes_on = run_case(cases_[i], dtype_from_string(dtype),
                               channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous);
          });
          if (!goes_on) {
            return false;
          }
        }
        if (sweep_.options.log) {
          sweep_.options.log(fmt::format("{} {} ({} of {})", dtype, to_string(cases_[i].sizes), i + 1, cases_.size()));
        }
      }
    }
    return true;
  }

  bool run_case(const Case& c, DType dtype, MemoryFormat format) {
    const auto tensor = [&](const Tensor& source) {
      return copy_of(alias(source, c.sizes, strides_for(c.sizes, format), 0), MemoryFormat::preserve, dtype);
    };
    const Tensor x = tensor(numbers_);
    const Tensor dy = tensor(gradients_);
    Copy copy(static_cast<int64_t>(bytes_of(x)), default_device());
    for (const std::string& norm : c.norms) {
      if (train::interrupted()) {
        return false;
      }
      const std::shared_ptr<nn::Module> layer = layer_for(c, norm);
      if (layer == nullptr) {
        continue;
      }
      if (format == MemoryFormat::channels_last) {
        layer->to(format);
      }
      const Timing timing = time_norm(*layer, x, dy, copy, cache_, patience_);
      for (const bool is_backward : {false, true}) {
        const std::vector<double>& seconds = is_backward ? timing.backward : timing.forward;
        SweepRow row{.norm = norm,
                     .shape = c.shape,
                     .sizes = c.sizes,
                     .dtype = dtype,
                     .format = format,
                     .backward = is_backward,
                     .x_bytes = bytes_of(x),
                     .seconds = spread_of(seconds).median,
                     .copy_rate = copy.bytes() / spread_of(timing.copy).median};
        std::vector<double> shares;
        for (size_t round = 0; round < seconds.size(); ++round) {
          shares.push_back(row.bytes() / seconds[round] / (copy.bytes() / timing.copy[round]));
        }
        const Quartiles quartiles = quartiles_of(std::move(shares));
        row.share_low = quartiles.low;
        row.share_high = quartiles.high;
        sweep_.rows.push_back(std::move(row));
      }
    }
    return true;
  }

  DeviceCache cache_;
  std::vector<Case> cases_;
  Patience patience_;
  Tensor numbers_;    // inputs are cut from these
  Tensor gradients_;  // gradients are cut from these
  Sweep sweep_;
};

void check_list(std::string_view name, const std::vector<std::string>& given, const std::vector<std::string>& known) {
  check(!given.empty(), kOp, "{}: expected at least one", name);
  std::set<std::string> seen;
  for (const std::string& item : given) {
    check(std::find(known.begin(), known.end(), item) != known.end(), kOp, "{}: {}", name,
          unknown_name("name", item, known));
    check(seen.insert(item).second, kOp, "{}: expected each once, got {} twice", name, item);
  }
}

}  // namespace

void check_options(const SweepOptions& options) {
  check_list("formats", options.formats, {"contiguous", "channels_last"});
  check_list("dtypes", options.dtypes, {"float32", "float64", "bfloat16", "float16"});
  if (!options.shapes.empty()) {
    check_list("shapes", options.shapes, {"images", "rows", "volume"});
  }
  check(!options.norms.empty(), kOp, "norms: expected at least one");
  std::set<std::string> seen;
  for (const std::string& norm : options.norms) {
    nn::parse_norm(norm);
    check(seen.insert(norm).second, kOp, "norms: expected each once, got {} twice", norm);
  }
  const auto check_all = [](std::string_view name, const std::vector<int64_t>& values, const Range<int64_t>& range) {
    for (const int64_t value : values) {
      check_range(kOp, name, value, range);
    }
  };
  check_all("batch-sizes", options.batch_sizes, train::ranges::kSweepBatch);
  check_all("channels", options.channels, train::ranges::kChannels);
  check_all("img-sizes", options.image_sizes, train::ranges::kImageSize);
  check(wants(options, "images") || !chosen_of(options, {"layer2d", "rms2d"}).empty(), kOp,
        "shapes: expected images for these norms: rows and volume are for layer2d and rms2d");
  check(options.max_bytes >= 0, kOp, "max-mb: expected at least 0, got {}", options.max_bytes >> 20);
  check(!all_cases(options).empty(), kOp,
        "shapes, max-mb: expected at least one shape of these norms in {:.3g} MiB, got none",
        static_cast<double>(max_bytes(options)) / (1 << 20));
}

Sweep run_sweep(const SweepOptions& options) {
  check_options(options);
  return Runner(options).run();
}

}  // namespace norma::lab::bench
