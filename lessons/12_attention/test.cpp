// What your answers must do: numbers by hand, and Norma's own attention and its gradients.

#include "exercise.h"

#include <norma/norma.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <string>

namespace {

using norma::Tensor;

/// Queries, keys and values that are not special: more keys than queries, and E is not Ev.
struct Head {
  Tensor q;
  Tensor k;
  Tensor v;

  explicit Head(int64_t queries = 3, int64_t keys = 5) {
    norma::Generator generator(7);
    const auto some = [&](int64_t rows, int64_t columns) {
      return norma::randn({1, 1, rows, columns}, {.dtype = norma::DType::float64}, generator).set_requires_grad();
    };
    q = some(queries, 4);
    k = some(keys, 4);
    v = some(keys, 2);
  }
};

Rows rows_of(const Tensor& x) {
  Rows rows;
  for (int64_t i = 0; i < x.size(2); ++i) {
    rows.push_back(norma::narrow(x, 2, i, 1).to_vector<double>());
  }
  return rows;
}

bool near(const Rows& a, const Rows& b) {
  for (size_t i = 0; i < a.size() && a.size() == b.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      if (a[i].size() != b[i].size() || !(std::abs(a[i][j] - b[i][j]) <= 1e-9 * (1 + std::abs(b[i][j])))) {
        return false;
      }
    }
  }
  return a.size() == b.size();
}

std::string text_of(const Row& row) {
  std::string text;
  for (const double value : row) {
    text += fmt::format(" {:.4f}", value);
  }
  return text;
}

void check_softmax(const std::string& what, const Row& z, size_t seen, const Row& expected) {
  const Row yours = softmax_of(z, seen);
  INFO("\n  ", what, ": expected", text_of(expected), ", yours", text_of(yours));
  REQUIRE(near({yours}, {expected}));
}

Rows with_scale(const Head& head, double scale, bool causal) {
  return rows_of(norma::scaled_dot_product_attention(head.q, head.k, head.v, {.scale = scale, .causal = causal}));
}

void check_attend(const Head& head, bool causal) {
  const Rows right = with_scale(head, 0.5, causal);
  const Attention yours = attend(rows_of(head.q), rows_of(head.k), rows_of(head.v), causal);
  REQUIRE_MESSAGE(yours.p.size() == right.size(), "\n  p needs a row for each query, ", right.size(), ", yours has ",
                  yours.p.size());
  std::string slip;
  if (near(yours.y, with_scale(head, 1, causal))) {
    slip = "\n  Yours are not scaled by 1 / sqrt(E)";
  } else if (near(yours.y, with_scale(head, 0.25, causal))) {
    slip = "\n  Yours are scaled by 1 / E, not by 1 / sqrt(E)";
  } else if (near(yours.y, with_scale(head, 1 / std::sqrt(2.0), causal))) {
    slip = "\n  E is the length of a query, not that of a value";
  } else if (causal && near(yours.y, with_scale(head, 0.5, false))) {
    slip = "\n  Your queries see the keys after them";
  } else if (causal && yours.p[0][0] == 0) {
    slip = "\n  Query 0 sees key 0";
  } else if (causal && std::abs(dot(yours.p[0], Row(yours.p[0].size(), 1)) - 1) > 1e-9) {
    slip = "\n  Your probabilities do not add up to 1: hide keys before the softmax, not after it";
  }
  INFO("\n  ", std::string(causal ? "causal, " : ""), right.size(), " queries and ", head.k.size(2),
       " keys, row 1 of y", ": expected", text_of(right[1]), ", yours", text_of(yours.y[1]), slip);
  REQUIRE(near(yours.y, right));
  for (const Row& p : yours.p) {
    REQUIRE_MESSAGE(std::abs(dot(p, Row(p.size(), 1)) - 1) < 1e-9, "\n  y is right, but the rows of p must be the ",
                    std::string("probabilities: they add up to 1"));
  }
}

}  // namespace

