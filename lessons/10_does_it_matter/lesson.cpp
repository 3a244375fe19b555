// Lesson 10: does a norm matter? What chance does to accuracies, and a comparison of networks.
#include <norma/lab/lab.h>
#include <norma/norma.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "exercise.h"
#include "picture.h"

using namespace norma;  // NOLINT: a lesson reads better without prefixes

void register_my_norm();  // of milestone 2

namespace {

/// Accuracies of `seeds` runs of a norm whose true accuracy is `mean`. Runs deviate from it by 1 point.
std::vector<double> accuracies(double mean, int64_t seeds, Generator& chance) {
  return (randn({seeds}, {.dtype = DType::float64}, chance) + mean).to_vector<double>();
}

/// Counts how many of 1000 comparisons of two norms with a true difference satisfy `claim`.
template <class F>
int count_claims(double true_difference, int64_t seeds, F&& claim) {
  Generator chance(10);
  int claims = 0;
  for (int comparison = 0; comparison < 1000; ++comparison) {
    const std::vector<double> reference = accuracies(85, seeds, chance);
    claims += claim(differences_of(accuracies(85 + true_difference, seeds, chance), reference)) ? 1 : 0;
  }
  return claims;
}

bool interval_leaves_out_0(const Differences& differences) {
  const Verdict verdict = verdict_of(interval_of(differences), /* margin= */ 0);
  return verdict == Verdict::better || verdict == Verdict::worse;
}

/// Twenty intervals of comparisons without any difference: those that leave out 0 stand out.
void draw_intervals(std::string_view folder) {
  lessons::Picture picture(330, "Twenty intervals",
                           "Twenty comparisons of equal norms; about one interval leaves out 0.");
  Generator chance(11);
  constexpr double kZero = 180;
  constexpr double kPoint = 28;
  picture.line(kZero, 10, kZero, 300, lessons::Color::ink);
  for (int row = 0; row < 20; ++row) {
    const std::vector<double> reference = accuracies(85, 3, chance);
    const Differences differences = differences_of(accuracies(85, 3, chance), reference);
    const Interval interval = interval_of(differences);
    const auto at = [](double points) { return std::clamp(kZero + points * kPoint, 2.0, 358.0); };
    const auto color = interval_leaves_out_0(differences) ? lessons::Color::two : lessons::Color::one;
    const double y = 18 + 14 * row;
    picture.line(at(interval.low), y, at(interval.high), y, color, 3);
    picture.dot(at(differences.mean), y, 4, color);
  }
  picture.text(kZero, 320, "0", {.anchor = "middle"});
  picture.text(4, 320, "worse", {.color = lessons::Color::faint});
  picture.text(356, 320, "better", {.color = lessons::Color::faint, .anchor = "end"});
  picture.save(folder, "intervals");
}

/// Two networks, two norms, two seeds, one step: far too short to say anything.
void compare_networks() {
  register_my_norm();
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("lesson_10_{}", std::random_device()());
  lab::ComparisonOptions options{.models = {"resnet18", "convnext_atto"},
                                 .norms = {"group:8", "mine"},
                                 .seeds = {0, 1},
                                 .timing_rounds = 0,
                                 .telemetry = false,
                                 .output = folder,
                                 .quiet = true};
  options.recipe.dataset = "shapes";
  options.recipe.image_size = 16;
  options.recipe.batch_size = 16;
  options.recipe.images = 16;
  options.recipe.test_images = 50;
  std::filesystem::create_directories(folder);
  lab::Comparison comparison = lab::plan_comparison(options);
  lab::run_comparison(comparison, options);
  for (const lab::Row& row : lab::summarize(comparison)) {
    fmt::print("{:14} {:8} measured {:5.1f} % of the test images right\n", row.model, row.norm,
               100 * row.accuracy.mean);
  }
  fmt::print("the report has {} runs\n", comparison.cells.size());
  std::filesystem::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) {
  // 1. By hand.
  const std::vector<double> mine = {91, 90, 92};
  const std::vector<double> group = {90, 87, 90};
  const Differences differences = differences_of(mine, group);
  const Interval interval = interval_of(differences);
  fmt::print("differences: mean {:.1f}, deviation {:.1f}, t {:.3f}\n", differences.mean, differences.deviation,
             student_t(differences.count - 1));
  fmt::print("interval: {:.2f} to {:.2f}\n\n", interval.low, interval.high);

  // 2. Chance, where there is no difference, and where there is one.
  fmt::print("two norms that are equally good, 1000 comparisons\n");
  for (const int64_t seeds : {1, 3, 5, 10}) {
    const int over = count_claims(0, seeds, [](const Differences& d) { return std::abs(d.mean) > 1; });
    const std::string sure = seeds == 1 ? "-" : fmt::format("{}", count_claims(0, seeds, interval_leaves_out_0));
    fmt::print("{:2} {:6} {:4} differ by more than a point, {:>3} intervals leave out 0\n", seeds,
               seeds == 1 ? "seed:" : "seeds:", over, sure);
  }
  fmt::print("one norm is better by 2 points, 1000 comparisons\n");
  for (const int64_t seeds : {2, 3, 5, 10}) {
    fmt::print("{:2} seeds: {:4} intervals leave out 0\n", seeds, count_claims(2, seeds, interval_leaves_out_0));
  }
  int with_a_false_claim = 0;
  Generator chance(12);
  for (int study = 0; study < 1000; ++study) {
    const std::vector<double> reference = accuracies(85, 5, chance);
    bool claimed = false;
    for (int norm = 0; norm < 10; ++norm) {
      claimed |= interval_leaves_out_0(differences_of(accuracies(85, 5, chance), reference));
    }
    with_a_false_claim += claimed ? 1 : 0;
  }
  fmt::print("ten norms, all as good as the reference, 5 seeds: {} of 1000 studies claim a difference\n\n",
             with_a_false_claim);
  draw_intervals(lessons::picture_folder(argc, argv));

  // Two runs whose luck has this correlation share a part of it: √r of each run's.
  const int64_t many = 100000;
  for (const double r : {0.0, 0.5, 0.9}) {
    const auto luck = [&] { return randn({many}, {.dtype = DType::float64}, chance); };
    const Tensor shared = luck() * std::sqrt(r);
    const Tensor one = shared + luck() * std::sqrt(1 - r);
    const Tensor other = shared + luck() * std::sqrt(1 - r);
    fmt::print("correlation {:.1f}: the differences of pairs deviate by {:.2f} points\n", r,
               std::sqrt(var(one - other, {0}).item<double>()));
  }

  // 3. Networks.
  compare_networks();
}
