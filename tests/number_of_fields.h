#pragma once

#include <cstddef>
#include <utility>

namespace norma::test {

struct Anything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};

template <class T, size_t... I>
constexpr bool takes_values(std::index_sequence<I...> /*as many*/) {
  return requires {
    T{(void(I), Anything())...};
  };
}

/// How many values initialize an aggregate.
template <class T, size_t N = 1>
constexpr size_t number_of_fields() {
  if constexpr (takes_values<T>(std::make_index_sequence<N>())) {
    return number_of_fields<T, N + 1>();
  } else {
    return N - 1;
  }
}

}  // namespace norma::test