TEST_CASE("gap 1: softmax of the numbers that are seen") {
  check_softmax("ln 1, ln 2, ln 4", {0, std::log(2), std::log(4)}, 3, {1.0 / 7, 2.0 / 7, 4.0 / 7});
  check_softmax("the same, of which only two are seen", {0, std::log(2), std::log(4)}, 2, {1.0 / 3, 2.0 / 3, 0});
  check_softmax("1000 and 1000: exp(1000) is too large for a double", {1000, 1000}, 2, {0.5, 0.5});
  check_softmax("-1000 and -1000: both powers are 0, and 0 / 0 is not a number", {-1000, -1000}, 2, {0.5, 0.5});
  check_softmax("0, 0 and a hidden 2000: what is hidden must not matter, also not as the largest", {0, 0, 2000}, 2,
                {0.5, 0.5, 0});
  check_softmax("nothing is seen: zeros, not 0 / 0", {1, 2}, 0, {0, 0});
}

TEST_CASE("gap 2: attention beside Norma's (needs gap 1)") {
  check_attend(Head(), false);
  check_attend(Head(4, 4), true);
  check_attend(Head(3, 5), true);
  check_attend(Head(5, 3), true);
}

TEST_CASE("gap 3: the gradients beside Norma's") {
  for (const bool causal : {false, true}) {
    const Head head;
    norma::Generator generator(8);
    const Tensor dy = norma::randn({1, 1, 3, 2}, {.dtype = norma::DType::float64}, generator);
    norma::backward(norma::scaled_dot_product_attention(head.q, head.k, head.v, {.causal = causal}), dy);
    // The probabilities: attention whose values are the unit vectors.
    const Tensor eye = norma::view(
        norma::to(norma::equal(norma::view(norma::arange(5), {5, 1}), norma::arange(5)), norma::DType::float64),
        {1, 1, 5, 5});
    const Tensor p = norma::scaled_dot_product_attention(head.q, head.k, eye, {.causal = causal}).detach();
    const AttentionGradients yours =
        attend_backward(rows_of(head.q), rows_of(head.k), rows_of(head.v), rows_of(p), rows_of(dy));
    const std::string where = causal ? "\n  causal (without a mask you are right), " : "\n  ";
    REQUIRE_MESSAGE(near(yours.v, rows_of(head.v.grad())), where, "row 1 of dv: expected",
                    text_of(rows_of(head.v.grad())[1]), ", yours", text_of(yours.v[1]),
                    "\n  v[j] stands in y[i] with the factor p[i][j], for every query i");

    const auto dq_of = [&](const Tensor& dz, double scale) {
      return rows_of(norma::matmul(dz, head.k.detach()) * scale);
    };
    const Tensor dp = norma::matmul(dy, norma::transpose(head.v.detach(), 2, 3));
    const Tensor dz = p * (dp - norma::sum(p * dp, {3}, {.keepdim = true}));
    std::string slip;
    if (near(yours.q, dq_of(dz, 1))) {
      slip = "\n  Yours lacks the scale 1 / sqrt(E), which stands between q · k and z";
    } else if (near(yours.q, dq_of(p * dp, 0.5))) {
      slip = "\n  Yours is p * dp, without the mean that is subtracted: probabilities share a sum of 1";
    } else if (near(yours.q, dq_of(dp, 0.5))) {
      slip = "\n  Yours passes dp on as dz: the softmax has a gradient of its own";
    } else if (near(yours.q, dq_of(p * (dp - norma::mean(dp, {3}, {.keepdim = true})), 0.5))) {
      slip = "\n  The mean that is subtracted is weighted with p";
    }
    REQUIRE_MESSAGE(near(yours.q, rows_of(head.q.grad())), where, "row 1 of dq: expected",
                    text_of(rows_of(head.q.grad())[1]), ", yours", text_of(yours.q[1]), slip);
    REQUIRE_MESSAGE(near(yours.k, rows_of(head.k.grad())), where, "row 1 of dk: expected",
                    text_of(rows_of(head.k.grad())[1]), ", yours", text_of(yours.k[1]),
                    "\n  dq is right. k[j] stands in z[i][j] for every query i: add up over the queries");
  }
}
