#include "lab/report/report.h"

#include "base/error.h"
#include "error_text.h"
#include "lab/report/decisions.h"
#include "lab/report_cases.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

// results.json: everything comes back, and a file that contradicts itself is refused.

using namespace norma;
using namespace norma::lab;
using namespace norma::test;

namespace {

/// The error of reading example() after a change.
template <class F>
std::string error_after(F&& change) {
  Comparison comparison = example();
  change(comparison);
  return error_of([&] { comparison_from_json(to_json(comparison)); });
}

}  // namespace

TEST_CASE("report: rounds of timing that contradict themselves are an error") {
  CHECK(error_after([](Comparison& c) { c.timings[0].rounds[1].pop_back(); }) ==
        "comparison: timing 1: rounds: expected 4 numbers in each, one for each norm, got 3");
  CHECK(error_after([](Comparison& c) { c.timings[0].rounds[1][0] = 0; }) ==
        "comparison: timing 1: rounds: expected seconds above 0, got 0");
  CHECK(error_after([](Comparison& c) {
          c.timings[0].norms = {"batch", "group:32", "instance", "group:7"};
        }) ==
        "comparison: timing 1: norms: expected those of the cells, [batch, group:32, group:7, instance], got [batch, "
        "group:32, instance, group:7]");
  CHECK(error_after([](Comparison& c) { c.timings.push_back(c.timings[0]); }) ==
        "comparison: timing 2: expected each once, got resnet50 twice");
  CHECK(error_after([](Comparison& c) { c.timing_rounds = 0; }) == "no error");  // timings are not written then
  std::string text = to_json(example());
  text.replace(text.find("\"timing_rounds\": 8"), 18, "\"timing_rounds\": -8");
  CHECK(test::error_of([&] { comparison_from_json(text); }) ==
        "comparison: timing_rounds: expected a whole number from 0 to 1000000, got -8");
}

TEST_CASE("report: JSON keeps everything") {
  const Comparison before = example();
  const Comparison after = comparison_from_json(to_json(before));
  CHECK(to_json(after) == to_json(before));
  CHECK(to_html(after) == to_html(before));
  REQUIRE(after.cells.size() == 5);
  CHECK(after.cells[0].losses == before.cells[0].losses);
  CHECK(after.cells[2].reason == before.cells[2].reason);
  CHECK(after.cells[3].state == CellState::interrupted);
}

TEST_CASE("report: JSON keeps the fit to training images") {
  Comparison comparison = example();
  comparison.cells[0].fit = {.images = 500, .accuracy = 0.9, .loss = 0.25, .classes = 10};
  comparison.cells[1].fit = {.images = 500, .accuracy = 0.1, .loss = NAN};
  const std::string json = to_json(comparison);
  const Comparison after = comparison_from_json(json);
  REQUIRE(after.cells[0].fit.has_value());
  CHECK(after.cells[0].fit->images == 500);
  CHECK(after.cells[0].fit->accuracy == 0.9);
  CHECK(after.cells[0].fit->loss == 0.25);
  CHECK(after.cells[0].fit->classes == 10);
  REQUIRE(after.cells[1].fit.has_value());
  CHECK(std::isnan(after.cells[1].fit->loss));
  CHECK_FALSE(comparison_from_json(to_json(example())).cells[0].fit.has_value());  // as in files of earlier versions
  const auto refusal = [&](std::string_view from, std::string_view to) {
    std::string other = json;
    REQUIRE(other.find(from) != std::string::npos);
    other.replace(other.find(from), from.size(), to);
    return error_of([&] { comparison_from_json(other); });
  };
  CHECK(refusal("\"images\": 500", "\"images\": 0") == "comparison: cell 1: fit: images: expected at least 1, got 0");
  CHECK(refusal("\"accuracy\": 0.9", "\"accuracy\": 9.5") ==
        "comparison: cell 1: fit: accuracy: expected a number from 0 to 1, got 9.5");
  CHECK(refusal("\"classes\": 10", "\"classes\": 0") ==
        "comparison: cell 1: fit: classes: expected a whole number from 1 to 1000000, got 0");
}

TEST_CASE("report: JSON keeps the right answers of each run") {
  Comparison comparison = example();
  comparison.cells[0].right = {true, true, false, true};
  comparison.cells[0].accuracy = 0.75;
  const Comparison after = comparison_from_json(to_json(comparison));
  CHECK(after.cells[0].right == comparison.cells[0].right);
  CHECK(after.cells[1].right.empty());  // as in files of earlier versions
  const auto error_with = [&](const std::string& from, const std::string& to) {
    std::string text = to_json(comparison);
    text.replace(text.find(from), from.size(), to);
    return error_of([&] { comparison_from_json(text); });
  };
  const std::string where = "comparison: cell 1: right: ";
  CHECK(error_with("\"bits\": \"d0\"", "\"bits\": \"c0\"") ==
        where + "bits: expected 3 right answers of 4, as the accuracy 0.75 says, got 2");
  CHECK(error_with("\"bits\": \"d0\"", "\"bits\": \"d01\"") ==
        where + "bits: expected two digits for each eight images, got 3 digits for 4 images");
  CHECK(error_with("\"bits\": \"d0\"", "\"bits\": \"d1\"") ==
        where + "bits: expected 0 behind the last of 4 images, got 1");
  CHECK(error_with("\"images\": 4", "\"images\": -4") ==
        where + "bits: expected two digits for each eight images, got 2 digits for -4 images");
  CHECK(error_with("\"images\": 4", "\"images\": 4e99").starts_with(where + "images: expected a whole number"));
  CHECK(error_with("\"bits\": \"d0\"", "\"bits\": 7").starts_with(where + "bits: expected a text"));
}

