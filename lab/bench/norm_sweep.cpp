#include "lab/bench/norm_sweep.h"

#include "base/lists.h"
#include "base/nearest_name.h"
#include "base/quoting.h"
#include "core/allocator.h"
#include "core/copy.h"
#include "core/event.h"
#include "core/factory.h"
#include "core/tape.h"
#include "data/json.h"
#include "lab/bench/floor.h"
#include "lab/bench/spread.h"
#include "lab/report/section.h"
#include "lab/report/table.h"
#include "lab/statistics/statistics.h"
#include "nn/norm/factory.h"
#include "nn/norm/norm.h"
#include "session/interrupt.h"
#include "session/progress.h"
#include "train/recipe_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <new>
#include <tuple>

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
  return is_in(options.shapes, shape);
}

/// Returns those of `norms` that the sweep's norms name, whatever their options.
std::vector<std::string> chosen_of(const SweepOptions& options, const std::vector<std::string>& norms) {
  std::vector<std::string> chosen;
  for (const std::string& name : norms) {
    if (std::ranges::any_of(options.norms,
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
      const auto largest = std::ranges::max_element(
          cases_, [](const Case& a, const Case& b) { return a.sizes.numel() < b.sizes.numel(); });
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
        const Interval quartiles = quartiles_of(std::move(shares));
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
  check_names(kOp, name, "name", given, known);
}

constexpr double kLarge = 4e6;  // bytes of an input too large for the inner caches

std::string_view direction(bool backward) {
  return backward ? "backward" : "forward";
}

/// A summary of some rows' shares, and the place of the lowest.
struct Summary {
  std::vector<double> all;
  std::vector<double> large;
  double lowest = 0;
  Sizes lowest_at;

  void add(const SweepRow& row) {
    all.push_back(row.share());
    if (row.x_bytes < kLarge) {
      return;
    }
    if (large.empty() || row.share() < lowest) {
      lowest = row.share();
      lowest_at = row.sizes;
    }
    large.push_back(row.share());
  }
};

std::string percent(double share) {
  return fmt::format("{:.0f}", 100 * share);
}

bool has_images(const Sweep& sweep, const std::string& dtype) {
  return std::ranges::any_of(
      sweep.rows, [&](const SweepRow& row) { return row.shape == "images" && to_string(row.dtype) == dtype; });
}

/// Runs gnuplot on share.gp in a folder; false if it is not installed or cannot draw.
bool run_gnuplot(const std::filesystem::path& folder) {
  const std::string go = shell_quoted(folder.string());
  return std::system(fmt::format("command -v gnuplot > /dev/null && cd {} && gnuplot share.gp", go).c_str()) == 0;
}

}  // namespace

void check_options(const SweepOptions& options) {
  check_list("formats", options.formats, {"contiguous", "channels_last"});
  check_list("dtypes", options.dtypes, {"float32", "float64", "bfloat16", "float16"});
  if (!options.shapes.empty()) {
    check_list("shapes", options.shapes, {"images", "rows", "volume"});
  }
  check(!options.norms.empty(), kOp, "norms: expected at least one");
  for (const std::string& norm : options.norms) {
    nn::parse_norm(norm);
  }
  check_each_once(kOp, "norms", options.norms);
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

std::string to_csv(const Sweep& sweep) {
  Table table{.heads = {"norm", "shape", "sizes", "dtype", "format", "direction", "x_bytes", "ms", "gb_per_s",
                        "copy_gb_per_s", "share", "share_low", "share_high"}};
  const auto number = [](double value, int digits) { return fmt::format("{:.{}f}", value, digits); };
  for (const SweepRow& row : sweep.rows) {
    table.add(row.norm, row.shape, sizes_text(row.sizes), to_string(row.dtype), to_string(row.format),
              direction(row.backward), number(row.x_bytes, 0), number(1e3 * row.seconds, 6),
              number(1e-9 * row.rate(), 3), number(1e-9 * row.copy_rate, 3), number(row.share(), 4),
              number(row.share_low, 4), number(row.share_high, 4));
  }
  return lab::to_csv(table);
}

std::string to_json(const Sweep& sweep) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const SweepRow& row : sweep.rows) {
    rows.push_back({{"norm", row.norm},
                    {"shape", row.shape},
                    {"sizes", sizes_text(row.sizes)},
                    {"dtype", to_string(row.dtype)},
                    {"format", to_string(row.format)},
                    {"direction", direction(row.backward)},
                    {"x_bytes", row.x_bytes},
                    {"seconds", row.seconds},
                    {"bytes_per_second", row.rate()},
                    {"copy_bytes_per_second", row.copy_rate},
                    {"share_low", row.share_low},
                    {"share_high", row.share_high}});
  }
  const nlohmann::ordered_json json = {{"command", sweep.options.command},
                                       {"environment", nlohmann::ordered_json::parse(to_json(sweep.environment))},
                                       {"complete", sweep.complete},
                                       {"failed", sweep.failed},
                                       {"rows", rows}};
  return data::json_text(json, 1) + "\n";
}

std::string to_table(const Sweep& sweep) {
  using Key = std::tuple<DType, bool, std::string, MemoryFormat, std::string>;
  std::map<Key, Summary> summaries;
  std::vector<Key> order;
  for (const SweepRow& row : sweep.rows) {
    const Key key(row.dtype, row.backward, row.shape, row.format, row.norm);
    if (!summaries.contains(key)) {
      order.push_back(key);
    }
    summaries[key].add(row);
  }
  std::ranges::stable_sort(order, [](const Key& a, const Key& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  Table table{.heads = {"dtype", "pass", "shape", "format", "norm", "cases", "median %", "lowest to highest",
                        "of 4 MB and more", "median %", "lowest %", "at"},
              .words = 5};
  for (const Key& key : order) {
    const auto& [dtype, is_backward, shape, format, norm] = key;
    const Summary& s = summaries.at(key);
    const bool large = !s.large.empty();
    table.add(to_string(dtype), direction(is_backward), shape, to_string(format), norm, s.all.size(),
              percent(spread_of(s.all).median),
              fmt::format("{} to {}", percent(spread_of(s.all).min), percent(spread_of(s.all).max)), s.large.size(),
              large ? percent(spread_of(s.large).median) : "-", large ? percent(s.lowest) : "-",
              large ? sizes_text(s.lowest_at) : "-");
  }
  return to_text(table);
}

std::vector<std::string> warnings_of(const Sweep& sweep) {
  std::vector<std::string> warnings;
  const SweepRow* highest = nullptr;
  double cached = kLarge;  // bytes of the largest input above 100 %
  int64_t above = 0;
  int64_t apart = 0;
  for (const SweepRow& row : sweep.rows) {
    if (row.share() > 1) {
      ++above;
      cached = std::max(cached, static_cast<double>(row.x_bytes));
      highest = highest == nullptr || row.share() > highest->share() ? &row : highest;
    }
    apart += are_far_apart({.low = row.share_low, .high = row.share_high}, row.share()) ? 1 : 0;
  }
  const auto of_all = [&](int64_t count) {
    return fmt::format("{} of {} measurement{}", count, sweep.rows.size(), sweep.rows.size() == 1 ? "" : "s");
  };
  if (above > 0) {
    warnings.push_back(fmt::format(
        "{} above 100 % of a copy, up to {} % ({} {}, {} {}, {:.3g} MB): inputs that stay in the caches ask nothing of "
        "memory, and a copy of few bytes takes as long as its call. Compare norms on inputs of more than {:.3g} MB.",
        of_all(above), percent(highest->share()), highest->norm, direction(highest->backward),
        to_string(highest->dtype), sizes_text(highest->sizes), highest->x_bytes / 1e6, cached / 1e6));
  }
  if (apart > 0) {
    warnings.push_back(fmt::format(
        "{} with quartiles that lie more than half of the share apart (share_low, share_high in results.csv): the "
        "machine had other work; measure again.",
        of_all(apart)));
  }
  return warnings;
}

std::string to_gnuplot(const Sweep& sweep) {
  using Values = nlohmann::json;
  const SweepOptions& options = sweep.options;
  Values values = {{"formats", options.formats.size()}, {"dtypes", Values::array()}};
  for (const std::string& dtype : options.dtypes) {
    if (!has_images(sweep, dtype)) {
      continue;
    }
    Values plots = Values::array();
    for (const bool is_backward : {false, true}) {
      for (const std::string& format : options.formats) {
        Values norms = Values::array();
        for (const std::string& norm : options.norms) {
          norms.push_back({{"norm", norm}, {"color", norms.size() + 1}});
        }
        plots.push_back({{"format", format}, {"pass", direction(is_backward)}, {"norms", std::move(norms)}});
      }
    }
    values["dtypes"].push_back({{"dtype", dtype}, {"plots", std::move(plots)}});
  }
  return fill(gnuplot_template(), "script", values);
}

bool write_report(const Sweep& sweep, const train::HeldFolder& folder) {
  folder.write_text("results.csv", to_csv(sweep));
  folder.write_text("results.json", to_json(sweep));
  folder.write_text("table.txt", to_table(sweep));
  folder.write_text("share.gp", to_gnuplot(sweep));
  folder.check_in_place();
  return run_gnuplot(folder.path());
}

}  // namespace norma::lab::bench
