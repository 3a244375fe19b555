#include "session/run_folder.h"

#include "core/factory.h"
#include "data/safetensors.h"
#include "files.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::train;
using test::error_of;
using test::read_file;
using test::TemporaryFolder;

namespace {

using Names = std::vector<std::string>;

/// In epochs of two steps.
Checkpoint at_step(int64_t step, std::optional<double> metric = {}, std::optional<BestEvaluation> best = {}) {
  return {.model = {{"w", full({4}, static_cast<double>(step))}},
          .optimizer = {},
          .step = step,
          .epoch = step / 2,
          .model_name = "resnet18",
          .metric = metric,
          .best = best};
}

void cut_short(const std::filesystem::path& file) {
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
}

}  // namespace

TEST_CASE("checkpoints: the best metric, its step and its epoch come back") {
  const TemporaryFolder folder;
  save_checkpoint(folder / "a", at_step(6, 0.1 + 0.2, BestEvaluation{.metric = 1.0 / 3, .step = 4, .epoch = 2}));
  const Checkpoint head = load_checkpoint_metadata(folder / "a");
  CHECK(head.model.empty());
  CHECK(head.step == 6);
  CHECK(head.metric == 0.1 + 0.2);
  REQUIRE(head.best.has_value());
  CHECK(head.best->metric == 1.0 / 3);
  CHECK(head.best->step == 4);
  CHECK(head.best->epoch == 2);
  save_checkpoint(folder / "b", at_step(6));
  CHECK_FALSE(load_checkpoint(folder / "b").metric.has_value());
  CHECK_FALSE(load_checkpoint(folder / "b").best.has_value());
}

TEST_CASE("checkpoints: the best ones of an epoch stay, of equal ones the earlier") {
  const TemporaryFolder folder;
  const KeepOptions keep{.best = true, .history = 2};
  BestEvaluation best;
  const std::vector<double> metrics = {0.5, 0.2, 0.5, 0.7, 0.1};
  for (size_t i = 0; i < metrics.size(); ++i) {
    const auto epoch = static_cast<int64_t>(i) + 1;
    if (metrics[i] > best.metric) {
      best = {.metric = metrics[i], .step = 2 * epoch, .epoch = epoch};
    }
    save_evaluated(folder.path(), keep, at_step(2 * epoch, metrics[i], best), epoch);
  }
  CHECK(folder.names() ==
        Names{"checkpoint-1.safetensors", "checkpoint-4.safetensors", "last.safetensors", "model_best.safetensors"});
  CHECK(load_checkpoint(folder / "last.safetensors").step == 10);
  CHECK(load_checkpoint(folder / "model_best.safetensors").step == 8);
  CHECK(load_checkpoint(folder / "model_best.safetensors").model[0].second.to_vector<float>()[0] == 8);
  // The same evaluation once more, as after a kill.
  save_evaluated(folder.path(), keep, at_step(10, 0.1, best), 5);
  CHECK(folder.names().size() == 4);
}

TEST_CASE("checkpoints: the best ones of a folder, each step once") {
  const TemporaryFolder folder;
  BestEvaluation best;
  for (const auto& [epoch, metric] : {std::pair<int64_t, double>{1, 0.5}, {2, 0.75}, {3, 0.5}, {4, 0.25}}) {
    if (metric > best.metric) {
      best = {.metric = metric, .step = 10 * epoch, .epoch = epoch};
    }
    save_evaluated(folder.path(), {.best = true, .history = 3}, at_step(10 * epoch, metric, best), epoch);
  }
  save_recovery(folder.path(), {}, at_step(45), 5);  // not evaluated
  const std::vector<CheckpointFile> two = best_checkpoints(folder.path(), 2);
  REQUIRE(two.size() == 2);
  CHECK(two[0].step == 20);
  CHECK(two[1].step == 10);
  CHECK(best_checkpoints(folder.path(), 4).back().path == folder / "last.safetensors");
  CHECK(error_of([&] { best_checkpoints(folder.path(), 5); }) ==
        "average: --best: expected at least 5 evaluated checkpoints in '" + folder.path().string() +
            "', got 4 (norma train --checkpoint-hist N keeps the best)");
}

TEST_CASE("checkpoints: the newest ones for recovery stay") {
  const TemporaryFolder folder;
  for (const int64_t step : {9, 10, 11, 100}) {
    save_recovery(folder.path(), {.history = 2}, at_step(step), step % 2);
  }
  CHECK(folder.names() == Names{"recovery-5-1.safetensors", "recovery-50-0.safetensors"});
  remove_old_recovery(folder.path(), {.history = 1});
  CHECK(folder.names() == Names{"recovery-50-0.safetensors"});
}

