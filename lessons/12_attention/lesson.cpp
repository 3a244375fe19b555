// Lesson 12: attention by hand, its gradient, and logits that grow until a norm stops them.
#include "exercise.h"
#include "picture.h"
#include "training.h"

#include <norma/norma.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

namespace {

Rows rows_of(const Tensor& x) {
  Rows rows;
  for (int64_t i = 0; i < x.size(0); ++i) {
    rows.push_back(select(x, 0, i).to_vector<double>());
  }
  return rows;
}

void print(std::string_view name, const Row& numbers) {
  fmt::print("{:<9}", name);
  for (const double value : numbers) {
    fmt::print(" {:7.3f}", value);
  }
  fmt::print("\n");
}

/// One query of one number, three keys: numbers for a pencil.
void by_hand() {
  const Rows q = {{1}};
  const Rows k = {{0}, {std::log(2)}, {std::log(4)}};
  const Rows v = {{7}, {14}, {0}};
  const Attention a = attend(q, k, v, false);
  print("z", {k[0][0], k[1][0], k[2][0]});
  print("p", a.p[0]);
  print("y", a.y[0]);
  const Rows dy = {{1}};
  const AttentionGradients d = attend_backward(q, k, v, a.p, dy);
  fmt::print("\n");
  print("dp", {7, 14, 0});
  print("dz", {d.k[0][0], d.k[1][0], d.k[2][0]});  // q is 1
  fmt::print("sum(dz)   {:7.3f}\n\n", std::abs(d.k[0][0] + d.k[1][0] + d.k[2][0]));
  fmt::print("exp(1000) / (exp(1000) + exp(999)) is {}; exp(0) / (exp(0) + exp(-1)) is {:.3f}\n\n",
             std::isnan(std::exp(1000.0) / (std::exp(1000.0) + std::exp(999.0))) ? "not a number" : "a number",
             1 / (1 + std::exp(-1)));
}

/// A causal mask, and our attention beside Norma's.
void causal(const std::string& folder) {
  constexpr int64_t kTokens = 5;
  const Tensor q = random({kTokens, 4}, 1);
  const Tensor k = random({kTokens, 4}, 2);
  const Tensor v = random({kTokens, 4}, 3);
  const Attention a = attend(rows_of(q), rows_of(k), rows_of(v), true);
  lessons::Picture picture(230, "A causal mask",
                           "Row i has i + 1 filled cells, with probabilities; the others are empty");
  for (size_t i = 0; i < a.p.size(); ++i) {
    print(fmt::format("query {}", i), a.p[i]);
    picture.text(4, 45 + 40 * static_cast<double>(i), fmt::format("query {}", i));
    for (size_t j = 0; j < a.p.size(); ++j) {
      picture.box(70 + 56 * static_cast<double>(j), 22 + 40 * static_cast<double>(i), 54, 38, lessons::Color::three,
                  j <= i, j <= i ? fmt::format("{:.2f}", a.p[i][j]) : "");
    }
  }
  for (size_t j = 0; j < a.p.size(); ++j) {
    picture.text(97 + 56 * static_cast<double>(j), 15, fmt::format("key {}", j), {.anchor = "middle"});
  }
  picture.save(folder, "mask");
  const auto head = [](const Tensor& x) { return view(x, {1, 1, kTokens, 4}); };
  const Row right = scaled_dot_product_attention(head(q), head(k), head(v), {.causal = true}).to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    worst = std::max(worst, std::abs(right[i] - a.y[i / 4][i % 4]));
  }
  fmt::print("the result differs from Norma's by {}\n\n", worst < 1e-12 ? "less than 1e-12" : "more than 1e-12");
}

/// The logits of 32 random tokens when the weights of q and k are larger by a factor, with and without QK-norm.
void growth(const std::string& folder) {
  std::vector<lessons::Curve> curves = {{.name = "without a norm", .points = {}, .color = lessons::Color::two},
                                        {.name = "with QK-norm", .points = {}, .color = lessons::Color::one}};
  fmt::print("weights  QK-norm  largest z  largest p  entropy  size of dz\n");
  for (const bool qk_norm : {false, true}) {
    for (const double factor : {1.0, 2.0, 4.0, 8.0}) {
      const auto made = [&](uint64_t seed) {
        const Tensor x = random({32, 16}, seed) * factor;
        return rows_of(qk_norm ? rms_norm(x, {16}) : x);
      };
      const Rows q = made(1);
      const Rows k = made(2);
      const Attention a = attend(q, k, q, false);
      double logit = 0;
      double p = 0;
      double entropy = 0;
      double dz = 0;
      const Rows dy = rows_of(random({32, 16}, 4));
      const Rows v = rows_of(random({32, 16}, 5));
      for (size_t i = 0; i < q.size(); ++i) {
        double mean = 0;
        for (size_t j = 0; j < k.size(); ++j) {
          logit = std::max(logit, std::abs(dot(q[i], k[j])) / 4);
          entropy -= a.p[i][j] > 0 ? a.p[i][j] * std::log(a.p[i][j]) / 32 : 0;
          mean += a.p[i][j] * dot(dy[i], v[j]);
        }
        for (size_t j = 0; j < k.size(); ++j) {
          dz += std::abs(a.p[i][j] * (dot(dy[i], v[j]) - mean)) / 1024;
        }
        p += *std::max_element(a.p[i].begin(), a.p[i].end()) / 32;
      }
      fmt::print("× {:<6} {:<7} {:10.1f} {:10.2f} {:8.2f} {:11.4f}\n", factor, qk_norm ? "yes" : "no", logit, p,
                 entropy, dz);
      curves[qk_norm ? 1 : 0].points.emplace_back(factor, entropy);
    }
  }
  lessons::curve_chart("Entropy of attention", "It falls to 0 without a norm", {.label = "factor on the weights"},
                       {.label = "entropy"}, curves)
      .save(folder, "entropy");
}

void learning_rates() {
  fmt::print("\nlearning rate                0.01            0.1              1\n");
  for (const bool qk_norm : {false, true}) {
    fmt::print("{:<10} measured", qk_norm ? "QK-norm" : "no norm");
    for (const double rate : {0.01, 0.1, 1.0}) {
      const Trained end = train_head(qk_norm, rate);
      fmt::print("  {:5.2f} {:7.1f}", end.loss, end.largest_logit);
    }
    fmt::print("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = lessons::picture_folder(argc, argv);
  by_hand();
  causal(folder);
  growth(folder);
  learning_rates();
}
