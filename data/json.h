#pragma once

#include "base/error.h"
#include "base/excerpt.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// All JSON that comes from files is read with these functions.

namespace norma::data {

/// Parses `text` in a time proportional to its length. Throws Error "op: source: …" for invalid JSON, for a key that an
/// object has twice (the last one would hide the others), and for lists and objects more than `most_deep` in each
/// other, since code that walks JSON later recurses.
nlohmann::json parse_json(std::string_view op, std::string_view source, std::string_view text, int most_deep = 32);

/// A value as JSON text: on one line, or with `indent` spaces a level on lines of their own. Throws nlohmann's
/// exception for a text that is not UTF-8. Use it rather than json.dump(), which compiles the writer anew in each file.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

/// A value as JSON text, cut to a length for error texts.
std::string json_excerpt(const nlohmann::json& value);

namespace detail {

template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

/// Whether a value is a T, and what that is.
template <class T>
std::pair<bool, const char*> json_fits(const nlohmann::json& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return {value.is_boolean(), "true or false"};
  } else if constexpr (std::is_unsigned_v<T>) {
    return {value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<T>::max(),
            "a whole number of at least 0"};
  } else if constexpr (std::is_integral_v<T>) {
    return {value.is_number_unsigned()
                ? value.get<uint64_t>() <= uint64_t{std::numeric_limits<T>::max()}
                : value.is_number_integer() && value.get<int64_t>() >= int64_t{std::numeric_limits<T>::min()},
            "a whole number"};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {value.is_number(), "a number"};
  } else if constexpr (kIsVector<T>) {
    return {value.is_array(), "a list"};
  } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
    return {value.is_object(), "an object"};
  } else {
    return {value.is_string(), "a text"};
  }
}

}  // namespace detail

/// `value` as a T: bool, a number, a text, a list of such, an object of texts, or an optional (null) of one. Nothing is
/// converted: 3.7 is no whole number. Throws Error "op: name: expected a whole number, got 3.7".
template <class T>
T json_as(std::string_view op, const std::string& name, const nlohmann::json& value) {
  if constexpr (detail::kIsOptional<T>) {
    return value.is_null() ? T{} : T{json_as<typename T::value_type>(op, name, value)};
  } else {
    const auto [fits, expected] = detail::json_fits<T>(value);
    check(fits, op, "{}: expected {}, got {}", excerpt(name), expected, json_excerpt(value));
    if constexpr (detail::kIsVector<T>) {
      T list;
      for (const nlohmann::json& item : value) {
        list.push_back(json_as<typename T::value_type>(op, name, item));
      }
      return list;
    } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
      T object;
      for (const auto& [key, text] : value.items()) {
        object[key] = json_as<std::string>(op, name + "." + key, text);
      }
      return object;
    } else {
      return value.get<T>();
    }
  }
}

/// The field of an object, by json_as(). Throws Error "op: name: missing" when it is not there.
template <class T>
T json_field(std::string_view op, const nlohmann::json& object, const std::string& name) {
  check(object.is_object(), op, "expected an object, got {}", json_excerpt(object));
  check(object.contains(name), op, "{}: missing", name);
  return json_as<T>(op, name, object[name]);
}

/// The numbers of an array in a field. JSON has no NaN and no infinity: null stands for them, and becomes NaN.
std::vector<double> json_numbers(std::string_view op, const nlohmann::json& object, const std::string& name);

}  // namespace norma::data
