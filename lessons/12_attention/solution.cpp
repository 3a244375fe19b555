// Lesson 12: our answers.

#include "exercise.h"

#include <algorithm>

Row softmax_of(const Row& z, size_t seen) {
  Row p(z.size(), 0);
  // GAP 1
  double largest = -INFINITY;
  for (size_t j = 0; j < seen; ++j) {
    largest = std::max(largest, z[j]);
  }
  double sum = 0;
  for (size_t j = 0; j < seen; ++j) {
    p[j] = std::exp(z[j] - largest);
    sum += p[j];
  }
  for (size_t j = 0; j < seen; ++j) {
    p[j] /= sum;
  }
  return p;
}

Attention attend(const Rows& q, const Rows& k, const Rows& v, bool causal) {
  Attention result{.p = {}, .y = Rows(q.size(), Row(v[0].size(), 0))};
  // GAP 2
  for (size_t i = 0; i < q.size(); ++i) {
    Row z;
    for (const Row& key : k) {
      z.push_back(dot(q[i], key) / std::sqrt(static_cast<double>(q[i].size())));
    }
    result.p.push_back(softmax_of(z, causal ? std::min(i + 1, k.size()) : k.size()));
    for (size_t j = 0; j < k.size(); ++j) {
      for (size_t e = 0; e < v[j].size(); ++e) {
        result.y[i][e] += result.p[i][j] * v[j][e];
      }
    }
  }
  return result;
}

AttentionGradients attend_backward(const Rows& q, const Rows& k, const Rows& v, const Rows& p, const Rows& dy) {
  AttentionGradients d{.q = Rows(q.size(), Row(q[0].size(), 0)),
                       .k = Rows(k.size(), Row(k[0].size(), 0)),
                       .v = Rows(v.size(), Row(v[0].size(), 0))};
  // GAP 3: where p is 0, as at a hidden key, dz is 0
  const double scale = 1 / std::sqrt(static_cast<double>(q[0].size()));
  for (size_t i = 0; i < q.size(); ++i) {
    double mean = 0;
    for (size_t j = 0; j < k.size(); ++j) {
      mean += p[i][j] * dot(dy[i], v[j]);
    }
    for (size_t j = 0; j < k.size(); ++j) {
      const double dz = p[i][j] * (dot(dy[i], v[j]) - mean);
      for (size_t e = 0; e < v[j].size(); ++e) {
        d.v[j][e] += p[i][j] * dy[i][e];
      }
      for (size_t e = 0; e < q[i].size(); ++e) {
        d.q[i][e] += dz * scale * k[j][e];
        d.k[j][e] += dz * scale * q[i][e];
      }
    }
  }
  return d;
}
