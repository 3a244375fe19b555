#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace norma::train {

/// A bit for each image of a test set, in its order: true iff a network's answer was right.
using ImageBits = std::vector<bool>;

/// The number of right answers.
int64_t count_right(const ImageBits& bits);

/// Two hexadecimal digits for each eight images. Image 0 is the highest bit of the first digit, as in
/// numpy.unpackbits(). Bits after the last image are 0.
std::string to_hex(const ImageBits& bits);

/// The inverse, for this number of images. Throws Error "where: …" for another number of digits, for what is no digit,
/// and for bits after the last image.
ImageBits image_bits_from_hex(std::string_view where, int64_t images, std::string_view digits);

}  // namespace norma::train
