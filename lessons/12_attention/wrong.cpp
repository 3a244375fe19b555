// Lesson 12: answers that the tests must not pass, and what they must say.
#include "wrong.h"
#include "exercise.h"

#include <algorithm>
#include <numeric>

namespace ours {
#include "solution.cpp"
}

Row softmax_of(const Row& z, size_t seen) {
  const int wrong = wrong_answer();
  Row p(z.size(), 0);
  double subtract = 0;
  switch (wrong) {
    case 1:  // gap 1 must say "exp(1000) is too large"
      break;
    case 2:  // gap 1 must say "a hidden 2000"
      subtract = *std::max_element(z.begin(), z.end());
      break;
    case 3:  // gap 1 must say "of which only two are seen"
      seen = z.size();
      break;
    case 4:  // gap 1 must say "nothing is seen"
      if (seen > 0) {
        return ours::softmax_of(z, seen);
      }
      return Row(z.size(), NAN);
    case 5:  // gap 1 must say "-1000 and -1000"
      for (size_t j = 0; j < seen; ++j) {
        subtract = std::max(subtract, z[j]);
      }
      break;
    default: return ours::softmax_of(z, seen);
  }
  for (size_t j = 0; j < seen; ++j) {
    p[j] = std::exp(z[j] - subtract);
  }
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (size_t j = 0; j < seen; ++j) {
    p[j] /= sum;
  }
  return p;
}

Attention attend(const Rows& q, const Rows& k, const Rows& v, bool causal) {
  const auto scaled = [&](double factor) {
    Rows larger = q;
    for (Row& row : larger) {
      for (double& value : row) {
        value *= factor;
      }
    }
    return ours::attend(larger, k, v, causal);
  };
  Attention result = ours::attend(q, k, v, causal);
  switch (wrong_answer()) {
    case 11:  // gap 2 must say "are not scaled by 1 / sqrt(E)"
      return scaled(2);
    case 12:  // gap 2 must say "scaled by 1 / E, not"
      return scaled(0.5);
    case 13:  // gap 2 must say "not that of a value"
      return scaled(std::sqrt(2.0));
    case 14:  // gap 2 must say "see the keys after them"
      return ours::attend(q, k, v, false);
    case 15:  // gap 2 must say "hide keys before the softmax"
      result = ours::attend(q, k, v, false);
      for (size_t i = 0; causal && i < q.size(); ++i) {
        std::fill(result.y[i].begin(), result.y[i].end(), 0);
        for (size_t j = 0; j < k.size(); ++j) {
          result.p[i][j] = j <= i ? result.p[i][j] : 0;
          for (size_t e = 0; e < v[j].size(); ++e) {
            result.y[i][e] += result.p[i][j] * v[j][e];
          }
        }
      }
      return result;
    case 16:  // gap 2 must say "they add up to 1"
      for (Row& p : result.p) {
        std::fill(p.begin(), p.end(), 0);
      }
      return result;
    default: return result;
  }
}

AttentionGradients attend_backward(const Rows& q, const Rows& k, const Rows& v, const Rows& p, const Rows& dy) {
  AttentionGradients d = ours::attend_backward(q, k, v, p, dy);
  const int wrong = wrong_answer();
  const double scale = wrong == 22 ? 1 : 1 / std::sqrt(static_cast<double>(q[0].size()));
  if (wrong == 26) {  // the last query alone reaches the keys
    d.k = ours::attend_backward({q.back()}, k, v, {p.back()}, {dy.back()}).k;
  }
  for (size_t i = 0; i < q.size(); ++i) {
    Row dp;
    for (const Row& value : v) {
      dp.push_back(dot(dy[i], value));
    }
    const double mean = dot(p[i], dp);
    const double plain = std::accumulate(dp.begin(), dp.end(), 0.0) / static_cast<double>(dp.size());
    Row dz(k.size(), 0);
    for (size_t j = 0; j < k.size(); ++j) {
      switch (wrong) {
        case 21:  // gap 3 must say "v[j] stands in y[i] with the factor p[i][j]"
          d.v[j] = dy[i];
          break;
        case 22:  // gap 3 must say "lacks the scale"
          dz[j] = p[i][j] * (dp[j] - mean);
          break;
        case 23:  // gap 3 must say "without the mean that is subtracted"
          dz[j] = p[i][j] * dp[j];
          break;
        case 24:  // gap 3 must say "a gradient of its own"
          dz[j] = dp[j];
          break;
        case 25:  // gap 3 must say "weighted with p"
          dz[j] = p[i][j] * (dp[j] - plain);
          break;
        case 26:  // gap 3 must say "add up over the queries"
        default: dz[j] = p[i][j] * (dp[j] - mean); break;
      }
    }
    for (size_t e = 0; wrong > 21 && e < q[i].size(); ++e) {
      d.q[i][e] = 0;
      for (size_t j = 0; j < k.size(); ++j) {
        d.q[i][e] += dz[j] * scale * k[j][e];
      }
    }
  }
  return d;
}
