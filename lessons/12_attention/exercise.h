#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

using Row = std::vector<double>;
/// A matrix, row by row: m[i][j].
using Rows = std::vector<Row>;

inline double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

/// The softmax of the first `seen` numbers of z; what is not seen has the probability 0, whatever its number. If
/// nothing is seen, all are 0.
Row softmax_of(const Row& z, size_t seen);

/// What attention computes on the way forward, for L queries and S keys.
struct Attention {
  Rows p;  ///< (L, S): the probabilities
  Rows y;  ///< (L, Ev): the result
};

/// Attention of one head: q (L, E), k (S, E), v (S, Ev). The products are scaled by 1 / sqrt(E). `causal`: query i sees
/// the keys 0 to i alone; with fewer keys than queries, the last queries see all.
Attention attend(const Rows& q, const Rows& k, const Rows& v, bool causal);

struct AttentionGradients {
  Rows q;
  Rows k;
  Rows v;
};

/// The gradients of q, k and v, each of the sizes of what it belongs to; p is that of attend(), dy (L, Ev) the gradient
/// of y.
AttentionGradients attend_backward(const Rows& q, const Rows& k, const Rows& v, const Rows& p, const Rows& dy);
