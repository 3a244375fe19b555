#include "cli/compare_folder.h"

#include "core/error.h"
#include "core/input_file.h"
#include "lab/compare/cell_run.h"
#include "lab/compare/source.h"
#include "lab/report/joined.h"
#include "session/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace norma::cli {

lab::Comparison comparison_in(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "results.json";
  constexpr uint64_t kMaxBytes = uint64_t{256} << 20;  // ten million steps
  lab::Comparison comparison =
      lab::comparison_from_json(read_text_file("resume", file, kMaxBytes), "resume: " + file.string());
  check(comparison.parts.size() < 2, "resume", "'{}' was merged from several parts: go on in the folder of each part",
        folder.string());
  const std::string& weights = comparison.recipe.initial_checkpoint;
  const bool done = std::ranges::all_of(comparison.cells, [](const lab::Cell& cell) {  // failed ones are tried again
    return cell.state == lab::CellState::finished || cell.state == lab::CellState::elsewhere;
  });
  check(done || weights.empty() || lab::initial_sha256(weights) == comparison.initial_sha256, "resume",
        "initial-checkpoint: '{}' has changed since the comparison began, so that runs would start from other weights",
        weights);
  return comparison;
}

void check_free(const std::filesystem::path& folder, const lab::Comparison& comparison) {
  train::check_free("compare", folder, {"results.json", "results.csv", "report.html", "report.md"});
  for (size_t i = 0; i < comparison.cells.size(); ++i) {
    train::check_free("compare", folder, {lab::cell_checkpoint("", i).c_str()});
  }
}

std::optional<lab::Comparison> begun_before(const lab::Comparison& planned, const lab::PartOf& part, double budget,
                                            const std::filesystem::path& folder,
                                            std::optional<train::FolderLock>& lock) {
  if (!train::path_exists("compare", folder / "results.json")) {
    return std::nullopt;
  }
  lock.emplace("compare", folder);  // taken before reading, since another process could add results
  std::string difference;
  try {
    lab::Comparison there = comparison_in(folder);
    lab::Comparison wanted = planned;
    wanted.part_count = part.count;
    if (budget > 0) {
      wanted.recipe.images = there.recipe.images;
      wanted.timing_rounds = there.timing_rounds;
    }
    difference = lab::plan_difference(there, wanted);
    if (difference.empty() && there.budget != budget) {
      difference = fmt::format("budget {}s → {}s", there.budget, budget);
    }
    if (difference.empty() && part.count > 0 && there.parts.front().number != part.number) {
      difference = fmt::format("part {} → {}", there.parts.front().number, part.number);
    }
    if (difference.empty()) {
      return there;
    }
  } catch (const Error& error) {
    difference = error.what();
  }
  fail("compare", "'{}' holds another comparison ({}): choose another output folder", folder.string(), difference);
}

}  // namespace norma::cli
