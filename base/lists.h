#pragma once

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <ranges>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// What is asked of lists everywhere.

namespace norma {

/// What `f`, a function or a member, gives for each element.
template <std::ranges::range List, class F>
auto mapped(List&& list, F&& f) {
  std::vector<std::decay_t<std::invoke_result_t<F&, std::ranges::range_reference_t<List>>>> result;
  for (auto&& one : list) {
    result.push_back(std::invoke(f, one));
  }
  return result;
}

/// The sum of what `f` gives for each element, added up in their order.
template <std::ranges::range List, class F = std::identity>
auto sum_of(const List& list, F f = {}) {
  std::decay_t<std::invoke_result_t<F&, std::ranges::range_reference_t<const List>>> sum{};
  for (const auto& one : list) {
    sum += std::invoke(f, one);
  }
  return sum;
}

/// The elements for which `f` is true.
template <std::ranges::range List, class F>
auto filtered(const List& list, F&& f) {
  std::vector<std::ranges::range_value_t<List>> result;
  std::ranges::copy_if(list, std::back_inserter(result), std::ref(f));
  return result;
}

template <std::ranges::range List, class Value, class Projection = std::identity>
bool is_in(const List& list, const Value& value, Projection projection = {}) {
  return std::ranges::find(list, value, projection) != std::ranges::end(list);
}

/// Adds a value that the list lacks. True iff it lacked it.
template <class T>
bool add_once(std::vector<T>& list, const std::type_identity_t<T>& value) {
  const bool is_new = !is_in(list, value);
  if (is_new) {
    list.push_back(value);
  }
  return is_new;
}

/// Throws Error "op: name: expected each once, got VALUE twice".
template <std::ranges::range List>
void check_each_once(std::string_view op, std::string_view name, const List& values) {
  for (auto value = std::ranges::begin(values); value != std::ranges::end(values); ++value) {
    check(std::find(std::ranges::begin(values), value, *value) == value, op, "{}: expected each once, got {} twice",
          name, *value);
  }
}

/// What a list of pairs has for a key: of a new pair at its end where there is none.
template <class Key, class Value>
Value& entry_of(std::vector<std::pair<Key, Value>>& list, const std::type_identity_t<Key>& key) {
  const auto found = std::ranges::find(list, key, &std::pair<Key, Value>::first);
  return found != list.end() ? found->second : list.emplace_back(key, Value{}).second;
}

}  // namespace norma
