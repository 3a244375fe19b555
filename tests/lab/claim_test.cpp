#include "lab/compare/comparison.h"
#include "lab/report/decisions.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>

namespace norma::lab {
namespace {

using State = Verdict::State;

/// The accuracy of a run, in percent, without the part that all runs of a seed share.
using Accuracy = std::function<double(const Settings& settings)>;

/// The grid of a study with four seeds, all of whose runs are finished. Runs of one seed share a part of their
/// accuracy, and each has a part of its own, of `scatter` points at most.
Comparison results_of(const std::string& study, const Accuracy& accuracy, double scatter) {
  ComparisonOptions options{.recipe = {.dataset = "shapes", .image_size = 32}, .seeds = {0, 1, 2, 3}};
  apply_study(study_of(study), options);
  Comparison comparison = plan_comparison(options);
  uint64_t number = 1;
  for (Cell& cell : comparison.cells) {
    number = number * 6364136223846793005U + 1442695040888963407U;
    const double own = static_cast<double>(number >> 40U) / static_cast<double>(1U << 24U) - 0.5;
    cell.state = CellState::finished;
    cell.accuracy = (accuracy(cell) + static_cast<double>(cell.seed) + 2 * scatter * own) / 100;
  }
  return comparison_from_json(to_json(comparison));
}

Verdict verdict(const std::string& study, const Accuracy& accuracy, double scatter = 0.05) {
  const Comparison comparison = results_of(study, accuracy, scatter);
  REQUIRE(comparison.study == study);
  const std::optional<Claim> claim = claim_of(comparison);
  REQUIRE(claim);
  return verdict_on(*claim, comparison);
}

bool is(const Settings& settings, const std::string& norm) {
  return settings.norm == norm;
}

}  // namespace

TEST_CASE("claims: each has a study, whose grid has the norms and values of its expectations") {
  CHECK(std::ranges::count_if(studies(), [](const Study& study) { return study.claim.has_value(); }) == 10);
  for (const Study& study : studies()) {
    if (!study.claim) {
      continue;
    }
    CAPTURE(study.name);
    const Verdict equal = verdict(
        study.name, [](const Settings&) { return 80.0; }, 0.01);
    CHECK(equal.text.find("lacks") == std::string::npos);
    CHECK((equal.text.find("beside") != std::string::npos) == (study.name != "batch-vit"));
    CHECK((study.claim->source.starts_with("arXiv ") || study.name == "ema" || study.name == "finetune" ||
           study.name == "batch-vit"));
  }
  CHECK_FALSE(study_of("batch-size").claim);
  CHECK(claim_text(Comparison{}).empty());
}

TEST_CASE("claims: dyt and the size of the data, both ways and not decided") {
  const auto with = [](double little, double much) {
    return [=](const Settings& s) {
      return 80 + (is(s, "dyt") ? (s.option("train-images") == "16000" ? much : little) : 0);
    };
  };
  CHECK(verdict("data-size", with(2, -1)).state == State::supported);
  CHECK(verdict("data-size", with(2, 1)).state == State::supported);
  CHECK(verdict("data-size", with(-1, 2)).state == State::contradicted);
  CHECK(verdict("data-size", with(1, 1), 0.02).state == State::contradicted);  // equal within 0.3 points
  const Verdict unclear = verdict("data-size", with(0.5, 0), 3);
  CHECK(unclear.state == State::undecided);
  CHECK(unclear.text.starts_with(
      "not decided. convnext_atto, dyt beside layer2d, with train-images 1000 more than with 16000: "));
  CHECK(unclear.text.find("; vit_tiny, dyt beside layer2d, with train-images 1000") != std::string::npos);
  CHECK(unclear.text.find("more seeds") != std::string::npos);
}

TEST_CASE("claims: the values of an axis are the smallest and the largest that were tried") {
  Comparison comparison = results_of(
      "data-size", [](const Settings& s) { return 80 + (is(s, "dyt") && s.option("train-images") == "1000" ? 2 : 0); },
      0.05);
  std::erase_if(comparison.cells, [](const Cell& cell) { return cell.option("train-images") == "16000"; });
  std::ranges::reverse(comparison.cells);
  const Verdict fewer = verdict_on(*study_of("data-size").claim, comparison);
  CHECK(fewer.state == State::supported);
  CHECK(fewer.text.find("with train-images 1000 more than with 4000: ") != std::string::npos);
  std::erase_if(comparison.cells, [](const Cell& cell) { return cell.option("train-images") == "4000"; });
  CHECK(verdict_on(*study_of("data-size").claim, comparison).text ==
        "not decided. dyt beside layer2d: the comparison lacks that norm or its values");
  Comparison all = results_of(
      "data-size", [](const Settings& s) { return 80 + (is(s, "dyt") && s.option("train-images") == "1000" ? 2 : 0); },
      0.05);
  for (Cell& cell : all.cells) {
    if (cell.option("train-images") == "16000") {
      cell.options["train-images"] = "0";  // all of them
    }
  }
  CHECK(verdict_on(*study_of("data-size").claim, all).state == State::supported);
}

TEST_CASE("claims: derf under Muon, both expectations of which must hold") {
  const auto with = [](double derf_under_muon, double dyt_under_muon) {
    return [=](const Settings& s) {
      const bool muon = s.option("opt") == "muon";
      return 80 + (is(s, "derf") && muon ? derf_under_muon : 0) + (is(s, "dyt") && muon ? dyt_under_muon : 0);
    };
  };
  CHECK(verdict("optimizer", with(-3, 0), 0.02).state == State::supported);
  CHECK(verdict("optimizer", with(-3, 3), 0.02).state == State::supported);  // dyt loses no more
  CHECK(verdict("optimizer", with(-3, -3), 0.02).state == State::contradicted);
  CHECK(verdict("optimizer", with(3, 0), 0.02).state == State::contradicted);
  CHECK(verdict("optimizer", with(-3, 0), 4).state == State::undecided);
  const auto falls = [](const Settings& s) { return 80 - (is(s, "derf") && s.option("opt") == "muon" ? 3 : 0); };
  Comparison without = results_of("optimizer", falls, 0.02);
  std::erase_if(without.cells, [](const Cell& cell) { return cell.norm == "dyt"; });
  CHECK(verdict_on(*study_of("optimizer").claim, without).state ==
        State::undecided);  // half of the claim was not looked at
}

TEST_CASE("claims: dyt as accurate as layer norm, derf more accurate than both") {
  const auto with = [](double dyt, double derf) {
    return [=](const Settings& s) { return 80 + (is(s, "dyt") ? dyt : 0) + (is(s, "derf") ? derf : 0); };
  };
  CHECK(verdict("dyt", with(0, 0), 0.02).state == State::supported);
  CHECK(verdict("dyt", with(-1, 0), 0.02).state == State::contradicted);
  CHECK(verdict("dyt", with(0, 0), 2).state == State::undecided);
  CHECK(verdict("derf", with(0.5, 1.5)).state == State::supported);
  CHECK(verdict("derf", with(1.5, 1)).state == State::contradicted);
  CHECK(verdict("derf", with(0, 0.8), 2).state == State::undecided);
}

TEST_CASE("claims: weight decay as a learning rate, in accuracy and in the training loss") {
  // The runs with a product of 0.001 are alike, but for what is given to the one with the higher rate. They are better
  // than those with other products by `of_product`.
  const auto with = [](double points, double loss, double scatter, double loss_scatter, double of_product = 3) {
    Comparison comparison = results_of(
        "weight-decay",
        [=](const Settings& s) {
          const bool high = s.lr == 0.05;
          const bool small = s.option("weight-decay") == "0.02";
          return 80 + (high == small ? of_product : 0) + (high && small ? points : 0);
        },
        scatter);
    REQUIRE(comparison.cells.size() == 16);
    for (Cell& cell : comparison.cells) {
      const bool other = cell.lr == 0.05 && cell.option("weight-decay") == "0.02";
      const double sign = cell.seed % 2 == 0 ? 1 : -1;
      cell.fit = {.images = 1000, .accuracy = 0.9, .loss = 0.4 + (other ? loss + sign * loss_scatter : 0)};
    }
    return comparison_from_json(to_json(comparison));
  };
  const Claim& claim = *study_of("weight-decay").claim;
  CHECK(verdict_on(claim, with(0, 0, 0.02, 0.001)).state == State::supported);
  CHECK(verdict_on(claim, with(2, 0, 0.02, 0.001)).state == State::contradicted);
  const Verdict by_fit = verdict_on(claim, with(0, 0.2, 0.02, 0.001));  // as accurate, and fits less well
  CHECK(by_fit.state == State::contradicted);
  CHECK(
      by_fit.text.find("training loss in tenths, batch with lr 0.05 and weight-decay 0.02 beside batch with lr 0.0125 "
                       "and weight-decay 0.08: +2.00 (") != std::string::npos);
  CHECK(verdict_on(claim, with(0, 0, 3, 0.001)).state == State::undecided);
  const Verdict unclear = verdict_on(claim, with(0, 0.01, 0.02, 0.1));
  CHECK(unclear.state == State::undecided);
  CHECK(unclear.text.find("more seeds") != std::string::npos);
  CHECK(verdict_on(claim, with(0, 0, 0.02, 0.001, -3)).state == State::supported);
  // Where decay changes nothing, nothing is shown, and more seeds would not help.
  const Verdict flat = verdict_on(claim, with(0, 0, 0.02, 0.001, 0));
  CHECK(flat.state == State::undecided);
  CHECK(flat.text.find(
            "batch with lr 0.0125 and weight-decay 0.08 beside batch with lr 0.0125 and weight-decay 0.02: none "
            "found, equal within 0.3: ") != std::string::npos);
  CHECK(flat.text.find("seeds") == std::string::npos);
  CHECK(verdict_on(claim, with(2, 0, 0.02, 0.001, 0)).state == State::contradicted);
  Comparison old = with(0, 0, 0.02, 0.001);
  for (Cell& cell : old.cells) {
    cell.fit.reset();  // of a version that did not measure it
  }
  CHECK(verdict_on(claim, old).state == State::undecided);
  std::erase_if(old.cells, [](const Cell& cell) { return cell.lr == 0.05; });
  CHECK(verdict_on(claim, old)
            .text.starts_with("not decided. batch with lr 0.05 and weight-decay 0.02 beside batch with lr 0.0125 and "
                              "weight-decay 0.08: the "
                              "comparison lacks that norm or its values"));
}

TEST_CASE("claims: a loss that depends less on the learning rate with QK-norm, both ways and not decided") {
  // The loss at the high rate less that at the low one, without QK-norm and with it.
  const auto with = [](double without_norm, double with_norm, double scatter) {
    Comparison comparison = results_of(
        "qk-norm", [](const Settings&) { return 80.0; }, 0.02);
    REQUIRE(comparison.cells.size() == 16);
    for (Cell& cell : comparison.cells) {
      const double sensitivity = cell.option("qk-norm") == "none" ? without_norm : with_norm;
      const double own = (cell.seed % 2 == 0 ? 1 : -1) * (cell.option("qk-norm") == "none" ? scatter : 0);
      cell.fit = {.images = 1000, .accuracy = 0.9, .loss = 0.4 + (cell.lr == 0.016 ? sensitivity + own : 0)};
    }
    return comparison_from_json(to_json(comparison));
  };
  const Claim& claim = *study_of("qk-norm").claim;
  const Verdict less = verdict_on(claim, with(0.5, 0.1, 0.01));
  CHECK(less.state == State::supported);
  CHECK(less.text.find("training loss in tenths, layer2d with lr 0.016 beside layer2d with lr 0.001, with qk-norm none "
                       "more than with layer2d: +4.00 (") != std::string::npos);
  CHECK(verdict_on(claim, with(0.1, 0.5, 0.01)).state == State::contradicted);
  CHECK(verdict_on(claim, with(0.1, 0.1, 0.001)).state == State::contradicted);  // equal within 0.03
  CHECK(verdict_on(claim, with(0.2, 0.1, 0.3)).state == State::undecided);
  Comparison without = with(0.5, 0.1, 0.01);
  for (Cell& cell : without.cells) {
    if (cell.seed > 0) {
      cell.fit.reset();
    }
  }
  CHECK(verdict_on(claim, without).state == State::undecided);  // one seed
}

TEST_CASE("claims: the place of a ViT's norms, by loss and by the growth of activations") {
  const auto with = [](double loss_of_peri, double decibels_of_peri) {
    Comparison comparison = results_of(
        "placement", [](const Settings&) { return 80.0; }, 0.02);
    REQUIRE(comparison.cells.size() == 12);
    for (Cell& cell : comparison.cells) {
      const bool peri = cell.option("norm-placement") == "peri";
      const double own = 0.001 * static_cast<double>(cell.seed % 3);
      cell.fit = {.images = 1000, .accuracy = 0.9, .loss = 0.4 + (peri ? loss_of_peri + own : 0)};
      LayerHealth norm{.layer = "norm1", .kind = LayerKind::norm, .input_deviation = 2};
      LayerHealth last = norm;
      last.input_deviation = 2 * std::pow(10, (6 + (peri ? decibels_of_peri + 50 * own : 0)) / 20);
      LayerHealth first = norm;
      first.input_deviation = 0.01;  // the growth is that behind the middle
      Telemetry telemetry;
      telemetry.health = {{.step = 9, .layers = {first, norm, last}}};
      cell.telemetry = telemetry;
    }
    return comparison_from_json(to_json(comparison));
  };
  const Claim& claim = *study_of("placement").claim;
  const Verdict better = verdict_on(claim, with(-0.2, -4));
  CHECK(better.state == State::supported);
  CHECK(better.text.find("growth in decibels, layer2d with norm-placement peri beside layer2d with norm-placement pre: "
                         "-3.96 (") != std::string::npos);
  CHECK(verdict_on(claim, with(-0.2, 4)).state == State::contradicted);
  CHECK(verdict_on(claim, with(0.2, -4)).state == State::contradicted);
  Comparison without = with(-0.2, -4);
  for (Cell& cell : without.cells) {
    cell.telemetry.reset();
  }
  CHECK(verdict_on(claim, without).state == State::undecided);
}

TEST_CASE("claims: batch norm in a ViT, whose runs fail or do not") {
  Comparison comparison = results_of(
      "batch-vit", [](const Settings&) { return 80.0; }, 0.02);
  const Claim& claim = *study_of("batch-vit").claim;
  CHECK(verdict_on(claim, comparison).text == "contradicted. batch: 0 of 4 runs failed");
  const auto set = [&](const std::string& norm, CellState state) {
    const auto cell = std::ranges::find_if(comparison.cells, [&](const Cell& one) { return one.norm == norm; });
    cell->state = state;
  };
  set("layer2d", CellState::failed);
  CHECK(verdict_on(claim, comparison).state == State::contradicted);
  set("batch", CellState::failed);
  CHECK(verdict_on(claim, comparison).text == "supported. batch: 1 of 4 runs failed");
  comparison.cells.back().fit = {.images = 2000, .accuracy = 0.1, .loss = 2.3, .classes = 10};  // a second one
  const auto beside = std::ranges::find_if(comparison.cells, [&](const Cell& one) {
    return one.norm == "layer2d" && one.seed == comparison.cells.back().seed;
  });
  beside->state = CellState::finished;
  beside->fit = {.images = 2000, .accuracy = 0.5, .loss = 1.5, .classes = 10};
  REQUIRE(comparison.cells.back().norm == "batch");
  CHECK(verdict_on(claim, comparison).text.starts_with("supported. batch: 2 of 4 runs failed"));
  set("batch", CellState::pending);
  CHECK(verdict_on(claim, comparison).text == "not decided yet. batch: runs are missing");
}

TEST_CASE("claims: a run fails where its loss stays that of a guess, and not for a reason outside of the network") {
  Comparison comparison = results_of(
      "batch-vit", [](const Settings&) { return 80.0; }, 0.02);
  const Claim& claim = *study_of("batch-vit").claim;
  const auto cell = std::ranges::find(comparison.cells, "batch", [](const Cell& one) { return one.norm; });
  const auto beside = std::ranges::find_if(
      comparison.cells, [&](const Cell& one) { return one.norm == "layer2d" && one.seed == cell->seed; });
  REQUIRE(beside != comparison.cells.end());
  beside->fit = {.images = 2000, .accuracy = 0.5, .loss = 1.5, .classes = 10};
  const auto with = [&](const std::optional<Fit>& fit) {
    cell->fit = fit;
    return verdict_on(claim, comparison_from_json(to_json(comparison))).text;
  };
  const std::string fine = "contradicted. batch: 0 of 4 runs failed";
  CHECK(with(Fit{.images = 2000, .accuracy = 0.1, .loss = 2.302, .classes = 10}) ==
        "supported. batch: 1 of 4 runs failed, the first as its loss on training images, 2.302, is not below that of a "
        "guess among "
        "10 classes");
  CHECK(with(Fit{.images = 2000, .accuracy = 0.12, .loss = 2.29, .classes = 10}) == fine);  // learns, slowly
  CHECK(with(Fit{.images = 2000, .accuracy = 0.12, .loss = 2.29, .classes = 9}) != fine);   // log(9) is 2.197
  CHECK(with(Fit{.images = 2000, .accuracy = 0.14, .loss = 5, .classes = 10}) == fine);     // sure, and often wrong
  CHECK(with(Fit{.images = 2000, .accuracy = 0.5, .loss = NAN, .classes = 10}).find("images, nan, is not below") !=
        std::string::npos);
  CHECK(with(Fit{.images = 49, .accuracy = 0.1, .loss = 2.302, .classes = 10}) == fine);  // too few to say
  CHECK(with(Fit{.images = 2000, .accuracy = 0.1, .loss = 2.302}) == fine);               // of an earlier version
  CHECK(with(std::nullopt) == fine);
  beside->fit = {.images = 2000, .accuracy = 0.1, .loss = 2.302, .classes = 10};  // too short a run for any norm
  CHECK(with(beside->fit) ==
        "not decided. batch: 0 of 4 runs failed; 1 not counted: another reason ended them, or no other norm learned "
        "either");

  cell->state = CellState::failed;
  cell->reason = "allocator: expected room for 9 GB, got none";
  cell->from_outside = true;
  CHECK(with(std::nullopt) ==
        "not decided. batch: 0 of 4 runs failed; 1 not counted: another reason ended them, or no other norm learned "
        "either");
  comparison.cells.back().state = CellState::failed;
  comparison.cells.back().reason = "train: the loss became nan";
  CHECK(with(std::nullopt) ==
        "supported. batch: 1 of 4 runs failed, the first as train: the loss became nan; 1 not counted: another "
        "reason ended them, or no other norm learned either");
}

TEST_CASE("claims: averaged weights with statistics of their own, both ways and not decided") {
  const auto with = [](double anew) {
    return [=](const Settings& s) {
      return 80 + (s.option("weights") == "ema-recalibrated" ? anew : 0) - (s.option("weights") == "last" ? 5 : 0);
    };
  };
  CHECK(verdict("ema", with(0), 0.02).state == State::supported);
  CHECK(verdict("ema", with(2), 0.02).state == State::contradicted);
  CHECK(verdict("ema", with(-2), 0.02).state == State::contradicted);
  const Verdict unclear = verdict("ema", with(0.2), 3);
  CHECK(unclear.state == State::undecided);
  CHECK(unclear.text.starts_with("not decided. batch with weights ema-recalibrated beside batch with weights ema: "));
  CHECK(unclear.text.find("more seeds") != std::string::npos);
}

TEST_CASE("claims: fine-tuning with statistics that are kept or go on, both ways and not decided") {
  const auto with = [](double frozen) {
    return [=](const Settings& s) {
      return 80 + (s.option(kStart) == "frozen" ? frozen : 0) - (s.option(kStart) == kScratch ? 20 : 0) -
             (is(s, "group:32") ? 1 : 0);
    };
  };
  CHECK(verdict("finetune", with(0), 0.02).state == State::supported);
  CHECK(verdict("finetune", with(2)).state == State::supported);
  CHECK(verdict("finetune", with(-2)).state == State::contradicted);
  const Verdict unclear = verdict("finetune", with(-0.2), 3);
  CHECK(unclear.state == State::undecided);
  CHECK(unclear.text.starts_with("not decided. batch with start keep beside batch with start frozen: "));
  CHECK(unclear.text.find("more seeds") != std::string::npos);

  // What else there was to choose stands beside the verdict: 80 for all seeds is 81.5 on average.
  Comparison comparison = results_of("finetune", with(-2), 0);
  CHECK(claim_text(comparison)
            .ends_with(" Accuracies in percent with start scratch: batch 61.5 ± 1.3, group:32 60.5 ± 1.3; with start "
                       "keep: batch 81.5 ± 1.3, group:32 80.5 ± 1.3; with start frozen: batch 79.5 ± 1.3; with start "
                       "fold: group:32 80.5 ± 1.3; with start calibrate: group:32 80.5 ± 1.3."));
  for (Cell& cell : comparison.cells) {
    cell.state = CellState::pending;
  }
  CHECK(claim_text(comparison).ends_with("runs are missing."));
}

TEST_CASE("claims: nothing is decided before the last run, and by one seed") {
  Comparison comparison = results_of(
      "dyt", [](const Settings&) { return 80; }, 0.02);
  comparison.cells.front().state = CellState::pending;
  const Verdict waiting = verdict_on(*study_of("dyt").claim, comparison);
  CHECK(waiting.state == State::waiting);
  CHECK(waiting.text.starts_with(
      "not decided yet. convnext_atto, dyt beside layer2d: runs are missing; vit_tiny, dyt beside layer2d: "));
  CHECK(answers_of(comparison).front() == claim_text(comparison));
  comparison = results_of(
      "dyt", [](const Settings&) { return 80; }, 0.02);
  std::erase_if(comparison.cells, [](const Cell& cell) { return cell.seed > 0; });
  CHECK(verdict_on(*study_of("dyt").claim, comparison).state == State::undecided);
  std::erase_if(comparison.cells, [](const Cell& cell) { return cell.norm == "dyt"; });
  CHECK(verdict_on(*study_of("dyt").claim, comparison).text ==
        "not decided. dyt beside layer2d: the comparison lacks that norm");
}

}  // namespace norma::lab