TEST_CASE("report: a file of the first version has the settings of its recipe in all cells") {
  const Comparison comparison = comparison_from_json(R"({"format": "norma comparison 1", "date": "", "command": "",
      "environment": )" + train::to_json(train::environment()) +
                                                     R"(,
      "recipe": {"dataset": "shapes", "batch_size": 16, "lr": 0.5, "precision": "bfloat16", "channels_last": false},
      "cells": [{"model": "resnet18", "norm": "batch", "seed": 3, "state": "pending"},
                {"model": "resnet18", "norm": "group", "seed": 3, "state": "failed", "reason": "why"}],
      "timing_rounds": 1,
      "timings": [{"model": "resnet18", "norms": ["batch", "group"], "rounds": [[1, 2]]}]})");
  REQUIRE(comparison.cells.size() == 2);
  const Cell& cell = comparison.cells[1];
  CHECK(cell.dataset == "shapes");
  CHECK(cell.batch_size == 16);
  CHECK(cell.lr == 0.5);
  CHECK(cell.precision == "bfloat16");
  CHECK(cell.format == MemoryFormat::contiguous);
  CHECK(cell.seed == 3);
  CHECK(cell.reason == "why");
  CHECK(seconds_of_step(comparison, cell) == 2);
}

TEST_CASE("report: a file of a newer version is refused as such") {
  std::string text = to_json(example());
  text.replace(text.find("norma comparison 2"), 18, "norma comparison 3");
  CHECK(test::error_of([&] { comparison_from_json(text, "results.json"); }) ==
        "results.json: format: expected a version up to 2, got 3: a newer Norma has written this, and this one cannot "
        "read it");
  text.replace(text.find("norma comparison 3"), 18, "norma comparison x");
  CHECK(test::error_of([&] { comparison_from_json(text, "results.json"); }) ==
        "results.json: format: expected 'norma comparison 2', got 'norma comparison x'");
}

TEST_CASE("report: JSON keeps a loss that is no number") {
  Comparison comparison;
  comparison.cells = {finished("resnet18", "batch", 0, 0.5, 100)};
  comparison.cells[0].loss = NAN;
  CHECK(std::isnan(comparison_from_json(to_json(comparison)).cells[0].loss));
}

TEST_CASE("report: a text that is no comparison is an error") {
  CHECK_THROWS_AS(comparison_from_json("{"), Error);
  CHECK_THROWS_AS(comparison_from_json("{}"), Error);
  std::string text = to_json(example());
  text.replace(text.find("\"interrupted\""), 13, "\"interruptet\"");
  CHECK_THROWS_WITH_AS(
      comparison_from_json(text),
      "comparison: cell 4: state: expected pending, finished, failed, interrupted or elsewhere, got 'interruptet'",
      Error);
  text = to_json(example());
  text.insert(text.find("\"recipe\""), "\"environment\": {}, ");
  CHECK_THROWS_WITH_AS(comparison_from_json(text),
                       "comparison: the comparison: 'environment': expected each key once, got it again", Error);
}

TEST_CASE("report: cells that contradict themselves are an error") {
  CHECK(error_after([](Comparison& c) { c.cells[0].accuracy = 1.5; }) ==
        "comparison: cell 1: accuracy: expected a number from 0 to 1, got 1.5");
  CHECK(error_after([](Comparison& c) { c.cells[0].accuracy = -0.5; }) ==
        "comparison: cell 1: accuracy: expected a number from 0 to 1, got -0.5");
  CHECK(error_after([](Comparison& c) { c.cells[1].seconds = -60; }) ==
        "comparison: cell 2: seconds: expected at least 0, got -60");
  CHECK(error_after([](Comparison& c) { c.cells[1].peak_bytes = -1; }) ==
        "comparison: cell 2: peak_bytes: expected at least 0, got -1");
  CHECK(error_after([](Comparison& c) { c.cells[1].norm = "batch"; }) ==
        "comparison: cell 2: expected each once, got resnet50 with norm batch and seed 0 twice");
  CHECK(error_after([](Comparison& c) { c.cells.clear(); }) == "comparison: cells: expected at least one, got none");
}
