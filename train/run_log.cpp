#include "train/run_log.h"

#include "core/error.h"
#include "data/json.h"
#include "train/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

constexpr const char* kMetricsName = "metrics.csv";
constexpr const char* kSummaryName = "summary.csv";
constexpr const char* kJsonName = "log.jsonl";
constexpr std::string_view kEpochType = "epoch";
constexpr std::string_view kSummaryHeader = "epoch,train_loss,eval_loss,eval_top1,eval_top5,lr";

/// Another program's file of that name stays: timm's have the same first line, so that a metrics.csv beside it tells.
void check_own(const std::filesystem::path& folder, const char* name) {
  check(path_exists("train", folder / kMetricsName) || !path_exists("train", folder / name), "train",
        "'{}' is not the log of a run of Norma: remove it, or choose another output folder", (folder / name).string());
}

/// What of an earlier run's logs counts.
struct Kept {
  std::filesystem::path folder;
  int64_t last_step = 0;
  int64_t epochs = 0;
  int64_t last_step_of_epochs = 0;  ///< at most, where the last epoch may be cut short
};

/// metrics.csv gets its row last. Where that of the last step is missing, the others' are written again.
Kept kept_of(const RunLogOptions& options, bool has_last_step) {
  if (options.last_step == 0) {
    return {};
  }
  Kept kept{.folder = options.earlier, .last_step = options.last_step - (has_last_step ? 0 : 1)};
  kept.epochs = kept.last_step / options.steps_per_epoch;
  if (options.ended && has_last_step && kept.last_step % options.steps_per_epoch != 0) {
    ++kept.epochs;
  }
  kept.last_step_of_epochs = kept.epochs * options.steps_per_epoch;
  return kept;
}

std::vector<std::string> summary_rows(const Kept& kept) {
  std::vector<std::string> rows{std::string(kSummaryHeader)};
  const std::vector<std::string> lines =
      kept.epochs > 0 ? whole_lines("train", kept.folder / kSummaryName) : std::vector<std::string>();
  const auto commas = std::count(kSummaryHeader.begin(), kSummaryHeader.end(), ',');
  for (size_t i = 1; i < lines.size(); ++i) {
    const bool whole = std::count(lines[i].begin(), lines[i].end(), ',') == commas;
    if (!whole || std::strtoll(lines[i].c_str(), nullptr, 10) >= kept.epochs) {
      break;
    }
    rows.push_back(lines[i]);
  }
  return rows;
}

std::vector<std::string> json_lines(const Kept& kept) {
  std::vector<std::string> lines;
  if (kept.last_step == 0) {
    return lines;
  }
  for (const std::string& line : whole_lines("train", kept.folder / kJsonName)) {
    try {
      const nlohmann::json object = data::parse_json("train", kJsonName, line);
      const auto step = data::json_field<int64_t>("train", object, "step");
      if (step > kept.last_step) {
        break;
      }
      // A run that ended inside an epoch, and goes on as a longer one, writes that epoch again.
      if (data::json_field<std::string>("train", object, "type") == kEpochType && step > kept.last_step_of_epochs) {
        continue;
      }
    } catch (const Error&) {
      break;
    }
    lines.push_back(line);
  }
  return lines;
}

std::string csv(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

std::string to_row(const EpochSummary& epoch) {
  return fmt::format("{},{},{},{},{},{}", epoch.epoch, std::isnan(epoch.train_loss) ? "" : csv(epoch.train_loss),
                     csv(epoch.eval_loss), csv(epoch.eval_top1), csv(epoch.eval_top5), epoch.lr);
}

using Fields = std::vector<std::pair<std::string_view, std::optional<double>>>;

/// JSON has no NaN and no infinities. Fields without a value are left out.
std::string to_object(std::string_view type, int64_t step, const Fields& fields) {
  std::string text = fmt::format(R"({{"type": "{}", "step": {})", type, step);
  for (const auto& [name, value] : fields) {
    if (value) {
      text += fmt::format(R"(, "{}": {})", name, std::isfinite(*value) ? fmt::format("{}", *value) : "null");
    }
  }
  return text + "}";
}

std::string to_object(const Metrics& metrics) {
  return to_object(
      "metrics", metrics.step,
      {{"epoch", metrics.epoch},
       {"images", static_cast<double>(metrics.images)},
       {"lr", metrics.lr},
       {"loss", metrics.loss},
       {"images_per_second", metrics.images_per_second},
       {"test_loss", metrics.test_loss},
       {"test_accuracy", metrics.test_accuracy},
       {"ema_test_loss", metrics.ema_test_loss},
       {"ema_test_accuracy", metrics.ema_test_accuracy},
       {"left_out", metrics.left_out ? std::optional(static_cast<double>(*metrics.left_out)) : std::nullopt}});
}

std::string to_object(const EpochSummary& epoch) {
  return to_object(kEpochType, epoch.step,
                   {{"epoch", static_cast<double>(epoch.epoch + 1)},  // epochs done, as in the other rows
                    {"train_loss", epoch.train_loss},
                    {"eval_loss", epoch.eval_loss},
                    {"eval_top1", epoch.eval_top1},
                    {"eval_top5", epoch.eval_top5},
                    {"lr", epoch.lr}});
}

}  // namespace

bool has_finished_epoch(const std::filesystem::path& folder) {
  const std::vector<std::string> summary = whole_lines("train", folder / kSummaryName);
  return (summary.size() > 1 && summary.front() == kSummaryHeader) || has_finished_epoch_row(folder / kMetricsName);
}

RunLog::RunLog(const RunLogOptions& options) {
  const bool goes_on = options.last_step > 0;
  const bool json = options.json || (goes_on && path_exists("train", options.earlier / kJsonName));
  check_own(options.folder, kSummaryName);
  if (json || path_exists("train", options.folder / kJsonName)) {
    check_own(options.folder, kJsonName);
  }
  std::error_code none;
  const std::filesystem::path from = options.earlier.empty() ? "." : options.earlier;
  if (!goes_on || !std::filesystem::equivalent(from, options.folder, none)) {
    check(!has_finished_epoch(options.folder), "train",
          "'{}' holds the logs of another run, which has finished an epoch: choose another output folder",
          options.folder.string());
  }
  EarlierRows earlier;
  if (goes_on) {
    earlier = {.file = options.earlier / kMetricsName, .last_step = options.last_step, .evaluated = options.evaluated};
  }
  metrics_.emplace(options.folder / kMetricsName, earlier, options.columns);
  const Kept kept = kept_of(options, metrics_->has_last_step());
  summary_.emplace("train", options.folder / kSummaryName, summary_rows(kept));
  if (json) {
    json_.emplace("train", options.folder / kJsonName, json_lines(kept));
  } else {  // of a run that ended before its first checkpoint; resuming would go on with it
    std::filesystem::remove(options.folder / kJsonName, none);
  }
}

void RunLog::write(const Metrics& metrics, const std::optional<EpochSummary>& epoch,
                   const std::function<void()>& before_file) {
  const auto enter = [&] {
    if (before_file) {
      before_file();
    }
  };
  if (epoch) {
    enter();
    summary_->add(to_row(*epoch));
  }
  if (json_) {
    enter();
    json_->add(to_object(metrics));
    if (epoch) {
      enter();
      json_->add(to_object(*epoch));
    }
  }
  enter();
  metrics_->write(metrics);
}

}  // namespace norma::train
