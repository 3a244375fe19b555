#pragma once

#include "data/image_file.h"
#include "data/image_kind.h"

#include <string>
#include <string_view>

namespace norma::data {

/// Makes `image` the JPEG or PNG in `bytes`, of this size, as stb decodes it. What is wrong with it, or "". Throws
/// std::bad_alloc where memory does not suffice.
std::string decode_with_stb(std::string_view bytes, const ImageSize& size, int64_t channels, Image& image);

}  // namespace norma::data
