#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
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
  /// Anything else, by the name of its class: it is not made, and what the pickle says of it is dropped.
  struct Opaque {
    std::string name;
  };
  std::variant<None, bool, int64_t, double, std::string, Tuple, List, Dict, Global, LongInteger, Object, Opaque>
      content;

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
  /// Called where the pickle calls a class or a function, with its name and its arguments; returns the result.
  std::function<PickleValue(const std::string& global, const PickleValue::Tuple& arguments)> call;
  /// Called for an object outside the pickle (opcode BINPERSID), with its id; returns what stands for it.
  std::function<PickleValue(const PickleValue& id)> load;
};

/// Reads the pickle at the beginning of `bytes`, of protocol 2 to 5, and takes it off them. Dicts, lists, tuples,
/// numbers and texts become values in `values`, sets and bytes opaque ones; the state that an object is given beside
/// its items is dropped. `op` begins every error text. Throws Error for an opcode of older protocols ("opcode INST at
/// byte 17"), for a damaged pickle, and for one of more than `most` opcodes, of which each takes a bounded memory
/// beside the bytes after it.
const PickleValue& read_pickle(std::string_view op, std::string_view& bytes, size_t most, const PickleHooks& hooks,
                               PickleValues& values);

}  // namespace norma::data
