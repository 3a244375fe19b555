#include "data/npy.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/parse_number.h"
#include "core/copy.h"
#include "core/factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>

namespace norma::data {

static_assert(std::endian::native == std::endian::little, "what is written here are little-endian numbers");

namespace {

constexpr std::string_view kOp = "npy";
constexpr std::string_view kMagic{"\x93NUMPY", 6};
constexpr size_t kAlignment = 64;  // of the first element

struct TypeName {
  std::string_view name;
  DType dtype;
};
constexpr std::array kTypes{TypeName{"<f4", DType::float32}, TypeName{"<f8", DType::float64},
                            TypeName{"<f2", DType::float16}, TypeName{"<i8", DType::int64},
                            TypeName{"<i4", DType::int32},   TypeName{"|u1", DType::uint8},
                            TypeName{"|b1", DType::boolean}};

/// Reads the header, the text of a dict of Python: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class Header {
 public:
  Header(std::string_view file, std::string_view text) : file_(file), whole_(text), rest_(text) {
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !dtype_) {
        dtype_ = dtype();
      } else if (key == "fortran_order" && !is_column_major_) {
        is_column_major_ = boolean();
      } else if (key == "shape" && !sizes_) {
        sizes_ = shape();
      } else {
        bad(fmt::format("the key '{}' once, of descr, fortran_order and shape", excerpt(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    check(rest_.find_first_not_of(" \n") == std::string_view::npos && dtype_ && is_column_major_ && sizes_,
          "descr, fortran_order and shape, and nothing else");
  }

  [[nodiscard]] DType dtype_of_elements() const { return *dtype_; }
  [[nodiscard]] const Sizes& sizes() const { return *sizes_; }
  [[nodiscard]] Strides strides() const {
    if (!*is_column_major_) {
      return contiguous_strides(*sizes_);
    }
    Sizes reversed;
    for (int64_t axis = sizes_->size(); axis-- > 0;) {
      reversed.push_back((*sizes_)[axis]);
    }
    Strides strides = contiguous_strides(reversed);
    std::reverse(strides.begin(), strides.end());
    return strides;
  }

 private:
  [[noreturn]] void bad(std::string_view expected) const {
    fail(kOp, "{}: header: expected {}, got {}", file_, expected, excerpt(whole_));
  }
  void check(bool condition, std::string_view expected) const {
    if (!condition) {
      bad(expected);
    }
  }
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }
  bool accept(char c) {
    skip_blanks();
    if (rest_.empty() || rest_.front() != c) {
      return false;
    }
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) { check(accept(c), fmt::format("'{}'", c)); }
  std::string_view until(std::string_view ends) {
    const size_t length = std::min(rest_.find_first_of(ends), rest_.size());
    const std::string_view text = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return text;
  }
  std::string_view quoted() {
    expect('\'');
    const std::string_view text = until("'");
    expect('\'');
    return text;
  }
  DType dtype() {
    const std::string_view name = quoted();
    const auto* const found = std::ranges::find(kTypes, name, &TypeName::name);
    check(found != kTypes.end(), "descr '<f4', '<f8', '<f2', '<i8', '<i4', '|u1' or '|b1'");
    return found->dtype;
  }
  bool boolean() {
    skip_blanks();
    const std::string_view word = until(",} \n");
    check(word == "True" || word == "False", "fortran_order True or False");
    return word == "True";
  }
  Sizes shape() {
    Sizes sizes;
    expect('(');
    while (!accept(')')) {
      skip_blanks();
      const std::optional<int64_t> size = parse_number<int64_t>(std::string(until(",) \n")));
      check(size && *size >= 0, "a shape of whole numbers");
      check(sizes.size() < kMaxRank, fmt::format("at most {} axes", kMaxRank));
      sizes.push_back(*size);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return sizes;
  }

  std::string_view file_;
  std::string_view whole_;
  std::string_view rest_;
  std::optional<DType> dtype_;
  std::optional<bool> is_column_major_;
  std::optional<Sizes> sizes_;
};

}  // namespace

std::string npy_bytes(const Tensor& x) {
  const auto* const type = std::ranges::find(kTypes, x.dtype(), &TypeName::dtype);
  check(type != kTypes.end(), kOp, "expected a dtype that NumPy has, got {}", to_string(x.dtype()));
  std::string shape;
  for (const int64_t size : x.sizes()) {
    shape += fmt::format("{},", size);
  }
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type->name, shape);
  const size_t before = kMagic.size() + 4;  // the version and the length of the header, of two bytes each
  header.append(kAlignment - 1 - (before + header.size()) % kAlignment, ' ');
  header += '\n';
  std::string bytes(kMagic);
  bytes += std::string_view("\x01\x00", 2);
  const auto length = static_cast<uint16_t>(header.size());
  bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += header;
  const Tensor values = to_device(copy_of(x.detach(), MemoryFormat::contiguous), kCpu);
  bytes.append(static_cast<const char*>(values.raw_data()), static_cast<size_t>(x.numel()) * size_of(x.dtype()));
  return bytes;
}

Tensor tensor_of_npy(std::string_view file, std::string_view bytes) {
  check(bytes.starts_with(kMagic) && bytes.size() > kMagic.size() + 4, kOp, "{}: expected a file of NumPy, got another",
        file);
  const char major = bytes[kMagic.size()];
  check(major >= 1 && major <= 3, kOp, "{}: expected version 1, 2 or 3, got {}", file, static_cast<int>(major));
  const size_t length_bytes = major == 1 ? 2 : 4;
  const size_t begin = kMagic.size() + 2 + length_bytes;
  check(bytes.size() >= begin, kOp, "{}: expected a header, got the end of the file", file);
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + kMagic.size() + 2, length_bytes);
  check(bytes.size() - begin >= length, kOp, "{}: expected a header of {} bytes, got {}", file, length,
        bytes.size() - begin);
  const Header header(file, bytes.substr(begin, length));
  const std::string_view data = bytes.substr(begin + length);
  const int64_t numel = checked_numel(kOp, header.sizes());
  const auto element = static_cast<int64_t>(size_of(header.dtype_of_elements()));
  const int64_t expected = checked_mul(kOp, "shape", numel, element);
  check(static_cast<int64_t>(data.size()) == expected, kOp, "{}: expected {} bytes of elements, got {}", file, expected,
        data.size());
  const Tensor x =
      empty_strided(header.sizes(), header.strides(), {.dtype = header.dtype_of_elements(), .device = kCpu});
  if (expected > 0) {
    std::memcpy(x.raw_data(), data.data(), data.size());
  }
  check(x.dtype() != DType::boolean || std::ranges::all_of(data, [](char byte) { return byte == 0 || byte == 1; }), kOp,
        "{}: expected 0 or 1 in every byte of a bool", file);
  return x;
}

}  // namespace norma::data