TEST_CASE("checkpoints: the newest of a folder, past half-written ones") {
  const TemporaryFolder folder;
  std::vector<std::string> warnings;
  CHECK(newest_checkpoint(folder.path(), warnings) == folder / "last.safetensors");  // says what is wrong
  CHECK(newest_checkpoint(folder / "nowhere", warnings) == folder / "nowhere/last.safetensors");
  save_checkpoint(folder / "last.safetensors", at_step(4));
  save_checkpoint(folder / "checkpoint-2.safetensors", at_step(4));
  save_checkpoint(folder / "checkpoint-x.safetensors", at_step(50));
  save_checkpoint(folder / "recovery-2.safetensors", at_step(50));
  save_checkpoint(folder / "other.safetensors", at_step(50));
  CHECK(newest_checkpoint(folder.path(), warnings) == folder / "last.safetensors");
  save_checkpoint(folder / "recovery-2-1.safetensors", at_step(5));
  CHECK(newest_checkpoint(folder.path(), warnings) == folder / "recovery-2-1.safetensors");
  CHECK(warnings.empty());
  cut_short(folder / "recovery-2-1.safetensors");
  CHECK(newest_checkpoint(folder.path(), warnings) == folder / "last.safetensors");
  REQUIRE(warnings.size() == 1);
  CHECK_MESSAGE(warnings[0].find("recovery-2-1.safetensors: tensor 'w': data_offsets: expected a range within the 15 "
                                 "bytes of data") != std::string::npos,
                warnings[0]);
}

TEST_CASE("checkpoints: a whole file that is not understood may be the newest: it is not passed over") {
  const TemporaryFolder folder;
  std::vector<std::string> warnings;
  save_checkpoint(folder / "checkpoint-2.safetensors", at_step(4));
  const std::string last = (folder / "last.safetensors").string();
  const auto error = [&] { return error_of([&] { newest_checkpoint(folder.path(), warnings); }); };
  const std::string hint = "; to go on from another one all the same, resume that by its name ('" +
                           (folder / "checkpoint-2.safetensors").string() + "' is at step 4)";
  data::save_safetensors(last, {{"w", full({4}, 1)}}, {{"norma_checkpoint", "2"}});
  CHECK(error() == "checkpoint: " + last + ": expected a checkpoint of version 1, got version 2" + hint);
  data::save_safetensors(last, {{"w", full({4}, 1)}}, {});
  CHECK(error() == "checkpoint: " + last + ": expected a checkpoint, got a file with weights only" + hint);
  std::filesystem::remove(last);
  std::filesystem::create_symlink("gone", last);  // cannot be opened, by root neither
  CHECK(error().ends_with(hint));
  CHECK(warnings.empty());
}

TEST_CASE("checkpoints: a run writes over no others") {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& resumed, int64_t step) {
    return error_of(
        [&] { check_checkpoints_are_kept(folder.path(), resumed.empty() ? "" : folder.path() / resumed, step); });
  };
  check_checkpoints_are_kept(folder.path(), "", 0);
  check_checkpoints_are_kept(folder.path(), folder / "mine.safetensors", 1);  // of a name that no run gives
  const std::string last = (folder / "last.safetensors").string();
  const std::string earlier = (folder / "checkpoint-2.safetensors").string();
  const std::string recovery = (folder / "recovery-3-1.safetensors").string();
  save_checkpoint(last, at_step(6));
  save_checkpoint(earlier, at_step(4));
  check_checkpoints_are_kept(folder.path(), last, 6);
  CHECK(error("checkpoint-2.safetensors", 4) ==
        "train: '" + earlier + "' is at step 4, and '" + last +
            "', at step 6, would be written over: resume that, or choose another output folder");
  const std::string other = "' is the checkpoint of another run: resume it, or choose another output folder";
  CHECK(error("", 0) == "train: '" + last + other);
  check_checkpoints_are_kept(folder / "new", earlier, 4);
  std::filesystem::remove(last);
  std::filesystem::remove(earlier);
  save_checkpoint(recovery, at_step(7));
  cut_short(recovery);
  CHECK(error("", 0) == "train: '" + recovery + other);  // perhaps somebody can still use it
  CHECK(error("../elsewhere.safetensors", 9) == "train: '" + recovery + other);
}
