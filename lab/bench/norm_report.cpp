#include "lab/bench/norm_sweep.h"

#include "data/json.h"
#include "lab/bench/spread.h"
#include "lab/report/table.h"
#include "lab/statistics/robust.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <tuple>

namespace norma::lab::bench {

namespace {

constexpr double kLarge = 4e6;  // bytes of an input too large for the inner caches

std::string_view direction(bool backward) {
  return backward ? "backward" : "forward";
}

/// "64x128x28x28"
std::string sizes_text(const Sizes& sizes) {
  return fmt::format("{}", fmt::join(sizes.begin(), sizes.end(), "x"));
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
  return std::any_of(sweep.rows.begin(), sweep.rows.end(),
                     [&](const SweepRow& row) { return row.shape == "images" && to_string(row.dtype) == dtype; });
}

/// Runs gnuplot on share.gp in a folder; false if it is not installed or cannot draw.
bool run_gnuplot(const std::filesystem::path& folder) {
  std::string go = "cd '";
  for (const char c : folder.string()) {
    go += c == '\'' ? std::string("''") : std::string(1, c);
  }
  go += "'";
  std::string program = "gnuplot";
  std::string execute = "-e";
  std::string script = "share.gp";
  char* arguments[] = {program.data(), execute.data(), go.data(), script.data(), nullptr};
  pid_t child = 0;
  if (posix_spawnp(&child, program.c_str(), nullptr, nullptr, arguments, environ) != 0) {
    return false;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      return false;
    }
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

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
  std::stable_sort(order.begin(), order.end(), [](const Key& a, const Key& b) {
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
  const SweepOptions& options = sweep.options;
  std::string script =
      "# Share of the copy rate against the size of the input, from results.csv: gnuplot share.gp\n"
      "set datafile separator ','\n"
      "set logscale x\n"
      "set xlabel 'MB of the input'\n"
      "set ylabel 'share of the copy rate, %'\n"
      "set yrange [0:150]\n"
      "set grid\n"
      "set key outside right\n"
      "pick(norm, dtype, format, pass) = strcol(1) eq norm && strcol(4) eq dtype && strcol(5) eq format && "
      "strcol(6) eq pass && strcol(2) eq 'images' ? column(7) / 1e6 : NaN\n";
  for (const std::string& dtype : options.dtypes) {
    if (!has_images(sweep, dtype)) {
      continue;
    }
    script +=
        fmt::format("\nset terminal pngcairo size 1500,1000\nset output 'share-{}.png'\nset multiplot layout 2,{}\n",
                    dtype, options.formats.size());
    for (const bool is_backward : {false, true}) {
      for (const std::string& format : options.formats) {
        script += fmt::format(
            "set title '{} {} {}' noenhanced\nplot [0.001:100] 70 with lines dashtype 2 linecolor 'gray' title '70 %'",
            dtype, format, direction(is_backward));
        for (size_t i = 0; i < options.norms.size(); ++i) {
          script += fmt::format(
              ", \\\n  'results.csv' using (pick('{}', '{}', '{}', '{}')):(100 * column(11)) with points "
              "pointtype 7 pointsize 0.6 linecolor {} title '{}' noenhanced",
              options.norms[i], dtype, format, direction(is_backward), i + 1, options.norms[i]);
        }
        script += '\n';
      }
    }
    script += "unset multiplot\n";
  }
  return script;
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
