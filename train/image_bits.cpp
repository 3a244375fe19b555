#include "train/image_bits.h"

#include "base/error.h"
#include "base/excerpt.h"

#include <algorithm>
#include <cstddef>

namespace norma::train {

namespace {

constexpr size_t kBitsOfByte = 8;
constexpr size_t kBitsOfDigit = 4;
constexpr std::string_view kDigits = "0123456789abcdef";

size_t digits_of(size_t images) {
  return 2 * ((images + kBitsOfByte - 1) / kBitsOfByte);
}

}  // namespace

int64_t count_right(const ImageBits& bits) {
  return std::count(bits.begin(), bits.end(), true);
}

std::string to_hex(const ImageBits& bits) {
  std::string digits(digits_of(bits.size()), '0');
  for (size_t digit = 0; digit < digits.size(); ++digit) {
    size_t value = 0;
    for (size_t i = digit * kBitsOfDigit; i < (digit + 1) * kBitsOfDigit; ++i) {
      value = 2 * value + (i < bits.size() && bits[i] ? 1 : 0);
    }
    digits[digit] = kDigits[value];
  }
  return digits;
}

ImageBits image_bits_from_hex(std::string_view where, int64_t images, std::string_view digits) {
  // Also keeps a damaged number from asking for much memory.
  check(images >= 1 && static_cast<uint64_t>(images) <= kBitsOfDigit * digits.size() &&
            digits.size() == digits_of(static_cast<size_t>(images)),
        where, "bits: expected two digits for each eight images, got {} digits for {} images", digits.size(), images);
  ImageBits bits(static_cast<size_t>(images));
  for (size_t digit = 0; digit < digits.size(); ++digit) {
    const size_t value = kDigits.find(digits[digit]);
    check(value != std::string_view::npos, where, "bits: expected hexadecimal digits 0 to 9 and a to f, got '{}'",
          excerpt(digits.substr(digit, 1)));
    for (size_t bit = 0; bit < kBitsOfDigit; ++bit) {
      const bool right = ((value >> (kBitsOfDigit - 1 - bit)) & 1) == 1;
      const size_t image = digit * kBitsOfDigit + bit;
      if (image < bits.size()) {
        bits[image] = right;
      } else {
        check(!right, where, "bits: expected 0 behind the last of {} images, got 1", images);
      }
    }
  }
  return bits;
}

}  // namespace norma::train
