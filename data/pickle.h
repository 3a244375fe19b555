#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace norma::data {

/// A value in a pickle (https://docs.python.org/3/library/pickle.html). What it refers to belongs to a PickleValues.
struct PickleValue {
  struct None {};
  struct Tuple {
    std::vector<const PickleValue*> items;
  };
  struct List {
    std::vector<const PickleValue*> items;
  };
  struct Dict {
    std::vector<std::pair<const PickleValue*, const PickleValue*>> items;
  };
  /// A class or a function by its module and name, "collections.OrderedDict".
  struct Global {
    std::string name;
  };
  /// A whole number beyond 64 bits, little-endian in two's complement.
  struct LongInteger {
    std::string bytes;
  };
  /// An object of the caller's, by the number that the caller has given it.
  struct Object {
    size_t number = 0;
  };
  std::variant<None, bool, int64_t, double, std::string, Tuple, List, Dict, Global, LongInteger, Object> content;

  template <class T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&content);
  }
  /// "a dict", "a tuple of 6", "torch.FloatStorage": for error texts.
  [[nodiscard]] std::string describe() const;
};

/// Values live as long as this: they may refer to each other in circles.
using PickleValues = std::deque<PickleValue>;

/// Nothing in a pickle is executed. What it asks for beyond plain values goes to these functions, which return a value,
/// or throw Error to refuse it.
struct PickleHooks {
  /// Called with the name of a class or a function that the pickle mentions.
  std::function<void(const std::string& global)> check_global;
  /// Called where the pickle calls a class or a function, with its name and its arguments, a tuple; returns the result.
  std::function<PickleValue(const std::string& global, const PickleValue& arguments)> call;
  /// Called for an object outside the pickle (opcode BINPERSID), with its id; returns what stands for it.
  std::function<PickleValue(const PickleValue& id)> load;
};

/// Reads the pickle at the beginning of `bytes`, of protocol 2 to 5, and takes it off them. Dicts, lists, tuples,
/// numbers and texts become values in `values`; the state that an ordered dict is given beside its items is dropped.
/// `op` begins every error text. Throws Error for the first opcode that makes anything else ("opcode NEWOBJ at byte
/// 17"), for a damaged pickle, and for one of more than 10 million opcodes.
const PickleValue& read_pickle(std::string_view op, std::string_view& bytes, const PickleHooks& hooks,
                               PickleValues& values);

}  // namespace norma::data
